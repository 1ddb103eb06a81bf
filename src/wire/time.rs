//! The two kinds of time that processes exchange. They do not mix.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A time for people and files: seconds since 1970. The wall clock may be set at any time, in either direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(f64);

/// A time that orders events: seconds since boot, the same for all processes, never set; meaningless after a boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MachineTime(f64);

macro_rules! seconds {
    ($time:ident) => {
        impl $time {
            /// Returns the time at a number of seconds.
            pub const fn from_secs(seconds: f64) -> Self {
                Self(seconds)
            }

            /// Returns the number of seconds.
            pub const fn as_secs(self) -> f64 {
                self.0
            }

            /// Returns the time that passed since `earlier`; zero if `earlier` is later, or one is not a number.
            pub fn since(self, earlier: Self) -> Duration {
                Duration::try_from_secs_f64(self.0 - earlier.0).unwrap_or_default()
            }
        }

        impl From<f64> for $time {
            fn from(seconds: f64) -> Self {
                Self(seconds)
            }
        }

        impl fmt::Display for $time {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }

        impl Add<Duration> for $time {
            type Output = Self;
            fn add(self, later: Duration) -> Self {
                Self(self.0 + later.as_secs_f64())
            }
        }

        impl Sub<Duration> for $time {
            type Output = Self;
            fn sub(self, earlier: Duration) -> Self {
                Self(self.0 - earlier.as_secs_f64())
            }
        }
    };
}

seconds!(WallTime);
seconds!(MachineTime);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_bare_number_in_json() {
        let time: WallTime = serde_json::from_str("1763690000.125").unwrap();
        assert_eq!(time, WallTime::from_secs(1_763_690_000.125));
        assert_eq!(serde_json::to_string(&time).unwrap(), "1763690000.125");
        assert_eq!(serde_json::to_string(&MachineTime::from_secs(2.0)).unwrap(), "2.0");
        assert_eq!(time.to_string(), "1763690000.125");
    }

    #[test]
    fn the_time_that_passed_is_never_negative() {
        let [early, late] = [WallTime::from_secs(1.0), WallTime::from_secs(3.5)];
        assert_eq!(late.since(early), Duration::from_millis(2500));
        assert_eq!(early + late.since(early), late);
        assert_eq!(late - late.since(early), early);
        for earlier in [late, WallTime::from_secs(f64::NAN), WallTime::from_secs(f64::INFINITY)] {
            assert_eq!(early.since(earlier), Duration::ZERO);
        }
    }
}
