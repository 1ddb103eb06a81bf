//! Decides whether and when a failed call is retried. Pure: the failure, counts and a random number go in, a
//! decision comes out.

use crate::wire::WallTime;
use std::cell::Cell;
use std::time::Duration;

/// The limits of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The number of attempts, including the first.
    pub tries: u32,
    /// The latest start of an attempt, counted from the first one.
    pub within: Duration,
    /// The wait after the first failure; each further failure doubles it.
    pub first: Duration,
    /// The longest wait that the client chooses itself.
    pub longest: Duration,
    /// The longest wait after an overload error (529).
    pub longest_overloaded: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries: 10,
            within: Duration::from_secs(600),
            first: Duration::from_millis(500),
            longest: Duration::from_secs(8),
            longest_overloaded: Duration::from_secs(60),
        }
    }
}

/// The failure of an attempt, as the retry policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFailure {
    /// The connection failed, or the stream was cut, malformed or silent.
    Broken,
    /// The endpoint answered with an error.
    Status {
        /// The HTTP status, or the one that the error type stands for.
        status: u16,
        /// The header `x-should-retry`, which wins over everything else.
        should_retry: Option<bool>,
        /// The wait of `retry-after-ms` or `retry-after`.
        retry_after: Option<Duration>,
    },
}

/// The decision about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// Retry after this wait.
    Retry(Duration),
    /// A retry would not help.
    Final,
    /// A retry might help, but the limits are reached.
    Exhausted,
}

impl RetryPolicy {
    /// Decides about a failure after `tries` attempts and `elapsed` time; `draw` is a random number from 0 to 1.
    pub fn judge(
        &self,
        failure: AttemptFailure,
        tries: u32,
        elapsed: Duration,
        draw: f64,
    ) -> RetryDecision {
        if !is_retryable(failure) {
            return RetryDecision::Final;
        }
        let wait = match failure {
            AttemptFailure::Status { retry_after: Some(asked), .. } => asked + stagger(asked, draw),
            AttemptFailure::Status { status: 529, .. } => {
                self.doubled(tries, self.longest_overloaded, draw)
            }
            AttemptFailure::Status { .. } | AttemptFailure::Broken => {
                self.doubled(tries, self.longest, draw)
            }
        };
        if tries >= self.tries || elapsed.saturating_add(wait) > self.within {
            return RetryDecision::Exhausted;
        }
        RetryDecision::Retry(wait)
    }

    fn doubled(&self, tries: u32, longest: Duration, draw: f64) -> Duration {
        let factor = 2_u32.saturating_pow(tries.saturating_sub(1));
        self.first.saturating_mul(factor).min(longest).mul_f64(1.0 - draw / 4.0)
    }
}

fn is_retryable(failure: AttemptFailure) -> bool {
    match failure {
        AttemptFailure::Broken => true,
        AttemptFailure::Status { should_retry: Some(decided), .. } => decided,
        // A 429 without retry-after is a spend cap, which no wait lifts.
        AttemptFailure::Status { status: 429, retry_after, .. } => retry_after.is_some(),
        AttemptFailure::Status { status, .. } => matches!(status, 408 | 409 | 500..),
    }
}

/// Returns the random part of a shared wait, so that the callers do not retry in the same instant.
pub fn stagger(wait: Duration, draw: f64) -> Duration {
    (wait / 4).min(Duration::from_secs(1)).mul_f64(draw)
}

/// Parses the headers `retry-after-ms` and `retry-after`. An unreadable value counts as one second, since the header says that waiting helps.
pub fn retry_after(millis: Option<&str>, after: Option<&str>, now: WallTime) -> Option<Duration> {
    let seconds = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    if let Some(millis) = millis.and_then(seconds) {
        return Some(lasting(millis / 1e3));
    }
    let after = after?;
    let until = || jiff::fmt::rfc2822::parse(after.trim()).ok().map(|date| date.timestamp());
    let asked = seconds(after)
        .or_else(|| until().map(|date| date.as_duration().as_secs_f64() - now.as_secs()));
    Some(lasting(asked.unwrap_or(1.0)))
}

/// Converts a foreign number to a duration between zero and about a year.
fn lasting(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 3.2e7))
}

/// A back-off that several callers of one endpoint share.
pub trait Backoff: std::fmt::Debug {
    /// Returns the remaining wait of all callers.
    fn pending(&self) -> Duration;

    /// Records that the endpoint asked this caller to wait (429, 529).
    fn hold(&self, wait: Duration);
}

/// The back-off of a single caller.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSharedBackoff;

impl Backoff for NoSharedBackoff {
    fn pending(&self) -> Duration {
        Duration::ZERO
    }

    fn hold(&self, _wait: Duration) {}
}

/// A deterministic source of jitter.
#[derive(Debug, Clone)]
pub struct Jitter(Cell<u64>);

impl Jitter {
    /// Creates a source from a seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// Returns the next number, from 0 to below 1 (splitmix64).
    pub fn draw(&self) -> f64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let top = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or_default();
        f64::from(top) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: Duration = Duration::ZERO;

