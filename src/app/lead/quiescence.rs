//! Whether a team is at rest, which is when a headless run is over.
//!
//! The decision is pure: [`assess`] goes through snapshots of the agents. They are read from the files one
//! after the other, so that a team at work costs little to look at; no model is asked.

use super::runtime::LeadRuntime;
use crate::store::{Liveness, TeamDir, liveness, roster, unread};
use crate::tasks::Tasks;
use crate::ui::roster::age;
use crate::wire::roster::{Member, Roster, StartedBy, Status};
use crate::wire::task::{TaskId, TaskStatus};
use crate::wire::{AgentName, WallTime};

/// One agent at the time of the check.
#[derive(Debug, Clone, PartialEq)]
struct AgentSnapshot {
    name: String,
    /// The status that counts: the roster's, corrected by the life lock.
    status: Status,
    /// When the status was written.
    since: WallTime,
    /// The inbox, or a claim that was not acted on, holds mail. Only looked at for idle agents.
    has_mail: bool,
    /// The process has exited, and its lead has not yet decided what becomes of it.
    is_unsettled: bool,
}

/// The reason why a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Busy(Status),
    UnreadMail,
    Unsettled,
}

/// The state of a team.
#[derive(Debug, Clone, PartialEq)]
enum Quiescence {
    AtRest,
    /// The first agent that still has something to do.
    WaitingForAgent(String, Wait),
    /// A teammate is about to claim a task.
    WaitingForTask,
    /// The roster cannot be read or has no lead: a run never ends on a guess.
    Unknown,
}

impl Wait {
    fn word(self) -> &'static str {
        match self {
            Self::Busy(status) => status.word(),
            Self::UnreadMail => "has unread mail",
            Self::Unsettled => "has died",
        }
    }
}

/// What an agent is waited for; `None` when it is at rest.
fn wait_for(agent: &AgentSnapshot) -> Option<Wait> {
    if agent.is_unsettled {
        return Some(Wait::Unsettled);
    }
    if agent.status == Status::Idle {
        agent.has_mail.then_some(Wait::UnreadMail)
    } else {
        (!agent.status.is_over()).then_some(Wait::Busy(agent.status))
    }
}

/// The team is at rest when no agent starts, works, waits or stops, no idle agent has mail, and no task
/// is claimable. Stops at the first reason to wait.
fn assess(
    mut agents: impl Iterator<Item = AgentSnapshot>,
    is_task_claimable: impl FnOnce() -> bool,
) -> Quiescence {
    let waiting = agents.find_map(|agent| wait_for(&agent).map(|wait| (agent.name, wait)));
    match waiting {
        Some((name, wait)) => Quiescence::WaitingForAgent(name, wait),
        None if is_task_claimable() => Quiescence::WaitingForTask,
        None => Quiescence::AtRest,
    }
}

/// Whether the team of this lead is at rest.
pub(super) fn is_at_rest(runtime: &LeadRuntime) -> bool {
    let team = runtime.team();
    let state = match roster::read(team) {
        Ok(roster) if roster.lead.is_some() => assess(snapshots(team, &roster), || {
            // An unreadable list counts as claimable: a run never ends on a guess.
            runtime.auto_claim && runtime.tasks.is_any_wanted().unwrap_or(true)
        }),
        Ok(_) | Err(_) => Quiescence::Unknown,
    };
    state == Quiescence::AtRest
}

