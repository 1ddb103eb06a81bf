//! One run of the score card: its length, its seed, and how long a figure may repeat itself.

use crate::rng::Rng;
use std::time::{Duration, Instant};

/// How long everything may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// Part of `cargo test`.
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
    /// How long a figure lasts, or goes on repeating itself, that can say how far it came.
    pub(crate) limit: Option<Duration>,
}

impl Run {
    /// What belongs to the length of this run.
    pub(crate) fn of<T>(self, short: T, ci: T, full: T) -> T {
        match self.length {
            Length::Short => short,
            Length::Ci => ci,
            Length::Full => full,
        }
    }

    /// When a figure that begins now has repeated itself for long enough.
    pub(crate) fn until(self) -> Option<Instant> {
        self.limit.map(|limit| Instant::now() + limit)
    }

    /// Random numbers of the run's seed, others for each purpose.
    pub(crate) fn rng(self, purpose: u64) -> Rng {
        Rng::new(self.seed.wrapping_add(purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}
