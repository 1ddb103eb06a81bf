//! Changes that the lead, or `team stop`, makes to a member's entry on the roster.
//!
//! Each takes the roster as it is under its lock and applies one event of `protocol::lifecycle`; a pair
//! that the table refuses leaves the entry unchanged.

use crate::bus::Bus;
use crate::os::file::At;
use crate::protocol::lifecycle::{self, IllegalTransition, LifecycleEvent};
use crate::protocol::restart::ProcessEnd;
use crate::store::{StoreError, roster};
use crate::wire::activity::Activity;
use crate::wire::roster::{ExitCause, LastExit, Member, Roster, StartedBy, Status};
use crate::wire::{AgentName, WallTime, WithUnknownFields};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Changes the roster beside the event loop: the holder of its lock may be a stopped process.
pub(super) async fn write<R: Send + 'static>(
    bus: &Arc<Bus>,
    change: impl FnOnce(&mut WithUnknownFields<Roster>) -> R + Send + 'static,
) -> Result<R, StoreError> {
    let bus = Arc::clone(bus);
    let path = bus.dir().config();
    let write = move || roster::update(bus.dir(), bus.fsync(), change);
    let written = tokio::task::spawn_blocking(write).await;
    written.map_err(io::Error::other).at(&path)?
}

/// A life that is about to start, as its entry says it.
#[derive(Debug, Clone)]
pub(super) struct NewLife {
    pub(super) name: AgentName,
    pub(super) incarnation: String,
    pub(super) role: String,
    pub(super) model: String,
    pub(super) mode: &'static str,
    pub(super) cwd: String,
    /// The life that it follows, which must still be expected back.
    pub(super) after: Option<String>,
    /// It counts as a restart.
    pub(super) is_restart: bool,
}

/// Enters a new life. Returns the entry that the name had before; `Err` if the life before is not expected
/// back any more.
pub(super) fn reserve(
    roster: &mut Roster,
    new: NewLife,
    now: WallTime,
) -> Result<Option<WithUnknownFields<Member>>, StartCancelled> {
    let before = roster.member(new.name.as_str()).cloned();
    if let Some(after) = &new.after
        && !before.as_ref().is_some_and(|member| is_expected_back(member, after))
    {
        return Err(StartCancelled);
    }
    let member = roster.enter(new.name.as_str(), now);
    lifecycle::apply_spawned(&mut member.status).map_err(|_| StartCancelled)?;
    member.restarts = member.restarts.saturating_add(u32::from(new.is_restart));
    (member.activity, member.since, member.pid) = (None, now, None);
    (member.incarnation, member.role) = (new.incarnation, new.role);
    (member.model, member.mode) = (new.model, new.mode.into());
    (member.cwd, member.started_by) = (new.cwd, StartedBy::Lead);
    Ok(before)
}

/// The start is not wanted any more, or the name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartCancelled;

/// Whether this was the last life of the member, and nothing has cancelled its restart.
pub(super) fn is_expected_back(member: &Member, life: &str) -> bool {
    member.incarnation == life && member.status == Status::Starting
}

/// The result of [`undo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undone {
    /// The entry of the new name was removed.
    Removed,
    /// The entry of the life before is back.
    Restored,
    /// The entry stays: another life owns it, or the member was stopped.
    Kept,
}

