//! Converts a [`Request`] to a body of chat completions. Pure.
//!
//! *Invariant:* exactly one `tool` message answers each tool call, directly after the reply with the call; other
//! text follows as one `user` message. Blocks of other providers are left out. Sampling parameters are never sent.

use crate::llm::openai::image_url::image_url;
use crate::llm::tool_names::plain_name;
use crate::wire::chat::{Block, ChatMessage, Effort, Request, Role, ToolDefinition};
use serde_json::{Map, Value, json};

/// The text of a message without other content.
const NOTHING: &str = "(empty)";

/// The host of `OpenAI`, whose newer models refuse the field `max_tokens`. All other servers get that field, since
/// many of them know no other.
const NEW_NAMES_HOST: &str = "api.openai.com";

/// Returns the body of the call to a server on this host.
pub(in crate::llm) fn body(request: &Request, model: &str, host: &str, is_streamed: bool) -> Value {
    let limit = if host == NEW_NAMES_HOST { "max_completion_tokens" } else { "max_tokens" };
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.into(), value));
    put("model", model.into());
    put(limit, request.max_tokens.into());
    if let Some(effort) = request.thinking.effort {
        let word = if effort == Effort::Off { "none" } else { effort.word() };
        put("reasoning_effort", word.into());
    }
    if is_streamed {
        put("stream", true.into());
        put("stream_options", json!({"include_usage": true}));
    }
    if !request.tools.is_empty() {
        put("tools", request.tools.iter().map(tool).collect());
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
    put("messages", messages.into());
    Value::Object(body)
}

fn tool(spec: &ToolDefinition) -> Value {
    let ToolDefinition { name, description, input_schema } = spec;
    json!({"type": "function", "function": {
        "name": name, "description": description, "parameters": input_schema,
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
    let images: Vec<Value> = message.blocks.iter().filter_map(image).collect();
    if !images.is_empty() {
        let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
        let parts: Vec<Value> = text.into_iter().chain(images).collect();
        messages.push(json!({"role": "user", "content": parts}));
    } else if !text.is_empty() {
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
    let texts = message.blocks.iter().filter_map(|block| {
        if let Block::Text { text } = block { Some(text.as_str()) } else { None }
    });
    texts.filter(|text| !text.trim().is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn image(block: &Block) -> Option<Value> {
    Some(json!({"type": "image_url", "image_url": {"url": image_url(block)?}}))
}

fn call(block: &Block) -> Option<Value> {
    let Block::ToolUse { id, name, input } = block else { return None };
    let arguments = if input.is_object() { input.to_string() } else { "{}".into() };
    let function = json!({"name": plain_name(name), "arguments": arguments});
    Some(json!({"id": id, "type": "function", "function": function}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::{call, conversation, request, text};

    #[test]
    fn a_conversation_with_tools_and_mail() {
        let body = body(&conversation(), "m-1", "h", true).to_string();
        // One line per message and tool makes a change easy to locate.
        let lines = body.replace("{\"role\"", "\n{\"role\"").replace("{\"type\":", "\n{\"type\":");
        insta::assert_snapshot!(lines, @r#"
        {"model":"m-1","max_tokens":1024,"stream":true,"stream_options":{"include_usage":true},"tools":[
        {"type":"function","function":{"name":"run","description":"runs","parameters":
        {"type":"object"}}},
        {"type":"function","function":{"name":"rest","description":"rests","parameters":
        {"type":"object"}}}],"messages":[
        {"role":"system","content":"You are alice."},
        {"role":"user","content":"hi"},
        {"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"run","arguments":"{\"command\":\"ls\"}"}},{"id":"t2","type":"function","function":{"name":"rest","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"t1","content":"(empty)"},
        {"role":"tool","tool_call_id":"t2","content":"[error] no"},
        {"role":"user","content":"mail\n\nmore"},
        {"role":"assistant","content":"(empty)"},
        {"role":"user","content":"go on"}]}
        "#);
    }

    #[test]
    fn a_tool_that_does_not_exist_has_a_name_that_the_api_accepts() {
        for (name, sent) in
            [("multi_tool_use.parallel", "multi_tool_use_parallel"), ("", "unknown")]
        {
            let request = request(vec![vec![text("hi")], vec![call("a", name, json!({}))]]);
            let body = body(&request, "m", "h", true);
            assert_eq!(body["messages"][1]["tool_calls"][0]["function"]["name"], sent);
        }
    }

    #[test]
    fn an_effort_has_a_word_of_the_api() {
        let mut request = request(vec![vec![text("hi")]]);
        for (effort, word) in [(Effort::Off, "none"), (Effort::Low, "low"), (Effort::High, "high")]
        {
            request.thinking.effort = Some(effort);
            assert_eq!(body(&request, "m", "h", true)["reasoning_effort"], word);
        }
    }

    #[test]
    fn a_request_without_streaming_has_no_stream_fields() {
        let body = body(&request(vec![vec![text("hi")]]), "m-1", NEW_NAMES_HOST, false);
        let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["model", "max_completion_tokens", "messages"]);
    }
}
