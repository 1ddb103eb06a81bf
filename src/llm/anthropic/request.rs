//! Converts a [`Request`] to a body of the Messages API. Pure.
//!
//! *Invariant:* the body of any conversation is well-formed: no empty text, no empty message, tool inputs are
//! objects. Sampling parameters are never sent: current versions of the API refuse them even at their defaults.

use crate::wire::chat::{Block, ChatMessage, Request, Role, ToolDefinition};
use serde_json::{Map, Value, json};

/// The text of a message that has nothing to send.
const NOTHING: &str = "(empty)";

/// The number of user messages that end with a cache breakpoint. With system and tools they are the four that the
/// API allows; the older one finds the cache entry of the previous call.
const CACHED_TURNS: usize = 2;

/// The fields of the body that do not come from the request.
#[derive(Debug, Clone, Default)]
pub(super) struct Extras {
    pub(super) model: String,
    pub(super) thinking: Option<Value>,
    pub(super) output_config: Option<Value>,
}

/// Returns the body of the call.
pub(super) fn body(request: &Request, extras: &Extras) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), extras.model.as_str().into());
    body.insert("max_tokens".into(), request.max_tokens.into());
    body.insert("stream".into(), true.into());
    if !request.system.trim().is_empty() {
        let mut system = json!({"type": "text", "text": request.system});
        mark(&mut system);
        body.insert("system".into(), json!([system]));
    }
    if !request.tools.is_empty() {
        let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
        tools.last_mut().map(mark);
        body.insert("tools".into(), tools.into());
    }
    body.insert("messages".into(), messages(&request.messages).into());
    for (key, value) in [("thinking", &extras.thinking), ("output_config", &extras.output_config)] {
        if let Some(value) = value {
            body.insert(key.into(), value.clone());
        }
    }
    Value::Object(body)
}

/// Sets a cache breakpoint after this block.
fn mark(block: &mut Value) {
    if let Some(fields) = block.as_object_mut() {
        fields.insert("cache_control".into(), json!({"type": "ephemeral"}));
    }
}

fn tool(spec: &ToolDefinition) -> Value {
    json!({
        "name": spec.name,
        "description": spec.description,
        "input_schema": spec.input_schema,
    })
}

fn messages(messages: &[ChatMessage]) -> Vec<Value> {
    let mut cached = 0;
    let mut mapped: Vec<Value> = messages
        .iter()
        .rev()
        .map(|message| {
            let mut blocks: Vec<Value> = message.blocks.iter().filter_map(block).collect();
            if blocks.is_empty() {
                blocks.push(json!({"type": "text", "text": NOTHING}));
            }
            if message.role == Role::User && cached < CACHED_TURNS {
                blocks.last_mut().map(mark);
                cached += 1;
            }
            json!({"role": message.role, "content": blocks})
        })
        .collect();
    mapped.reverse();
    mapped
}

fn block(block: &Block) -> Option<Value> {
    match block {
        // The API refuses text that is only white space.
        Block::Text { text } if text.trim().is_empty() => None,
        Block::Text { text } => Some(json!({"type": "text", "text": text})),
        Block::ToolUse { id, name, input } => {
            let empty = json!({});
            let input = if input.is_object() { input } else { &empty };
            Some(json!({"type": "tool_use", "id": id, "name": name, "input": input}))
        }
        Block::ToolResult { tool_use_id, content, is_error } => {
            let mut result = json!({
                "type": "tool_result",
                "tool_use_id": tool_use_id,
                "content": content,
            });
            if let (true, Some(fields)) = (is_error, result.as_object_mut()) {
                fields.insert("is_error".into(), true.into());
            }
            Some(result)
        }
        Block::Opaque { value } => Some(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Block {
        Block::Text { text: text.into() }
    }

    fn message(role: Role, blocks: Vec<Block>) -> ChatMessage {
        ChatMessage { role, blocks }
    }

    #[test]
    fn a_conversation_with_tools_and_thinking() {
        let request = Request {
            system: "You are alice.".into(),
            messages: vec![
                message(Role::User, vec![text("hi")]),
                message(
                    Role::Assistant,
                    vec![
                        Block::Opaque {
                            value: json!({"type": "thinking", "thinking": "hm", "signature": "s=="}),
                        },
                        text(" "),
                        Block::ToolUse {
                            id: "t1".into(),
                            name: "bash".into(),
                            input: json!({"command": "ls"}),
                        },
                        Block::ToolUse { id: "t2".into(), name: "idle".into(), input: Value::Null },
                    ],
                ),
                message(
                    Role::User,
                    vec![
                        Block::ToolResult {
                            tool_use_id: "t1".into(),
                            content: "a b".into(),
                            is_error: false,
                        },
                        Block::ToolResult {
                            tool_use_id: "t2".into(),
                            content: "no".into(),
                            is_error: true,
                        },
                        text("mail"),
                    ],
                ),
                message(Role::Assistant, vec![]),
                message(Role::User, vec![text("go on")]),
            ],
            tools: vec![
                ToolDefinition {
                    name: "bash".into(),
                    description: "runs".into(),
                    input_schema: json!({"type": "object"}),
                },
                ToolDefinition {
                    name: "idle".into(),
                    description: "waits".into(),
                    input_schema: json!({"type": "object"}),
                },
            ],
            max_tokens: 1024,
        };
        let extras = Extras {
            model: "m-1".into(),
            thinking: Some(json!({"type": "adaptive"})),
            output_config: None,
        };
        let body = body(&request, &extras).to_string();
        // One line per message and tool makes a change easy to locate.
        let lines = body.replace("{\"role\"", "\n{\"role\"").replace("{\"name\":", "\n{\"name\":");
        insta::assert_snapshot!(lines, @r#"
        {"model":"m-1","max_tokens":1024,"stream":true,"system":[{"type":"text","text":"You are alice.","cache_control":{"type":"ephemeral"}}],"tools":[
        {"name":"bash","description":"runs","input_schema":{"type":"object"}},
        {"name":"idle","description":"waits","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],"messages":[
        {"role":"user","content":[{"type":"text","text":"hi"}]},
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s=="},{"type":"tool_use","id":"t1","name":"bash","input":{"command":"ls"}},{"type":"tool_use","id":"t2","name":"idle","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"a b"},{"type":"tool_result","tool_use_id":"t2","content":"no","is_error":true},{"type":"text","text":"mail","cache_control":{"type":"ephemeral"}}]},
        {"role":"assistant","content":[{"type":"text","text":"(empty)"}]},
        {"role":"user","content":[{"type":"text","text":"go on","cache_control":{"type":"ephemeral"}}]}],"thinking":{"type":"adaptive"}}
        "#);
    }

    #[test]
    fn absent_parts_are_not_sent() {
        let request = Request {
            system: String::new(),
            messages: vec![message(Role::User, vec![text("hi")])],
            tools: vec![],
            max_tokens: 1,
        };
        let body = body(&request, &Extras::default());
        let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["model", "max_tokens", "stream", "messages"]);
    }
}
