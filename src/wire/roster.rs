//! `config.json`: who belongs to the team and what each one is doing, as far as the file knows.
//!
//! The roster is a view. Whether somebody lives is decided by the life lock, not here.

use super::{FORMAT_VERSION, Open, Timestamp};
use serde::{Deserialize, Serialize};

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Roster {
    /// Format version of the file; a newer one may be read, not written.
    pub version: u32,
    /// The team's name, for people.
    pub team_name: String,
    /// When the folder became a team.
    pub created_at: Timestamp,
    /// The lead, once there was one.
    pub lead: Option<Open<Lead>>,
    /// Everybody else, in the order they joined.
    pub members: Vec<Open<Member>>,
}

impl Default for Roster {
    fn default() -> Self {
        Self {
            version: FORMAT_VERSION,
            team_name: "default".into(),
            created_at: 0.0,
            lead: None,
            members: Vec::new(),
        }
    }
}

impl Roster {
    /// The member of that name.
    pub fn member(&self, name: &str) -> Option<&Open<Member>> {
        self.members.iter().find(|member| member.name == name)
    }

    /// The entry of a name that joins: the one that is there, or a new one.
    pub fn enter(&mut self, name: &str, now: Timestamp) -> &mut Open<Member> {
        let at = self.members.iter().position(|member| member.name == name).unwrap_or_else(|| {
            let color = COLORS.iter().cycle().nth(self.members.len() % COLORS.len());
            let color = color.copied().unwrap_or_default().into();
            let member = Member { name: name.into(), color, joined_at: now, ..Member::default() };
            self.members.push(member.into());
            self.members.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "the place was just found or filled")]
        &mut self.members[at]
    }

    /// The member of that name, to change it.
    pub fn member_mut(&mut self, name: &str) -> Option<&mut Open<Member>> {
        self.members.iter_mut().find(|member| member.name == name)
    }
}

/// The lead's entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lead {
    /// Always `lead`.
    pub name: String,
    /// Its process.
    pub pid: Option<i32>,
    /// Which life of the lead this is.
    pub incarnation: String,
    /// What it does.
    pub status: Status,
    /// Since when, seconds since 1970.
    pub since: Timestamp,
    /// The tool or phase it is in, for people.
    pub activity: Option<String>,
    /// `provider/name` of its model.
    pub model: String,
    /// Permission mode.
    pub mode: String,
    /// What it has used.
    pub usage: UsageCount,
}

impl Default for Lead {
    fn default() -> Self {
        Self {
            name: "lead".into(),
            pid: None,
            incarnation: String::new(),
            status: Status::Starting,
            since: 0.0,
            activity: None,
            model: String::new(),
            mode: String::new(),
            usage: UsageCount::default(),
        }
    }
}

/// A teammate's entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// What it is for, free text.
    pub role: String,
    /// What it does.
    pub status: Status,
    /// The tool or phase it is in, for people.
    pub activity: Option<String>,
    /// Since when the status holds.
    pub since: Timestamp,
    /// Its process.
    pub pid: Option<i32>,
    /// Which life of this name: changes with every start.
    pub incarnation: String,
    /// `provider/name` of its model.
    pub model: String,
    /// Permission mode.
    pub mode: String,
    /// Colour its lines are shown in.
    pub color: String,
    /// Where its commands run.
    pub cwd: String,
    /// When the name first joined.
    pub joined_at: Timestamp,
    /// How often it was restarted after a crash.
    pub restarts: u32,
    /// What it has used.
    pub usage: UsageCount,
    /// How its last process ended.
    pub last_exit: Option<LastExit>,
    /// Who started it: `lead` or `hand`. A lead stops only what it spawned.
    pub started_by: StartedBy,
}

impl Default for Member {
    fn default() -> Self {
        Self {
            name: String::new(),
            role: String::new(),
            status: Status::Starting,
            activity: None,
            since: 0.0,
            pid: None,
            incarnation: String::new(),
            model: String::new(),
            mode: String::new(),
            color: String::new(),
            cwd: String::new(),
            joined_at: 0.0,
            restarts: 0,
            usage: UsageCount::default(),
            last_exit: None,
            started_by: StartedBy::Lead,
        }
    }
}

/// The colour words that members are given, in the order they join.
pub const COLORS: [&str; 10] = [
    "blue",
    "green",
    "yellow",
    "magenta",
    "cyan",
    "bright_blue",
    "bright_green",
    "bright_yellow",
    "bright_magenta",
    "bright_cyan",
];

/// Who started a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartedBy {
    /// A lead spawned it and ends it.
    #[default]
    Lead,
    /// A person ran `team teammate NAME`.
    Hand,
}

/// What an agent is doing (SPEC 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its process is being started.
    Starting,
    /// In a turn.
    Working,
    /// Waiting for mail.
    Idle,
    /// Waiting for an approval.
    Waiting,
    /// On its way out; only control mail reaches it.
    Stopping,
    /// Ended in order.
    Shutdown,
    /// Ended otherwise and not restarted.
    Failed,
}

impl Status {
    /// The word that stands in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Working => "working",
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Stopping => "stopping",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
        }
    }

    /// The process has ended or is believed to have.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Shutdown | Self::Failed)
    }
}

/// Turns and tokens of one agent since it joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageCount {
    /// Finished turns.
    pub turns: u64,
    /// Tokens read, cached ones included.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastExit {
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal number, if a signal ended it.
    pub signal: Option<i32>,
    /// Why.
    pub cause: ExitCause,
    /// When.
    pub at: Timestamp,
}

/// Why a member's process ended (SPEC 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    /// Somebody stopped it by name.
    Stopped,
    /// The whole team was stopped.
    TeamStopped,
    /// Its lead died.
    LeadLost,
    /// It died unexpectedly.
    Crash,
    /// It no longer moved and was killed.
    Hung,
    /// A limit was reached.
    Budget,
    /// It ended by itself with an error.
    Error,
}

impl ExitCause {
    /// The word that stands in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::TeamStopped => "team_stopped",
            Self::LeadLost => "lead_lost",
            Self::Crash => "crash",
            Self::Hung => "hung",
            Self::Budget => "budget",
            Self::Error => "error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewrite_keeps_what_a_newer_version_added() {
        let text = r#"{"version":1,"team_name":"t","created_at":1.0,"future":true,
            "lead":{"name":"lead","pid":7,"mood":"good"},
            "members":[{"name":"alice","status":"idle","badge":{"n":1}}]}"#;
        let mut roster: Open<Roster> = serde_json::from_str(text).unwrap();
        roster.member_mut("alice").unwrap().status = Status::Working;
        let again: serde_json::Value = serde_json::to_value(&roster).unwrap();
        assert_eq!(again["future"], true);
        assert_eq!(again["lead"]["mood"], "good");
        assert_eq!(again["members"][0]["badge"]["n"], 1);
        assert_eq!(again["members"][0]["status"], "working");
    }
}
