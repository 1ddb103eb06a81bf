//! Assembles a [`Reply`] from the events or the complete body of a Messages API response. Pure.
//!
//! *Invariant:* a reply exists only after `message_stop`. Unknown events, deltas and fields are ignored; unknown
//! blocks are kept as [`Block::Opaque`].

use super::super::calls::{Ids, input};
use super::super::provider::Delta;
use super::super::sse::Event;
use super::super::stream_parser::{Assemble, Fault};
use crate::wire::chat::{Block, Reply, Request, StopReason, Usage};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The known event names. Other events are ignored without parsing, since their data may be anything.
const KNOWN: [&str; 10] = [
    "",
    "message",
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "error",
];

/// A partial reply.
#[derive(Debug)]
pub(in crate::llm) struct Assembler {
    ids: Ids,
    model: String,
    /// The blocks by the server's index.
    parts: BTreeMap<u64, Part>,
    stop_reason: Option<StopReason>,
    usage: Usage,
}

/// A partial block: its start, and the chunks of its input.
#[derive(Debug)]
struct Part {
    block: Map<String, Value>,
    input: String,
}

impl Assembler {
    /// Creates an assembler for the reply to a request. `model` holds until the server names another one.
    pub(in crate::llm) fn new(request: &Request, model: &str) -> Self {
        Self {
            ids: Ids::of(request),
            model: model.into(),
            parts: BTreeMap::new(),
            stop_reason: None,
            usage: Usage::default(),
        }
    }

    fn begin(&mut self, message: &Value) {
        let model = word(message, "model");
        if !model.is_empty() {
            self.model = model.into();
        }
        self.count(message);
    }

    fn open(&mut self, at: u64, block: &Value, sink: &mut dyn FnMut(Delta)) -> Result<(), Fault> {
        let fields = block.as_object();
        let fields = fields.ok_or_else(|| Fault::Garbled("a block is no object".into()))?;
        if word(block, "type") == "text" && !word(block, "text").is_empty() {
            sink(Delta::Text(word(block, "text").into()));
        }
        self.parts.insert(at, Part { block: fields.clone(), input: String::new() });
        Ok(())
    }

    fn grow(&mut self, data: &Value, sink: &mut dyn FnMut(Delta)) -> Result<(), Fault> {
        let part = self.parts.get_mut(&index(data)?);
        let part = part.ok_or_else(|| Fault::Garbled("a delta has no block".into()))?;
        let delta = data.get("delta").unwrap_or(&Value::Null);
        match word(delta, "type") {
            "text_delta" => {
                append(&mut part.block, "text", word(delta, "text"));
                sink(Delta::Text(word(delta, "text").into()));
            }
            "thinking_delta" => append(&mut part.block, "thinking", word(delta, "thinking")),
            "signature_delta" => {
                part.block.insert("signature".into(), word(delta, "signature").into());
            }
            "input_json_delta" => part.input.push_str(word(delta, "partial_json")),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, delta: &Value, counted: &Value) {
        let reason = delta.get("stop_reason").filter(|reason| *reason != "");
        if let Some(reason) = reason.and_then(|reason| StopReason::deserialize(reason).ok()) {
            self.stop_reason = Some(reason);
        }
        self.count(counted);
    }

    /// Keeps the larger count of start and end: either may be zero.
    fn count(&mut self, message: &Value) {
        let read = |key: &str| message.get("usage")?.get(key)?.as_u64();
        let larger = |field: &mut u64, key| *field = (*field).max(read(key).unwrap_or_default());
        larger(&mut self.usage.input_tokens, "input_tokens");
        larger(&mut self.usage.output_tokens, "output_tokens");
        larger(&mut self.usage.cache_read_input_tokens, "cache_read_input_tokens");
        larger(&mut self.usage.cache_creation_input_tokens, "cache_creation_input_tokens");
    }
}

impl Assemble for Assembler {
    fn take(&mut self, event: &Event, sink: &mut dyn FnMut(Delta)) -> Result<bool, Fault> {
        if !KNOWN.contains(&event.name.as_str()) {
            return Ok(false);
        }
        let data = parse(event.data.as_bytes())?;
        match data.get("type").and_then(Value::as_str).unwrap_or(&event.name) {
            "message_start" => self.begin(data.get("message").unwrap_or(&Value::Null)),
            "content_block_start" => {
                let block = data.get("content_block").unwrap_or(&Value::Null);
                self.open(index(&data)?, block, sink)?;
            }
            "content_block_delta" => self.grow(&data, sink)?,
            "message_delta" => self.end(data.get("delta").unwrap_or(&Value::Null), &data),
            "message_stop" => return Ok(true),
            "error" => return Err(Fault::Error(data)),
            _ => {}
        }
        Ok(false)
    }

