//! Exclusive locks on files, with a limit to the waiting and a name for whoever made us wait.
//!
//! `flock` belongs to the open file and goes with its holder, however that ends: there are no stale
//! locks. fs4's methods are called by full path, because the standard library has methods of the same
//! name that would be taken instead.

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

/// How often in a row a lock that was free is taken before others are let to run. Who is woken to take it
/// comes too late as long as somebody who runs already takes it again and again. In a model with 32 writers:
/// with 8 a quarter of the throughput is lost, with 64 the slowest writer sends a fifth to a half of what the
/// fastest does.
const AT_ONCE_IN_A_ROW: u8 = 32;

/// Why a lock could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The file refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// Somebody held it all the time.
    #[error("{} is locked since more than {} ms by {holder}", path.display(), limit.as_millis())]
    TimedOut {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        limit: Duration,
        /// Who, as far as the system tells.
        holder: String,
    },
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Held<'a> {
    file: Lent<'a>,
    manners: LockPolicy,
}

/// How it was when a lock was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It was free.
    AtOnce,
    /// There was a line, so that there may be one behind us.
    InLine,
}

/// What its holder does after giving a lock back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockPolicy {
    GoOn,
    /// Lets others run, or it would take the lock again before the next in line, just woken, gets a
    /// processor.
    MakeWay,
}

impl From<Turn> for LockPolicy {
    fn from(turn: Turn) -> Self {
        match turn {
            Turn::AtOnce => Self::GoOn,
            Turn::InLine => Self::MakeWay,
        }
    }
}

#[derive(Debug)]
enum Lent<'a> {
    Cached(&'a File),
    Own(File),
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        match &self.file {
            Lent::Cached(file) => release(file),
            Lent::Own(file) => release(file),
        }
        if self.manners == LockPolicy::MakeWay {
            thread::yield_now();
        }
    }
}

/// Takes the lock of the file at `path`, which is made when missing.
///
/// # Errors
/// The file cannot be opened, or `limit` passed; then the error names the holder.
#[track_caller]
pub fn exclusive(path: &Path, limit: Duration) -> Result<Held<'static>, LockError> {
    let file = open_or_create(path, Access::Update)?;
    let turn = acquire(&file, path, limit)?;
    Ok(Held { file: Lent::Own(file), manners: turn.into() })
}

/// A lock file kept open for its next use.
#[derive(Debug)]
pub(crate) struct SideLock {
    path: PathBuf,
    file: Option<File>,
    /// How often in a row it was free.
    at_once: u8,
}

impl SideLock {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None, at_once: 0 }
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
        let manners = after_turn(turn, &mut self.at_once);
        Ok(Held { file: Lent::Cached(file), manners })
    }
}

/// Whoever may have taken it before others that were in line makes way now and then as well.
fn after_turn(turn: Turn, at_once: &mut u8) -> LockPolicy {
    *at_once = at_once.saturating_add(1);
    if turn == Turn::AtOnce && *at_once < AT_ONCE_IN_A_ROW {
        return LockPolicy::GoOn;
    }
    *at_once = 0;
    LockPolicy::MakeWay
}

/// Waits in line, if need be: the kernel wakes blocked waiters, where sleeping and trying again would
/// come too late for ever.
#[track_caller]
fn acquire(file: &File, path: &Path, limit: Duration) -> Result<Turn, LockError> {
    check_blocking("lock");
    if try_exclusive(file).at(path)? {
        return Ok(Turn::AtOnce);
    }
    let start = Instant::now();
    let alarm = SyscallTimeout::after(limit).at(path)?;
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
    drop(alarm);
    Ok(Turn::InLine)
}

fn holder(inode: u64) -> String {
    match lock_holder(inode) {
        Some(holder) => format!("pid {} ({})", holder.pid, holder.command),
        None => "somebody the system does not name".into(),
    }
}

/// Takes the exclusive lock if it is free.
pub(crate) fn try_exclusive(file: &File) -> io::Result<bool> {
    attempt(|| FileExt::try_lock(file))
}

/// Takes a shared lock unless somebody has the exclusive one.
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

/// Gives a lock back. Closing the file would, too: a failure leaves nothing to do.
pub(crate) fn release(file: &File) {
    drop(FileExt::unlock(file));
}

/// Tries for the exclusive lock until `limit` has passed, pausing longer and longer. Neither fair nor
/// prompt: for locks that are a courtesy.
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
    fn threads_that_read_and_write_under_the_lock_lose_nothing() {
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
    fn way_is_made_after_a_line_and_after_many_locks_that_were_free() {
        let mut at_once = 0;
        let mut after = |turn| after_turn(turn, &mut at_once);
        assert_eq!(after(Turn::InLine), LockPolicy::MakeWay);
        for _ in 0..2 {
            for _ in 1..AT_ONCE_IN_A_ROW {
                assert_eq!(after(Turn::AtOnce), LockPolicy::GoOn);
            }
            assert_eq!(after(Turn::AtOnce), LockPolicy::MakeWay);
        }
        assert_eq!(LockPolicy::from(Turn::InLine), LockPolicy::MakeWay);
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
