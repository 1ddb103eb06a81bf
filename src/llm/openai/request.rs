//! Converts a [`Request`] to a body of chat completions. Pure.
//!
//! *Invariant:* exactly one `tool` message answers each tool call, directly after the reply with the call; other
//! text follows as one `user` message. Blocks of other providers are left out. Sampling parameters are never sent.

use crate::wire::chat::{Block, ChatMessage, Request, Role, ToolDefinition};
use serde_json::{Map, Value, json};

/// The text of a message that has nothing to send.
const NOTHING: &str = "(empty)";

/// The fields of the body that do not come from the request.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) model: String,
    pub(super) limit: AnswerLimit,
}

/// The name of the field that limits the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerLimit {
    /// `max_completion_tokens`, for `OpenAI` itself, whose newer models refuse the old name.
    Completion,
    /// `max_tokens`, for all other servers, many of which know only the old name.
    Plain,
}

/// The form of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfer {
    Streamed,
    AtOnce,
}

/// Returns the body of the call.
pub(super) fn body(request: &Request, shape: &Shape, transfer: Transfer) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), shape.model.as_str().into());
    let limit = match shape.limit {
        AnswerLimit::Completion => "max_completion_tokens",
        AnswerLimit::Plain => "max_tokens",
    };
    body.insert(limit.into(), request.max_tokens.into());
    if transfer == Transfer::Streamed {
        body.insert("stream".into(), true.into());
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if !request.tools.is_empty() {
        let tools: Vec<Value> = request.tools.iter().map(tool).collect();
        body.insert("tools".into(), tools.into());
    }
    let mut messages = Vec::new();
    if !request.system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    for message in &request.messages {
        match message.role {
            Role::User => put_user(message, &mut messages),
            Role::Assistant => messages.push(assistant(message)),
        }
    }
    body.insert("messages".into(), messages.into());
    Value::Object(body)
}

fn tool(spec: &ToolDefinition) -> Value {
    json!({"type": "function", "function": {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.input_schema,
    }})
}

fn put_user(message: &ChatMessage, messages: &mut Vec<Value>) {
    let before = messages.len();
    for block in &message.blocks {
        if let Block::ToolResult { tool_use_id, content, is_error } = block {
            let said = if content.is_empty() { NOTHING } else { content };
            // Chat completions have no field for an error.
            let content = if *is_error { format!("[error] {said}") } else { said.to_owned() };
            messages.push(json!({"role": "tool", "tool_call_id": tool_use_id, "content": content}));
        }
    }
    let text = texts(message);
    if !text.is_empty() {
        messages.push(json!({"role": "user", "content": text}));
    } else if messages.len() == before {
        messages.push(json!({"role": "user", "content": NOTHING}));
    }
}

fn assistant(message: &ChatMessage) -> Value {
    let calls: Vec<Value> = message.blocks.iter().filter_map(call).collect();
    let text = texts(message);
    match (text.is_empty(), calls.is_empty()) {
        (true, true) => json!({"role": "assistant", "content": NOTHING}),
        (false, true) => json!({"role": "assistant", "content": text}),
        (true, false) => json!({"role": "assistant", "content": null, "tool_calls": calls}),
        (false, false) => json!({"role": "assistant", "content": text, "tool_calls": calls}),
    }
}

fn texts(message: &ChatMessage) -> String {
    let texts = message.blocks.iter().filter_map(|block| match block {
        Block::Text { text } if !text.trim().is_empty() => Some(text.as_str()),
        Block::Text { .. }
        | Block::ToolUse { .. }
        | Block::ToolResult { .. }
        | Block::Opaque { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

fn call(block: &Block) -> Option<Value> {
    let Block::ToolUse { id, name, input } = block else { return None };
    let arguments = if input.is_object() { input.to_string() } else { "{}".into() };
    let function = json!({"name": name, "arguments": arguments});
    Some(json!({"id": id, "type": "function", "function": function}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Block {
        Block::Text { text: text.into() }
    }

    fn call(id: &str, input: Value) -> Block {
        Block::ToolUse { id: id.into(), name: "bash".into(), input }
    }

    fn result(id: &str, content: &str, is_error: bool) -> Block {
        Block::ToolResult { tool_use_id: id.into(), content: content.into(), is_error }
    }

    fn conversation() -> Request {
        let message = |role, blocks| ChatMessage { role, blocks };
        let thinking = Block::Opaque { value: json!({"type": "thinking", "signature": "s"}) };
        Request {
            system: "You are alice.".into(),
            messages: vec![
                message(Role::User, vec![text("hi")]),
                message(
                    Role::Assistant,
                    vec![
                        thinking,
                        text(" "),
                        call("t1", json!({"command": "ls"})),
                        call("t2", Value::Null),
                    ],
                ),
                message(
                    Role::User,
                    vec![
                        result("t1", "", false),
                        result("t2", "no", true),
                        text("mail"),
                        text("more"),
                    ],
                ),
                message(Role::Assistant, vec![]),
                message(Role::User, vec![text("go on")]),
            ],
            tools: vec![ToolDefinition {
                name: "bash".into(),
                description: "runs".into(),
                input_schema: json!({"type": "object"}),
            }],
            max_tokens: 1024,
        }
    }

    #[test]
    fn a_conversation_with_tools_and_mail() {
        let shape = Shape { model: "m-1".into(), limit: AnswerLimit::Plain };
        let body = body(&conversation(), &shape, Transfer::Streamed).to_string();
        // One line per message and tool makes a change easy to locate.
        let lines = body.replace("{\"role\"", "\n{\"role\"").replace("{\"type\":", "\n{\"type\":");
        insta::assert_snapshot!(lines, @r#"
        {"model":"m-1","max_tokens":1024,"stream":true,"stream_options":{"include_usage":true},"tools":[
        {"type":"function","function":{"name":"bash","description":"runs","parameters":
        {"type":"object"}}}],"messages":[
        {"role":"system","content":"You are alice."},
        {"role":"user","content":"hi"},
        {"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"bash","arguments":"{\"command\":\"ls\"}"}},{"id":"t2","type":"function","function":{"name":"bash","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"t1","content":"(empty)"},
        {"role":"tool","tool_call_id":"t2","content":"[error] no"},
        {"role":"user","content":"mail\n\nmore"},
        {"role":"assistant","content":"(empty)"},
        {"role":"user","content":"go on"}]}
        "#);
    }

    #[test]
    fn a_request_without_streaming_has_no_stream_fields() {
        let shape = Shape { model: "m-1".into(), limit: AnswerLimit::Completion };
        let request = Request { tools: vec![], system: String::new(), ..conversation() };
        let body = body(&request, &shape, Transfer::AtOnce);
        let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["model", "max_completion_tokens", "messages"]);
    }
}
