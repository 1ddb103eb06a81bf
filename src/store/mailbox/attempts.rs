//! Counts deliveries of a claim that ended in a crash: mail that crashes its reader must not do so forever.
//! Times are seconds since boot; a new boot starts a new count.

use crate::os::file::{Access, At, open};
use crate::os::identity::boot_id;
use crate::os::uptime_with_sleep;
use crate::store::file::atomic::{Contents, Fsync, remove, replace};
use crate::store::{StoreError, TeamDir, failpoint};
use crate::wire::limits::{POISON_CRASHES, POISON_WINDOW};
use crate::wire::{AgentName, MachineTime};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::PathBuf;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    #[serde(rename = "generation")]
    batch_id: String,
    boot_id: String,
    at: Vec<MachineTime>,
}

/// The counter of one mailbox, `run/.state/NAME.attempts`.
#[derive(Debug)]
pub(crate) struct Attempts {
    path: PathBuf,
}

impl Attempts {
    pub(crate) fn of(dir: &TeamDir, name: &AgentName) -> Self {
        Self { path: dir.state(&format!("{name}.attempts")) }
    }

    /// Records that the delivery of an inherited claim begins. Returns `true` if too many deliveries of it
    /// ended in a crash; it must then be quarantined.
    pub(crate) fn is_poison(&self, batch_id: &str) -> Result<bool, StoreError> {
        let now = uptime_with_sleep();
        let mut record = self.read();
        if record.batch_id != batch_id || record.boot_id != boot_id() {
            record = Record { batch_id: batch_id.into(), boot_id: boot_id(), at: Vec::new() };
        }
        record.at.retain(|at| now.since(*at) < POISON_WINDOW);
        // The process that made the claim crashed on it as well, unrecorded.
        if record.at.len() + 1 >= POISON_CRASHES {
            return Ok(true);
        }
        record.at.push(now);
        let contents = Contents::json(&record).at(&self.path)?;
        replace(&self.path, &contents, Fsync::Never)?;
        failpoint::hit("recover.counted");
        Ok(false)
    }

    /// Records that the delivery ended.
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        remove(&self.path)?;
        failpoint::hit("recover.cleared");
        Ok(())
    }

    /// An unreadable record counts as empty: it only guards against crashes.
    fn read(&self) -> Record {
        let mut text = Vec::new();
        open(&self.path, Access::Read)
            .ok()
            .and_then(|mut file| file.read_to_end(&mut text).ok())
            .and_then(|_| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn attempts() -> (tempfile::TempDir, Attempts) {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        (folder, Attempts::of(&dir, &AgentName::lead()))
    }

    #[test]
    fn the_fifth_crash_in_a_row_makes_a_claim_poison() {
        let (_folder, attempts) = attempts();
        for _ in 0..4 {
            assert!(!attempts.is_poison("a").unwrap());
        }
        assert!(attempts.is_poison("a").unwrap());
        assert!(!attempts.is_poison("b").unwrap());
        for _ in 0..10 {
            assert!(!attempts.is_poison("c").unwrap());
            attempts.clear().unwrap();
        }
    }

    #[test]
    fn crashes_outside_the_window_or_of_another_boot_do_not_count() {
        let (_folder, attempts) = attempts();
        let old = uptime_with_sleep() - POISON_WINDOW - Duration::from_secs(1);
        for (boot_id, at) in [(boot_id(), old), ("another".into(), uptime_with_sleep())] {
            let record = Record { batch_id: "a".into(), boot_id, at: vec![at; 9] };
            let contents = Contents::json(&record).unwrap();
            replace(&attempts.path, &contents, Fsync::Never).unwrap();
            assert!(!attempts.is_poison("a").unwrap());
        }
    }
}
