//! Converts a [`Request`] to a body of the Gemini API. Pure.
//!
//! *Invariant:* the responses to the calls of a reply are one `user` content directly after it, in the order of the
//! calls and without any other part; text follows as a content of its own. (The API takes a content that mixes them for no
//! answer to the calls.) No part is empty. Blocks of other providers and models are left out. Sampling parameters are
//! never sent.

use super::model::ThinkingControl;
use super::opaque::{self, Kept};
use super::refusals::{Refusals, Signatures};
use crate::llm::reply_builder::is_made;
use crate::wire::chat::{Block, ChatMessage, Effort, Request, Role, Thinking, ToolDefinition};
use crate::wire::image::ImageType;
use serde_json::{Map, Value, json};
use std::ops::Range;

/// The text of a content without other parts.
const NOTHING: &str = "(empty)";

/// The text after a reply that the API is to continue, since no request may end with the model's content.
const GO_ON: &str = "(go on)";

/// The documented signature for a call that has none, because another model made it. Models that sign their calls refuse
/// a call of the current turn without a signature.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The least limit for an answer of a model that always thinks. Its thinking counts, so that a smaller limit may leave no
/// room for the answer itself.
const LEAST_ANSWER: u32 = 8_192;

/// The maximum length of a function's name.
const LONGEST_NAME: usize = 64;

pub(in crate::llm) fn body(request: &Request, model: &str, refusals: &Refusals) -> Value {
    let signatures = refusals.signatures(request);
    body_with(request, model, signatures, refusals.permits_thinking())
}

fn body_with(
    request: &Request,
    model: &str,
    signatures: Signatures,
    permits_thinking: bool,
) -> Value {
    let control = ThinkingControl::of(model);
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.into(), value));
    if !request.system.trim().is_empty() {
        put("systemInstruction", json!({"parts": [{"text": request.system}]}));
    }
    if !request.tools.is_empty() {
        let declarations: Vec<Value> = request.tools.iter().map(declaration).collect();
        put("tools", json!([{ "functionDeclarations": declarations }]));
    }
    let mut config = generation_config(request, control);
    if let (false, Some(fields)) = (permits_thinking, config.as_object_mut()) {
        fields.remove("thinkingConfig");
    }
    put("generationConfig", config);
    let is_signed = control == ThinkingControl::Level || signatures != Signatures::All;
    put("contents", contents(&request.messages, model, signatures, is_signed).into());
    Value::Object(body)
}

fn declaration(tool: &ToolDefinition) -> Value {
    let ToolDefinition { name, description, input_schema } = tool;
    json!({
        "name": function_name(name), "description": description, "parametersJsonSchema": input_schema,
    })
}

/// Returns a name in the form of the API: another model may have called a tool that does not exist.
fn function_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    let mut fitting: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if !fitting.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        fitting.insert(0, '_');
    }
    fitting.truncate(LONGEST_NAME);
    fitting
}

fn generation_config(request: &Request, control: ThinkingControl) -> Value {
    let Request { max_tokens, thinking, .. } = *request;
    // Without a wish, a short answer gets as little thinking as possible.
    let is_short = thinking == Thinking::default() && max_tokens < LEAST_ANSWER;
    let effort = thinking.effort.or(is_short.then_some(Effort::Off));
    let most = match control {
        ThinkingControl::Budget { can_be_off: true, .. } | ThinkingControl::Unknown => max_tokens,
        _ if effort == Some(Effort::Off) => max_tokens.max(LEAST_ANSWER),
        ThinkingControl::Level | ThinkingControl::Budget { .. } => max_tokens,
    };
    let mut config = json!({ "maxOutputTokens": most });
    let wish = thinking_config(Thinking { effort, ..thinking }, max_tokens, control);
    if let (false, Some(fields)) = (wish.is_empty(), config.as_object_mut()) {
        fields.insert("thinkingConfig".into(), wish.into());
    }
    config
}

