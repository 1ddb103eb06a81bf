//! Builds a reply with normalized tool calls: inputs are objects, ids are unique. Pure.
//!
//! A tool call whose input is not a JSON object gets the input `{"_invalid_json": "<the model's text>"}`
//! ([`INVALID_JSON`]): the agent answers it with an error result and the conversation stays valid. A call that
//! repeats the id of another call of the same reply is dropped. A call that repeats an id of an earlier reply gets a
//! new id, since some local servers count from zero in each reply.

use crate::wire::chat::{Block, Reply, Request, StopReason, Usage};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The only key of a tool input that could not be parsed; its value is the raw text.
pub(super) const INVALID_JSON: &str = "_invalid_json";

/// The beginning of the ids that this program makes for calls without one.
const MADE: &str = "call_";

/// Whether an id has the form of those that [`ReplyBuilder::call`] makes: `call_N`, or `call_N-N` if that was taken.
pub(super) fn is_made(id: &str) -> bool {
    let numbers = id.strip_prefix(MADE).map(|rest| rest.split('-').collect::<Vec<_>>());
    let is_number =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|parts| parts.len() <= 2 && parts.iter().all(is_number))
}

/// Returns the input of a call from its streamed chunks, or from `given`, the input at the start of the call.
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

#[derive(Debug, Default)]
pub(super) struct ReplyBuilder {
    model: String,
    usage: Usage,
    blocks: Vec<Block>,
    /// The call ids of the conversation, including this reply.
    taken: BTreeSet<String>,
    /// The call ids of this reply, as the server named them.
    given: BTreeSet<String>,
}

impl ReplyBuilder {
    /// Begins the reply to a request. `model` is its model until the server names another one.
    pub(super) fn new(request: &Request, model: &str) -> Self {
        let blocks = request.messages.iter().flat_map(|message| &message.blocks);
        let taken = blocks.filter_map(|block| {
            if let Block::ToolUse { id, .. } = block { Some(id.clone()) } else { None }
        });
        Self { model: model.into(), taken: taken.collect(), ..Self::default() }
    }

    /// Records the model that a body names, and the larger of each count: the counts at the start or the end of a
    /// stream may be zero.
    pub(super) fn note(&mut self, body: &Value, seen: Usage) {
        if let Some(model) = body.get("model").and_then(Value::as_str).filter(|it| !it.is_empty()) {
            self.model = model.into();
        }
        let larger = |count: &mut u64, seen: u64| *count = seen.max(*count);
        let usage = &mut self.usage;
        larger(&mut usage.input_tokens, seen.input_tokens);
        larger(&mut usage.output_tokens, seen.output_tokens);
        larger(&mut usage.cache_read_input_tokens, seen.cache_read_input_tokens);
        larger(&mut usage.cache_creation_input_tokens, seen.cache_creation_input_tokens);
    }

    pub(super) fn text(&mut self, text: String) {
        if !text.is_empty() {
            self.blocks.push(Block::Text { text });
        }
    }

    /// Adds a block that only the provider understands.
    pub(super) fn opaque(&mut self, value: Value) {
        self.blocks.push(Block::Opaque { value });
    }

    /// Adds a call with a unique id, unless the reply has it already. An empty id is replaced by one made from `at`.
    pub(super) fn call(&mut self, at: u64, id: &str, name: String, input: Value) {
        let id = if id.is_empty() { format!("{MADE}{at}") } else { id.to_owned() };
        if !self.given.insert(id.clone()) {
            return;
        }
        let mut free = id.clone();
        let mut count = 1_u32;
        while !self.taken.insert(free.clone()) {
            count += 1;
            free = format!("{id}-{count}");
        }
        self.blocks.push(Block::ToolUse { id: free, name, input });
    }

    /// Returns the reply. If the server gave no stop reason, it follows from the presence of tool calls.
    pub(super) fn finish(self, stop_reason: Option<StopReason>) -> Reply {
        let has_call = self.blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }));
        let unsaid = if has_call { StopReason::ToolUse } else { StopReason::EndTurn };
        let Self { model, usage, blocks, .. } = self;
        Reply { blocks, stop_reason: stop_reason.unwrap_or(unsaid), usage, model }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_that_are_made_are_known() {
        for (id, made) in [
            ("call_0", true),
            ("call_12-3", true),
            ("call_", false),
            ("call_1-", false),
            ("call_1-2-3", false),
            ("call_a1", false),
            ("toolu_1", false),
        ] {
            assert_eq!(is_made(id), made, "{id}");
        }
    }

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
