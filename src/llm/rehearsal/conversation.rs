//! A request, read as a turn: who said what since the last finished turn, and what was done about it.
//!
//! *Invariant:* only what was typed, or mailed by those an agent obeys, can become a command.

use crate::wire::chat::{Block, ChatMessage, Role};
use crate::wire::message::Message;
use serde_json::{Deserializer, Value};

const OPEN: &str = "<inbox>";
const CLOSE: &str = "</inbox>";

/// Something said to the agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    /// At its terminal.
    Typed(String),
    /// By mail.
    Mail(Box<Message>),
}

/// A tool call of this turn and what it gave.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Done {
    /// The call's id.
    id: String,
    /// The tool.
    pub(super) tool: String,
    /// Its arguments.
    pub(super) input: Value,
    /// What it said.
    pub(super) result: String,
    /// Whether it failed.
    pub(super) failed: bool,
}

/// The conversation, cut where the turn begins that is under way.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Turn {
    /// What was said before it.
    pub(super) earlier: Vec<Said>,
    /// What was said in it.
    pub(super) current: Vec<Said>,
    /// What was done in it, in order.
    pub(super) done: Vec<Done>,
}

/// Reads a conversation. A turn ends with an answer that calls nothing but `idle`.
pub(super) fn turn(messages: &[ChatMessage]) -> Turn {
    let mut turn = Turn::default();
    for message in messages {
        match message.role {
            Role::Assistant => turn.assistant(&message.blocks),
            Role::User => message.blocks.iter().for_each(|block| turn.user(block)),
        }
    }
    turn
}

impl Turn {
    fn assistant(&mut self, blocks: &[Block]) {
        let calls = blocks.iter().filter_map(|block| match block {
            Block::ToolUse { id, name, input } if name != "idle" => {
                let result = "no result is known".into();
                let (id, tool) = (id.clone(), name.clone());
                Some(Done { id, tool, input: input.clone(), result, failed: true })
            }
            Block::ToolUse { .. }
            | Block::Text { .. }
            | Block::ToolResult { .. }
            | Block::Opaque { .. } => None,
        });
        let before = self.done.len();
        self.done.extend(calls);
        if self.done.len() == before {
            self.end();
        }
    }

    fn user(&mut self, block: &Block) {
        match block {
            Block::ToolResult { tool_use_id, content, is_error } => {
                let call = self.done.iter_mut().find(|call| call.id == *tool_use_id);
                if let Some(call) = call {
                    call.result.clone_from(content);
                    call.failed = *is_error;
                }
            }
            Block::Text { text } => self.text(text),
            Block::ToolUse { .. } | Block::Opaque { .. } => {}
        }
    }

    fn text(&mut self, text: &str) {
        let mut rest = text;
        while let Some((typed, opened)) = rest.split_once(OPEN) {
            self.typed(typed);
            let (mail, after) = opened.split_once(CLOSE).unwrap_or((opened, ""));
            self.current.extend(letters(mail).into_iter().map(|mail| Said::Mail(Box::new(mail))));
            rest = after;
        }
        self.typed(rest);
    }

    fn typed(&mut self, text: &str) {
        let text = text.trim();
        // The program's own notes stand in marks; they are no commands of anybody.
        let marked = |open, close| text.starts_with(open) && text.ends_with(close);
        if marked('<', '>') || marked('[', ']') {
            if text.contains("interrupted") {
                self.end();
            }
        } else if !text.is_empty() {
            self.current.push(Said::Typed(text.to_owned()));
        }
    }

    fn end(&mut self) {
        self.earlier.append(&mut self.current);
        self.done.clear();
    }
}

/// The messages in a text: JSON objects with a sender, wherever they stand in it.
pub(super) fn letters(text: &str) -> Vec<Message> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '[']) {
        rest = rest.get(at..).unwrap_or_default();
        let mut stream = Deserializer::from_str(rest).into_iter::<Value>();
        let read = match stream.next() {
            Some(Ok(value)) => {
                collect(&value, &mut found);
                stream.byte_offset().max(1)
            }
            Some(Err(_)) | None => 1,
        };
        rest = rest.get(read..).unwrap_or_default();
    }
    found
}

fn collect(value: &Value, found: &mut Vec<Message>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        Value::Object(fields) if fields.contains_key("from") || fields.contains_key("content") => {
            found.extend(Message::read(fields).ok());
        }
        Value::Object(fields) => fields.values().for_each(|value| collect(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
