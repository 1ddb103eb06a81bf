//! The events of a foreign turn, and the actions that it requests.

use super::call::ForeignCall;
use crate::acp::session::PromptEnd;
use crate::acp::update::{ToolUpdate, Update};
use crate::agent::conversation::{CallVerdict, TurnEvent};
use crate::wire::chat::Usage;
use crate::wire::permission::Question;
use std::time::Duration;

/// The number of a question of the agent, by which it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AskNumber(pub(crate) u64);

/// An event of a foreign turn.
#[derive(Debug)]
pub(crate) enum ForeignTurnEvent {
    /// An event as every turn has it.
    Turn(TurnEvent),
    Agent(ForeignEvent),
}

#[derive(Debug)]
pub(crate) enum ForeignEvent {
    Update(Update),
    /// The agent asks about a tool call, of which this is known.
    Asked(AskNumber, Box<ToolUpdate>),
    /// The agent has submitted a plan, about which this question is asked.
    PlanSubmitted(Box<Question>),
    /// The verdict on the call about which the agent asks.
    Judged(AskNumber, CallVerdict),
    /// The prompt has ended, with these tokens.
    Ended(PromptEnd, Usage),
    /// The agent answered the prompt with an error.
    Refused(String),
    /// The process of the agent has ended.
    Lost(String),
    /// The agent has seen everything that was taken in.
    HandedOver,
    /// The agent has a process again.
    Restarted,
    /// The agent has given no sign for this time, which is too long for a model.
    Silent(Duration),
    /// The agent is not started again, for this reason.
    GaveUp(String),
    /// The agent has not ended its prompt in time after it was cancelled.
    CancelOverdue,
}

/// The answer to a question of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskAnswer {
    Allow,
    Reject,
    /// The prompt was cancelled, or is over.
    Cancelled,
}

#[derive(Debug, PartialEq)]
pub(crate) enum ForeignAction {
    /// Sends the agent what it has not seen yet; answered by `Ended`, `Refused` or `Lost`.
    Prompt,
    /// Gives the agent what it has not seen within its prompt, if it takes that; answered by `HandedOver` if it did.
    Steer,
    /// Asks the agent to end its prompt; answered by `Ended`, `Refused`, `Lost` or, after a time, `CancelOverdue`.
    Cancel,
    /// Ends the processes of the agent. The next prompt starts it again.
    EndAgent,
    /// Decides whether a call may run; answered by `Judged`.
    Judge(AskNumber, Box<ForeignCall>),
    Answer(AskNumber, AskAnswer),
    /// Starts the agent again, whose process has ended for this reason; answered by `Restarted` or `GaveUp`.
    Restart(String),
}
