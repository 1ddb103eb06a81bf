//! Heartbeats of busy agents: the current state, rewritten in place in `run/.state/NAME.beat`.
//!
//! *Invariant:* no process is killed because of the contents. The watcher measures lateness by changes that it
//! observed itself.

use crate::os::file::{Access, At, open_or_create};
use crate::store::file::atomic::json_line;
use crate::store::file::read::read_state;
use crate::store::{StoreError, TeamDir};
use crate::wire::{AgentName, MachineTime, WallTime};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Heartbeat {
    pub(crate) incarnation: String,
    /// A counter, so that no two heartbeats are equal.
    pub(crate) count: u64,
    /// `llm`, `tool:NAME`, or the status.
    pub(crate) state: String,
    /// The time at which the state began, for people.
    pub(crate) since: WallTime,
    /// The time limit of the running tool, in seconds.
    pub(crate) limit: Option<u64>,
    pub(crate) uptime: MachineTime,
}

#[derive(Debug)]
pub(crate) struct HeartbeatFile {
    path: PathBuf,
    file: File,
}

impl HeartbeatFile {
    pub(crate) fn open(dir: &TeamDir, name: &AgentName) -> Result<Self, StoreError> {
        let path = dir.heartbeat(name);
        let file = open_or_create(&path, Access::Update)?;
        Ok(Self { path, file })
    }

    /// Overwrites the last heartbeat. Readers parse only the first line.
    pub(crate) fn write(&self, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        Ok(self.file.write_all_at(&json_line(heartbeat, &self.path)?, 0).at(&self.path)?)
    }

    /// Sets the modification time instead, if the file cannot be written: this succeeds on a full disk.
    pub(crate) fn touch(&self, now: WallTime) -> Result<(), StoreError> {
        let now = UNIX_EPOCH + now.since(WallTime::default());
        Ok(self.file.set_modified(now).at(&self.path)?)
    }
}

/// Returns the modification time, which every heartbeat changes.
pub(crate) fn stamp(dir: &TeamDir, name: &AgentName) -> Option<(i64, i64)> {
    let known = std::fs::symlink_metadata(dir.heartbeat(name)).ok()?;
    Some((known.mtime(), known.mtime_nsec()))
}

/// Reads the last heartbeat of `name`; `None` if there is none. Fails if the file exists and cannot be read.
pub(crate) fn read(dir: &TeamDir, name: &AgentName) -> Result<Option<Heartbeat>, StoreError> {
    Ok(read_state(&dir.heartbeat(name))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn a_short_heartbeat_after_a_long_one_is_read() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        assert_eq!(read(&dir, &alice).unwrap(), None);
        let file = HeartbeatFile::open(&dir, &alice).unwrap();
        let long = Heartbeat {
            incarnation: "i".into(),
            count: 1,
            state: "tool:write_file".into(),
            since: 1.5.into(),
            limit: Some(120),
            uptime: 9.25.into(),
        };
        file.write(&long).unwrap();
        assert_eq!(read(&dir, &alice).unwrap(), Some(long.clone()));
        let short = Heartbeat { state: "llm".into(), limit: None, count: 2, ..long };
        file.write(&short).unwrap();
        assert_eq!(read(&dir, &alice).unwrap(), Some(short.clone()));
        file.touch(7.5.into()).unwrap();
        assert_eq!(stamp(&dir, &alice), Some((7, 500_000_000)));
        assert_eq!(read(&dir, &alice).unwrap(), Some(short));
    }
}
