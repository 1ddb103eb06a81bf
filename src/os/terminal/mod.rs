//! The terminal of this process: its keys, its settings and its size.

pub(crate) mod foreground;
pub(crate) mod pager;
#[cfg(test)]
pub(crate) mod pty;
pub(crate) mod raw_mode;
pub(crate) mod terminal_size;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
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
