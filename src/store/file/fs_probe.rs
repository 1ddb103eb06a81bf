//! Probes once at the start whether a file system can hold a team, so that no mail is lost later. Also keeps the
//! disk reserve: a file that is removed when a full disk would prevent the last writes of an agent.

use super::atomic::remove;
use super::lock::{release, try_exclusive};
use crate::os::event_loop::check_blocking;
use crate::os::file::{Access, At, allocate, create_new, open};
use crate::store::{StoreError, TeamDir};
use crate::wire::limits::DISK_RESERVE_BYTES;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Probes writing, syncing, locking and renaming, not hard links. The error names the first operation that fails.
pub(crate) fn run(dir: &TeamDir) -> Result<(), StoreError> {
    let probe = place(dir, "selftest");
    let renamed = probe.with_extension("renamed");
    let outcome = try_everything(&probe, &renamed);
    for path in [&probe, &renamed] {
        remove(path)?;
    }
    outcome.map_err(|why| StoreError::Unfit(dir.root().into(), why))
}

/// Whether a file can have a second hard link. Without links, mail is claimed by a rename alone.
pub(crate) fn has_links(dir: &TeamDir) -> Result<bool, StoreError> {
    let probe = place(dir, "linktest");
    let second = probe.with_extension("second");
    remove(&probe)?;
    drop(create_new(&probe, Access::Append)?);
    let has = fs::hard_link(&probe, &second).is_ok();
    for path in [&probe, &second] {
        remove(path)?;
    }
    Ok(has)
}

/// Returns the path of a file to probe with: beside the state of the team, or in its folder before the first run.
fn place(dir: &TeamDir, what: &str) -> PathBuf {
    let name = format!("{what}-{}", std::process::id());
    if dir.has_state() { dir.state(&name) } else { dir.root().join(name) }
}

fn try_everything(probe: &Path, renamed: &Path) -> Result<(), String> {
    let said = |what: &'static str| move |why: io::Error| format!("{what}: {why}");
    remove(probe).map_err(|why| why.to_string())?;
    let mut one = create_new(probe, Access::Append).map_err(|why| why.to_string())?;
    one.write_all(b"probe\n").map_err(said("writing failed"))?;
    check_blocking("fsync");
    one.sync_data().map_err(said("syncing failed"))?;
    let two = open(probe, Access::Update).map_err(|why| why.to_string())?;
    if !try_exclusive(&one).map_err(said("locking (flock) failed"))? {
        return Err("a new file is locked already".into());
    }
    if try_exclusive(&two).map_err(said("locking (flock) failed"))? {
        return Err("locks (flock) do not exclude each other here".into());
    }
    release(&one);
    fs::rename(probe, renamed).map_err(said("renaming failed"))
}

impl TeamDir {
    /// Creates the reserve unless it exists. Fails if the disk is full; a team works without a reserve.
    pub(crate) fn keep_reserve(&self) -> Result<(), StoreError> {
        let path = self.state("reserve");
        if fs::symlink_metadata(&path).is_ok_and(|known| known.len() == DISK_RESERVE_BYTES) {
            return Ok(());
        }
        remove(&path)?;
        let file = create_new(&path, Access::Update)?;
        let kept = allocate(&file, DISK_RESERVE_BYTES).at(&path);
        if kept.is_err() {
            // A partial reserve would use space without being sufficient.
            remove(&path)?;
        }
        Ok(kept?)
    }

    /// Removes the reserve to free space for the next write.
    pub(crate) fn give_up_reserve(&self) -> Result<(), StoreError> {
        Ok(remove(&self.state("reserve"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn an_ordinary_folder_passes_and_no_file_is_left_in_it() {
        let (_folder, dir) = test_team();
        let before = fs::read_dir(dir.state("")).unwrap().count();
        run(&dir).unwrap();
        has_links(&dir).unwrap();
        assert_eq!(fs::read_dir(dir.state("")).unwrap().count(), before);
        // Before the first run a person may have made the folder, for the settings.
        let folder = tempfile::tempdir().unwrap();
        let bare = TeamDir::look(folder.path()).unwrap();
        run(&bare).unwrap();
        has_links(&bare).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_reserve_allocates_blocks_and_frees_them() {
        let (_folder, dir) = test_team();
        for _ in 0..2 {
            dir.keep_reserve().unwrap();
            let known = fs::metadata(dir.state("reserve")).unwrap();
            assert_eq!(
                (known.len(), known.blocks() * 512),
                (DISK_RESERVE_BYTES, DISK_RESERVE_BYTES)
            );
        }
        dir.give_up_reserve().unwrap();
        dir.give_up_reserve().unwrap();
        assert!(!dir.state("reserve").exists());
    }
}
