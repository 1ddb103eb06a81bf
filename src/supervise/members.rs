//! The supervisor's record of each teammate's process: one state per name, changed here and nowhere else.
//!
//! Statuses on the roster are another matter: they are a view for everybody, this is what the lead itself
//! has started and will stop or restart.

use crate::protocol::ladder::Urgency;
use crate::protocol::restart::RestartHistory;
use crate::wire::AgentName;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use tokio::sync::watch;

/// All teammates that this lead has ever started, stopped or resumed. Every change notifies the waiters.
pub(super) struct Members {
    states: RefCell<BTreeMap<AgentName, MemberState>>,
    changed: watch::Sender<()>,
}

/// The lead's knowledge of one name.
#[derive(Default)]
struct MemberState {
    process: ProcessState,
    /// Stops under way. While there is one, the end of the process is expected.
    stops: Vec<StopInProgress>,
    restarts: RestartHistory,
}

/// The process of one name. At most one is started, running or being cleaned up at any time.
#[derive(Default)]
enum ProcessState {
    /// There is none.
    #[default]
    None,
    /// It is being started, and is not ready yet.
    Starting,
    /// It was ready, and has not ended.
    Running { child: Child, is_hung: bool },
    /// It has ended. Its roster entry and the processes it left behind are being cleaned up.
    CleaningUp { incarnation: String, will_restart: bool },
    /// It has ended and is started again after a pause.
    RestartPending { after: String },
}

/// A running teammate.
pub(super) struct Child {
    pub(super) incarnation: String,
    /// The teammate takes the end of file on its side as the death of the lead.
    pub(super) _lifeline: OwnedFd,
}

struct StopInProgress {
    ticket: StopTicket,
    /// Urgency of a stop of this member alone.
    by_name: Option<watch::Sender<Urgency>>,
}

/// Identifies one stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StopTicket(u64);

