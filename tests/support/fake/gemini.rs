//! The checks of the Gemini API on a request. Pure: they return a list of violations.

use super::images::is_image;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The documented signature for calls of other models.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The words of the API for a signature that it has not made.
const STALE: &str = "Corrupted thought signature.";

/// The longest name of a function.
const LONGEST_NAME: usize = 64;

/// The fields of a part of which exactly one holds its content.
const CONTENT: [&str; 7] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
];

/// The parts with a signature that replies of this server have had, each with its model.
#[derive(Default)]
pub(super) struct Signed(Vec<(String, Value)>);

impl Signed {
    pub(super) fn extend(&mut self, model: &str, parts: Vec<Value>) {
        self.0.extend(parts.into_iter().map(|part| (model.to_owned(), part)));
    }

    fn of<'a>(&'a self, model: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |(own, _)| own == model).map(|(_, part)| part)
    }

    /// Whether a reply of this model had exactly this part. A secret that the client has taken out of it may be missing.
    fn has(&self, model: &str, part: &Value) -> bool {
        let signature = plain(&part["thoughtSignature"]);
        let is_redacted = part.to_string().contains("[redacted]");
        self.of(model).any(|own| {
            plain(&own["thoughtSignature"]) == signature
                && content(own) == content(part)
                && own["thought"] == part["thought"]
                && (is_redacted || content(own).is_some_and(|key| same(&own[key], &part[key])))
        })
    }

    /// Whether a reply of this model had this call with a signature.
    fn has_call(&self, model: &str, call: &Value) -> bool {
        self.of(model).map(|own| &own["functionCall"]).any(|own| {
            own["name"] == call["name"]
                && if own["id"].is_null() { same(own, call) } else { own["id"] == call["id"] }
        })
    }
}

/// Whether two values are the same. A call without arguments may have none or an empty object.
fn same(one: &Value, other: &Value) -> bool {
    let without_empty = |value: &Value| {
        let mut value = value.clone();
        if let Some(fields) = value.as_object_mut()
            && fields.get("args").is_some_and(|args| *args == json!({}))
        {
            fields.remove("args");
        }
        value
    };
    without_empty(one) == without_empty(other)
}

/// Returns a signature in the plain alphabet of base64: clients may send it in that for URLs.
fn plain(signature: &Value) -> String {
    let text = signature.as_str().unwrap_or_default().trim_end_matches('=');
    text.replace('-', "+").replace('_', "/")
}

fn content(part: &Value) -> Option<&'static str> {
    CONTENT.into_iter().find(|key| !part[key].is_null())
}

/// Whether a model signs its calls and always thinks: Gemini 3 and later.
pub(super) fn is_signing(model: &str) -> bool {
    let rest = model.strip_prefix("gemini-").unwrap_or("1");
    !rest.starts_with(['1', '2'])
}

/// Returns the model that a path names.
pub(super) fn model_of(target: &str) -> &str {
    let rest = target.strip_prefix("/v1beta/models/").unwrap_or_default();
    rest.split(':').next().unwrap_or_default()
}

