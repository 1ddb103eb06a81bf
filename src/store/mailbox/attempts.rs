//! Counts the deliveries of a claim that ended in a crash, so that mail that crashes its reader is quarantined in
//! the end. Times are seconds since boot; a new boot starts a new count.

use crate::os::identity::boot_id;
use crate::os::uptime_with_sleep;
use crate::store::file::atomic::{Fsync, json, remove, replace};
use crate::store::file::read::read_state;
use crate::store::{StoreError, TeamDir, failpoint};
use crate::wire::limits::{POISON_CRASHES, POISON_WINDOW};
use crate::wire::{AgentName, MachineTime};
use serde::{Deserialize, Serialize};
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

    /// Records that a delivery begins. Returns `true` if too many deliveries crashed: the claim must be
    /// quarantined.
    pub(crate) fn is_poison(&self, batch_id: &str) -> Result<bool, StoreError> {
        let now = uptime_with_sleep();
        // An unreadable record counts as empty: it only guards against crashes.
        let mut record: Record = read_state(&self.path).ok().flatten().unwrap_or_default();
        if record.batch_id != batch_id || record.boot_id != boot_id() {
            record = Record { batch_id: batch_id.into(), boot_id: boot_id(), at: Vec::new() };
        }
        record.at.retain(|at| now.since(*at) < POISON_WINDOW);
        // The first crash is not recorded: it was that of the process that made the claim.
        if record.at.len() + 1 >= POISON_CRASHES {
            return Ok(true);
        }
        record.at.push(now);
        replace(&self.path, &json(&record, &self.path)?, Fsync::Never)?;
        failpoint::hit("recover.counted");
        Ok(false)
    }

    /// Records that the delivery ended.
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        remove(&self.path)?;
        failpoint::hit("recover.cleared");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::time::Duration;

    #[test]
    fn the_fifth_crash_within_the_window_and_the_boot_makes_a_claim_poison() {
        let (_folder, dir) = test_team();
        let attempts = Attempts::of(&dir, &AgentName::lead());
        for (batch_id, times) in [("a", 4), ("b", 1), ("a", 4)] {
            for time in 0..times {
                assert!(!attempts.is_poison(batch_id).unwrap(), "{batch_id} {time}");
            }
        }
        assert!(attempts.is_poison("a").unwrap());
        attempts.clear().unwrap();
        assert!(!attempts.is_poison("a").unwrap());
        let old = uptime_with_sleep() - POISON_WINDOW - Duration::from_secs(1);
        for (boot_id, at) in [(boot_id(), old), ("another".into(), uptime_with_sleep())] {
            let record = Record { batch_id: "a".into(), boot_id, at: vec![at; 9] };
            let contents = json(&record, &attempts.path).unwrap();
            replace(&attempts.path, &contents, Fsync::Never).unwrap();
            assert!(!attempts.is_poison("a").unwrap());
        }
    }
}
