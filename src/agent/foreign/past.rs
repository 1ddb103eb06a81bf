//! The texts for a foreign agent: the entries that it has not seen, and the past of a conversation that it does not know.

use crate::agent::conversation::{Memory, cut};
use crate::wire::chat::{Block, ChatMessage, Role};
use crate::wire::newest::Newest;
use crate::wire::transcript::Entry;
use serde_json::Map;
use std::cell::RefCell;

/// The bytes of the past that an agent without history is told, of each message, and of each call and each result.
const PAST_BYTES: usize = 16_384;
const MESSAGE_BYTES: usize = 2_000;
const CALL_BYTES: usize = 500;

/// The entries that the agent has not seen.
#[derive(Debug, Default)]
pub(super) struct Unseen(RefCell<Vec<Entry>>);

impl Unseen {
    /// Notes an entry, if it is one for the agent and has a text. Mail such as the answer to a question has none.
    pub(super) fn note(&self, entry: &Entry) {
        let is_told = matches!(entry, Entry::User { .. } | Entry::Mail { .. } | Entry::Note { .. });
        if is_told && !text_of(std::slice::from_ref(entry)).is_empty() {
            self.0.borrow_mut().push(entry.clone());
        }
    }

    /// Takes the entries.
    pub(super) fn take(&self) -> Vec<Entry> {
        self.0.take()
    }

