//! `config.json`: the members of the team and their recorded statuses.
//!
//! The roster is a view: the life lock of a member decides whether the member is alive.

mod member_text;

pub(crate) use member_text::member_text;

use super::activity::Activity;
use super::chat::Usage;
use super::isolation::ClonePlace;
use super::money::{Money, Price};
use super::role::folded;
use super::sandbox::SandboxEntry;
use super::words::words;
use super::{FORMAT_VERSION, WallTime, WithUnknownFields};
use serde::{Deserialize, Serialize};

/// The contents of `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Roster {
    /// The format version of the file. A file of a newer version may be read, not written.
    pub version: u32,
    /// The name of the team, for people.
    pub team_name: String,
    /// The time at which the folder became a team.
    pub created_at: WallTime,
    /// The lead; `None` until the first one has started.
    pub lead: Option<WithUnknownFields<Lead>>,
    /// The other members, in the order in which they joined.
    #[serde(serialize_with = "member_text::serialize_members")]
    pub members: Vec<WithUnknownFields<Member>>,
}

impl Default for Roster {
    fn default() -> Self {
        Self {
            version: FORMAT_VERSION,
            team_name: "default".into(),
            created_at: WallTime::default(),
            lead: None,
            members: Vec::new(),
        }
    }
}

/// The most characters of a team's name.
const TEAM_NAME_CHARS: usize = 64;

/// Whether a text can be the name of a team: it is one short line that can be printed.
pub fn is_team_name(text: &str) -> bool {
    let is_edge = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty()
        && text.chars().count() <= TEAM_NAME_CHARS
        && text.chars().all(|c| c == ' ' || is_edge(c))
        && text.starts_with(is_edge)
        && text.ends_with(is_edge)
}

/// Returns the name of a team in a folder of this name: the folder's, with `-` for every other character.
pub fn team_name_of(folder: &str) -> String {
    let fit = |c: char| if c.is_alphanumeric() || matches!(c, '_' | '.' | ' ') { c } else { '-' };
    let name: String = folder.chars().map(fit).take(TEAM_NAME_CHARS).collect();
    let name = name.trim_matches([' ', '-']);
    if name.is_empty() { Roster::default().team_name } else { name.to_owned() }
}

/// The home of an agent of another host, as this one knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherHome {
    /// The host.
    pub host: String,
    /// Whether the process of the agent is alive, as its host has said last.
    pub is_alive: bool,
    /// Whether the host is not heard.
    pub is_away: bool,
    /// Whether the host was given up.
    pub is_given_up: bool,
}

impl Roster {
    /// Returns the roster of a team that nobody has joined yet.
    pub fn of_new_team(team_name: String) -> Self {
        Self { team_name, ..Self::default() }
    }

    /// Records the start of a new team; an existing one keeps its time and its name.
    pub fn begin(&mut self, at: WallTime, team_name: Option<String>) {
        if self.created_at != WallTime::default() {
            return;
        }
        self.created_at = at;
        if let Some(name) = team_name.filter(|_| self.lead.is_none() && self.members.is_empty()) {
            self.team_name = name;
        }
    }

    /// Returns the member of that name.
    pub fn member(&self, name: &str) -> Option<&WithUnknownFields<Member>> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Returns the host of an agent, the lead included; `None` if it runs on this host or is unknown.
    pub fn host_of(&self, name: &str) -> Option<&str> {
        if name == lead_name() {
            return self.lead.as_ref()?.host.as_deref();
        }
        self.member(name)?.host.as_deref()
    }

    /// Returns the home of an agent, the lead included, that runs or ran on another host.
    pub fn home_of(&self, name: &str) -> Option<OtherHome> {
        let (host, alive, away_since, is_given_up) = if name == lead_name() {
            let lead = self.lead.as_ref()?;
            (&lead.host, lead.alive, lead.away_since, lead.given_up)
        } else {
            let member = self.member(name)?;
            (&member.host, member.alive, member.away_since, member.given_up)
        };
        let is_alive = alive.unwrap_or_default();
        let is_away = away_since.is_some();
        Some(OtherHome { host: host.clone()?, is_alive, is_away, is_given_up })
    }

    /// Makes an agent that ran on another host, or the lead, one of this host.
    pub fn take_home(&mut self, name: &str) {
        if name == lead_name() {
            if let Some(lead) = &mut self.lead {
                (lead.host, lead.alive) = (None, None);
                (lead.remote_pid, lead.away_since, lead.given_up) = (None, None, false);
            }
        } else if let Some(member) = self.member_mut(name) {
            (member.host, member.alive) = (None, None);
            (member.remote_pid, member.away_since, member.given_up) = (None, None, false);
        }
    }

