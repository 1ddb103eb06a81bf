//! Probes whether a file system can hold a team, once at the start: a missing feature is reported instead
//! of losing mail.

use super::atomic::remove;
use super::lock::{release, try_exclusive};
use crate::os::event_loop::check_blocking;
use crate::os::file::{Access, create_new, open};
use crate::store::{StoreError, TeamDir};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Probes writing, syncing, locking and renaming. Hard links are not required.
///
/// # Errors
/// The first operation that fails, with the reason.
pub fn run(dir: &TeamDir) -> Result<(), StoreError> {
    let probe = dir.state(&format!("selftest-{}", std::process::id()));
    let renamed = probe.with_extension("renamed");
    let outcome = remove(&probe)
        .map_err(|why| why.to_string())
        .and_then(|()| try_everything(&probe, &renamed));
    for path in [&probe, &renamed] {
        remove(path)?;
    }
    outcome.map_err(|why| StoreError::Unfit { path: dir.root().into(), why })
}

/// Whether a file can have a second hard link. Without links, mail is claimed by a rename alone.
///
/// # Errors
/// The folder cannot be written.
pub fn has_links(dir: &TeamDir) -> Result<bool, StoreError> {
    let probe = dir.state(&format!("linktest-{}", std::process::id()));
    let second = probe.with_extension("second");
    remove(&probe)?;
    drop(create_new(&probe, Access::Append)?);
    let has = fs::hard_link(&probe, &second).is_ok();
    for path in [&probe, &second] {
        remove(path)?;
    }
    Ok(has)
}

fn try_everything(probe: &Path, renamed: &Path) -> Result<(), String> {
    let said = |what: &'static str| move |why: io::Error| format!("{what}: {why}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_folder_passes_and_no_file_is_left_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        let before = fs::read_dir(dir.state("")).unwrap().count();
        run(&dir).unwrap();
        has_links(&dir).unwrap();
        assert_eq!(fs::read_dir(dir.state("")).unwrap().count(), before);
    }
}
