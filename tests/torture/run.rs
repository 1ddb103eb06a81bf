//! One run of the score card: its length, its seed, and the time limit of figures that repeat themselves.

use crate::rng::Rng;
use std::time::{Duration, Instant};

/// The length of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// Part of `scripts/check --all`.
    Short,
    /// About five minutes.
    Ci,
    /// Hours.
    Full,
}

impl Length {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Ci => "ci",
            Self::Full => "full",
        }
    }
}

/// One run of the score card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) length: Length,
    pub(crate) seed: u64,
    /// The time limit of figures that repeat themselves.
    pub(crate) limit: Option<Duration>,
}

impl Run {
    /// Selects the value for the length of this run.
    pub(crate) fn of<T>(self, short: T, ci: T, full: T) -> T {
        match self.length {
            Length::Short => short,
            Length::Ci => ci,
            Length::Full => full,
        }
    }

    /// Whether the run has the whole length that a target asks for: the full form, or an hour of a figure that
    /// repeats itself.
    pub(crate) fn is_full(self) -> bool {
        const HOUR: Duration = Duration::from_secs(3600);
        match self.limit {
            None => self.length == Length::Full,
            Some(limit) => limit >= HOUR,
        }
    }

    /// The deadline of a figure that begins now.
    pub(crate) fn until(self) -> Option<Instant> {
        self.limit.map(|limit| Instant::now() + limit)
    }

    /// Returns a generator that depends on the run's seed and the purpose.
    pub(crate) fn rng(self, purpose: u64) -> Rng {
        Rng::new(self.seed.wrapping_add(purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}
