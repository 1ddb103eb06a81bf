//! The files of this host of which others have copies.

use super::{FOLDERS, at, kind_of};
use crate::os::file::At;
use crate::store::file::read::{known_if_there, names_in, open_if_there};
use crate::store::{StoreError, TeamDir};
use crate::wire::host_copy::{CopyPath, CopySelection, ListedFile};
use std::fs::Metadata;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::UNIX_EPOCH;

/// Returns the files of this host that are wanted.
///
/// # Errors
/// A folder cannot be read.
pub fn copyable_files(
    dir: &TeamDir,
    wanted: &CopySelection,
) -> Result<Vec<ListedFile>, StoreError> {
    let mut files = Vec::new();
    let is_wanted =
        |name: &str| wanted.agents.is_empty() || wanted.agents.iter().any(|it| it == name);
    for (part, folder, content) in FOLDERS {
        if !wanted.parts.contains(&part) {
            continue;
        }
        for name in names_in(&dir.root().join(folder))? {
            let Some(owner) = content.owner(&name) else { continue };
            let Ok(path) = CopyPath::parse(&format!("{folder}/{name}")) else { continue };
            if !owner.agent().is_none_or(|owner| is_wanted(owner.as_str())) {
                continue;
            }
            // A file that is gone meanwhile is not listed.
            if let Some(known) = known_if_there(&at(dir, &path))?.filter(Metadata::is_file) {
                files.push(ListedFile { path, id: id_of(&known), bytes: known.len() });
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// Reads a part of a file, at most so many bytes; empty at its end. `None` if another file is at the path, or none, or it is
/// none that is copied.
///
/// # Errors
/// The file cannot be read.
pub fn read_part(
    dir: &TeamDir,
    (path, id): (&CopyPath, &str),
    (offset, most): (u64, usize),
) -> Result<Option<Vec<u8>>, StoreError> {
    if kind_of(path).is_none() {
        return Ok(None);
    }
    let path = at(dir, path);
    let Some((file, known)) = open_if_there(&path)? else { return Ok(None) };
    if id_of(&known) != id {
        return Ok(None);
    }
    let left = usize::try_from(known.len().saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; most.min(left)];
    file.read_exact_at(&mut bytes, offset).at(&path)?;
    Ok(Some(bytes))
}

/// Returns a text that no other file at the same path has: a number of a file is used again, but not with the same time of
/// its creation.
fn id_of(known: &Metadata) -> String {
    let made = known.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    format!("{}-{}", known.ino(), made.unwrap_or_default().as_nanos())
}
