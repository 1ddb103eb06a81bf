//! Subagents: helpers with a conversation of their own, which an agent starts for one task.

use super::AgentName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The identity of a subagent: its caller, and its number among those of this caller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubagentId {
    /// The agent that started it.
    pub caller: AgentName,
    /// The number, from 1. A number is used once.
    pub number: u64,
}

impl SubagentId {
    /// Parses `CALLER:NUMBER`.
    pub fn parse(text: &str) -> Option<Self> {
        let (caller, number) = text.split_once(':')?;
        let number = number.parse().ok().filter(|number| *number > 0)?;
        Some(Self { caller: AgentName::mailbox(caller).ok()?, number })
    }
}

impl fmt::Display for SubagentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.caller, self.number)
    }
}

/// The start of a subagent. The same line is in the transcript of the caller, at the call, and begins the one of the
/// subagent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubagentStart {
    /// The identity, as `CALLER:NUMBER`.
    pub id: String,
    /// The name of the caller.
    pub caller: String,
    /// The id of the call that started it.
    pub tool_use_id: String,
    /// The task.
    pub task: String,
    /// The role; `None` for the caller's tools without further limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The model, `provider/name`.
    pub model: String,
    /// Whether the call was answered at once, and the result comes as mail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

impl SubagentStart {
    /// Returns the number of the subagent; `None` if the line is not of this program.
    pub fn number(&self) -> Option<u64> {
        Some(SubagentId::parse(&self.id)?.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_the_caller_and_a_number_from_one() {
        let id = SubagentId::parse("db-expert:12").unwrap();
        assert_eq!((id.caller.as_str(), id.number), ("db-expert", 12));
        assert_eq!(id.to_string(), "db-expert:12");
        for text in ["alice", "alice:", "alice:0", "alice:x", "a/b:1", ":1", "alice:1:2"] {
            assert_eq!(SubagentId::parse(text), None, "{text}");
        }
    }
}
