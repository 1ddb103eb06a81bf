//! Commands that an agent runs in the background, as they rest on disk.

use super::time::WallTime;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The maximum number of characters of a command line in a list.
const SHOWN_CHARS: usize = 80;

/// The background commands of one agent: those that run, and the last ones that have ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandList {
    /// The number of the last command. Numbers never repeat.
    pub last: u64,
    /// The commands, oldest first.
    pub commands: Vec<BackgroundCommand>,
}

/// A command that runs beside the turns of its agent, or has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackgroundCommand {
    /// The id by which the model names it.
    pub id: String,
    /// The id of the tool call that has started it.
    pub call: String,
    /// The command line, without secrets.
    pub command: String,
    /// The folder in which it may change files.
    pub folder: PathBuf,
    /// The time of its start.
    pub since: WallTime,
    /// The time limit in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Whether it runs.
    pub state: CommandState,
    /// Its end in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub end: String,
    /// The report of the work after its end, for the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub report: String,
    /// The part of its output that the model has seen, in bytes.
    #[serde(default)]
    pub seen: u64,
    /// The last look of the model at its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look: Option<OutputLook>,
    /// Whether the agent needs no notice of its end any more.
    #[serde(default)]
    pub told: bool,
}

impl BackgroundCommand {
    /// Returns its id with the begin of its first line.
    pub fn title(&self) -> String {
        let line = self.command.trim().lines().next().unwrap_or_default();
        let short: String = line.chars().take(SHOWN_CHARS).collect();
        let cut = if short.len() < self.command.trim().len() { "…" } else { "" };
        format!("{} ({short}{cut})", self.id)
    }

    /// Whether its id is one that the program gives: `c` and a number.
    pub fn has_own_id(&self) -> bool {
        let number = self.id.strip_prefix('c').unwrap_or_default();
        !number.is_empty() && number.len() <= 20 && number.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Whether it runs, unless its agent has ended.
    pub fn is_running(&self) -> bool {
        self.state == CommandState::Running
    }

    /// Whether its end is still to wake its agent: it has a time limit, and the agent does not know its end yet.
    pub fn will_wake(&self) -> bool {
        let is_known = self.told || self.look.as_ref().is_some_and(|look| look.end);
        self.timeout.is_some() && !is_known
    }
}

/// The state of a background command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandState {
    /// It runs. If its agent has ended, it has ended, too.
    Running,
    /// It has ended.
    Ended,
    /// It ended with an earlier process of its agent.
    Unknown,
}

/// A call by which the model looks at the output of a command. It counts once its result is in the transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLook {
    /// The id of the call.
    pub call: String,
    /// The end of the output that it has shown, in bytes.
    pub to: u64,
    /// Whether it has shown the end of the command.
    pub end: bool,
}
