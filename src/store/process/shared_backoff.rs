//! Until when nobody of the team should call an endpoint: one small file for each endpoint, which any
//! member writes and all read.
//!
//! *Invariant:* only a wish. A file that is torn, lost, or from a clock that was set back makes somebody
//! call too early, once; it never makes anybody wait longer than was asked for.

use crate::os::file::At;
use crate::store::file::atomic::{Contents, Fsync, replace};
use crate::store::{StoreError, TeamDir};
use crate::wire::WallTime;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// What the file says; seconds, the first since 1970.
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
    /// The wait for an endpoint, named by host and port or any other word.
    pub fn of(dir: &TeamDir, endpoint: &str) -> Self {
        let fits = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let word: String = endpoint.chars().map(fits).take(100).collect();
        Self { path: dir.state(&format!("{word}.hold")) }
    }

    /// How long nobody should call yet.
    pub fn pending(&self, now: WallTime) -> Duration {
        let Some(BackoffRecord { until, wait }) = self.read() else { return Duration::ZERO };
        let left = until.since(now);
        // A longer wait than was asked for: the clock was set back.
        if left.as_secs_f64() > wait { Duration::ZERO } else { left }
    }

    /// Nobody should call for that long; a longer wait that stands already stays.
    ///
    /// # Errors
    /// The file cannot be written.
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
    fn whatever_stands_in_the_file_nobody_waits_for_ever() {
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
