//! A limit to a system call that would block for ever: a signal to the calling thread, which interrupts
//! it.
//!
//! *Invariant:* the signal is one that is ignored by default, so that a late one harms nobody.

use nix::sys::signal::{
    SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction,
};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use std::cell::RefCell;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// Nobody else uses it: it tells of urgent data on sockets.
const SIGNAL: Signal = Signal::SIGURG;

/// A call that is entered only after the first signal would miss it: they go on coming.
const AGAIN: Duration = Duration::from_millis(20);

thread_local! {
    /// Making one takes several system calls, and who waits for locks waits often.
    static TIMER: RefCell<Option<Timer>> = const { RefCell::new(None) };
}

/// Interrupts the thread that made it, from some time on until this is dropped.
#[derive(Debug)]
pub(crate) struct SyscallTimeout {
    timer: Option<Timer>,
}

impl SyscallTimeout {
    /// Blocking calls of this thread fail with `Interrupted` after `limit`.
    pub(crate) fn after(limit: Duration) -> io::Result<Self> {
        let kept = TIMER.with_borrow_mut(Option::take);
        let mut timer = kept.map_or_else(timer_of_this_thread, Ok)?;
        // A delay of nothing would switch the timer off.
        let first = limit.max(Duration::from_nanos(1));
        let expiration = Expiration::IntervalDelayed(first.into(), AGAIN.into());
        timer.set(expiration, TimerSetTimeFlags::empty())?;
        Ok(Self { timer: Some(timer) })
    }
}

impl Drop for SyscallTimeout {
    /// Switched off, it is kept for the next one.
    fn drop(&mut self) {
        let Some(mut timer) = self.timer.take() else { return };
        let never = Expiration::OneShot(Duration::ZERO.into());
        if timer.set(never, TimerSetTimeFlags::empty()).is_ok() {
            TIMER.set(Some(timer));
        }
    }
}

fn timer_of_this_thread() -> io::Result<Timer> {
    listen()?;
    let notify = SigevNotify::SigevThreadId {
        signal: SIGNAL,
        thread_id: nix::unistd::gettid().as_raw(),
        si_value: 0,
    };
    Ok(Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(notify))?)
}

/// Installs a handler that does nothing, and lets this thread have the signal.
fn listen() -> io::Result<()> {
    extern "C" fn nothing(_signal: i32) {}
    static INSTALLED: OnceLock<nix::Result<()>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // Without SA_RESTART, or the interrupted call would go on waiting.
        let action =
            SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing.
        #[expect(unsafe_code, reason = "installing a signal handler")]
        unsafe {
            sigaction(SIGNAL, &action).map(drop)
        }
    });
    (*installed)?;
    Ok(SigSet::from(SIGNAL).thread_unblock()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn a_blocked_call_is_interrupted_when_time_is_up() {
        let (mut silent, _other) = UnixStream::pair().unwrap();
        for limit in [Duration::ZERO, Duration::from_millis(30)] {
            let start = Instant::now();
            let alarm = SyscallTimeout::after(limit).unwrap();
            let why = silent.read(&mut [0]).unwrap_err();
            drop(alarm);
            assert_eq!(why.kind(), io::ErrorKind::Interrupted);
            assert!(start.elapsed() >= limit);
        }
    }
}
