//! Decides when a failed call is retried. Pure: it computes a wait from the error, counts and a random number.

use super::attempt_error::AttemptError::{self, Reported};
use crate::os::local_time;
use crate::wire::{WallTime, limits};
use std::cell::Cell;
use std::time::Duration;

/// The limits of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The number of attempts, including the first.
    pub tries: u32,
    /// The longest time from the start of the first attempt to the start of the last one.
    pub within: Duration,
    /// The wait after the first failure; each further failure doubles it.
    pub first: Duration,
    /// The longest wait that the client chooses itself.
    pub longest: Duration,
    /// The longest wait after an overload error (529, or 503 of Google's API).
    pub longest_overloaded: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries: limits::RETRY_TRIES,
            within: limits::RETRY_WITHIN,
            first: limits::RETRY_FIRST_PAUSE,
            longest: limits::RETRY_LONGEST_PAUSE,
            longest_overloaded: limits::RETRY_LONGEST_OVERLOADED,
        }
    }
}

impl RetryPolicy {
    /// Returns the limits for a model after which another one goes on: a person does not wait long for the first one.
    pub fn before_fallback() -> Self {
        let (tries, within) = (limits::FALLBACK_TRIES, limits::FALLBACK_WITHIN);
        Self { tries, within, ..Self::default() }
    }

    /// Returns the wait before the next attempt, after `tries` attempts and `elapsed` time; `None` if a limit is
    /// reached. `draw` is a random number from 0 to 1.
    pub(super) fn wait(
        &self,
        error: &AttemptError,
        tries: u32,
        elapsed: Duration,
        draw: f64,
    ) -> Option<Duration> {
        let wait = match error.asked_wait() {
            Some(asked) => asked + stagger(asked, draw),
            None => self.pause(error, tries).mul_f64(1.0 - draw / 4.0),
        };
        let is_allowed = tries < self.tries && elapsed.saturating_add(wait) <= self.within;
        is_allowed.then_some(wait)
    }

    /// Describes why the call is not tried again.
    pub(super) fn end_in_words(
        &self,
        error: &AttemptError,
        tries: u32,
        elapsed: Duration,
        now: WallTime,
    ) -> String {
        match error.asked_wait().filter(|_| tries < self.tries) {
            Some(asked) => {
                let (asked, within) = (wait_in_words(asked, now), self.within.as_secs());
                format!("it asks to wait {asked}, but a call is retried for {within} s at most")
            }
            None => format!("gave up after {tries} attempts in {} s", elapsed.as_secs()),
        }
    }

    /// Returns the longest pause after `tries` attempts if the endpoint asks for none.
    fn pause(&self, error: &AttemptError, tries: u32) -> Duration {
        let is_overloaded = matches!(error, Reported(report) if report.is_overloaded());
        let longest = if is_overloaded { self.longest_overloaded } else { self.longest };
        let factor = 2_u32.saturating_pow(tries.saturating_sub(1));
        self.first.saturating_mul(factor).min(longest)
    }

    /// Returns the longest time for which the call is tried from now on: the next attempt starts after `wait`, and
    /// all further ones fail like those so far, which took `elapsed` together.
    pub(super) fn left(
        &self,
        error: &AttemptError,
        tries: u32,
        elapsed: Duration,
        wait: Duration,
    ) -> Duration {
        let pauses = |until: u32| -> Duration { (1..until).map(|at| self.pause(error, at)).sum() };
        let attempts = elapsed.saturating_sub(pauses(tries)) / tries.max(1);
        let further = pauses(self.tries).saturating_sub(pauses(tries.saturating_add(1)));
        let left = wait + further + attempts.saturating_mul(self.tries.saturating_sub(tries));
        left.min(self.within.saturating_sub(elapsed)).max(wait)
    }
}

/// Returns a wait that an endpoint asks for, with the local time of its end.
pub(super) fn wait_in_words(wait: Duration, now: WallTime) -> String {
    let until = local_time(now + wait);
    format!("for {} s, until {until}", wait.as_secs())
}

/// Returns the random part of a shared wait, so that the callers do not retry in the same instant.
pub(super) fn stagger(wait: Duration, draw: f64) -> Duration {
    (wait / 4).min(Duration::from_secs(1)).mul_f64(draw)
}

