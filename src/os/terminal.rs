//! Leaving the terminal as it was.

use nix::libc;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use std::io;
use std::panic;

/// Puts the settings of the terminal on standard input back when dropped, and when any thread panics.
#[derive(Debug)]
pub(crate) struct TerminalGuard {
    saved: Termios,
}

impl TerminalGuard {
    /// Remembers the settings; `None` if standard input is no terminal.
    pub(crate) fn save() -> Option<Self> {
        let saved = tcgetattr(io::stdin()).ok()?;
        let at_panic = libc::termios::from(saved.clone());
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Before the report: in raw mode its lines would run down the screen like stairs.
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