/// Returns the field `thinkingConfig`; empty if there is nothing to say.
fn thinking_config(
    Thinking { effort, budget_tokens }: Thinking,
    max_tokens: u32,
    control: ThinkingControl,
) -> Map<String, Value> {
    let is_off = effort == Some(Effort::Off);
    let (level, tokens, is_shown) = match control {
        // The least level that all models have; none of them can be told not to think.
        ThinkingControl::Level if is_off => (Some(Effort::Low), None, false),
        ThinkingControl::Level => (effort, budget_tokens.filter(|_| effort.is_none()), true),
        ThinkingControl::Budget { least, most, can_be_off, is_default } => {
            let wanted = budget_tokens.or(effort.map(|effort| match effort {
                Effort::Off => 0,
                Effort::Low => 1024,
                Effort::Medium => 8_192,
                Effort::High => 24_576,
            }));
            // Half of the limit is left for the answer.
            let room = max_tokens / 2;
            let tokens = wanted.map(|tokens| match tokens {
                0 if can_be_off => 0,
                _ if can_be_off && room < least => 0,
                tokens => tokens.clamp(least, most).min(room.max(least)),
            });
            (None, tokens, !is_off && tokens.map_or(is_default, |tokens| tokens > 0))
        }
        ThinkingControl::Unknown => {
            let asked = effort.is_some() || budget_tokens.is_some();
            (
                effort.filter(|_| !is_off),
                budget_tokens.filter(|_| effort.is_none()),
                asked && !is_off,
            )
        }
    };
    let mut config = Map::new();
    if let Some(level) = level {
        config.insert("thinkingLevel".into(), level.word().to_uppercase().into());
    }
    if let Some(tokens) = tokens {
        config.insert("thinkingBudget".into(), tokens.into());
    }
    if is_shown {
        config.insert("includeThoughts".into(), true.into());
    }
    config
}

fn contents(
    messages: &[ChatMessage],
    model: &str,
    signatures: Signatures,
    is_signed: bool,
) -> Vec<Value> {
    let mut contents = Vec::new();
    let mut put = |role: &str, parts: Vec<Value>| {
        contents.push(json!({"role": role, "parts": parts}));
    };
    let mut calls: Vec<(&str, &str)> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if message.role == Role::Assistant {
            let mut parts = reply_parts(message, signatures.has(at).then_some(model));
            if is_signed {
                sign_first_call(&mut parts);
            }
            put("model", filled(parts));
            calls = message.blocks.iter().filter_map(call_of).collect();
            continue;
        }
        let responses = responses(message, &calls);
        let told: Vec<Value> = message.blocks.iter().filter_map(told_part).collect();
        let has_responses = !responses.is_empty();
        if has_responses {
            put("user", responses);
        }
        if !told.is_empty() || !has_responses {
            put("user", filled(told));
        }
    }
    if messages.last().is_some_and(|last| last.role == Role::Assistant) {
        put("user", vec![json!({"text": GO_ON})]);
    }
    contents
}

fn filled(parts: Vec<Value>) -> Vec<Value> {
    if parts.is_empty() { vec![json!({"text": NOTHING})] } else { parts }
}

/// Returns the part for a text or an image of the program.
fn told_part(block: &Block) -> Option<Value> {
    match block {
        Block::Text { text } => (!text.trim().is_empty()).then(|| json!({ "text": text })),
        Block::Image { image, .. } if image.media_type == ImageType::Gif => {
            Some(json!({ "text": "[team: not shown: the API takes no GIF]" }))
        }
        Block::Image { image, data } => data
            .as_ref()
            .map(|data| json!({ "inlineData": { "mimeType": image.media_type, "data": &**data } })),
        Block::ToolUse { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
    }
}

fn call_of(block: &Block) -> Option<(&str, &str)> {
    if let Block::ToolUse { id, name, .. } = block { Some((id, name)) } else { None }
}

/// Returns the responses to these calls, in their order.
fn responses(message: &ChatMessage, calls: &[(&str, &str)]) -> Vec<Value> {
    let response = |(id, name): &(&str, &str)| {
        message.blocks.iter().find_map(|block| {
            let Block::ToolResult { tool_use_id, content, is_error } = block else { return None };
            if tool_use_id != id {
                return None;
            }
            let key = if *is_error { "error" } else { "output" };
            let mut response = Map::new();
            put_id(&mut response, id);
            response.insert("name".into(), function_name(name).into());
            response.insert("response".into(), json!({ key: content }));
            Some(json!({ "functionResponse": response }))
        })
    };
    calls.iter().filter_map(response).collect()
}

/// Puts in the id of a call, unless this program made it because the call had none.
fn put_id(object: &mut Map<String, Value>, id: &str) {
    if !is_made(id) {
        object.insert("id".into(), id.into());
    }
}

/// Returns the parts of a reply, with the signatures of this model.
fn reply_parts(message: &ChatMessage, model: Option<&str>) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut signatures: Vec<(&str, Option<Range<usize>>)> = Vec::new();
    for block in &message.blocks {
        match block {
            Block::Opaque { value } => match model.and_then(|model| opaque::read(value, model)) {
                Some(Kept::Part(part)) => parts.push(part.clone()),
                Some(Kept::Signature(signature, bytes)) => signatures.push((signature, bytes)),
                None => {}
            },
            Block::Text { text } => text_parts(text, &std::mem::take(&mut signatures), &mut parts),
            Block::ToolUse { id, name, input } => {
                let signature = std::mem::take(&mut signatures).into_iter().next();
                let mut call = Map::new();
                put_id(&mut call, id);
                call.insert("name".into(), function_name(name).into());
                let args = if input.is_object() { input.clone() } else { json!({}) };
                call.insert("args".into(), args);
                parts.push(signed(json!({ "functionCall": call }), signature.map(|it| it.0)));
            }
            Block::ToolResult { .. } | Block::Image { .. } => {}
        }
    }
    parts
}

