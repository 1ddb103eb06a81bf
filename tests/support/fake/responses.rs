//! The Responses API in the fake: the checks of a request, and its conversation as messages of chat completions.

use super::images::is_image_url;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Every field that a request may have. Nothing is stored, so no request may refer to an earlier response.
const FIELDS: [&str; 18] = [
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "store",
    "include",
    "max_output_tokens",
    "reasoning",
    "text",
    "truncation",
    "metadata",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
];

const INCLUDABLE: [&str; 4] = [
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "file_search_call.results",
];

const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

const STATUSES: [&str; 3] = ["in_progress", "completed", "incomplete"];

/// The fields of an item that may be null.
const NULLABLE: [&str; 2] = ["encrypted_content", "phase"];

#[derive(Default)]
struct Complaints(Vec<String>);

impl Complaints {
    fn unless(&mut self, fine: bool, complaint: impl Into<String>) {
        if !fine {
            self.0.push(complaint.into());
        }
    }

    /// Checks that an object has only these fields.
    fn keys(&mut self, place: &str, object: &Value, allowed: &[&str]) {
        for key in object.as_object().into_iter().flat_map(Map::keys) {
            self.unless(
                allowed.contains(&key.as_str()),
                format!("Unknown parameter: '{place}{key}'"),
            );
        }
    }

    /// Checks that an optional field is one of these words.
    fn word(&mut self, place: &str, field: &Value, words: &[&str]) {
        let is_known = field.as_str().is_some_and(|word| words.contains(&word));
        self.unless(field.is_null() || is_known, format!("{place}: {field} is none of {words:?}"));
    }

    fn is_bool(&mut self, body: &Value, name: &str) {
        let field = &body[name];
        self.unless(field.is_null() || field.is_boolean(), format!("{name}: no boolean"));
    }
}

/// Returns every violation in a request.
pub(crate) fn violations(headers: &BTreeMap<String, String>, body: &Value) -> Vec<String> {
    let mut found = Complaints::default();
    let value = |name: &str| headers.get(name).map(String::as_str).unwrap_or_default();
    found.unless(value("content-type").starts_with("application/json"), "content-type: not json");
    let bearer = value("authorization").strip_prefix("Bearer ").unwrap_or_default();
    found.unless(!bearer.is_empty(), "no bearer");
    found.unless(body.is_object(), "the body is no object");
    found.keys("", body, &FIELDS);
    let is_text = |field: &Value| field.as_str().is_some_and(|text| !text.is_empty());
    found.unless(is_text(&body["model"]), "model: required");
    let instructions = &body["instructions"];
    found.unless(instructions.is_null() || instructions.is_string(), "instructions: no text");
    for name in ["stream", "store", "parallel_tool_calls"] {
        found.is_bool(body, name);
    }
    let options = &body["stream_options"];
    found.unless(options.is_null() || body["stream"] == true, "stream_options: only with a stream");
    found.keys("stream_options.", options, &["include_obfuscation"]);
    let limit = &body["max_output_tokens"];
    let is_enough = limit.as_u64().is_some_and(|limit| limit >= 16);
    found.unless(limit.is_null() || is_enough, "max_output_tokens: a number of at least 16");
    let include = body["include"].as_array();
    found.unless(body["include"].is_null() || include.is_some(), "include: no list");
    for field in include.into_iter().flatten() {
        found.word("include", field, &INCLUDABLE);
    }
    let reasoning = &body["reasoning"];
    found.unless(reasoning.is_null() || reasoning.is_object(), "reasoning: no object");
    found.keys("reasoning.", reasoning, &["effort", "summary"]);
    found.word("reasoning.effort", &reasoning["effort"], &EFFORTS);
    found.word("reasoning.summary", &reasoning["summary"], &["auto", "concise", "detailed"]);
    found.word("truncation", &body["truncation"], &["auto", "disabled"]);
    let key = &body["prompt_cache_key"];
    let is_short = key.as_str().is_some_and(|key| !key.is_empty() && key.len() <= 64);
    found.unless(key.is_null() || is_short, "prompt_cache_key: a text of at most 64 characters");
    check_tools(body, &mut found);
    let input = &body["input"];
    let items = input.as_array().filter(|items| !items.is_empty());
    found.unless(
        items.is_some() || is_text(input),
        "input: required: a text or a list of items that is not empty",
    );
    if let Some(items) = items {
        check_items(items, body, &mut found);
    }
    found.0
}