    fn take_whole(&mut self, body: &[u8], sink: &mut dyn FnMut(Delta)) -> Result<(), Fault> {
        let message = parse(body)?;
        if word(&message, "type") == "error" {
            return Err(Fault::Error(message));
        }
        let Some(Value::Array(content)) = message.get("content") else {
            return Err(Fault::Garbled("the message has no content".into()));
        };
        self.begin(&message);
        for (at, block) in (0..).zip(content) {
            self.open(at, block, sink)?;
        }
        self.end(&message, &message);
        Ok(())
    }

    fn is_whole(&self) -> bool {
        false
    }

    fn finish(mut self) -> Reply {
        let mut blocks = Vec::new();
        for (at, part) in std::mem::take(&mut self.parts) {
            match part.finish(at) {
                Block::ToolUse { id, name, input } => {
                    if let Some(id) = self.ids.admit(&id) {
                        blocks.push(Block::ToolUse { id, name, input });
                    }
                }
                Block::Text { text } if text.is_empty() => {}
                other @ (Block::Text { .. } | Block::Opaque { .. } | Block::ToolResult { .. }) => {
                    blocks.push(other);
                }
            }
        }
        let calls = blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }));
        let unsaid = if calls { StopReason::ToolUse } else { StopReason::EndTurn };
        Reply {
            blocks,
            stop_reason: self.stop_reason.unwrap_or(unsaid),
            usage: self.usage,
            model: self.model,
        }
    }
}

impl Part {
    fn finish(self, at: u64) -> Block {
        let Self { mut block, input: streamed } = self;
        let value =
            |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match value("type").as_str() {
            "text" => Block::Text { text: value("text") },
            "tool_use" => {
                let id = Some(value("id")).filter(|id| !id.is_empty());
                Block::ToolUse {
                    id: id.unwrap_or_else(|| format!("call_{at}")),
                    name: value("name"),
                    input: input(&streamed, block.get("input")),
                }
            }
            _ => {
                if !streamed.is_empty() {
                    block.insert("input".into(), input(&streamed, None));
                }
                Block::Opaque { value: Value::Object(block) }
            }
        }
    }
}

fn parse(text: &[u8]) -> Result<Value, Fault> {
    serde_json::from_slice(text).map_err(|cause| Fault::Garbled(format!("not json: {cause}")))
}

fn word<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn index(data: &Value) -> Result<u64, Fault> {
    let index = data.get("index").and_then(Value::as_u64);
    index.ok_or_else(|| Fault::Garbled("a block has no index".into()))
}

