//! Versions of workspace files that would be lost otherwise, in `run/.state/kept/NAME-NUMBER`.
//!
//! *Invariant:* an agent has at most [`MOST`] versions, of [`MOST_BYTES`] together; the newest is always kept. The
//! oldest is removed first.

use super::file::atomic::remove;
use super::file::read::{known_if_there, numbered};
use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, FileError, create_new};
use crate::wire::AgentName;
use std::io::Write;
use std::path::PathBuf;

/// The maximum number of versions that are kept for one agent.
pub(crate) const MOST: usize = 64;

/// The maximum size of all versions of one agent, in bytes.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Keeps a version for an agent. Returns the path of the new file.
pub(crate) fn keep(dir: &TeamDir, name: &AgentName, bytes: &[u8]) -> Result<PathBuf, StoreError> {
    if !dir.kept_versions().is_dir() {
        dir.complete()?;
    }
    let earlier = all(dir, name)?;
    let number = earlier.last().map_or(0, |(number, _)| *number).saturating_add(1);
    let path = dir.kept_versions().join(format!("{name}-{number}"));
    let mut file = create_new(&path, Access::Update)?;
    if let Err(why) = file.write_all(bytes).at(&path) {
        remove(&path)?;
        return Err(why.into());
    }
    let mut size = bytes.len() as u64;
    for (count, (_, path)) in (1..).zip(earlier.iter().rev()) {
        size += known_if_there(path)?.map_or(0, |known| known.len());
        if count >= MOST || size > MOST_BYTES {
            remove(path)?;
        }
    }
    Ok(path)
}

/// Returns the number and the path of every kept version of an agent, oldest first.
pub(super) fn all(dir: &TeamDir, name: &AgentName) -> Result<Vec<(u64, PathBuf)>, FileError> {
    numbered(&dir.kept_versions(), name, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::fs;

    #[test]
    fn the_oldest_versions_are_removed_first() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("a-1").unwrap();
        for number in 1..=MOST + 3 {
            keep(&dir, &alice, format!("version {number}").as_bytes()).unwrap();
        }
        let kept = all(&dir, &alice).unwrap();
        assert_eq!((kept.len(), kept[0].0), (MOST, 4));
        assert_eq!(fs::read_to_string(&kept[MOST - 1].1).unwrap(), "version 67");
        let large = vec![0; usize::try_from(MOST_BYTES).unwrap() + 1];
        let path = keep(&dir, &alice, &large).unwrap();
        assert_eq!(all(&dir, &alice).unwrap(), [(68, path)]);
    }
}