fn check_tools(body: &Value, found: &mut Complaints) {
    let tools = body["tools"].as_array();
    found.unless(body["tools"].is_null() || tools.is_some(), "tools: no list");
    let mut names = BTreeSet::new();
    for (at, tool) in tools.into_iter().flatten().enumerate() {
        let place = format!("tools[{at}]");
        let known = ["type", "name", "description", "parameters", "strict"];
        found.keys(&format!("{place}."), tool, &known);
        found.unless(tool["type"] == "function", format!("{place}.type: only functions"));
        let name = tool["name"].as_str().unwrap_or_default();
        found.unless(is_word(name), format!("Missing required parameter: '{place}.name'"));
        found.unless(names.insert(name), format!("{place}: {name} twice"));
        let description = &tool["description"];
        found.unless(
            description.is_null() || description.is_string(),
            format!("{place}.description: no text"),
        );
        let strict = &tool["strict"];
        found
            .unless(strict.is_null() || strict.is_boolean(), format!("{place}.strict: no boolean"));
        let schema = &tool["parameters"];
        let fine = schema["type"] == "object" && schema["properties"].is_object();
        found.unless(fine, format!("Invalid schema for function '{name}': object, properties"));
        for keyword in ["oneOf", "anyOf", "allOf", "enum", "not"] {
            found.unless(
                schema[keyword].is_null(),
                format!("Invalid schema for function '{name}': '{keyword}' at the top level"),
            );
        }
        // Functions are strict unless the request says otherwise.
        if *strict != false {
            found.unless(
                schema["additionalProperties"] == false,
                format!(
                    "Invalid schema for function '{name}': 'additionalProperties' of a strict one"
                ),
            );
        }
    }
    let choice = &body["tool_choice"];
    let named =
        choice["type"] == "function" && names.contains(choice["name"].as_str().unwrap_or(""));
    let is_word = ["auto", "none", "required"].iter().any(|word| choice == word);
    found.unless(choice.is_null() || is_word || named, "tool_choice: not known");
}

/// The ids of the items so far.
#[derive(Default)]
struct Past {
    /// The ids of calls without an output.
    open: BTreeSet<String>,
    calls: BTreeSet<String>,
    ids: BTreeSet<String>,
}

fn check_items(items: &[Value], body: &Value, found: &mut Complaints) {
    let mut past = Past::default();
    for (at, item) in items.iter().enumerate() {
        let place = format!("input[{at}]");
        for (key, field) in item.as_object().into_iter().flatten() {
            let fine = !field.is_null() || NULLABLE.contains(&key.as_str());
            found.unless(fine, format!("Invalid type for '{place}.{key}': null"));
        }
        found.word(&format!("{place}.status"), &item["status"], &STATUSES);
        let is_bare = item["type"].is_null() && item["role"].is_string();
        let kind = if is_bare { "message" } else { item["type"].as_str().unwrap_or_default() };
        let prefix = match kind {
            "message" => check_message(&place, item, found),
            "function_call" => check_call(&place, item, &mut past, found),
            "function_call_output" => check_output(&place, item, &mut past, found),
            "reasoning" => {
                found.unless(item["id"].is_string(), format!("{place}.id: required"));
                check_reasoning(&place, item, body["store"] == false, found);
                check_followed(item, items.get(at + 1), found);
                "rs_"
            }
            other => {
                found.0.push(format!("{place}: an item of the type '{other}'"));
                continue;
            }
        };
        let Some(id) = item["id"].as_str() else { continue };
        found.unless(
            id.starts_with(prefix),
            format!("Invalid '{place}.id': '{id}'. Expected an ID that begins with '{prefix}'"),
        );
        found.unless(past.ids.insert(id.into()), format!("Duplicate item found with id {id}"));
    }
    for id in past.open {
        found.0.push(format!("No tool output found for function call {id}"));
    }
}

fn check_message(place: &str, item: &Value, found: &mut Complaints) -> &'static str {
    found.keys(&format!("{place}."), item, &["type", "id", "role", "content", "status", "phase"]);
    let role = item["role"].as_str().unwrap_or_default();
    let is_own = role == "assistant";
    found.unless(
        is_own || ["user", "system", "developer"].contains(&role),
        format!("{place}.role: '{role}'"),
    );
    found.unless(is_own || item["phase"].is_null(), format!("{place}.phase: not of {role}"));
    found.word(&format!("{place}.phase"), &item["phase"], &["commentary", "final_answer"]);
    let kinds: &[&str] =
        if is_own { &["output_text", "refusal"] } else { &["input_text", "input_image"] };
    let content = &item["content"];
    let parts = content.as_array().filter(|parts| !parts.is_empty());
    let is_text = content.as_str().is_some_and(|text| !text.is_empty());
    found.unless(
        is_text || parts.is_some(),
        format!("{place}.content: a text or a list of parts that is not empty"),
    );
    for (at, part) in parts.into_iter().flatten().enumerate() {
        let place = format!("{place}.content[{at}]");
        let kind = part["type"].as_str().unwrap_or_default();
        found.unless(
            kinds.contains(&kind),
            format!("Invalid value: '{kind}' at {place}. Supported values are: {kinds:?}"),
        );
        if kind == "input_image" {
            found.unless(role == "user", format!("{place}: an image of {role}"));
            found.keys(&format!("{place}."), part, &["type", "image_url", "detail", "file_id"]);
            found.word(&format!("{place}.detail"), &part["detail"], &["auto", "low", "high"]);
            found.unless(is_image_url(&part["image_url"]), format!("{place}.image_url: no image"));
            continue;
        }
        let key = if kind == "refusal" { "refusal" } else { "text" };
        let more: &[&str] = if is_own { &["annotations", "logprobs"] } else { &[] };
        found.keys(&format!("{place}."), part, &[&["type", key], more].concat());
        let is_text = part[key].as_str().is_some_and(|text| !text.is_empty());
        found.unless(is_text, format!("{place}.{key}: a text that is not empty"));
    }
    "msg_"
}

