//! Hang detection (RELIABILITY 4): distinguishes a busy process from a hung one.
//!
//! Only *changes* of the sign of life count, never a timestamp in a file, and only time in which the watcher
//! itself was running. So neither a clock that jumps nor a machine that was suspended makes a process count as hung.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LivenessSample {
    /// A text that changes with every heartbeat and every report of the process.
    pub(crate) sign: String,
    pub(crate) owes: HeartbeatDuty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeartbeatDuty {
    /// None: the process is idle without unread mail, or it is stopping.
    Nothing,
    /// A heartbeat at regular intervals.
    Signs,
    /// A heartbeat after the time limit of the tool that the process runs.
    SignsAfter(Duration),
}

#[derive(Debug)]
pub(crate) struct HangDetector {
    /// The time without a change after which a process is hung.
    timeout: Duration,
    /// The longest interval between two checks that counts in full. During a longer one, the watcher was
    /// suspended, too.
    longest_gap: Duration,
    watched: BTreeMap<String, Watched>,
}

#[derive(Debug)]
struct Watched {
    sample: LivenessSample,
    quiet: Duration,
    looked: Instant,
}

impl HangDetector {
    /// Creates a detector that expects one check every `period`.
    pub(crate) fn new(timeout: Duration, period: Duration) -> Self {
        Self { timeout, longest_gap: period.saturating_mul(2), watched: BTreeMap::new() }
    }

    /// Records one check of the process with this incarnation. Returns whether it is hung.
    pub(crate) fn check(&mut self, incarnation: &str, sample: LivenessSample, at: Instant) -> bool {
        let limit = match sample.owes {
            HeartbeatDuty::Nothing => None,
            HeartbeatDuty::Signs => Some(self.timeout),
            HeartbeatDuty::SignsAfter(tool) => Some(self.timeout.saturating_add(tool)),
        };
        match (self.watched.get_mut(incarnation), limit) {
            (Some(watched), Some(limit)) if watched.sample == sample => {
                let passed = at.saturating_duration_since(watched.looked).min(self.longest_gap);
                watched.looked = at;
                watched.quiet = watched.quiet.saturating_add(passed);
                watched.quiet >= limit
            }
            _ => {
                let watched = Watched { sample, quiet: Duration::ZERO, looked: at };
                self.watched.insert(incarnation.to_owned(), watched);
                false
            }
        }
    }

    /// Drops the records of all other incarnations.
    pub(crate) fn keep(&mut self, incarnations: &[String]) {
        self.watched.retain(|known, _| incarnations.contains(known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(2);
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn same(owes: HeartbeatDuty) -> LivenessSample {
        LivenessSample { sign: "same".into(), owes }
    }

    /// Checks a process every two seconds with the sample that `show` returns. Returns the second at which it is hung.
    fn hung_after(show: impl Fn(u64) -> LivenessSample) -> Option<u64> {
        let (mut hang_detector, start) = (HangDetector::new(TIMEOUT, PERIOD), Instant::now());
        (0..200).step_by(2).find(|second| {
            hang_detector.check("a", show(*second), start + Duration::from_secs(*second))
        })
    }

    #[test]
    fn a_process_without_a_change_is_hung_after_the_limit() {
        use HeartbeatDuty::{Nothing, Signs, SignsAfter};
        assert_eq!(hung_after(|_| same(Signs)), Some(60));
        let changing =
            |second: u64| LivenessSample { sign: (second / 50).to_string(), owes: Signs };
        assert_eq!(hung_after(changing), None);
        assert_eq!(hung_after(|_| same(Nothing)), None);
        assert_eq!(hung_after(|_| same(SignsAfter(2 * TIMEOUT))), Some(180));
        let idle_then_mail = |second| same(if second < 100 { Nothing } else { Signs });
        assert_eq!(hung_after(idle_then_mail), Some(160), "counted from the arrival of the mail");
    }

    #[test]
    fn time_in_which_the_watcher_slept_or_another_incarnation_ran_does_not_count() {
        let (mut hang_detector, start) = (HangDetector::new(TIMEOUT, PERIOD), Instant::now());
        let check = |hang_detector: &mut HangDetector, hour: u32| {
            let now = start + hour * Duration::from_secs(3600);
            hang_detector.check("a", same(HeartbeatDuty::Signs), now)
        };
        let hung = (0..=20).find(|hour| check(&mut hang_detector, *hour));
        assert_eq!(hung, Some(15), "each check counts 4 s");
        // An incarnation that was not kept is watched from zero.
        hang_detector.keep(&["b".into()]);
        assert_eq!((21..=50).find(|hour| check(&mut hang_detector, *hour)), Some(36));
    }
}
