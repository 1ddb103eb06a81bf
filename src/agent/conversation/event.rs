//! The events of a conversation, and the actions of its turn machine.

use super::compact::{Compacted, CompactionFailure};
use crate::agent::progress::Progress;
use crate::llm::ModelError;
use crate::tools::{Call, ToolError, ToolOutput};
use crate::wire::activity::Activity;
use crate::wire::chat::{Reply, Usage};
use crate::wire::permission::{Decision, Question};
use crate::wire::transcript::Entry;

#[derive(Debug)]
pub(crate) enum WorkResult {
    /// The model answered, or the call failed for good.
    Replied(Result<Reply, ModelError>),
    /// The conversation was summarized, or could not be.
    Compacted(Result<Compacted, CompactionFailure>),
    /// Tool calls that ran at the same time have ended: the result of each, in their order.
    ToolsEnded(Vec<Result<ToolOutput, ToolError>>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallVerdict {
    Run,
    Refuse(String),
    /// The permission rules deny the call. The decision is recorded.
    Deny {
        decision: Box<Decision>,
        /// The answer to the model.
        why: String,
    },
    /// The question must be answered first.
    Ask(Box<Question>),
}

#[derive(Debug)]
pub(crate) enum TurnEvent {
    /// There may be input. It is taken in before the next step.
    InputWaits,
    /// Input was taken in (perhaps none) and recorded.
    InputTaken {
        /// The number of messages that the model must see before it ends the turn by itself.
        unseen: usize,
    },
    /// Input could not be taken in.
    InputFailed(String),
    /// The piece of work that the turn waits for ended.
    Work(WorkResult),
    /// The verdict on the next tool call.
    Judged(CallVerdict),
    Settled(Decision),
    Interrupt,
    /// The turn must end soon. This note goes to the model, which may reply with a last report.
    WindDown(String),
    /// The running tool call is the last step of the turn. Other calls are answered with this text.
    EndAfterCall(&'static str),
    Stop {
        /// The limit that was reached, for the turn's report.
        limit: Option<String>,
    },
}

/// Actions that the turn machine requests. They are performed in order.
#[derive(Debug, PartialEq)]
pub(crate) enum TurnAction {
    Effect(TurnEffect),
    /// An action that the owner of the conversation performs.
    Host(HostAction),
}

#[derive(Debug, PartialEq)]
pub(crate) enum TurnEffect {
    /// Appends an entry to the transcript and to the memory.
    Record(Entry),
    /// Makes the transcript durable, before an effect outside the process.
    Sync,
    /// Calls the model; answered by `Replied`, or by `Compacted` if the context is nearly full.
    CallModel,
    /// Summarizes the conversation because a request was refused as too long; answered by `Compacted`.
    Compact,
    /// Runs tool calls at the same time; answered by `ToolsEnded`.
    RunTools(Vec<Call>),
    /// Cancels the model call or tool call that the turn waits for; its result is dropped.
    Cancel,
    Show(Progress),
    Log(String),
}

/// Actions that the owner of a conversation performs.
#[derive(Debug, PartialEq)]
pub(crate) enum HostAction {
    /// Takes input in; answered by `InputTaken` or `InputFailed`.
    TakeInput,
    /// Marks the input that was taken in as acted on.
    InputUsed,
    /// Publishes the activity of the step that begins.
    Doing(Activity),
    /// Decides whether a tool call may run; answered by `Judged`.
    Judge(Call),
    /// Records a question, then asks it; answered by `Settled`.
    Ask(Box<Question>),
    /// Withdraws the question with this id: its answer is no longer awaited.
    Withdraw(String),
    /// Counts the tokens of a model call.
    Count(Usage),
    /// Publishes the reason for which the model refused to end its turn.
    EndRefused(String),
}

impl From<TurnEffect> for TurnAction {
    fn from(effect: TurnEffect) -> Self {
        Self::Effect(effect)
    }
}

impl From<HostAction> for TurnAction {
    fn from(action: HostAction) -> Self {
        Self::Host(action)
    }
}
