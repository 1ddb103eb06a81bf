//! Signs of life of busy agents: what one does, written over and over in its `run/.state/NAME.beat`.
//!
//! *Invariant:* nobody is ended because of what stands here. Whether a beat is late is decided by
//! whoever watches, from changes it saw itself.

use crate::os::file::{Access, At, open, open_or_create};
use crate::store::file::atomic::Contents;
use crate::store::{StoreError, TeamDir};
use crate::wire::{AgentName, MachineTime, WallTime};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// Longest line.
const LONGEST: u64 = 4096;

/// What an agent says while it is busy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Which life of the name.
    pub incarnation: String,
    /// Counts up, so that no two are alike.
    pub count: u64,
    /// `llm`, `tool:NAME`, or the status.
    pub state: String,
    /// Since when, for people.
    pub since: WallTime,
    /// How long the running tool may take by its own rules, in seconds.
    pub limit: Option<u64>,
    /// Seconds on the machine's monotonic clock, which all processes share.
    pub uptime: MachineTime,
}

/// An agent's own end.
#[derive(Debug)]
pub struct HeartbeatFile {
    path: PathBuf,
    file: File,
}

impl HeartbeatFile {
    /// Opens it.
    ///
    /// # Errors
    /// The file refused.
    pub fn open(dir: &TeamDir, name: &AgentName) -> Result<Self, StoreError> {
        let path = dir.beat(name);
        let file = open_or_create(&path, Access::Update)?;
        Ok(Self { path, file })
    }

    /// Writes over what stood there. Readers take the first line.
    ///
    /// # Errors
    /// The file refused.
    pub fn write(&self, beat: &Heartbeat) -> Result<(), StoreError> {
        let line = Contents::json(beat).at(&self.path)?.line();
        Ok(self.file.write_all_at(line.as_bytes(), 0).at(&self.path)?)
    }

    /// A sign of life where not even that can be written: a full disk still takes this.
    ///
    /// # Errors
    /// The file refused.
    pub fn touch(&self, now: WallTime) -> Result<(), StoreError> {
        let now = UNIX_EPOCH + now.since(WallTime::default());
        Ok(self.file.set_modified(now).at(&self.path)?)
    }
}

/// What changes with every sign of life, also where none can be written.
pub(crate) fn stamp(dir: &TeamDir, name: &AgentName) -> Option<(i64, i64)> {
    let known = std::fs::symlink_metadata(dir.beat(name)).ok()?;
    Some((known.mtime(), known.mtime_nsec()))
}

/// The last sign of life of `name`; `None` when it never gave one.
///
/// # Errors
/// The file is there and refused.
pub fn read(dir: &TeamDir, name: &AgentName) -> Result<Option<Heartbeat>, StoreError> {
    let path = dir.beat(name);
    let file = match open(&path, Access::Read) {
        Err(why) if why.is_missing() => return Ok(None),
        other => other?,
    };
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).at(&path)?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_beat_is_read_also_after_a_longer_one() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
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
