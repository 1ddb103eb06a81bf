//! Replacing a file whole: a reader sees the old contents or the new, never a part.

use crate::os::event_loop::check_blocking;
use crate::os::file::{Access, At, FileError, create_new};
pub use crate::wire::Fsync;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// What a file is to contain: text, or a value that was serialized. A value that cannot be serialized yields
/// no contents, so it never replaces a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents(Vec<u8>);

impl Contents {
    /// Takes text as it is.
    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        Self(text.into())
    }

    /// Serializes a value without spaces.
    pub(crate) fn json(value: &impl Serialize) -> io::Result<Self> {
        serde_json::to_vec(value).map(Self).map_err(|why| cannot_serialize(&why))
    }

    /// Serializes a value for people to read.
    pub(crate) fn pretty_json(value: &impl Serialize) -> io::Result<Self> {
        serde_json::to_vec_pretty(value).map(Self).map_err(|why| cannot_serialize(&why))
    }

    /// Adds a newline.
    pub(crate) fn line(mut self) -> Self {
        self.0.push(b'\n');
        self
    }

    /// The bytes of the file.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn cannot_serialize(why: &serde_json::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cannot be serialized: {why}"))
}

/// Replaces the file at `path`. If several processes may write the file, the caller holds its lock.
///
/// # Errors
/// The old contents stay.
#[track_caller]
pub(crate) fn replace(path: &Path, contents: &Contents, fsync: Fsync) -> Result<(), FileError> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let next = path.with_file_name(name);
    remove(&next)?;
    let mut file = create_new(&next, Access::Update)?;
    let written =
        file.write_all(contents.as_bytes()).at(&next).and_then(|()| sync_data(&file, &next, fsync));
    if let Err(why) = written {
        remove(&next)?;
        return Err(why);
    }
    crate::store::failpoint::hit("replace.written");
    fs::rename(&next, path).at(path)?;
    crate::store::failpoint::hit("replace.renamed");
    sync_parent(path, fsync)
}

/// The name of the file that an unfinished [`replace`] was to replace, from the name of its temporary file.
pub(crate) fn replaced_by(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(".new")
}

/// Removes a file if it exists.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at(path),
    }
}

/// Makes the contents of a file durable.
#[track_caller]
pub(crate) fn sync_data(file: &File, path: &Path, fsync: Fsync) -> Result<(), FileError> {
    match fsync {
        Fsync::Always => {
            check_blocking("fsync");
            file.sync_data().at(path)
        }
        Fsync::Never => Ok(()),
    }
}

/// Makes the names in a folder durable.
#[track_caller]
pub(crate) fn sync_folder(folder: &Path, fsync: Fsync) -> Result<(), FileError> {
    match fsync {
        Fsync::Always => {
            check_blocking("fsync");
            File::open(folder).and_then(|folder| folder.sync_all()).at(folder)
        }
        Fsync::Never => Ok(()),
    }
}

/// Makes the name of a file durable.
#[track_caller]
pub(crate) fn sync_parent(path: &Path, fsync: Fsync) -> Result<(), FileError> {
    path.parent().map_or(Ok(()), |folder| sync_folder(folder, fsync))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::ser::{Error, SerializeMap, Serializer};

    #[test]
    fn a_replaced_file_has_the_new_contents_and_no_temporary_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        for text in ["one", "two"] {
            replace(&path, &Contents::text(text), Fsync::Always).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        File::create(folder.path().join(".f.new")).unwrap();
        replace(&path, &Contents::text("three"), Fsync::Never).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Serializes a part, then fails.
    struct Unserializable;

    impl Serialize for Unserializable {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("members", &1)?;
            Err(S::Error::custom("no"))
        }
    }

    #[test]
    fn a_value_that_cannot_be_serialized_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        replace(&path, &Contents::text("old"), Fsync::Never).unwrap();
        for contents in [Contents::json, Contents::pretty_json] {
            let replaced = contents(&Unserializable)
                .at(&path)
                .and_then(|contents| replace(&path, &contents, Fsync::Never));
            let why = replaced.unwrap_err().to_string();
            assert!(why.ends_with("f: cannot be serialized: no"), "{why}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        }
    }
}
