//! The shared back-off of a team: one small file for each endpoint holds the time until which no member should
//! call it.
//!
//! *Invariant:* the file is only advice. A file that is torn, lost, or from a clock that was set back
//! causes one early call; it never makes a member wait longer than was asked for.

use crate::store::file::atomic::{Fsync, json, replace};
use crate::store::file::read::read_state;
use crate::store::{StoreError, TeamDir};
use crate::wire::WallTime;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The contents of the file; `wait` is in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct BackoffRecord {
    until: WallTime,
    wait: f64,
}

#[derive(Debug, Clone)]
pub(crate) struct SharedBackoff {
    path: PathBuf,
}

impl SharedBackoff {
    /// Returns the shared wait for an endpoint, which is named by host and port or by any other word.
    pub(crate) fn of(dir: &TeamDir, endpoint: &str) -> Self {
        let fits = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let word: String = endpoint.chars().map(fits).take(100).collect();
        Self { path: dir.state(&format!("{word}.hold")) }
    }

    pub(crate) fn pending(&self, now: WallTime) -> Duration {
        let Ok(Some(BackoffRecord { until, wait })) = read_state(&self.path) else {
            return Duration::ZERO;
        };
        let left = until.since(now);
        // More time is left than was asked for: the clock was set back.
        if left.as_secs_f64() > wait { Duration::ZERO } else { left }
    }

    /// Asks all members to wait. A longer pending wait stays. Fails if the file cannot be written.
    pub(crate) fn hold(&self, now: WallTime, wait: Duration) -> Result<(), StoreError> {
        if self.pending(now) >= wait {
            return Ok(());
        }
        let record = BackoffRecord { until: now + wait, wait: wait.as_secs_f64() };
        Ok(replace(&self.path, &json(&record, &self.path)?, Fsync::Never)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;

    #[test]
    fn a_wait_is_shared_and_passes() {
        let (_folder, dir) = test_team();
        let (alice, bob) = (SharedBackoff::of(&dir, "H:1"), SharedBackoff::of(&dir, "H:1"));
        let pending = |at: f64, seconds: u64, why: &str| {
            let left = bob.pending(WallTime::from_secs(at));
            assert_eq!(left, Duration::from_secs(seconds), "{why}");
        };
        let hold = |at: f64, seconds| {
            alice.hold(WallTime::from_secs(at), Duration::from_secs(seconds)).unwrap();
        };
        pending(100.0, 0, "nobody waits");
        hold(100.0, 8);
        pending(102.0, 6, "the wait of alice");
        hold(102.0, 2);
        pending(102.0, 6, "the longer wait stays");
        hold(102.0, 20);
        pending(102.0, 20, "a longer wait");
        pending(122.5, 0, "it has passed");
        pending(50.0, 0, "the clock was set back");
        let other = SharedBackoff::of(&dir, "H:2").pending(WallTime::from_secs(102.0));
        assert_eq!(other, Duration::ZERO, "another endpoint");
    }

    #[test]
    fn a_damaged_file_causes_no_wait() {
        let (_folder, dir) = test_team();
        let hold = SharedBackoff::of(&dir, "../x");
        assert_eq!(hold.path, dir.state("___x.hold"));
        for text in ["", "{\"until\":", "{\"until\":1e308,\"wait\":1e308}", "{\"until\":9}", "[]"] {
            replace(&hold.path, text.as_bytes(), Fsync::Never).unwrap();
            assert_eq!(hold.pending(WallTime::from_secs(5.0)), Duration::ZERO, "{text}");
        }
    }
}
