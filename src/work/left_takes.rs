//! Removes from beside the clones that which killed takes have left there.

use super::repository::Repository;
use crate::os::git::GitError;
use crate::store::lock::try_exclusive;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Removes each folder of this name ending in which everything is in the user's repository, too. One that is locked belongs
/// to a take that runs.
pub(super) fn remove(repository: &Repository, clones: &Path, ending: &str) {
    let entries = fs::read_dir(clones).into_iter().flatten().flatten();
    let ended = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(ending));
    for path in ended.map(|entry| entry.path()) {
        let lock = File::open(&path).ok();
        let is_ours = lock.as_ref().is_some_and(|folder| try_exclusive(folder).unwrap_or(false));
        let is_known = || files(&path).is_ok_and(|it| are_known(repository, &it).unwrap_or(false));
        if is_ours && is_known() {
            fs::remove_dir_all(&path).unwrap_or_default();
        }
    }
}

/// Returns the files in the folders below a folder.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut open, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(inner) = open.pop() {
        for entry in fs::read_dir(&inner)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() && inner != folder {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// Whether the content of each of these files is an object of the repository.
fn are_known(repository: &Repository, files: &[PathBuf]) -> Result<bool, GitError> {
    let names = files.iter().map(|path| path.as_os_str().as_bytes());
    if names.clone().any(|name| name.contains(&b'\n')) {
        return Ok(false);
    }
    let mut names = names.collect::<Vec<_>>().join(&b'\n');
    if names.is_empty() {
        return Ok(true);
    }
    names.push(b'\n');
    let words = ["hash-object", "--no-filters", "--stdin-paths"];
    let ids = repository.git.checked(&words, &names)?;
    let found = repository.git.checked(&["cat-file", "--batch-check"], &ids)?;
    Ok(!String::from_utf8_lossy(&found).lines().any(|line| line.ends_with(" missing")))
}
