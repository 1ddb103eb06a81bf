//! Lists of hosts that a command changes while a relay may run. Each has a lock of its own.

use crate::store::file::atomic::{Fsync, pretty_json, replace};
use crate::store::file::lock::SideLock;
use crate::store::file::read::read_json;
use crate::store::{StoreError, TeamDir};
use crate::wire::limits::LOCK_TIMEOUT;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Reads a list; a missing file is an empty one.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, StoreError> {
    Ok(read_json(path, super::MOST_BYTES)?.unwrap_or_default())
}

/// Changes a list under its lock; returns what the change returns.
pub(super) fn change<T, R>(
    dir: &TeamDir,
    path: &Path,
    lock: PathBuf,
    change: impl FnOnce(&mut Vec<T>) -> R,
) -> Result<R, StoreError>
where
    T: Clone + PartialEq + Serialize + DeserializeOwned,
{
    super::make_folders(dir)?;
    let mut side = SideLock::new(lock);
    let _held = side.acquire(LOCK_TIMEOUT)?;
    let mut list = read(path)?;
    let before = list.clone();
    let changed = change(&mut list);
    if list != before {
        replace(path, &pretty_json(&list, path)?, Fsync::Always)?;
    }
    Ok(changed)
}
