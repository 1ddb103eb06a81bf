//! `config.json`: who belongs to the team and what each one is doing, as far as the file knows.
//!
//! The roster is a view. Whether somebody lives is decided by the life lock, not here.

use super::chat::Usage;
use super::money::{Money, Price};
use super::{FORMAT_VERSION, WallTime, WithUnknownFields};
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
    pub created_at: WallTime,
    /// The lead, once there was one.
    pub lead: Option<WithUnknownFields<Lead>>,
    /// Everybody else, in the order they joined.
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

impl Roster {
    /// The member of that name.
    pub fn member(&self, name: &str) -> Option<&WithUnknownFields<Member>> {
        self.members.iter().find(|member| member.name == name)
    }

    /// What the members have used since they joined.
    pub fn used_by_members(&self) -> UsageCount {
        let usages = self.members.iter().map(|member| member.usage);
        usages.fold(UsageCount::default(), |sum, usage| sum.plus(&usage))
    }

    /// What everybody together has used since the lead's conversation began. The time is the lead's.
    pub fn used(&self) -> UsageCount {
        let (lead, before) =
            self.lead.as_ref().map_or_else(Default::default, |lead| (lead.usage, lead.used_before));
        let used = lead.plus(&self.used_by_members().since(&before));
        UsageCount { seconds: lead.seconds, ..used }
    }

    /// The entry of a name that joins: the one that is there, or a new one.
    pub fn enter(
        &mut self,
        name: &str,
        now: impl Into<WallTime>,
    ) -> &mut WithUnknownFields<Member> {
        let at = self.members.iter().position(|member| member.name == name).unwrap_or_else(|| {
            let color = COLORS.iter().cycle().nth(self.members.len() % COLORS.len());
            let color = color.copied().unwrap_or_default().into();
            let member =
                Member { name: name.into(), color, joined_at: now.into(), ..Member::default() };
            self.members.push(member.into());
            self.members.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "the place was just found or filled")]
        &mut self.members[at]
    }

    /// The member of that name, to change it.
    pub fn member_mut(&mut self, name: &str) -> Option<&mut WithUnknownFields<Member>> {
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
    pub since: WallTime,
    /// The tool or phase it is in, for people.
    pub activity: Option<String>,
    /// `provider/name` of its model.
    pub model: String,
    /// Permission mode.
    pub mode: String,
    /// What it has used.
    pub usage: UsageCount,
    /// What its teammates had used before its conversation began: the team's sums count from there.
    pub used_before: UsageCount,
}

impl Default for Lead {
    fn default() -> Self {
        Self {
            name: "lead".into(),
            pid: None,
            incarnation: String::new(),
            status: Status::Starting,
            since: WallTime::default(),
            activity: None,
            model: String::new(),
            mode: String::new(),
            usage: UsageCount::default(),
            used_before: UsageCount::default(),
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
    pub since: WallTime,
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
    pub joined_at: WallTime,
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
            since: WallTime::default(),
            pid: None,
            incarnation: String::new(),
            model: String::new(),
            mode: String::new(),
            color: String::new(),
            cwd: String::new(),
            joined_at: WallTime::default(),
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

/// What one agent has used since it joined, or a sum of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageCount {
    /// Finished turns.
    pub turns: u64,
    /// Tokens read, cached ones included.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Of those read, the ones from the provider's cache.
    pub cache_read_tokens: u64,
    /// Of those read, the ones stored in the provider's cache.
    pub cache_write_tokens: u64,
    /// How long its processes ran.
    pub seconds: u64,
    /// What it cost, as far as prices are set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

impl UsageCount {
    /// Tokens read and written.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Adds one model call.
    pub fn add_call(&mut self, usage: Usage, price: Option<Price>) {
        let written = usage.output_tokens;
        let call = Self {
            turns: 0,
            input_tokens: usage.total().saturating_sub(written),
            output_tokens: written,
            cache_read_tokens: usage.cache_read_input_tokens,
            cache_write_tokens: usage.cache_creation_input_tokens,
            seconds: 0,
            cost: price.map(|price| price.of(usage)),
        };
        *self = self.plus(&call);
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let costs = [self.cost, other.cost].into_iter().flatten();
        Self { cost: costs.reduce(Money::plus), ..self.each(other, u64::saturating_add) }
    }

    /// What was used since it was `before`.
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
            cost: None,
        }
    }

    /// Hundredths of what was read that came from the cache; nothing when none did.
    pub fn cached_share(&self) -> Option<u64> {
        let share = self.cache_read_tokens.saturating_mul(100).checked_div(self.input_tokens)?;
        (self.cache_read_tokens > 0).then_some(share)
    }
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
    pub at: WallTime,
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
    fn the_team_has_used_what_came_since_the_lead_began() {
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
    fn a_call_is_counted_with_its_cached_tokens() {
        let mut count = UsageCount::default();
        assert_eq!(count.cached_share(), None);
        let usage = Usage {
            input_tokens: 10,
            output_tokens: 5,
            cache_read_input_tokens: 80,
            cache_creation_input_tokens: 10,
        };
        count.add_call(usage, None);
        assert_eq!((count.input_tokens, count.tokens(), count.cost), (100, 105, None));
        assert_eq!((count.cache_write_tokens, count.cached_share()), (10, Some(80)));
    }

    #[test]
    fn a_rewrite_keeps_what_a_newer_version_added() {
        let text = r#"{"version":1,"team_name":"t","created_at":1.0,"future":true,
            "lead":{"name":"lead","pid":7,"mood":"good"},
            "members":[{"name":"alice","status":"idle","badge":{"n":1}}]}"#;
        let mut roster: WithUnknownFields<Roster> = serde_json::from_str(text).unwrap();
        roster.member_mut("alice").unwrap().status = Status::Working;
        let again: serde_json::Value = serde_json::to_value(&roster).unwrap();
        assert_eq!(again["future"], true);
        assert_eq!(again["lead"]["mood"], "good");
        assert_eq!(again["members"][0]["badge"]["n"], 1);
        assert_eq!(again["members"][0]["status"], "working");
    }
}
