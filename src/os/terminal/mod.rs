//! The terminal of this process: its keys, its settings and its size.

pub(crate) mod foreground;
pub(crate) mod pager;
#[cfg(test)]
pub(crate) mod pty;
pub(crate) mod raw_mode;
pub(crate) mod terminal_size;

use crate::os::signals::SignalEvent;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use std::io;
use std::os::fd::AsFd;
use std::panic;
use std::time::Duration;

/// Returns the bytes of pressed keys; none if `patience` passes or `other` becomes readable first. Fails if the
/// terminal on stdin is gone.
pub(crate) fn typed(other: &impl AsFd, patience: Duration) -> io::Result<Vec<u8>> {
    let input = io::stdin();
    let wait_for = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut waiting = [wait_for(input.as_fd()), wait_for(other.as_fd())];
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    match poll(&mut waiting, timeout) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(why) => return Err(why.into()),
    }
    if waiting.first().and_then(PollFd::any) != Some(true) {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; 4096];
    let count = match nix::unistd::read(&input, &mut bytes) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Err(Errno::EINTR | Errno::EAGAIN) => 0,
        read => read?,
    };
    bytes.truncate(count);
    Ok(bytes)
}

/// Returns the path of the terminal on standard input, such as `/dev/pts/3`; `None` if it is no terminal.
pub(crate) fn terminal_name() -> Option<String> {
    let path = nix::unistd::ttyname(io::stdin()).ok()?;
    Some(path.display().to_string())
}

/// Reads a line that answers the question which `ask` shows on the terminal. Fails if a signal comes instead, which then
/// does not kill this process; Ctrl-D and a terminal that is gone count as an interrupt. The calling thread must be the only
/// one.
pub(crate) fn read_answer(ask: impl FnOnce()) -> Result<String, SignalEvent> {
    let signals: SigSet = AWAY.iter().map(|(signal, _)| *signal).collect();
    let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    // A person may press Ctrl-C as soon as the question is there.
    ask();
    let answer = line_or_signal(&signals);
    if let Ok(before) = before {
        // The mask was read a moment ago.
        before.thread_set_mask().unwrap_or_default();
    }
    answer
}

/// The signals by which a person or the system ends a question.
const AWAY: [(Signal, SignalEvent); 3] = [
    (Signal::SIGINT, SignalEvent::Interrupt),
    (Signal::SIGTERM, SignalEvent::Terminate),
    (Signal::SIGHUP, SignalEvent::Hangup),
];

fn line_or_signal(signals: &SigSet) -> Result<String, SignalEvent> {
    let gone = |_| SignalEvent::Interrupt;
    let arrived = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let arrived = arrived.map_err(gone)?;
    let mut line = Vec::new();
    loop {
        // The terminal hands over one line at a time, so no later input is taken away.
        line.extend(typed(&arrived, Duration::MAX).map_err(|_| SignalEvent::Interrupt)?);
        if let Ok(Some(info)) = arrived.read_signal() {
            let is_it = |(signal, _): &&(Signal, SignalEvent)| {
                i64::from(*signal as i32) == i64::from(info.ssi_signo)
            };
            return Err(AWAY
                .iter()
                .find(is_it)
                .map_or(SignalEvent::Interrupt, |(_, event)| *event));
        }
        if line.ends_with(b"\n") {
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
    }
}

/// Restores the settings of the terminal on standard input when it is dropped, and when any thread panics.
#[derive(Debug)]
pub(crate) struct TerminalGuard(Termios);

impl TerminalGuard {
    /// Saves the settings; returns `None` if standard input is not a terminal.
    pub(crate) fn save() -> Option<Self> {
        let saved = tcgetattr(io::stdin()).ok()?;
        let at_panic = libc::termios::from(saved.clone());
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Raw mode must end before the report: in it a newline does not return to column 0.
            restore(&Termios::from(at_panic));
            report(info);
        }));
        Some(Self(saved))
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore(&self.0);
    }
}

fn restore(settings: &Termios) {
    // A terminal that is gone has no settings to restore.
    tcsetattr(io::stdin(), SetArg::TCSANOW, settings).unwrap_or_default();
}
