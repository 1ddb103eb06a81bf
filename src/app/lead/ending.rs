//! The end of a lead: the reason, the stop of the team, the exit code.

use super::runtime::LeadRuntime;
use crate::agent::event::{Ending, Event, MachineEvent, StopCause};
use crate::agent::{self, Agent, Events};
use crate::app::agent_process::{AgentEnd, publish_end, release_leases};
use crate::app::output::warn;
use crate::app::own_mailbox::{close_mailbox, drain_last_mail};
use crate::error::{Exit, Failure, OrFail};
use crate::llm::ModelError;
use crate::os::spawn::spawn_local;
use crate::os::{failpoint::hit, signals::SignalEvent};
use crate::protocol::budget::BudgetLimit;
use crate::protocol::ladder::Urgency;
use crate::store::asynchronous::SharedMailbox;
use crate::supervise::{stop::StopOutcome, supervisor::Supervisor};
use crate::wire::AgentName;
use crate::wire::limits::{
    TIMEOUT_ASK, TIMEOUT_GIVE_UP, TIMEOUT_GRACE, TIMEOUT_KILL, TIMEOUT_LOOP,
};
use crate::wire::message::{Message, Outcome};
use crate::wire::roster::ExitCause;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{sleep_until, timeout_at};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The user quit, or all work is done.
    Done,
    Interrupted,
    /// SIGTERM, SIGHUP, or the terminal is gone.
    Terminated,
    Timeout,
    Budget(BudgetLimit),
}

impl From<SignalEvent> for EndReason {
    fn from(signal: SignalEvent) -> Self {
        match signal {
            SignalEvent::Interrupt => Self::Interrupted,
            SignalEvent::Terminate | SignalEvent::Hangup => Self::Terminated,
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => out.write_str("done"),
            Self::Interrupted => out.write_str("interrupted"),
            Self::Terminated => out.write_str("terminated"),
            Self::Timeout => out.write_str("timeout"),
            Self::Budget(limit) => write!(out, "budget: {limit}"),
        }
    }
}

/// Starts the loop of the lead's agent as a task beside the session.
pub(super) fn spawn_loop(
    agent: Agent,
    events: Events,
    inbound: UnboundedReceiver<Event>,
) -> JoinHandle<EndedLoop> {
    spawn_local(async move {
        let (mailbox, team) = (Arc::clone(&agent.mailbox), agent.bus.dir().clone());
        let finished = agent::run(agent, events, inbound, || {}).await;
        release_leases(&team, &AgentName::lead()).await;
        EndedLoop { finished, mailbox }
    })
}

pub(super) struct EndedLoop {
    finished: agent::Finished,
    mailbox: SharedMailbox,
}

impl EndedLoop {
    pub(super) fn of(joined: Result<Self, JoinError>) -> Result<Self, Failure> {
        joined.or_fail(
            "the lead failed unexpectedly",
            "`team log lead` says more; please report this",
        )
    }

    /// Returns the reason for the end of a run whose agent loop ended before the session.
    pub(super) fn reason(&self) -> EndReason {
        match self.finished.ending {
            Ending::Stopped(StopCause::Budget(limit)) => EndReason::Budget(limit),
            Ending::Stopped(_) | Ending::Broken(_) => EndReason::Done,
        }
    }
}

pub(super) struct Closed {
    pub(super) end: AgentEnd,
    pub(super) outcomes: Vec<StopOutcome>,
    /// Mail that arrived while the team was being stopped.
    pub(super) last_mail: Vec<Message>,
}

impl Closed {
    /// Whether the lead has ended as the person wanted, with nothing left behind.
    pub(super) fn is_orderly(&self, reason: EndReason) -> bool {
        let AgentEnd { broken, left_running, .. } = &self.end;
        reason == EndReason::Done && broken.is_none() && left_running.is_none()
    }
}

/// The reason of a shutdown request at the end of the team.
pub(crate) const TEAM_STOPS: &str = "the team is being stopped";