/// Undoes [`reserve`] after a failed start: a new name leaves no entry, a known one gets its entry back.
pub(super) fn undo(
    roster: &mut Roster,
    name: &AgentName,
    incarnation: &str,
    before: Option<WithUnknownFields<Member>>,
    now: WallTime,
) -> Undone {
    let is_ours =
        |member: &Member| member.name == name.as_str() && member.incarnation == incarnation;
    let Some(at) = roster.members.iter().position(|member| is_ours(member)) else {
        return Undone::Kept;
    };
    let Some(member) = roster.members.get_mut(at) else { return Undone::Kept };
    let Some(before) = before else {
        if lifecycle::next(Some(member.status), LifecycleEvent::Removed) != Ok(None) {
            return Undone::Kept;
        }
        roster.members.remove(at);
        return Undone::Removed;
    };
    if lifecycle::apply(&mut member.status, LifecycleEvent::SpawnFailed).is_err() {
        return Undone::Kept;
    }
    let exit = LastExit { code: None, signal: None, cause: ExitCause::Error, at: now };
    **member = Member {
        status: member.status,
        role: std::mem::take(&mut member.role),
        restarts: member.restarts,
        since: now,
        last_exit: Some(exit),
        ..Member::clone(&before)
    };
    Undone::Restored
}

/// Marks a member, or the lead, as stopping: only control mail reaches it from now on. Returns the status
/// that it had; `None` if its entry is over, missing or another life's.
pub(super) fn stop_asked(
    roster: &mut Roster,
    name: &AgentName,
    incarnation: &str,
    now: WallTime,
) -> Option<Status> {
    let event = LifecycleEvent::StopAsked;
    if name.is_lead() {
        let lead = roster.lead.as_mut()?;
        return lifecycle::apply(&mut lead.status, event).ok();
    }
    let member = roster.member_mut(name.as_str()).filter(|m| m.incarnation == incarnation)?;
    let before = lifecycle::apply(&mut member.status, event).ok()?;
    member.since = now;
    Some(before)
}

/// The end of a member, as the stopping process saw it.
pub(super) struct ConfirmedStop {
    pub(super) name: AgentName,
    pub(super) incarnation: String,
    pub(super) was_killed: bool,
    pub(super) cause: ExitCause,
    pub(super) now: WallTime,
}

/// Records that a stopped process has ended. What the member recorded of its own end stays, except for the
/// cause. It recorded something if its status is over; times cannot tell, because a clock may have been set
/// back meanwhile.
pub(super) fn stop_confirmed(roster: &mut Roster, stop: &ConfirmedStop) {
    let event = LifecycleEvent::StopConfirmed;
    if stop.name.is_lead() {
        if let Some(lead) = roster.lead.as_mut()
            && lifecycle::apply(&mut lead.status, event).is_ok()
        {
            lead.activity = None;
        }
        return;
    }
    let member = roster.member_mut(stop.name.as_str());
    let Some(member) = member.filter(|member| member.incarnation == stop.incarnation) else {
        return;
    };
    let is_told = member.status.is_over() && !stop.was_killed;
    let own = member.last_exit.clone().filter(|_| is_told);
    let (code, signal, at) = match own {
        Some(exit) => (exit.code, exit.signal, exit.at),
        None => (None, stop.was_killed.then_some(9), stop.now),
    };
    let exit = LastExit { code, signal, cause: stop.cause, at };
    let _refused = end(member, event, exit, stop.now);
}

/// Records that a member will not be started. Returns whether it was about to be.
pub(super) fn start_cancelled(
    roster: &mut Roster,
    name: &AgentName,
    cause: ExitCause,
    now: WallTime,
) -> bool {
    let Some(member) = roster.member_mut(name.as_str()) else { return false };
    let before = member.last_exit.as_ref();
    let (code, signal) = before.map_or((None, None), |exit| (exit.code, exit.signal));
    let exit = LastExit { code, signal, cause, at: now };
    end(member, LifecycleEvent::StartCancelled, exit, now).is_ok()
}

/// Records that the life lock of a member is free although the roster shows no end. Returns whether it did
/// show none.
pub(super) fn found_dead(
    roster: &mut Roster,
    name: &AgentName,
    incarnation: &str,
    now: WallTime,
) -> bool {
    let member = roster.member_mut(name.as_str());
    let Some(member) = member.filter(|m| m.incarnation == incarnation && !m.status.is_over())
    else {
        return false;
    };
    let exit = LastExit { code: None, signal: None, cause: ExitCause::Crash, at: now };
    end(member, LifecycleEvent::FoundDead, exit, now).is_ok()
}

