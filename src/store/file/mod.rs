//! The two ways in which the store writes, append and replace, and the locks that order writers. Nothing here
//! knows what a file is for.

pub(crate) mod atomic;
pub mod fs_probe;
pub(super) mod jsonl;
pub mod lock;
mod reserve;
pub mod tail;