/// What the supervisor knew of a process that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// It was being killed because it hung.
    pub(super) was_hung: bool,
    /// This lead was stopping it.
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
    pub(super) fn new() -> Self {
        Self { states: RefCell::default(), changed: watch::Sender::new(()) }
    }

    /// The only writer of a state.
    fn change<R>(&self, name: &AgentName, change: impl FnOnce(&mut MemberState) -> R) -> R {
        let answer = change(self.states.borrow_mut().entry(name.clone()).or_default());
        self.changed.send_replace(());
        answer
    }

    async fn wait_until(&self, done: impl Fn(&BTreeMap<AgentName, MemberState>) -> bool) {
        // Fails only once the sender is dropped, and `self` owns it.
        let mut changed = self.changed.subscribe();
        let _settled = changed.wait_for(|()| done(&self.states.borrow())).await;
    }

    /// Waits while a process of that name is being started. The deadline of a start bounds the wait.
    pub(super) async fn wait_started(&self, name: &AgentName) {
        let is_starting = |state: &MemberState| matches!(state.process, ProcessState::Starting);
        self.wait_until(|states| !states.get(name).is_some_and(is_starting)).await;
    }

    /// Waits until none of these names has a process that runs or is being cleaned up.
    pub(super) async fn wait_reaped(&self, names: &[AgentName]) {
        let is_left = |state: &MemberState| state.process.is_unreaped();
        self.wait_until(|states| !names.iter().any(|name| states.get(name).is_some_and(is_left)))
            .await;
    }

    /// Whether a process of that name runs or is being cleaned up.
    pub(super) fn is_unreaped(&self, name: &AgentName) -> bool {
        self.states.borrow().get(name).is_some_and(|state| state.process.is_unreaped())
    }

    /// Whether any process runs or is being cleaned up.
    pub(super) fn any_unreaped(&self) -> bool {
        self.states.borrow().values().any(|state| state.process.is_unreaped())
    }

    /// Lists the names with a process that runs, starts, ends or is about to be restarted.
    pub(super) fn with_process(&self) -> BTreeSet<AgentName> {
        let states = self.states.borrow();
        let found = states.iter().filter(|(_, state)| !matches!(state.process, ProcessState::None));
        found.map(|(name, _)| name.clone()).collect()
    }

    /// Lists the running processes with their incarnations.
    pub(super) fn running(&self) -> Vec<(AgentName, String)> {
        let states = self.states.borrow();
        let running = states.iter().filter_map(|(name, state)| match &state.process {
            ProcessState::Running { child, .. } => Some((name.clone(), child.incarnation.clone())),
            ProcessState::None
            | ProcessState::Starting
            | ProcessState::CleaningUp { .. }
            | ProcessState::RestartPending { .. } => None,
        });
        running.collect()
    }

    /// Begins a start. The caller has seen that the name has no process; a pending restart is superseded.
    pub(super) fn begin_start(&self, name: &AgentName) {
        self.change(name, |state| state.process = ProcessState::Starting);
    }

    /// The started process is ready.
    pub(super) fn started(&self, name: &AgentName, child: Child) {
        self.change(name, |state| state.process = ProcessState::Running { child, is_hung: false });
    }

    /// The start has failed, and its process is gone.
    pub(super) fn start_failed(&self, name: &AgentName) {
        self.change(name, |state| state.process = ProcessState::None);
    }

    /// Marks a running process as hung. Returns `false` if it is marked already, or runs no more.
    pub(super) fn mark_hung(&self, name: &AgentName, life: &str) -> bool {
        self.change(name, |state| match &mut state.process {
            ProcessState::Running { child, is_hung } if child.incarnation == life => {
                !std::mem::replace(is_hung, true)
            }
            ProcessState::Running { .. }
            | ProcessState::None
            | ProcessState::Starting
            | ProcessState::CleaningUp { .. }
            | ProcessState::RestartPending { .. } => false,
        })
    }

    /// The process of this life has ended: the cleanup begins.
    pub(super) fn ended(&self, name: &AgentName, life: &str) -> Ended {
        self.change(name, |state| {
            let was_hung = matches!(state.process, ProcessState::Running { is_hung: true, .. });
            state.process =
                ProcessState::CleaningUp { incarnation: life.to_owned(), will_restart: false };
            Ended { was_hung, was_expected: !state.stops.is_empty() }
        })
    }

    /// Plans a restart of the life that has ended, after its cleanup if there is one.
    pub(super) fn plan_restart(&self, name: &AgentName, life: &str) {
        self.change(name, |state| match &mut state.process {
            ProcessState::CleaningUp { incarnation, will_restart } if incarnation == life => {
                *will_restart = true;
            }
            ProcessState::None => {
                state.process = ProcessState::RestartPending { after: life.to_owned() };
            }
            ProcessState::CleaningUp { .. }
            | ProcessState::Starting
            | ProcessState::Running { .. }
            | ProcessState::RestartPending { .. } => {}
        });
    }

    /// Cancels a planned restart.
    pub(super) fn cancel_restart(&self, name: &AgentName) {
        self.change(name, |state| match &mut state.process {
            ProcessState::CleaningUp { will_restart, .. } => *will_restart = false,
            ProcessState::RestartPending { .. } => state.process = ProcessState::None,
            ProcessState::None | ProcessState::Starting | ProcessState::Running { .. } => {}
        });
    }

    /// The cleanup after this life is done.
    pub(super) fn cleaned_up(&self, name: &AgentName, life: &str) {
        self.change(name, |state| {
            if let ProcessState::CleaningUp { incarnation, will_restart } = &state.process
                && incarnation == life
            {
                state.process = if *will_restart {
                    ProcessState::RestartPending { after: life.to_owned() }
                } else {
                    ProcessState::None
                };
            }
        });
    }

    /// Takes the pending restart of this life. Returns `false` if it was cancelled or superseded.
    pub(super) fn take_restart(&self, name: &AgentName, life: &str) -> bool {
        self.change(name, |state| {
            let is_pending =
                matches!(&state.process, ProcessState::RestartPending { after } if after == life);
            if is_pending {
                state.process = ProcessState::None;
            }
            is_pending
        })
    }

    /// Gives access to the restarts that a member has had.
    pub(super) fn with_history<R>(
        &self,
        name: &AgentName,
        change: impl FnOnce(&mut RestartHistory) -> R,
    ) -> R {
        self.change(name, |state| change(&mut state.restarts))
    }

    /// Begins a stop of these names, which cancels their restarts; `by_name` is the urgency of a stop of one
    /// member alone.
    pub(super) fn begin_stop(
        &self,
        names: &[AgentName],
        by_name: Option<&watch::Sender<Urgency>>,
    ) -> StopTicket {
        let tickets = |states: &BTreeMap<AgentName, MemberState>| {
            let stops = states.values().flat_map(|state| &state.stops);
            stops.map(|stop| stop.ticket.0).max().unwrap_or(0)
        };
        let ticket = StopTicket(tickets(&self.states.borrow()) + 1);
        for name in names {
            self.cancel_restart(name);
            let stop = StopInProgress { ticket, by_name: by_name.cloned() };
            self.change(name, |state| state.stops.push(stop));
        }
        ticket
    }

    /// Ends a stop.
    pub(super) fn end_stop(&self, names: &[AgentName], ticket: StopTicket) {
        for name in names {
            self.change(name, |state| state.stops.retain(|stop| stop.ticket != ticket));
        }
    }

    /// Raises the urgency of the stops of this member alone. Returns whether there is one.
    pub(super) fn raise_stops_of(&self, name: &AgentName, urgency: Urgency) -> bool {
        let states = self.states.borrow();
        let stops = states.get(name).into_iter().flat_map(|state| &state.stops);
        let by_name: Vec<_> = stops.filter_map(|stop| stop.by_name.as_ref()).collect();
        for sender in &by_name {
            raise(sender, urgency);
        }
        !by_name.is_empty()
    }

    /// Raises the urgency of all stops by name.
    pub(super) fn raise_all_stops(&self, urgency: Urgency) {
        let states = self.states.borrow();
        let stops = states.values().flat_map(|state| &state.stops);
        stops.filter_map(|stop| stop.by_name.as_ref()).for_each(|sender| raise(sender, urgency));
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

    fn child(incarnation: &str) -> Child {
        let lifeline = std::fs::File::open("/dev/null").unwrap().into();
        Child { incarnation: incarnation.into(), _lifeline: lifeline }
    }

    fn running(life: &str) -> Members {
        let members = Members::new();
        members.begin_start(&alice());
        members.started(&alice(), child(life));
        members
    }

    #[test]
    fn a_crashed_process_is_cleaned_up_before_its_restart_is_pending() {
        let members = running("a1");
        assert_eq!(members.running(), [(alice(), "a1".to_owned())]);
        let ended = members.ended(&alice(), "a1");
        assert_eq!(ended, Ended { was_hung: false, was_expected: false });
        members.plan_restart(&alice(), "a1");
        assert!(!members.take_restart(&alice(), "a1"), "it is being cleaned up");
        assert!(members.is_unreaped(&alice()));
        members.cleaned_up(&alice(), "a1");
        assert!(!members.any_unreaped());
        assert!(members.with_process().contains(&alice()), "a stop of the team must cancel it");
        assert!(members.take_restart(&alice(), "a1"));
        assert!(!members.take_restart(&alice(), "a1"), "it is taken once");
        assert!(members.with_process().is_empty());
    }

    #[test]
    fn a_stop_cancels_a_restart_before_and_after_the_cleanup() {
        for during_cleanup in [true, false] {
            let members = running("a1");
            members.ended(&alice(), "a1");
            members.plan_restart(&alice(), "a1");
            if during_cleanup {
                members.begin_stop(&[alice()], None);
            }
            members.cleaned_up(&alice(), "a1");
            if !during_cleanup {
                members.begin_stop(&[alice()], None);
            }
            assert!(!members.take_restart(&alice(), "a1"), "{during_cleanup}");
        }
    }

    #[test]
    fn a_start_supersedes_a_pending_restart() {
        let members = running("a1");
        members.ended(&alice(), "a1");
        members.plan_restart(&alice(), "a1");
        members.cleaned_up(&alice(), "a1");
        members.begin_start(&alice());
        members.started(&alice(), child("a2"));
        assert!(!members.take_restart(&alice(), "a1"));
        members.ended(&alice(), "a2");
        members.plan_restart(&alice(), "a2");
        members.cleaned_up(&alice(), "a2");
        assert!(!members.take_restart(&alice(), "a1"), "the restart of another life");
        assert!(members.take_restart(&alice(), "a2"));
    }

    #[test]
    fn the_cleanup_of_an_earlier_life_leaves_a_running_process_alone() {
        let members = running("a2");
        members.cleaned_up(&alice(), "a1");
        members.plan_restart(&alice(), "a1");
        assert_eq!(members.running(), [(alice(), "a2".to_owned())]);
    }

    #[test]
    fn a_failed_start_can_be_followed_by_a_restart() {
        let members = Members::new();
        members.begin_start(&alice());
        members.start_failed(&alice());
        assert!(members.with_process().is_empty());
        members.plan_restart(&alice(), "a1");
        assert!(members.take_restart(&alice(), "a1"));
    }

    #[test]
    fn a_hung_process_is_marked_once_and_remembered_at_its_end() {
        let members = running("a1");
        assert!(!members.mark_hung(&alice(), "a0"), "another life");
        assert!(members.mark_hung(&alice(), "a1"));
        assert!(!members.mark_hung(&alice(), "a1"));
        assert!(members.ended(&alice(), "a1").was_hung);
        assert!(!members.mark_hung(&alice(), "a1"), "it has ended");
    }

    #[test]
    fn an_end_is_expected_until_the_last_stop_is_over() {
        let members = running("a1");
        let first = members.begin_stop(&[alice()], None);
        let second = members.begin_stop(&[alice()], None);
        members.end_stop(&[alice()], first);
        assert!(members.ended(&alice(), "a1").was_expected);
        members.end_stop(&[alice()], second);
        members.begin_start(&alice());
        members.started(&alice(), child("a2"));
        assert!(!members.ended(&alice(), "a2").was_expected);
    }

    #[test]
    fn only_a_stop_by_name_is_raised_by_name() {
        let members = running("a1");
        assert!(!members.raise_stops_of(&alice(), Urgency::Now));
        members.begin_stop(&[alice()], None);
        assert!(!members.raise_stops_of(&alice(), Urgency::Now), "a stop of the whole team");
        let urgency = watch::Sender::new(Urgency::Polite);
        members.begin_stop(&[alice()], Some(&urgency));
        assert!(members.raise_stops_of(&alice(), Urgency::Now));
        assert_eq!(*urgency.borrow(), Urgency::Now);
        members.raise_all_stops(Urgency::AtOnce);
        members.raise_all_stops(Urgency::Polite);
        assert_eq!(*urgency.borrow(), Urgency::AtOnce, "urgency never falls");
    }

    #[test]
    fn waiters_are_notified_of_the_end_of_a_start_and_of_a_cleanup() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let members = Members::new();
            members.begin_start(&alice());
            let names = [alice()];
            tokio::join!(members.wait_started(&names[0]), async {
                members.started(&alice(), child("a1"));
            });
            tokio::join!(members.wait_reaped(&names), async {
                members.ended(&alice(), "a1");
                tokio::task::yield_now().await;
                members.cleaned_up(&alice(), "a1");
            });
            assert!(!members.any_unreaped());
        });
    }
}
