//! The pause before something that has failed is tried again.

use std::time::{Duration, Instant};

/// A pause that doubles with each failure. The tasks that wait for a slow server, or a busy host, are not helped by more work for
/// it.
#[derive(Debug)]
pub(crate) struct RetryPause {
    shortest: Duration,
    longest: Duration,
    next: Duration,
    until: Option<Instant>,
}

impl RetryPause {
    /// Creates a pause that has not begun.
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, next: shortest, until: None }
    }

    /// Whether it is not over yet.
    pub(crate) fn lasts(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// Begins it after a failure.
    pub(crate) fn begin(&mut self) {
        self.until = Some(Instant::now() + self.next);
        self.next = (self.next * 2).min(self.longest);
    }

    /// Ends it: there was a success, or there is a reason to hope for one.
    pub(crate) fn end(&mut self) {
        (self.until, self.next) = (None, self.shortest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_to_its_longest_and_begins_anew_after_a_success() {
        let (shortest, longest) = (Duration::from_secs(60), Duration::from_secs(150));
        let mut pause = RetryPause::new(shortest, longest);
        assert!(!pause.lasts());
        for expected in [60, 120, 150, 150] {
            assert_eq!(pause.next, Duration::from_secs(expected));
            pause.begin();
            assert!(pause.lasts());
        }
        pause.end();
        assert!(!pause.lasts());
        assert_eq!(pause.next, shortest);
    }
}
