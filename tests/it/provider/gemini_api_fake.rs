//! The fake of the Gemini API refuses what the real API refuses.

use crate::support::fake::{Fake, Reply, post_to};
use serde_json::{Value, json};

const STREAM: &str = "/v1beta/models/gemini-3-fake:streamGenerateContent?alt=sse";
const WHOLE: &str = "/v1beta/models/gemini-3-fake:generateContent";
const OLD: &str = "/v1beta/models/gemini-2.5-pro:generateContent";

const HEADERS: [(&str, &str); 3] =
    [("content-type", "application/json"), ("x-goog-api-key", "k"), ("connection", "close")];

const NO_SIGNATURE: &str = "skip_thought_signature_validator";

fn user() -> Value {
    json!({"role": "user", "parts": [{"text": "hi"}]})
}

fn model(parts: &Value) -> Value {
    json!({"role": "model", "parts": parts})
}

/// A call with the signature for calls of other models.
fn call(id: &str) -> Value {
    json!({"functionCall": {"id": id, "name": "n", "args": {}}, "thoughtSignature": NO_SIGNATURE})
}

fn responses(ids: &[&str]) -> Value {
    let part = |id: &&str| json!({"functionResponse": {"id": id, "name": "n", "response": {"output": "x"}}});
    json!({"role": "user", "parts": ids.iter().map(part).collect::<Vec<_>>()})
}

fn body(change: &Value) -> Value {
    let mut body = json!({"contents": [user()]});
    body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    body
}

fn contents(contents: &Value) -> Value {
    json!({ "contents": contents })
}

fn tools(function: &Value) -> Value {
    json!({"tools": [{"functionDeclarations": [function]}]})
}

fn thinking(config: &Value) -> Value {
    json!({"generationConfig": {"thinkingConfig": config}})
}

#[test]
fn valid_requests_are_answered() {
    let fake = Fake::start(|_| Reply::text("ok"));
    let function =
        json!({"name": "n", "description": "d", "parametersJsonSchema": {"type": "object"}});
    let calls =
        model(&json!([{"text": "x"}, call("a"), {"functionCall": {"id": "b", "name": "n"}}]));
    for change in [
        json!({}),
        contents(&json!([user(), calls, responses(&["a", "b"])])),
        contents(&json!([
            user(),
            calls,
            responses(&["a", "b"]),
            user(),
            model(&json!([{"text": "y"}])),
            user()
        ])),
        tools(&function),
        thinking(&json!({"thinkingLevel": "LOW", "includeThoughts": true})),
        json!({"systemInstruction": {"parts": [{"text": "s"}]}, "tools": [{"functionDeclarations": [function]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["n"]}}}),
    ] {
        for target in [STREAM, WHOLE] {
            let (status, said) = post_to(&fake, target, &HEADERS, &body(&change));
            assert!(status == 200 && said.contains("\"text\":\"ok\""), "{change}: {said}");
        }
    }
}

fn assert_refused(fake: &Fake, target: &str, change: &Value, complaint: &str) {
    let (status, said) = post_to(fake, target, &HEADERS, &body(change));
    assert!(status == 400 && said.contains("INVALID_ARGUMENT"), "{complaint}: {said}");
    let violations = fake.take_violations();
    assert!(violations[0].contains(complaint), "{complaint}: {violations:?}");
    assert_eq!(violations.len(), 1, "one defect: {violations:?}");
}

