//! Replacing a file whole: readers see the old content or the new, never a part.

use crate::os::file::{Access, At, FileError, create_new};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fsync {
    /// The end of any process, and power loss.
    #[default]
    Always,
    /// The end of any process.
    Never,
}

/// Replaces `path` by `bytes`. The caller holds the lock that guards the file, if several may write it.
///
/// # Errors
/// The old content stays.
pub fn replace(path: &Path, bytes: &[u8], fsync: Fsync) -> Result<(), FileError> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let next = path.with_file_name(name);
    remove(&next)?;
    let mut file = create_new(&next, Access::Update)?;
    let written = file.write_all(bytes).at(&next).and_then(|()| sync_data(&file, &next, fsync));
    if let Err(why) = written {
        remove(&next)?;
        return Err(why);
    }
    crate::store::failpoint::hit("replace.written");
    fs::rename(&next, path).at(path)?;
    crate::store::failpoint::hit("replace.renamed");
    sync_parent(path, fsync)
}

/// The file that the name of an unfinished one was to replace.
pub(crate) fn replaced_by(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(".new")
}

/// Removes a file if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at(path),
    }
}

/// Makes what was written to a file survive power loss.
pub(crate) fn sync_data(file: &File, path: &Path, fsync: Fsync) -> Result<(), FileError> {
    match fsync {
        Fsync::Always => file.sync_data().at(path),
        Fsync::Never => Ok(()),
    }
}

/// Makes the names in a folder survive power loss.
pub(crate) fn sync_folder(folder: &Path, fsync: Fsync) -> Result<(), FileError> {
    match fsync {
        Fsync::Always => File::open(folder).and_then(|folder| folder.sync_all()).at(folder),
        Fsync::Never => Ok(()),
    }
}

/// Makes a file's name survive power loss.
pub(crate) fn sync_parent(path: &Path, fsync: Fsync) -> Result<(), FileError> {
    path.parent().map_or(Ok(()), |folder| sync_folder(folder, fsync))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_has_the_new_content_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        for text in ["one", "two"] {
            replace(&path, text.as_bytes(), Fsync::Always).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        File::create(folder.path().join(".f.new")).unwrap();
        replace(&path, b"three", Fsync::Never).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