fn check_call(place: &str, item: &Value, past: &mut Past, found: &mut Complaints) -> &'static str {
    let known = ["type", "id", "call_id", "name", "arguments", "status"];
    found.keys(&format!("{place}."), item, &known);
    let id = item["call_id"].as_str().unwrap_or_default();
    found.unless(!id.is_empty() && id.len() <= 64, format!("{place}.call_id: 1 to 64 characters"));
    found.unless(is_word(item["name"].as_str().unwrap_or_default()), format!("{place}.name"));
    let arguments = item["arguments"].as_str().unwrap_or_default();
    let is_object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
    found.unless(is_object, format!("{place}.arguments: a text with a JSON object"));
    found.unless(past.calls.insert(id.into()), format!("{place}: the call {id} twice"));
    past.open.insert(id.into());
    "fc_"
}

fn check_output(
    place: &str,
    item: &Value,
    past: &mut Past,
    found: &mut Complaints,
) -> &'static str {
    found.keys(&format!("{place}."), item, &["type", "id", "call_id", "output", "status"]);
    let id = item["call_id"].as_str().unwrap_or_default();
    let is_open = past.open.remove(id);
    found.unless(is_open, format!("No tool call found for function call output with call_id {id}"));
    let parts = item["output"].as_array();
    let is_text = |part: &Value| part["type"] == "input_text" && part["text"].is_string();
    let fine = item["output"].is_string() || parts.is_some_and(|parts| parts.iter().all(is_text));
    found.unless(fine, format!("{place}.output: a text or a list of texts"));
    "fc_"
}

fn check_reasoning(place: &str, item: &Value, is_stateless: bool, found: &mut Complaints) {
    let known = ["type", "id", "summary", "encrypted_content", "content", "status"];
    found.keys(&format!("{place}."), item, &known);
    let id = item["id"].as_str().unwrap_or_default();
    let are_texts = |parts: &Value, kind: &str| {
        let is_text = |part: &Value| part["type"] == kind && part["text"].is_string();
        parts.as_array().is_some_and(|parts| parts.iter().all(is_text))
    };
    found.unless(are_texts(&item["summary"], "summary_text"), format!("{place}.summary: a list"));
    let content = &item["content"];
    found.unless(
        content.is_null() || are_texts(content, "reasoning_text"),
        format!("{place}.content: a list"),
    );
    match item["encrypted_content"].as_str() {
        None | Some("") => found.unless(
            !is_stateless,
            format!("Item with id '{id}' not found. Items are not persisted when `store` is set to false"),
        ),
        Some(text) => found.unless(
            text.starts_with(&encrypted(id, "")),
            format!("The encrypted content for item {id} could not be verified"),
        ),
    }
}

/// Checks that reasoning leads to an item of the model.
fn check_followed(item: &Value, next: Option<&Value>, found: &mut Complaints) {
    let leads = next.is_some_and(|next| {
        next["role"] == "assistant"
            || next["type"] == "function_call"
            || next["type"] == "reasoning"
    });
    let id = &item["id"];
    found.unless(
        leads,
        format!("Item {id} of type 'reasoning' was provided without its required following item"),
    );
}

/// Returns the form in which the fake sends the reasoning of an item. No other item may have it.
pub(super) fn encrypted(id: &str, thought: &str) -> String {
    format!("gAAAA.{id}.{thought}")
}

fn is_word(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !text.is_empty() && text.len() <= 64 && text.chars().all(fits)
}

/// Returns the conversation of a request as messages of chat completions: the items of one reply are one message.
pub(super) fn messages(body: &Value) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    if let Some(text) = body["input"].as_str() {
        messages.push(json!({"role": "user", "content": text}));
    }
    for item in body["input"].as_array().into_iter().flatten() {
        if item["type"] == "function_call_output" {
            messages.push(json!({"role": "tool", "tool_call_id": item["call_id"],
                "content": item["output"]}));
        } else if item["role"].is_string() && item["role"] != "assistant" {
            messages.push(json!({"role": item["role"], "content": item["content"]}));
        } else if messages.last().is_none_or(|last| last["role"] != "assistant") {
            messages.push(json!({"role": "assistant", "content": item["content"]}));
        }
    }
    messages
}
