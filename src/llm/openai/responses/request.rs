//! Converts a [`Request`] to a body of the Responses API. Pure.
//!
//! *Invariant:* one output follows each call, no text is empty, and reasoning is sent only if the item to which it led
//! follows it: the API refuses it otherwise. Blocks of other providers are left out. Sampling parameters are never sent.

use super::reasoning::ReasoningUse;
use super::{PHASE, REASONING};
use crate::llm::openai::image_url::image_url;
use crate::llm::stream_parser::word;
use crate::llm::tool_names::{plain_name, short_id};
use crate::wire::chat::{Block, ChatMessage, Effort, Request, Role, ToolDefinition};
use serde_json::{Map, Value, json};
use std::mem;

/// The text of a message or an output without other content.
const NOTHING: &str = "(empty)";

/// The smallest limit of an answer that the API accepts, in tokens.
const LEAST_TOKENS: u32 = 16;

/// The longest id of a call that the API accepts, in bytes. Other providers make longer ones.
const LONGEST_ID: usize = 64;

/// The keywords that the API refuses at the top of a schema.
const REFUSED_KEYWORDS: [&str; 5] = ["oneOf", "anyOf", "allOf", "enum", "not"];

/// Returns the body of a streamed call. `cache_key` is the same for all calls of a conversation.
pub(in crate::llm) fn body(
    request: &Request,
    model: &str,
    cache_key: Option<&str>,
    reasoning: &ReasoningUse,
) -> Value {
    reasoning.begin(request);
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.into(), value));
    put("model", model.into());
    put("max_output_tokens", request.max_tokens.max(LEAST_TOKENS).into());
    put("stream", true.into());
    put("store", false.into());
    if reasoning.is_asked_for() {
        put("include", json!(["reasoning.encrypted_content"]));
    }
    if let Some(effort) = request.thinking.effort {
        let word = if effort == Effort::Off { "none" } else { effort.word() };
        put("reasoning", json!({ "effort": word }));
    }
    if let Some(key) = cache_key {
        put("prompt_cache_key", key.into());
    }
    if !request.system.trim().is_empty() {
        put("instructions", request.system.as_str().into());
    }
    if !request.tools.is_empty() {
        put("tools", request.tools.iter().map(tool).collect());
    }
    let mut input = Vec::new();
    for (place, message) in request.messages.iter().enumerate() {
        match message.role {
            Role::User => put_user(message, &mut input),
            Role::Assistant => put_assistant(message, reasoning.is_kept(place), &mut input),
        }
    }
    put("input", input.into());
    Value::Object(body)
}

fn tool(spec: &ToolDefinition) -> Value {
    let ToolDefinition { name, description, input_schema } = spec;
    let mut parameters = input_schema.clone();
    if let Some(fields) = parameters.as_object_mut() {
        fields.retain(|key, _| !REFUSED_KEYWORDS.contains(&key.as_str()));
        // The API requires it, even for a tool without arguments.
        fields.entry("properties").or_insert_with(|| json!({}));
    }
    json!({
        "type": "function", "name": name, "description": description,
        "parameters": parameters, "strict": false,
    })
}

fn put_user(message: &ChatMessage, input: &mut Vec<Value>) {
    let before = input.len();
    for block in &message.blocks {
        if let Block::ToolResult { tool_use_id, content, is_error } = block {
            let said = if content.is_empty() { NOTHING } else { content };
            // An output has no field for an error.
            let output = if *is_error { format!("[error] {said}") } else { said.to_owned() };
            let id = short_id(tool_use_id, LONGEST_ID);
            input.push(json!({"type": "function_call_output", "call_id": id, "output": output}));
        }
    }
    let part = |text: &str| json!({"type": "input_text", "text": text});
    let parts = message.blocks.iter().filter_map(|block| match block {
        Block::Text { text } if !text.trim().is_empty() => Some(part(text)),
        Block::Image { .. } => {
            let url = image_url(block)?;
            Some(json!({"type": "input_image", "image_url": url, "detail": "auto"}))
        }
        Block::Text { .. }
        | Block::ToolUse { .. }
        | Block::ToolResult { .. }
        | Block::Opaque { .. } => None,
    });
    let mut parts: Vec<Value> = parts.collect();
    if parts.is_empty() && input.len() == before {
        parts.push(part(NOTHING));
    }
    if !parts.is_empty() {
        input.push(json!({"type": "message", "role": "user", "content": parts}));
    }
}

/// Adds the items of a reply. A reply without an item is left out: roles need not alternate.
fn put_assistant(message: &ChatMessage, keeps_reasoning: bool, input: &mut Vec<Value>) {
    let (mut reasoning, mut phase) = (Vec::new(), None);
    for block in &message.blocks {
        let item = match block {
            Block::Opaque { value } if word(value, "type") == PHASE => {
                phase = value.get("phase").cloned();
                continue;
            }
            Block::Opaque { value } => {
                reasoning.extend(readable(value).filter(|_| keeps_reasoning));
                continue;
            }
            Block::Text { text } if text.trim().is_empty() => None,
            Block::Text { text } => Some(said(text, phase.take())),
            Block::ToolUse { id, name, input: arguments } => {
                let arguments =
                    if arguments.is_object() { arguments.to_string() } else { "{}".into() };
                Some(json!({
                    "type": "function_call", "call_id": short_id(id, LONGEST_ID), "name": plain_name(name),
                    "arguments": arguments,
                }))
            }
            Block::ToolResult { .. } | Block::Image { .. } => None,
        };
        let reasoning = mem::take(&mut reasoning);
        phase = None;
        if let Some(item) = item {
            input.extend(reasoning);
            input.push(item);
        }
    }
}

