//! The file operations of the store: append, replace, and locks. The purpose of a file is not known here.

pub(crate) mod atomic;
pub(crate) mod fs_probe;
pub(super) mod jsonl;
pub mod lock;
pub(crate) mod read;
pub mod tail;
