//! Checks whether a team is at rest, which ends a headless run.
//!
//! The decision about one agent is pure ([`wait_for`]). Agents are read from the files one after the other, up to
//! the first reason to wait, so that the check of a busy team is cheap. No model is asked.

use super::runtime::LeadRuntime;
use crate::os::{Clock, SystemClock, local_time};
use crate::store::relay::{self, KnownHost};
use crate::store::timers::MemberTimers;
use crate::store::{Liveness, TeamDir, background, liveness, roster, unread};
use crate::tasks::Tasks;
use crate::timers::{self, when_in_words};
use crate::ui::roster::age;
use crate::wire::activity::Activity;
use crate::wire::background::BackgroundCommand;
use crate::wire::limits::DEFAULT_LEAD_AWAY;
use crate::wire::roster::{Member, Roster, StartedBy, Status};
use crate::wire::task::{Task, TaskId, TaskStatus};
use crate::wire::{AgentName, WallTime};
use std::time::{Duration, Instant};

/// The longest time for which a run without `--timeout` waits for a reminder.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The time for which nothing must have changed for the members of other hosts: more than the period in which their hosts count
/// the mail that waits, and in whole seconds of the file system.
const HOSTS_QUIET_FOR: Duration = Duration::from_secs(4);

/// The number of timers that the end of a run lists.
const MOST_TOLD: usize = 5;

struct AgentSnapshot {
    name: String,
    since: WallTime,
    /// The reason to wait for the agent, in words; `None` when it is at rest.
    wait: Option<&'static str>,
    /// The reason for which its model call is late or is tried again.
    late: Option<String>,
}

/// Returns the reason to wait for an agent. An unsettled one has exited, and the lead has not handled its end yet. A
/// background command counts before the mail: its end is mail.
fn wait_for(
    status: Status,
    has_command: impl FnOnce() -> bool,
    has_mail: impl FnOnce() -> bool,
    is_unsettled: bool,
) -> Option<&'static str> {
    if is_unsettled {
        return Some("has exited");
    }
    if status == Status::Idle {
        if has_command() {
            return Some("runs a command in the background");
        }
        return has_mail().then_some("has unread mail");
    }
    (!status.is_over()).then(|| status.word())
}

/// Whether all agents are at rest and no task is claimable. Stops at the first reason to wait; reads the tasks last.
fn is_quiet(
    mut agents: impl Iterator<Item = AgentSnapshot>,
    is_task_claimable: impl FnOnce() -> bool,
) -> bool {
    agents.all(|agent| agent.wait.is_none()) && !is_task_claimable()
}

/// Whether the team is at rest. A run never ends on a guess: an unreadable roster or one without a lead counts as
/// busy, an unreadable task list as claimable.
///
/// A reminder that comes once, until `until`, is work that waits; one that repeats would keep a run for ever.
pub(super) fn is_at_rest(runtime: &LeadRuntime, until: WallTime) -> bool {
    let is_claimable = || runtime.auto_claim && runtime.tasks.is_any_wanted().unwrap_or(true);
    is_team_at_rest(runtime.team(), until, is_claimable)
}

/// Whether the team is at rest by a roster that did not change during the check. An agent that drained its mail
/// during the check has no unread mail, but its status has changed.
fn is_team_at_rest(
    team: &TeamDir,
    until: WallTime,
    is_task_claimable: impl FnOnce() -> bool,
) -> bool {
    roster::read(team).is_ok_and(|roster| {
        // A reminder is sent before its timer ends, so the mail is looked at after the timers.
        roster.lead.is_some()
            && awaited_reminders(team, until).is_empty()
            && are_other_hosts_quiet(team, &roster)
            && is_quiet(snapshots(team, &roster), is_task_claimable)
            && roster::read(team).is_ok_and(|now| now == roster)
    })
}

/// Whether a host has been away for so long that nobody waits for its members: it ends those that a lead has started by itself.
fn is_long_away(away_since: Option<WallTime>) -> bool {
    away_since.is_some_and(|since| SystemClock.now().since(since) > DEFAULT_LEAD_AWAY)
}

/// Whether nothing has come from other hosts, or gone there, for so long that no mail is on its way to their members, nor word of
/// what they do. What cannot be read counts as busy.
fn are_other_hosts_quiet(team: &TeamDir, roster: &Roster) -> bool {
    let mut alive = roster.members.iter().filter(|member| member.alive == Some(true));
    if alive.all(|member| is_long_away(member.away_since)) {
        return true;
    }
    let now = SystemClock.now();
    let known = relay::known_hosts(team).unwrap_or_default();
    let may_wait = |host: &KnownHost| host.is_given_up || is_long_away(host.away_since);
    known.iter().all(|host| host.waiting == 0 || may_wait(host))
        && relay::last_change(team).is_ok_and(|changed| now.since(changed) > HOSTS_QUIET_FOR)
}

/// Returns the time until which a run with this deadline waits for reminders.
pub(super) fn reminders_until(deadline: Option<Instant>) -> WallTime {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    SystemClock.now() + left.unwrap_or(LONGEST_WAIT)
}

