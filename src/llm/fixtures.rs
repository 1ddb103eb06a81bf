//! Fixtures of this layer's tests: blocks, requests, and streams that are read as a whole.

use super::attempt_error::AttemptError;
use super::provider::Delta;
use super::sse::Event;
use super::stream_parser::{Assemble, StreamParser};
use crate::wire::chat::{Block, ChatMessage, Reply, Request, Role, Thinking, ToolDefinition};
use serde_json::{Value, json};

pub(super) type Outcome = (Result<Reply, AttemptError>, String);

pub(super) fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

pub(super) fn call(id: &str, name: &str, input: Value) -> Block {
    Block::ToolUse { id: id.into(), name: name.into(), input }
}

pub(super) fn result(id: &str, content: &str, is_error: bool) -> Block {
    Block::ToolResult { tool_use_id: id.into(), content: content.into(), is_error }
}

pub(super) fn tool(name: &str, input_schema: Value) -> ToolDefinition {
    ToolDefinition { name: name.into(), description: format!("{name}s"), input_schema }
}

/// Returns a request with these messages, alternately of the user and the model.
pub(super) fn request(messages: Vec<Vec<Block>>) -> Request {
    let roles = [Role::User, Role::Assistant].into_iter().cycle();
    let messages = roles.zip(messages).map(|(role, blocks)| ChatMessage { role, blocks });
    Request {
        system: String::new(),
        messages: messages.collect(),
        tools: vec![],
        max_tokens: 1,
        thinking: Thinking::default(),
    }
}

/// Returns a request with every kind of block, and with blocks that an API refuses if they are sent unchanged.
pub(super) fn conversation() -> Request {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s=="});
    let calls = [call("t1", "run", json!({"command": "ls"})), call("t2", "rest", Value::Null)];
    let messages = vec![
        vec![text("hi")],
        [vec![Block::Opaque { value: thinking }, text(" ")], calls.to_vec()].concat(),
        vec![result("t1", "", false), result("t2", "no", true), text("mail"), text("more")],
        vec![],
        vec![text("go on")],
    ];
    let tools = ["run", "rest"].map(|name| tool(name, json!({"type": "object"}))).to_vec();
    Request { system: "You are alice.".into(), tools, max_tokens: 1024, ..request(messages) }
}

pub(super) fn read(assembler: impl Assemble + 'static, pieces: &[&[u8]]) -> Outcome {
    let mut shown = String::new();
    let mut sink = |delta| match delta {
        Delta::Text(text) => shown.push_str(&text),
        Delta::Thought(text) => shown.extend(["[", &text, "]"]),
        Delta::ToolInput { .. } => {}
        Delta::Retry { .. } | Delta::Silent { .. } => panic!("{delta:?}"),
    };
    let mut stream_parser = StreamParser::new(Box::new(assembler));
    for piece in pieces {
        match stream_parser.push(piece, &mut sink) {
            Ok(false) => {}
            Ok(true) => break,
            Err(error) => return (Err(error), shown),
        }
    }
    (stream_parser.close(), shown)
}

/// Returns the pieces of tool calls that a stream shows while it is read.
pub(super) fn tool_inputs(mut assembler: impl Assemble, lines: &str) -> Vec<String> {
    let mut shown = Vec::new();
    let mut sink = |delta| {
        if let Delta::ToolInput { tool, piece } = delta {
            shown.push(format!("{tool}: {piece}"));
        }
    };
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let event = Event { data: line.into(), ..Event::default() };
        assembler.take(&event, &mut sink).unwrap();
    }
    shown
}

/// Reads a stream of events; each line of `lines` is the data of one event.
pub(super) fn replay(assembler: impl Assemble + 'static, lines: &str) -> Outcome {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let stream: String = lines.flat_map(|line| ["data: ", line, "\n\n"]).collect();
    read(assembler, &[stream.as_bytes()])
}
