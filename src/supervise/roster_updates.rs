//! Changes that the lead, or `team stop`, makes to a member's entry on the roster.
//!
//! Each function gets the roster as it is under its lock and applies one event of `protocol::lifecycle`; a pair
//! that the table refuses leaves the entry unchanged.

use super::handshake::StartReason;
use super::members::MemberId;
use crate::bus::Bus;
use crate::protocol::lifecycle::{self, IllegalTransition, LifecycleEvent};
use crate::protocol::restart::ProcessEnd;
use crate::settings::model::ModelChoice;
use crate::store::{StoreError, asynchronous};
use crate::wire::activity::Activity;
use crate::wire::isolation::ClonePlace;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::{ExitCause, LastExit, Member, Roster, StartedBy, Status};
use crate::wire::{AgentName, WallTime, WithUnknownFields};

/// Changes the roster outside the event loop, because the holder of its lock may be a stopped process.
pub(super) async fn write<R: Send + 'static>(
    bus: &Bus,
    change: impl FnOnce(&mut WithUnknownFields<Roster>) -> R + Send + 'static,
) -> Result<R, StoreError> {
    asynchronous::update_roster(bus.dir(), bus.fsync(), change).await
}

pub(super) type Entry = WithUnknownFields<Member>;

/// Returns the entry of an incarnation; `None` if it belongs to another incarnation by now.
fn entry<'a>(roster: &'a mut Roster, id: &MemberId) -> Option<&'a mut Entry> {
    let member = roster.member_mut(id.name.as_str());
    member.filter(|member| member.incarnation == id.incarnation)
}

#[derive(Debug, Clone)]
pub(super) struct SpawnSpec {
    pub(super) name: AgentName,
    pub(super) role: String,
    /// The file of the role, if it has one.
    pub(super) role_file: Option<String>,
    pub(super) model: String,
    /// The models that go on if its own fails.
    pub(super) fallbacks: Vec<ModelChoice>,
    pub(super) mode: PermissionMode,
    /// The clone in which it works; `None` for the workspace.
    pub(super) work: Option<ClonePlace>,
    pub(super) start_reason: StartReason,
    /// The incarnation before it, which must still be expected back.
    pub(super) after: Option<String>,
}

/// Enters a new incarnation. Returns the earlier entry of the name.
pub(super) fn reserve(
    roster: &mut Roster,
    spec: SpawnSpec,
    incarnation: String,
    cwd: String,
    now: WallTime,
) -> Result<Option<Entry>, StartCancelled> {
    let before = roster.member(spec.name.as_str()).cloned();
    if let Some(after) = &spec.after
        && !before.as_ref().is_some_and(|member| is_expected_back(member, after))
    {
        return Err(StartCancelled);
    }
    let member = roster.enter(spec.name.as_str(), now);
    lifecycle::apply_spawned(&mut member.status).map_err(|_| StartCancelled)?;
    let is_restart = matches!(spec.start_reason, StartReason::Restarted(_));
    member.restarts = member.restarts.saturating_add(u32::from(is_restart));
    (member.activity, member.since, member.pid) = (None, now, None);
    (member.incarnation, member.role, member.role_file) = (incarnation, spec.role, spec.role_file);
    (member.model, member.mode) = (spec.model, spec.mode.word().into());
    (member.cwd, member.started_by) = (cwd, StartedBy::Lead);
    member.work = spec.work;
    Ok(before)
}

/// The error of a start whose previous incarnation is not expected back any more, or whose name is taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StartCancelled;

/// Whether this was the last incarnation of the member, and nothing has cancelled its restart.
pub(super) fn is_expected_back(member: &Member, incarnation: &str) -> bool {
    member.incarnation == incarnation && member.status == Status::Starting
}

