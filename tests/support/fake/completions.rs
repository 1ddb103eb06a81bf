//! Chat completions in the fake: the checks of a request, and the form of a reply.

use super::images::is_image_url;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Every field that a request may have.
const FIELDS: [&str; 10] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
    "user",
];

/// Returns every violation in a request.
pub(crate) fn violations(headers: &BTreeMap<String, String>, body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let value = |name: &str| headers.get(name).map(String::as_str).unwrap_or_default();
    let mut unless = |fine: bool, complaint: &str| {
        if !fine {
            found.push(complaint.to_owned());
        }
    };
    unless(value("content-type").starts_with("application/json"), "content-type: not json");
    let bearer = value("authorization").strip_prefix("Bearer ").unwrap_or_default();
    unless(!bearer.is_empty(), "no bearer");
    for name in body.as_object().into_iter().flat_map(Map::keys) {
        unless(FIELDS.contains(&name.as_str()), &format!("{name}: not supported"));
    }
    unless(body["model"].as_str().is_some_and(|model| !model.is_empty()), "model: required");
    let streamed = body["stream"] == true;
    unless(streamed || body["stream_options"].is_null(), "stream_options: only with a stream");
    let limits = ["max_tokens", "max_completion_tokens"].map(|name| &body[name]);
    let limits: Vec<_> = limits.into_iter().filter(|limit| !limit.is_null()).collect();
    let positive = limits.iter().all(|limit| limit.as_u64().is_some_and(|limit| limit > 0));
    unless(positive && limits.len() < 2, "max_tokens: one number above 0");
    let tools = body["tools"].as_array();
    unless(body["tools"].is_null() || tools.is_some_and(|all| !all.is_empty()), "tools: empty");
    let mut names = BTreeSet::new();
    for tool in tools.into_iter().flatten() {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap_or_default();
        unless(tool["type"] == "function" && is_word(name), &format!("tools: the name '{name}'"));
        unless(names.insert(name.to_owned()), &format!("tools: {name} twice"));
        unless(function["parameters"]["type"] == "object", &format!("tools: schema of {name}"));
        let keys = function.as_object().into_iter().flat_map(Map::keys);
        let known = ["name", "description", "parameters", "strict"];
        unless(keys.clone().all(|key| known.contains(&key.as_str())), "tools: extra field");
    }
    match body["messages"].as_array() {
        Some(messages) if !messages.is_empty() => check_messages(messages, &mut found),
        _ => found.push("messages: required, not empty".into()),
    }
    found
}

/// Whether the content of a user's message is a list of texts and images.
fn are_parts(content: &Value) -> bool {
    let is_part = |part: &Value| match part["type"].as_str().unwrap_or_default() {
        "text" => part["text"].as_str().is_some_and(|text| !text.trim().is_empty()),
        "image_url" => is_image_url(&part["image_url"]["url"]),
        _ => false,
    };
    content.as_array().is_some_and(|parts| !parts.is_empty() && parts.iter().all(is_part))
}

fn check_messages(messages: &[Value], found: &mut Vec<String>) {
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let mut complain = |what: &str| found.push(format!("messages.{at}: {what}"));
        let role = message["role"].as_str().unwrap_or_default();
        let said = message["content"].as_str().is_some_and(|text| !text.trim().is_empty())
            || role == "user" && are_parts(&message["content"]);
        if role != "tool" && !open.is_empty() {
            complain(&format!("{open:?} not answered"));
            open.clear();
        }
        let keys: &[&str] = match role {
            "tool" => &["role", "content", "tool_call_id"],
            "assistant" => &["role", "content", "tool_calls", "refusal"],
            _ => &["role", "content", "name"],
        };
        for key in message.as_object().into_iter().flat_map(Map::keys) {
            if !keys.contains(&key.as_str()) {
                complain(&format!("{key}: extra field"));
            }
        }
        match role {
            "system" if at > 0 => complain("system is not the first"),
            "system" | "user" if !said => complain("empty content"),
            "system" | "user" => {}
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if !message["content"].is_string() {
                    complain("content is no text");
                }
                if !open.remove(id) {
                    complain(&format!("answers {id}, which is not asked"));
                }
            }
            "assistant" => {
                let calls = message["tool_calls"].as_array();
                if !message["tool_calls"].is_null() && calls.is_none_or(Vec::is_empty) {
                    complain("tool_calls: empty");
                }
                if calls.is_none() && !said {
                    complain("neither content nor calls");
                }
                for call in calls.into_iter().flatten() {
                    let (id, function) = (&call["id"], &call["function"]);
                    let id = id.as_str().unwrap_or_default();
                    let arguments = function["arguments"].as_str().unwrap_or_default();
                    let arguments = serde_json::from_str::<Map<String, Value>>(arguments);
                    if call["type"] != "function" || id.is_empty() || arguments.is_err() {
                        complain(&format!("the call {call}"));
                    }
                    if !is_word(function["name"].as_str().unwrap_or_default()) {
                        complain(&format!("the name in {call}"));
                    }
                    if !seen.insert(id.into()) {
                        complain(&format!("the call id {id} twice"));
                    }
                    open.insert(id.into());
                }
            }
            other => complain(&format!("the role '{other}'")),
        }
    }
    if !open.is_empty() {
        found.push(format!("messages: {open:?} not answered"));
    }
    let last = messages.last().is_some_and(|last| last["role"] != "assistant");
    if !last {
        found.push("messages: the last one is the assistant's".into());
    }
}

