//! The checks of the Messages API on a request. Pure: they return a list of violations.

use super::images::is_image;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Every field that a request may have.
const FIELDS: [&str; 14] = [
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "thinking",
    "output_config",
    "metadata",
    "stop_sequences",
    "service_tier",
    "container",
    "context_management",
];

/// Returns every violation in a request. `paused` allows a conversation that ends with the assistant.
pub(crate) fn violations(
    headers: &BTreeMap<String, String>,
    body: &Value,
    paused: bool,
) -> Vec<String> {
    let mut found = Complaints::default();
    check_headers(headers, &mut found);
    let Some(fields) = body.as_object() else {
        found.add("the body is no object");
        return found.0;
    };
    for name in fields.keys() {
        match name.as_str() {
            "temperature" | "top_p" | "top_k" => found.add(format!("{name} is not supported")),
            known => found.unless(FIELDS.contains(&known), format!("{known}: extra field")),
        }
    }
    let model = body["model"].as_str().unwrap_or_default();
    found.unless(!model.is_empty(), "model: required");
    found.unless(body["max_tokens"].as_u64().unwrap_or(0) > 0, "max_tokens: required, above 0");
    found.unless(body["stream"].is_null() || body["stream"].is_boolean(), "stream: a bool");
    check_system(&body["system"], &mut found);
    check_tools(&body["tools"], &mut found);
    match body["messages"].as_array() {
        Some(messages) if !messages.is_empty() => check_messages(messages, paused, &mut found),
        _ => found.add("messages: required, not empty"),
    }
    check_thinking(body, &mut found);
    let breakpoints = count_breakpoints(body);
    found.unless(breakpoints <= 4, format!("{breakpoints} cache_control blocks, 4 allowed"));
    found.0
}

#[derive(Default)]
struct Complaints(Vec<String>);

impl Complaints {
    fn add(&mut self, complaint: impl Into<String>) {
        self.0.push(complaint.into());
    }

    fn unless(&mut self, fine: bool, complaint: impl Into<String>) {
        if !fine {
            self.add(complaint);
        }
    }
}

fn check_headers(headers: &BTreeMap<String, String>, found: &mut Complaints) {
    let value = |name: &str| headers.get(name).map(String::as_str).unwrap_or_default();
    found.unless(value("content-type").starts_with("application/json"), "content-type: not json");
    let version = value("anthropic-version");
    let dated = version.len() == 10 && version.split('-').count() == 3;
    found.unless(dated, format!("anthropic-version: '{version}' is no date"));
    let bearer = value("authorization").strip_prefix("Bearer ").unwrap_or_default();
    found.unless(!value("x-api-key").is_empty() || !bearer.is_empty(), "no x-api-key, no bearer");
}

fn check_thinking(body: &Value, found: &mut Complaints) {
    let thinking = &body["thinking"];
    let is_known = ["enabled", "adaptive", "disabled"].iter().any(|kind| thinking["type"] == *kind);
    found.unless(thinking.is_null() || is_known, "thinking: the type");
    let keys: &[&str] =
        if thinking["type"] == "enabled" { &["type", "budget_tokens"] } else { &["type"] };
    check_keys("thinking", thinking, keys, found);
    check_keys("output_config", &body["output_config"], &["effort"], found);
    let effort = &body["output_config"]["effort"];
    let is_known = ["low", "medium", "high", "max"].iter().any(|word| effort == word);
    found.unless(effort.is_null() || is_known, "output_config: the effort");
    if thinking["type"] != "enabled" {
        return;
    }
    let budget = thinking["budget_tokens"].as_u64().unwrap_or_default();
    found.unless(budget >= 1024, "thinking: budget_tokens: at least 1024");
    let most = body["max_tokens"].as_u64().unwrap_or_default();
    found.unless(budget < most, "thinking: max_tokens must be greater than budget_tokens");
    // The last reply of an open turn begins with its thinking.
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    if let [.., reply, news] = messages
        && news["content"]
            .as_array()
            .is_some_and(|it| it.iter().any(|it| it["type"] == "tool_result"))
    {
        let kind = reply["content"][0]["type"].as_str().unwrap_or_default();
        let fine = matches!(kind, "thinking" | "redacted_thinking");
        found.unless(
            fine,
            format!("expected thinking at the begin of the last reply, found {kind}"),
        );
    }
}

fn check_system(system: &Value, found: &mut Complaints) {
    if let Some(text) = system.as_str() {
        found.unless(!text.trim().is_empty(), "system: empty");
        return;
    }
    found.unless(system.is_null() || system.is_array(), "system: neither text nor blocks");
    for block in system.as_array().into_iter().flatten() {
        found.unless(block["type"] == "text", "system: only text blocks");
        check_keys("system", block, &["type", "text", "cache_control"], found);
        let text = block["text"].as_str().unwrap_or_default();
        found.unless(!text.trim().is_empty(), "system: empty text");
    }
}