/// Undoes [`reserve`] after a failed start: a new name leaves no entry, a known one gets its entry back. The
/// entry stays if another incarnation owns it, or the member was stopped. Returns whether a new name has no entry now,
/// perhaps because an earlier attempt removed it.
pub(super) fn undo(
    roster: &mut Roster,
    id: &MemberId,
    before: Option<Entry>,
    now: WallTime,
) -> bool {
    let is_known = before.is_some() || roster.member(id.name.as_str()).is_some();
    let Some(member) = entry(roster, id) else { return !is_known };
    let Some(before) = before else {
        let is_removed = lifecycle::next(Some(member.status), LifecycleEvent::Removed) == Ok(None);
        if is_removed {
            roster.members.retain(|member| member.name != id.name.as_str());
        }
        return is_removed;
    };
    if lifecycle::apply(&mut member.status, LifecycleEvent::SpawnFailed).is_ok() {
        **member = Member {
            status: member.status,
            role: std::mem::take(&mut member.role),
            restarts: member.restarts,
            since: now,
            last_exit: Some(silent_exit(ExitCause::Error, now)),
            ..Member::clone(&before)
        };
    }
    false
}

/// Marks a member, or the lead, as stopping; only control mail reaches such a member. Returns the status before;
/// `None` if its entry is over, missing or another incarnation's.
pub(super) fn stop_asked(roster: &mut Roster, id: &MemberId, now: WallTime) -> Option<Status> {
    let event = LifecycleEvent::StopAsked;
    if id.name.is_lead() {
        return lifecycle::apply(&mut roster.lead.as_mut()?.status, event).ok();
    }
    let member = entry(roster, id)?;
    let before = lifecycle::apply(&mut member.status, event).ok()?;
    member.since = now;
    Some(before)
}

/// Records that a stopped process has ended. An end that the member recorded itself stays, except for the cause,
/// unless it was killed. Its status shows such an end; times do not, because a clock may have been set back.
pub(super) fn stop_confirmed(
    roster: &mut Roster,
    id: &MemberId,
    was_killed: bool,
    cause: ExitCause,
    now: WallTime,
) {
    let event = LifecycleEvent::StopConfirmed;
    if id.name.is_lead() {
        if let Some(lead) = roster.lead.as_mut()
            && lifecycle::apply(&mut lead.status, event).is_ok()
        {
            lead.activity = None;
        }
        return;
    }
    let Some(member) = entry(roster, id) else { return };
    let is_told = member.status.is_over() && !was_killed;
    let own = member.last_exit.clone().filter(|_| is_told);
    let seen = || LastExit { signal: was_killed.then_some(9), ..silent_exit(cause, now) };
    let exit = LastExit { cause, ..own.unwrap_or_else(seen) };
    let _refused = end(member, event, exit, now);
}

/// Records that a member will not be started. Returns whether it was about to be started.
pub(super) fn start_cancelled(
    roster: &mut Roster,
    name: &AgentName,
    cause: ExitCause,
    now: WallTime,
) -> bool {
    let Some(member) = roster.member_mut(name.as_str()) else { return false };
    let before = member.last_exit.clone().unwrap_or_else(|| silent_exit(cause, now));
    let exit = LastExit { cause, at: now, ..before };
    end(member, LifecycleEvent::StartCancelled, exit, now).is_ok()
}

/// Records the end of a member whose life lock is free. Returns `false` if its entry is over, missing or another
/// incarnation's.
pub(super) fn found_dead(roster: &mut Roster, id: &MemberId, now: WallTime) -> bool {
    let member = entry(roster, id).filter(|member| !member.status.is_over());
    let exit = silent_exit(ExitCause::Crash, now);
    member.is_some_and(|member| end(member, LifecycleEvent::FoundDead, exit, now).is_ok())
}

/// Records that a process ended without a stop by this lead. An end that the member recorded itself stays, unless
/// the process hung. Returns the cause; `None` if the entry is another incarnation's.
pub(super) fn exited(
    roster: &mut Roster,
    id: &MemberId,
    process_end: ProcessEnd,
    will_restart: bool,
    now: WallTime,
) -> Option<ExitCause> {
    let member = entry(roster, id)?;
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
    Some(cause)
}

/// Returns the cause that is recorded for an end that the member did not record itself.
pub(super) fn cause_of(end: ProcessEnd) -> ExitCause {
    match end {
        ProcessEnd::Code(_) | ProcessEnd::Signal(_) => ExitCause::Crash,
        ProcessEnd::Hung => ExitCause::Hung,
        ProcessEnd::NotStarted => ExitCause::Error,
    }
}

