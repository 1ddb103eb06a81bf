//! What a conversation hears, and what its turn machine asks for.

use super::compact::Compacted;
use crate::agent::progress::Progress;
use crate::llm::ModelError;
use crate::tools::{Call, ToolError};
use crate::wire::activity::Activity;
use crate::wire::chat::{Reply, Usage};
use crate::wire::permission::{Decision, Question};
use crate::wire::transcript::Entry;

/// The result of a piece of work.
#[derive(Debug)]
pub(crate) enum WorkResult {
    /// The model answered, or the call failed for good.
    Replied(Result<Reply, ModelError>),
    /// The conversation was summarized, or could not be.
    Compacted(Result<Compacted, ModelError>),
    ToolEnded(Result<String, ToolError>),
}

/// Whether a tool call may run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallVerdict {
    Run,
    /// Answer it with this error.
    Refuse(String),
    /// Ask first.
    Ask(Box<Question>),
}

/// Everything that can happen to a turn under way.
#[derive(Debug)]
pub(crate) enum TurnEvent {
    /// There may be input: take it in before the next step.
    InputWaits,
    /// Input was taken in (perhaps none) and recorded.
    InputTaken {
        /// Messages that the model must see before it ends the turn by itself.
        unseen: usize,
    },
    /// Input could not be taken in.
    InputFailed(String),
    /// The piece of work that the turn waits for ended.
    Work(WorkResult),
    /// Whether the next tool call may run.
    Judged(CallVerdict),
    /// A question was decided.
    Settled(Decision),
    /// The user ends the turn.
    Interrupt,
    /// The turn must come to its end; the model is told so with this note and gets a last word.
    WindDown(String),
    /// The running tool call is the last step of the turn. Other calls are answered with this text.
    EndAfterCall(&'static str),
    /// The turn ends now.
    Stop {
        /// The limit that was reached, for the turn's report.
        limit: Option<String>,
    },
}

/// What the turn machine asks for. Actions are performed in order.
#[derive(Debug, PartialEq)]
pub(crate) enum TurnAction {
    /// The conversation performs it.
    Effect(Effect),
    /// The owner of the conversation performs it.
    Host(HostAction),
}

/// What a conversation does by itself.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Appends to the transcript and to the memory.
    Record(Entry),
    /// Makes the transcript durable before something leaves the process.
    Sync,
    /// Calls the model; answered by `Replied`, or by `Compacted` if the context is nearly full.
    CallModel,
    /// Summarizes the conversation because a request was refused as too long; answered by `Compacted`.
    Compact,
    /// Runs a tool call; answered by `ToolEnded`.
    RunTool(Call),
    /// Cancels the model call or tool call that the turn waits for; its result is dropped.
    Cancel,
    Show(Progress),
    /// Logs a warning.
    Log(String),
}

/// What the owner of a conversation does for it.
#[derive(Debug, PartialEq)]
pub(crate) enum HostAction {
    /// Takes input in; answered by `InputTaken` or `InputFailed`.
    TakeInput,
    /// The input that was taken in has been acted on.
    InputUsed,
    /// Another step of the turn begins.
    Doing(Activity),
    /// Decides whether a tool call may run; answered by `Judged`.
    Judge(Call),
    /// Records a question, then asks it; answered by `Settled`.
    Ask(Box<Question>),
    /// Takes a question back: its answer is no longer awaited.
    Withdraw(String),
    /// Counts the tokens of a model call.
    Count(Usage),
    /// The model refused to end its turn, for this reason.
    EndRefused(String),
}

impl From<Effect> for TurnAction {
    fn from(effect: Effect) -> Self {
        Self::Effect(effect)
    }
}

impl From<HostAction> for TurnAction {
    fn from(action: HostAction) -> Self {
        Self::Host(action)
    }
}
