//! The command line as typed: clap structs, nothing validated against the team yet.

use super::since::since;
use crate::ui::headless_output::Format;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;

/// A team of LLM agents on your own computer, made of plain processes and plain files.
#[derive(Debug, Parser)]
#[command(name = "team", version, propagate_version = true, disable_help_subcommand = true)]
#[command(after_help = "Start with: team lead")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The team folder itself (default: `TEAM_DIR`, else the nearest .team upward, else ./.team)
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
    /// Run as if started in this folder
    #[arg(short = 'C', global = true, value_name = "DIR")]
    pub(crate) chdir: Option<PathBuf>,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = ColorWhen::Auto, value_name = "WHEN")]
    pub(crate) color: ColorWhen,
}

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the lead: the agent that talks to you and spawns teammates
    Lead(LeadArgs),
    /// Start one teammate in the foreground, joined to the team in this folder
    Teammate(TeammateArgs),
    /// Show the team: who lives, what each one does, unread mail, tokens
    #[command(visible_alias = "status")]
    Ls(Show),
    /// Send one message
    Send(SendArgs),
    /// Send the same message to every member and the lead
    Broadcast(BroadcastArgs),
    /// Show what waits in an inbox and what was taken in since you last looked
    Inbox(InboxArgs),
    /// Stop members, or the whole team; waits until the processes are gone
    Stop(StopArgs),
    /// The task list that the team shares
    Task(TaskArgs),
    /// Show what waits for a decision
    Requests(Show),
    /// Approve a request (`team requests` lists them)
    Approve(ApproveArgs),
    /// Deny a request
    Deny(DenyArgs),
    /// Let the settings of this folder run code and loosen permissions, as they stand now
    Trust(TrustArgs),
    /// Show the roles that agents can be given, and what is wrong with their files
    Roles(Show),
    /// Show what happened, merged by time
    Log(LogArgs),
    /// Show an agent's conversation
    Transcript(TranscriptArgs),
    /// Watch the team live, full-screen; `?` shows the keys
    Top,
    /// Show the team as a page in the browser of this computer, as it changes
    Web(WebArgs),
    /// Show a message's whole life: sent, stored, taken in, acted on, answered
    Trace(TraceArgs),
    /// Look for what is wrong, and say what to do about it
    Doctor(Show),
    /// Take away what a dead team left behind: locks, claims already taken in, ghosts
    Clean(CleanArgs),
    /// Follow an agent's conversation and write to it; leaving does it no harm
    Attach(AttachArgs),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write all of them
    Man(ManArgs),
    /// Who can be named, for the completions
    #[command(name = "__names", hide = true)]
    Names,
    /// Show every setting with where its value comes from
    Config(Show),
    /// Make a team folder here, with commented settings and roles
    Init(Show),
}

/// A command that only shows something.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `team lead`.
#[derive(Debug, Args)]
pub(crate) struct LeadArgs {
    /// What to begin with; with -p, `-` reads it from standard input
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// Go on with the last team: the lead and its teammates, each with its memory
    #[arg(long)]
    pub(crate) resume: bool,
    /// End the lead that runs here, then take its place
    #[arg(long)]
    pub(crate) takeover: bool,
    /// Headless: run until everybody is done, print the last text, stop the team
    #[arg(short = 'p', long = "print")]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// What a headless run prints
    #[arg(long, value_enum, default_value_t = Format::Text, requires = "print", value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Stop the team after this long: seconds, or 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<std::time::Duration>,
    /// Stop the team after this many turns of the lead
    #[arg(long, value_name = "N")]
    pub(crate) max_turns: Option<u64>,
    /// Stop the team when all members together have used this many tokens, in and out
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
}

/// The model and its leave to act.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// PROVIDER/NAME: anthropic/NAME, openai/NAME, local, rehearsal, or script:FILE
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Permission mode: plan, default, `accept_edits` or bypass
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
}

/// `team teammate`.
#[derive(Debug, Args)]
pub(crate) struct TeammateArgs {
    /// Its name
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) name: String,
    /// What it is for
    #[arg(long, default_value = "teammate")]
    pub(crate) role: String,
    /// What to begin with
    #[arg(long, value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// End after the first turn, once no mail waits
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The descriptor of the control socket, when a lead spawns this
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) control_fd: Option<i32>,
}

/// `team send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Who gets it: a member, lead or user (not with --jsonl when each line has its own `to`)
    #[arg(value_name = "TO", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,
    /// The text; `-` reads it from standard input
    #[arg(value_name = "TEXT", conflicts_with = "jsonl", allow_hyphen_values = true)]
    pub(crate) text: Option<String>,
    /// Who sends it
    #[arg(long, value_name = "NAME")]
    pub(crate) from: Option<String>,
    /// The type: `message`, `broadcast`, `result`, `task_assignment` or one of your own
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// A further field
    #[arg(long = "field", value_name = "KEY=VALUE")]
    pub(crate) fields: Vec<String>,
    /// One JSON object per line of standard input, one id printed per line
    #[arg(long)]
    pub(crate) jsonl: bool,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team broadcast`.
#[derive(Debug, Args)]
pub(crate) struct BroadcastArgs {
    /// The text; `-` reads it from standard input
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: String,
    /// Who sends it
    #[arg(long, value_name = "NAME")]
    pub(crate) from: Option<String>,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team inbox`.
