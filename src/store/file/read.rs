//! Reads files and folders that need not exist, and detects which files have changed.

use crate::os::file::{Access, At, FileError, open_known};
use crate::wire::{AgentName, FORMAT_VERSION, WallTime};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum length of the line in a state file, in bytes.
const LONGEST_STATE: usize = 4096;

/// Opens a file for reading; `None` if it does not exist.
pub(crate) fn open_if_there(path: &Path) -> Result<Option<(File, Metadata)>, FileError> {
    match open_known(path, Access::Read) {
        Err(why) if why.is_missing() => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the metadata of the file, folder or link at `path`, without following a link; `None` if there is none.
pub(crate) fn known_if_there(path: &Path) -> Result<Option<Metadata>, FileError> {
    match fs::symlink_metadata(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).at(path),
    }
}

/// Reads the JSON value in the first line of a file; `None` if the file does not exist or the line is not such a
/// value.
pub(crate) fn read_state<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, FileError> {
    open_if_there(path)?.map_or(Ok(None), |(file, _)| state_in(&file).at(path))
}

/// Reads the JSON value that is the whole content of a file; `None` if the file does not exist.
///
/// # Errors
/// The file cannot be read, has more than `most` bytes, or is not such a value.
pub(crate) fn read_json<T: DeserializeOwned>(
    path: &Path,
    most: u64,
) -> Result<Option<T>, FileError> {
    let Some((file, known)) = open_if_there(path)? else { return Ok(None) };
    let text = whole(&file, &known, most).at(path)?;
    let text = text.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge)).at(path)?;
    serde_json::from_slice(&text).map(Some).map_err(io::Error::from).at(path)
}

/// Returns the content of a file in as few reads as its known size allows; `None` if it has more than `most` bytes.
pub(crate) fn whole(file: &File, known: &Metadata, most: u64) -> io::Result<Option<Vec<u8>>> {
    let room = usize::try_from(known.len().min(most)).unwrap_or(usize::MAX).saturating_add(1);
    let mut text = vec![0; room];
    let mut length = 0;
    loop {
        let free = text.get_mut(length..).unwrap_or_default();
        let read = match file.read_at(free, length as u64) {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        length += read;
        if length as u64 > most {
            return Ok(None);
        }
        if read == 0 {
            text.truncate(length);
            return Ok(Some(text));
        }
        if length == text.len() {
            // The file has grown since its size was read.
            text.resize(length * 2, 0);
        }
    }
}

/// Like [`read_state`], for an open file.
pub(crate) fn state_in<T: DeserializeOwned>(file: &File) -> io::Result<Option<T>> {
    let mut text = vec![0; LONGEST_STATE];
    let read = file.read_at(&mut text, 0)?;
    let line = text.get(..read).and_then(|text| text.split(|byte| *byte == b'\n').next());
    Ok(line.and_then(|line| serde_json::from_slice(line).ok()))
}

/// Returns the time at which the content of a file changed last, in whole seconds.
pub(crate) fn changed_at(known: &Metadata) -> WallTime {
    let since_epoch = u64::try_from(known.mtime()).unwrap_or_default();
    WallTime::default() + Duration::from_secs(since_epoch)
}

/// Returns the names in a folder, or none if it does not exist.
pub(crate) fn names_in(folder: &Path) -> Result<Vec<String>, FileError> {
    let entries = match fs::read_dir(folder) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.at(folder)?,
    };
    let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    entries.filter_map(|entry| entry.map(name).transpose()).collect::<io::Result<_>>().at(folder)
}

/// Returns the files `NAME-NUMBER` with this ending, sorted by number.
pub(crate) fn numbered(
    folder: &Path,
    name: &AgentName,
    end: &str,
) -> Result<Vec<(u64, PathBuf)>, FileError> {
    let mut found = Vec::new();
    for file in names_in(folder)? {
        // A name may contain dashes.
        if let Some((owner, number)) = file.strip_suffix(end).and_then(|stem| stem.rsplit_once('-'))
            && owner == name.as_str()
            && let Ok(number) = number.parse()
        {
            found.push((number, folder.join(&file)));
        }
    }
    found.sort();
    Ok(found)
}

/// Renames a damaged file to `FILE.bad-N`.
pub(crate) fn quarantine(path: &Path) -> Result<(), FileError> {
    let beside = |number: u32| path.with_extension(format!("json.bad-{number}"));
    let free = (1..=u32::MAX).map(beside).find(|beside| fs::symlink_metadata(beside).is_err());
    free.map_or(Ok(()), |beside| fs::rename(path, beside).at(path))
}

/// Returns the version of a file that cannot be parsed, if it is newer than this program's. A newer version may
/// have changed fields, so the file is not damaged.
pub(crate) fn newer_version(text: &[u8]) -> Option<u64> {
    let value: Value = serde_json::from_slice(text).ok()?;
    value.get("version")?.as_u64().filter(|version| *version > u64::from(FORMAT_VERSION))
}

/// The metadata that changes when a file is replaced, edited, or linked again. The first field is the link count.
pub(crate) type Stamp = (u64, u64, u64, i64, i64, i64, i64);

pub(crate) fn stamp(known: &Metadata) -> Stamp {
    let (mtime, ctime) = ((known.mtime(), known.mtime_nsec()), (known.ctime(), known.ctime_nsec()));
    (known.nlink(), known.ino(), known.len(), mtime.0, mtime.1, ctime.0, ctime.1)
}