#[test]
fn each_defect_of_contents_is_refused() {
    let fake = Fake::start(|_| Reply::text("ok"));
    let asked = || model(&json!([call("a")]));
    let two = || model(&json!([call("a"), {"functionCall": {"id": "b", "name": "n"}}]));
    let part = |part: Value| json!({"role": "user", "parts": [part]});
    let mixed = json!({"role": "user", "parts": [responses(&["a"])["parts"][0], {"text": "mail"}]});
    let no_object = json!({"role": "user", "parts": [
        {"functionResponse": {"id": "a", "name": "n", "response": "x"}}]});
    let renamed = json!({"role": "user", "parts": [
        {"functionResponse": {"id": "a", "name": "m", "response": {}}}]});
    let table = [
        (json!([]), "contents is not specified"),
        (json!([model(&json!([{"text": "x"}])), user()]), "begins with the user"),
        (json!([user(), user()]), "two contents of user"),
        (json!([user(), model(&json!([{"text": "x"}]))]), "ending with a model turn"),
        (json!([user(), {"role": "assistant", "parts": [{"text": "x"}]}, user()]), "valid role"),
        (json!([{"role": "user", "parts": []}]), "must not be empty"),
        (json!([part(json!({}))]), "must have one initialized field"),
        (json!([part(json!({"text": "a", "inlineData": {}}))]), "must have one initialized field"),
        (json!([part(json!({"text": " "}))]), "empty text"),
        (json!([part(json!({"text": "a", "cacheControl": {}}))]), "Unknown name"),
        (json!([part(json!({"text": "a", "thought": true}))]), "a thought of the user"),
        (json!([part(json!({"functionCall": {"id": "a", "name": "n"}}))]), "a call of user"),
        (json!([user(), asked(), user()]), "number of function response parts"),
        (json!([user(), two(), responses(&["a"])]), "number of function response parts"),
        (json!([user(), two(), responses(&["a", "b", "c"])]), "number of function response parts"),
        (json!([user(), two(), responses(&["a", "a"])]), "does not answer the call"),
        (json!([user(), asked(), renamed]), "does not answer the call"),
        (json!([user(), asked(), mixed]), "has other parts"),
        (json!([user(), asked(), no_object]), "response: no object"),
        (
            json!([user(), model(&json!([{"text": "x"}])), responses(&["a"])]),
            "after a function call turn",
        ),
        (json!([user(), asked(), responses(&["a"]), asked(), responses(&["a"])]), "the id a twice"),
        (
            json!([user(), model(&json!([{"functionCall": {"name": "n"}}])), {"role": "user", "parts": [
                {"functionResponse": {"name": "n", "response": {}}}]}]),
            "missing a thought_signature",
        ),
        (
            json!([
                user(),
                model(&json!([{"functionCall": {"id": "a", "name": "n", "args": []},
                "thoughtSignature": NO_SIGNATURE}])),
                responses(&["a"])
            ]),
            "args: no object",
        ),
        (
            json!([
                user(),
                model(&json!([{"text": "x", "thoughtSignature": "not base 64!"}])),
                user()
            ]),
            "no base64",
        ),
    ];
    for (changed, complaint) in table {
        assert_refused(&fake, WHOLE, &contents(&changed), complaint);
    }
    assert!(fake.requests().is_empty());
}

#[test]
fn each_defect_beside_the_contents_is_refused() {
    let fake = Fake::start(|_| Reply::text("ok"));
    let function = |change: Value| {
        let mut function = json!({"name": "n", "description": "d"});
        function.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        tools(&function)
    };
    let twice = json!({"tools": [{"functionDeclarations": [
        {"name": "n", "description": "d"}, {"name": "n", "description": "d"}]}]});
    let calling = |config: Value| {
        let mut change = function(json!({}));
        change["toolConfig"] = json!({ "functionCallingConfig": config });
        change
    };
    let table = [
        (WHOLE, json!({"model": "m"}), "Unknown name \"model\""),
        (WHOLE, json!({"system_prompt": 1}), "Unknown name"),
        (WHOLE, json!({"systemInstruction": {"parts": []}}), "no parts"),
        (WHOLE, json!({"systemInstruction": {"parts": [{"text": " "}]}}), "empty text"),
        (WHOLE, json!({"tools": [{"functionDeclarations": []}]}), "no function declarations"),
        (
            WHOLE,
            json!({"tools": [{"functionDeclarations": [{"name": "n", "description": "d"}], "functions": []}]}),
            "Unknown name \"functions\"",
        ),
        (WHOLE, twice, "Duplicate function declaration"),
        (WHOLE, function(json!({"name": "7 up"})), "Invalid function name"),
        (WHOLE, function(json!({"name": "x".repeat(65)})), "Invalid function name"),
        (WHOLE, function(json!({"description": ""})), "the description"),
        (WHOLE, function(json!({"input_schema": {}})), "Unknown name"),
        (WHOLE, function(json!({"parametersJsonSchema": {"type": "array"}})), "is no object"),
        (
            WHOLE,
            function(
                json!({"parameters": {"type": "OBJECT"}, "parametersJsonSchema": {"type": "object"}}),
            ),
            "two schemas",
        ),
        (
            WHOLE,
            json!({"toolConfig": {"functionCallingConfig": {}}}),
            "without function_declarations",
        ),
        (WHOLE, calling(json!({"mode": "MAYBE"})), "the mode MAYBE"),
        (WHOLE, calling(json!({"mode": "ANY", "allowedFunctionNames": ["m"]})), "not declared"),
        (WHOLE, calling(json!({"allowedFunctionNames": ["n"]})), "need the mode ANY"),
        (WHOLE, json!({"generationConfig": {"maxOutputTokens": 0}}), "must be positive"),
        (WHOLE, json!({"generationConfig": {"max_tokens": 9}}), "Unknown name"),
        (WHOLE, thinking(&json!({"thinkingLevel": "LOW", "thinkingBudget": 9})), "only one of"),
        (WHOLE, thinking(&json!({"thinkingLevel": "OFF"})), "thinking_level"),
        (OLD, thinking(&json!({"thinkingLevel": "LOW"})), "level is not supported"),
        (OLD, thinking(&json!({"thinkingBudget": 0})), "Budget 0 is invalid"),
        (
            WHOLE,
            thinking(&json!({"thinkingBudget": 0, "includeThoughts": true})),
            "only enabled when thinking is enabled",
        ),
        (
            "/v1beta/models/gemini-2.0-flash:generateContent",
            thinking(&json!({"includeThoughts": true})),
            "not enabled for this model",
        ),
        ("/v1beta/models/gemini-3-fake:streamGenerateContent", json!({}), "alt=sse"),
        ("/v1beta/models/gemini-3-fake:generateContent?key=k", json!({}), "the key is in the URL"),
        ("/v1beta/models/gemini-3-fake:countTokens", json!({}), "the method countTokens"),
    ];
    for (target, change, complaint) in table {
        assert_refused(&fake, target, &change, complaint);
    }
    for (missing, header) in HEADERS.iter().enumerate().take(2) {
        let mut fewer = HEADERS.to_vec();
        fewer.remove(missing);
        assert_eq!(post_to(&fake, WHOLE, &fewer, &body(&json!({}))).0, 400);
        assert_eq!(fake.take_violations().len(), 1, "without {header:?}");
    }
}

