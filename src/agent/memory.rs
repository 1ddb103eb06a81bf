//! The conversation as the model sees it, built from transcript entries.
//!
//! *Invariant:* the memory is a function of the entries alone, so that an agent which resumes from its
//! transcript sends exactly what it would have sent had it never died (and the provider's cache fits).

use crate::wire::chat::{Block, ChatMessage, Role};
use crate::wire::inbox_block::inbox_block;
use crate::wire::message::Message;
use crate::wire::transcript::Entry;
use serde_json::{Map, Value};

/// What an agent remembers.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    said: Vec<Turn>,
    /// Calls without a result, in order.
    open_calls: Vec<OpenCall>,
    in_turn: bool,
}

/// A tool call that was recorded but never answered: the process died meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenCall {
    /// The call's id.
    pub(crate) id: String,
    /// The tool.
    pub(crate) name: String,
    /// Its arguments.
    pub(crate) input: Value,
    /// It had begun: its effect is unknown.
    pub(crate) started: bool,
}

#[derive(Debug)]
enum Turn {
    /// The program's side: results first, then everything else in order.
    User {
        results: Vec<Block>,
        pieces: Vec<Piece>,
    },
    Assistant(Vec<Block>),
}

#[derive(Debug)]
enum Piece {
    Text(String),
    Inbox(Vec<Map<String, Value>>),
}

impl Memory {
    /// Takes in one transcript entry.
    pub(crate) fn push(&mut self, entry: &Entry) {
        match entry {
            Entry::User { content } => {
                self.in_turn = true;
                self.add(Piece::Text(content.clone()));
            }
            Entry::Mail { message, .. } => self.push_mail(message),
            Entry::Note { content } => self.add(Piece::Text(format!("[team: {content}]"))),
            Entry::Assistant { blocks, .. } => {
                self.in_turn = true;
                for block in blocks {
                    if let Block::ToolUse { id, name, input } = block {
                        let (id, name, input) = (id.clone(), name.clone(), input.clone());
                        self.open_calls.push(OpenCall { id, name, input, started: false });
                    }
                }
                if !blocks.is_empty() {
                    self.said.push(Turn::Assistant(blocks.clone()));
                }
            }
            Entry::ToolStart { tool_use_id, .. } => {
                for call in self.open_calls.iter_mut().filter(|call| call.id == *tool_use_id) {
                    call.started = true;
                }
            }
            Entry::ToolResult { tool_use_id, content, is_error } => {
                let known = self.open_calls.len();
                self.open_calls.retain(|call| call.id != *tool_use_id);
                // A result nobody asked for (an edited transcript) would make every request invalid.
                if self.open_calls.len() < known {
                    let (results, _) = self.user_side();
                    results.push(Block::ToolResult {
                        tool_use_id: tool_use_id.clone(),
                        content: content.clone(),
                        is_error: *is_error,
                    });
                }
            }
            Entry::TurnEnd { .. } => self.in_turn = false,
            Entry::Session { .. } | Entry::Request { .. } | Entry::Decision(_) | Entry::Unknown => {
            }
        }
    }

    fn push_mail(&mut self, message: &Map<String, Value>) {
        // Telling the model would cost tokens for nothing.
        if Message::read(message).is_ok_and(|message| message.body.is_for_program()) {
            return;
        }
        // Who died before it could act on it has a turn to take up.
        self.in_turn |= Message::read(message).is_ok_and(|message| message.body.wakes());
        let (_, pieces) = self.user_side();
        if let Some(Piece::Inbox(mail)) = pieces.last_mut() {
            mail.push(message.clone());
        } else {
            pieces.push(Piece::Inbox(vec![message.clone()]));
        }
    }

    fn add(&mut self, piece: Piece) {
        self.user_side().1.push(piece);
    }

    /// The user message being filled; begins one after an assistant message.
    fn user_side(&mut self) -> (&mut Vec<Block>, &mut Vec<Piece>) {
        if !matches!(self.said.last(), Some(Turn::User { .. })) {
            self.said.push(Turn::User { results: Vec::new(), pieces: Vec::new() });
        }
        match self.said.last_mut() {
            Some(Turn::User { results, pieces }) => (results, pieces),
            Some(Turn::Assistant(_)) | None => {
                unreachable!("a user message was just made the last")
            }
        }
    }

    /// Calls that still need a result before the model can be asked again.
    pub(crate) fn open_calls(&self) -> &[OpenCall] {
        &self.open_calls
    }

    /// Whether the transcript ends within a turn.
    pub(crate) fn in_turn(&self) -> bool {
        self.in_turn
    }

    /// The conversation, alternating, beginning with the user's side.
    pub(crate) fn messages(&self) -> Vec<ChatMessage> {
        let mut messages: Vec<ChatMessage> = Vec::new();
        for turn in &self.said {
            let (role, blocks) = match turn {
                Turn::Assistant(blocks) => (Role::Assistant, blocks.clone()),
                Turn::User { results, pieces } => {
                    let texts = pieces.iter().map(|piece| Block::Text { text: piece.render() });
                    (Role::User, results.iter().cloned().chain(texts).collect())
                }
            };
            match messages.last_mut() {
                Some(last) if last.role == role => last.blocks.extend(blocks),
                None if role == Role::Assistant => {}
                _ => messages.push(ChatMessage { role, blocks }),
            }
        }
        messages
    }
}

