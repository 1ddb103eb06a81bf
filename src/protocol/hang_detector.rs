//! Whether somebody who lives still moves (RELIABILITY 4): busy, hung, or just watched too seldom.
//!
//! Only signs of life that *change* count, never how old a file says it is, and only time in which the
//! watcher itself was awake: neither a clock that jumps nor a machine that slept makes anybody hung.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What was seen of somebody at one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Changes whenever it moves: its last beat and what it says it does.
    pub(crate) sign: String,
    /// What may be expected of it.
    pub(crate) owes: HeartbeatDuty,
}

/// What somebody owes who is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeartbeatDuty {
    /// Nothing: it is idle and no mail waits, or it is on its way out.
    Nothing,
    /// A sign of life at regular times.
    Signs,
    /// A sign of life, but it runs a tool that has a time limit of its own.
    SignsAfter(Duration),
}

/// Watches several.
#[derive(Debug)]
pub(crate) struct HangDetector {
    /// How long somebody may be quiet.
    patience: Duration,
    /// The longest time between two looks that counts: for more of it, the watcher slept too.
    longest_gap: Duration,
    watched: BTreeMap<String, Watched>,
}

#[derive(Debug)]
struct Watched {
    seen: Seen,
    quiet: Duration,
    looked: Instant,
}

impl HangDetector {
    /// Looks every `period`; who is quiet for `patience` is hung.
    pub(crate) fn new(patience: Duration, period: Duration) -> Self {
        Self { patience, longest_gap: period.saturating_mul(2), watched: BTreeMap::new() }
    }

    /// One look at one of them, whose life is `life`; tells whether it is hung.
    pub(crate) fn look(&mut self, life: &str, seen: Seen, now: Instant) -> bool {
        let Some(watched) = self.watched.get_mut(life) else {
            let watched = Watched { seen, quiet: Duration::ZERO, looked: now };
            self.watched.insert(life.to_owned(), watched);
            return false;
        };
        let passed = now.saturating_duration_since(watched.looked).min(self.longest_gap);
        watched.looked = now;
        let limit = match seen.owes {
            HeartbeatDuty::Nothing => None,
            HeartbeatDuty::Signs => Some(self.patience),
            HeartbeatDuty::SignsAfter(tool) => Some(self.patience.saturating_add(tool)),
        };
        if watched.seen != seen || limit.is_none() {
            watched.seen = seen;
            watched.quiet = Duration::ZERO;
            return false;
        }
        watched.quiet = watched.quiet.saturating_add(passed);
        limit.is_some_and(|limit| watched.quiet >= limit)
    }

    /// Forgets all but these lives.
    pub(crate) fn keep(&mut self, lives: &[String]) {
        self.watched.retain(|life, _| lives.contains(life));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(2);

    fn seen(sign: &str, owes: HeartbeatDuty) -> Seen {
        Seen { sign: sign.into(), owes }
    }

    /// Looks each period at somebody who shows what `show` gives; when it is found hung, in seconds.
    fn hung_after(show: impl Fn(u64) -> Seen) -> Option<u64> {
        let mut hang_detector = HangDetector::new(Duration::from_secs(60), PERIOD);
        let start = Instant::now();
        (0..100).map(|look| look * 2).find(|second| {
            hang_detector.look("a", show(*second), start + Duration::from_secs(*second))
        })
    }

    #[test]
    fn who_is_quiet_for_too_long_is_hung() {
        assert_eq!(hung_after(|_| seen("same", HeartbeatDuty::Signs)), Some(60));
        assert_eq!(
            hung_after(|second| seen(&(second / 50).to_string(), HeartbeatDuty::Signs)),
            None
        );
        assert_eq!(hung_after(|_| seen("same", HeartbeatDuty::Nothing)), None);
        let in_tool = HeartbeatDuty::SignsAfter(Duration::from_secs(120));
        assert_eq!(hung_after(|_| seen("same", in_tool)), Some(180));
        let idle_then_mail = |second| {
            seen("same", if second < 100 { HeartbeatDuty::Nothing } else { HeartbeatDuty::Signs })
        };
        assert_eq!(hung_after(idle_then_mail), Some(160), "quiet counts from the mail on");
    }

    #[test]
    fn a_watcher_that_slept_does_not_blame_the_others() {
        let mut hang_detector = HangDetector::new(Duration::from_secs(60), PERIOD);
        let mut now = Instant::now();
        hang_detector.look("a", seen("same", HeartbeatDuty::Signs), now);
        for _ in 0..14 {
            now += Duration::from_secs(3600);
            assert!(!hang_detector.look("a", seen("same", HeartbeatDuty::Signs), now));
        }
        now += Duration::from_secs(3600);
        assert!(
            hang_detector.look("a", seen("same", HeartbeatDuty::Signs), now),
            "15 looks of 4 s each"
        );
    }

    #[test]
    fn a_new_life_of_a_name_is_watched_anew() {
        let mut hang_detector = HangDetector::new(PERIOD, PERIOD);
        let now = Instant::now();
        hang_detector.look("a1", seen("same", HeartbeatDuty::Signs), now);
        hang_detector.keep(&["a2".into()]);
        assert!(!hang_detector.look("a1", seen("same", HeartbeatDuty::Signs), now + 9 * PERIOD));
        assert!(hang_detector.look("a1", seen("same", HeartbeatDuty::Signs), now + 10 * PERIOD));
    }
}