fn append(block: &mut Map<String, Value>, key: &str, more: &str) {
    if let Some(Value::String(text)) = block.get_mut(key) {
        text.push_str(more);
    } else {
        block.insert(key.into(), more.into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::calls::INVALID_JSON;
    use super::*;
    use crate::wire::chat::{ChatMessage, Role};
    use serde_json::json;

    fn request(ids: &[&str]) -> Request {
        let call =
            |id: &&str| Block::ToolUse { id: (*id).into(), name: "x".into(), input: json!({}) };
        let blocks = ids.iter().map(call).collect();
        Request {
            system: String::new(),
            messages: vec![ChatMessage { role: Role::Assistant, blocks }],
            tools: vec![],
            max_tokens: 1,
        }
    }

    fn replay(taken: &[&str], events: &[Value]) -> (Result<Reply, Fault>, String) {
        let mut shown = String::new();
        let mut assembler = Assembler::new(&request(taken), "asked");
        for data in events {
            let event = Event { name: word(data, "type").into(), data: data.to_string() };
            let mut sink = |delta| match delta {
                Delta::Text(text) => shown.push_str(&text),
                Delta::Retry { .. } => panic!("{delta:?}"),
            };
            match assembler.take(&event, &mut sink) {
                Ok(true) => return (Ok(assembler.finish()), shown),
                Ok(false) => {}
                Err(fault) => return (Err(fault), shown),
            }
        }
        (Err(Fault::Garbled("cut".into())), shown)
    }

    fn start(at: u64, block: &Value) -> Value {
        json!({"type": "content_block_start", "index": at, "content_block": block})
    }

    fn delta(at: u64, delta: &Value) -> Value {
        json!({"type": "content_block_delta", "index": at, "delta": delta})
    }

    fn input_of(block: &Block) -> &Value {
        let Block::ToolUse { input, .. } = block else { panic!("{block:?}") };
        input
    }

    #[test]
    fn a_stream_with_everything_in_it() {
        let (reply, shown) = replay(
            &[],
            &[
                json!({"type": "message_start", "message": {"model": "m-1", "usage":
                {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 7}}}),
                json!({"type": "ping"}),
                start(0, &json!({"type": "thinking", "thinking": "", "signature": "", "new": 1})),
                delta(0, &json!({"type": "thinking_delta", "thinking": "h"})),
                delta(0, &json!({"type": "thinking_delta", "thinking": "m"})),
                delta(0, &json!({"type": "signature_delta", "signature": "c2ln"})),
                json!({"type": "content_block_stop", "index": 0}),
                start(1, &json!({"type": "text", "text": ""})),
                delta(1, &json!({"type": "text_delta", "text": "a"})),
                delta(1, &json!({"type": "citations_delta", "citation": {}})),
                delta(1, &json!({"type": "brand_new_delta"})),
                delta(1, &json!({"type": "text_delta", "text": "b"})),
                start(2, &json!({"type": "tool_use", "id": "t", "name": "bash", "input": {}})),
                delta(2, &json!({"type": "input_json_delta", "partial_json": ""})),
                delta(2, &json!({"type": "input_json_delta", "partial_json": "{\"command\":"})),
                delta(2, &json!({"type": "input_json_delta", "partial_json": "\"ls\"}"})),
                start(
                    3,
                    &json!({"type": "server_tool_use", "id": "s", "name": "web", "input": {}}),
                ),
                delta(3, &json!({"type": "input_json_delta", "partial_json": "{\"q\":1}"})),
                json!({"type": "brand_new_event", "index": 9}),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
                "usage": {"output_tokens": 42, "input_tokens": 0}}),
                json!({"type": "message_stop"}),
            ],
        );
        assert_eq!(shown, "ab");
        assert_eq!(
            reply.unwrap(),
            Reply {
                blocks: vec![
                    Block::Opaque {
                        value: json!(
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln", "new": 1})
                    },
                    Block::Text { text: "ab".into() },
                    Block::ToolUse {
                        id: "t".into(),
                        name: "bash".into(),
                        input: json!({"command": "ls"})
                    },
                    Block::Opaque {
                        value: json!(
                    {"type": "server_tool_use", "id": "s", "name": "web", "input": {"q": 1}})
                    },
                ],
                stop_reason: StopReason::ToolUse,
                usage: Usage {
                    input_tokens: 10,
                    output_tokens: 42,
                    cache_read_input_tokens: 7,
                    cache_creation_input_tokens: 0,
                },
                model: "m-1".into(),
            }
        );
    }

    #[test]
    fn ids_are_unique_in_the_reply_and_in_the_conversation() {
        let call = |at, id: &str, n: u64| {
            start(at, &json!({"type": "tool_use", "id": id, "name": "x", "input": {"n": n}}))
        };
        let stop = json!({"type": "message_stop"});
        let events = [call(0, "a", 0), call(1, "a", 1), call(2, "b", 2), call(3, "", 3), stop];
        let reply = replay(&["b", "b-2", "call_3"], &events).0.unwrap();
        let pair = |block: &Block| {
            let Block::ToolUse { id, input, .. } = block else { panic!("{block:?}") };
            (id.clone(), input["n"].as_u64().unwrap())
        };
        let got: Vec<(String, u64)> = reply.blocks.iter().map(pair).collect();
        let expected = [("a", 0), ("b-3", 2), ("call_3-2", 3)];
        assert_eq!(got, expected.map(|(id, n)| (id.to_owned(), n)));
        assert_eq!(reply.stop_reason, StopReason::ToolUse);
        assert_eq!(reply.model, "asked");
    }

    #[test]
    fn every_stop_reason_is_kept() {
        for reason in [
            "end_turn",
            "max_tokens",
            "stop_sequence",
            "tool_use",
            "pause_turn",
            "refusal",
            "model_context_window_exceeded",
            "brand_new",
        ] {
            let end = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
            let reply = replay(&[], &[end, json!({"type": "message_stop"})]).0.unwrap();
            assert_eq!(serde_json::to_value(reply.stop_reason).unwrap(), reason);
        }
    }

    #[test]
    fn a_call_cut_by_max_tokens_is_a_call_with_unreadable_input() {
        let reply = replay(
            &[],
            &[
                start(
                    0,
                    &json!({"type": "tool_use", "id": "t", "name": "write_file", "input": {}}),
                ),
                delta(0, &json!({"type": "input_json_delta", "partial_json": "{\"path\":\"a"})),
                json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}),
                json!({"type": "message_stop"}),
            ],
        )
        .0
        .unwrap();
        assert_eq!(input_of(&reply.blocks[0]), &json!({INVALID_JSON: "{\"path\":\"a"}));
        assert_eq!(reply.stop_reason, StopReason::MaxTokens);
    }

    #[test]
    fn malformed_events_are_faults_and_unknown_events_are_not() {
        let take = |name: &str, data: &str| {
            let event = Event { name: name.into(), data: data.into() };
            Assembler::new(&request(&[]), "m").take(&event, &mut |_| ())
        };
        for (name, data) in [
            ("message_start", "{\"type\""),
            ("ping", "{\"type\""),
            ("content_block_start", "{\"index\":0}"),
            ("content_block_start", "{\"content_block\":{}}"),
            ("content_block_delta", "{\"index\":3,\"delta\":{\"type\":\"text_delta\"}}"),
            ("", "garbage"),
        ] {
            let garbled = matches!(take(name, data), Err(Fault::Garbled(_)));
            assert!(garbled, "{name} {data}");
        }
        for (name, data) in
            [("vendor_event", "not json"), ("ping", "{}"), ("", "{}"), ("message_start", "{}")]
        {
            assert_eq!(take(name, data), Ok(false), "{name} {data}");
        }
        let error = take("error", "{\"error\":{\"type\":\"overloaded_error\"}}");
        assert!(matches!(error, Err(Fault::Error(_))));
    }

    #[test]
    fn a_complete_body_is_a_complete_message() {
        let take = |body: Value| {
            let mut shown = String::new();
            let mut assembler = Assembler::new(&request(&[]), "asked");
            let mut sink = |delta| {
                if let Delta::Text(text) = delta {
                    shown.push_str(&text);
                }
            };
            assembler.take_whole(body.to_string().as_bytes(), &mut sink)?;
            Ok((assembler.finish(), shown))
        };
        let (reply, shown) = take(json!({
            "type": "message", "model": "m-2", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "hi"}, {"type": "redacted_thinking", "data": "x"}],
            "usage": {"input_tokens": 3, "output_tokens": 4},
        }))
        .unwrap();
        assert_eq!((shown.as_str(), reply.text().as_str()), ("hi", "hi"));
        assert_eq!((reply.usage.total(), reply.model.as_str(), reply.blocks.len()), (7, "m-2", 2));
        assert_eq!(take(json!({})), Err(Fault::Garbled("the message has no content".into())));
        assert!(matches!(take(json!({"type": "error", "error": {}})), Err(Fault::Error(_))));
    }
}
