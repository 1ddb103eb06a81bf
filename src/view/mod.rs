//! The team as its files tell it: what there is, and what has changed since one last looked.
//!
//! *Invariants:* a view changes nothing below `.team/`, asks no model and starts no process. What it gives
//! is data; how that looks is for others, and so is making foreign text harmless.

mod feed;
mod line_diff;
mod members;
mod message_progress;
mod picture;
mod scene;
pub(crate) mod trace;

pub(crate) use feed::Feed;
pub(crate) use line_diff::LineDiff;
pub(crate) use members::{MemberView, members};
pub(crate) use message_progress::{MessageProgress, Stage};
pub(crate) use picture::Picture;
pub(crate) use scene::{Observer, Scene};

use crate::wire::WallTime;
use crate::wire::WithUnknownFields;
use crate::wire::money::Money;
use crate::wire::permission::Question;
use crate::wire::task::Task;
use serde::Serialize;

/// Something of the team that is other than it was.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Change {
    /// The roster file, as it stands there: some of its lines are others now.
    Config(LineDiff),
    /// Everybody, with what is really so.
    Team {
        /// The lead first.
        members: Vec<MemberView>,
    },
    /// Of the same people as before, some are other than they were.
    Members {
        /// Those, in the same order.
        members: Vec<MemberView>,
    },
    /// The task list.
    Tasks {
        /// In the order of their ids.
        tasks: Vec<WithUnknownFields<Task>>,
    },
    /// What waits for an answer.
    Requests {
        /// By their ids.
        requests: Vec<Asked>,
    },
    /// A message came a step further.
    Mail(MessageProgress),
    /// A model was asked.
    Usage(Spent),
}

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Asked {
    /// Who asks.
    pub(crate) from: String,
    /// Who is asked: `lead`, or `user` at the agent's own terminal.
    pub(crate) decider: String,
    /// When it counts as denied.
    pub(crate) deadline: WallTime,
    /// What is asked.
    pub(crate) question: Question,
}

/// What one call of a model used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Spent {
    /// When.
    pub(crate) at: WallTime,
    /// Whose call.
    pub(crate) name: String,
    /// Tokens read, cached ones included.
    pub(crate) input: u64,
    /// Tokens written.
    pub(crate) output: u64,
    /// What it cost, by the price that is set for its model now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<Money>,
}
