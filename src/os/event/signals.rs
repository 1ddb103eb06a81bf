//! The signals that ask a program to stop, as values that are read from a descriptor.
//!
//! SIGPIPE is ignored from the start, and commands get its default disposition back.

use crate::os::Signal;
use nix::sys::socket::{MsgFlags, send};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A signal that asks this process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalEvent {
    Interrupt,
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
}

impl SignalEvent {
    /// Returns the name of the signal.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
        }
    }

    /// Returns the signal, to be passed on.
    pub(crate) fn signal(self) -> Signal {
        match self {
            Self::Interrupt => Signal::SIGINT,
            Self::Terminate => Signal::SIGTERM,
            Self::Hangup => Signal::SIGHUP,
        }
    }
}

const EVENTS: [(i32, u8, SignalEvent); 3] = [
    (SIGINT, b'i', SignalEvent::Interrupt),
    (SIGTERM, b't', SignalEvent::Terminate),
    (SIGHUP, b'h', SignalEvent::Hangup),
];

/// The pending signals; the descriptor is readable if there is one.
#[derive(Debug)]
pub(crate) struct Signals {
    arrived: UnixStream,
}

impl Signals {
    /// Installs handlers for these signals, which then no longer kill the process. The handlers stay until the
    /// process exits.
    pub(crate) fn listen() -> io::Result<Self> {
        let (arrived, arriving) = UnixStream::pair()?;
        arrived.set_nonblocking(true)?;
        for (number, letter, _) in EVENTS {
            let arriving = arriving.try_clone()?;
            let pass_on = move || {
                // A full buffer holds enough signals.
                let _sent = send(arriving.as_raw_fd(), &[letter], MsgFlags::MSG_DONTWAIT);
            };
            // SAFETY: the handler makes one system call on a descriptor that stays open.
            #[expect(unsafe_code, reason = "the safe interface does not tell signals apart")]
            unsafe {
                signal_hook::low_level::register(number, pass_on)?;
            }
        }
        Ok(Self { arrived })
    }

    pub(crate) fn take(&self) -> Option<SignalEvent> {
        let mut letter = [0];
        (&self.arrived).read_exact(&mut letter).ok()?;
        EVENTS.iter().find(|(_, known, _)| [*known] == letter).map(|(_, _, event)| *event)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::low_level::raise;

    #[test]
    fn signals_come_in_order_and_a_storm_does_no_harm() {
        use SignalEvent::{Hangup, Interrupt, Terminate};
        let signals = Signals::listen().unwrap();
        assert_eq!(signals.take(), None);
        for number in [SIGINT, SIGTERM, SIGINT, SIGHUP] {
            raise(number).unwrap();
        }
        let first: Vec<_> = std::iter::from_fn(|| signals.take()).collect();
        assert_eq!(first, [Interrupt, Terminate, Interrupt, Hangup]);
        for _ in 0..1000 {
            raise(SIGTERM).unwrap();
        }
        assert_eq!(signals.take(), Some(Terminate));
    }
}
