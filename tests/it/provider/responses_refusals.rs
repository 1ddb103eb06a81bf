//! The requests that the fake of the Responses API refuses, as the API does.

use crate::support::fake::{Fake, Reply, post_to};
use serde_json::{Value, json};

/// A reasoning item in the form in which the fake sends it.
fn thought() -> Value {
    json!({"id": "rs_0_0", "type": "reasoning", "encrypted_content": "gAAAA.rs_0_0.c2ln",
        "summary": [{"type": "summary_text", "text": "hm"}]})
}

/// A body of a request with these changes.
fn body(change: &Value) -> Value {
    let mut body = json!({"model": "m", "store": false, "input": "hi"});
    body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    body
}

/// Requests that the API refuses, and the reason of each.
fn wrong_requests() -> Vec<(Value, &'static str)> {
    let user = || json!({"role": "user", "content": "hi"});
    let call = json!({"type": "function_call", "call_id": "a", "name": "n", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "a", "output": ""});
    let thought = thought();
    let with = |item: &Value, key: &str, value: Value| {
        let mut item = item.clone();
        item[key] = value;
        item
    };
    let input = |items: &[&Value]| json!({"input": items});
    let part = |role: &str, kind: &str, key: &str| {
        let part = json!({"type": kind, key: "x"});
        json!({"input": [{"type": "message", "role": role, "content": [part]}]})
    };
    let tool = json!({"type": "function", "name": "n", "strict": false,
        "parameters": {"type": "object", "properties": {}}});
    let tools = |key: &str, value: Value| json!({"tools": [with(&tool, key, value)]});
    let of_chat = json!({"type": "function", "function": {"name": "n", "parameters": {}}});
    let item = json!({"type": "item_reference", "id": "rs_1"});
    let said = json!({"type": "message", "role": "assistant", "content": "x"});
    vec![
        (json!({"temperature": 1.0}), "Unknown parameter: 'temperature'"),
        (json!({"messages": [user()]}), "Unknown parameter: 'messages'"),
        (json!({"max_tokens": 5}), "Unknown parameter: 'max_tokens'"),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"model": ""}), "model: required"),
        (json!({"input": []}), "input: required"),
        (json!({"input": null}), "input: required"),
        (json!({"instructions": ["x"]}), "instructions: no text"),
        (json!({"stream": "yes"}), "stream: no boolean"),
        (json!({"store": 0}), "store: no boolean"),
        (json!({"stream_options": {"include_obfuscation": false}}), "only with a stream"),
        (json!({"max_output_tokens": 15}), "at least 16"),
        (json!({"include": ["reasoning"]}), "include"),
        (json!({"reasoning": {"effort": "off"}}), "reasoning.effort"),
        (json!({"reasoning": {"budget": 5}}), "'reasoning.budget'"),
        (json!({"reasoning": "low"}), "reasoning: no object"),
        (json!({"prompt_cache_key": "x".repeat(65)}), "64 characters"),
        (json!({"tools": [of_chat]}), "Missing required parameter: 'tools[0].name'"),
        (json!({"tools": [tool, tool]}), "twice"),
        (tools("name", json!("../n")), "tools[0].name"),
        (tools("type", json!("custom")), "only functions"),
        (tools("parameters", json!({"type": "object"})), "properties"),
        (tools("parameters", json!({"type": "array"})), "Invalid schema"),
        (
            tools("parameters", json!({"type": "object", "properties": {}, "anyOf": []})),
            "'anyOf' at the top level",
        ),
        (tools("strict", Value::Null), "additionalProperties"),
        (tools("input_schema", json!({})), "'tools[0].input_schema'"),
        (json!({"tool_choice": {"type": "function", "name": "x"}}), "tool_choice"),
        (input(&[&user(), &call]), "No tool output found for function call a"),
        (input(&[&user(), &output]), "No tool call found"),
        (input(&[&user(), &output, &call]), "No tool call found"),
        (input(&[&call, &output, &output]), "No tool call found"),
        (input(&[&call, &with(&output, "call_id", json!("b"))]), "No tool call found"),
        (input(&[&call, &output, &call, &output]), "the call a twice"),
        (input(&[&with(&call, "id", json!("a")), &output]), "begins with 'fc_'"),
        (input(&[&with(&call, "arguments", json!({})), &output]), "arguments"),
        (input(&[&call, &with(&output, "output", json!({"a": 1}))]), "output: a text"),
        (input(&[&call, &with(&output, "is_error", json!(true))]), "'input[1].is_error'"),
        (input(&[&thought, &user()]), "without its required following item"),
        (input(&[&user(), &thought]), "without its required following item"),
        (input(&[&thought, &output]), "without its required following item"),
        (input(&[&with(&thought, "encrypted_content", Value::Null), &said]), "not persisted"),
        (input(&[&with(&thought, "encrypted_content", json!("x")), &said]), "not be verified"),
        (input(&[&with(&thought, "id", json!("rs_0_1")), &said]), "not be verified"),
        (input(&[&with(&thought, "summary", json!("hm")), &said]), "summary: a list"),
        (input(&[&with(&thought, "status", Value::Null), &said]), "null"),
        (input(&[&thought, &thought, &said]), "Duplicate item"),
        (input(&[&with(&said, "id", json!("rs_1")), &user()]), "begins with 'msg_'"),
        (input(&[&with(&said, "phase", json!("end"))]), "phase"),
        (input(&[&with(&user(), "phase", json!("commentary"))]), "phase: not of user"),
        (input(&[&with(&user(), "role", json!("tool"))]), "role: 'tool'"),
        (input(&[&json!({"type": "thinking", "thinking": "hm"})]), "the type 'thinking'"),
        (input(&[&item]), "the type 'item_reference'"),
        (part("user", "output_text", "text"), "Invalid value: 'output_text'"),
        (part("user", "text", "text"), "Invalid value: 'text'"),
        (part("assistant", "input_text", "text"), "Invalid value: 'input_text'"),
        (part("user", "input_text", "content"), "a text that is not empty"),
        (json!({"input": [{"role": "user", "content": []}]}), "a text or a list of parts"),
    ]
}

#[test]
fn the_fake_refuses_what_the_api_refuses() {
    let fake = Fake::start(|_| Reply::text("ok"));
    let headers = [
        ("content-type", "application/json"),
        ("authorization", "Bearer k"),
        ("connection", "close"),
    ];
    let post = |headers: &[(&str, &str)], change: &Value| {
        post_to(&fake, "/v1/responses", headers, &body(change))
    };
    assert_eq!(post(&headers, &json!({})).0, 200);
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "n", "arguments": "{}", "status": "completed"});
    let good = json!({"input": [
        {"role": "user", "content": "hi"},
        thought(),
        call,
        {"type": "function_call_output", "call_id": "a", "output": "x"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
    ]});
    let (status, said) = post(&headers, &good);
    assert_eq!(status, 200, "{said}");
    assert_eq!(fake.take_violations(), [""; 0]);
    for (change, complaint) in wrong_requests() {
        assert_eq!(post(&headers, &change).0, 400, "{change} should give {complaint}");
        let found = fake.take_violations();
        assert!(found.iter().any(|it| it.contains(complaint)), "{change}: {complaint}: {found:?}");
    }
    for missing in 0..2 {
        let mut fewer = headers.to_vec();
        fewer.remove(missing);
        assert_eq!(post(&fewer, &json!({})).0, 400);
        assert!(!fake.take_violations().is_empty());
    }
}
