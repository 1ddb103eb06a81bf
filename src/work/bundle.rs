//! Bundles of git: files with commits, by which these travel between hosts.

use super::repository::{Repository, reference};
use crate::os::git::{Git, GitError};
use crate::wire::AgentName;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a bundle with references of a teammate. Returns its size in bytes.
pub(super) fn write_bundle(
    repository: &Repository,
    (name, kinds): (&AgentName, &[&str]),
    known: &[String],
    file: &Path,
) -> Result<u64, GitError> {
    let path = file.display().to_string();
    let mut words: Vec<String> = ["bundle", "create", "--quiet", &path].map(Into::into).into();
    words.extend(kinds.iter().map(|kind| reference(name.as_str(), kind)));
    words.extend(repository.present(known)?.into_iter().map(|commit| format!("^{commit}")));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    repository.git.run(&words)?;
    fs::set_permissions(file, Permissions::from_mode(0o600))?;
    Ok(fs::metadata(file)?.len())
}

/// Adds the commits of a bundle. Fails if commits are missing on which they build.
pub(super) fn read_bundle(git: &Git, file: &Path) -> Result<(), GitError> {
    git.run(&["bundle", "unbundle", &file.display().to_string()]).map(drop)
}
