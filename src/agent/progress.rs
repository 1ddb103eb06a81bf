//! What an agent tells whoever watches it. Values only: the watcher decides how they look.

use crate::wire::message::{Message, Outcome};
use crate::wire::permission::Question;
use std::time::Duration;

/// One thing worth seeing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Progress {
    /// Mail was taken into the conversation.
    Mail(Box<Message>),
    /// A turn begins; `by_mail` tells that nobody typed a prompt for it.
    TurnStarted {
        /// Mail woke the agent.
        by_mail: bool,
    },
    /// A piece of the model's text.
    Text(String),
    /// The attempt broke: the text since the last `Attempt` is void and comes again.
    Retry {
        /// Until the next attempt.
        wait: Duration,
        /// Why.
        why: String,
    },
    /// The person at this agent's terminal is asked.
    Asked(Box<Question>),
    /// A tool call begins.
    ToolStarted {
        /// The tool.
        name: String,
        /// Its arguments on one line.
        summary: String,
    },
    /// A tool call is over.
    ToolEnded {
        /// The tool.
        name: String,
        /// It failed.
        is_error: bool,
        /// What it said, whole.
        content: String,
    },
    /// The turn is over.
    TurnEnded {
        /// How.
        outcome: Outcome,
        /// The last text, or the error.
        text: String,
    },
    /// There is nothing to do: the agent waits for mail.
    Idle,
    /// Little of a budget is left.
    Warning(String),
    /// The program has something to say (a limit reached, a request refused).
    Note(String),
}