    /// Puts entries back that the agent did not get after all.
    pub(super) fn put_back(&self, mut entries: Vec<Entry>) {
        let mut newer = self.0.borrow_mut();
        entries.append(&mut newer);
        *newer = entries;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Whether there is mail of the lead or of the user, which may interrupt an agent.
    pub(super) fn is_urgent(&self) -> bool {
        self.0.borrow().iter().any(|entry| match entry {
            Entry::Mail { message, .. } => {
                let from = message.get("from").and_then(|from| from.as_str());
                matches!(from, Some("lead" | "user"))
            }
            Entry::User { .. } => true,
            Entry::Note { .. }
            | Entry::Session { .. }
            | Entry::Assistant { .. }
            | Entry::ToolStart { .. }
            | Entry::Subagent(_)
            | Entry::ToolResult { .. }
            | Entry::Request { .. }
            | Entry::Decision(_)
            | Entry::Interrupt { .. }
            | Entry::Instructions { .. }
            | Entry::Model { .. }
            | Entry::HandedOut { .. }
            | Entry::ResultsLeftOut { .. }
            | Entry::Compacted { .. }
            | Entry::TurnEnd { .. }
            | Entry::Unknown => false,
        })
    }
}

/// Returns entries as a text for the agent.
pub(super) fn text_of(entries: &[Entry]) -> String {
    let mut memory = Memory::default();
    for entry in entries {
        memory.push(entry);
    }
    texts(memory.messages()).collect::<Vec<_>>().join("\n\n")
}

fn texts(messages: Vec<ChatMessage>) -> impl Iterator<Item = String> {
    messages.into_iter().flat_map(|message| message.blocks).filter_map(|block| match block {
        Block::Text { text } => Some(text),
        Block::ToolUse { .. }
        | Block::ToolResult { .. }
        | Block::Image { .. }
        | Block::Opaque { .. } => None,
    })
}

/// Returns the prompts and the mail of a turn, for an agent that may not have them.
pub(super) fn asked_again(asked: &str) -> String {
    format!("[team: what you were asked in this turn; you may have seen it]\n{asked}")
}

/// Returns the end of a conversation, for an agent that does not have it; `None` if there is nothing. The calls and their
/// results are part of it, so that the agent does not do again what it has done before its process ended.
pub(super) fn past_of(memory: &Memory) -> Option<String> {
    let mut newest = Newest::within(PAST_BYTES);
    for ChatMessage { role, blocks } in memory.messages() {
        for line in blocks.iter().filter_map(|block| line_of(role, block)) {
            newest.push(line.len(), line);
        }
    }
    let lines: Vec<&str> = newest.iter().map(String::as_str).collect();
    (!lines.is_empty()).then(|| {
        format!(
            "[team: your program does not have your earlier conversation. Its end, as the team recorded it:]\n{}\n\
             [team: what comes now is new, except for mail that you may have seen]",
            lines.join("\n")
        )
    })
}

fn line_of(role: Role, block: &Block) -> Option<String> {
    match block {
        Block::Text { text } => {
            let from = match role {
                Role::Assistant => "you",
                Role::User => "to you",
            };
            Some(format!("{from}: {}", cut(text, MESSAGE_BYTES)))
        }
        // Some agents do not report the arguments of a call.
        Block::ToolUse { name, input, .. } if input.as_object().is_none_or(Map::is_empty) => {
            Some(format!("you called {name}"))
        }
        Block::ToolUse { name, input, .. } => {
            Some(format!("you called {name}: {}", cut(&input.to_string(), CALL_BYTES)))
        }
        Block::ToolResult { content, is_error, .. } => {
            let outcome = if *is_error { "it failed" } else { "its result" };
            Some(format!("{outcome}: {}", cut(content, CALL_BYTES)))
        }
        Block::Image { .. } | Block::Opaque { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::chat::{StopReason, Usage};
    use serde_json::{Value, json};

    fn said(text: &str) -> Entry {
        Entry::Assistant {
            blocks: vec![Block::Text { text: text.into() }],
            stop_reason: StopReason::EndTurn,
            usage: Usage::default(),
            model: "acp/x".into(),
        }
    }

    #[test]
    fn entries_are_told_once_and_those_of_the_agent_not_at_all() {
        let unseen = Unseen::default();
        unseen.note(&Entry::Note { content: "one".into() });
        unseen.note(&said("mine"));
        unseen.note(&Entry::User { content: "two".into() });
        assert!(unseen.is_urgent());
        let entries = unseen.take();
        assert_eq!(text_of(&entries), "[team: one]\n\ntwo");
        assert!(unseen.is_empty() && unseen.take().is_empty());
        unseen.note(&Entry::Note { content: "three".into() });
        assert!(!unseen.is_urgent());
        unseen.put_back(entries);
        assert_eq!(text_of(&unseen.take()), "[team: one]\n\ntwo\n\n[team: three]");
    }

    #[test]
    fn the_past_has_the_calls_and_their_results() {
        let call = |id: &str, name: &str, input| Entry::Assistant {
            blocks: vec![Block::ToolUse { id: id.into(), name: name.into(), input }],
            stop_reason: StopReason::ToolUse,
            usage: Usage::default(),
            model: "acp/x".into(),
        };
        let result = |id: &str, content: &str, is_error| {
            Entry::tool_result(id.into(), content.into(), is_error, Vec::new())
        };
        let mut memory = Memory::default();
        memory.push(&Entry::User { content: "build it, then tell bob".into() });
        memory.push(&call("a", "bash", json!({ "command": "make" })));
        memory.push(&result("a", &"x".repeat(5_000), true));
        memory.push(&call("b", "mcp_team_send_message", Value::Null));
        memory.push(&result("b", "Sent to bob.", false));
        let past = past_of(&memory).unwrap();
        let lines: Vec<&str> = past.lines().collect();
        assert_eq!(
            lines[1..3],
            ["to you: build it, then tell bob", r#"you called bash: {"command":"make"}"#]
        );
        assert!(lines[3].starts_with("it failed: xxx") && past.len() < 1_500, "{past}");
        assert_eq!(
            lines[lines.len() - 3..lines.len() - 1],
            ["you called mcp_team_send_message", "its result: Sent to bob."]
        );
    }

    #[test]
    fn the_past_is_bounded_and_ends_with_the_newest() {
        let mut memory = Memory::default();
        assert_eq!(past_of(&memory), None);
        for turn in 0..100 {
            memory.push(&Entry::User { content: format!("do {turn} {}", "x".repeat(5_000)) });
            memory.push(&said(&format!("done {turn}")));
        }
        let past = past_of(&memory).unwrap();
        assert!(past.len() < PAST_BYTES + 300 && past.contains("you: done 99\n"), "{past}");
        assert!(!past.contains("done 1\n"));
    }
}
