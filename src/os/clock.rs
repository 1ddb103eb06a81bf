//! The clocks of the machine. Wall-clock time is for people and files; every deadline uses a monotonic clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seconds on the machine's monotonic clock: the same for all processes, whatever the time of day does.
pub(crate) fn uptime() -> f64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map(|now| Duration::from(now).as_secs_f64()).unwrap_or_default()
}

/// Where time comes from. Deadlines use [`Clock::monotonic`]; wall-clock time is for people and files.
pub trait Clock {
    /// Seconds since 1970.
    fn now(&self) -> f64;

    /// A clock that never jumps.
    fn monotonic(&self) -> Instant;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock everybody else must use")]
    fn now(&self) -> f64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        // Microseconds: what a double can hold without noise in its printed form.
        (since.as_secs_f64() * 1e6).round() / 1e6
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}
