//! Whether a team is at rest, which is when a headless run is over.
//!
//! The decision is pure: [`wait_for`] judges a snapshot of an agent. They are read from the files one after the
//! other, so that a team at work costs little to look at; no model is asked.

use super::runtime::LeadRuntime;
use crate::store::{Liveness, TeamDir, liveness, roster, unread};
use crate::tasks::Tasks;
use crate::ui::roster::age;
use crate::wire::roster::{Member, Roster, StartedBy, Status};
use crate::wire::task::{TaskId, TaskStatus};
use crate::wire::{AgentName, WallTime};

/// One agent at the time of the check.
struct AgentSnapshot {
    name: String,
    /// The status that counts: the roster's, corrected by the life lock.
    status: Status,
    since: WallTime,
    /// The inbox, or a claim that was not acted on, holds mail. Only looked at for idle agents.
    has_mail: bool,
    /// The process has exited, and its lead has not yet decided what becomes of it.
    is_unsettled: bool,
}

/// What an agent is waited for, in words; `None` when it is at rest.
fn wait_for(agent: &AgentSnapshot) -> Option<&'static str> {
    if agent.is_unsettled {
        return Some("has died");
    }
    if agent.status == Status::Idle {
        return agent.has_mail.then_some("has unread mail");
    }
    (!agent.status.is_over()).then(|| agent.status.word())
}

/// Whether all agents rest and no task is claimable. Stops at the first reason to wait; the list is read last.
fn is_quiet(
    mut agents: impl Iterator<Item = AgentSnapshot>,
    is_task_claimable: impl FnOnce() -> bool,
) -> bool {
    agents.all(|agent| wait_for(&agent).is_none()) && !is_task_claimable()
}

/// A run never ends on a guess: an unreadable roster or one without a lead is busy, an unreadable list claimable.
pub(super) fn is_at_rest(runtime: &LeadRuntime) -> bool {
    let team = runtime.team();
    let is_claimable = || runtime.auto_claim && runtime.tasks.is_any_wanted().unwrap_or(true);
    roster::read(team).is_ok_and(|roster| {
        roster.lead.is_some() && is_quiet(snapshots(team, &roster), is_claimable)
    })
}

/// Lists the agents that are waited for, with the reason and for how long.
pub(super) fn waiting_for(team: &TeamDir, now: WallTime) -> String {
    let Ok(roster) = roster::read(team) else { return String::new() };
    let words = snapshots(team, &roster).filter_map(|agent| {
        let wait = wait_for(&agent)?;
        Some(format!("{} ({wait}, {})", agent.name, age(now.since(agent.since))))
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

pub(super) fn failed_tasks(tasks: &Tasks) -> Vec<TaskId> {
    let seen = tasks.look().inspect_err(|why| tracing::warn!(%why, "the tasks cannot be read"));
    let board = seen.map(|seen| seen.board).unwrap_or_default();
    board.values().filter(|task| task.status == TaskStatus::Failed).map(|task| task.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(status: Status, has_mail: bool, is_unsettled: bool) -> AgentSnapshot {
        let (name, since) = ("alice".into(), WallTime::default());
        AgentSnapshot { name, status, since, has_mail, is_unsettled }
    }

    /// Every status, with and without mail, of a process that the lead has and has not settled.
    #[test]
    fn an_agent_is_at_rest_when_it_is_idle_without_mail_or_has_ended() {
        for status in Status::ALL {
            for has_mail in [false, true] {
                let wanted = match status {
                    Status::Shutdown | Status::Failed => None,
                    Status::Idle => has_mail.then_some("has unread mail"),
                    Status::Starting | Status::Working | Status::Waiting | Status::Stopping => {
                        Some(status.word())
                    }
                };
                let wait = wait_for(&agent(status, has_mail, false));
                assert_eq!(wait, wanted, "{status:?} {has_mail}");
                let unsettled = wait_for(&agent(status, has_mail, true));
                assert_eq!(unsettled, Some("has died"), "{status:?}");
            }
        }
    }

    #[test]
    fn a_team_is_at_rest_when_all_agents_are_and_no_task_is_claimable() {
        let idle = || agent(Status::Idle, false, false);
        let of = |agents: Vec<AgentSnapshot>, task| is_quiet(agents.into_iter(), || task);
        assert!(of(vec![idle(), idle()], false));
        assert!(!of(vec![idle()], true), "a teammate is about to claim a task");
        for busy in [agent(Status::Working, false, false), agent(Status::Idle, true, false)] {
            assert!(!of(vec![idle(), busy], false));
        }
    }

    #[test]
    fn agents_and_tasks_are_only_read_up_to_the_first_reason_to_wait() {
        let mut busy = [agent(Status::Working, false, false)].into_iter();
        let mut left = || Some(busy.next().expect("one agent too many was read"));
        assert!(!is_quiet(std::iter::from_fn(&mut left), || panic!("the list was read")));
    }
}