fn is_word(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !text.is_empty() && text.len() <= 64 && text.chars().all(fits)
}

/// A reply in blocks of the Messages API, rendered as chat completions.
pub(super) struct Said<'a> {
    pub(super) model: &'a str,
    pub(super) blocks: &'a [Value],
    pub(super) reason: &'a str,
    pub(super) usage: [u64; 2],
    /// An error that replaces everything after the first block.
    pub(super) error: Option<&'a str>,
    pub(super) line_end: &'static str,
}

impl Said<'_> {
    fn reason(&self) -> &str {
        match self.reason {
            "end_turn" => "stop",
            "tool_use" => "tool_calls",
            "max_tokens" => "length",
            other => other,
        }
    }

    fn usage(&self) -> Value {
        let [read, written] = self.usage;
        json!({"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written})
    }

    /// Returns the reply as one JSON body.
    pub(super) fn whole(&self) -> String {
        let mut message = json!({"role": "assistant", "content": null, "refusal": null});
        let mut calls = Vec::new();
        for block in self.blocks {
            match block["type"].as_str().unwrap_or_default() {
                "text" => message["content"] = block["text"].clone(),
                "thinking" => message["reasoning_content"] = block["thinking"].clone(),
                "tool_use" => calls.push(json!({"id": block["id"], "type": "function",
                    "function": {"name": block["name"], "arguments": arguments(block)}})),
                other => panic!("chat completions have no {other}"),
            }
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        let choice = json!({"index": 0, "message": message, "finish_reason": self.reason()});
        json!({"id": "fake", "object": "chat.completion", "model": self.model,
            "choices": [choice], "usage": self.usage()})
        .to_string()
    }

    fn chunk(&self, choices: &Value, usage: &Value) -> String {
        let chunk = json!({"id": "fake", "object": "chat.completion.chunk", "model": self.model,
            "choices": choices, "usage": usage});
        self.event(&chunk.to_string())
    }

    fn event(&self, data: &str) -> String {
        format!("data: {data}{end}{end}", end = self.line_end)
    }

    fn delta(&self, delta: &Value) -> String {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        self.chunk(&json!([choice]), &Value::Null)
    }

    /// Returns the reply as a stream of events.
    pub(super) fn stream(&self) -> String {
        let mut text = self.delta(&json!({"role": "assistant", "content": ""}));
        let mut calls = 0;
        for block in self.blocks {
            for delta in deltas(block, calls) {
                text.push_str(&self.delta(&delta));
            }
            calls += usize::from(block["type"] == "tool_use");
            if let Some(kind) = self.error {
                let error = json!({"type": kind, "message": "in mid-stream", "code": null});
                text.push_str(&self.event(&json!({ "error": error }).to_string()));
                return text;
            }
        }
        let end = json!({"index": 0, "delta": {}, "finish_reason": self.reason()});
        text.push_str(&self.chunk(&json!([end]), &Value::Null));
        text.push_str(&self.chunk(&json!([]), &self.usage()));
        text.push_str(&self.event("[DONE]"));
        text
    }
}

fn arguments(block: &Value) -> String {
    // A string input is sent verbatim, so that tests can send invalid JSON.
    block["input"].as_str().map_or_else(|| block["input"].to_string(), str::to_owned)
}

/// Returns the deltas of a block. `at` is the index of a tool call in the reply.
fn deltas(block: &Value, at: usize) -> Vec<Value> {
    let pieces = |text: &str| -> Vec<String> {
        let letters: Vec<char> = text.chars().collect();
        letters.chunks(7).map(|part| part.iter().collect()).collect()
    };
    let word = |key: &str| block[key].as_str().unwrap_or_default();
    match word("type") {
        "text" => pieces(word("text")).iter().map(|part| json!({"content": part})).collect(),
        "thinking" => {
            let parts = pieces(word("thinking"));
            parts.iter().map(|part| json!({"reasoning_content": part})).collect()
        }
        "tool_use" => {
            let opening = json!({"index": at, "id": block["id"], "type": "function",
                "function": {"name": block["name"], "arguments": ""}});
            let mut deltas = vec![json!({"tool_calls": [opening]})];
            deltas.extend(pieces(&arguments(block)).iter().map(
                |part| json!({"tool_calls": [{"index": at, "function": {"arguments": part}}]}),
            ));
            deltas
        }
        other => panic!("chat completions have no {other}"),
    }
}
