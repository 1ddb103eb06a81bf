//! Whether the team is at rest, and whether a run has used up what it was given. Both are read from
//! the files; no model is asked.

use super::{Reason, RunLimits};
use crate::store::{Life, TeamDir, life, peek, roster};
use crate::tasks::Tasks;
use crate::wire::AgentName;
use crate::wire::roster::{Roster, StartedBy, Status, UsageCount};
use crate::wire::task::{TaskId, TaskStatus};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Watches the limits of one run.
pub(super) struct Watchdog {
    team: TeamDir,
    limits: RunLimits,
    /// What everybody had used before this run.
    before: BTreeMap<String, UsageCount>,
    turns: u64,
}

impl Watchdog {
    /// Begins to count.
    pub(super) fn new(team: TeamDir, limits: RunLimits) -> Self {
        let roster = roster::read(&team).unwrap_or_default();
        let lead = roster.lead.iter().map(|lead| (lead.name.clone(), lead.usage));
        let members = roster.members.iter().map(|member| (member.name.clone(), member.usage));
        let before = lead.chain(members).collect();
        Self { team, limits, before, turns: 0 }
    }

    /// A turn of the lead is over.
    pub(super) fn turn_ended(&mut self) {
        self.turns = self.turns.saturating_add(1);
    }

    /// Turns of the lead so far.
    pub(super) fn turns(&self) -> u64 {
        self.turns
    }

    /// A turn of the lead begins: is it one too many?
    pub(super) fn turn_begins(&self) -> Option<Reason> {
        let spent = self.limits.max_turns.is_some_and(|most| self.turns >= most);
        spent.then_some(Reason::Budget)
    }

    /// Has the team used too many tokens?
    pub(super) fn tokens_spent(&self) -> Option<Reason> {
        let most = self.limits.max_tokens?;
        let used = self.used();
        (used.input_tokens.saturating_add(used.output_tokens) >= most).then_some(Reason::Budget)
    }

    /// What all agents together have used in this run; the turns are the lead's.
    pub(super) fn used(&self) -> UsageCount {
        let Ok(roster) = roster::read(&self.team) else { return UsageCount::default() };
        let mut used = UsageCount::default();
        let lead = roster.lead.iter().map(|lead| (&lead.name, lead.usage));
        let members = roster.members.iter().map(|member| (&member.name, member.usage));
        for (name, now) in lead.chain(members) {
            let before = self.before.get(name).copied().unwrap_or_default();
            let input = now.input_tokens.saturating_sub(before.input_tokens);
            let output = now.output_tokens.saturating_sub(before.output_tokens);
            used.input_tokens = used.input_tokens.saturating_add(input);
            used.output_tokens = used.output_tokens.saturating_add(output);
            if name == "lead" {
                used.turns = now.turns.saturating_sub(before.turns);
            }
        }
        used
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
    let lead_rests = roster.lead.as_ref().is_some_and(|lead| lead.status == Status::Idle);
    lead_rests
        && !has_unread(team, &AgentName::lead())
        && members_rest(team, &roster)
        && source.is_dry()
}

/// What cannot be looked at counts as unread: a run never ends on a guess.
fn has_unread(team: &TeamDir, name: &AgentName) -> bool {
    peek::is_unread(team, name).unwrap_or(true)
}

fn members_rest(team: &TeamDir, roster: &Roster) -> bool {
    roster.members.iter().all(|member| {
        let Ok(name) = AgentName::member(&member.name) else { return true };
        let life = life::probe(team, &name).unwrap_or(Life::Dead);
        // Its lead has yet to say what becomes of a teammate that has just died.
        let is_unsettled = !life.is_alive() && !member.status.is_over();
        if is_unsettled && member.started_by == StartedBy::Lead {
            return false;
        }
        match roster::effective_status(member, &life, &Life::Alive(None)) {
            Status::Idle => !has_unread(team, &name),
            Status::Shutdown | Status::Failed => true,
            Status::Starting | Status::Working | Status::Waiting | Status::Stopping => false,
        }
    })
}
