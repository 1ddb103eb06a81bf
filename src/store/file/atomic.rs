//! Replaces whole files: a reader sees the old contents or the new, never a part.

use crate::os::event_loop::check_blocking;
use crate::os::file::{Access, At, FileError, create_new};
pub use crate::wire::Fsync;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Serializes a value without spaces. A value that cannot be serialized never replaces a file.
pub(crate) fn json(value: &impl Serialize, path: &Path) -> Result<Vec<u8>, FileError> {
    contents(serde_json::to_vec(value), "", path)
}

/// Like [`json`], with a newline.
pub(crate) fn json_line(value: &impl Serialize, path: &Path) -> Result<Vec<u8>, FileError> {
    contents(serde_json::to_vec(value), "\n", path)
}

/// Serializes a value for people to read, with a newline.
pub(crate) fn pretty_json(value: &impl Serialize, path: &Path) -> Result<Vec<u8>, FileError> {
    contents(serde_json::to_vec_pretty(value), "\n", path)
}

fn contents(
    json: serde_json::Result<Vec<u8>>,
    end: &str,
    path: &Path,
) -> Result<Vec<u8>, FileError> {
    let cannot =
        |why| io::Error::new(io::ErrorKind::InvalidData, format!("cannot be serialized: {why}"));
    let mut text = json.map_err(cannot).at(path)?;
    text.extend(end.bytes());
    Ok(text)
}

/// Replaces a file. If the file has a lock, the caller holds it. On an error the old contents stay, unless only
/// the last sync failed.
#[track_caller]
pub(crate) fn replace(path: &Path, contents: &[u8], fsync: Fsync) -> Result<(), FileError> {
    replace_unnamed(path, contents, fsync)?;
    sync_parent(path, fsync)
}

/// Like [`replace`], for one of many files: the caller syncs their folder afterwards.
#[track_caller]
pub(crate) fn replace_unnamed(path: &Path, contents: &[u8], fsync: Fsync) -> Result<(), FileError> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let next = path.with_file_name(name);
    remove(&next)?;
    let mut file = create_new(&next, Access::Update)?;
    let written = file.write_all(contents).at(&next);
    let written = written.and_then(|()| sync_data(&file, &next, fsync));
    if let Err(why) = written {
        remove(&next)?;
        return Err(why);
    }
    crate::store::failpoint::hit("replace.written");
    fs::rename(&next, path).at(path)?;
    crate::store::failpoint::hit("replace.renamed");
    Ok(())
}

/// Returns the name of the file that [`replace`] would replace by a temporary file of this name.
pub(crate) fn replaced_by(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(".new")
}

pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at(path),
    }
}

/// Makes the contents of a file durable.
#[track_caller]
pub(crate) fn sync_data(file: &File, path: &Path, fsync: Fsync) -> Result<(), FileError> {
    if fsync == Fsync::Never {
        return Ok(());
    }
    check_blocking("fsync");
    file.sync_data().at(path)
}

/// Makes the names in a folder durable.
#[track_caller]
pub(crate) fn sync_folder(folder: &Path, fsync: Fsync) -> Result<(), FileError> {
    if fsync == Fsync::Never {
        return Ok(());
    }
    check_blocking("fsync");
    File::open(folder).and_then(|folder| folder.sync_all()).at(folder)
}

/// Makes the name of a file durable.
#[track_caller]
pub(crate) fn sync_parent(path: &Path, fsync: Fsync) -> Result<(), FileError> {
    path.parent().map_or(Ok(()), |folder| sync_folder(folder, fsync))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_replaced_file_has_the_new_contents_and_no_temporary_file_is_left() {
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

    #[test]
    fn a_value_that_cannot_be_serialized_yields_no_contents() {
        let path = Path::new("f");
        // The number can be serialized, the map cannot.
        let value = (1, BTreeMap::from([([2], 3)]));
        for contents in [json, json_line, pretty_json] {
            let why = contents(&value, path).unwrap_err().to_string();
            assert_eq!(why, "f: cannot be serialized: key must be a string");
        }
    }
}
