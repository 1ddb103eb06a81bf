//! Assembles a [`Reply`] from the events or the complete body of a Messages API response. Pure.
//!
//! *Invariant:* a streamed reply exists only after `message_stop`. Unknown events, deltas and fields are ignored;
//! unknown blocks are kept as [`Block::Opaque`](crate::wire::chat::Block::Opaque).

use crate::llm::attempt_error::{AttemptError, ErrorReport};
use crate::llm::provider::{Delta, Sink};
use crate::llm::reply_builder::{ReplyBuilder, input};
use crate::llm::sse::Event;
use crate::llm::stream_parser::{Assemble, parse, word};
use crate::wire::chat::{Reply, Request, StopReason, Usage};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The known event names. Other events are ignored without parsing, since their data need not be JSON.
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

#[derive(Debug)]
pub(in crate::llm) struct Assembler {
    reply: ReplyBuilder,
    /// The blocks by the server's index.
    parts: BTreeMap<u64, Part>,
    stop_reason: Option<StopReason>,
}

/// A partial block: its start, and the chunks of its input.
#[derive(Debug)]
struct Part {
    block: Map<String, Value>,
    input: String,
}

impl Assembler {
    pub(in crate::llm) fn new(request: &Request, model: &str) -> Self {
        let reply = ReplyBuilder::new(request, model);
        Self { reply, parts: BTreeMap::new(), stop_reason: None }
    }

    fn note(&mut self, message: &Value) {
        let read = |key: &str| {
            let count = message.get("usage").and_then(|usage| usage.get(key)?.as_u64());
            count.unwrap_or_default()
        };
        let usage = Usage {
            input_tokens: read("input_tokens"),
            output_tokens: read("output_tokens"),
            cache_read_input_tokens: read("cache_read_input_tokens"),
            cache_creation_input_tokens: read("cache_creation_input_tokens"),
        };
        self.reply.note(message, usage);
    }

    fn open(&mut self, at: u64, block: &Value, sink: Sink<'_>) -> Result<(), AttemptError> {
        let fields = block.as_object().ok_or_else(|| garbled("a block is not an object"))?;
        if word(block, "type") == "text" && !word(block, "text").is_empty() {
            sink(Delta::Text(word(block, "text").into()));
        }
        self.parts.insert(at, Part { block: fields.clone(), input: String::new() });
        Ok(())
    }

