//! The files with which the folder of a replay begins.

use crate::os::file::{At, FileError};
use crate::store::TeamDir;
use std::fs;
use std::path::Path;

/// Copies the files of a folder, without a team folder in it. Links are copied as links.
pub(super) fn files(from: &Path, to: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(from).at(from)? {
        let entry = entry.at(from)?;
        if entry.file_name() == ".team" {
            continue;
        }
        one(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Copies the settings and roles of a team.
pub(super) fn settings(record: &TeamDir, team: &TeamDir) -> Result<(), FileError> {
    for (from, to) in record.committed_paths().iter().zip(team.committed_paths()) {
        if fs::symlink_metadata(from).is_ok() {
            one(from, &to)?;
        }
    }
    Ok(())
}

fn one(from: &Path, to: &Path) -> Result<(), FileError> {
    let kind = fs::symlink_metadata(from).at(from)?.file_type();
    if kind.is_dir() {
        fs::create_dir_all(to).at(to)?;
        return files(from, to);
    }
    if kind.is_symlink() {
        let target = fs::read_link(from).at(from)?;
        return std::os::unix::fs::symlink(target, to).at(to);
    }
    if kind.is_file() {
        fs::copy(from, to).at(to)?;
    }
    Ok(())
}