    /// Returns the usage of all members since they joined.
    pub fn used_by_members(&self) -> UsageCount {
        let usages = self.members.iter().map(|member| member.usage);
        usages.fold(UsageCount::default(), |sum, usage| sum.plus(&usage))
    }

    /// Returns the usage of the team since the lead's conversation began. `seconds` are those of the lead.
    pub fn used(&self) -> UsageCount {
        let (lead, before) =
            self.lead.as_ref().map(|lead| (lead.usage, lead.used_before)).unwrap_or_default();
        let used = lead.plus(&self.used_by_members().since(&before));
        UsageCount { seconds: lead.seconds, ..used }
    }

    /// Returns the entry of a name that joins; adds one if there is none.
    pub fn enter(&mut self, name: &str, at: impl Into<WallTime>) -> &mut WithUnknownFields<Member> {
        let count = self.members.len();
        let index = self.members.iter().position(|member| member.name == name).unwrap_or(count);
        if index == count {
            let color = COLORS.iter().cycle().nth(count % COLORS.len()).map_or("", |word| word);
            let (name, color, joined_at) = (name.into(), color.into(), at.into());
            self.members.push(Member { name, color, joined_at, ..Member::default() }.into());
        }
        #[expect(clippy::indexing_slicing, reason = "the index was just found or filled")]
        &mut self.members[index]
    }

    /// Returns the role file of a member that last had this role, in any form of its name.
    pub(crate) fn role_file_of(&self, name: &str, role: &str) -> Option<&str> {
        let member = self.member(name).filter(|member| folded(&member.role) == folded(role));
        member.and_then(|member| member.role_file.as_deref())
    }

    /// Returns the member of that name for changes.
    pub fn member_mut(&mut self, name: &str) -> Option<&mut WithUnknownFields<Member>> {
        self.members.iter_mut().find(|member| member.name == name)
    }
}

fn lead_name() -> String {
    "lead".into()
}

/// The lead's entry.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lead {
    /// The word `lead`.
    #[serde(default = "lead_name")]
    pub name: String,
    /// The process id.
    pub pid: Option<i32>,
    /// The id of this run of the lead.
    pub incarnation: String,
    /// The status of the lead.
    pub status: Status,
    /// The time of the last change of `status`.
    pub since: WallTime,
    /// The tool or phase that the agent is in, for people.
    pub activity: Option<Activity>,
    /// The model, as `provider/name`.
    pub model: String,
    /// The permission mode.
    pub mode: String,
    /// The usage since the lead's conversation began.
    pub usage: UsageCount,
    /// The usage of the teammates before the lead's conversation began. Sums of the team do not include it.
    pub used_before: UsageCount,
    /// The walls around its commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxEntry>,
    /// Whether this process has a person at its terminal, so that no question expires while it lives.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub person: bool,
    /// The host on which it runs; `None` if that is this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether its process is alive, as its host has said last. Only with `host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
    /// The process id on its host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_pid: Option<i32>,
    /// The time since which its host is not heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_since: Option<WallTime>,
    /// Whether its host was given up, so that its name is free.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
}

/// A teammate's entry.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    /// The name of the member.
    pub name: String,
    /// The role: the name of a role file, or free text.
    pub role: String,
    /// The role file; `None` if the role is free text. Without its file, a member's limits are unknown.
    pub role_file: Option<String>,
    /// The status of the member. Only `protocol::lifecycle` changes it.
    pub status: Status,
    /// The tool or phase that the agent is in, for people.
    pub activity: Option<Activity>,
    /// The time of the last change of `status`.
    pub since: WallTime,
    /// The process id.
    pub pid: Option<i32>,
    /// The id of the incarnation. Every start has its own.
    pub incarnation: String,
    /// The model, as `provider/name`.
    pub model: String,
    /// The permission mode.
    pub mode: String,
    /// The colour word for the member's lines.
    pub color: String,
    /// The working directory of the member's commands.
    pub cwd: String,
    /// The clone in which the member works; `None` if it works in the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<ClonePlace>,
    /// The time at which the name first joined.
    pub joined_at: WallTime,
    /// The number of restarts after crashes.
    pub restarts: u32,
    /// The usage since the member joined.
    pub usage: UsageCount,
    /// The end of the member's last process.
    pub last_exit: Option<LastExit>,
    /// The starter: `lead` or `hand`. A lead stops only the members that it spawned.
    pub started_by: StartedBy,
    /// The walls around its commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxEntry>,
    /// The host on which it runs; `None` if that is this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether its process is alive, as its host has said last. Only with `host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
    /// The process id on its host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_pid: Option<i32>,
    /// The time since which its host is not heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_since: Option<WallTime>,
    /// Whether its host was given up, so that its name is free.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
}

