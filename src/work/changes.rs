//! The files that differ between two trees of a repository.

use super::repository::Repository;
use crate::os::git::GitError;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A change of one file between two trees.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) modes: [String; 2],
    pub(super) ids: [String; 2],
}

impl Change {
    /// Whether the file was created.
    pub(super) fn is_new(&self) -> bool {
        is_none(&self.ids[0])
    }

    pub(super) fn is_removal(&self) -> bool {
        is_none(&self.ids[1])
    }

    /// Whether git knows no change of the kind or the permissions.
    pub(super) fn keeps_mode(&self) -> bool {
        self.modes[0] == self.modes[1]
    }
}

/// The changed files between two trees, by their paths in the repository.
pub(super) type Changes = BTreeMap<PathBuf, Change>;

/// Whether the id of an object stands for a missing file.
pub(super) fn is_none(id: &str) -> bool {
    id.bytes().all(|byte| byte == b'0')
}

/// Returns the files that differ between two trees.
pub(super) fn between(repository: &Repository, from: &str, to: &str) -> Result<Changes, GitError> {
    let words = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to];
    let output = repository.git.checked(&words, b"")?;
    let fields: Vec<&[u8]> = output.split(|byte| *byte == 0).collect();
    let mut changes = BTreeMap::new();
    for pair in fields.chunks_exact(2) {
        let [about, path] = pair else { continue };
        let about = String::from_utf8_lossy(about);
        let mut words = about.trim_start_matches(':').split(' ').map(ToOwned::to_owned);
        let mut next = || words.next().unwrap_or_default();
        let (modes, ids) = ([next(), next()], [next(), next()]);
        changes.insert(OsStr::from_bytes(path).into(), Change { modes, ids });
    }
    Ok(changes)
}