/// Parses the headers `retry-after-ms` and `retry-after`. An unreadable `retry-after` counts as one second, since
/// its presence means that waiting helps.
pub(super) fn retry_after(
    millis: Option<&str>,
    after: Option<&str>,
    now: WallTime,
) -> Option<Duration> {
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

/// Converts a number from a header to a duration between zero and about a year.
fn lasting(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 3.2e7))
}

/// A back-off that several callers of one endpoint share.
pub trait Backoff: std::fmt::Debug {
    /// Returns the remaining wait of all callers.
    fn pending(&self) -> Duration;

    /// Records that the endpoint asked this caller to wait (429), or has too much to do.
    fn hold(&self, wait: Duration);
}

/// A deterministic source of jitter.
#[derive(Debug, Clone)]
pub(super) struct Jitter(Cell<u64>);

impl Jitter {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// Returns the next number, from 0 to below 1 (splitmix64).
    pub(super) fn draw(&self) -> f64 {
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
    use super::super::attempt_error::ErrorReport;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn status(status: u16) -> AttemptError {
        AttemptError::Reported(ErrorReport { status, ..ErrorReport::default() })
    }

    fn limited(seconds: u64) -> AttemptError {
        let retry_after = Some(Duration::from_secs(seconds));
        AttemptError::Reported(ErrorReport { status: 429, retry_after, ..ErrorReport::default() })
    }

    #[test]
    fn waits_double_to_their_cap_and_jitter_shortens_them() {
        let policy = RetryPolicy { tries: 20, ..RetryPolicy::default() };
        let waits = |error: AttemptError, draw| -> Vec<f64> {
            let wait = |tries| policy.wait(&error, tries, Duration::ZERO, draw).unwrap();
            (1..=9).map(|tries| wait(tries).as_secs_f64()).collect()
        };
        assert_eq!(waits(status(500), 0.0), [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0]);
        assert_eq!(waits(AttemptError::Cut, 1.0)[..3], [0.375, 0.75, 1.5]);
        assert_eq!(waits(status(529), 0.0)[5..], [16.0, 32.0, 60.0, 60.0]);
        let kind = "UNAVAILABLE".to_owned();
        let busy = ErrorReport { status: 503, kind, ..ErrorReport::default() };
        assert_eq!(waits(AttemptError::Reported(busy), 0.0)[5..], [16.0, 32.0, 60.0, 60.0]);
    }

    #[test]
    fn retries_end_by_count_and_by_time() {
        for (error, tries, elapsed) in [
            (status(500), 10, Duration::ZERO),
            (AttemptError::Cut, 1, Duration::from_millis(599_800)),
            (limited(3600), 1, Duration::ZERO),
        ] {
            assert_eq!(RetryPolicy::default().wait(&error, tries, elapsed, 0.0), None, "{error}");
        }
    }

    #[test]
    fn the_time_that_is_left_contains_all_further_pauses_and_attempts() {
        let policy = RetryPolicy::default();
        let left = |error: &AttemptError, tries, elapsed: u64, wait: f64| {
            let (elapsed, wait) = (Duration::from_secs(elapsed), Duration::from_secs_f64(wait));
            policy.left(error, tries, elapsed, wait).as_millis()
        };
        let refused = AttemptError::Refused;
        assert_eq!(left(&refused, 1, 0, 0.5), 47_500);
        assert_eq!(left(&refused, 9, 39, 8.0), 8_000, "the last attempt is next");
        assert_eq!(left(&AttemptError::NoAnswer(SECOND), 1, 10, 0.5), 47_500 + 90_000);
        assert_eq!(left(&AttemptError::NoAnswer(SECOND), 1, 300, 0.5), 300_000);
        assert_eq!(left(&limited(30), 1, 0, 30.0), 30_000 + 47_000);
    }

    #[test]
    fn a_requested_wait_is_kept_and_staggered() {
        let wait = |draw| RetryPolicy::default().wait(&limited(20), 5, Duration::ZERO, draw);
        assert_eq!((wait(0.0), wait(0.5)), (Some(20 * SECOND), Some(20 * SECOND + SECOND / 2)));
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
        let draws = |seed| -> Vec<f64> {
            let jitter = Jitter::seeded(seed);
            (0..1000).map(|_| jitter.draw()).collect()
        };
        let first = draws(1);
        assert_eq!(first, draws(1));
        assert_ne!(first, draws(2));
        assert!(first.iter().all(|draw| (0.0..1.0).contains(draw)));
        let mean = first.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
