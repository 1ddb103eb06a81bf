//! Raw mode of the terminal on standard input, and the events that interrupt a wait for keys.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::termios::{OutputFlags, SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use signal_hook::SigId;
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGWINCH};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Raw mode: keys arrive one by one and unchanged. Dropping it restores the earlier settings.
#[derive(Debug)]
pub(crate) struct RawMode {
    before: Termios,
    raw: Termios,
}

impl RawMode {
    /// Enters raw mode; line feeds of other output still begin at column 0. Fails without a terminal.
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        raw.output_flags |= before.output_flags & (OutputFlags::OPOST | OutputFlags::ONLCR);
        let mode = Self { before, raw };
        mode.resume()?;
        Ok(mode)
    }

    /// Restores the earlier settings for a while. A terminal that is gone has no settings to restore.
    pub(crate) fn pause(&self) {
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before).unwrap_or_default();
    }

    /// Enters raw mode again.
    pub(crate) fn resume(&self) -> io::Result<()> {
        Ok(tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.raw)?)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        self.pause();
    }
}

/// Suspends this process as Ctrl-Z does, whatever its handlers are; returns when it is continued. A process without
/// a shell that could continue it is not suspended.
pub(crate) fn suspend() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default disposition runs no code, and the handler that it replaces is restored.
    #[expect(unsafe_code, reason = "a disposition can only be changed by this call")]
    let before = unsafe { sigaction(Signal::SIGTSTP, &default) }?;
    let raised = raise(Signal::SIGTSTP);
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "as above")]
    unsafe { sigaction(Signal::SIGTSTP, &before) }?;
    Ok(raised?)
}

const WOKEN: u8 = b'w';
const RESIZED: u8 = b'r';
const SUSPEND: u8 = b'z';

/// The signals that concern a program which draws on the terminal, and the letter of each.
const SIGNALS: [(i32, u8); 3] = [(SIGWINCH, RESIZED), (SIGCONT, RESIZED), (SIGTSTP, SUSPEND)];

/// The events that end a wait for keys; the descriptor is readable if there is one.
#[derive(Debug)]
pub(crate) struct TerminalEvents {
    arrived: UnixStream,
    arriving: Arc<UnixStream>,
    handlers: Vec<SigId>,
}

/// Wakes the thread that waits for keys.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<UnixStream>);

impl Waker {
    pub(crate) fn wake(&self) {
        post(&self.0, WOKEN);
    }
}

/// The events since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HappenedEvents {
    /// The size may have changed, or the program was continued: all is to be drawn anew.
    pub(crate) resized: bool,
    /// The program is asked to suspend itself.
    pub(crate) suspend: bool,
}

impl TerminalEvents {
    pub(crate) fn listen() -> io::Result<Self> {
        let (arrived, arriving) = UnixStream::pair()?;
        arrived.set_nonblocking(true)?;
        let arriving = Arc::new(arriving);
        let mut handlers = Vec::new();
        for (number, letter) in SIGNALS {
            let arriving = Arc::clone(&arriving);
            // SAFETY: the handler makes one system call on a descriptor that stays open as long as the handler.
            #[expect(unsafe_code, reason = "the safe interface does not tell signals apart")]
            let handler = unsafe {
                signal_hook::low_level::register(number, move || post(&arriving, letter))
            };
            handlers.push(handler?);
        }
        Ok(Self { arrived, arriving, handlers })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.arriving))
    }

    /// Takes all events that have arrived.
    pub(crate) fn take(&self) -> HappenedEvents {
        let mut happened = HappenedEvents::default();
        let mut letters = [0; 256];
        while let Ok(count @ 1..) = (&self.arrived).read(&mut letters) {
            let letters = letters.get(..count).unwrap_or_default();
            happened.resized |= letters.contains(&RESIZED);
            happened.suspend |= letters.contains(&SUSPEND);
        }
        happened
    }
}

impl AsFd for TerminalEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

impl Drop for TerminalEvents {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            signal_hook::low_level::unregister(handler);
        }
    }
}

fn post(arriving: &UnixStream, letter: u8) {
    // A full buffer already holds an event.
    let _sent = send(arriving.as_raw_fd(), &[letter], MsgFlags::MSG_DONTWAIT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::low_level::raise;

    #[test]
    fn events_are_told_apart_and_a_storm_is_one() {
        let events = TerminalEvents::listen().unwrap();
        assert_eq!(events.take(), HappenedEvents::default());
        for _ in 0..10_000 {
            events.waker().wake();
        }
        assert_eq!(events.take(), HappenedEvents::default());
        raise(SIGWINCH).unwrap();
        assert_eq!(events.take(), HappenedEvents { resized: true, suspend: false });
        raise(SIGTSTP).unwrap();
        assert_eq!(events.take(), HappenedEvents { resized: false, suspend: true });
    }
}
