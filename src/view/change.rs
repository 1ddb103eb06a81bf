//! The changes of a team that views are told.

use super::line_diff::LineDiff;
use super::members::MemberView;
use super::message_progress::MessageProgress;
use crate::wire::WallTime;
use crate::wire::WithUnknownFields;
use crate::wire::money::Money;
use crate::wire::permission::Question;
use crate::wire::task::Task;
use serde::Serialize;

/// One change of the team's state.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Change {
    /// The roster file has other lines.
    Config(LineDiff),
    /// The list of agents is another one.
    Team {
        /// All agents, the lead first.
        members: Vec<MemberView>,
    },
    /// Some agents of the same list have changed.
    Members {
        /// The changed agents, in the order of the list.
        members: Vec<MemberView>,
    },
    /// The task list has changed.
    Tasks {
        /// All tasks, by id.
        tasks: Vec<WithUnknownFields<Task>>,
    },
    /// The open requests have changed.
    Requests {
        /// All open requests, by id.
        requests: Vec<Asked>,
    },
    /// A message is new, or has reached a further stage.
    Mail(MessageProgress),
    /// A model call has ended.
    Usage(Spent),
}

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Asked {
    /// The agent that asks.
    pub(crate) from: String,
    /// The decider: `lead`, or `user` at the agent's own terminal.
    pub(crate) decider: String,
    /// The time from which the question counts as denied.
    pub(crate) deadline: WallTime,
    /// The question.
    pub(crate) question: Question,
}

/// The tokens and the cost of one model call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Spent {
    /// The time of the reply.
    pub(crate) at: WallTime,
    /// The agent that made the call.
    pub(crate) name: String,
    /// Input tokens, cached ones included.
    pub(crate) input: u64,
    /// Output tokens.
    pub(crate) output: u64,
    /// The cost, by the price that is set for the model now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<Money>,
}
