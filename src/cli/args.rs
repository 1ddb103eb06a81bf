//! Arguments that several verbs have: `--json`, a model, times, `--follow`, and `-` for standard input.

use crate::app::context::{Context, arm_failpoints, lengthen_deadlines};
use crate::app::{event_loop::block_on, output::exit_after};
use crate::error::{Exit, Failure, OrFail};
use crate::os::{Clock, SystemClock};
use crate::settings::environment::Environment;
use crate::settings::{Flags, model::model_forms};
use crate::ui::style::ColorChoice;
use crate::wire::WallTime;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, Zoned};
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

/// No arguments.
#[derive(Debug, clap::Args)]
pub(super) struct None {}

/// The place of the team, and the colours of the output.
#[derive(Debug, clap::Args)]
pub(super) struct PlaceArgs {
    /// The team folder (default: `TEAM_DIR`, else .team here or in the nearest parent, else ./.team)
    #[arg(long, global = true, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Run as if started in this folder
    #[arg(short = 'C', global = true, value_name = "DIR")]
    chdir: Option<PathBuf>,
    /// Use colours always, never, or if the output is a terminal
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    color: ColorChoice,
}

impl PlaceArgs {
    /// Returns the context in which a command of this agent runs.
    pub(super) fn context(self, agent: &str, environment: Environment) -> Result<Context, Failure> {
        arm_failpoints(agent, &environment)?;
        lengthen_deadlines(&environment);
        let Self { dir, chdir, color } = self;
        Context::new(chdir.as_deref(), dir.as_deref(), color, environment)
    }
}

/// The format of what a command prints.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Json {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The model and the permission mode of an agent.
#[derive(Debug, clap::Args)]
pub(super) struct ModelArgs {
    #[arg(long, value_name = "MODEL", help = format!("PROVIDER/NAME: {}", model_forms()))]
    model: Option<String>,
    /// Permission mode: plan, default, `accept_edits` or bypass
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
}

impl ModelArgs {
    pub(super) fn is_given(&self) -> bool {
        self.model.is_some() || self.mode.is_some()
    }

    pub(super) fn flags(&self) -> Flags {
        Flags::of([("--model", self.model.as_deref()), ("--mode", self.mode.as_deref())])
    }
}

/// Reads what an argument `-` stands for from standard input.
pub(super) fn read_stdin(what: &str) -> Result<String, Failure> {
    let hint = "pipe UTF-8 text into the command";
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.or_exit(Exit::Usage, format!("{what} cannot be read"), hint)?;
    Ok(text)
}

/// Calls `print_new` once, and if asked again at intervals. `print_new` returns `false` when stdout
/// has no reader any more, which is the orderly end of following.
pub(super) fn follow(
    is_asked: bool,
    interval: Duration,
    mut print_new: impl FnMut() -> Result<bool, Failure>,
) -> Result<Exit, Failure> {
    let printed = print_new()?;
    if !is_asked || !printed {
        return Ok(exit_after(printed));
    }
    block_on(async {
        while print_new()? {
            tokio::time::sleep(interval).await;
        }
        Ok(Exit::Ok)
    })?
}

/// Understands a time as typed: `90s`, `10m`, `2h`, `3d` ago; a time of day; a date, with or without a
/// time; RFC 3339; seconds since 1970.
pub(super) fn since(text: &str) -> Result<WallTime, String> {
    read(text.trim(), SystemClock.now()).ok_or_else(|| {
        "give how long ago (90s, 10m, 2h, 3d) or when (14:30, 2026-01-31, 2026-01-31T14:30, seconds \
         since 1970)"
            .into()
    })
}

/// Units with their seconds; only a time ago is given in days.
const UNITS: [(&str, f64); 4] = [("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// Reads a number with one of the first `units` units.
fn seconds(text: &str, units: usize) -> Option<f64> {
    let with = |(unit, seconds): &(&str, f64)| Some(amount(text.strip_suffix(unit)?)? * seconds);
    UNITS.iter().take(units).find_map(with)
}

fn read(text: &str, now: WallTime) -> Option<WallTime> {
    if let Some(ago) = seconds(text, UNITS.len()) {
        return Some(WallTime::from_secs(now.as_secs() - ago));
    }
    let instant = || text.parse::<Instant>().ok().or_else(|| local(text, now)).map(wall);
    amount(text).map(WallTime::from_secs).or_else(instant)
}

fn wall(instant: Instant) -> WallTime {
    WallTime::from_secs(instant.as_duration().as_secs_f64())
}

fn amount(text: &str) -> Option<f64> {
    text.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0)
}

/// A time in the time zone of this machine.
fn local(text: &str, now: WallTime) -> Option<Instant> {
    let today = || -> Option<Zoned> {
        let now = Duration::try_from_secs_f64(now.as_secs()).ok()?;
        let now = Instant::from_second(i64::try_from(now.as_secs()).ok()?).ok()?;
        Some(now.to_zoned(TimeZone::system()))
    };
    let moment = match text.parse::<Time>() {
        Ok(time) if !text.contains('-') => today()?.date().to_datetime(time),
        Ok(_) | Err(_) => match text.parse::<DateTime>() {
            Ok(moment) => moment,
            Err(_) => text.parse::<Date>().ok()?.to_datetime(Time::midnight()),
        },
    };
    Some(moment.to_zoned(TimeZone::system()).ok()?.timestamp())
}

/// Reads seconds, or a number with `s`, `m` or `h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    seconds(text, 3)
        .or_else(|| amount(text))
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give seconds, or a number with s, m or h, such as 90, 90s, 10m".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_times_are_parsed() {
        let now = 1_763_690_000.5;
        for (text, wanted) in [
            ("10s", now - 10.0),
            ("1.5h", now - 5400.0),
            ("2d", now - 172_800.0),
            ("1763690000", 1_763_690_000.0),
            ("2025-11-21T01:53:20Z", 1_763_690_000.0),
            ("2025-11-21T02:53:20.25+01:00", 1_763_690_000.25),
        ] {
            assert_eq!(read(text, now.into()), Some(wanted.into()), "{text}");
        }
        for text in ["", "m", "-5m", "nan", "inf", "yesterday", "1e999d", "25:00"] {
            assert_eq!(read(text, now.into()), None, "{text}");
        }
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "-1", "0", "1d", "nan", "inf", "1e999"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_of_day_is_todays_and_a_date_begins_at_midnight() {
        let now = SystemClock.now();
        let at = |text: &str| read(text, now).unwrap();
        let day = at("23:59:59").since(at("00:00:00"));
        assert!(day.abs_diff(Duration::from_secs(86_399)) < Duration::from_secs(7201));
        assert!(at("00:00") <= now && now < at("00:00") + Duration::from_secs(90_000));
        assert_eq!(read("2025-11-21", now), read("2025-11-21T00:00", now));
    }
}