/// Stops the team, drains the last mail, and writes the lead's end into the roster, in this order: mail
/// arrives until the last teammate has exited.
///
/// `limit` bounds each step, whatever the reason for the end: the members are killed in time, and a step that waits for
/// a lock or the disk is left to the next start, which finds the mail in its claim.
pub(super) async fn close(
    supervisor: &Supervisor,
    ended: Option<EndedLoop>,
    reason: EndReason,
    limit: TimeLimit,
) -> Closed {
    let is_budget = matches!(reason, EndReason::Budget(_));
    let cause = if is_budget { ExitCause::Budget } else { ExitCause::TeamStopped };
    let outcomes = stop_team(supervisor, cause, limit).await;
    let closed = limit.within(TIMEOUT_GRACE, async {
        let EndedLoop { finished, mailbox } = ended?;
        let last_mail = drain_last_mail(&mailbox).await;
        close_mailbox(mailbox).await;
        Some((publish_end(finished, 0, cause).await, last_mail))
    });
    let (mut end, last_mail) = closed.await.flatten().unwrap_or_default();
    let left = outcomes.iter().filter(|outcome| outcome.is_stuck());
    let left: Vec<_> = left.map(|left| format!("{} {}", left.name, left.words())).collect();
    end.left_running = (!left.is_empty()).then(|| left.join("; "));
    supervisor.end_relay().await;
    tracing::info!(%reason, "lead ends");
    Closed { end, outcomes, last_mail }
}

/// Stops all teammates. Returns how they ended, as far as the limit leaves them the time to end by themselves.
pub(super) async fn stop_team(
    supervisor: &Supervisor,
    cause: ExitCause,
    limit: TimeLimit,
) -> Vec<StopOutcome> {
    hit("lead.closing");
    let stopping = supervisor.stop_all(TEAM_STOPS, cause);
    let stopped = limit.within(TIMEOUT_GIVE_UP, limit.raise_urgency(supervisor, stopping)).await;
    if stopped.is_none() {
        tracing::warn!("stopping the team takes too long: its processes are killed");
        // Half of the rest is for the lead's own end, so that the roster shows it.
        limit.within((TIMEOUT_GIVE_UP + TIMEOUT_GRACE) / 2, supervisor.kill_all()).await;
    }
    let stopped = stopped.unwrap_or_default();
    let left = limit.within(TIMEOUT_GRACE, supervisor.collect_last(&stopped)).await;
    for name in left.unwrap_or_default() {
        warn(&format!(
            "the last work of {name} has not come from its host: `team work take {name}` fetches it"
        ));
    }
    hit("lead.alone");
    stopped
}

/// The limit on the end of a run: the time at which `--timeout` passes, if there is one.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeLimit(pub(super) Option<Instant>);

impl TimeLimit {
    /// Does the work. Returns `None` if it takes longer than until `grace` after the limit.
    async fn within<T>(self, grace: Duration, work: impl Future<Output = T>) -> Option<T> {
        match self.0 {
            Some(passed) => timeout_at((passed + grace).into(), work).await.ok(),
            None => Some(work.await),
        }
    }

    /// Stops the team. Members that do not end by themselves get SIGTERM some time after the limit, then SIGKILL.
    async fn raise_urgency<T>(
        self,
        supervisor: &Supervisor,
        stopping: impl Future<Output = T>,
    ) -> T {
        let Self(Some(passed)) = self else { return stopping.await };
        let raise = async {
            for (grace, urgency) in [(TIMEOUT_ASK, Urgency::Now), (TIMEOUT_KILL, Urgency::AtOnce)] {
                sleep_until((passed + grace).into()).await;
                supervisor.raise_urgency(urgency);
            }
            std::future::pending().await
        };
        tokio::select! {
            stopped = stopping => stopped,
            never = raise => never,
        }
    }
}

/// Stops the loop of the lead's agent. Returns `None` if the limit does not leave it the time to end.
pub(super) async fn stop_loop(
    runtime: &LeadRuntime,
    agent: &mut JoinHandle<EndedLoop>,
    limit: TimeLimit,
) -> Result<Option<EndedLoop>, Failure> {
    runtime.send(MachineEvent::Stop(StopCause::AtOnce).into());
    let ended = limit.within(TIMEOUT_LOOP, &mut *agent).await;
    if ended.is_none() {
        tracing::warn!("the lead's event loop takes too long to end");
        agent.abort();
    }
    ended.map(EndedLoop::of).transpose()
}

/// The state of the work at the end of a run that was not cut short.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkState {
    /// The outcome of the lead's last turn; only a limit interrupts one.
    pub(super) last_turn: Outcome,
    /// Whether a task of the run failed.
    pub(super) has_task_failed: bool,
    /// Whether a task of the run is open.
    pub(super) has_tasks_left: bool,
    pub(super) was_call_denied: bool,
}

/// The state of a run that has left nothing undone.
pub(super) const ALL_DONE: WorkState = WorkState {
    last_turn: Outcome::Done,
    has_task_failed: false,
    has_tasks_left: false,
    was_call_denied: false,
};