/// Returns every violation in a request. Fails for a request that breaks no rule but has a signature of another server.
pub(super) fn violations(
    headers: &BTreeMap<String, String>,
    target: &str,
    body: &Value,
    signed: &Signed,
) -> Result<Vec<String>, &'static str> {
    let mut found = Complaints::default();
    let value = |name: &str| headers.get(name).map(String::as_str).unwrap_or_default();
    found.unless(value("content-type").starts_with("application/json"), "content-type: not json");
    found.unless(!value("x-goog-api-key").is_empty(), "no x-goog-api-key");
    check_target(target, &mut found);
    let Some(fields) = body.as_object() else {
        found.add("the body is no object");
        return Ok(found.0);
    };
    let known = [
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        "generationConfig",
        "safetySettings",
        "cachedContent",
    ];
    for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
        found.add(format!("Unknown name \"{name}\""));
    }
    let model = model_of(target);
    check_system(&body["systemInstruction"], &mut found);
    let names = check_tools(&body["tools"], &mut found);
    check_tool_config(&body["toolConfig"], &names, &mut found);
    check_generation(&body["generationConfig"], model, &mut found);
    match body["contents"].as_array() {
        Some(contents) if !contents.is_empty() => {
            check_contents(contents, &mut found);
            let is_stale = check_signatures(contents, model, signed, &mut found);
            if is_stale && found.0.is_empty() {
                return Err(STALE);
            }
        }
        _ => found.add("contents is not specified"),
    }
    Ok(found.0)
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

    fn check_keys(&mut self, place: &str, object: &Value, known: &[&str]) {
        for key in object.as_object().into_iter().flat_map(Map::keys) {
            let fine = known.contains(&key.as_str());
            self.unless(fine, format!("Unknown name \"{key}\" at '{place}'"));
        }
    }
}

fn check_target(target: &str, found: &mut Complaints) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    found.unless(!model_of(path).is_empty(), "the path names no model");
    if query.contains("key=") {
        found.add("the key is in the URL");
        return;
    }
    let method = path.rsplit(':').next().unwrap_or_default();
    match method {
        "streamGenerateContent" => found.unless(query == "alt=sse", "a stream needs alt=sse"),
        "generateContent" => found.unless(query.is_empty(), format!("the query {query}")),
        other => found.add(format!("the method {other}")),
    }
}

fn check_system(system: &Value, found: &mut Complaints) {
    if system.is_null() {
        return;
    }
    found.check_keys("system_instruction", system, &["parts", "role"]);
    let parts = system["parts"].as_array().map_or(&[][..], Vec::as_slice);
    found.unless(!parts.is_empty(), "system_instruction: no parts");
    for part in parts {
        found.check_keys("system_instruction.parts", part, &["text"]);
        let said = part["text"].as_str().is_some_and(|text| !text.trim().is_empty());
        found.unless(said, "system_instruction: empty text");
    }
}

/// Returns the names of the functions.
fn check_tools(tools: &Value, found: &mut Complaints) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    found.unless(tools.is_null() || tools.is_array(), "tools: no list");
    for tool in tools.as_array().into_iter().flatten() {
        found.check_keys("tools", tool, &["functionDeclarations"]);
        let functions = tool["functionDeclarations"].as_array().map_or(&[][..], Vec::as_slice);
        found.unless(!functions.is_empty(), "tools: no function declarations");
        for function in functions {
            let known = [
                "name",
                "description",
                "parameters",
                "parametersJsonSchema",
                "response",
                "responseJsonSchema",
                "behavior",
            ];
            found.check_keys("tools.function_declarations", function, &known);
            let name = function["name"].as_str().unwrap_or_default();
            found.unless(is_name(name), format!("Invalid function name '{name}'"));
            found.unless(
                names.insert(name.into()),
                format!("Duplicate function declaration {name}"),
            );
            let said = function["description"].as_str().is_some_and(|text| !text.is_empty());
            found.unless(said, format!("the description of {name}"));
            let schemas = ["parameters", "parametersJsonSchema"].map(|key| &function[key]);
            let given: Vec<_> = schemas.into_iter().filter(|schema| !schema.is_null()).collect();
            found.unless(given.len() < 2, format!("two schemas for the parameters of {name}"));
            for schema in given {
                let kind = schema["type"].as_str().unwrap_or_default().to_lowercase();
                found.unless(kind == "object", format!("the schema of {name} is no object"));
            }
        }
    }
    names
}

