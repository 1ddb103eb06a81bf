//! Reads times and durations as people and models write them, in the time zone of the machine.

use super::clock::local_zone;
use crate::wire::WallTime;
use jiff::civil::{Date, DateTime, Time};
use jiff::{Timestamp as Instant, Zoned};
use std::time::Duration;

/// Units with their seconds; only times ago and reminders are given in days.
const UNITS: [(&str, f64); 4] = [("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// Reads a number with `s`, `m`, `h` or `d`.
fn days_or_less(text: &str) -> Option<f64> {
    seconds(text, UNITS.len())
}

/// Reads a number with one of the first `units` units.
fn seconds(text: &str, units: usize) -> Option<f64> {
    let with = |(unit, seconds): &(&str, f64)| Some(amount(text.strip_suffix(unit)?)? * seconds);
    UNITS.iter().take(units).find_map(with)
}

fn amount(text: &str) -> Option<f64> {
    text.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0)
}

/// Reads a time as one says since when: `90s`, `10m`, `2h`, `3d` ago; a time of day, which is today's; a date, with or
/// without a time; RFC 3339; seconds since 1970.
pub(crate) fn past_time(text: &str, now: WallTime) -> Option<WallTime> {
    if let Some(ago) = days_or_less(text) {
        return Some(WallTime::from_secs(now.as_secs() - ago));
    }
    let today = || {
        let time = time_of_day(text)?;
        wall(&today(now)?.date().to_datetime(time))
    };
    let instant = || text.parse::<Instant>().ok().map(wall_of);
    amount(text)
        .map(WallTime::from_secs)
        .or_else(instant)
        .or_else(today)
        .or_else(|| local_date(text))
}

/// Reads a time as one says until when: a time of day, of which the next one is meant; a date, with or without a time;
/// RFC 3339. The time of a date may have passed.
pub(crate) fn coming_time(text: &str, now: WallTime) -> Option<WallTime> {
    if let Ok(instant) = text.parse::<Instant>() {
        return Some(wall_of(instant));
    }
    // The parser of times would read a bare number as an hour.
    let Some(time) = time_of_day(text).filter(|_| text.contains(':')) else {
        return local_date(text).filter(|_| text.contains('-'));
    };
    let today = today(now)?.date();
    let days = [today, today.tomorrow().ok()?];
    days.into_iter().filter_map(|day| wall(&day.to_datetime(time))).find(|at| *at > now)
}

/// Reads seconds, or a number with `s`, `m` or `h`.
pub(crate) fn plain_duration(text: &str) -> Option<Duration> {
    positive(seconds(text, 3).or_else(|| amount(text))?)
}

/// Reads a number with `s`, `m`, `h` or `d`.
pub(crate) fn duration_with_unit(text: &str) -> Option<Duration> {
    positive(days_or_less(text)?)
}

fn positive(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero())
}

fn wall_of(instant: Instant) -> WallTime {
    WallTime::from_secs(instant.as_duration().as_secs_f64())
}

/// Returns a moment in the time zone of this machine.
fn wall(moment: &DateTime) -> Option<WallTime> {
    Some(wall_of(moment.to_zoned(local_zone()).ok()?.timestamp()))
}

fn today(now: WallTime) -> Option<Zoned> {
    let now = Duration::try_from_secs_f64(now.as_secs()).ok()?;
    let now = Instant::from_second(i64::try_from(now.as_secs()).ok()?).ok()?;
    Some(now.to_zoned(local_zone()))
}

fn time_of_day(text: &str) -> Option<Time> {
    text.parse().ok().filter(|_| !text.contains('-'))
}

/// Reads a date, with or without a time, in the time zone of this machine.
fn local_date(text: &str) -> Option<WallTime> {
    let date = || Some(text.parse::<Date>().ok()?.to_datetime(Time::midnight()));
    wall(&text.parse::<DateTime>().ok().or_else(date)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::{Clock, SystemClock};

    #[test]
    fn times_ago_and_instants_are_read() {
        let now = 1_763_690_000.5;
        for (text, wanted) in [
            ("10s", now - 10.0),
            ("1.5h", now - 5400.0),
            ("2d", now - 172_800.0),
            ("1763690000", 1_763_690_000.0),
            ("2025-11-21T01:53:20Z", 1_763_690_000.0),
            ("2025-11-21T02:53:20.25+01:00", 1_763_690_000.25),
        ] {
            assert_eq!(past_time(text, now.into()), Some(wanted.into()), "{text}");
        }
        for text in ["", "m", "-5m", "nan", "inf", "yesterday", "1e999d", "25:00"] {
            assert_eq!(past_time(text, now.into()), None, "{text}");
        }
    }

    #[test]
    fn a_time_of_day_is_todays_and_a_date_begins_at_midnight() {
        let now = SystemClock.now();
        let at = |text: &str| past_time(text, now).unwrap();
        let day = at("23:59:59").since(at("00:00:00"));
        assert!(day.abs_diff(Duration::from_secs(86_399)) < Duration::from_secs(7201));
        assert!(at("00:00") <= now && now < at("00:00") + Duration::from_secs(90_000));
        assert_eq!(past_time("2025-11-21", now), past_time("2025-11-21T00:00", now));
    }

    #[test]
    fn a_time_to_come_is_the_next_one_of_that_time_of_day() {
        let noon = past_time("2025-11-21T12:00", WallTime::default()).unwrap();
        let hours = |text: &str| coming_time(text, noon).unwrap().since(noon).as_secs() / 3600;
        assert_eq!((hours("14:30"), hours("12:00"), hours("11:00")), (2, 24, 23));
        assert_eq!(coming_time("2025-11-21 13:00", noon), Some(noon + Duration::from_secs(3600)));
        let rfc = coming_time("2025-11-21T01:53:20Z", noon);
        assert_eq!(rfc, Some(1_763_690_000.0.into()), "the past is the caller's affair");
        for text in ["", "14", "1430", "25:00", "14:30 tomorrow", "1763690000", "2025-13-01"] {
            assert_eq!(coming_time(text, noon), None, "{text}");
        }
    }

    #[test]
    fn durations_are_positive() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(plain_duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "-1", "0", "1d", "nan", "inf", "1e999"] {
            assert_eq!(plain_duration(text), None, "{text}");
        }
        assert_eq!(duration_with_unit("1d"), Some(Duration::from_secs(86_400)));
        for text in ["90", "0s", "-1m", "1w", ""] {
            assert_eq!(duration_with_unit(text), None, "{text}");
        }
    }
}
