//! Reads the current turn of a request: the orders and the mail since the last finished turn, and the tool calls.
//!
//! *Invariant:* only typed text and mail can become a command; tool results cannot.

use crate::wire::chat::{Block, ChatMessage, Role};
use crate::wire::message::Message;
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum UserInput {
    Typed(String),
    Mail(Box<Message>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct FinishedCall {
    id: String,
    pub(super) tool: String,
    pub(super) input: Value,
    pub(super) result: String,
    pub(super) failed: bool,
}

/// A conversation, divided at the start of the current turn.
#[derive(Debug, Default)]
pub(super) struct CurrentTurn {
    pub(super) earlier: Vec<UserInput>,
    pub(super) said: Vec<UserInput>,
    pub(super) calls: Vec<FinishedCall>,
}

/// Reads a conversation. A turn ends with a reply that calls no tool except `idle`.
pub(super) fn current_turn(messages: &[ChatMessage]) -> CurrentTurn {
    let mut turn = CurrentTurn::default();
    for message in messages {
        match message.role {
            Role::Assistant => turn.read_assistant(&message.blocks),
            Role::User => message.blocks.iter().for_each(|block| turn.read_user(block)),
        }
    }
    turn
}

impl CurrentTurn {
    fn read_assistant(&mut self, blocks: &[Block]) {
        let before = self.calls.len();
        for block in blocks {
            if let Block::ToolUse { id, name, input } = block
                && name != "idle"
            {
                let result = "no result is known".into();
                let (id, tool, input) = (id.clone(), name.clone(), input.clone());
                self.calls.push(FinishedCall { id, tool, input, result, failed: true });
            }
        }
        if self.calls.len() == before {
            self.end();
        }
    }

    fn read_user(&mut self, block: &Block) {
        match block {
            Block::ToolResult { tool_use_id, content, is_error } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.id == *tool_use_id) {
                    call.result.clone_from(content);
                    call.failed = *is_error;
                }
            }
            Block::Text { text } => {
                // A note of the program is enclosed in `<>` or `[]`, and is not a command.
                let is_in =
                    |text: &str, open, close| text.starts_with(open) && text.ends_with(close);
                let is_note = |it: &str| is_in(it, '<', '>') || is_in(it, '[', ']');
                for said in said_in(text) {
                    if !matches!(&said, UserInput::Typed(text) if is_note(text)) {
                        self.said.push(said);
                    } else if text.contains("interrupted") {
                        self.end();
                    }
                }
            }
            Block::ToolUse { .. } | Block::Image { .. } | Block::Opaque { .. } => {}
        }
    }

    fn end(&mut self) {
        self.earlier.append(&mut self.said);
        self.calls.clear();
    }
}

/// Returns the mail in the inbox blocks of a text and the texts outside of them, in order.
pub(super) fn said_in(text: &str) -> Vec<UserInput> {
    let (mut found, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (outside, behind) = rest.split_once("<inbox>").unwrap_or((rest, ""));
        let (inside, after) = behind.split_once("</inbox>").unwrap_or((behind, ""));
        let typed = Some(outside.trim().to_owned()).filter(|typed| !typed.is_empty());
        let objects: Vec<Map<String, Value>> = serde_json::from_str(inside).unwrap_or_default();
        let mail = objects.iter().filter_map(|object| Message::read(object).ok());
        found.extend(typed.map(UserInput::Typed));
        found.extend(mail.map(Box::new).map(UserInput::Mail));
        rest = after;
    }
    found
}
