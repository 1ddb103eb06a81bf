//! Reproducible pseudo-random numbers.

use std::time::Duration;

/// A xorshift generator.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// Returns the next number, never 0.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below the limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns an index into a list of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap())).unwrap()
    }

    /// Sleeps for at most this time.
    pub(crate) fn pause(&mut self, limit: Duration) {
        let micros = self.below(u64::try_from(limit.as_micros()).unwrap().max(1));
        std::thread::park_timeout(Duration::from_micros(micros));
    }
}
