//! The events of a member, and the actions of its state machine.

use super::conversation::{CallVerdict, TurnAction, WorkId, WorkResult};
use super::foreign::event::{ForeignAction, ForeignEvent};
use super::foreign::process::{FromAgent, FromTools};
use crate::protocol::budget::BudgetLimit;
use crate::store::Drained;
use crate::wire::activity::Activity;
use crate::wire::message::{IdleReason, Message, Outcome};
use crate::wire::permission::{Decision, PermissionMode, RuleLists};
use crate::wire::roster::Status;
use tokio::sync::mpsc::UnboundedSender;

pub(crate) type Events = UnboundedSender<Event>;

#[derive(Debug)]
pub(crate) enum Event {
    Machine(MachineEvent),
    Approval(ApprovalEvent),
    /// A drain ended. Its mail (perhaps none) is in the transcript, but not yet in the memory.
    Drained(Drained),
    /// A piece of work of the conversation ended.
    WorkEnded(WorkId, WorkResult),
    /// The person asks that the conversation will be summarized before the next model call.
    Compact,
    /// The model call is late or is tried again, for this reason; `None` once the endpoint answers.
    ModelRetry(Option<String>),
    /// The process of this number of the foreign agent has sent something, or something about it has ended.
    Foreign(u64, FromAgent),
    /// The server of the team tools for the foreign agent has sent something.
    FromTools(FromTools),
    /// An answer to a question was found in mail that is not drained yet.
    Answered(Box<Message>),
    /// A subagent of this member has made a request, which its [`Subagents`](super::subagent::Subagents) hold.
    Subagent,
    /// The check whether the member may be idle ended. A refusal holds the text for the model.
    IdleCheckEnded(WorkId, Result<(), String>),
}

#[derive(Debug)]
pub(crate) enum MachineEvent {
    /// There may be mail.
    Mail,
    /// A drain ended. Its mail (perhaps none) is in the transcript and in the memory.
    Drained(Vec<Message>),
    /// A drain failed; the next one tries again.
    DrainFailed(String),
    /// The drain under way waits for room on the disk.
    DiskFull,
    /// The team folder was removed or replaced.
    TeamGone(String),
    /// A prompt from the user at this member's terminal.
    Prompt(String),
    /// The prompts that are not in the conversation yet are taken back.
    DropPrompts,
    /// A note from the program, which goes to the model with its next call.
    Notice(String),
    /// The piece of work that the turn waits for ended.
    Work(WorkResult),
    /// The verdict on the next tool call.
    Judged(CallVerdict),
    /// The decision on a question. Only `Approvals` creates this event.
    Settled(Decision),
    /// An event of the foreign agent.
    Foreign(ForeignEvent),
    Interrupt,
    /// An `interrupt_request` that binds this incarnation is in mail that is not drained yet.
    InterruptAsked(InterruptRequest),
    Stop(StopCause),
    /// The task list has a task that the member would claim on its own.
    TaskInSight,
    /// The attempt to claim a task ended. A claimed task arrives as mail.
    TaskTaken,
    /// The answer whether the member may be idle. A refusal holds the text for the model.
    IdleChecked(Result<(), String>),
    /// The time limit of the last tool call has passed.
    LastCallTimeout,
}

/// Events for `Approvals` that the user causes. Answers by mail arrive with [`Event::Drained`].
#[derive(Debug)]
pub(crate) enum ApprovalEvent {
    /// The user's answer to a question.
    Answered(Decision),
    /// The user sets the permission mode.
    SetMode(PermissionMode),
    AddRules(RuleLists),
    /// Rules of earlier answers no longer hold.
    RevokeRules(Vec<String>),
}

impl From<MachineEvent> for Event {
    fn from(event: MachineEvent) -> Self {
        Self::Machine(event)
    }
}

impl From<ApprovalEvent> for Event {
    fn from(event: ApprovalEvent) -> Self {
        Self::Approval(event)
    }
}

/// An `interrupt_request` that binds this incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterruptRequest {
    pub(crate) request_id: String,
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
}

/// The reason for which a member is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// A valid `shutdown_request`: the member finishes its turn, then answers the request.
    Requested {
        request_id: String,
        by: String,
        reason: String,
    },
    /// The lead's process has exited: the member finishes the running tool call, then ends.
    LeadLost,
    Budget(BudgetLimit),
    /// The member ends now (SIGTERM, SIGHUP, the end of a run).
    AtOnce,
}

/// Actions that the state machine requests. They are performed in order.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// An action of a turn. Between two turns, it also drains mail and marks that mail as acted on.
    Turn(TurnAction),
    /// An action of a turn of a foreign agent.
    Foreign(ForeignAction),
    /// Starts the time limit of the last tool call; answered by `LastCallTimeout`.
    StartLastCallTimeout,
    /// Writes status and activity into the roster.
    Publish(Status, Option<Activity>),
    /// Ends a turn: records it durably, counts it, and sends the report to the lead.
    EndTurn {
        outcome: Outcome,
        /// The number of model calls in the turn.
        rounds: u32,
        /// The report; `None` for the lead, for an empty text, or if the model has sent it already.
        report: Option<String>,
        /// Whether a stop of the member cut the turn off.
        cut_off: bool,
    },
    /// Sends a message from the program to the lead's model.
    TellLead(String),
    /// Checks whether the member may be idle after a turn that ended for this reason; answered by `IdleChecked`.
    CheckIdle {
        reason: IdleReason,
        /// The number of refusals in a row.
        refused: u32,
        /// Whether the check may refuse once more.
        may_refuse: bool,
    },
    CancelIdleCheck,
    /// Watches for a task to claim; answered by `TaskInSight` as soon as there is one.
    FindTask,
    /// Claims the next suitable task; answered by `TaskTaken`.
    TakeTask,
    /// Notifies the lead's program that this member is idle.
    NotifyIdle(IdleReason),
    /// Registers a shutdown request as open, so that it is answered when the member ends.
    OpenShutdown {
        request_id: String,
        by: String,
    },
    Exit(Ending),
}

impl<T: Into<TurnAction>> From<T> for Action {
    fn from(action: T) -> Self {
        Self::Turn(action.into())
    }
}

/// The way in which a member's event loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    Stopped(StopCause),
    /// The member cannot continue, for this reason.
    Broken(String),
}
