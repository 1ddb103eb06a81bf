//! Room kept for the end: a file of one mebibyte that is given up when a full disk would keep an agent
//! from writing its last words.

use super::atomic::remove;
use crate::os::file::{Access, At, allocate, create_new};
use crate::store::{StoreError, TeamDir};
use std::fs;

/// How much is kept.
const BYTES: u64 = 1024 * 1024;

impl TeamDir {
    /// Keeps the reserve, if it is not kept already.
    ///
    /// # Errors
    /// There is no room for it. A team works without one.
    pub fn keep_reserve(&self) -> Result<(), StoreError> {
        let path = self.state("reserve");
        if fs::symlink_metadata(&path).is_ok_and(|known| known.len() == BYTES) {
            return Ok(());
        }
        remove(&path)?;
        let file = create_new(&path, Access::Update)?;
        let kept = allocate(&file, BYTES).at(&path);
        if kept.is_err() {
            // A part of it would be missing elsewhere and not be enough here.
            remove(&path)?;
        }
        Ok(kept?)
    }

    /// Gives the reserve to whoever writes next.
    ///
    /// # Errors
    /// It is there and cannot be removed.
    pub fn give_up_reserve(&self) -> Result<(), StoreError> {
        Ok(remove(&self.state("reserve"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_reserve_takes_real_room_and_gives_it_back() {
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