fn check_tool_config(config: &Value, names: &BTreeSet<String>, found: &mut Complaints) {
    if config.is_null() {
        return;
    }
    found.check_keys("tool_config", config, &["functionCallingConfig"]);
    let calling = &config["functionCallingConfig"];
    found.check_keys("function_calling_config", calling, &["mode", "allowedFunctionNames"]);
    found.unless(!names.is_empty(), "Function calling config is set without function_declarations");
    let mode = calling["mode"].as_str().unwrap_or("AUTO");
    found.unless(["AUTO", "ANY", "NONE", "VALIDATED"].contains(&mode), format!("the mode {mode}"));
    for name in calling["allowedFunctionNames"].as_array().into_iter().flatten() {
        found.unless(["ANY", "VALIDATED"].contains(&mode), "allowed names need the mode ANY");
        let known = name.as_str().is_some_and(|name| names.contains(name));
        found.unless(known, format!("allowed function {name} is not declared"));
    }
}

fn check_generation(config: &Value, model: &str, found: &mut Complaints) {
    let known = [
        "maxOutputTokens",
        "thinkingConfig",
        "stopSequences",
        "candidateCount",
        "temperature",
        "topP",
        "topK",
        "seed",
        "responseMimeType",
        "responseSchema",
        "responseJsonSchema",
    ];
    found.check_keys("generation_config", config, &known);
    let most = &config["maxOutputTokens"];
    let fine = most.is_null() || most.as_u64().is_some_and(|most| most > 0);
    found.unless(fine, "max_output_tokens must be positive");
    let thinking = &config["thinkingConfig"];
    if thinking.is_null() {
        return;
    }
    let known = ["includeThoughts", "thinkingBudget", "thinkingLevel"];
    found.check_keys("thinking_config", thinking, &known);
    let (budget, level) = (&thinking["thinkingBudget"], &thinking["thinkingLevel"]);
    let shows = &thinking["includeThoughts"];
    found.unless(shows.is_null() || shows.is_boolean(), "include_thoughts: a bool");
    found.unless(
        budget.is_null() || level.is_null(),
        "You can only set only one of thinking budget and thinking level.",
    );
    let is_old = model.starts_with("gemini-2.5");
    found.unless(is_old || is_signing(model), "Thinking is not enabled for this model");
    if !level.is_null() {
        let word = level.as_str().unwrap_or_default().to_uppercase();
        found.unless(
            ["MINIMAL", "LOW", "MEDIUM", "HIGH"].contains(&word.as_str()),
            "thinking_level",
        );
        found.unless(!is_old, "Thinking level is not supported for this model.");
        found.unless(!(word == "MINIMAL" && model.contains("pro")), "MINIMAL is not supported");
    }
    if !budget.is_null() {
        let tokens = budget.as_i64().unwrap_or(-2);
        let least = if model.contains("pro") { 128 } else { 0 };
        let fine = tokens == -1 || (least..=32_768).contains(&tokens);
        found.unless(fine, format!("Budget {budget} is invalid"));
        found.unless(
            tokens != 0 || *shows != true,
            "include_thoughts is only enabled when thinking is enabled",
        );
    }
}

/// The calls of a content that have to be answered by the next one.
type Open = Vec<(Value, Value)>;

fn check_contents(contents: &[Value], found: &mut Complaints) {
    let mut open: Open = Vec::new();
    let mut ids = BTreeSet::new();
    let mut before = "";
    for (at, content) in contents.iter().enumerate() {
        let place = format!("contents[{at}]");
        found.check_keys(&place, content, &["role", "parts"]);
        let role = content["role"].as_str().unwrap_or_default();
        let parts = content["parts"].as_array().map_or(&[][..], Vec::as_slice);
        found.unless(!parts.is_empty(), format!("{place}.parts must not be empty"));
        for part in parts {
            check_part(&place, role, part, found);
        }
        let of = |key: &str| parts.iter().filter(|part| !part[key].is_null()).count();
        let responses = of("functionResponse");
        if responses > 0 {
            found.unless(
                responses == parts.len(),
                format!("{place}: a content with function responses has other parts"),
            );
            found.unless(
                !open.is_empty(),
                "Please ensure that function response turn comes immediately after a function call turn.",
            );
        }
        if !open.is_empty() {
            check_responses(&place, &std::mem::take(&mut open), parts, found);
        }
        match (before, role) {
            ("" | "model" | "responses", "user") | ("user" | "responses", "model") => {}
            ("", _) => found.add(format!("{place}: a conversation begins with the user")),
            (_, "user" | "model") => found.add(format!("{place}: two contents of {role} in a row")),
            _ => found.add("Please use a valid role: user, model."),
        }
        for part in parts.iter().filter(|part| !part["functionCall"].is_null()) {
            let call = &part["functionCall"];
            let id = call["id"].as_str().unwrap_or_default();
            found.unless(id.is_empty() || ids.insert(id), format!("{place}: the id {id} twice"));
            open.push((call["id"].clone(), call["name"].clone()));
        }
        before = match role {
            "user" if responses > 0 => "responses",
            "user" => "user",
            _ => "model",
        };
    }
    let ends = contents.last().is_some_and(|last| last["role"] == "user");
    found.unless(ends, "Requests ending with a model turn are not supported.");
}

