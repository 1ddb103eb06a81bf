//! Exclusive file locks with a timeout; the error names the holder.
//!
//! A `flock` belongs to the open file and is released when its holder exits, so there are no stale locks. The
//! methods of fs4 are called by their full path, because methods of the standard library with the same names take
//! precedence.

use crate::os::event_loop::check_blocking;
use crate::os::file::{Access, At, open_or_create};
use crate::os::identity::lock_holder;
use crate::os::syscall_timeout::SyscallTimeout;
use crate::store::StoreError;
use fs4::{FileExt, TryLockError};
use std::fs::File;
use std::hint::spin_loop;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The number of acquisitions without a sleep in a row after which the thread yields. A woken waiter comes too late
/// while a running thread reacquires the lock again and again. With 32 writers, a value of 32 has the same throughput and
/// a longest wait three times as long; a value of 4 costs an eighth of the throughput.
const AWAKE_IN_A_ROW: u8 = 8;

/// The number of attempts before the thread sleeps, which take about 15 microseconds together: most holders are gone
/// by then, whereas to sleep and to be woken takes longer than their work. With 32 writers this gives a quarter to a third more
/// throughput.
const ATTEMPTS_AWAKE: u8 = 20;

/// The number of pauses of the processor between two of these attempts.
const PAUSES_BETWEEN: u8 = 10;

/// A lock that is held until this value is dropped.
#[derive(Debug)]
#[must_use]
pub struct Held {
    file: Arc<File>,
    /// Whether to yield the processor after the release. Otherwise the holder may reacquire the lock before a
    /// woken waiter runs.
    yields: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        release(&self.file);
        if self.yields {
            thread::yield_now();
        }
    }
}

/// Acquires the lock of a file, which is created if missing. Fails after `limit`; the error names the holder.
#[track_caller]
pub fn exclusive(path: &Path, limit: Duration) -> Result<Held, StoreError> {
    SideLock::new(path.into()).acquire(limit)
}

/// A lock file that stays open for its next use.
#[derive(Debug)]
pub(crate) struct SideLock {
    path: PathBuf,
    file: Option<Arc<File>>,
    /// The moment, as the caller counts, in which the file was seen to have its name.
    looked_at: Option<Instant>,
    awake: u8,
}

impl SideLock {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None, looked_at: None, awake: 0 }
    }

    /// Like [`exclusive`].
    #[track_caller]
    pub(crate) fn acquire(&mut self, limit: Duration) -> Result<Held, StoreError> {
        self.looked_at = None;
        let file = self.named_file()?;
        self.acquire_file(file, limit)
    }

    /// Like [`SideLock::acquire`], but looks once only for each `moment` whether the file has its name.
    #[track_caller]
    pub(crate) fn acquire_at(
        &mut self,
        moment: Instant,
        limit: Duration,
    ) -> Result<Held, StoreError> {
        let known = self.file.clone().filter(|_| self.looked_at == Some(moment));
        let file = known.map_or_else(|| self.named_file(), Ok)?;
        self.looked_at = Some(moment);
        self.acquire_file(file, limit)
    }

    /// Acquires the lock if no other process holds it: for a process that holds others meanwhile.
    pub(crate) fn try_acquire(&mut self) -> Result<Option<Held>, StoreError> {
        let file = self.named_file()?;
        let is_ours = try_exclusive(&file).at(&self.path)?;
        Ok(is_ours.then_some(Held { file, yields: false }))
    }

    /// Returns the file, opened again if it has lost its name.
    fn named_file(&mut self) -> Result<Arc<File>, StoreError> {
        let file = match self.file.take().filter(|file| is_named(file)) {
            Some(file) => file,
            None => Arc::new(open_or_create(&self.path, Access::Update)?),
        };
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    #[track_caller]
    fn acquire_file(&mut self, file: Arc<File>, limit: Duration) -> Result<Held, StoreError> {
        let has_slept = acquire(&file, &self.path, limit)?;
        Ok(Held { file, yields: yields_after(has_slept, &mut self.awake) })
    }
}

/// Whether a lock file still has a name: a team folder may be deleted, and `clean` removes free life locks.
pub(crate) fn is_named(file: &File) -> bool {
    file.metadata().is_ok_and(|known| known.nlink() > 0)
}

/// Whether to yield after this acquisition: after a sleep, and after [`AWAKE_IN_A_ROW`] acquisitions without one, which may
/// have overtaken waiters.
fn yields_after(has_slept: bool, awake: &mut u8) -> bool {
    *awake = awake.saturating_add(1);
    let yields = has_slept || *awake >= AWAKE_IN_A_ROW;
    if yields {
        *awake = 0;
    }
    yields
}

/// Acquires the lock. After some attempts the thread sleeps while it is held: the kernel wakes blocked waiters in order,
/// whereas a polling waiter can starve. Returns whether it has slept; other processes may then be waiting still.
#[track_caller]
fn acquire(file: &File, path: &Path, limit: Duration) -> Result<bool, StoreError> {
    check_blocking("lock");
    for _ in 0..ATTEMPTS_AWAKE {
        if try_exclusive(file).at(path)? {
            return Ok(false);
        }
        (0..PAUSES_BETWEEN).for_each(|_| spin_loop());
    }
    let start = Instant::now();
    let timeout = SyscallTimeout::after(limit).at(path)?;
    loop {
        match FileExt::lock(file) {
            Ok(()) => break,
            Err(why) if why.kind() != io::ErrorKind::Interrupted => return Err(why).at(path)?,
            Err(_) if start.elapsed() < limit => {}
            Err(_) => {
                let holder = lock_holder(file.metadata().at(path)?.ino()).map_or_else(
                    || "an unknown process".into(),
                    |(pid, command)| format!("pid {pid} ({command})"),
                );
                return Err(StoreError::LockTimeout(path.into(), limit, holder));
            }
        }
    }
    drop(timeout);
    Ok(true)
}

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

/// Polls for the exclusive lock with growing pauses. This is neither fair nor prompt, and is meant for courtesy
/// locks and probes.
#[track_caller]
pub(crate) fn try_for(file: &File, limit: Duration) -> io::Result<bool> {
    check_blocking("lock");
    if try_exclusive(file)? {
        return Ok(true);
    }
    let start = Instant::now();
    let mut pause = Duration::from_micros(100);
    loop {
        // The time is read before the attempt, so that one attempt follows the deadline.
        let left = limit.saturating_sub(start.elapsed());
        if try_exclusive(file)? {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
        thread::park_timeout(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::limits::LOCK_TIMEOUT;

    #[test]
    fn a_holder_yields_after_a_sleep_and_after_many_locks_without_one() {
        let mut awake = 0;
        assert!(yields_after(true, &mut awake));
        for at in 1..=2 * AWAKE_IN_A_ROW {
            let yields = yields_after(false, &mut awake);
            assert_eq!(yields, at % AWAKE_IN_A_ROW == 0, "{at}");
        }
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
        assert!(matches!(refused, Err(StoreError::LockTimeout(..))));
        drop(held);
        drop(side.acquire(LOCK_TIMEOUT).unwrap());
    }
}
