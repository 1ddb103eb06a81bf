//! Normalizes the tool calls of a reply: inputs are objects, ids are unique. Pure.
//!
//! A tool call whose input is not a JSON object gets the input `{"_invalid_json": "<the model's text>"}`
//! ([`INVALID_JSON`]): the agent answers it with an error result and the conversation stays valid. A call that repeats
//! the id of another call of the same reply is dropped; one that repeats an id of an earlier reply gets a new id, since
//! some local servers count from zero in each reply.

use crate::wire::chat::{Block, Request};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The only key of a tool input that could not be parsed; its value is the raw text.
pub const INVALID_JSON: &str = "_invalid_json";

/// Returns the input of a call: streamed in chunks, or complete at the start of the call.
pub(super) fn input(streamed: &str, given: Option<&Value>) -> Value {
    let unreadable = |raw: &str| json!({ INVALID_JSON: raw });
    if streamed.trim().is_empty() {
        return match given {
            None | Some(Value::Null) => json!({}),
            Some(object @ Value::Object(_)) => object.clone(),
            Some(Value::String(raw)) => input(raw, None),
            Some(other) => unreadable(&other.to_string()),
        };
    }
    serde_json::from_str(streamed)
        .ok()
        .filter(Value::is_object)
        .unwrap_or_else(|| unreadable(streamed))
}

/// The call ids of a conversation, and those of one reply.
#[derive(Debug)]
pub(super) struct Ids {
    taken: BTreeSet<String>,
    given: BTreeSet<String>,
}

impl Ids {
    /// Creates the ids for the reply to a request.
    pub(super) fn of(request: &Request) -> Self {
        let blocks = request.messages.iter().flat_map(|message| &message.blocks);
        let ids = blocks.filter_map(|block| match block {
            Block::ToolUse { id, .. } => Some(id.clone()),
            Block::Text { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
        });
        Self { taken: ids.collect(), given: BTreeSet::new() }
    }

    /// Returns the id of a call, made unique, or `None` if this reply has the call already.
    pub(super) fn admit(&mut self, id: &str) -> Option<String> {
        if !self.given.insert(id.to_owned()) {
            return None;
        }
        let mut free = id.to_owned();
        let mut count = 1_u32;
        while !self.taken.insert(free.clone()) {
            count += 1;
            free = format!("{id}-{count}");
        }
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_objects_or_marked_unreadable() {
        let table = [
            ("", None, json!({})),
            (" ", Some(json!({})), json!({})),
            ("", Some(json!({"a": 1})), json!({"a": 1})),
            ("", Some(json!("{\"a\":1}")), json!({"a": 1})),
            ("", Some(json!([1])), json!({INVALID_JSON: "[1]"})),
            ("{\"a\":1}", Some(json!({})), json!({"a": 1})),
            ("{\"a\":", None, json!({INVALID_JSON: "{\"a\":"})),
            ("[1]", None, json!({INVALID_JSON: "[1]"})),
            ("nul", None, json!({INVALID_JSON: "nul"})),
        ];
        for (streamed, given, expected) in table {
            assert_eq!(input(streamed, given.as_ref()), expected, "{streamed} {given:?}");
        }
        let deep = "{\"a\":".repeat(100_000);
        assert_eq!(input(&deep, None), json!({INVALID_JSON: deep}));
    }
}