/// Returns the next reminder of each member that runs, if it comes once and until `until`.
fn awaited_reminders(team: &TeamDir, until: WallTime) -> Vec<(AgentName, WallTime)> {
    // A file that cannot be read sends no reminder.
    let Ok(all) = timers::of_all(team) else { return Vec::new() };
    let runs = |name: &AgentName| {
        name.is_lead() || liveness::probe(team, name).is_ok_and(|liveness| liveness.is_alive())
    };
    let next = |member: MemberTimers| {
        let mut once = member.timers.iter().filter(|timer| timer.every_s.is_none());
        let due = once.next().map(|timer| timer.due).filter(|due| *due <= until)?;
        runs(&member.owner).then_some((member.owner, due))
    };
    all.members.into_iter().filter_map(next).collect()
}

/// Returns the open timers in one line; `None` if there is none.
pub(super) fn timers_left(team: &TeamDir) -> Option<String> {
    let all = timers::of_all(team).unwrap_or_default();
    let timers = all.members.iter().flat_map(|member| member.timers.iter());
    let words = timers
        .clone()
        .take(MOST_TOLD)
        .map(|timer| format!("{} ({})", timer.id, when_in_words(timer)));
    let words: Vec<String> = words.collect();
    let others = match timers.count().saturating_sub(MOST_TOLD) {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    (!words.is_empty()).then(|| words.join(", ") + &others)
}

pub(super) fn waiting_for(team: &TeamDir, now: WallTime, until: WallTime) -> String {
    let Ok(roster) = roster::read(team) else { return String::new() };
    let reminders = awaited_reminders(team, until).into_iter();
    let reminders =
        reminders.map(|(name, due)| format!("{name} (a reminder at {})", local_time(due)));
    let words = snapshots(team, &roster).filter_map(|agent| {
        let late = agent.late.map(|why| format!("; {why}; trying again")).unwrap_or_default();
        let age = age(now.since(agent.since));
        Some(format!("{} ({}, {age}{late})", agent.name, agent.wait?))
    });
    words.chain(reminders).collect::<Vec<_>>().join(", ")
}

/// Returns the lead, then the members. Each one is read when the iterator reaches it.
fn snapshots(team: &TeamDir, roster: &Roster) -> impl Iterator<Item = AgentSnapshot> {
    let lead = roster.lead.iter().map(|lead| {
        // This process is the lead, so its status never means an exited process.
        let status = if lead.status.is_over() { Status::Stopping } else { lead.status };
        let name = AgentName::lead();
        let wait = wait_for(status, || has_command(team, &name), || has_mail(team, &name), false);
        let late = retry_of(lead.activity.as_ref());
        AgentSnapshot { name: "lead".into(), since: lead.since, wait, late }
    });
    let members = roster.members.iter().filter_map(|member| member_snapshot(team, member));
    lead.chain(members)
}

fn member_snapshot(team: &TeamDir, member: &Member) -> Option<AgentSnapshot> {
    let name = AgentName::member(&member.name).ok()?;
    let liveness = liveness::probe(team, &name).unwrap_or(Liveness::Dead);
    let has_exited = !liveness.is_alive() && !member.status.is_over();
    let status = roster::effective_status(member, &liveness, &Liveness::Alive(None));
    // The supervisor of another host writes into the entry that its process has ended.
    let is_own = member.started_by == StartedBy::Lead && member.host.is_none();
    let is_unsettled = has_exited && is_own;
    let wait =
        wait_for(status, || has_command(team, &name), || has_mail(team, &name), is_unsettled);
    let wait = wait.filter(|_| !is_long_away(member.away_since));
    let late = retry_of(member.activity.as_ref());
    Some(AgentSnapshot { name: member.name.clone(), since: member.since, wait, late })
}

/// Returns the reason for which an agent's model call is late or is tried again.
pub(super) fn retry_of(activity: Option<&Activity>) -> Option<String> {
    if let Some(Activity::Retrying(why)) = activity { Some(why.clone()) } else { None }
}

/// Whether the end of a background command is still to wake an agent, which is alive. A command without a time limit, such
/// as a server, keeps no run going.
fn has_command(team: &TeamDir, name: &AgentName) -> bool {
    let list = background::read(team, name).unwrap_or_default();
    list.commands.iter().any(BackgroundCommand::will_wake)
}

/// Whether an agent has unread mail. An unreadable inbox counts as mail: a run never ends on a guess.
fn has_mail(team: &TeamDir, name: &AgentName) -> bool {
    unread::is_unread(team, name).unwrap_or(true)
}

pub(super) fn failed_tasks(tasks: &Tasks) -> Vec<TaskId> {
    select_tasks(tasks, |task| task.status == TaskStatus::Failed)
}

/// Returns the open tasks of the team, except those of `user`. With a time, only those that changed since then.
pub(super) fn open_tasks(tasks: &Tasks, changed_since: Option<WallTime>) -> Vec<TaskId> {
    select_tasks(tasks, |task| {
        !task.status.is_over()
            && task.owner.as_deref() != Some(AgentName::user().as_str())
            && changed_since.is_none_or(|since| task.updated_at >= since)
    })
}

fn select_tasks(tasks: &Tasks, wanted: impl Fn(&Task) -> bool) -> Vec<TaskId> {
    let seen = tasks.snapshot().inspect_err(|why| tracing::warn!(%why, "the tasks cannot be read"));
    let board = seen.map(|seen| seen.board).unwrap_or_default();
    board.values().filter(|task| wanted(task)).map(|task| task.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Fsync;
    use crate::store::timers::change;
    use crate::wire::roster::Lead;
    use crate::wire::timer::Timer;

    /// Tests every status, with and without mail, of a settled and of an unsettled agent.
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
                let wait = |is_unsettled| wait_for(status, || false, || has_mail, is_unsettled);
                let with_command = wait_for(status, || true, || has_mail, false);
                let is_idle = status == Status::Idle;
                assert_eq!(with_command.is_some_and(|why| why.contains("command")), is_idle);
                assert_eq!(wait(false), wanted, "{status:?} {has_mail}");
                assert_eq!(wait(true), Some("has exited"), "{status:?} {has_mail}");
            }
        }
    }

    /// Agents and tasks are only read up to the first reason to wait.
    #[test]
    fn a_team_is_at_rest_when_all_agents_are_and_no_task_is_claimable() {
        let of = |waits: &[Option<&'static str>], claimable: fn() -> bool| {
            let agent =
                |&wait| AgentSnapshot { name: String::new(), since: 0.0.into(), wait, late: None };
            let mut agents = waits.iter().map(agent);
            let is_quiet = is_quiet(&mut agents, claimable);
            (is_quiet, agents.len())
        };
        assert_eq!(of(&[None, None], || false), (true, 0));
        assert_eq!(of(&[None], || true), (false, 0), "a teammate is about to claim a task");
        let unread = of(&[None, Some("working"), None], || panic!("the list was read"));
        assert_eq!(unread, (false, 1), "one agent too many was read");
    }

    #[test]
    fn a_team_whose_roster_changes_during_the_look_is_not_at_rest() {
        let (_folder, team) = crate::store::test_team();
        let until = WallTime::from_secs(100.0);
        let set = |status| {
            let lead = Lead { name: "lead".into(), status, ..Lead::default() };
            roster::update(&team, Fsync::Never, |roster| roster.lead = Some(lead.into())).unwrap();
        };
        assert!(!is_team_at_rest(&team, until, || false), "without a lead");
        set(Status::Idle);
        assert!(is_team_at_rest(&team, until, || false));
        let turns_to_work = || {
            set(Status::Working);
            false
        };
        assert!(!is_team_at_rest(&team, until, turns_to_work));
    }

    #[test]
    fn a_run_waits_for_a_member_of_a_host_that_is_away_but_not_for_ever() {
        let (_folder, team) = crate::store::test_team();
        let lead = Lead { name: "lead".into(), status: Status::Idle, ..Lead::default() };
        roster::update(&team, Fsync::Never, |roster| roster.lead = Some(lead.into())).unwrap();
        let is_at_rest = |away_for: u64| {
            let since = SystemClock.now() - Duration::from_secs(away_for);
            roster::update(&team, Fsync::Never, |roster| {
                let carol = roster.enter("carol", 1.0);
                (carol.status, carol.alive) = (Status::Working, Some(true));
                (carol.host, carol.away_since) = (Some("gpu1".into()), Some(since));
            })
            .unwrap();
            is_team_at_rest(&team, WallTime::from_secs(100.0), || false)
        };
        assert!(!is_at_rest(60), "it may come back");
        assert!(is_at_rest(DEFAULT_LEAD_AWAY.as_secs() + 1));
    }

    #[test]
    fn a_reminder_that_comes_once_within_the_run_is_waited_for() {
        let (_folder, team) = crate::store::test_team();
        let lead = Lead { name: "lead".into(), status: Status::Idle, ..Lead::default() };
        roster::update(&team, Fsync::Never, |roster| roster.lead = Some(lead.into())).unwrap();
        let until = WallTime::from_secs(100.0);
        let put = |name: &AgentName, due: f64, every_s| {
            let timer = Timer { id: "x-1".into(), due: due.into(), every_s, ..Timer::default() };
            change(&team, name, Fsync::Never, |list| list.timers = vec![timer.into()]).unwrap();
        };
        let is_at_rest = || is_team_at_rest(&team, until, || false);
        let (lead, alice) = (AgentName::lead(), AgentName::member("alice").unwrap());
        put(&alice, 50.0, None);
        assert!(is_at_rest(), "alice does not run");
        put(&lead, 50.0, Some(60));
        assert!(is_at_rest(), "it repeats");
        put(&lead, 101.0, None);
        assert!(is_at_rest(), "it comes after the run");
        put(&lead, 100.0, None);
        assert!(!is_at_rest());
        let words = waiting_for(&team, 0.0.into(), until);
        assert!(words.starts_with("lead (a reminder at "), "{words}");
        assert!(timers_left(&team).unwrap().starts_with("x-1 ("));
    }
}