fn check_responses(place: &str, open: &Open, parts: &[Value], found: &mut Complaints) {
    let given: Vec<&Value> = parts.iter().map(|part| &part["functionResponse"]).collect();
    let given: Vec<&&Value> = given.iter().filter(|response| !response.is_null()).collect();
    if given.len() != open.len() {
        found.add(
            "Please ensure that the number of function response parts is equal to the number of \
             function call parts of the function call turn.",
        );
        return;
    }
    for (response, (id, name)) in given.into_iter().zip(open) {
        let fine = response["id"] == *id && response["name"] == *name;
        found.unless(fine, format!("{place}: {response} does not answer the call {id} of {name}"));
    }
}

fn check_part(place: &str, role: &str, part: &Value, found: &mut Complaints) {
    let mut known = CONTENT.to_vec();
    known.extend(["thought", "thoughtSignature"]);
    found.check_keys(place, part, &known);
    let contents: Vec<_> = CONTENT.iter().filter(|key| !part[**key].is_null()).collect();
    let [key] = contents.as_slice() else {
        found.add(format!("{place}: required oneof field 'data' must have one initialized field"));
        return;
    };
    let (thought, signature) = (&part["thought"], &part["thoughtSignature"]);
    found.unless(thought.is_null() || thought.is_boolean(), format!("{place}: thought: a bool"));
    let is_base64 = signature.as_str().is_some_and(|text| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "+/-_=".contains(c);
        !text.is_empty() && text.chars().all(fits)
    });
    found
        .unless(signature.is_null() || is_base64, format!("{place}: thought_signature: no base64"));
    let is_plain = thought.is_null() && signature.is_null();
    found.unless(role == "model" || is_plain, format!("{place}: a thought of the user"));
    let value = &part[**key];
    match **key {
        "inlineData" => {
            found.check_keys(place, value, &["mimeType", "data"]);
            let word = |key: &str| value[key].as_str().unwrap_or_default();
            // The API knows no GIF.
            let is_known = word("mimeType") != "image/gif";
            let fine = is_known && is_image(word("mimeType"), word("data"));
            found.unless(fine, format!("{place}: Unable to process input image"));
        }
        "text" => {
            let said = value.as_str().is_some_and(|text| !text.trim().is_empty());
            let fine = said || value.is_string() && is_base64;
            found.unless(
                fine,
                format!("{place}: Unable to submit request: an empty text parameter"),
            );
        }
        "functionCall" => {
            found.unless(role == "model", format!("{place}: a call of {role}"));
            found.check_keys(place, value, &["id", "name", "args"]);
            check_named(place, value, found);
            let args = &value["args"];
            found.unless(args.is_null() || args.is_object(), format!("{place}: args: no object"));
        }
        "functionResponse" => {
            found.unless(role == "user", format!("{place}: a response of {role}"));
            found.check_keys(place, value, &["id", "name", "response"]);
            check_named(place, value, found);
            found.unless(value["response"].is_object(), format!("{place}: response: no object"));
        }
        _ => {}
    }
}

