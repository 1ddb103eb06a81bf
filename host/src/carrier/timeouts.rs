//! The deadlines of operations at the server, and how they grow on a slow link.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The deadline of one operation.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The most times as long that deadlines may be. A link of which the way there and back takes longer than the pings of a connection allow,
/// about two seconds, is lost again and again.
const MOST_PATIENCE: u32 = 4;

/// The deadline of the client library: longer than ours, so that ours, which names the operation, is reported.
pub(super) const LIBRARY_TIMEOUT: Duration =
    Duration::from_secs(REQUEST_TIMEOUT.as_secs() * MOST_PATIENCE as u64 + 1);

/// The share of a deadline within which an answer shows that the link is not slow.
const EARLY_SHARE: u32 = 8;

/// The number of times as long that deadlines are as usual. A link over a satellite, or a starved machine, answers too late again
/// and again: it would never be of use.
#[derive(Debug)]
pub(super) struct Patience(AtomicU32);

impl Patience {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(1))
    }

    /// Returns the number that holds now.
    pub(super) fn factor(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that the server has not answered within a deadline of this factor. Of many late answers at once, one counts.
    pub(super) fn note_late(&self, used: u32) {
        self.change(used, (used * 2).min(MOST_PATIENCE));
    }

    /// Notes that the server has answered after this time, within a deadline of this factor.
    pub(super) fn note_answer(&self, after: Duration, usual: Duration, used: u32) {
        if after < usual * used / EARLY_SHARE {
            self.change(used, (used / 2).max(1));
        }
    }

    fn change(&self, from: u32, to: u32) {
        // Another answer may have changed it before.
        let _changed = self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_grow_while_answers_are_late_and_shrink_when_they_are_early() {
        let (patience, usual) = (Patience::new(), Duration::from_secs(2));
        for expected in [2, 4, 4] {
            let used = patience.factor();
            // Many were under way.
            (0..5).for_each(|_| patience.note_late(used));
            assert_eq!(patience.factor(), expected);
        }
        patience.note_answer(Duration::from_millis(1100), usual, 4);
        assert_eq!(patience.factor(), 4, "a slow link");
        for expected in [2, 1, 1] {
            let used = patience.factor();
            (0..5).for_each(|_| patience.note_answer(Duration::from_millis(100), usual, used));
            assert_eq!(patience.factor(), expected);
        }
    }
}
