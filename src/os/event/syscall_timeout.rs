//! A timeout for a blocking system call: a signal to the calling thread interrupts the call.
//!
//! *Invariant:* the signal is ignored by default, so that a late one is harmless.

use nix::sys::signal::{
    SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction,
};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use std::cell::RefCell;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// The signal that interrupts the call. No other code uses it: its purpose is urgent data on sockets.
const SIGNAL: Signal = Signal::SIGURG;

/// The period of repeated signals, for a call that begins after the first signal.
const AGAIN: Duration = Duration::from_millis(20);

thread_local! {
    /// The timer is kept, because its creation takes several system calls.
    static TIMER: RefCell<Option<Timer>> = const { RefCell::new(None) };
}

/// Interrupts blocking calls of the thread that created it, until it is dropped.
#[derive(Debug)]
pub(crate) struct SyscallTimeout {
    timer: Option<Timer>,
}

impl SyscallTimeout {
    /// Makes blocking calls of this thread fail with `Interrupted` after `limit`.
    pub(crate) fn after(limit: Duration) -> io::Result<Self> {
        let kept = TIMER.with_borrow_mut(Option::take);
        let mut timer = kept.map_or_else(timer_of_this_thread, Ok)?;
        // A delay of zero would stop the timer.
        let first = limit.max(Duration::from_nanos(1));
        let expiration = Expiration::IntervalDelayed(first.into(), AGAIN.into());
        timer.set(expiration, TimerSetTimeFlags::empty())?;
        Ok(Self { timer: Some(timer) })
    }
}

impl Drop for SyscallTimeout {
    /// Stops the timer and keeps it for the next use.
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

/// Installs a handler that does nothing, and unblocks the signal for this thread.
fn listen() -> io::Result<()> {
    extern "C" fn nothing(_signal: i32) {}
    static INSTALLED: OnceLock<nix::Result<()>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // Without SA_RESTART, which would continue the interrupted call.
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
            let timeout = SyscallTimeout::after(limit).unwrap();
            let why = silent.read(&mut [0]).unwrap_err();
            drop(timeout);
            assert_eq!(why.kind(), io::ErrorKind::Interrupted);
            assert!(start.elapsed() >= limit);
        }
    }
}