fn signed(mut part: Value, signature: Option<&str>) -> Value {
    if let (Some(signature), Some(fields)) = (signature, part.as_object_mut()) {
        fields.insert("thoughtSignature".into(), signature.into());
    }
    part
}

/// Splits a text into the parts in which it came: those with a signature, and the text between them.
fn text_parts(text: &str, signatures: &[(&str, Option<Range<usize>>)], parts: &mut Vec<Value>) {
    let mut done = 0;
    let mut put = |text: Option<&str>, signature: Option<&str>| {
        // Text that is only white space is left out, as an empty part would be refused.
        let wanted = text.filter(|text| signature.is_some() || !text.trim().is_empty());
        parts.extend(wanted.map(|text| signed(json!({ "text": text }), signature)));
    };
    for (signature, bytes) in signatures {
        // The place of a signature is lost if a secret was taken out of the text.
        let Some(bytes) = bytes.clone().filter(|bytes| text.get(bytes.clone()).is_some()) else {
            continue;
        };
        let Some(before) = text.get(done..bytes.start) else { continue };
        put(Some(before), None);
        put(text.get(bytes.clone()), Some(signature));
        done = bytes.end;
    }
    put(text.get(done..), None);
}

/// Gives the first call of a reply the signature for calls of other models, unless it has one.
fn sign_first_call(parts: &mut [Value]) {
    let first = parts.iter_mut().find(|part| part.get("functionCall").is_some());
    let fields = first.and_then(Value::as_object_mut);
    if let Some(fields) = fields {
        fields.entry("thoughtSignature").or_insert_with(|| NO_SIGNATURE.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::attempt_error::{AttemptError, ErrorReport};
    use crate::llm::fixtures::{call, conversation, request, result, text};

    const MODEL: &str = "gemini-3-x";

    fn sent(request: &Request, model: &str) -> Value {
        body_with(request, model, Signatures::All, true)
    }

    fn signature(text: &str, bytes: Option<Range<usize>>) -> Block {
        Block::Opaque { value: opaque::signature(MODEL, text, bytes) }
    }

    #[test]
    fn a_conversation_of_another_model_with_tools_and_mail() {
        let body = sent(&conversation(), MODEL).to_string();
        // One line per content and tool makes a change easy to locate.
        let lines = body.replace("{\"role\"", "\n{\"role\"").replace("{\"name\":", "\n{\"name\":");
        insta::assert_snapshot!(lines, @r#"
        {"systemInstruction":{"parts":[{"text":"You are alice."}]},"tools":[{"functionDeclarations":[
        {"name":"run","description":"runs","parametersJsonSchema":{"type":"object"}},
        {"name":"rest","description":"rests","parametersJsonSchema":{"type":"object"}}]}],"generationConfig":{"maxOutputTokens":8192,"thinkingConfig":{"thinkingLevel":"LOW"}},"contents":[
        {"role":"user","parts":[{"text":"hi"}]},
        {"role":"model","parts":[{"functionCall":{"id":"t1","name":"run","args":{"command":"ls"}},"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"id":"t2","name":"rest","args":{}}}]},
        {"role":"user","parts":[{"functionResponse":{"id":"t1","name":"run","response":{"output":""}}},{"functionResponse":{"id":"t2","name":"rest","response":{"error":"no"}}}]},
        {"role":"user","parts":[{"text":"mail"},{"text":"more"}]},
        {"role":"model","parts":[{"text":"(empty)"}]},
        {"role":"user","parts":[{"text":"go on"}]}]}
        "#);
    }

    #[test]
    fn a_signature_goes_back_with_the_part_that_it_came_with() {
        let thought = json!({"text": "", "thought": true, "thoughtSignature": "t"});
        let reply = vec![
            Block::Opaque { value: opaque::part(MODEL, &thought) },
            signature("u", Some(2..3)),
            signature("v", Some(5..8)),
            text("I look."),
            signature("s+/=", None),
            call("a", "run", json!({"n": 1})),
            call("call_1", "rest", Value::Null),
        ];
        let answers = vec![result("call_1", "no", true), result("a", "yes", false)];
        let mut request = request(vec![vec![text("hi")], reply, answers]);
        let parts = |request: &Request, model, signatures| {
            body_with(request, model, signatures, true)["contents"][1]["parts"].clone()
        };
        let all = json!([
            thought,
            {"text": "I "},
            {"text": "l", "thoughtSignature": "u"},
            {"text": "ook."},
            {"functionCall": {"id": "a", "name": "run", "args": {"n": 1}}, "thoughtSignature": "s+/="},
            {"functionCall": {"name": "rest", "args": {}}},
        ]);
        assert_eq!(parts(&request, MODEL, Signatures::All), all);
        let unsigned = |signature: &str| {
            json!([{"text": "I look."},
                {"functionCall": {"id": "a", "name": "run", "args": {"n": 1}}, "thoughtSignature": signature},
                {"functionCall": {"name": "rest", "args": {}}}])
        };
        // Another model, and one that does not sign its calls.
        assert_eq!(parts(&request, "gemini-flash-latest", Signatures::All), unsigned(NO_SIGNATURE));
        let plain = parts(&request, "gemini-2.5-flash", Signatures::All);
        assert_eq!(plain[1], json!({"functionCall": {"id": "a", "name": "run", "args": {"n": 1}}}));
        // The API has refused a signature of the first messages.
        assert_eq!(parts(&request, MODEL, Signatures::After(3)), unsigned(NO_SIGNATURE));
        assert_eq!(parts(&request, MODEL, Signatures::After(1)), all);
        // The responses are in the order of the calls, with the ids that the calls came with.
        let responses = sent(&request, MODEL)["contents"][2].clone();
        let expected = json!({"role": "user", "parts": [
            {"functionResponse": {"id": "a", "name": "run", "response": {"output": "yes"}}},
            {"functionResponse": {"name": "rest", "response": {"error": "no"}}}]});
        assert_eq!(responses, expected);
        // A paused reply is continued.
        request.messages.truncate(2);
        assert_eq!(sent(&request, MODEL)["contents"][2]["parts"], json!([{"text": GO_ON}]));
    }

    #[test]
    fn thinking_is_asked_for_as_the_model_permits() {
        let config = |model: &str, effort, budget_tokens, max_tokens| {
            let thinking = Thinking { effort, budget_tokens };
            let request = Request { max_tokens, thinking, ..request(vec![vec![text("hi")]]) };
            sent(&request, model)["generationConfig"].to_string()
        };
        let (pro, flash, lite) = ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite");
        let (off, low, high) = (Some(Effort::Off), Some(Effort::Low), Some(Effort::High));
        for (model, effort, budget, max, expected) in [
            (MODEL, None, None, 16_384, r#"16384,"thinkingConfig":{"includeThoughts":true}"#),
            (MODEL, off, None, 16_384, r#"16384,"thinkingConfig":{"thinkingLevel":"LOW"}"#),
            (MODEL, None, None, 16, r#"8192,"thinkingConfig":{"thinkingLevel":"LOW"}"#),
            (
                MODEL,
                high,
                Some(2000),
                9,
                r#"9,"thinkingConfig":{"thinkingLevel":"HIGH","includeThoughts":true}"#,
            ),
            (
                MODEL,
                None,
                Some(2000),
                9999,
                r#"9999,"thinkingConfig":{"thinkingBudget":2000,"includeThoughts":true}"#,
            ),
            (pro, None, None, 9999, r#"9999,"thinkingConfig":{"includeThoughts":true}"#),
            (pro, off, None, 9999, r#"9999,"thinkingConfig":{"thinkingBudget":128}"#),
            (pro, None, None, 16, r#"8192,"thinkingConfig":{"thinkingBudget":128}"#),
            (flash, off, None, 9999, r#"9999,"thinkingConfig":{"thinkingBudget":0}"#),
            (flash, None, None, 16, r#"16,"thinkingConfig":{"thinkingBudget":0}"#),
            (
                flash,
                low,
                None,
                9999,
                r#"9999,"thinkingConfig":{"thinkingBudget":1024,"includeThoughts":true}"#,
            ),
            (
                flash,
                high,
                None,
                16_384,
                r#"16384,"thinkingConfig":{"thinkingBudget":8192,"includeThoughts":true}"#,
            ),
            (
                flash,
                low,
                Some(2000),
                9999,
                r#"9999,"thinkingConfig":{"thinkingBudget":2000,"includeThoughts":true}"#,
            ),
            (lite, None, None, 9999, "9999"),
            (lite, off, None, 9999, r#"9999,"thinkingConfig":{"thinkingBudget":0}"#),
            (lite, low, None, 1000, r#"1000,"thinkingConfig":{"thinkingBudget":0}"#),
            (
                lite,
                None,
                Some(100),
                9999,
                r#"9999,"thinkingConfig":{"thinkingBudget":512,"includeThoughts":true}"#,
            ),
            (
                flash,
                None,
                Some(60_000),
                99_999,
                r#"99999,"thinkingConfig":{"thinkingBudget":24576,"includeThoughts":true}"#,
            ),
            (
                pro,
                None,
                Some(60_000),
                99_999,
                r#"99999,"thinkingConfig":{"thinkingBudget":32768,"includeThoughts":true}"#,
            ),
            ("gemini-2.0-flash", None, None, 16, "16"),
            ("gemini-2.0-flash", off, None, 16, "16"),
            (
                "gemma-4",
                high,
                None,
                99,
                r#"99,"thinkingConfig":{"thinkingLevel":"HIGH","includeThoughts":true}"#,
            ),
        ] {
            let expected = format!(r#"{{"maxOutputTokens":{expected}}}"#);
            assert_eq!(config(model, effort, budget, max), expected, "{model}");
        }
    }

    fn refusal(message: &str) -> AttemptError {
        let (status, message) = (400, message.into());
        AttemptError::Reported(ErrorReport { status, message, ..ErrorReport::default() })
    }

    #[test]
    fn a_model_that_refuses_the_wish_for_thinking_is_asked_without_it() {
        for message in [
            "Thinking level is not supported for this model.",
            "Unknown name thinking_level at generation_config.thinking_config",
            "thinkingBudget must be 512 or more",
        ] {
            let (refusals, request) = (Refusals::default(), request(vec![vec![text("hi")]]));
            let asked = || {
                let body = body(&request, "gemini-robotics-er-1.5-preview", &refusals);
                body["generationConfig"]["thinkingConfig"].is_object()
            };
            assert!(!refusals.learn(&refusal("odd"), &request) && asked());
            assert!(refusals.learn(&refusal(message), &request) && !asked());
            assert!(!refusals.learn(&refusal(message), &request), "it is sent again only once");
        }
    }

    #[test]
    fn names_that_the_api_would_refuse_are_changed() {
        let long = "x".repeat(99);
        for (name, sent) in [
            ("bash", "bash"),
            ("mcp__a.b:c-d", "mcp__a.b:c-d"),
            ("do it", "do_it"),
            ("7up", "_7up"),
            ("\u{e4}", "_"),
            ("", "_"),
            (&long, &"x".repeat(64)),
        ] {
            assert_eq!(function_name(name), sent);
        }
    }

    #[test]
    fn absent_parts_are_not_sent() {
        let body = sent(&request(vec![vec![text("hi")]]), "m");
        let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["generationConfig", "contents"]);
    }
}
