//! The supervisor's record of each teammate's process: one state per name, which only this file changes.
//!
//! The statuses on the roster are a view for all processes. The states here are the processes that the lead itself
//! has started and will stop or restart.

use crate::protocol::ladder::Urgency;
use crate::protocol::restart::RestartHistory;
use crate::wire::AgentName;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;

/// The limit of a wait for a cleanup: command supervisors get two seconds, and processes that escaped them two more.
const REAPED_WITHIN: Duration = Duration::from_secs(5);

/// The identity of one incarnation of a member, which is the process of one start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemberId {
    pub(super) name: AgentName,
    pub(super) incarnation: String,
}

/// All teammates that this lead has ever started, stopped or resumed. Every change notifies the waiters.
#[derive(Default)]
pub(super) struct Members {
    states: RefCell<BTreeMap<AgentName, MemberState>>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct MemberState {
    process: ProcessState,
    /// The incarnation after which the process is started again, once it is cleaned up and a pause is over.
    restart_after: Option<String>,
    /// Stops under way. While there is one, the end of the process is expected.
    stops: Vec<Stop>,
    restarts: RestartHistory,
}

/// The state of a name's process. At most one process is starting, running or being cleaned up at any time.
#[derive(Default)]
enum ProcessState {
    #[default]
    None,
    Starting,
    /// It was ready, and has not ended. The end of file on its lifeline tells it that the lead is gone.
    Running {
        incarnation: String,
        _lifeline: OwnedFd,
        is_hung: bool,
    },
    /// It has ended. Its roster entry and the processes it left behind are being cleaned up.
    CleaningUp {
        incarnation: String,
    },
}

/// One stop, with its urgency if it is the stop of one member alone.
pub(super) type Stop = Rc<Option<watch::Sender<Urgency>>>;

/// The supervisor's knowledge about a process at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// Whether it was being killed because it hung.
    pub(super) was_hung: bool,
    pub(super) was_expected: bool,
}

/// Raises the urgency; never lowers it.
pub(super) fn raise(sender: &watch::Sender<Urgency>, urgency: Urgency) {
    sender.send_if_modified(|now| {
        let is_higher = urgency > *now;
        *now = urgency.max(*now);
        is_higher
    });
}

impl Members {
    /// Changes a state and notifies the waiters. Nothing else writes a state.
    fn change<R>(&self, name: &AgentName, change: impl FnOnce(&mut MemberState) -> R) -> R {
        let answer = change(self.states.borrow_mut().entry(name.clone()).or_default());
        self.changed.send_replace(());
        answer
    }

    fn process_is(&self, name: &AgentName, test: fn(&ProcessState) -> bool) -> bool {
        self.states.borrow().get(name).is_some_and(|state| test(&state.process))
    }

    async fn wait_while(&self, holds: impl Fn() -> bool) {
        let mut changed = self.changed.subscribe();
        // Fails only once the sender is dropped, and `self` owns it.
        let _settled = changed.wait_for(|()| !holds()).await;
    }

    /// Waits while a process of that name is being started. The deadline of a start bounds the wait.
    pub(super) async fn wait_started(&self, name: &AgentName) {
        let is_starting = |process: &ProcessState| matches!(process, ProcessState::Starting);
        self.wait_while(|| self.process_is(name, is_starting)).await;
    }

    /// Waits until none of these names has a process that runs or is being cleaned up. Returns `false` if that
    /// takes too long.
    pub(super) async fn wait_reaped(&self, names: &[AgentName]) -> bool {
        let reaped = self.wait_while(|| names.iter().any(|name| self.is_unreaped(name)));
        tokio::time::timeout(REAPED_WITHIN, reaped).await.is_ok()
    }

    /// Whether a process of that name runs or is being cleaned up.
    pub(super) fn is_unreaped(&self, name: &AgentName) -> bool {
        self.process_is(name, ProcessState::is_unreaped)
    }