/// The colour words of members, in the order in which members join.
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

/// The starter of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartedBy {
    /// A lead spawned it and stops it.
    #[default]
    Lead,
    /// A person ran `team teammate NAME`.
    Hand,
}

words! {
    /// The status of an agent (SPEC 3.2). `protocol::lifecycle` defines the transitions.
    #[derive(PartialOrd, Ord, Default)]
    pub enum Status {
        /// Its process is being started, or is about to be restarted.
        #[default]
        Starting = "starting",
        /// In a turn.
        Working = "working",
        /// Waiting for mail.
        Idle = "idle",
        /// Waiting for an approval, for space on the disk, or for its turn among others.
        Waiting = "waiting",
        /// Asked to stop. Only control mail reaches it.
        Stopping = "stopping",
        /// Ended as asked.
        Shutdown = "shutdown",
        /// Ended otherwise, and not restarted.
        Failed = "failed",
    }
}

/// The mail that can be sent to an agent with some status while its process is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MailAccess {
    All,
    ControlOnly,
    None,
}

/// The duty of an agent with some status to write heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeartbeatPolicy {
    Always,
    /// Only while its inbox holds unread mail.
    WithUnreadMail,
    Never,
}

impl Status {
    /// Returns the mail that reaches an agent with this status while its process is alive.
    pub(crate) fn mail(self) -> MailAccess {
        match self {
            Self::Starting | Self::Working | Self::Waiting | Self::Idle => MailAccess::All,
            Self::Stopping => MailAccess::ControlOnly,
            Self::Shutdown | Self::Failed => MailAccess::None,
        }
    }

    /// Returns the duty to write heartbeats.
    pub(crate) fn heartbeat(self) -> HeartbeatPolicy {
        match self {
            Self::Starting | Self::Working | Self::Waiting => HeartbeatPolicy::Always,
            Self::Idle => HeartbeatPolicy::WithUnreadMail,
            Self::Stopping | Self::Shutdown | Self::Failed => HeartbeatPolicy::Never,
        }
    }

    /// Whether the process has ended according to this status.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Shutdown | Self::Failed)
    }
}

/// The usage of one agent, or the sum over several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageCount {
    /// The number of finished turns.
    pub turns: u64,
    /// The number of input tokens, cached ones included.
    pub input_tokens: u64,
    /// The number of output tokens.
    pub output_tokens: u64,
    /// The number of input tokens that came from the provider's cache.
    pub cache_read_tokens: u64,
    /// The number of input tokens that were stored in the provider's cache.
    pub cache_write_tokens: u64,
    /// The number of seconds that processes ran.
    pub seconds: u64,
    /// The number of times that another model went on because one had failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub model_switches: u64,
    /// The cost in dollars, as far as prices are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl UsageCount {
    /// Returns the sum of input and output tokens.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Adds the tokens and the cost of one model call.
    pub fn add_call(&mut self, usage: Usage, price: Option<Price>) {
        *self = self.plus(&Self {
            input_tokens: usage.total().saturating_sub(usage.output_tokens),
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_input_tokens,
            cache_write_tokens: usage.cache_creation_input_tokens,
            cost: price.map(|price| price.of(usage)),
            ..Self::default()
        });
    }

    /// Returns the sum of both counts.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let costs = [self.cost, other.cost].into_iter().flatten();
        Self { cost: costs.reduce(Money::plus), ..self.each(other, u64::saturating_add) }
    }

    /// Returns the difference from an earlier count.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let cost = self.cost.map(|cost| cost.minus(before.cost.unwrap_or_default()));
        Self { cost, ..self.each(before, u64::saturating_sub) }
    }

    fn each(&self, other: &Self, join: fn(u64, u64) -> u64) -> Self {
        Self {
            turns: join(self.turns, other.turns),
            input_tokens: join(self.input_tokens, other.input_tokens),
            output_tokens: join(self.output_tokens, other.output_tokens),
            cache_read_tokens: join(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens: join(self.cache_write_tokens, other.cache_write_tokens),
            seconds: join(self.seconds, other.seconds),
            model_switches: join(self.model_switches, other.model_switches),
            cost: None,
        }
    }

    /// Returns the percentage of input tokens that came from the cache; `None` if none did.
    pub fn cached_share(&self) -> Option<u64> {
        let share = self.cache_read_tokens.saturating_mul(100).checked_div(self.input_tokens)?;
        (self.cache_read_tokens > 0).then_some(share)
    }
}

