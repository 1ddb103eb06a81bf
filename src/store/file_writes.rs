//! Locks of the files of a workspace that agents write, in `run/.state/files/HASH`, and the record of the last
//! writes of each. *HASH* is derived from the real path.
//!
//! *Invariant:* a member writes a file only while it holds the lock of the file. The record names a write before
//! the file has its content, so that a reader of the file always finds the writer. No other program knows the locks.

use super::file::atomic::json_line;
use super::file::lock::{Held, exclusive, is_named, release, try_exclusive};
use super::file::read::{names_in, open_if_there};
use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, open, open_or_create};
use crate::wire::file_view::{ContentHash, FileRecord, FileWrite};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum size of a record, in bytes.
const LONGEST_RECORD: u64 = 256 * 1024;

/// The lock of one file, with the record of its writes.
#[derive(Debug)]
pub(crate) struct FileLock {
    path: PathBuf,
    record: FileRecord,
    /// The lock is released when this value is dropped.
    _held: Hold,
}

#[derive(Debug)]
enum Hold {
    Waited { _held: Held },
    Free(File),
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Self::Free(file) = self {
            release(file);
        }
    }
}

/// Returns the word that identifies a file by its real, absolute path.
pub(crate) fn key(real: &Path) -> ContentHash {
    ContentHash::of(real.as_os_str().as_bytes())
}

/// Returns the name of the draft of a file. It is the same for each write, so that the next holder of the lock
/// finds the draft of a process that was killed.
pub(crate) fn draft_name(real: &Path) -> OsString {
    format!(".{}.draft", key(real).as_str()).into()
}

/// Returns the path of a lock, and creates the folder of the locks again if it was removed.
fn lock_of(dir: &TeamDir, real: &Path) -> Result<PathBuf, StoreError> {
    if !dir.file_locks().is_dir() {
        dir.complete()?;
    }
    Ok(dir.file_lock(key(real).as_str()))
}

/// Returns the locks of all files.
pub(crate) fn locks(dir: &TeamDir) -> Result<Vec<PathBuf>, StoreError> {
    let names = names_in(&dir.file_locks())?;
    Ok(names.iter().map(|name| dir.file_lock(name)).collect())
}

/// Returns the real paths of the files whose last write may not have ended, perhaps because it still runs.
pub(crate) fn pending(dir: &TeamDir) -> Result<Vec<PathBuf>, StoreError> {
    let mut paths = Vec::new();
    for lock in locks(dir)? {
        let record = read(&lock)?;
        if record.pending {
            paths.push(record.path.into());
        }
    }
    Ok(paths)
}

/// Returns the last recorded write of the file with this real path.
pub(crate) fn last_write(dir: &TeamDir, real: &Path) -> Result<Option<FileWrite>, StoreError> {
    Ok(read(&dir.file_lock(key(real).as_str()))?.writes.pop())
}

/// Returns the record of the writes of the file with this real path.
pub(crate) fn record(dir: &TeamDir, real: &Path) -> Result<FileRecord, StoreError> {
    read(&dir.file_lock(key(real).as_str()))
}

/// Waits until no write is under way that began before this call, to a file whose real path `is_meant`. The file of a
/// first write is not known yet, so it counts as meant. Fails if such a write takes longer than `limit`.
#[track_caller]
pub(crate) fn wait_for_writes(
    dir: &TeamDir,
    is_meant: impl Fn(&Path) -> bool,
    limit: Duration,
) -> Result<(), StoreError> {
    for lock in locks(dir)? {
        let path = read(&lock)?.path;
        if path.is_empty() || is_meant(Path::new(&path)) {
            drop(exclusive(&lock, limit)?);
        }
    }
    Ok(())
}

/// Reads a record; empty if there is none, or if its writer was killed while it wrote it.
fn read(lock: &Path) -> Result<FileRecord, StoreError> {
    let Some((file, _)) = open_if_there(lock)? else { return Ok(FileRecord::default()) };
    let mut text = Vec::new();
    file.take(LONGEST_RECORD).read_to_end(&mut text).at(lock)?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(serde_json::from_slice(line).unwrap_or_default())
}

