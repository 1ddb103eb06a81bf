//! The signals that ask a program to stop, as values that are read from a descriptor.
//!
//! SIGPIPE is ignored from the start, and commands get its default disposition back.

use nix::sys::socket::{MsgFlags, send};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;

/// A signal that asks this process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalEvent {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
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
    /// Starts to listen: these signals no longer end the process. The first listener keeps them until the
    /// process exits.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn listen() -> io::Result<Self> {
        let (arrived, arriving) = UnixStream::pair()?;
        arrived.set_nonblocking(true)?;
        for (number, letter, _) in EVENTS {
            let arriving = arriving.try_clone()?;
            let pass_on = move || {
                // A full buffer holds enough signals.
                send(arriving.as_raw_fd(), &[letter], MsgFlags::MSG_DONTWAIT)
                    .map(drop)
                    .unwrap_or_default();
            };
            // SAFETY: the handler makes one system call on a descriptor that stays open.
            #[expect(unsafe_code, reason = "the safe interface does not tell signals apart")]
            unsafe {
                signal_hook::low_level::register(number, pass_on)?;
            }
        }
        Ok(Self { arrived })
    }

    /// Returns the next pending signal.
    pub(crate) fn take(&self) -> Option<SignalEvent> {
        let mut letter = [0];
        let count = (&self.arrived).read(&mut letter).ok()?;
        let [letter] = letter;
        let event = EVENTS.iter().find(|(_, known, _)| count == 1 && *known == letter);
        event.map(|(_, _, event)| *event)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.arrived.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::low_level::raise;

    #[test]
    fn signals_come_in_order_and_a_storm_does_no_harm() {
        let signals = Signals::listen().unwrap();
        assert_eq!(signals.take(), None);
        for number in [SIGINT, SIGTERM, SIGINT, SIGHUP] {
            raise(number).unwrap();
        }
        let first: Vec<_> = std::iter::from_fn(|| signals.take()).collect();
        let expected = [
            SignalEvent::Interrupt,
            SignalEvent::Terminate,
            SignalEvent::Interrupt,
            SignalEvent::Hangup,
        ];
        assert_eq!(first, expected);
        for _ in 0..1000 {
            raise(SIGTERM).unwrap();
        }
        assert_eq!(signals.take(), Some(SignalEvent::Terminate));
    }
}
