//! Files: opens them safely, watches them, and resolves paths below a folder.

pub(crate) mod lease;
mod regular;
pub(crate) mod safe_path;
pub(crate) mod watch;

pub use regular::FileError;
pub(crate) use regular::{
    Access, At, allocate, check_owner, create_new, open, open_known, open_or_create,
};
