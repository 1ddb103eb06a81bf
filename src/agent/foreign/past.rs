//! The texts for a foreign agent: the entries that it has not seen, and the past of a conversation that it does not know.

use crate::agent::conversation::{Memory, cut};
use crate::wire::chat::{Block, ChatMessage, Role};
use crate::wire::newest::Newest;
use crate::wire::transcript::Entry;
use std::cell::RefCell;

/// The bytes of the past that an agent without history is told, and of each message.
const PAST_BYTES: usize = 16_384;
const MESSAGE_BYTES: usize = 2_000;

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
            | Entry::ToolResult { .. }
            | Entry::Request { .. }
            | Entry::Decision(_)
            | Entry::Interrupt { .. }
            | Entry::Instructions { .. }
            | Entry::HandedOut { .. }
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
        Block::ToolUse { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
    })
}

/// Returns the end of a conversation, for an agent that does not have it; `None` if there is nothing.
pub(super) fn past_of(memory: &Memory) -> Option<String> {
    let mut newest = Newest::within(PAST_BYTES);
    for message in memory.messages() {
        let from = match message.role {
            Role::Assistant => "you",
            Role::User => "to you",
        };
        for text in texts(vec![message]) {
            let line = format!("{from}: {}", cut(&text, MESSAGE_BYTES));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::chat::{StopReason, Usage};

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
