//! The progress of an agent, for display. Values only: the viewer decides how they look.

use crate::wire::message::{Message, Outcome};
use crate::wire::permission::Question;
use crate::wire::text_change::TextChange;
use serde_json::Value;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Progress {
    Mail(Box<Message>),
    /// A turn begins, or an earlier process has begun it and it goes on.
    TurnStarted {
        /// Whether mail or a hook began the turn, not a prompt. Not known of a turn that goes on.
        by_mail: bool,
    },
    /// This number of the prompts that the person has typed are in the conversation now, the oldest ones.
    PromptsTaken(usize),
    /// The prompts that were not in the conversation yet are taken back, as the person has asked.
    PromptsDropped,
    /// A piece of the model's text.
    Text(String),
    /// A piece of the model's reasoning.
    Thought(String),
    /// The model call failed and is tried again. The text of the failed attempt is void.
    Retry {
        /// Time until the next attempt.
        wait: Duration,
        /// Longest time for which the call is tried from now on.
        left: Duration,
        why: String,
    },
    /// The model's endpoint has not begun to answer; the call goes on for at most `left`.
    Silent {
        left: Duration,
        why: String,
    },
    /// The endpoint answers again after a failed or silent attempt.
    Answers,
    /// The model call of a teammate fails and is tried again.
    MemberRetry {
        name: String,
        why: String,
    },
    /// A question for the user at this agent's terminal.
    Asked(Box<Question>),
    ToolStarted {
        /// The id of the call.
        id: String,
        name: String,
        input: Value,
        /// The subject of the call in words, of any length.
        summary: String,
    },
    /// The model is called with a conversation that takes this many tokens, of those that the context can hold.
    ContextUsed {
        tokens: u64,
        limit: Option<u64>,
    },
    /// The tool call that the model still writes, in words; empty when no call is written any more.
    CallDraft(String),
    /// The last line of output so far of the running tool.
    ToolOutput(String),
    ToolEnded(EndedCall),
    /// A subagent does this now; `None` when it has ended.
    Subagent {
        /// `CALLER:NUMBER`.
        id: String,
        doing: Option<String>,
    },
    TurnEnded {
        outcome: Outcome,
        /// The model's last text, or the reason for the end.
        text: String,
    },
    /// The agent is idle: it waits for mail.
    Idle,
    /// A budget is nearly used up.
    Warning(String),
    /// A message from the program (a limit reached, a request refused).
    Note(String),
}

impl Progress {
    /// Returns the end of a call without a change of a file.
    pub(crate) fn ended_call(id: String, name: String, content: String, is_error: bool) -> Self {
        let end = if is_error { CallEnd::Failed } else { CallEnd::Succeeded };
        Self::ToolEnded(EndedCall { id, name, end, content, changes: Vec::new() })
    }
}

/// A tool call that has ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndedCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) end: CallEnd,
    pub(crate) content: String,
    /// The changes of text files, unless a person has seen them before.
    pub(crate) changes: Vec<TextChange>,
}

/// The end of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    Succeeded,
    Failed,
    /// The turn was interrupted, or the agent stopped.
    Interrupted,
}
