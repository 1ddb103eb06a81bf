//! Whether the team is at rest, and whether a run has used up what it was given. Both are read from
//! the files; no model is asked.

use super::{Reason, RunLimits, Standing};
use crate::agent::budget::Once;
use crate::protocol::budget::{BudgetVerdict, LimitOwner, judge, limits};
use crate::store::{Liveness, TeamDir, liveness, roster, unread};
use crate::tasks::Tasks;
use crate::ui::roster::age;
use crate::wire::budget::Budget;
use crate::wire::roster::{Member, Roster, StartedBy, Status, UsageCount};
use crate::wire::task::{TaskId, TaskStatus};
use crate::wire::{AgentName, WallTime};
use std::sync::Arc;
use std::time::Instant;

/// Why somebody idle is awaited.
const UNREAD: &str = "has unread mail";

/// Watches what a run and its team may use.
pub(super) struct Watchdog {
    team: TeamDir,
    run: Account,
    standing: Account,
    /// What everybody had used before this run.
    before: UsageCount,
    began: Instant,
    turns: u64,
}

/// A budget, and the warning that little of it is left.
struct Account {
    whose: LimitOwner,
    budget: Budget,
    warning: Once,
}

impl Account {
    /// Whether it is used up. Turns count only when one too many begins.
    fn spent(&self, used: &UsageCount) -> Option<Reason> {
        let budget = Budget { turns: None, ..self.budget };
        match judge(self.whose, &budget, used) {
            BudgetVerdict::Spent(limit) => Some(Reason::Budget(limit)),
            BudgetVerdict::Fine | BudgetVerdict::Nearly(_) => None,
        }
    }

    /// Says once that little is left.
    fn warning(&self, used: &UsageCount) -> Option<String> {
        match judge(self.whose, &self.budget, used) {
            BudgetVerdict::Nearly(limit) if self.warning.take() => {
                Some(format!("{limit} are used; at the end of it the team is stopped"))
            }
            BudgetVerdict::Fine | BudgetVerdict::Nearly(_) | BudgetVerdict::Spent(_) => None,
        }
    }
}

impl Watchdog {
    /// Begins to count.
    pub(super) fn new(team: TeamDir, limits: RunLimits, standing: Standing) -> Self {
        let Standing { budget, used_before: before, warnings } = standing;
        let RunLimits { max_tokens: tokens, max_turns: turns, .. } = limits;
        let run = Budget { tokens, turns, ..Budget::default() };
        Self {
            before,
            run: Account { whose: LimitOwner::Run, budget: run, warning: warnings.run },
            standing: Account { whose: LimitOwner::Team, budget, warning: warnings.standing },
            team,
            began: Instant::now(),
            turns: 0,
        }
    }

    /// A turn of the lead is over.
    pub(super) fn turn_ended(&mut self) {
        self.turns = self.turns.saturating_add(1);
    }

    /// Turns of the lead so far.
    pub(super) fn turns(&self) -> u64 {
        self.turns
    }

    /// A turn of the lead begins: is it one too many for this run?
    pub(super) fn turn_begins(&self) -> Option<Reason> {
        let turns = Budget { turns: self.run.budget.turns, ..Budget::default() };
        let used = UsageCount { turns: self.turns, ..UsageCount::default() };
        match judge(LimitOwner::Run, &turns, &used) {
            BudgetVerdict::Spent(limit) => Some(Reason::Budget(limit)),
            BudgetVerdict::Fine | BudgetVerdict::Nearly(_) => None,
        }
    }

    /// Has the team used up what it was given?
    pub(super) fn spent(&self) -> Option<Reason> {
        if !self.has_limits() {
            return None;
        }
        self.run.spent(&self.used()).or_else(|| self.standing.spent(&self.used_in_all()))
    }

    /// What is to be said, once, when little is left.
    pub(super) fn warning(&self) -> Option<String> {
        if !self.has_limits() {
            return None;
        }
        let (run, standing) = (self.used(), self.used_in_all());
        self.run.warning(&run).or_else(|| self.standing.warning(&standing))
    }

    fn has_limits(&self) -> bool {
        [&self.run, &self.standing].iter().any(|account| account.budget != Budget::default())
    }

