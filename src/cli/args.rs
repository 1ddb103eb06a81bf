//! Arguments that several verbs have: `--json`, a model, times, `--follow`, and `-` for standard input.

use crate::app::context::{Context, arm_failpoints, lengthen_deadlines};
use crate::app::{event_loop::block_on, output::exit_after};
use crate::error::{Exit, Failure, OrFail};
use crate::llm::replay;
use crate::os::{Clock, SystemClock, time_text};
use crate::settings::environment::Environment;
use crate::settings::{Flags, model::model_forms};
use crate::ui::style::ColorChoice;
use crate::wire::WallTime;
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
    /// Models that go on while the model is overloaded or gone, with commas between them
    #[arg(long, value_name = "MODELS")]
    fallback_models: Option<String>,
    /// Permission mode: plan, default, `accept_edits` or bypass
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
}

impl ModelArgs {
    pub(super) fn is_given(&self) -> bool {
        self.model.is_some() || self.fallback_models.is_some() || self.mode.is_some()
    }

    /// Whether the model is a record, which has the prompts as well.
    pub(super) fn plays_record(&self) -> bool {
        self.model.as_deref() == Some(replay::SPEC.name)
    }

    pub(super) fn flags(&self) -> Flags {
        Flags::of([
            ("--model", self.model.as_deref()),
            ("--fallback-models", self.fallback_models.as_deref()),
            ("--mode", self.mode.as_deref()),
        ])
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
    time_text::past_time(text.trim(), SystemClock.now()).ok_or_else(|| {
        "give how long ago (90s, 10m, 2h, 3d) or when (14:30, 2026-01-31, 2026-01-31T14:30, seconds \
         since 1970)"
            .into()
    })
}

/// Reads seconds, or a number with `s`, `m` or `h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    time_text::plain_duration(text)
        .ok_or_else(|| "give seconds, or a number with s, m or h, such as 90, 90s, 10m".into())
}