    fn grow(&mut self, data: &Value, sink: Sink<'_>) -> Result<(), AttemptError> {
        let part = self.parts.get_mut(&index(data)?);
        let part = part.ok_or_else(|| garbled("a delta has no block"))?;
        let delta = data.get("delta").unwrap_or(&Value::Null);
        match word(delta, "type") {
            "text_delta" => {
                append(&mut part.block, "text", word(delta, "text"));
                sink(Delta::Text(word(delta, "text").into()));
            }
            "thinking_delta" => {
                append(&mut part.block, "thinking", word(delta, "thinking"));
                sink(Delta::Thought(word(delta, "thinking").into()));
            }
            "signature_delta" => {
                part.block.insert("signature".into(), word(delta, "signature").into());
            }
            "input_json_delta" => {
                let piece = word(delta, "partial_json");
                part.input.push_str(piece);
                if part.block.get("type").is_some_and(|kind| kind == "tool_use") {
                    let tool = part.block.get("name").and_then(Value::as_str).unwrap_or_default();
                    sink(Delta::ToolInput { tool: tool.into(), piece: piece.into() });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, delta: &Value, counted: &Value) {
        let reason = delta.get("stop_reason").filter(|reason| *reason != "");
        if let Some(reason) = reason.and_then(|reason| StopReason::deserialize(reason).ok()) {
            self.stop_reason = Some(reason);
        }
        self.note(counted);
    }
}

impl Assemble for Assembler {
    fn take(&mut self, event: &Event, sink: Sink<'_>) -> Result<bool, AttemptError> {
        if !KNOWN.contains(&event.name.as_str()) {
            return Ok(false);
        }
        let data = parse(event.data.as_bytes())?;
        let field = |key: &str| data.get(key).unwrap_or(&Value::Null);
        match field("type").as_str().unwrap_or(&event.name) {
            "message_start" => self.note(field("message")),
            "content_block_start" => self.open(index(&data)?, field("content_block"), sink)?,
            "content_block_delta" => self.grow(&data, sink)?,
            "message_delta" => self.end(field("delta"), &data),
            "message_stop" => return Ok(true),
            "error" => return Err(AttemptError::Reported(ErrorReport::from_event(&data))),
            _ => {}
        }
        Ok(false)
    }

    fn take_whole(&mut self, body: &[u8], sink: Sink<'_>) -> Result<(), AttemptError> {
        let message = parse(body)?;
        if word(&message, "type") == "error" {
            return Err(AttemptError::Reported(ErrorReport::from_event(&message)));
        }
        let Some(Value::Array(content)) = message.get("content") else {
            return Err(garbled("the message has no content"));
        };
        for (at, block) in (0..).zip(content) {
            self.open(at, block, sink)?;
        }
        self.end(&message, &message);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Reply {
        let Self { mut reply, parts, stop_reason } = *self;
        for (at, Part { mut block, input: streamed }) in parts {
            let text =
                |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            match text("type").as_str() {
                "text" => reply.text(text("text")),
                "tool_use" => {
                    let input = input(&streamed, block.get("input"));
                    reply.call(at, &text("id"), text("name"), input);
                }
                _ => {
                    if !streamed.is_empty() {
                        block.insert("input".into(), input(&streamed, None));
                    }
                    reply.opaque(Value::Object(block));
                }
            }
        }
        reply.finish(stop_reason)
    }
}

fn garbled(what: &str) -> AttemptError {
    AttemptError::Garbled(what.into())
}

fn index(data: &Value) -> Result<u64, AttemptError> {
    let index = data.get("index").and_then(Value::as_u64);
    index.ok_or_else(|| garbled("a block has no index"))
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
    use super::*;
    use crate::llm::fixtures::{call, replay, request};
    use serde_json::json;

    fn assembler(taken: &[&str]) -> Assembler {
        let calls = taken.iter().map(|id| call(id, "x", json!({}))).collect();
        Assembler::new(&request(vec![vec![], calls]), "asked")
    }

    /// Returns the reply of a stream with these events and a `message_stop`.
    fn blocks(taken: &[&str], lines: &str) -> Reply {
        let end = r#"{"type":"message_stop"}"#;
        replay(assembler(taken), &[lines, end].join("\n")).0.unwrap()
    }

    #[test]
    fn a_stream_with_everything_in_it() {
        let (reply, shown) = replay(
            assembler(&[]),
            r#"
            {"type":"message_start","message":{"model":"m-1","usage":{"input_tokens":10,"output_tokens":1,"cache_read_input_tokens":7}}}
            {"type":"ping"}
            {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":"","new":1}}
            {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}
            {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}
            {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}
            {"type":"content_block_stop","index":0}
            {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
            {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}
            {"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{}}}
            {"type":"content_block_delta","index":1,"delta":{"type":"brand_new_delta"}}
            {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"b"}}
            {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"bash","input":{}}}
            {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}
            {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"command\":"}}
            {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"ls\"}"}}
            {"type":"content_block_start","index":3,"content_block":{"type":"server_tool_use","id":"s","name":"web","input":{}}}
            {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"q\":1}"}}
            {"type":"brand_new_event","index":9}
            {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":42,"input_tokens":0}}
            {"type":"message_stop"}
            "#,
        );
        let Reply { blocks, stop_reason, usage, model } = reply.unwrap();
        let expected = json!([
            {"type": "opaque", "value": {"type": "thinking", "thinking": "hm", "signature": "c2ln", "new": 1}},
            {"type": "text", "text": "ab"},
            {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}},
            {"type": "opaque", "value": {"type": "server_tool_use", "id": "s", "name": "web", "input": {"q": 1}}},
        ]);
        assert_eq!(json!(blocks), expected);
        assert_eq!((shown.as_str(), model.as_str()), ("[h][m]ab", "m-1"));
        assert_eq!(stop_reason, StopReason::ToolUse);
        let counts = (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens);
        assert_eq!((counts, usage.cache_creation_input_tokens), ((10, 42, 7), 0));
    }

    #[test]
    fn ids_are_unique_in_the_reply_and_in_the_conversation() {
        let lines = [("a", 0), ("a", 1), ("b", 2), ("", 3)].map(|(id, n)| {
            let block = json!({"type": "tool_use", "id": id, "name": "x", "input": {"n": n}});
            json!({"type": "content_block_start", "index": n, "content_block": block}).to_string()
        });
        let reply = blocks(&["b", "b-2", "call_3"], &lines.join("\n"));
        let expected = [("a", 0), ("b-3", 2), ("call_3-2", 3)];
        assert_eq!(reply.blocks, expected.map(|(id, n)| call(id, "x", json!({ "n": n }))));
        assert_eq!((reply.stop_reason, reply.model.as_str()), (StopReason::ToolUse, "asked"));
    }

    #[test]
    fn every_stop_reason_is_kept() {
        let reasons = "end_turn max_tokens stop_sequence tool_use pause_turn refusal \
            model_context_window_exceeded brand_new";
        for reason in reasons.split(' ') {
            let end = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
            let reply = blocks(&[], &end.to_string());
            assert_eq!(serde_json::to_value(reply.stop_reason).unwrap(), reason);
        }
    }

    #[test]
    fn malformed_events_are_faults_and_unknown_events_are_not() {
        let take = |name: &str, data: &str| {
            let event = Event { name: name.into(), data: data.into() };
            assembler(&[]).take(&event, &mut |_| ())
        };
        for (name, data) in [
            ("message_start", "{\"type\""),
            ("ping", "{\"type\""),
            ("content_block_start", "{\"index\":0}"),
            ("content_block_start", "{\"content_block\":{}}"),
            ("content_block_delta", "{\"index\":3,\"delta\":{\"type\":\"text_delta\"}}"),
            ("", "garbage"),
        ] {
            let is_garbled = matches!(take(name, data), Err(AttemptError::Garbled(_)));
            assert!(is_garbled, "{name} {data}");
        }
        let unknown = ("vendor_event", "not json");
        for (name, data) in [unknown, ("ping", "{}"), ("", "{}"), ("message_start", "{}")] {
            assert_eq!(take(name, data), Ok(false), "{name} {data}");
        }
        let whole = |body: &str| assembler(&[]).take_whole(body.as_bytes(), &mut |_| ());
        assert_eq!(whole("{}"), Err(garbled("the message has no content")));
        let error = whole("{\"type\":\"error\",\"error\":{}}");
        assert!(matches!(error, Err(AttemptError::Reported(_))));
    }
}
