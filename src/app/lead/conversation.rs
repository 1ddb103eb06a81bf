//! The conversation of a lead: as requested, as taken up, and the one that follows in the same process.

use crate::store::TeamDir;
use crate::wire::AgentName;
use std::path::PathBuf;

/// The conversation with which a lead begins, as it was requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConversationChoice {
    /// A new one, unless a person at a terminal wants to resume an earlier one.
    Ask,
    New,
    /// The current one if the model of another program had it, else a new one.
    OfProgram,
    /// The last one in which something was said.
    Last,
    /// The one with this id.
    Chosen(String),
}

/// The conversation that follows in this process when a session has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextSession {
    New,
    /// The conversation with this id.
    Resume(String),
}

/// The conversation that a lead has taken up, with its life lock held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum TakenUp {
    #[default]
    New,
    /// The current transcript goes on.
    Current,
    /// This archived transcript becomes the current one when the mailbox is opened.
    Archived(PathBuf),
}

impl TakenUp {
    /// Returns the file of the transcript that goes on; `None` for a new conversation.
    pub(super) fn transcript(&self, team: &TeamDir) -> Option<PathBuf> {
        match self {
            Self::New => None,
            Self::Current => Some(team.transcript(&AgentName::lead())),
            Self::Archived(path) => Some(path.clone()),
        }
    }
}
