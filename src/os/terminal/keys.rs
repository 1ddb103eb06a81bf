//! Reads keys from the terminal, and restores its settings.

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use std::io;
use std::os::fd::AsFd;
use std::panic;
use std::time::Duration;

/// Returns the bytes of pressed keys. Waits at most `patience`, or until `other` is readable.
///
/// # Errors
/// The terminal on standard input is gone.
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
    match nix::unistd::read(&input, &mut bytes) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            bytes.truncate(count);
            Ok(bytes)
        }
        Err(Errno::EINTR | Errno::EAGAIN) => Ok(Vec::new()),
        Err(why) => Err(why.into()),
    }
}

/// Restores the settings of the terminal on standard input when it is dropped, and when any thread panics.
#[derive(Debug)]
pub(crate) struct TerminalGuard {
    saved: Termios,
}

impl TerminalGuard {
    /// Saves the settings; `None` if standard input is no terminal.
    pub(crate) fn save() -> Option<Self> {
        let saved = tcgetattr(io::stdin()).ok()?;
        let at_panic = libc::termios::from(saved.clone());
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Before the report: raw mode does not return the carriage at a newline.
            restore(&Termios::from(at_panic));
            report(info);
        }));
        Some(Self { saved })
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore(&self.saved);
    }
}

fn restore(settings: &Termios) {
    // A terminal that is gone has no settings to restore.
    tcsetattr(io::stdin(), SetArg::TCSANOW, settings).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;
    use nix::sys::termios::{LocalFlags, cfmakeraw};
    use std::process::{Command, Stdio};

    /// The job of the second copy of this test binary at its terminal.
    const TASK: &str = "TEAM_TEST_TERMINAL";

    #[test]
    fn be_at_a_terminal() {
        let Some((_, task)) = std::env::vars().find(|(name, _)| name == TASK) else { return };
        let guard = TerminalGuard::save().unwrap();
        let mut raw = guard.saved.clone();
        cfmakeraw(&mut raw);
        restore(&raw);
        if task == "panic" {
            let thread = std::thread::spawn(|| panic!("the terminal is put back before this"));
            assert!(thread.join().is_err());
            // No destructor runs, so the hook alone must restore.
            std::mem::forget(guard);
        }
    }

    fn check(task: &str) {
        let pair = openpty(None, None).unwrap();
        let before = tcgetattr(&pair.slave).unwrap();
        assert!(before.local_flags.contains(LocalFlags::ECHO | LocalFlags::ICANON));
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "os::terminal::keys::tests::be_at_a_terminal"]).env(TASK, task);
        child.stdin(pair.slave.try_clone().unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(child.status().unwrap().success(), "{task}");
        assert_eq!(tcgetattr(&pair.slave).unwrap(), before, "{task}");
    }

    #[test]
    fn the_settings_come_back_at_the_end_and_at_a_panic() {
        check("end");
        check("panic");
    }

    #[test]
    fn where_there_is_no_terminal_nothing_is_saved() {
        if !std::io::IsTerminal::is_terminal(&io::stdin()) {
            assert!(TerminalGuard::save().is_none());
        }
    }
}