/// Marks ended members as expected back. Returns their last incarnations, without members that have not ended.
pub(super) fn resumed(roster: &mut Roster, names: &[AgentName], now: WallTime) -> Vec<MemberId> {
    let resume = |name: &AgentName| {
        let member = roster.member_mut(name.as_str())?;
        lifecycle::apply(&mut member.status, LifecycleEvent::Resumed).ok()?;
        member.since = now;
        Some(MemberId { name: name.clone(), incarnation: member.incarnation.clone() })
    };
    names.iter().filter_map(resume).collect()
}

/// Makes the record of an end of which only the cause is known.
fn silent_exit(cause: ExitCause, at: WallTime) -> LastExit {
    LastExit { code: None, signal: None, cause, at }
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
    use ExitCause::{Crash, Error, Hung, Stopped};
    use Status::{Failed, Idle, Shutdown, Starting, Stopping, Working};

    fn id(incarnation: &str) -> MemberId {
        let name = AgentName::member("bob").unwrap();
        MemberId { name, incarnation: incarnation.into() }
    }

    /// Makes a roster with the incarnation `b1` of bob.
    fn roster_of(status: Status, last_exit: Option<LastExit>) -> Roster {
        let (name, incarnation) = ("bob".into(), "b1".into());
        let (role, activity, pid) = ("coder".into(), Some(Activity::Model), Some(7));
        let rest = Member { role, activity, pid, restarts: 2, ..Member::default() };
        let member = Member { name, status, incarnation, last_exit, ..rest };
        Roster { members: vec![member.into()], ..Roster::default() }
    }

    fn exit(cause: ExitCause) -> LastExit {
        LastExit { code: Some(3), signal: None, cause, at: 100.0.into() }
    }

    #[test]
    fn an_end_that_the_member_recorded_stays_whatever_the_clock_says() {
        for (status, was_killed, code, signal, at) in [
            (Shutdown, false, Some(3), None, 100.0),
            // The recorded exit belongs to an earlier incarnation.
            (Stopping, false, None, None, 7.0),
            (Shutdown, true, None, Some(9), 7.0),
        ] {
            // The clock was set back: the end that the member recorded lies in the future.
            let mut roster = roster_of(status, Some(exit(Crash)));
            stop_confirmed(&mut roster, &id("b1"), was_killed, Stopped, 7.0.into());
            let member = &roster.members[0];
            assert_eq!((member.status, member.since), (Shutdown, 7.0.into()));
            // The stopping process knows the cause.
            let expected = LastExit { code, signal, cause: Stopped, at: at.into() };
            assert_eq!(member.last_exit, Some(expected), "{status:?} {was_killed}");
        }
    }

    #[test]
    fn an_exit_is_recorded_with_its_cause_and_the_status_that_follows() {
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
            // The recorded exit belongs to an earlier incarnation.
            (Working, Some(Stopped), killed, false, Failed, Crash),
        ];
        for (status, told, process_end, will_restart, becomes, cause) in cases {
            let mut roster = roster_of(status, told.map(exit));
            let mut exited =
                |id: MemberId| exited(&mut roster, &id, process_end, will_restart, 2.0.into());
            assert_eq!(exited(id("b0")), None, "another incarnation");
            assert_eq!(exited(id("b1")), Some(cause));
            let member = &roster.members[0];
            let seen = (member.status, member.pid, member.since);
            assert_eq!(seen, (becomes, None, 2.0.into()), "{status:?}");
            assert_eq!(member.last_exit.as_ref().unwrap().cause, cause);
            assert_eq!(member.activity, will_restart.then_some(Activity::Restarting));
        }
    }

    /// Begins the incarnation `b2`.
    fn begin(roster: &mut Roster, after: Option<&str>) -> Result<Option<Entry>, StartCancelled> {
        let start_reason = after.map_or(StartReason::Spawned, |_| StartReason::Restarted(Crash));
        let MemberId { name, incarnation } = id("b2");
        let (role, model, mode) = ("tester".into(), "p/m".into(), PermissionMode::default());
        let spec = SpawnSpec {
            name,
            role,
            role_file: None,
            model,
            fallbacks: Vec::new(),
            mode,
            work: None,
            start_reason,
            after: after.map(Into::into),
        };
        reserve(roster, spec, incarnation, "/w".into(), 1.0.into())
    }

    #[test]
    fn a_failed_start_of_a_new_name_leaves_no_entry_unless_it_was_stopped() {
        let mut roster = Roster::default();
        assert_eq!(begin(&mut roster, None), Ok(None));
        assert_eq!(roster.members[0].status, Starting);
        let mut stopped = roster.clone();
        assert!(!undo(&mut roster, &id("b1"), None, 2.0.into()), "another incarnation");
        assert!(undo(&mut roster, &id("b2"), None, 2.0.into()));
        assert!(roster.members.is_empty());
        let name = id("b2").name;
        assert!(start_cancelled(&mut stopped, &name, Stopped, 2.0.into()));
        assert!(!undo(&mut stopped, &id("b2"), None, 3.0.into()));
        assert_eq!(stopped.members[0].status, Shutdown);
        assert!(!start_cancelled(&mut stopped, &name, Stopped, 2.0.into()));
        // The exit of an earlier process stays, except for its cause and time.
        let mut again = roster_of(Starting, Some(exit(Crash)));
        assert!(start_cancelled(&mut again, &name, Stopped, 9.0.into()));
        let expected = LastExit { cause: Stopped, at: 9.0.into(), ..exit(Crash) };
        assert_eq!(again.members[0].last_exit, Some(expected));
    }

    #[test]
    fn a_failed_start_of_a_known_name_restores_its_entry_as_failed() {
        let mut roster = roster_of(Shutdown, Some(exit(ExitCause::TeamStopped)));
        let before = begin(&mut roster, None).unwrap();
        assert_eq!((roster.members[0].status, roster.members[0].pid), (Starting, None));
        assert!(!undo(&mut roster, &id("b2"), before, 2.0.into()));
        let member = &roster.members[0];
        assert_eq!((member.status, member.incarnation.as_str()), (Failed, "b1"));
        assert_eq!((member.role.as_str(), member.since), ("tester", 2.0.into()));
        assert_eq!(member.last_exit.as_ref().unwrap().cause, Error);
    }

    #[test]
    fn a_restart_needs_the_entry_of_the_incarnation_that_ended() {
        let mut roster = roster_of(Starting, None);
        assert!(begin(&mut roster, Some("b1")).unwrap().is_some());
        assert_eq!((roster.members[0].restarts, roster.members[0].incarnation.as_str()), (3, "b2"));
        for (status, after) in [(Starting, "b0"), (Shutdown, "b1")] {
            assert_eq!(begin(&mut roster_of(status, None), Some(after)), Err(StartCancelled));
        }
    }

    #[test]
    fn a_stop_marks_only_a_live_member_of_the_same_incarnation() {
        for (status, incarnation, before) in
            [(Working, "b1", Some(Working)), (Working, "b2", None), (Shutdown, "b1", None)]
        {
            let mut roster = roster_of(status, None);
            assert_eq!(stop_asked(&mut roster, &id(incarnation), 5.0.into()), before);
            let after = before.map_or(status, |_| Stopping);
            assert_eq!(roster.members[0].status, after);
        }
    }

    #[test]
    fn a_member_is_found_dead_once() {
        let mut roster = roster_of(Idle, None);
        assert!(!found_dead(&mut roster, &id("b2"), 5.0.into()), "another incarnation");
        assert!(found_dead(&mut roster, &id("b1"), 5.0.into()));
        assert!(!found_dead(&mut roster, &id("b1"), 6.0.into()));
        assert_eq!((roster.members[0].status, roster.members[0].since), (Failed, 5.0.into()));
    }

    #[test]
    fn only_ended_members_are_resumed() {
        let mut roster = roster_of(Failed, None);
        let names = [id("b1").name, AgentName::member("carol").unwrap()];
        assert_eq!(resumed(&mut roster, &names, 5.0.into()), [id("b1")]);
        assert_eq!(roster.members[0].status, Starting);
        assert!(resumed(&mut roster, &names, 6.0.into()).is_empty());
    }
}
