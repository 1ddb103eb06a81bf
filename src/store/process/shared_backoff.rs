//! The shared back-off of a team: one small file for each endpoint says until when no member should call
//! it.
//!
//! *Invariant:* the file is only advice. A file that is torn, lost, or from a clock that was set back
//! causes one early call; it never makes a member wait longer than was asked for.

use crate::os::file::At;
use crate::store::file::atomic::{Contents, Fsync, replace};
use crate::store::{StoreError, TeamDir};
use crate::wire::WallTime;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The contents of the file; `wait` is in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct BackoffRecord {
    until: WallTime,
    wait: f64,
}

/// The shared wait for one endpoint.
#[derive(Debug, Clone)]
pub struct SharedBackoff {
    path: PathBuf,
}

impl SharedBackoff {
    /// Returns the wait for an endpoint, named by host and port or by any other word.
    pub fn of(dir: &TeamDir, endpoint: &str) -> Self {
        let fits = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let word: String = endpoint.chars().map(fits).take(100).collect();
        Self { path: dir.state(&format!("{word}.hold")) }
    }

    /// Returns the remaining wait.
    pub fn pending(&self, now: WallTime) -> Duration {
        let Some(BackoffRecord { until, wait }) = self.read() else { return Duration::ZERO };
        let left = until.since(now);
        // A longer wait than was asked for: the clock was set back.
        if left.as_secs_f64() > wait { Duration::ZERO } else { left }
    }

    /// Asks all members to wait. A longer wait that is in force stays. Fails if the file cannot be written.
    pub fn hold(&self, now: WallTime, wait: Duration) -> Result<(), StoreError> {
        if self.pending(now) >= wait {
            return Ok(());
        }
        let record = Contents::json(&BackoffRecord { until: now + wait, wait: wait.as_secs_f64() })
            .at(&self.path)?;
        replace(&self.path, &record, Fsync::Never)?;
        Ok(())
    }

    fn read(&self) -> Option<BackoffRecord> {
        serde_json::from_str(&fs::read_to_string(&self.path).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_shared_and_passes() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        let (alice, bob) = (SharedBackoff::of(&dir, "H:1"), SharedBackoff::of(&dir, "H:1"));
        let secs = Duration::from_secs;
        assert_eq!(bob.pending(WallTime::from_secs(100.0)), Duration::ZERO);
        alice.hold(WallTime::from_secs(100.0), secs(8)).unwrap();
        assert_eq!(bob.pending(WallTime::from_secs(102.0)), secs(6));
        bob.hold(WallTime::from_secs(102.0), secs(2)).unwrap();
        assert_eq!(alice.pending(WallTime::from_secs(102.0)), secs(6), "the longer wait stays");
        bob.hold(WallTime::from_secs(102.0), secs(20)).unwrap();
        assert_eq!(alice.pending(WallTime::from_secs(102.0)), secs(20));
        assert_eq!(alice.pending(WallTime::from_secs(122.5)), Duration::ZERO);
        assert_eq!(
            alice.pending(WallTime::from_secs(50.0)),
            Duration::ZERO,
            "the clock was set back"
        );
        assert_eq!(
            SharedBackoff::of(&dir, "H:2").pending(WallTime::from_secs(102.0)),
            Duration::ZERO
        );
    }

    #[test]
    fn a_damaged_file_causes_no_wait() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        let hold = SharedBackoff::of(&dir, "../x");
        assert_eq!(hold.path, dir.state("___x.hold"));
        for text in ["", "{\"until\":", "{\"until\":1e308,\"wait\":1e308}", "{\"until\":9}", "[]"] {
            replace(&hold.path, &Contents::text(text), Fsync::Never).unwrap();
            assert_eq!(hold.pending(WallTime::from_secs(5.0)), Duration::ZERO, "{text}");
        }
    }
}
