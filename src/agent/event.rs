//! What can happen to an agent and what it can be told to do: the two sides of [`super::step`].

use super::compact::Compacted;
use super::progress::Progress;
use crate::llm::ModelError;
use crate::protocol::budget::BudgetLimit;
use crate::tools::{Call, ToolError};
use crate::wire::activity::Activity;
use crate::wire::chat::{Reply, Usage};
use crate::wire::message::{IdleReason, Message, Outcome};
use crate::wire::permission::{Decision, PermissionMode, Question, RuleLists};
use crate::wire::roster::Status;
use crate::wire::transcript::Entry;

/// Everything that can happen to an agent.
#[derive(Debug)]
pub(crate) enum Event {
    /// There may be mail.
    Mail,
    /// Mail was taken in (perhaps none); it stands in the transcript.
    Drained(Vec<Message>),
    /// Taking mail in failed; it will be tried again.
    DrainFailed(String),
    /// Mail cannot be taken in before there is room on the disk.
    DiskFull,
    /// The team folder was removed or replaced.
    TeamGone(String),
    /// The person at this agent's terminal said something.
    Prompt(String),
    /// The program has something to tell the model, with its next call.
    Notice(String),
    /// The model answered, or gave up.
    Replied(Result<Reply, ModelError>),
    /// Whether a tool call may run.
    Judged(CallVerdict),
    /// The person at this agent's terminal answered what was asked there.
    Answered(Decision),
    /// What was asked is decided; comes from the approval alone.
    Settled(Decision),
    /// The person wants this agent to go on in another mode.
    SetMode(PermissionMode),
    /// The person has given further rules.
    AddRules(RuleLists),
    /// The conversation was summarized, or could not be.
    Compacted(Result<Compacted, ModelError>),
    /// The running tool call is over.
    ToolEnded(Result<String, ToolError>),
    /// The person wants this turn to end.
    Interrupt,
    /// The agent is to end.
    Stop(StopCause),
    /// There is a task that this agent would take by itself.
    TaskInSight,
    /// Taking it is over; if it was taken, it comes as mail.
    TaskTaken,
    /// Whether this agent may rest; if not, what it is told.
    IdleHookAnswered(Result<(), String>),
    /// Patience with the running tool is over.
    PatienceOver,
}

/// What is to be done with a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallVerdict {
    /// Run it.
    Run,
    /// Answer it with this error.
    Refuse(String),
    /// Ask first.
    Ask(Box<Question>),
}

/// Why an agent is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// A valid `shutdown_request`: finish what is under way, then answer it.
    Requested {
        /// The request's id.
        request_id: String,
        /// Who asked.
        by: String,
        /// Why.
        reason: String,
    },
    /// The lead's process is gone: finish the running tool, then end.
    LeadLost,
    /// A budget is used up.
    Budget(BudgetLimit),
    /// End now (SIGTERM, SIGHUP, the end of a run).
    AtOnce,
}

/// What the loop is to do. Actions are performed in order.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// Take mail in; answered by `Drained` or `DrainFailed`.
    Drain,
    /// What the last drain gave has been acted on.
    MarkTaken,
    /// Append to the transcript (and to the memory).
    Record(Entry),
    /// Make the transcript durable before something leaves the process.
    Sync,
    /// Ask the model; answered by `Replied`, or by `Compacted` when room had to be made instead.
    CallModel,
    /// Tell whether a tool call may run; answered by `Judged`.
    Judge(Call),
    /// Write down what is asked, then ask; answered by `Settled`.
    Ask(Box<Question>),
    /// Nobody waits for the answer to this question any more.
    Withdraw(String),
    /// Make room because a request was refused; answered by `Compacted`.
    MakeRoom,
    /// Run a tool call; answered by `ToolEnded`.
    RunTool(Call),
    /// Abandon the model call or tool call under way; no answer comes any more.
    Cancel,
    /// Send `PatienceOver` after the grace that a running tool gets when the lead is lost.
    StartPatience,
    /// Say in the roster what this agent does.
    Publish(Status, Option<Activity>),
    /// Add to what this agent has used.
    Count(Usage),
    /// A turn is over: recorded, counted, durable, and its last text reported to the lead.
    EndTurn {
        /// How.
        outcome: Outcome,
        /// Model calls it took.
        rounds: u32,
        /// What to tell the lead; nothing when the model already did.
        report: Option<String>,
    },
    /// Tell the lead's model something in the program's name.
    TellLead(String),
    /// Ask whether this agent may rest, which was refused so often already; answered by `IdleHookAnswered`.
    AskIdleHook(u32),
    /// Look out for a task to take; answered by `TaskInSight`, as soon as there is one.
    FindTask,
    /// Take the next task that suits; answered by `TaskTaken`.
    TakeTask,
    /// Tell the lead's program that this agent is idle.
    NotifyIdle(IdleReason),
    /// A shutdown request is open: its answer is awaited.
    OpenShutdown(StopCause),
    /// Say in the roster why this agent would rather not end.
    SayRefused(String),
    /// Show something.
    Show(Progress),
    /// Log something that people may look for later.
    Log(String),
    /// End the loop.
    Exit(Ending),
}

/// How an agent's loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was told to.
    Stopped(StopCause),
    /// It cannot go on.
    Broken(String),
}
