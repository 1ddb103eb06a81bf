//! The failures of work on a clone, in words.

use crate::os::git::GitError;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// The reason for which work on a clone failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}; {hint}")]
pub(crate) struct WorkError {
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) hint: String,
}

impl WorkError {
    pub(super) fn new(what: impl Into<String>, why: impl Display, hint: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.to_string(), hint: hint.into() }
    }

    pub(super) fn git(what: &str, why: &GitError) -> Self {
        Self::new(what, why, "look at the repository and at the space on the disk, then try again")
    }

    pub(super) fn file(path: &Path, why: &io::Error) -> Self {
        let hint = "check its permissions and the space on the disk";
        Self::new(format!("{} cannot be used", path.display()), why, hint)
    }
}