pub(super) fn exit_code(reason: EndReason, end: &AgentEnd, work: WorkState) -> Exit {
    match reason {
        EndReason::Interrupted => Exit::Interrupted,
        EndReason::Terminated => Exit::Terminated,
        EndReason::Timeout => Exit::Timeout,
        EndReason::Budget(_) => Exit::Budget,
        EndReason::Done if end.broken.is_some() => Exit::Failure,
        EndReason::Done => match &end.model_error {
            Some(ModelError::Credentials(_)) => Exit::NoModel,
            Some(ModelError::Unavailable(_) | ModelError::SpendCap(_)) => Exit::ModelUnavailable,
            Some(
                ModelError::ContextFull(_)
                | ModelError::NoModel(_)
                | ModelError::Rejected(_)
                | ModelError::Script(_),
            ) => Exit::TurnFailed,
            None if work.has_task_failed => Exit::TurnFailed,
            None if work.last_turn == Outcome::Failed => Exit::TurnFailed,
            None if work.last_turn == Outcome::Interrupted => Exit::Budget,
            None if work.has_tasks_left => Exit::TasksLeft,
            None if work.was_call_denied => Exit::CallDenied,
            None if end.left_running.is_some() => Exit::Failure,
            None => Exit::Ok,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Done, Failed, Interrupted};

    #[test]
    fn a_forced_end_or_the_worst_failure_decides_the_exit_code() {
        let text = String::new;
        let work = |failed| WorkState { last_turn: if failed { Failed } else { Done }, ..ALL_DONE };
        let unavailable = || Some(ModelError::Unavailable(text()));
        for (signal, code) in [
            (SignalEvent::Interrupt, Exit::Interrupted),
            (SignalEvent::Terminate, Exit::Terminated),
            (SignalEvent::Hangup, Exit::Terminated),
        ] {
            let end =
                AgentEnd { broken: Some(text()), model_error: unavailable(), left_running: None };
            assert_eq!(exit_code(signal.into(), &end, work(true)), code, "{signal:?}");
        }
        for (reason, model_error, broken, failed, code) in [
            (EndReason::Timeout, unavailable(), true, true, Exit::Timeout),
            (EndReason::Done, None, false, false, Exit::Ok),
            (EndReason::Done, None, false, true, Exit::TurnFailed),
            (EndReason::Done, None, true, false, Exit::Failure),
            (EndReason::Done, Some(ModelError::SpendCap(text())), true, true, Exit::Failure),
            (EndReason::Done, Some(ModelError::Credentials(text())), false, true, Exit::NoModel),
            (EndReason::Done, unavailable(), false, false, Exit::ModelUnavailable),
            (EndReason::Done, unavailable(), false, true, Exit::ModelUnavailable),
            (
                EndReason::Done,
                Some(ModelError::SpendCap(text())),
                false,
                true,
                Exit::ModelUnavailable,
            ),
            (
                EndReason::Done,
                Some(ModelError::ContextFull(text())),
                false,
                false,
                Exit::TurnFailed,
            ),
            (EndReason::Done, Some(ModelError::Rejected(text())), false, false, Exit::TurnFailed),
            (EndReason::Done, Some(ModelError::Script(text())), false, false, Exit::TurnFailed),
        ] {
            let end = AgentEnd { broken: broken.then(text), model_error, left_running: None };
            let case = format!("{reason:?} {:?} {broken} {failed}", end.model_error);
            assert_eq!(exit_code(reason, &end, work(failed)), code, "{case}");
        }
    }
    #[test]
    fn failed_work_outweighs_open_tasks_and_those_outweigh_denied_calls() {
        let end = AgentEnd::default();
        for (last_turn, has_task_failed, has_tasks_left, was_call_denied, code) in [
            (Interrupted, true, true, true, Exit::TurnFailed),
            (Failed, false, true, true, Exit::TurnFailed),
            (Interrupted, false, true, true, Exit::Budget),
            (Done, false, true, true, Exit::TasksLeft),
            (Done, false, false, true, Exit::CallDenied),
            (Done, false, false, false, Exit::Ok),
        ] {
            let work = WorkState { last_turn, has_task_failed, has_tasks_left, was_call_denied };
            assert_eq!(exit_code(EndReason::Done, &end, work), code);
            assert_eq!(exit_code(EndReason::Timeout, &end, work), Exit::Timeout);
        }
        let left = AgentEnd { left_running: Some("carol".into()), ..AgentEnd::default() };
        assert_eq!(exit_code(EndReason::Done, &left, ALL_DONE), Exit::Failure);
    }
}
