//! The silence of an agent that has a prompt.

use std::time::{Duration, Instant};

/// The checks in a row without a sign of an agent before it counts as silent: what it sent while this process was stopped
/// is read between two of them.
const CHECKS: u32 = 2;

#[derive(Debug)]
pub(super) struct Silence {
    last_sign: Instant,
    /// The checks since then that found the silence too long.
    checks: u32,
}

impl Silence {
    pub(super) fn new() -> Self {
        Self { last_sign: Instant::now(), checks: 0 }
    }

    pub(super) fn note_sign(&mut self) {
        *self = Self::new();
    }

    /// Returns the time since the last sign, once that is longer than the limit at two checks in a row.
    pub(super) fn check(&mut self, limit: Option<Duration>) -> Option<Duration> {
        let silence = self.last_sign.elapsed();
        if limit.is_none_or(|limit| silence < limit) {
            self.checks = 0;
            return None;
        }
        self.checks = self.checks.saturating_add(1);
        (self.checks >= CHECKS).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_counts_at_the_second_check_and_a_sign_ends_it() {
        let mut silence = Silence::new();
        let limit = Some(Duration::ZERO);
        assert!(silence.check(limit).is_none() && silence.check(limit).is_some());
        assert!(silence.check(None).is_none() && silence.check(limit).is_none());
        silence.note_sign();
        assert!(silence.check(limit).is_none() && silence.check(limit).is_some());
        silence.note_sign();
        let long = Some(Duration::from_secs(9999));
        assert!(silence.check(long).is_none() && silence.check(long).is_none());
    }
}
