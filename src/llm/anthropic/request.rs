//! Converts a [`Request`] to a body of the Messages API. Pure.
//!
//! *Invariant:* the body of any conversation is well-formed: no empty text, no empty message, tool inputs are
//! objects, no blocks of other providers, names and ids of calls as the API accepts them. No sampling parameters: current versions
//! of the API refuse them even at their defaults. The client adds one for small models.

use crate::llm::stream_parser::word;
use crate::llm::tool_names::{plain_id, plain_name};
use crate::wire::chat::{Block, ChatMessage, Effort, Request, Role, Thinking};
use serde_json::{Map, Value, json};

/// The text of a message without other content.
const NOTHING: &str = "(empty)";

/// The number of user messages that end with a cache breakpoint. With those of the system prompt and the tools,
/// they are the four that the API allows. The older message finds the cache entry of the previous call.
const CACHED_TURNS: usize = 2;

pub(in crate::llm) fn body(request: &Request, model: &str) -> Value {
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.into(), value));
    put("model", model.into());
    put("max_tokens", request.max_tokens.into());
    put("stream", true.into());
    if !request.system.trim().is_empty() {
        let mut system = json!({"type": "text", "text": request.system});
        mark(&mut system);
        put("system", vec![system].into());
    }
    if !request.tools.is_empty() {
        // A `ToolDefinition` has the fields of the API.
        let mut tools: Vec<Value> = request.tools.iter().map(|tool| json!(tool)).collect();
        tools.last_mut().map(mark);
        put("tools", tools.into());
    }
    if let Some(thinking) = thinking(request) {
        put("thinking", thinking);
    }
    if let Some(effort) = request.thinking.effort.filter(|effort| *effort != Effort::Off) {
        put("output_config", json!({"effort": effort.word()}));
    }
    put("messages", messages(&request.messages).into());
    Value::Object(body)
}

/// Returns the field `thinking`. The API refuses a budget while a turn is open that began without thinking, as after
/// a change of the settings: such a request asks for no thinking.
fn thinking(request: &Request) -> Option<Value> {
    let Thinking { effort, budget_tokens } = request.thinking;
    match (effort, budget_tokens) {
        (None, None) => None,
        (Some(Effort::Off), _) => Some(json!({"type": "disabled"})),
        (Some(_), None) => Some(json!({"type": "adaptive"})),
        (_, Some(_)) if is_open_without_thinking(&request.messages) => None,
        (_, Some(budget)) => Some(json!({"type": "enabled", "budget_tokens": budget})),
    }
}

/// Whether the model is in the middle of a turn whose last reply does not begin with thinking.
fn is_open_without_thinking(messages: &[ChatMessage]) -> bool {
    let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
    let mut latest = messages.iter().rev();
    let reply = match latest.next() {
        Some(last) if last.role == Role::Assistant => Some(last),
        Some(last) if last.blocks.iter().any(is_result) => latest.next(),
        _ => None,
    };
    let is_thought = |block: &Block| {
        let Block::Opaque { value } = block else { return false };
        is_thinking(word(value, "type"))
    };
    reply.is_some_and(|reply| !reply.blocks.first().is_some_and(is_thought))
}

/// Whether a block that only its provider understands is of this API: thinking, or a tool that the server runs. The
/// API refuses the blocks of other providers, which a conversation has if its model was another one before.
fn is_own(block: &Value) -> bool {
    let kind = word(block, "type");
    is_thinking(kind) || kind.ends_with("_tool_use") || kind.ends_with("_tool_result")
}

fn is_thinking(kind: &str) -> bool {
    matches!(kind, "thinking" | "redacted_thinking")
}

/// Sets a cache breakpoint after this block.
fn mark(block: &mut Value) {
    if let Some(fields) = block.as_object_mut() {
        fields.insert("cache_control".into(), json!({"type": "ephemeral"}));
    }
}