/// Returns a reasoning item as it is sent back, without the fields that are null, which the API refuses; `None` if the
/// block is of another kind, or if the endpoint could not read it.
fn readable(value: &Value) -> Option<Value> {
    if word(value, "type") != REASONING || word(value, "encrypted_content").is_empty() {
        return None;
    }
    let fields = value.as_object()?.iter().filter(|(_, field)| !field.is_null());
    Some(fields.map(|(key, field)| (key.clone(), field.clone())).collect())
}

fn said(text: &str, phase: Option<Value>) -> Value {
    let content = json!([{"type": "output_text", "text": text}]);
    let mut item = json!({"type": "message", "role": "assistant", "content": content});
    if let (Some(phase), Some(fields)) = (phase, item.as_object_mut()) {
        fields.insert("phase".into(), phase);
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::{call, conversation, request, result, text, tool as fixture_tool};
    use crate::wire::chat::Thinking;

    fn sent(request: &Request) -> Value {
        body(request, "m-1", Some("c-1"), &ReasoningUse::default())
    }

    /// Returns the input of a conversation with this reply between two texts of the user, without the first.
    fn items(reply: Vec<Block>) -> Vec<Value> {
        let body = sent(&request(vec![vec![text("hi")], reply, vec![text("go on")]]));
        body["input"].as_array().unwrap()[1..].to_vec()
    }

    fn types(items: &[Value]) -> Vec<&str> {
        items.iter().map(|item| word(item, "type")).collect()
    }

    fn opaque(value: Value) -> Block {
        Block::Opaque { value }
    }

    fn reasoning(id: &str) -> Block {
        opaque(json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": "g=="}))
    }

    #[test]
    fn a_conversation_with_tools_and_mail() {
        let body = sent(&conversation()).to_string();
        // One line per item and tool makes a change easy to locate.
        let lines = body.replace("{\"type\":", "\n{\"type\":");
        insta::assert_snapshot!(lines, @r#"
        {"model":"m-1","max_output_tokens":1024,"stream":true,"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"c-1","instructions":"You are alice.","tools":[
        {"type":"function","name":"run","description":"runs","parameters":
        {"type":"object","properties":{}},"strict":false},
        {"type":"function","name":"rest","description":"rests","parameters":
        {"type":"object","properties":{}},"strict":false}],"input":[
        {"type":"message","role":"user","content":[
        {"type":"input_text","text":"hi"}]},
        {"type":"function_call","call_id":"t1","name":"run","arguments":"{\"command\":\"ls\"}"},
        {"type":"function_call","call_id":"t2","name":"rest","arguments":"{}"},
        {"type":"function_call_output","call_id":"t1","output":"(empty)"},
        {"type":"function_call_output","call_id":"t2","output":"[error] no"},
        {"type":"message","role":"user","content":[
        {"type":"input_text","text":"mail"},
        {"type":"input_text","text":"more"}]},
        {"type":"message","role":"user","content":[
        {"type":"input_text","text":"go on"}]}]}
        "#);
    }

    #[test]
    fn reasoning_goes_back_unchanged_before_its_item() {
        let thought = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "g==",
            "summary": [{"type": "summary_text", "text": "hm"}], "status": "completed", "new": 1});
        let mut kept = thought.clone();
        kept["content"] = Value::Null;
        let run = |id: &str| call(id, "run", json!({}));
        let reply = vec![opaque(kept), text("I look."), reasoning("rs_2"), run("a"), run("b")];
        let items = items(reply);
        let expected =
            ["reasoning", "message", "reasoning", "function_call", "function_call", "message"];
        assert_eq!(types(&items), expected);
        assert_eq!((&items[0], &items[2]["id"]), (&thought, &json!("rs_2")));
    }

    #[test]
    fn reasoning_without_its_item_or_content_is_left_out() {
        let run = || call("a", "run", json!({}));
        let unreadable = |encrypted: Value| {
            opaque(
                json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": encrypted}),
            )
        };
        for reply in [
            vec![run(), reasoning("rs_1")],
            vec![reasoning("rs_1"), text(" "), run()],
            vec![unreadable(json!("")), run()],
            vec![unreadable(Value::Null), run()],
            vec![opaque(json!({"type": "thinking", "thinking": "hm", "signature": "s"})), run()],
            vec![opaque(json!({"type": "redacted_thinking", "data": "s"})), run()],
            vec![opaque(json!("odd")), run()],
        ] {
            assert_eq!(types(&items(reply.clone())), ["function_call", "message"], "{reply:?}");
        }
        assert_eq!(types(&items(vec![reasoning("rs_1")])), ["message"]);
        let two = vec![reasoning("rs_1"), reasoning("rs_2"), run()];
        assert_eq!(types(&items(two))[..3], ["reasoning", "reasoning", "function_call"]);
    }

    #[test]
    fn a_phase_is_that_of_the_next_text_only() {
        let phase = |phase: &str| opaque(json!({"type": PHASE, "phase": phase}));
        let call = call("a", "run", json!({}));
        let reply = vec![
            phase("commentary"),
            text("I look."),
            call,
            text("plain"),
            phase("final_answer"),
            reasoning("rs_1"),
            text("Done."),
        ];
        let items = items(reply);
        let phases: Vec<&Value> = items.iter().map(|item| &item["phase"]).collect();
        let none = &Value::Null;
        let expected = [&json!("commentary"), none, none, none, &json!("final_answer"), none];
        assert_eq!(phases, expected, "{items:#?}");
    }

    #[test]
    fn refused_reasoning_is_neither_sent_nor_asked_for() {
        let call = call("a", "run", json!({}));
        let messages = vec![
            vec![text("hi")],
            vec![reasoning("rs_1"), call],
            vec![result("a", "x", false)],
            vec![reasoning("rs_2"), text("done")],
            vec![text("next")],
        ];
        let request = request(messages);
        let count = |reasoning: &ReasoningUse| {
            let body = body(&request, "m", None, reasoning);
            let sent = types(body["input"].as_array().unwrap());
            let count = sent.iter().filter(|kind| **kind == REASONING).count();
            (count, body["include"].is_array())
        };
        let refusal = |message: &str| {
            crate::llm::openai::api_error::reported(&json!({"type": "invalid_request_error",
                "code": null, "message": message, "param": "include"}))
        };
        let usual = ReasoningUse::default();
        assert_eq!(count(&usual), (2, true));
        assert!(!usual.learn(&refusal("odd"), &request));
        let foreign = refusal("The encrypted content gAAA could not be verified.");
        let first = Request { messages: request.messages[..3].to_vec(), ..request.clone() };
        assert!(usual.learn(&foreign, &first), "it is sent again");
        assert_eq!(count(&usual), (1, true), "later reasoning is sent");
        assert!(!usual.learn(&foreign, &first), "it is sent again only once");
        let short = Request { messages: request.messages[..2].to_vec(), ..request.clone() };
        body(&short, "m", None, &usual);
        assert_eq!(count(&usual), (2, true), "a shorter conversation has other messages");
        let unable = refusal("Encrypted content is not supported with this model.");
        assert!(usual.learn(&unable, &request));
        assert_eq!(count(&usual), (0, false));
        assert!(!usual.learn(&unable, &request));
    }

    #[test]
    fn a_tool_that_does_not_exist_has_a_name_that_the_api_accepts() {
        let calls = ["multi_tool_use.parallel", ""].map(|name| call("a", name, json!({})));
        let items = items(calls.to_vec());
        assert_eq!(
            [&items[0], &items[1]].map(|item| word(item, "name")),
            ["multi_tool_use_parallel", "unknown"]
        );
    }

    #[test]
    fn limits_of_the_api_are_kept() {
        let long = "x".repeat(100);
        let schema = json!({"type": "object", "anyOf": [], "properties": {"not": {"enum": []}}});
        let messages = vec![
            vec![text("hi")],
            vec![call(&long, "run", json!({})), call(&format!("{long}y"), "run", json!({}))],
            vec![result(&long, "1", false), result(&format!("{long}y"), "2", false)],
        ];
        let tools =
            vec![fixture_tool("run", schema), fixture_tool("rest", json!({"type": "object"}))];
        let body = sent(&Request { tools, ..request(messages) });
        assert_eq!(body["max_output_tokens"], 16);
        let ids: Vec<&str> =
            body["input"].as_array().unwrap()[1..].iter().map(|it| word(it, "call_id")).collect();
        assert_eq!((ids[0], ids[1]), (ids[2], ids[3]));
        assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() == 64), "{ids:?}");
        let parameters = |at: usize| body["tools"][at]["parameters"].to_string();
        assert_eq!(parameters(0), r#"{"type":"object","properties":{"not":{"enum":[]}}}"#);
        assert_eq!(parameters(1), r#"{"type":"object","properties":{}}"#);
    }

    #[test]
    fn absent_parts_are_not_sent_and_an_effort_has_a_word_of_the_api() {
        let mut request = request(vec![vec![text("hi")]]);
        let bare = body(&request, "m", None, &ReasoningUse::default());
        let keys: Vec<&String> = bare.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["model", "max_output_tokens", "stream", "store", "include", "input"]);
        for (effort, word) in [(Effort::Off, "none"), (Effort::Low, "low"), (Effort::High, "high")]
        {
            request.thinking = Thinking { effort: Some(effort), budget_tokens: Some(2000) };
            assert_eq!(sent(&request)["reasoning"], json!({ "effort": word }));
        }
    }
}