impl Piece {
    fn render(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Inbox(mail) => inbox_block(mail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::chat::{StopReason, Usage};
    use crate::wire::message::Outcome;
    use proptest::prelude::*;
    use serde_json::json;

    fn mail(value: Value) -> Entry {
        let Value::Object(message) = value else { panic!("no object") };
        Entry::Mail { claim: "1".into(), offset: 0, message }
    }

    fn assistant(blocks: Vec<Block>) -> Entry {
        let (stop_reason, usage) = (StopReason::EndTurn, Usage::default());
        Entry::Assistant { blocks, stop_reason, usage, model: "m".into() }
    }

    fn call(id: &str) -> Block {
        Block::ToolUse { id: id.into(), name: "bash".into(), input: json!({}) }
    }

    fn result(id: &str) -> Entry {
        Entry::ToolResult { tool_use_id: id.into(), content: "ok".into(), is_error: false }
    }

    fn remember(entries: &[Entry]) -> Memory {
        let mut memory = Memory::default();
        for entry in entries {
            memory.push(entry);
        }
        memory
    }

    #[test]
    fn results_stand_before_mail_and_mail_before_nothing_else() {
        let memory = remember(&[
            Entry::User { content: "go".into() },
            assistant(vec![call("a"), call("b")]),
            result("a"),
            mail(json!({"from":"bob","content":"hi"})),
            result("b"),
            mail(json!({"from":"bob","content":"again"})),
        ]);
        let messages = memory.messages();
        assert_eq!(messages.len(), 3);
        let last = &messages[2].blocks;
        assert!(matches!(&last[0], Block::ToolResult { tool_use_id, .. } if tool_use_id == "a"));
        assert!(matches!(&last[1], Block::ToolResult { tool_use_id, .. } if tool_use_id == "b"));
        let Block::Text { text } = &last[2] else { panic!("{last:?}") };
        assert!(text.contains("hi") && text.contains("again"), "one block for both: {text}");
        assert_eq!(last.len(), 3);
    }

    #[test]
    fn a_conversation_cut_off_anywhere_tells_what_is_open() {
        let memory = remember(&[
            Entry::User { content: "go".into() },
            assistant(vec![call("a"), call("b"), call("c")]),
            Entry::ToolStart { tool_use_id: "a".into(), name: "bash".into() },
            result("a"),
            Entry::ToolStart { tool_use_id: "b".into(), name: "bash".into() },
        ]);
        let open: Vec<_> =
            memory.open_calls().iter().map(|call| (call.id.as_str(), call.started)).collect();
        assert_eq!(open, [("b", true), ("c", false)]);
        assert!(memory.in_turn());
    }

    #[test]
    fn idle_notices_cost_no_tokens_and_failed_turns_merge() {
        let memory = remember(&[
            mail(json!({"type":"idle_notification","from":"a","content":"","reason":"available"})),
            Entry::User { content: "one".into() },
            Entry::TurnEnd { outcome: Outcome::Failed, rounds: 1, report: None },
            Entry::User { content: "two".into() },
        ]);
        let messages = memory.messages();
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].blocks.len(), 2);
        assert!(!memory.in_turn() || memory.open_calls().is_empty());
    }

    #[test]
    fn mail_that_nobody_acted_on_is_a_turn_to_take_up() {
        let end = Entry::TurnEnd { outcome: Outcome::Done, rounds: 1, report: None };
        let letter = || mail(json!({"from":"bob","content":"hi"}));
        let idle = mail(json!({"type":"idle_notification","from":"a","reason":"available"}));
        assert!(remember(&[letter()]).in_turn());
        assert!(remember(&[letter(), end.clone(), letter()]).in_turn());
        assert!(!remember(&[letter(), end, idle]).in_turn());
    }

    proptest! {
        #[test]
        fn any_order_of_entries_gives_a_valid_request(picks in proptest::collection::vec(0usize..6, 0..30)) {
            let mut memory = Memory::default();
            for (n, pick) in picks.iter().enumerate() {
                let id = format!("t{n}");
                match pick {
                    0 => memory.push(&Entry::User { content: id }),
                    1 => memory.push(&mail(json!({"from":"b","content":id}))),
                    2 => memory.push(&assistant(vec![Block::Text { text: id }])),
                    3 => {
                        memory.push(&assistant(vec![call(&id)]));
                        memory.push(&result(&id));
                    }
                    4 => memory.push(&result("nobody-asked")),
                    _ => memory.push(&Entry::Note { content: id }),
                }
            }
            let messages = memory.messages();
            prop_assert!(messages.first().is_none_or(|first| first.role == Role::User));
            prop_assert!(messages.windows(2).all(|pair| pair[0].role != pair[1].role));
            prop_assert!(messages.iter().all(|message| !message.blocks.is_empty()));
        }
    }
}