fn check_tools(tools: &Value, found: &mut Complaints) {
    let mut names = BTreeSet::new();
    found.unless(tools.is_null() || tools.is_array(), "tools: no list");
    for tool in tools.as_array().into_iter().flatten() {
        let keys = ["name", "description", "input_schema", "cache_control", "type"];
        check_keys("tools", tool, &keys, found);
        let name = tool["name"].as_str().unwrap_or_default();
        found.unless(is_word(name) && name.len() <= 128, format!("tools: the name '{name}'"));
        found.unless(names.insert(name), format!("tools: {name} twice"));
        let schema = &tool["input_schema"];
        found.unless(
            schema["type"] == "object",
            format!("tools: the schema of {name} is no object"),
        );
        let description = &tool["description"];
        found.unless(description.is_null() || description.is_string(), "tools: description");
    }
}

fn check_messages(messages: &[Value], paused: bool, found: &mut Complaints) {
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages.{at}");
        check_keys(&place, message, &["role", "content"], found);
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        found.unless(message["role"] == role, format!("{place}: the role should be {role}"));
        if message["content"].as_str().is_some_and(|text| !text.trim().is_empty()) {
            found.unless(open.is_empty(), format!("{place}: {open:?} not answered"));
            continue;
        }
        let blocks = message["content"].as_array().filter(|blocks| !blocks.is_empty());
        let Some(blocks) = blocks else {
            found.add(format!("{place}: empty content"));
            continue;
        };
        let mut past_results = false;
        for block in blocks {
            match (role, block["type"].as_str().unwrap_or_default()) {
                (_, "text") => {
                    past_results = true;
                    check_keys(
                        &place,
                        block,
                        &["type", "text", "cache_control", "citations"],
                        found,
                    );
                    let text = block["text"].as_str().unwrap_or_default();
                    found.unless(!text.trim().is_empty(), format!("{place}: empty text"));
                }
                ("user", "image") => {
                    past_results = true;
                    check_keys(&place, block, &["type", "source", "cache_control"], found);
                    let source = &block["source"];
                    check_keys(&place, source, &["type", "media_type", "data"], found);
                    let word = |key: &str| source[key].as_str().unwrap_or_default();
                    let fine =
                        word("type") == "base64" && is_image(word("media_type"), word("data"));
                    found.unless(fine, format!("{place}: Could not process image"));
                }
                ("user", "tool_result") => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    let keys = ["type", "tool_use_id", "content", "is_error", "cache_control"];
                    check_keys(&place, block, &keys, found);
                    found.unless(!past_results, format!("{place}: result of {id} after text"));
                    found.unless(
                        open.remove(id),
                        format!("{place}: result of {id}, which is not asked"),
                    );
                    let error = &block["is_error"];
                    found.unless(
                        error.is_null() || error.is_boolean(),
                        format!("{place}: is_error"),
                    );
                    let content = &block["content"];
                    found.unless(
                        content.is_string() || content.is_array(),
                        format!("{place}: content"),
                    );
                }
                ("assistant", "tool_use") => {
                    let id = block["id"].as_str().unwrap_or_default();
                    check_keys(
                        &place,
                        block,
                        &["type", "id", "name", "input", "cache_control"],
                        found,
                    );
                    found.unless(is_word(id), format!("{place}: the call id '{id}'"));
                    found
                        .unless(seen.insert(id.into()), format!("{place}: the call id {id} twice"));
                    let name = block["name"].as_str().unwrap_or_default();
                    found.unless(is_word(name), format!("{place}: the tool name '{name}'"));
                    found.unless(block["input"].is_object(), format!("{place}: input of {id}"));
                    open.insert(id.into());
                }
                ("assistant", "thinking") => {
                    check_keys(&place, block, &["type", "thinking", "signature"], found);
                    let signed = block["signature"].as_str().is_some_and(|text| !text.is_empty());
                    found.unless(signed, format!("{place}: thinking without signature"));
                }
                (
                    "assistant",
                    "redacted_thinking" | "server_tool_use" | "web_search_tool_result",
                ) => {}
                (_, kind) => found.add(format!("{place}: a block '{kind}' of {role}")),
            }
        }
        let all = role == "assistant" || open.is_empty();
        found.unless(all, format!("{place}: {open:?} not answered"));
    }
    let ends = messages.last().is_some_and(|last| last["role"] == "user");
    found.unless(open.is_empty() && (ends || paused), "messages: the last one is not the user's");
}

fn check_keys(place: &str, object: &Value, allowed: &[&str], found: &mut Complaints) {
    let none = Map::new();
    for key in object.as_object().unwrap_or(&none).keys() {
        let fine = allowed.contains(&key.as_str());
        found.unless(fine, format!("{place}.{key}: extra field"));
    }
}

fn is_word(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !text.is_empty() && text.chars().all(fits)
}

fn count_breakpoints(value: &Value) -> usize {
    let items = value.as_array().into_iter().flatten();
    // The input of a tool call may have any key.
    let fields = value.as_object().into_iter().flatten();
    let inner = fields.filter(|(key, _)| *key != "input" && *key != "input_schema");
    let below = items.chain(inner.map(|(_, value)| value)).map(count_breakpoints);
    usize::from(!value["cache_control"].is_null()) + below.sum::<usize>()
}