    /// Returns the names whose process is starting, running, being cleaned up or about to be restarted.
    pub(super) fn with_process(&self) -> BTreeSet<AgentName> {
        let states = self.states.borrow();
        let found = states.iter().filter(|(_, state)| {
            state.restart_after.is_some() || !matches!(state.process, ProcessState::None)
        });
        found.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn running(&self) -> Vec<MemberId> {
        let states = self.states.borrow();
        let running = states.iter().filter_map(|(name, state)| {
            let ProcessState::Running { incarnation, .. } = &state.process else { return None };
            Some(MemberId { name: name.clone(), incarnation: incarnation.clone() })
        });
        running.collect()
    }

    /// Begins a start. The caller has seen that the name has no process; a planned restart is superseded.
    pub(super) fn begin_start(&self, name: &AgentName) {
        self.change(name, |state| {
            state.process = ProcessState::Starting;
            state.restart_after = None;
        });
    }

    /// Records that the started process is ready.
    pub(super) fn started(&self, id: &MemberId, lifeline: OwnedFd) {
        self.change(&id.name, |state| {
            let incarnation = id.incarnation.clone();
            state.process =
                ProcessState::Running { incarnation, _lifeline: lifeline, is_hung: false };
        });
    }

    /// Records that the start has failed, and its process is gone.
    pub(super) fn start_failed(&self, name: &AgentName) {
        self.change(name, |state| state.process = ProcessState::None);
    }

    /// Marks a running process as hung. Returns `false` if it is marked already, or runs no more.
    pub(super) fn mark_hung(&self, id: &MemberId) -> bool {
        self.change(&id.name, |state| {
            let ProcessState::Running { incarnation, is_hung, .. } = &mut state.process else {
                return false;
            };
            *incarnation == id.incarnation && !std::mem::replace(is_hung, true)
        })
    }

    /// Records that the process of this incarnation has ended, and its cleanup begins.
    pub(super) fn ended(&self, id: &MemberId) -> Ended {
        self.change(&id.name, |state| {
            let was_hung = matches!(state.process, ProcessState::Running { is_hung: true, .. });
            state.process = ProcessState::CleaningUp { incarnation: id.incarnation.clone() };
            Ended { was_hung, was_expected: !state.stops.is_empty() }
        })
    }

    /// Plans a restart of the incarnation that has ended, after its cleanup if one is under way.
    pub(super) fn plan_restart(&self, id: &MemberId) {
        self.change(&id.name, |state| {
            let has_ended = match &state.process {
                ProcessState::None => state.restart_after.is_none(),
                ProcessState::CleaningUp { incarnation } => *incarnation == id.incarnation,
                ProcessState::Starting | ProcessState::Running { .. } => false,
            };
            if has_ended {
                state.restart_after = Some(id.incarnation.clone());
            }
        });
    }

    pub(super) fn cancel_restart(&self, name: &AgentName) {
        self.change(name, |state| state.restart_after = None);
    }

    pub(super) fn cleaned_up(&self, id: &MemberId) {
        self.change(&id.name, |state| {
            if let ProcessState::CleaningUp { incarnation } = &state.process
                && *incarnation == id.incarnation
            {
                state.process = ProcessState::None;
            }
        });
    }

    pub(super) fn is_restart_planned(&self, id: &MemberId) -> bool {
        let states = self.states.borrow();
        let planned = states.get(&id.name).and_then(|state| state.restart_after.as_ref());
        planned.is_some_and(|after| *after == id.incarnation)
    }

    /// Takes the pending restart of this incarnation. Returns `false` if it was cancelled or superseded.
    pub(super) fn take_restart(&self, id: &MemberId) -> bool {
        self.change(&id.name, |state| {
            matches!(state.process, ProcessState::None)
                && state.restart_after.take_if(|after| *after == id.incarnation).is_some()
        })
    }

    pub(super) fn with_history<R>(
        &self,
        name: &AgentName,
        change: impl FnOnce(&mut RestartHistory) -> R,
    ) -> R {
        self.change(name, |state| change(&mut state.restarts))
    }

    /// Begins a stop, which cancels restarts; `by_name` is the urgency of a stop of one member alone.
    pub(super) fn begin_stop(
        &self,
        names: &[AgentName],
        by_name: Option<watch::Sender<Urgency>>,
    ) -> Stop {
        let stop = Rc::new(by_name);
        for name in names {
            self.cancel_restart(name);
            self.change(name, |state| state.stops.push(Rc::clone(&stop)));
        }
        stop
    }

    pub(super) fn end_stop(&self, names: &[AgentName], stop: &Stop) {
        for name in names {
            self.change(name, |state| state.stops.retain(|other| !Rc::ptr_eq(other, stop)));
        }
    }

    /// Raises the urgency of stops of one member alone: of member `of`, or of any. Returns whether there is one.
    pub(super) fn raise_stops(&self, of: Option<&AgentName>, urgency: Urgency) -> bool {
        let states = self.states.borrow();
        let states = states.iter().filter(|(name, _)| of.is_none_or(|of| of == *name));
        let by_name =
            states.flat_map(|(_, state)| &state.stops).filter_map(|stop| (**stop).as_ref());
        by_name.inspect(|sender| raise(sender, urgency)).count() > 0
    }
}

impl ProcessState {
    fn is_unreaped(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::CleaningUp { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> AgentName {
        AgentName::member("alice").unwrap()
    }

    fn id(incarnation: &str) -> MemberId {
        MemberId { name: alice(), incarnation: incarnation.into() }
    }

    fn start(members: &Members, incarnation: &str) {
        members.begin_start(&alice());
        let lifeline = std::fs::File::open("/dev/null").unwrap();
        members.started(&id(incarnation), lifeline.into());
    }

    fn running(incarnation: &str) -> Members {
        let members = Members::default();
        start(&members, incarnation);
        members
    }

    /// Ends the process and plans its restart.
    fn crash(members: &Members, incarnation: &str) -> Ended {
        let ended = members.ended(&id(incarnation));
        members.plan_restart(&id(incarnation));
        ended
    }

    #[test]
    fn a_crashed_process_is_cleaned_up_before_its_restart_is_pending() {
        let members = running("a1");
        assert_eq!(members.running(), [id("a1")]);
        assert_eq!(crash(&members, "a1"), Ended { was_hung: false, was_expected: false });
        assert!(!members.take_restart(&id("a1")), "it is being cleaned up");
        assert!(members.is_unreaped(&alice()));
        members.cleaned_up(&id("a1"));
        assert!(!members.is_unreaped(&alice()));
        assert!(members.with_process().contains(&alice()), "a stop of the team must cancel it");
        assert!(members.take_restart(&id("a1")));
        assert!(!members.take_restart(&id("a1")), "it is taken once");
        assert!(members.with_process().is_empty());
    }

    #[test]
    fn a_stop_cancels_a_restart_before_and_after_the_cleanup() {
        let stop: fn(&Members) = |members| drop(members.begin_stop(&[alice()], None));
        let clean_up: fn(&Members) = |members| members.cleaned_up(&id("a1"));
        for (case, steps) in [("before", [stop, clean_up]), ("after", [clean_up, stop])] {
            let members = running("a1");
            crash(&members, "a1");
            for step in steps {
                step(&members);
            }
            assert!(!members.take_restart(&id("a1")), "{case}");
        }
    }

    #[test]
    fn a_start_supersedes_a_pending_restart() {
        let members = running("a1");
        crash(&members, "a1");
        members.cleaned_up(&id("a1"));
        start(&members, "a2");
        assert!(!members.take_restart(&id("a1")));
        members.cleaned_up(&id("a1"));
        members.plan_restart(&id("a1"));
        assert_eq!(members.running(), [id("a2")], "an earlier incarnation leaves it alone");
        crash(&members, "a2");
        members.cleaned_up(&id("a2"));
        assert!(!members.take_restart(&id("a1")), "the restart of another incarnation");
        assert!(members.take_restart(&id("a2")));
    }

    #[test]
    fn a_failed_start_can_be_followed_by_a_restart() {
        let members = Members::default();
        members.begin_start(&alice());
        members.start_failed(&alice());
        assert!(members.with_process().is_empty());
        members.plan_restart(&id("a1"));
        assert!(members.take_restart(&id("a1")));
    }

    #[test]
    fn a_hung_process_is_marked_once_and_remembered_at_its_end() {
        let members = running("a1");
        assert!(!members.mark_hung(&id("a0")), "another incarnation");
        assert!(members.mark_hung(&id("a1")));
        assert!(!members.mark_hung(&id("a1")));
        assert!(members.ended(&id("a1")).was_hung);
        assert!(!members.mark_hung(&id("a1")), "it has ended");
    }

    #[test]
    fn an_end_is_expected_until_the_last_stop_is_over() {
        let members = running("a1");
        let [first, second] = [(); 2].map(|()| members.begin_stop(&[alice()], None));
        members.end_stop(&[alice()], &first);
        assert!(members.ended(&id("a1")).was_expected);
        members.end_stop(&[alice()], &second);
        start(&members, "a2");
        assert!(!members.ended(&id("a2")).was_expected);
    }

    #[test]
    fn only_a_stop_by_name_is_raised_by_name() {
        let members = running("a1");
        let raise_alice = || members.raise_stops(Some(&alice()), Urgency::Now);
        assert!(!raise_alice());
        members.begin_stop(&[alice()], None);
        assert!(!raise_alice(), "a stop of the whole team");
        let urgency = watch::Sender::new(Urgency::Polite);
        members.begin_stop(&[alice()], Some(urgency.clone()));
        assert!(raise_alice());
        assert_eq!(*urgency.borrow(), Urgency::Now);
        members.raise_stops(None, Urgency::AtOnce);
        members.raise_stops(None, Urgency::Polite);
        assert_eq!(*urgency.borrow(), Urgency::AtOnce, "urgency never falls");
    }

    #[tokio::test]
    async fn waiters_are_notified_of_the_end_of_a_start_and_of_a_cleanup() {
        let (members, names) = (Members::default(), [alice()]);
        members.begin_start(&alice());
        tokio::join!(members.wait_started(&names[0]), async { start(&members, "a1") });
        let (is_reaped, ()) = tokio::join!(members.wait_reaped(&names), async {
            members.ended(&id("a1"));
            tokio::task::yield_now().await;
            members.cleaned_up(&id("a1"));
        });
        assert!(is_reaped);
        assert!(names.iter().all(|name| !members.is_unreaped(name)));
    }
}
