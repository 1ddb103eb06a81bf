//! The terminal of this process: its keys, its settings and its size.

mod keys;
#[cfg(test)]
pub(crate) mod pty;
pub(crate) mod terminal_size;

pub(crate) use keys::{TerminalGuard, typed};
