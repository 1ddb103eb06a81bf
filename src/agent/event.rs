//! What can happen to a member of a team, and what its machine asks for.

use super::conversation::{CallVerdict, TurnAction, WorkId, WorkResult};
use crate::protocol::budget::BudgetLimit;
use crate::store::Drained;
use crate::wire::activity::Activity;
use crate::wire::message::{IdleReason, Message, Outcome};
use crate::wire::permission::{Decision, PermissionMode, RuleLists};
use crate::wire::roster::Status;
use tokio::sync::mpsc::UnboundedSender;

/// Where everything that happens to a member is sent.
pub(crate) type Events = UnboundedSender<Event>;

/// Everything that can happen to a member: one enum for each part that it concerns.
#[derive(Debug)]
pub(crate) enum Event {
    Machine(MachineEvent),
    Approval(ApprovalEvent),
    /// Mail was taken in (perhaps none); it stands in the transcript, but not in the memory yet.
    Drained(Drained),
    /// A piece of work of the conversation ended.
    WorkEnded(WorkId, WorkResult),
    /// The hooks answered whether the member may be idle; if not, with what the model is told.
    IdleHookEnded(WorkId, Result<(), String>),
}

/// What the machine hears.
#[derive(Debug)]
pub(crate) enum MachineEvent {
    /// There may be mail.
    Mail,
    /// Mail was taken in (perhaps none); it is in the transcript and in the memory.
    Drained(Vec<Message>),
    /// Mail could not be taken in; the next drain tries again.
    DrainFailed(String),
    /// Mail cannot be taken in until there is room on the disk.
    DiskFull,
    /// The team folder was removed or replaced.
    TeamGone(String),
    /// The user at this member's terminal has written a prompt.
    Prompt(String),
    /// The program has a note for the model, to go with its next call.
    Notice(String),
    /// The piece of work that the turn waits for ended.
    Work(WorkResult),
    /// Whether the next tool call may run.
    Judged(CallVerdict),
    /// A question was decided. Only the approvals make this event.
    Settled(Decision),
    /// The user ends this turn.
    Interrupt,
    Stop(StopCause),
    /// The task list has a task that the member would take by itself.
    TaskInSight,
    /// The attempt to take a task is over; a task that was taken comes as mail.
    TaskTaken,
    /// Whether the member may be idle; if not, with what the model is told.
    IdleHookAnswered(Result<(), String>),
    /// The time of the last tool call is over.
    LastCallTimeout,
}

/// What the approvals hear from outside; answers by mail reach them with the mail.
#[derive(Debug)]
pub(crate) enum ApprovalEvent {
    /// The user at this member's terminal has answered a question.
    Answered(Decision),
    /// The user sets the permission mode.
    SetMode(PermissionMode),
    /// The user adds rules.
    AddRules(RuleLists),
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

/// Why a member is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// A valid `shutdown_request`: finish the turn, then answer the request.
    Requested { request_id: String, by: String, reason: String },
    /// The lead's process is gone: finish the running tool, then end.
    LeadLost,
    /// A budget is used up.
    Budget(BudgetLimit),
    /// End now (SIGTERM, SIGHUP, the end of a run).
    AtOnce,
}

/// What the machine asks for. Actions are performed in order.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// What a turn asks for, and what the member does in the same way between two turns: it takes in mail,
    /// and marks that mail as acted on.
    Turn(TurnAction),
    /// Starts the time that the last tool call gets; answered by `LastCallTimeout`.
    StartLastCallTimeout,
    /// Writes status and activity into the roster.
    Publish(Status, Option<Activity>),
    /// Ends a turn: recorded, counted, durable, and its last text reported to the lead.
    EndTurn {
        outcome: Outcome,
        /// Model calls it took.
        rounds: u32,
        /// The report; `None` if the model has sent it by itself.
        report: Option<String>,
    },
    /// Sends a message of the program to the lead's model.
    TellLead(String),
    /// Asks the hooks whether the member may be idle, after so many refusals; answered by
    /// `IdleHookAnswered`.
    AskIdleHook(u32),
    CancelIdleHook,
    /// Watches for a task to take; answered by `TaskInSight`, as soon as there is one.
    FindTask,
    /// Takes the next task that suits; answered by `TaskTaken`.
    TakeTask,
    /// Tells the lead's program that this member is idle.
    NotifyIdle(IdleReason),
    /// Registers a shutdown request as open: it is answered when the member ends.
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

/// How a member's loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was told to end.
    Stopped(StopCause),
    /// It cannot go on.
    Broken(String),
}