fn messages(messages: &[ChatMessage]) -> Vec<Value> {
    let mut cached = 0;
    let latest_first = messages.iter().rev().map(|message| {
        let mut blocks: Vec<Value> = message.blocks.iter().filter_map(block).collect();
        if blocks.is_empty() {
            blocks.push(json!({"type": "text", "text": NOTHING}));
        }
        if message.role == Role::User && cached < CACHED_TURNS {
            blocks.last_mut().map(mark);
            cached += 1;
        }
        // The blocks are moved, not serialized again: a conversation is long.
        let fields = [("role", json!(message.role)), ("content", blocks.into())];
        fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
    });
    let mut mapped: Vec<Value> = latest_first.collect();
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
            let (id, name) = (plain_id(id), plain_name(name));
            Some(json!({"type": "tool_use", "id": id, "name": name, "input": input}))
        }
        Block::ToolResult { tool_use_id, content, is_error } => {
            let id = plain_id(tool_use_id);
            let mut result = json!({"type": "tool_result", "tool_use_id": id, "content": content});
            if let (true, Some(fields)) = (is_error, result.as_object_mut()) {
                fields.insert("is_error".into(), true.into());
            }
            Some(result)
        }
        Block::Image { image, data } => data.as_ref().map(|data| {
            let source = json!({"type": "base64", "media_type": image.media_type, "data": &**data});
            json!({"type": "image", "source": source})
        }),
        Block::Opaque { value } => is_own(value).then(|| value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::{call, conversation, request, result, text};

    #[test]
    fn a_conversation_with_tools_and_thinking() {
        let body = body(&conversation(), "m-1").to_string();
        // One line per message and tool makes a change easy to locate.
        let lines = body.replace("{\"role\"", "\n{\"role\"").replace("{\"name\":", "\n{\"name\":");
        insta::assert_snapshot!(lines, @r#"
        {"model":"m-1","max_tokens":1024,"stream":true,"system":[{"type":"text","text":"You are alice.","cache_control":{"type":"ephemeral"}}],"tools":[
        {"name":"run","description":"runs","input_schema":{"type":"object"}},
        {"name":"rest","description":"rests","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],"messages":[
        {"role":"user","content":[{"type":"text","text":"hi"}]},
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s=="},{"type":"tool_use","id":"t1","name":"run","input":{"command":"ls"}},{"type":"tool_use","id":"t2","name":"rest","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":""},{"type":"tool_result","tool_use_id":"t2","content":"no","is_error":true},{"type":"text","text":"mail"},{"type":"text","text":"more","cache_control":{"type":"ephemeral"}}]},
        {"role":"assistant","content":[{"type":"text","text":"(empty)"}]},
        {"role":"user","content":[{"type":"text","text":"go on","cache_control":{"type":"ephemeral"}}]}]}
        "#);
    }

    #[test]
    fn thinking_is_asked_for_as_the_settings_say_and_only_where_the_api_permits_it() {
        let thinking = |request: &Request| {
            let body = body(request, "m");
            (body["thinking"].to_string(), body["output_config"].to_string())
        };
        let mut request = request(vec![vec![text("hi")]]);
        for (effort, budget_tokens, asked, output) in [
            (None, None, "null", "null"),
            (Some(Effort::Off), None, r#"{"type":"disabled"}"#, "null"),
            (Some(Effort::Low), None, r#"{"type":"adaptive"}"#, r#"{"effort":"low"}"#),
            (None, Some(2000), r#"{"type":"enabled","budget_tokens":2000}"#, "null"),
            (
                Some(Effort::High),
                Some(2000),
                r#"{"type":"enabled","budget_tokens":2000}"#,
                r#"{"effort":"high"}"#,
            ),
        ] {
            request.thinking = Thinking { effort, budget_tokens };
            assert_eq!(thinking(&request), (asked.to_owned(), output.to_owned()));
        }
        request.thinking = Thinking { effort: None, budget_tokens: Some(2000) };
        let thought = |kind: &str| Block::Opaque { value: json!({"type": kind}) };
        let call =
            |id: &str| Block::ToolUse { id: id.into(), name: "run".into(), input: json!({}) };
        let result = |id: &str| Block::ToolResult {
            tool_use_id: id.into(),
            content: "x".into(),
            is_error: false,
        };
        for (reply, news, is_asked) in [
            (vec![call("1")], vec![result("1")], false),
            (vec![text("hm"), call("1")], vec![result("1"), text("mail")], false),
            (vec![thought("thinking"), call("1")], vec![result("1")], true),
            (vec![thought("redacted_thinking"), call("1")], vec![result("1")], true),
            (vec![thought("server_tool_use"), call("1")], vec![result("1")], false),
            (vec![text("done")], vec![text("next")], true),
        ] {
            let first = request.messages.first().cloned().unwrap();
            let reply = ChatMessage { role: Role::Assistant, blocks: reply };
            let news = ChatMessage { role: Role::User, blocks: news };
            let messages = vec![first, reply, news];
            let asked = thinking(&Request { messages, ..request.clone() }).0;
            assert_eq!(asked != "null", is_asked, "{asked}");
        }
    }

    #[test]
    fn only_opaque_blocks_of_this_api_are_sent_back() {
        let kinds = [
            "reasoning",
            "thinking",
            "message_phase",
            "redacted_thinking",
            "server_tool_use",
            "brand_new",
            "web_search_tool_result",
        ];
        let blocks = kinds.map(|kind| Block::Opaque { value: json!({ "type": kind }) });
        let odd = Block::Opaque { value: json!({"thought": "x"}) };
        let reply = [blocks.to_vec(), vec![odd]].concat();
        let body = body(&request(vec![vec![text("hi")], reply, vec![text("more")]]), "m");
        let sent = body["messages"][1]["content"].as_array().unwrap();
        let sent: Vec<&str> = sent.iter().map(|block| word(block, "type")).collect();
        let own = ["thinking", "redacted_thinking", "server_tool_use", "web_search_tool_result"];
        assert_eq!(sent, own);
    }

    #[test]
    fn calls_of_other_models_have_names_and_ids_that_the_api_accepts() {
        let ids = ["functions.bash:0", "toolu_1-a"];
        let body = body(
            &request(vec![
                vec![text("hi")],
                ids.map(|id| call(id, "do it.now", json!({}))).to_vec(),
                ids.map(|id| result(id, "x", false)).to_vec(),
            ]),
            "m",
        );
        let [calls, results] = [1, 2].map(|at| body["messages"][at]["content"].clone());
        assert_eq!(calls[0]["name"], "do_it_now");
        let id = word(&calls[0], "id");
        assert!(id.starts_with("functions_bash_0-"), "{id}");
        assert_eq!(word(&results[0], "tool_use_id"), id);
        assert_eq!((word(&calls[1], "id"), word(&results[1], "tool_use_id")), (ids[1], ids[1]));
    }

    #[test]
    fn absent_parts_are_not_sent() {
        let body = body(&request(vec![vec![text("hi")]]), "m");
        let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["model", "max_tokens", "stream", "messages"]);
    }
}
