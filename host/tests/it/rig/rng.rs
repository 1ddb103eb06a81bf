//! Reproducible pseudo-random numbers.

use std::time::Duration;

/// A splitmix64 generator. Unlike those of a xorshift generator, its first numbers differ for neighbouring seeds.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below the limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns an index into a list of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap())).unwrap()
    }

    /// Returns a time of at least `shortest` and at most `longest`, in whole milliseconds.
    pub(crate) fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let width = longest.saturating_sub(shortest).as_millis();
        shortest + Duration::from_millis(self.below(u64::try_from(width).unwrap() + 1))
    }
}

/// The first numbers of the reference implementation of splitmix64 for the seed 1234567.
#[test]
fn the_numbers_are_those_of_splitmix64() {
    let mut rng = Rng::new(1_234_567);
    let expected =
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
    assert_eq!([rng.next(), rng.next(), rng.next()], expected);
}