fn check_named(place: &str, value: &Value, found: &mut Complaints) {
    let name = value["name"].as_str().unwrap_or_default();
    found.unless(is_name(name), format!("{place}: Invalid function name '{name}'"));
    let id = &value["id"];
    let fine = id.is_null() || id.as_str().is_some_and(|id| !id.is_empty());
    found.unless(fine, format!("{place}: the id {id}"));
}

/// Checks that signatures are where they were sent, and that the first call of each step of the current turn has one.
/// Returns whether there is one that is not of this server.
fn check_signatures(
    contents: &[Value],
    model: &str,
    signed: &Signed,
    found: &mut Complaints,
) -> bool {
    let is_signing = is_signing(model);
    let of = |content: &'_ Value| content["parts"].as_array().cloned().unwrap_or_default();
    let begins_turn = |content: &Value| {
        content["role"] == "user" && of(content).iter().any(|part| part["text"].is_string())
    };
    let turn = contents.iter().rposition(begins_turn).unwrap_or(0);
    let mut is_stale = false;
    for (at, content) in contents.iter().enumerate() {
        let mut calls = 0;
        for part in of(content) {
            let (call, signature) = (&part["functionCall"], &part["thoughtSignature"]);
            calls += usize::from(!call.is_null());
            let is_needed = is_signing && at > turn && calls == 1 && !call.is_null();
            let name = &call["name"];
            let is_known = !call.is_null() && signed.has_call(model, call);
            if signature.is_null() && is_needed {
                found.add(format!(
                    "Function call is missing a thought_signature in functionCall parts. Additional \
                     data, function call {name}, position {at}."
                ));
            } else if signature == NO_SIGNATURE || signature.is_null() {
                let is_lost = is_known && is_signing && at > turn;
                found.unless(!is_lost, format!("contents[{at}]: the signature of {name} is lost"));
            } else if !signed.has(model, &part) {
                found.unless(
                    !is_known,
                    format!("contents[{at}]: the signature of {name} is changed"),
                );
                is_stale = true;
            }
        }
    }
    is_stale
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.len() <= LONGEST_NAME
        && name.chars().all(fits)
}

/// Returns a request with the names of all fields in the one of their two forms that is documented. The API reads both,
/// and the official client sends both. Free values keep their names.
pub(super) fn in_camel_case(value: &Value) -> Value {
    const FREE: [&str; 5] =
        ["args", "response", "parameters", "parametersJsonSchema", "responseJsonSchema"];
    match value {
        Value::Array(items) => items.iter().map(in_camel_case).collect(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let mut words = name.split('_');
                let first = words.next().unwrap_or_default().to_owned();
                let name = words.fold(first, |name, word| match word.split_at_checked(1) {
                    Some((letter, rest)) => name + &letter.to_uppercase() + rest,
                    None => name + "_",
                });
                let is_free = FREE.contains(&name.as_str());
                let value = if is_free { value.clone() } else { in_camel_case(value) };
                (name, value)
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Returns the contents in the format of the Messages API, for scripts of models.
pub(super) fn as_messages(contents: &Value) -> Vec<Value> {
    let block = |part: &Value| {
        let response = &part["functionResponse"];
        if response.is_null() {
            let kind = if part["inlineData"].is_null() { "text" } else { "image" };
            return json!({"type": kind, "text": part["text"]});
        }
        let id = if response["id"].is_null() { &response["name"] } else { &response["id"] };
        let given = &response["response"];
        let content = given["output"].as_str().or(given["error"].as_str()).unwrap_or_default();
        let is_error = !given["error"].is_null();
        json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error})
    };
    let message = |content: &Value| {
        let role = if content["role"] == "model" { "assistant" } else { "user" };
        let blocks: Vec<Value> =
            content["parts"].as_array().into_iter().flatten().map(block).collect();
        json!({"role": role, "content": blocks})
    };
    contents.as_array().into_iter().flatten().map(message).collect()
}
