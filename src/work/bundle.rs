//! Bundles of git: files with commits, by which these travel between hosts.

use super::repository::{Repository, lines, reference};
use crate::os::git::{Git, GitError};
use crate::wire::AgentName;
use crate::wire::host_order::MAX_BUNDLE_BYTES;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The reason for which there is no bundle.
#[derive(Debug, thiserror::Error)]
pub(super) enum BundleError {
    #[error("{0}")]
    Git(#[from] GitError),
    #[error("{0}")]
    File(#[from] io::Error),
    #[error("it would have {0} bytes, and {MAX_BUNDLE_BYTES} is the most")]
    TooLarge(u64),
}

/// Writes a bundle with references of a teammate. Returns its size in bytes.
pub(super) fn write_bundle(
    repository: &Repository,
    (name, kinds): (&AgentName, &[&str]),
    known: &[String],
    file: &Path,
) -> Result<u64, BundleError> {
    let git = &repository.git;
    let mut wanted: Vec<String> = kinds.iter().map(|kind| reference(name.as_str(), kind)).collect();
    wanted.extend(repository.present(known)?.into_iter().map(|commit| format!("^{commit}")));
    let measure = ["rev-list", "--objects", "--disk-usage", "--stdin"];
    let bytes = git.checked(&measure, lines(&wanted).as_bytes())?;
    let bytes = String::from_utf8_lossy(&bytes).trim().parse().unwrap_or_default();
    if bytes > MAX_BUNDLE_BYTES {
        return Err(BundleError::TooLarge(bytes));
    }
    let path = file.display().to_string();
    // A killed git has left it.
    fs::remove_file(format!("{path}.lock")).unwrap_or_default();
    let mut words = vec!["bundle", "create", "--quiet", &path];
    words.extend(wanted.iter().map(String::as_str));
    git.run(&words)?;
    fs::set_permissions(file, Permissions::from_mode(0o600))?;
    Ok(fs::metadata(file)?.len())
}

/// Adds the commits of a bundle. Fails if commits are missing on which they build.
pub(super) fn read_bundle(git: &Git, file: &Path) -> Result<(), GitError> {
    git.run(&["bundle", "unbundle", &file.display().to_string()]).map(drop)
}
