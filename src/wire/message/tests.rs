//! Tests of what readers accept and of the lines that writers produce.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn read(line: &str) -> Result<Message, Malformed> {
    Message::read(&serde_json::from_str::<Map<String, Value>>(line).unwrap())
}

#[test]
fn plain_text_is_parsed_like_every_other_kind() {
    let with_summary = Body::Message { summary: Some("s".into()) };
    for (kind, rest, body) in [
        ("message", "", Body::text()),
        ("message", r#","summary":null"#, Body::text()),
        ("message", r#","summary":"s""#, with_summary),
        ("message", r#","summary":7"#, Body::Unknown { kind: "message".into() }),
        ("broadcast", r#","summary":7"#, Body::Broadcast {}),
    ] {
        let line = format!(r#"{{"type":"{kind}","content":"x"{rest}}}"#);
        assert_eq!(read(&line).unwrap().body, body, "{line}");
        let understood = serde_json::from_str::<Body>(&line).ok();
        assert!(understood.is_none_or(|understood| understood == body), "{line}");
    }
}

#[test]
fn the_plain_reader_agrees_with_the_full_reader() {
    let plain = [
        r#"{"type":"message","from":"a","to":"b","content":"x","timestamp":1.5,"id":"a:1"}"#,
        r#" { "content" : "\"\u00e9\ud83d\ude00\n" , "from":"a","type":"broadcast" } "#,
        r#"{"type":"message","from":"a","content":"","timestamp":7,"id":null,"request_id":"r"}"#,
        r#"{"type":"message","from":"a","content":"x","incarnation":"i","to":null}"#,
    ];
    for line in plain {
        assert_eq!(Message::read_plain(line), Some(read(line).unwrap()), "{line}");
    }
    let others = [
        r#"{"type":"message","from":"a","content":"x","summary":"s"}"#,
        r#"{"type":"message","from":"a","content":"x","ts":1}"#,
        r#"{"type":"message","from":"a","content":"x","requestId":"r"}"#,
        r#"{"type":"message","from":"a","content":"x","content":"y"}"#,
        r#"{"type":"message","from":"a","content":7}"#,
        r#"{"type":"message","from":"a","content":"x","id":7}"#,
        r#"{"type":"result","from":"a","content":"x"}"#,
        r#"{"type":"message","content":"x"}"#,
        r#"["message","a","b","x"]"#,
        "{",
    ];
    for line in others {
        assert_eq!(Message::read_plain(line), None, "{line}");
    }
}

fn outgoing(body: Body) -> OutgoingMessage {
    let (from, to) = (AgentName::lead(), AgentName::member("alice").unwrap());
    let (id, content) = ("lead:7".into(), "start\nnow \u{1}\"ä".into());
    let (timestamp, correlation, extra) = (1.5.into(), None, Map::new());
    OutgoingMessage { body, from, to, content, timestamp, id, correlation, extra }
}

fn bound() -> Correlation {
    Correlation { request_id: "r".into(), incarnation: "i".into() }
}

#[test]
fn the_line_is_the_object_however_it_is_written() {
    let bodies = [
        Body::text(),
        Body::Broadcast {},
        Body::Message { summary: Some("s".into()) },
        Body::ShutdownResponse { approve: true, reason: None },
        Body::Unknown { kind: "poke".into() },
    ];
    for body in bodies {
        for correlation in [None, Some(bound())] {
            for extra in [Map::new(), Map::from_iter([("k".into(), 1.into())])] {
                let correlation = correlation.clone();
                let message = OutgoingMessage { correlation, extra, ..outgoing(body.clone()) };
                let object = Value::Object(message.object().unwrap()).to_string();
                assert_eq!(message.line().unwrap(), object + "\n");
            }
        }
    }
}

#[test]
fn readers_accept_older_forms_of_messages() {
    let cases = [
        (r#"{"from":"user","content":"hi"}"#, "user", "hi", "message"),
        (r#"{"content":"hi"}"#, "unknown", "hi", "message"),
        (r#"{"type":"message","from":"a","text":"hi","ts":12}"#, "a", "hi", "message"),
        (r#"{"type":"poke","from":"a","content":"hi","n":1}"#, "a", "hi", "poke"),
        (r#"{"type":"result","from":"a","content":"hi","outcome":"odd"}"#, "a", "hi", "result"),
        (r#"{"type":"message","from":"a","content":{"k":1}}"#, "a", r#"{"k":1}"#, "message"),
    ];
    for (line, from, content, kind) in cases {
        let message = read(line).unwrap();
        let seen = (message.from.as_str(), message.content.as_str(), message.body.kind());
        assert_eq!(seen, (from, content, kind), "{line}");
    }
    assert_eq!(read(r#"{"content":"x","ts":12}"#).unwrap().timestamp, Some(12.0.into()));
    // The old names of the shutdown answer.
    for (line, approve) in [
        (r#"{"type":"shutdown_approved","from":"a","requestId":"r1"}"#, true),
        (r#"{"type":"shutdown_rejected","from":"a","request_id":"r1"}"#, false),
        (r#"{"type":"shutdown_response","from":"a","requestId":"r1","approved":true}"#, true),
    ] {
        let message = read(line).unwrap();
        assert_eq!(message.request_id.as_deref(), Some("r1"));
        assert_eq!(message.body, Body::ShutdownResponse { approve, reason: None });
    }
}

#[test]
fn the_name_of_another_program_for_a_permission_update_is_understood() {
    let rules = json!({ "allow": ["bash(ls)"] });
    let line = |kind: &str| json!({ "type": kind, "from": "lead", "rules": rules }).to_string();
    for kind in ["permission_update", "team_permission_update"] {
        let body = read(&line(kind)).unwrap().body;
        assert_eq!(
            body,
            Body::PermissionUpdate { rules: rules.clone(), removed: None, revoked: None }
        );
        assert!(body.is_control());
    }
    // Without the field it is data, as every message whose fields do not fit.
    let body = read(r#"{"type":"team_permission_update","from":"a"}"#).unwrap().body;
    assert_eq!(body, Body::Unknown { kind: "team_permission_update".into() });
}

#[test]
fn a_line_that_is_no_message_has_an_error() {
    assert_eq!(read(r#"{"type":[1],"content":"x"}"#), Err(Malformed::NotText("type")));
    assert_eq!(read(r#"{"from":{"a":1},"content":"x"}"#), Err(Malformed::NotText("from")));
    assert_eq!(read(r#"{"from":"a"}"#), Err(Malformed::NoContent));
}

#[test]
fn a_written_line_has_the_fields_in_the_order_of_the_contract() {
    let begin = r#"{"type":"message","from":"lead","to":"alice","content":"start\nnow \u0001\"ä","timestamp":1.5,"id":"lead:7""#;
    assert_eq!(outgoing(Body::text()).line().unwrap(), format!("{begin}}}\n"));
    let extra = Map::from_iter([("k".into(), 1.into()), ("id".into(), "forged".into())]);
    let body = Body::Message { summary: Some("s".into()) };
    let all = OutgoingMessage { correlation: Some(bound()), extra, ..outgoing(body) };
    let end = r#","request_id":"r","incarnation":"i","summary":"s","k":1}"#;
    assert_eq!(all.line().unwrap(), format!("{begin}{end}\n"));
}

/// Returns a body of every kind, with `text` in text fields and `maybe` in optional ones.
fn bodies(text: &str, maybe: Option<&str>) -> Vec<Body> {
    let input = json!({ "text": text });
    let maybe_input = maybe.map(|text| json!([text]));
    let deadline = maybe.map(|_| 1.5);
    let bodies = json!([
        { "type": "message", "summary": maybe },
        { "type": "broadcast" },
        { "type": "result", "outcome": "interrupted" },
        { "type": "idle_notification", "reason": "failed" },
        { "type": "shutdown_request", "reason": maybe, "deadline": deadline },
        { "type": "shutdown_response", "approve": maybe.is_some(), "reason": maybe },
        { "type": "interrupt_request", "reason": maybe },
        { "type": "plan_approval_request", "plan": text, "decider": maybe },
        { "type": "plan_approval_response", "approve": true, "feedback": maybe, "mode": maybe },
        { "type": "permission_request", "tool": text, "input": input, "description": text },
        { "type": "permission_response", "approve": false, "scope": "session", "reason": maybe,
            "decider": maybe, "rule_scope": maybe, "updated_input": maybe_input },
        { "type": "permission_update", "rules": input, "removed": maybe_input, "revoked": maybe.map(|_| [7]) },
        { "type": "mode_set_request", "mode": text },
        { "type": "sandbox_permission_request", "host": maybe, "path": maybe, "tool": maybe,
            "input": maybe_input },
        { "type": "sandbox_permission_response", "approve": true, "scope": "always", "reason": maybe,
            "decider": maybe, "rule_scope": maybe, "updated_input": maybe_input },
        { "type": "task_assignment", "task_id": "1", "subject": text, "description": text,
            "assigned_by": "lead", "blocked_by": maybe.into_iter().collect::<Vec<_>>() },
        { "type": "spawn_request", "name": "bob", "role": text, "prompt": text, "model": maybe,
            "mode": maybe },
        { "type": "spawn_response", "approve": maybe.is_some(), "reason": maybe },
        { "type": "teammate_terminated", "name": "bob", "cause": "crash", "exit": text },
    ]);
    serde_json::from_value(bodies).unwrap()
}

proptest! {
    #[test]
    fn every_type_survives_the_round_trip(content: String, text: String, maybe: Option<String>) {
        let bodies = bodies(&text, maybe.as_deref());
        prop_assert_eq!(bodies.iter().map(Body::kind).collect::<Vec<_>>(), KINDS);
        for body in bodies {
            let (correlation, content) = (Some(bound()), content.clone());
            let sent = OutgoingMessage { content, correlation, ..outgoing(body) };
            let line = sent.line().unwrap();
            prop_assert_eq!(line.matches('\n').count(), 1);
            let message = read(line.trim_end()).unwrap();
            prop_assert_eq!((message.body, message.content), (sent.body, sent.content));
            prop_assert_eq!(message.request_id.as_deref(), Some("r"));
        }
    }

    #[test]
    fn a_plain_line_is_as_the_serializer_writes_it(
        content: String, id: String, is_bound: bool, is_broadcast: bool, seconds in 0_u32.., nanos in 0_u32..1_000_000_000,
    ) {
        let body = if is_broadcast { Body::Broadcast {} } else { Body::text() };
        let timestamp = serde_json::from_str(&format!("{seconds}.{nanos:09}")).unwrap();
        let correlation = is_bound.then(|| Correlation { request_id: id.clone(), incarnation: content.clone() });
        let sent = OutgoingMessage { content, timestamp, id, correlation, ..outgoing(body) };
        prop_assert_eq!(sent.line().unwrap(), serde_json::to_string(&sent).unwrap() + "\n");
    }
}