    /// How the budgets stand, a line each.
    pub(super) fn standing(&self) -> Vec<String> {
        let run = limits(LimitOwner::Run, &self.run.budget, &self.used());
        let team = limits(LimitOwner::Team, &self.standing.budget, &self.used_in_all());
        run.chain(team).map(|limit| format!("{limit} are used")).collect()
    }

    /// What all agents together have used in this run; the turns are the lead's.
    pub(super) fn used(&self) -> UsageCount {
        let seconds = self.began.elapsed().as_secs();
        UsageCount { turns: self.turns, seconds, ..self.everything().since(&self.before) }
    }

    /// What the team has used since its lead's conversation began.
    fn used_in_all(&self) -> UsageCount {
        let seconds = self.before.seconds.saturating_add(self.began.elapsed().as_secs());
        UsageCount { seconds, ..self.everything() }
    }

    /// What cannot be looked at counts as it was.
    fn everything(&self) -> UsageCount {
        // Who works keeps to the budgets by itself; this is for a team in which nobody asks any more.
        roster::read(&self.team).map_or(self.before, |roster| roster.used())
    }
}

/// Tasks that have failed.
pub(super) fn failed_tasks(tasks: &Tasks) -> Vec<TaskId> {
    let seen = tasks.look().inspect_err(|why| tracing::warn!(%why, "the tasks cannot be read"));
    let board = seen.map(|seen| seen.board).unwrap_or_default();
    board.values().filter(|task| task.status == TaskStatus::Failed).map(|task| task.id).collect()
}

/// Where work may still come from when nobody has any.
pub(super) enum Source {
    /// From nowhere.
    Mail,
    /// Idle teammates take tasks by themselves.
    Tasks(Arc<Tasks>),
}

impl Source {
    /// What cannot be looked at ends no run.
    fn is_dry(&self) -> bool {
        match self {
            Self::Mail => true,
            Self::Tasks(tasks) => !tasks.is_any_wanted().unwrap_or(true),
        }
    }
}

/// Nobody starts, works, waits or stops, nobody alive has mail that was not acted on, and nobody is
/// about to take a task.
pub(super) fn at_rest(team: &TeamDir, source: &Source) -> bool {
    let Ok(roster) = roster::read(team) else { return false };
    roster.lead.is_some() && awaited(team, &roster).next().is_none() && source.is_dry()
}

/// Who is awaited, what for and since when.
pub(super) fn awaited_words(team: &TeamDir, now: WallTime) -> String {
    let Ok(roster) = roster::read(team) else { return String::new() };
    let words = awaited(team, &roster).map(|Awaited { name, why, since }| {
        let since = now.since(since);
        format!("{name} ({why}, {})", age(since))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Somebody for whom a run goes on.
struct Awaited<'a> {
    name: &'a str,
    why: &'static str,
    since: WallTime,
}

fn awaited<'a>(team: &'a TeamDir, roster: &'a Roster) -> impl Iterator<Item = Awaited<'a>> {
    let lead = roster.lead.iter().filter_map(|lead| {
        let is_idle = lead.status == Status::Idle;
        let why = if !is_idle {
            lead.status.word()
        } else if has_unread(team, &AgentName::lead()) {
            UNREAD
        } else {
            return None;
        };
        Some(Awaited { name: "lead", why, since: lead.since })
    });
    let members = roster.members.iter().filter_map(|member| {
        let why = is_busy(team, member)?;
        Some(Awaited { name: &member.name, why, since: member.since })
    });
    lead.chain(members)
}

/// What cannot be looked at counts as unread: a run never ends on a guess.
fn has_unread(team: &TeamDir, name: &AgentName) -> bool {
    unread::is_unread(team, name).unwrap_or(true)
}

/// What somebody still has to do; `None` at rest.
fn is_busy(team: &TeamDir, member: &Member) -> Option<&'static str> {
    let name = AgentName::member(&member.name).ok()?;
    let life = liveness::probe(team, &name).unwrap_or(Liveness::Dead);
    // Its lead has yet to say what becomes of a teammate that has just died.
    let is_unsettled = !life.is_alive() && !member.status.is_over();
    if is_unsettled && member.started_by == StartedBy::Lead {
        return Some("has died");
    }
    let status = roster::effective_status(member, &life, &Liveness::Alive(None));
    if status == Status::Idle {
        has_unread(team, &name).then_some(UNREAD)
    } else {
        (!status.is_over()).then(|| status.word())
    }
}
