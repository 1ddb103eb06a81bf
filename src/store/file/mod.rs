//! The file operations of the store, for files of any purpose: read, append, replace, and locks.

pub(crate) mod atomic;
pub(crate) mod fs_probe;
pub(super) mod jsonl;
pub(crate) mod line_search;
pub mod lock;
pub(crate) mod read;
pub mod tail;
pub(crate) mod together;