/// The end of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastExit {
    /// The exit code, if the process exited.
    pub code: Option<i32>,
    /// The signal number, if a signal killed the process.
    pub signal: Option<i32>,
    /// The cause of the end.
    pub cause: ExitCause,
    /// The time of the end.
    pub at: WallTime,
}

words! {
    /// The reason for which a member's process ended (SPEC 3.2).
    pub enum ExitCause {
        /// The member was stopped by name.
        Stopped = "stopped",
        /// The team was stopped.
        TeamStopped = "team_stopped",
        /// The process of the lead ended.
        LeadLost = "lead_lost",
        /// The process ended unexpectedly.
        Crash = "crash",
        /// The process hung and was killed.
        Hung = "hung",
        /// A budget was used up.
        Budget = "budget",
        /// The process ended by itself with an error.
        Error = "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_is_named_after_its_folder_or_its_setting_and_keeps_the_name() {
        for (folder, name) in [
            ("website", "website"),
            ("Mein Projekt 2.0_x", "Mein Projekt 2.0_x"),
            ("größe", "größe"),
            ("a\u{1b}[31m\u{202e}b/c\n", "a--31m-b-c"),
            (" -- ", "default"),
            ("", "default"),
        ] {
            assert_eq!(team_name_of(folder), name, "{folder:?}");
            assert!(is_team_name(name));
        }
        let long = team_name_of(&"x".repeat(200));
        assert!(is_team_name(&long) && long.len() == TEAM_NAME_CHARS);
        for bad in ["", " a", "a ", "a\nb", "a\u{202e}", "a/b"] {
            assert!(!is_team_name(bad), "{bad:?}");
        }
        let mut roster = Roster::of_new_team("folder".into());
        roster.begin(1.0.into(), Some("setting".into()));
        assert_eq!((&*roster.team_name, roster.created_at), ("setting", 1.0.into()));
        roster.begin(2.0.into(), Some("another".into()));
        assert_eq!((&*roster.team_name, roster.created_at), ("setting", 1.0.into()));
    }

    #[test]
    fn an_entry_of_another_host_is_one_short_line_and_is_read_as_it_was() {
        let mut roster = Roster::default();
        roster.enter("alice", 1.0).status = Status::Idle;
        let entry = roster.enter("bob", 2.0);
        (entry.host, entry.alive, entry.status) = (Some("b".into()), Some(true), Status::Idle);
        entry.color.clear();
        let text = serde_json::to_string_pretty(&roster).unwrap();
        let line = r#"{"name":"bob","status":"idle","joined_at":2.0,"host":"b","alive":true}"#;
        assert!(text.lines().any(|it| it.trim() == line), "{text}");
        assert!(text.contains("\n      \"name\": \"alice\",\n"), "{text}");
        assert_eq!(serde_json::from_str::<Roster>(&text).unwrap(), roster);
        let value = serde_json::to_value(&roster).unwrap();
        assert_eq!(serde_json::from_value::<Roster>(value).unwrap(), roster);
    }

    #[test]
    fn usage_of_the_team_counts_from_the_start_of_the_leads_conversation() {
        let usage = |turns, input_tokens, cost: f64| UsageCount {
            turns,
            input_tokens,
            seconds: 7,
            cost: Money::try_from(cost).ok(),
            ..UsageCount::default()
        };
        let mut roster = Roster::default();
        assert_eq!(roster.used(), UsageCount::default());
        roster.enter("alice", 1.0).usage = usage(5, 500, 2.5);
        roster.enter("bob", 1.0).usage = UsageCount { cost: None, ..usage(1, 100, 0.0) };
        let used_before = usage(4, 400, 1.5);
        roster.lead =
            Some(Lead { usage: usage(2, 30, 0.25), used_before, ..Lead::default() }.into());
        assert_eq!(roster.used(), usage(4, 230, 1.25));
    }

    #[test]
    fn cached_tokens_count_as_input() {
        let mut count = UsageCount::default();
        assert_eq!(count.cached_share(), None);
        let mut usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
        (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) = (80, 10);
        count.add_call(usage, None);
        assert_eq!((count.input_tokens, count.tokens(), count.cost), (100, 105, None));
        assert_eq!((count.cache_write_tokens, count.cached_share()), (10, Some(80)));
    }
}
