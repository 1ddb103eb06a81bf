//! The disk reserve: a file of one mebibyte that is removed when a full disk would keep an agent from its
//! last writes.

use super::atomic::remove;
use crate::os::file::{Access, At, allocate, create_new};
use crate::store::{StoreError, TeamDir};
use std::fs;

/// The size of the reserve.
const BYTES: u64 = 1024 * 1024;

impl TeamDir {
    /// Creates the reserve unless it exists. Fails if the disk is full; a team works without a reserve.
    pub fn keep_reserve(&self) -> Result<(), StoreError> {
        let path = self.state("reserve");
        if fs::symlink_metadata(&path).is_ok_and(|known| known.len() == BYTES) {
            return Ok(());
        }
        remove(&path)?;
        let file = create_new(&path, Access::Update)?;
        let kept = allocate(&file, BYTES).at(&path);
        if kept.is_err() {
            // A part of a reserve would take room without being enough.
            remove(&path)?;
        }
        Ok(kept?)
    }

    /// Removes the reserve, so that the next write has room. Fails if the file cannot be removed.
    pub fn give_up_reserve(&self) -> Result<(), StoreError> {
        Ok(remove(&self.state("reserve"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_reserve_allocates_blocks_and_frees_them() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        for _ in 0..2 {
            dir.keep_reserve().unwrap();
            let known = fs::metadata(dir.state("reserve")).unwrap();
            assert_eq!((known.len(), known.blocks() * 512), (BYTES, BYTES));
        }
        dir.give_up_reserve().unwrap();
        dir.give_up_reserve().unwrap();
        assert!(!dir.state("reserve").exists());
    }
}