/// Records that a process ended without a stop by this lead. What the member recorded of its own end stays.
pub(super) fn exited(
    member: &mut Member,
    process_end: ProcessEnd,
    will_restart: bool,
    now: WallTime,
) -> ExitCause {
    let is_hung = process_end == ProcessEnd::Hung;
    let in_order = member.status == Status::Stopping || member.status == Status::Shutdown;
    let told = member.last_exit.clone().filter(|_| member.status.is_over() && !is_hung);
    let (code, signal) = match process_end {
        ProcessEnd::Code(code) => (Some(code), None),
        ProcessEnd::Signal(signal) => (None, Some(signal)),
        ProcessEnd::Hung | ProcessEnd::NotStarted => (None, None),
    };
    let exit = told.unwrap_or_else(|| {
        let cause = if in_order && !is_hung { ExitCause::Stopped } else { cause_of(process_end) };
        LastExit { code, signal, cause, at: now }
    });
    let cause = exit.cause;
    let event = match (will_restart, is_hung) {
        (true, _) => LifecycleEvent::RestartPlanned,
        (false, true) => LifecycleEvent::KilledAsHung,
        (false, false) => LifecycleEvent::Exited,
    };
    if end(member, event, exit, now).is_ok() && will_restart {
        member.activity = Some(Activity::Restarting);
    }
    cause
}

/// Returns the cause that is recorded for an end that the member did not record itself.
pub(super) fn cause_of(end: ProcessEnd) -> ExitCause {
    match end {
        ProcessEnd::Code(_) | ProcessEnd::Signal(_) => ExitCause::Crash,
        ProcessEnd::Hung => ExitCause::Hung,
        ProcessEnd::NotStarted => ExitCause::Error,
    }
}

/// Marks ended members as expected back. Returns their last lives; members that have not ended are left out.
pub(super) fn resumed(
    roster: &mut Roster,
    names: &[AgentName],
    now: WallTime,
) -> BTreeMap<AgentName, String> {
    let mut lives = BTreeMap::new();
    for name in names {
        let Some(member) = roster.member_mut(name.as_str()) else { continue };
        if lifecycle::apply(&mut member.status, LifecycleEvent::Resumed).is_ok() {
            member.since = now;
            lives.insert(name.clone(), member.incarnation.clone());
        }
    }
    lives
}