impl FileLock {
    /// Takes the lock of the file with this real path. Fails after `limit`; the error names the holder.
    #[track_caller]
    pub(crate) fn take(dir: &TeamDir, real: &Path, limit: Duration) -> Result<Self, StoreError> {
        let path = lock_of(dir, real)?;
        let held = Hold::Waited { _held: exclusive(&path, limit)? };
        Self::with(path, real, held)
    }

    /// Takes the lock if it is free; `None` if it is held.
    pub(crate) fn try_take(dir: &TeamDir, real: &Path) -> Result<Option<Self>, StoreError> {
        let path = lock_of(dir, real)?;
        let file = open_or_create(&path, Access::Update)?;
        if !try_exclusive(&file).at(&path)? || !is_named(&file) {
            return Ok(None);
        }
        Self::with(path, real, Hold::Free(file)).map(Some)
    }

    fn with(path: PathBuf, real: &Path, held: Hold) -> Result<Self, StoreError> {
        let record = FileRecord { path: real.display().to_string(), ..read(&path)? };
        Ok(Self { path, record, _held: held })
    }

    pub(crate) fn record(&self) -> &FileRecord {
        &self.record
    }

    /// Records a write that begins now.
    pub(crate) fn begin(&mut self, write: FileWrite) -> Result<(), StoreError> {
        self.record.push(write);
        self.store()
    }

    /// Records that the write has ended, or that it did not take place.
    pub(crate) fn end(&mut self, is_done: bool) -> Result<(), StoreError> {
        if is_done {
            self.record.pending = false;
        } else {
            self.record.withdraw();
        }
        self.store()
    }

    /// Overwrites the record in place, since the file is the lock. A process that is killed here leaves a record that
    /// cannot be read, or text after the line, which is ignored.
    fn store(&self) -> Result<(), StoreError> {
        let line = json_line(&self.record, &self.path)?;
        let file = open(&self.path, Access::Update)?;
        file.write_all_at(&line, 0).at(&self.path)?;
        file.set_len(line.len() as u64).at(&self.path)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    fn write(text: &str) -> FileWrite {
        FileWrite { by: "alice".into(), hash: ContentHash::of(text.as_bytes()), base: None }
    }

    #[test]
    fn the_next_holder_reads_the_writes_of_the_last_one() {
        let (_folder, dir) = test_team();
        let real = Path::new("/work/a.rs");
        let mut lock = FileLock::take(&dir, real, Duration::from_secs(10)).unwrap();
        assert!(FileLock::try_take(&dir, real).unwrap().is_none());
        let refused = FileLock::take(&dir, real, Duration::from_millis(20)).unwrap_err();
        assert!(refused.is_lock_timeout(), "{refused}");
        lock.begin(write("one")).unwrap();
        assert_eq!(pending(&dir).unwrap(), [real]);
        lock.end(true).unwrap();
        lock.begin(write("two")).unwrap();
        lock.end(false).unwrap();
        drop(lock);
        let lock = FileLock::try_take(&dir, real).unwrap().unwrap();
        assert_eq!(lock.record().writes, [write("one")]);
        assert_eq!((lock.record().count, lock.record().pending), (1, false));
        assert!(pending(&dir).unwrap().is_empty());
        assert!(FileLock::try_take(&dir, Path::new("/work/b.rs")).unwrap().is_some());
        assert_eq!(locks(&dir).unwrap().len(), 2);
    }

    #[test]
    fn only_writes_to_files_that_are_meant_are_waited_for() {
        let (_folder, dir) = test_team();
        let limit = Duration::from_millis(20);
        let real = Path::new("/work/a.rs");
        let mut lock = FileLock::take(&dir, real, limit).unwrap();
        let wait = |meant: &str| wait_for_writes(&dir, |path| path.starts_with(meant), limit);
        assert!(wait("/other").unwrap_err().is_lock_timeout(), "the first write may be any file");
        lock.begin(write("one")).unwrap();
        assert!(wait("/work").unwrap_err().is_lock_timeout());
        wait("/other").unwrap();
        lock.end(true).unwrap();
        drop(lock);
        wait("/work").unwrap();
    }
}
