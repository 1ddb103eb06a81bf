//! What an agent shows while it works. Values only: the viewer decides how they look.

use crate::wire::message::{Message, Outcome};
use crate::wire::permission::Question;
use std::time::Duration;

/// One thing to show.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Progress {
    /// Mail was taken into the conversation.
    Mail(Box<Message>),
    TurnStarted {
        /// Mail began it, not a prompt.
        by_mail: bool,
    },
    /// A piece of the model's text.
    Text(String),
    /// The model call broke off: the text of this attempt is void and comes again.
    Retry {
        /// Time until the next attempt.
        wait: Duration,
        why: String,
    },
    /// The user at this agent's terminal is asked.
    Asked(Box<Question>),
    ToolStarted {
        name: String,
        summary: String,
    },
    ToolEnded {
        name: String,
        is_error: bool,
        content: String,
    },
    TurnEnded {
        outcome: Outcome,
        /// The last text, or the error.
        text: String,
    },
    /// The agent is idle: it waits for mail.
    Idle,
    /// Little of a budget is left.
    Warning(String),
    /// A message of the program (a limit reached, a request refused).
    Note(String),
}