/// Applies an event after which the entry has no process.
fn end(
    member: &mut Member,
    event: LifecycleEvent,
    exit: LastExit,
    now: WallTime,
) -> Result<(), IllegalTransition> {
    lifecycle::apply(&mut member.status, event)?;
    (member.activity, member.pid, member.since) = (None, None, now);
    member.last_exit = Some(exit);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bob() -> AgentName {
        AgentName::member("bob").unwrap()
    }

    fn roster_of(member: Member) -> Roster {
        let member = Member { name: "bob".into(), ..member };
        Roster { members: vec![member.into()], ..Roster::default() }
    }

    fn exit(cause: ExitCause) -> LastExit {
        LastExit { code: Some(3), signal: None, cause, at: 100.0.into() }
    }

    /// The exit that is recorded after a stop; an earlier life's stands in the entry.
    fn after_stop(status: Status, was_killed: bool) -> LastExit {
        let last_exit = Some(exit(ExitCause::Crash));
        let mut roster = roster_of(Member { status, last_exit, ..Member::default() });
        let (incarnation, cause) = (String::new(), ExitCause::Stopped);
        // The clock was set back: the end that the member recorded lies in the future.
        let stop = ConfirmedStop { name: bob(), incarnation, was_killed, cause, now: 7.0.into() };
        stop_confirmed(&mut roster, &stop);
        let member = roster.members.pop().unwrap();
        assert_eq!((member.status, member.since), (Status::Shutdown, 7.0.into()));
        member.last_exit.clone().unwrap()
    }

    #[test]
    fn an_end_that_the_member_recorded_stays_whatever_the_clock_says() {
        let own = after_stop(Status::Shutdown, false);
        assert_eq!((own.code, own.signal, own.at), (Some(3), None, 100.0.into()));
        assert_eq!(own.cause, ExitCause::Stopped, "the stopping process knows the cause");
        let silent = after_stop(Status::Stopping, false);
        assert_eq!((silent.code, silent.signal, silent.at), (None, None, 7.0.into()));
        let killed = after_stop(Status::Shutdown, true);
        assert_eq!((killed.code, killed.signal, killed.at), (None, Some(9), 7.0.into()));
    }

    #[test]
    fn an_exit_is_recorded_with_its_cause_and_the_status_that_follows() {
        use ExitCause::{Crash, Error, Hung, Stopped};
        use Status::{Failed, Idle, Shutdown, Starting, Stopping, Working};
        let (killed, left) = (ProcessEnd::Signal(9), ProcessEnd::Code(0));
        let cases = [
            (Working, None, killed, false, Failed, Crash),
            (Working, None, killed, true, Starting, Crash),
            (Idle, None, ProcessEnd::Hung, true, Starting, Hung),
            // A hung process that ends in order on SIGTERM counts as hung.
            (Shutdown, Some(Stopped), ProcessEnd::Hung, true, Starting, Hung),
            (Shutdown, Some(Stopped), ProcessEnd::Hung, false, Failed, Hung),
            (Shutdown, Some(Stopped), left, false, Shutdown, Stopped),
            (Failed, Some(Error), ProcessEnd::Code(1), true, Starting, Error),
            (Failed, Some(Error), ProcessEnd::Code(1), false, Failed, Error),
            (Stopping, None, killed, false, Shutdown, Stopped),
            // The recorded exit belongs to an earlier life.
            (Working, Some(Stopped), killed, false, Failed, Crash),
        ];
        for (status, told, process_end, will_restart, becomes, cause) in cases {
            let (last_exit, activity) = (told.map(exit), Some(Activity::Model));
            let mut member =
                Member { status, last_exit, activity, pid: Some(7), ..Member::default() };
            assert_eq!(exited(&mut member, process_end, will_restart, 2.0.into()), cause);
            assert_eq!(
                (member.status, member.pid, member.since),
                (becomes, None, 2.0.into()),
                "{status:?}"
            );
            assert_eq!(member.last_exit.unwrap().cause, cause);
            assert_eq!(member.activity, will_restart.then_some(Activity::Restarting));
        }
    }

    fn new_life(after: Option<&str>) -> NewLife {
        NewLife {
            name: bob(),
            incarnation: "b2".into(),
            role: "tester".into(),
            model: "p/m".into(),
            mode: "default",
            cwd: "/w".into(),
            after: after.map(Into::into),
            is_restart: after.is_some(),
        }
    }

    #[test]
    fn a_failed_start_of_a_new_name_leaves_no_entry() {
        let mut roster = Roster::default();
        assert_eq!(reserve(&mut roster, new_life(None), 1.0.into()), Ok(None));
        assert_eq!(roster.members[0].status, Status::Starting);
        assert_eq!(undo(&mut roster, &bob(), "b1", None, 2.0.into()), Undone::Kept, "another life");
        assert_eq!(undo(&mut roster, &bob(), "b2", None, 2.0.into()), Undone::Removed);
        assert!(roster.members.is_empty());
    }

    #[test]
    fn a_failed_start_of_a_known_name_restores_its_entry_as_failed() {
        let (incarnation, role) = ("b1".to_owned(), "coder".to_owned());
        let mut roster = roster_of(Member {
            status: Status::Shutdown,
            incarnation,
            role,
            pid: Some(5),
            last_exit: Some(exit(ExitCause::TeamStopped)),
            ..Member::default()
        });
        let before = reserve(&mut roster, new_life(None), 1.0.into()).unwrap();
        assert_eq!((roster.members[0].status, roster.members[0].pid), (Status::Starting, None));
        assert_eq!(undo(&mut roster, &bob(), "b2", before, 2.0.into()), Undone::Restored);
        let member = &roster.members[0];
        assert_eq!((member.status, member.incarnation.as_str()), (Status::Failed, "b1"));
        assert_eq!((member.role.as_str(), member.since), ("tester", 2.0.into()));
        assert_eq!(member.last_exit.as_ref().unwrap().cause, ExitCause::Error);
    }

    #[test]
    fn a_member_that_was_stopped_during_a_failed_start_stays_stopped() {
        let mut roster = Roster::default();
        reserve(&mut roster, new_life(None), 1.0.into()).unwrap();
        assert!(start_cancelled(&mut roster, &bob(), ExitCause::Stopped, 2.0.into()));
        assert_eq!(undo(&mut roster, &bob(), "b2", None, 3.0.into()), Undone::Kept);
        assert_eq!(roster.members[0].status, Status::Shutdown);
        assert!(!start_cancelled(&mut roster, &bob(), ExitCause::Stopped, 4.0.into()));
    }

    #[test]
    fn a_restart_needs_the_entry_of_the_life_that_ended() {
        let entry = |status| {
            let incarnation = "b1".into();
            roster_of(Member { status, incarnation, restarts: 2, ..Member::default() })
        };
        let mut roster = entry(Status::Starting);
        assert!(reserve(&mut roster, new_life(Some("b1")), 1.0.into()).unwrap().is_some());
        assert_eq!((roster.members[0].restarts, roster.members[0].incarnation.as_str()), (3, "b2"));
        let cancelled = reserve(&mut entry(Status::Starting), new_life(Some("b0")), 1.0.into());
        assert_eq!(cancelled, Err(StartCancelled));
        let stopped = reserve(&mut entry(Status::Shutdown), new_life(Some("b1")), 1.0.into());
        assert_eq!(stopped, Err(StartCancelled));
    }

    #[test]
    fn a_stop_marks_only_the_living_life_it_means() {
        for (status, incarnation, before) in [
            (Status::Working, "b1", Some(Status::Working)),
            (Status::Working, "b2", None),
            (Status::Shutdown, "b1", None),
        ] {
            let mut roster =
                roster_of(Member { status, incarnation: "b1".into(), ..Member::default() });
            assert_eq!(stop_asked(&mut roster, &bob(), incarnation, 5.0.into()), before);
            let after = if before.is_some() { Status::Stopping } else { status };
            assert_eq!(roster.members[0].status, after);
        }
    }

    #[test]
    fn a_member_is_found_dead_once() {
        let (status, incarnation) = (Status::Idle, "b1".to_owned());
        let mut roster = roster_of(Member { status, incarnation, ..Member::default() });
        assert!(!found_dead(&mut roster, &bob(), "b2", 5.0.into()), "another life");
        assert!(found_dead(&mut roster, &bob(), "b1", 5.0.into()));
        assert!(!found_dead(&mut roster, &bob(), "b1", 6.0.into()));
        assert_eq!(
            (roster.members[0].status, roster.members[0].since),
            (Status::Failed, 5.0.into())
        );
    }

    #[test]
    fn only_ended_members_are_resumed() {
        let (status, incarnation) = (Status::Failed, "b1".to_owned());
        let mut roster = roster_of(Member { status, incarnation, ..Member::default() });
        let names = [bob(), AgentName::member("carol").unwrap()];
        assert_eq!(
            resumed(&mut roster, &names, 5.0.into()),
            BTreeMap::from([(bob(), "b1".to_owned())])
        );
        assert_eq!(roster.members[0].status, Status::Starting);
        assert_eq!(resumed(&mut roster, &names, 6.0.into()), BTreeMap::new());
    }
}