/// Lists the agents that are waited for, with the reason and for how long.
pub(super) fn waiting_for(team: &TeamDir, now: WallTime) -> String {
    let Ok(roster) = roster::read(team) else { return String::new() };
    let words = snapshots(team, &roster).filter_map(|agent| {
        let wait = wait_for(&agent)?;
        Some(format!("{} ({}, {})", agent.name, wait.word(), age(now.since(agent.since))))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The lead, then the members, each read when it is asked for.
fn snapshots<'a>(
    team: &'a TeamDir,
    roster: &'a Roster,
) -> impl Iterator<Item = AgentSnapshot> + 'a {
    let lead = roster.lead.iter().map(|lead| AgentSnapshot {
        name: "lead".into(),
        // This process is the lead, so its status never means an exited process.
        status: if lead.status.is_over() { Status::Stopping } else { lead.status },
        since: lead.since,
        has_mail: lead.status == Status::Idle && has_mail(team, &AgentName::lead()),
        is_unsettled: false,
    });
    let members = roster.members.iter().filter_map(|member| member_snapshot(team, member));
    lead.chain(members)
}

fn member_snapshot(team: &TeamDir, member: &Member) -> Option<AgentSnapshot> {
    let name = AgentName::member(&member.name).ok()?;
    let life = liveness::probe(team, &name).unwrap_or(Liveness::Dead);
    let has_exited = !life.is_alive() && !member.status.is_over();
    let status = roster::effective_status(member, &life, &Liveness::Alive(None));
    Some(AgentSnapshot {
        is_unsettled: has_exited && member.started_by == StartedBy::Lead,
        has_mail: status == Status::Idle && has_mail(team, &name),
        name: member.name.clone(),
        status,
        since: member.since,
    })
}

/// An unreadable inbox counts as mail: a run never ends on a guess.
fn has_mail(team: &TeamDir, name: &AgentName) -> bool {
    unread::is_unread(team, name).unwrap_or(true)
}

/// Lists the tasks that have failed.
pub(super) fn failed_tasks(tasks: &Tasks) -> Vec<TaskId> {
    let seen = tasks.look().inspect_err(|why| tracing::warn!(%why, "the tasks cannot be read"));
    let board = seen.map(|seen| seen.board).unwrap_or_default();
    board.values().filter(|task| task.status == TaskStatus::Failed).map(|task| task.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUSES: [Status; 7] = [
        Status::Starting,
        Status::Idle,
        Status::Working,
        Status::Waiting,
        Status::Stopping,
        Status::Shutdown,
        Status::Failed,
    ];

    fn agent(status: Status, has_mail: bool, is_unsettled: bool) -> AgentSnapshot {
        AgentSnapshot {
            name: "alice".into(),
            status,
            since: WallTime::default(),
            has_mail,
            is_unsettled,
        }
    }

    /// Every status, with and without mail, of a process that the lead has and has not settled.
    #[test]
    fn an_agent_is_at_rest_when_it_is_idle_without_mail_or_has_ended() {
        for status in STATUSES {
            for has_mail in [false, true] {
                let ended = matches!(status, Status::Shutdown | Status::Failed);
                let rests = ended || (status == Status::Idle && !has_mail);
                let wait = wait_for(&agent(status, has_mail, false));
                assert_eq!(wait.is_none(), rests, "{status:?} {has_mail}");
                let unsettled = wait_for(&agent(status, has_mail, true));
                assert_eq!(unsettled, Some(Wait::Unsettled), "{status:?}");
            }
        }
    }

    #[test]
    fn the_first_reason_to_wait_is_reported() {
        let idle = || agent(Status::Idle, false, false);
        let busy = || AgentSnapshot { name: "bob".into(), ..agent(Status::Working, false, false) };
        let mail = || AgentSnapshot { name: "carol".into(), ..agent(Status::Idle, true, false) };
        let of = |agents: Vec<AgentSnapshot>, task| assess(agents.into_iter(), || task);
        assert_eq!(of(vec![idle(), idle()], false), Quiescence::AtRest);
        assert_eq!(of(vec![idle()], true), Quiescence::WaitingForTask);
        let waiting = |name: &str, wait| Quiescence::WaitingForAgent(name.into(), wait);
        assert_eq!(
            of(vec![idle(), busy(), mail()], true),
            waiting("bob", Wait::Busy(Status::Working))
        );
        assert_eq!(of(vec![idle(), mail()], false), waiting("carol", Wait::UnreadMail));
    }

    #[test]
    fn a_task_list_is_only_read_when_all_agents_rest() {
        let agents = [agent(Status::Working, false, false)];
        assess(agents.into_iter(), || panic!("the list was read"));
    }
}
