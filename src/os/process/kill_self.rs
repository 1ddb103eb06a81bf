//! The sudden end of this process.

use nix::sys::signal::{Signal, kill};

/// `kill -9` on this process: no destructor runs, nothing is flushed.
pub(crate) fn kill_self() {
    let sent = kill(nix::unistd::getpid(), Signal::SIGKILL);
    debug_assert_eq!(sent, Ok(()), "a process may signal itself");
}
