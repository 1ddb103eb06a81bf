//! The deadlines of operations at the server, and how they grow on a slow link.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The deadline of one operation.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The most times as long that deadlines may be.
const MOST_PATIENCE: u32 = 8;

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

    /// Returns a deadline that is `usual` on a fast link.
    pub(super) fn deadline(&self, usual: Duration) -> Duration {
        usual * self.0.load(Ordering::Relaxed)
    }

    /// Notes that nothing came within a deadline.
    pub(super) fn note_late(&self) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store((now * 2).min(MOST_PATIENCE), Ordering::Relaxed);
    }

    /// Notes that an answer came after this time.
    pub(super) fn note_answer(&self, after: Duration, usual: Duration) {
        if after < usual / EARLY_SHARE {
            let now = self.0.load(Ordering::Relaxed);
            self.0.store((now / 2).max(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_grow_while_answers_are_late_and_shrink_when_they_are_early() {
        let (patience, usual) = (Patience::new(), Duration::from_secs(2));
        let after = |times: u32| {
            (0..times).for_each(|_| patience.note_late());
            patience.deadline(usual).as_secs()
        };
        assert_eq!([after(0), after(1), after(1), after(9)], [2, 4, 8, 16]);
        patience.note_answer(Duration::from_secs(1), usual);
        assert_eq!(patience.deadline(usual).as_secs(), 16, "a slow link");
        for expected in [8, 4, 2, 2] {
            patience.note_answer(Duration::from_millis(100), usual);
            assert_eq!(patience.deadline(usual).as_secs(), expected);
        }
    }
}
