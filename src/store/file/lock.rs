//! Exclusive file locks with a timeout that names the holder.
//!
//! `flock` belongs to the open file and ends with its holder, so there are no stale locks. The methods of
//! fs4 are called by their full path, because the standard library has methods of the same names that would
//! win.

use crate::os::event_loop::check_blocking;
use crate::os::file::{Access, At, FileError, open_or_create};
use crate::os::identity::lock_holder;
use crate::os::syscall_timeout::SyscallTimeout;
use fs4::{FileExt, TryLockError};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The number of uncontended acquisitions in a row after which the thread yields. A woken waiter comes too
/// late while a running thread reacquires the lock again and again. Modelled with 32 writers: 8 costs a
/// quarter of the throughput; with 64 the slowest writer sends at a half to a fifth of the rate of the
/// fastest.
const UNCONTENDED_IN_A_ROW: u8 = 32;

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The lock file cannot be opened or locked.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process held the lock all the time.
    #[error("{} is locked since more than {} ms by {holder}", path.display(), limit.as_millis())]
    TimedOut {
        /// The path of the lock file.
        path: PathBuf,
        /// The time that was waited.
        limit: Duration,
        /// The holder, as far as the system tells.
        holder: String,
    },
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Held<'a> {
    file: LockFile<'a>,
    after_release: AfterRelease,
}

/// Whether an acquisition had to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acquisition {
    /// The lock was free.
    Free,
    /// Other processes waited as well, and may still wait.
    Waited,
}

/// What the holder does after it releases the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterRelease {
    Continue,
    /// Yields the processor; otherwise the holder would reacquire the lock before a woken waiter runs.
    Yield,
}

impl From<Acquisition> for AfterRelease {
    fn from(turn: Acquisition) -> Self {
        match turn {
            Acquisition::Free => Self::Continue,
            Acquisition::Waited => Self::Yield,
        }
    }
}

#[derive(Debug)]
enum LockFile<'a> {
    Cached(&'a File),
    Own(File),
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        match &self.file {
            LockFile::Cached(file) => release(file),
            LockFile::Own(file) => release(file),
        }
        if self.after_release == AfterRelease::Yield {
            thread::yield_now();
        }
    }
}

/// Acquires the lock of the file at `path`, which is created if missing. After `limit` the error names the
/// holder.
#[track_caller]
pub fn exclusive(path: &Path, limit: Duration) -> Result<Held<'static>, LockError> {
    let file = open_or_create(path, Access::Update)?;
    let turn = acquire(&file, path, limit)?;
    Ok(Held { file: LockFile::Own(file), after_release: turn.into() })
}

/// A lock file that stays open for its next use.
#[derive(Debug)]
pub(crate) struct SideLock {
    path: PathBuf,
    file: Option<File>,
    /// The number of uncontended acquisitions in a row.
    uncontended: u8,
}

impl SideLock {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None, uncontended: 0 }
    }

    /// As [`exclusive`].
    #[track_caller]
    pub(crate) fn acquire(&mut self, limit: Duration) -> Result<Held<'_>, LockError> {
        // A lock file without a name belongs to a team folder that was deleted.
        let is_named = |file: &File| file.metadata().is_ok_and(|known| known.nlink() > 0);
        let file = match self.file.take().filter(is_named) {
            Some(file) => file,
            None => open_or_create(&self.path, Access::Update)?,
        };
        let file = self.file.insert(file);
        let turn = acquire(file, &self.path, limit)?;
        let after_release = after_acquisition(turn, &mut self.uncontended);
        Ok(Held { file: LockFile::Cached(file), after_release })
    }
}

/// A holder that may have overtaken waiters yields now and then as well.
fn after_acquisition(turn: Acquisition, uncontended: &mut u8) -> AfterRelease {
    *uncontended = uncontended.saturating_add(1);
    if turn == Acquisition::Free && *uncontended < UNCONTENDED_IN_A_ROW {
        return AfterRelease::Continue;
    }
    *uncontended = 0;
    AfterRelease::Yield
}

