//! Files about hosts, mostly lists, that a command changes while a relay may run. Each has a lock of its own.

use crate::store::file::atomic::{Fsync, pretty_json, replace};
use crate::store::file::lock::SideLock;
use crate::store::file::read::read_json;
use crate::store::{StoreError, TeamDir};
use crate::wire::limits::LOCK_TIMEOUT;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Reads a file; a missing one is empty.
pub(super) fn read<T: Default + DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    Ok(read_json(path, super::MOST_BYTES)?.unwrap_or_default())
}

/// Changes a file under its lock; returns what the change returns.
pub(super) fn change<T, R>(
    dir: &TeamDir,
    path: &Path,
    lock: PathBuf,
    change: impl FnOnce(&mut T) -> R,
) -> Result<R, StoreError>
where
    T: Clone + Default + PartialEq + Serialize + DeserializeOwned,
{
    super::make_folders(dir)?;
    let mut side = SideLock::new(lock);
    let _held = side.acquire(LOCK_TIMEOUT)?;
    let mut content: T = read(path)?;
    let before = content.clone();
    let changed = change(&mut content);
    if content != before {
        replace(path, &pretty_json(&content, path)?, Fsync::Always)?;
    }
    Ok(changed)
}
