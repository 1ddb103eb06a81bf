//! The clocks of the machine: wall-clock time for people and files, monotonic time for deadlines.

use crate::wire::{MachineTime, WallTime};
use jiff::tz::TimeZone;
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Returns the time of the monotonic clock, which all processes share.
pub(crate) fn uptime() -> MachineTime {
    clock_time(ClockId::CLOCK_MONOTONIC)
}

/// Returns the time of [`uptime`] plus the time for which the machine was suspended.
pub(crate) fn uptime_with_sleep() -> MachineTime {
    clock_time(ClockId::CLOCK_BOOTTIME)
}

/// Returns the processor time of this thread, which does not depend on the load of the machine.
#[cfg(test)]
pub(crate) fn processor_time() -> MachineTime {
    clock_time(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_time(clock: ClockId) -> MachineTime {
    let now = clock_gettime(clock).map(|now| Duration::from(now).as_secs_f64());
    MachineTime::from_secs(now.unwrap_or_default())
}

/// Returns the local date and time of day.
pub(crate) fn local_time(at: WallTime) -> String {
    let text = formatted_time(at, local_zone(), "%Y-%m-%d %H:%M:%S");
    text.unwrap_or("an unknown time".into())
}

/// Returns the time zone of the machine.
pub(super) fn local_zone() -> TimeZone {
    TimeZone::system()
}

/// Formats a time in a zone; `None` for a time that no calendar holds.
pub(crate) fn formatted_time(at: WallTime, zone: TimeZone, format: &str) -> Option<String> {
    let nanoseconds = at.as_secs() * 1e9;
    #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
    let whole = nanoseconds.is_finite().then_some(nanoseconds as i128)?;
    let instant = jiff::Timestamp::from_nanosecond(whole).ok()?;
    Some(instant.to_zoned(zone).strftime(format).to_string())
}

/// A source of time. Deadlines use [`Clock::monotonic`].
pub trait Clock {
    /// Returns the time of the wall clock.
    fn now(&self) -> WallTime;

    /// Returns the time of the monotonic clock, which is never set.
    fn monotonic(&self) -> Instant;
}

/// The clocks of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that all other code asks")]
    fn now(&self) -> WallTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        // Rounded to microseconds, which an `f64` prints without noise.
        WallTime::from_secs((since.as_secs_f64() * 1e6).round() / 1e6)
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}