/// Blocks if the lock is held: the kernel wakes blocked waiters in order, whereas polling can starve.
#[track_caller]
fn acquire(file: &File, path: &Path, limit: Duration) -> Result<Acquisition, LockError> {
    check_blocking("lock");
    if try_exclusive(file).at(path)? {
        return Ok(Acquisition::Free);
    }
    let start = Instant::now();
    let timeout = SyscallTimeout::after(limit).at(path)?;
    loop {
        match FileExt::lock(file) {
            Ok(()) => break,
            Err(why) if why.kind() != io::ErrorKind::Interrupted => return Err(why).at(path)?,
            Err(_) if start.elapsed() < limit => {}
            Err(_) => {
                let holder = holder(file.metadata().at(path)?.ino());
                return Err(LockError::TimedOut { path: path.into(), limit, holder });
            }
        }
    }
    drop(timeout);
    Ok(Acquisition::Waited)
}

fn holder(inode: u64) -> String {
    match lock_holder(inode) {
        Some(holder) => format!("pid {} ({})", holder.pid, holder.command),
        None => "a process that the system does not name".into(),
    }
}

/// Acquires the exclusive lock if it is free.
pub(crate) fn try_exclusive(file: &File) -> io::Result<bool> {
    attempt(|| FileExt::try_lock(file))
}

/// Acquires a shared lock if no exclusive one is held.
pub(crate) fn try_shared(file: &File) -> io::Result<bool> {
    attempt(|| FileExt::try_lock_shared(file))
}

fn attempt(take: impl Fn() -> Result<(), TryLockError>) -> io::Result<bool> {
    loop {
        match take() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(why)) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(why)) => return Err(why),
        }
    }
}

/// Releases a lock. A failure is ignored, since closing the file releases it as well.
pub(crate) fn release(file: &File) {
    drop(FileExt::unlock(file));
}

/// Polls for the exclusive lock until `limit` has passed, with growing pauses. Neither fair nor prompt: for
/// courtesy locks and probes.
#[track_caller]
pub(crate) fn try_for(file: &File, limit: Duration) -> io::Result<bool> {
    check_blocking("lock");
    let start = Instant::now();
    let mut pause = Duration::from_micros(100);
    while !try_exclusive(file)? {
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        thread::park_timeout(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::limits::LOCK_TIMEOUT;

    #[test]
    fn threads_under_the_lock_lose_no_update() {
        let folder = tempfile::tempdir().unwrap();
        let (lock, counter) = (folder.path().join("lock"), folder.path().join("counter"));
        std::os::unix::fs::symlink("0", &counter).unwrap();
        let count =
            || -> u32 { std::fs::read_link(&counter).unwrap().to_str().unwrap().parse().unwrap() };
        thread::scope(|scope| {
            for thread in 0..8 {
                let (lock, counter, count) = (&lock, &counter, &count);
                scope.spawn(move || {
                    let mut side = SideLock::new(lock.clone());
                    for round in 0..50 {
                        let held = if (thread + round) % 2 == 0 {
                            side.acquire(LOCK_TIMEOUT).unwrap()
                        } else {
                            exclusive(lock, LOCK_TIMEOUT).unwrap()
                        };
                        let next = (count() + 1).to_string();
                        std::fs::remove_file(counter).unwrap();
                        std::os::unix::fs::symlink(next, counter).unwrap();
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(count(), 400);
    }

    #[test]
    fn a_holder_yields_after_waiting_and_after_many_free_locks() {
        let mut uncontended = 0;
        let mut after = |turn| after_acquisition(turn, &mut uncontended);
        assert_eq!(after(Acquisition::Waited), AfterRelease::Yield);
        for _ in 0..2 {
            for _ in 1..UNCONTENDED_IN_A_ROW {
                assert_eq!(after(Acquisition::Free), AfterRelease::Continue);
            }
            assert_eq!(after(Acquisition::Free), AfterRelease::Yield);
        }
        assert_eq!(AfterRelease::from(Acquisition::Waited), AfterRelease::Yield);
    }

    #[test]
    fn a_deleted_lock_file_is_not_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mut side = SideLock::new(path.clone());
        drop(side.acquire(LOCK_TIMEOUT).unwrap());
        std::fs::remove_file(&path).unwrap();
        let held = exclusive(&path, LOCK_TIMEOUT).unwrap();
        let refused = side.acquire(Duration::from_millis(20)).map(drop);
        assert!(matches!(refused, Err(LockError::TimedOut { .. })));
        drop(held);
        drop(side.acquire(LOCK_TIMEOUT).unwrap());
    }
}