/// A signature must come back as it was sent, with its call.
#[test]
fn a_signature_that_is_lost_changed_or_moved_is_refused() {
    let reply =
        || Reply::message().tool("a", "n", &json!({"x": 1})).tool("b", "n", &json!({"y": 2}));
    let fake = Fake::start(move |view| if view.turn() == 0 { reply() } else { Reply::text("ok") });
    let (status, said) = post_to(&fake, WHOLE, &HEADERS, &body(&json!({})));
    let said = said.split("\r\n").find(|line| line.starts_with('{')).unwrap_or(&said).to_owned();
    let said: Value = serde_json::from_str(&said).unwrap();
    let parts = said["candidates"][0]["content"]["parts"].clone();
    assert_eq!((status, parts.as_array().unwrap().len()), (200, 2));
    assert!(parts[1]["thoughtSignature"].is_null(), "only the first call has one");
    let next = |parts: &Value| contents(&json!([user(), model(parts), responses(&["a", "b"])]));
    assert_eq!(post_to(&fake, WHOLE, &HEADERS, &body(&next(&parts))).0, 200);
    // The alphabet for URLs is the same signature.
    let mut in_url = parts.clone();
    let signature = in_url[0]["thoughtSignature"].as_str().unwrap();
    in_url[0]["thoughtSignature"] = signature.replace('+', "-").replace('/', "_").into();
    assert_eq!(post_to(&fake, WHOLE, &HEADERS, &body(&next(&in_url))).0, 200);

    let mut missing = parts.clone();
    missing[0].as_object_mut().unwrap().remove("thoughtSignature");
    assert_refused(&fake, WHOLE, &next(&missing), "missing a thought_signature");
    let mut replaced = parts.clone();
    replaced[0]["thoughtSignature"] = NO_SIGNATURE.into();
    assert_refused(&fake, WHOLE, &next(&replaced), "is lost");
    let mut changed = parts.clone();
    changed[0]["thoughtSignature"] = "c2lnbmF0dXJl".into();
    assert_refused(&fake, WHOLE, &next(&changed), "is changed");
    let mut other = parts.clone();
    other[0]["functionCall"]["args"] = json!({"x": 2});
    assert_refused(&fake, WHOLE, &next(&other), "is changed");
    // A signature of another server is refused without a violation: the client cannot know.
    let foreign =
        json!([{"functionCall": {"id": "z", "name": "n"}, "thoughtSignature": "Zm9yZWlnbg=="}]);
    let (status, said) = post_to(
        &fake,
        WHOLE,
        &HEADERS,
        &body(&contents(&json!([user(), model(&foreign), responses(&["z"])]))),
    );
    assert!(status == 400 && said.contains("Corrupted thought signature."), "{said}");
    assert_eq!((fake.take_stale(), fake.take_violations()), (1, vec![]));
}
