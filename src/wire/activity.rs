//! The activity of an agent, as the `activity` field of the roster states it: one word or a short phrase.
//!
//! A phrase of another version is read as the name of a tool and written back unchanged.

use serde::{Deserialize, Serialize};
use std::fmt;

const PERMISSION: &str = "permission ";
const SANDBOX: &str = "sandbox ";
const REFUSED: &str = "refused: ";
const RETRYING: &str = "retrying: ";
const QUEUED: &str = "queued: ";
const SUBAGENT: &str = "subagent ";

/// The tool or phase that an agent is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Activity {
    /// The agent waits for its model's reply.
    Model,
    /// The agent waits for its model's reply, which is late or failed for this reason and is tried again.
    Retrying(String),
    /// The agent runs the tool of this name.
    Tool(String),
    /// Subagents work for the agent: the number and the activity of each.
    Subagent(String),
    /// The agent waits for something that others use, for this reason.
    Queued(String),
    /// The agent is about to claim a task.
    Task,
    /// The agent waits for permission to use this tool.
    Permission(String),
    /// The agent waits for a review of its plan.
    Plan,
    /// The agent waits for permission to use this tool outside the workspace.
    Sandbox(String),
    /// The agent waits for free space on the disk.
    DiskFull,
    /// The agent refused to shut down, for this reason.
    Refused(String),
    /// The process of the agent has ended, and the lead is about to restart it.
    Restarting,
}

impl fmt::Display for Activity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, rest) = match self {
            Self::Model => ("model", ""),
            Self::Retrying(reason) => (RETRYING, reason.as_str()),
            Self::Queued(reason) => (QUEUED, reason.as_str()),
            Self::Tool(name) => ("", name.as_str()),
            Self::Subagent(doing) => (SUBAGENT, doing.as_str()),
            Self::Task => ("task", ""),
            Self::Permission(tool) => (PERMISSION, tool.as_str()),
            Self::Plan => ("plan", ""),
            Self::Sandbox(tool) => (SANDBOX, tool.as_str()),
            Self::DiskFull => ("disk full", ""),
            Self::Refused(reason) => (REFUSED, reason.as_str()),
            Self::Restarting => ("restarting", ""),
        };
        write!(out, "{prefix}{rest}")
    }
}

impl Activity {
    /// Returns the subagents that work for the agent: the number of each, and what it does.
    pub fn subagents(&self) -> Vec<(u64, String)> {
        let Self::Subagent(all) = self else { return Vec::new() };
        let mut found: Vec<(u64, String)> = Vec::new();
        for piece in all.split(", ") {
            let numbered =
                piece.split_once(' ').and_then(|(n, doing)| Some((n.parse().ok()?, doing)));
            match (numbered, found.last_mut()) {
                (Some((number, doing)), _) => found.push((number, doing.to_owned())),
                // A reason may have commas.
                (None, Some((_, doing))) => *doing = format!("{doing}, {piece}"),
                (None, None) => {}
            }
        }
        found
    }
}

impl From<String> for Activity {
    fn from(phrase: String) -> Self {
        match phrase.as_str() {
            "model" => Self::Model,
            "task" => Self::Task,
            "plan" => Self::Plan,
            "disk full" => Self::DiskFull,
            "restarting" => Self::Restarting,
            other => {
                let after = |prefix| other.strip_prefix(prefix).map(str::to_owned);
                let permission = after(PERMISSION).map(Self::Permission);
                let sandbox = || after(SANDBOX).map(Self::Sandbox);
                let refused = || after(REFUSED).map(Self::Refused);
                let retrying = || after(RETRYING).map(Self::Retrying);
                let queued = || after(QUEUED).map(Self::Queued);
                let known = permission.or_else(sandbox).or_else(refused);
                let subagent = || after(SUBAGENT).map(Self::Subagent);
                let known = known.or_else(retrying).or_else(queued).or_else(subagent);
                known.unwrap_or(Self::Tool(phrase))
            }
        }
    }
}

impl From<Activity> for String {
    fn from(activity: Activity) -> Self {
        activity.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_phrase_of_the_format_has_its_variant() {
        let cases = [
            ("model", Activity::Model),
            ("retrying: connection refused", Activity::Retrying("connection refused".into())),
            ("bash", Activity::Tool("bash".into())),
            ("task", Activity::Task),
            ("permission bash", Activity::Permission("bash".into())),
            ("plan", Activity::Plan),
            ("sandbox read_file", Activity::Sandbox("read_file".into())),
            ("disk full", Activity::DiskFull),
            ("refused: not yet", Activity::Refused("not yet".into())),
            ("restarting", Activity::Restarting),
            ("queued: no place", Activity::Queued("no place".into())),
            ("subagent 1 bash", Activity::Subagent("1 bash".into())),
        ];
        for (phrase, activity) in cases {
            assert_eq!(Activity::from(phrase.to_owned()), activity);
            assert_eq!(activity.to_string(), phrase);
        }
    }

    #[test]
    fn the_subagents_of_an_agent_are_those_of_its_phrase() {
        let of = |phrase: &str| Activity::from(phrase.to_owned()).subagents();
        let two = of("subagent 1 bash, 12 retrying: lost, again");
        assert_eq!(two, [(1, "bash".to_owned()), (12, "retrying: lost, again".to_owned())]);
        assert!(of("bash").is_empty() && of("subagent odd").is_empty());
    }

    proptest! {
        #[test]
        fn any_phrase_survives_reading_and_writing(phrase: String, prefix in 0_usize..7) {
            let prefixes = ["", PERMISSION, SANDBOX, REFUSED, RETRYING, QUEUED, SUBAGENT];
            let phrase = prefixes[prefix].to_owned() + &phrase;
            let json = serde_json::to_string(&phrase).unwrap();
            let activity: Activity = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(serde_json::to_string(&activity).unwrap(), json);
        }
    }
}