#[derive(Debug, Args)]
pub(crate) struct InboxArgs {
    /// Whose inbox
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) name: String,
    /// Take the mail, as its owner; refused while somebody holds that name
    #[arg(long, conflicts_with = "follow")]
    pub(crate) drain: bool,
    /// Show every message once, as it arrives
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team stop`.
#[derive(Debug, Args)]
#[command(override_usage = "team stop [OPTIONS] <NAME>...\n       team stop [OPTIONS] --all")]
pub(crate) struct StopArgs {
    /// Whom to stop
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub(crate) names: Vec<String>,
    /// Everybody, members started by hand too, the lead last
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// Skip the polite request: SIGTERM at once
    #[arg(long)]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team task`.
#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    #[command(subcommand)]
    pub(crate) command: TaskCommand,
}

/// What can be done with the task list.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Put a task on the list; prints its id
    Add(AddTask),
    /// Show all tasks
    Ls(Show),
    /// Show one task with its history
    Show(OneTask),
    /// Take a task
    Claim(ClaimTask),
    /// Say that a task is done
    Done(OneTask),
    /// Say that a task could not be done
    Fail(OneTask),
    /// Call a task off
    Cancel(OneTask),
}

/// `team task add`.
#[derive(Debug, Args)]
pub(crate) struct AddTask {
    /// What is to be done, in one line
    #[arg(value_name = "SUBJECT")]
    pub(crate) subject: Option<String>,
    /// The details
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) description: Option<String>,
    /// Tasks that must be completed first
    #[arg(long, value_name = "ID", num_args = 1.., value_delimiter = ',')]
    pub(crate) after: Vec<String>,
    /// Whose it is; without it, whoever is free takes it
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Only teammates with this role take it by themselves
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// A verb for one task.
#[derive(Debug, Args)]
pub(crate) struct OneTask {
    /// Which
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team task claim`.
#[derive(Debug, Args)]
pub(crate) struct ClaimTask {
    #[command(flatten)]
    pub(crate) one: OneTask,
    /// Who takes it
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) who: Option<String>,
}

/// `team trust`.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Trust this folder no more
    #[arg(long)]
    pub(crate) revoke: bool,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team approve`.
#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// The request's id
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Told to whoever asks
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// From now on, without asking
    #[arg(long)]
    pub(crate) always: bool,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team deny`.
#[derive(Debug, Args)]
pub(crate) struct DenyArgs {
    /// The request's id
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Told to whoever asks
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team log`.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Whose log (default: everybody's)
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Go on as it grows
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// Only from then on: 10m, 2h, 3d (ago), 14:30, 2026-01-31T14:30, RFC 3339, seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<crate::wire::WallTime>,
    /// Only log lines of this level and above
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) level: Option<LogLevel>,
    /// Mail of this type as it was taken in, instead of log lines; `mail` for all mail, `log` for log lines
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub(crate) types: Vec<String>,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// How important a log line is, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum LogLevel {
    /// Something failed.
    Error,
    /// Something should not be so.
    Warn,
    /// What happens.
    Info,
    /// How it happens.
    Debug,
    /// All of it.
    Trace,
}

/// `team transcript`.
#[derive(Debug, Args)]
pub(crate) struct TranscriptArgs {
    /// Whose conversation
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) name: String,
    /// Go on as it grows
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    /// Only from then on: 10m, 2h, 3d (ago), 14:30, 2026-01-31T14:30, RFC 3339, seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<crate::wire::WallTime>,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team web`.
#[derive(Debug, Args)]
pub(crate) struct WebArgs {
    /// The port on loopback; 0 takes one that is free
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) port: u16,
    /// Let the page send messages and stop members, too
    #[arg(long)]
    pub(crate) control: bool,
}

/// `team trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The message's id, as `team send` prints it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team clean`.
#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    /// Also unread mail, dead letters and transcripts; they are listed first
    #[arg(long)]
    pub(crate) purge: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) show: Show,
}

/// `team attach`.
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Whose conversation
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) name: String,
}

/// `team completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// `team man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder, which is made if need be
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
}

/// Seconds, or a number with `s`, `m` or `h`.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (text.get(..at), 1.0),
        Some((at, 'm')) => (text.get(..at), 60.0),
        Some((at, 'h')) => (text.get(..at), 3600.0),
        _ => (Some(text), 1.0),
    };
    number
        .and_then(|number| number.parse::<f64>().ok())
        .filter(|number| number.is_finite() && *number > 0.0)
        .and_then(|number| std::time::Duration::try_from_secs_f64(number * unit).ok())
        .ok_or_else(|| "give seconds, or a number with s, m or h, such as 90, 90s, 10m".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::time::Duration;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn durations_are_seconds_or_carry_a_unit() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "-1", "0", "1d", "nan", "inf", "1e999"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