    fn status(status: u16) -> AttemptFailure {
        AttemptFailure::Status { status, should_retry: None, retry_after: None }
    }

    #[test]
    fn statuses_follow_the_table() {
        let policy = RetryPolicy::default();
        for code in [408, 409, 500, 502, 503, 504, 529] {
            let verdict = policy.judge(status(code), 1, ZERO, 0.0);
            assert_eq!(verdict, RetryDecision::Retry(Duration::from_millis(500)), "{code}");
        }
        for code in [301, 400, 401, 402, 403, 404, 413, 418, 422, 429] {
            assert_eq!(policy.judge(status(code), 1, ZERO, 0.0), RetryDecision::Final, "{code}");
        }
    }

    #[test]
    fn the_header_should_retry_wins() {
        let with = |status, decided| AttemptFailure::Status {
            status,
            should_retry: Some(decided),
            retry_after: None,
        };
        let policy = RetryPolicy::default();
        assert!(matches!(policy.judge(with(400, true), 1, ZERO, 0.0), RetryDecision::Retry(_)));
        assert!(matches!(policy.judge(with(429, true), 1, ZERO, 0.0), RetryDecision::Retry(_)));
        assert_eq!(policy.judge(with(529, false), 1, ZERO, 0.0), RetryDecision::Final);
    }

    #[test]
    fn waits_double_to_their_cap_and_jitter_shortens_them() {
        let policy = RetryPolicy { tries: 20, ..RetryPolicy::default() };
        let waits = |failure, draw| -> Vec<f64> {
            let judge = |tries| match policy.judge(failure, tries, ZERO, draw) {
                RetryDecision::Retry(wait) => wait.as_secs_f64(),
                RetryDecision::Final | RetryDecision::Exhausted => {
                    panic!("no retry after {tries} tries")
                }
            };
            (1..=9).map(judge).collect()
        };
        assert_eq!(waits(status(500), 0.0), [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0]);
        assert_eq!(waits(AttemptFailure::Broken, 1.0)[..3], [0.375, 0.75, 1.5]);
        assert_eq!(waits(status(529), 0.0)[5..], [16.0, 32.0, 60.0, 60.0]);
    }

    #[test]
    fn retries_end_by_count_and_by_time() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.judge(status(500), 10, ZERO, 0.0), RetryDecision::Exhausted);
        let late = Duration::from_millis(599_800);
        assert_eq!(policy.judge(AttemptFailure::Broken, 1, late, 0.0), RetryDecision::Exhausted);
        let asked = Some(Duration::from_secs(3600));
        let long = AttemptFailure::Status { status: 429, should_retry: None, retry_after: asked };
        assert_eq!(policy.judge(long, 1, ZERO, 0.0), RetryDecision::Exhausted);
    }

    #[test]
    fn a_requested_wait_is_kept_and_staggered() {
        let policy = RetryPolicy::default();
        let asked = Some(Duration::from_secs(20));
        let failure =
            AttemptFailure::Status { status: 429, should_retry: None, retry_after: asked };
        assert_eq!(
            policy.judge(failure, 5, ZERO, 0.0),
            RetryDecision::Retry(Duration::from_secs(20))
        );
        assert_eq!(
            policy.judge(failure, 5, ZERO, 0.5),
            RetryDecision::Retry(Duration::from_millis(20_500))
        );
    }

    #[test]
    fn retry_after_is_parsed_in_all_forms() {
        let now = 1_445_412_480.0; // Wed, 21 Oct 2015 07:28:00 GMT
        let table = [
            (None, None, None),
            (Some("1500"), Some("9"), Some(1.5)),
            (Some("soon"), Some("9"), Some(9.0)),
            (None, Some(" 0.25 "), Some(0.25)),
            (None, Some("-3"), Some(0.0)),
            (None, Some("Wed, 21 Oct 2015 07:28:30 GMT"), Some(30.0)),
            (None, Some("Wed, 21 Oct 2015 07:00:00 GMT"), Some(0.0)),
            (None, Some("later"), Some(1.0)),
            (None, Some("1e300"), Some(3.2e7)),
        ];
        for (millis, after, expected) in table {
            let expected = expected.map(Duration::from_secs_f64);
            assert_eq!(retry_after(millis, after, now.into()), expected, "{millis:?} {after:?}");
        }
    }

    #[test]
    fn jitter_is_uniform_and_repeatable() {
        let draws = |seed| {
            (0..1000).map(|_| 0.0).scan(Jitter::seeded(seed), |jitter, _: f64| Some(jitter.draw()))
        };
        let first: Vec<f64> = draws(1).collect();
        assert_eq!(first, draws(1).collect::<Vec<_>>());
        assert_ne!(first, draws(2).collect::<Vec<_>>());
        assert!(first.iter().all(|draw| (0.0..1.0).contains(draw)));
        let mean = first.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
