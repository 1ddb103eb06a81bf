//! What every reader understands, and what a writer makes.

use super::*;
use proptest::prelude::*;

fn read(line: &str) -> Result<Message, Malformed> {
    Message::read(&serde_json::from_str::<Map<String, Value>>(line).unwrap())
}

#[test]
fn plain_text_is_understood_as_every_other_kind_is() {
    for (line, body) in [
        (r#"{"type":"message","content":"x"}"#, Body::text()),
        (r#"{"type":"message","content":"x","summary":null}"#, Body::text()),
        (
            r#"{"type":"message","content":"x","summary":"s"}"#,
            Body::Message { summary: Some("s".into()) },
        ),
        (
            r#"{"type":"message","content":"x","summary":7}"#,
            Body::Unknown { kind: "message".into() },
        ),
        (r#"{"type":"broadcast","content":"x","summary":7}"#, Body::Broadcast {}),
    ] {
        assert_eq!(read(line).unwrap().body, body, "{line}");
        let object: Value = serde_json::from_str(line).unwrap();
        let understood = serde_json::from_value::<Body>(object).ok();
        assert!(understood.is_none_or(|understood| understood == body), "{line}");
    }
}

#[test]
fn what_is_read_as_plain_text_says_the_same_as_read_in_full() {
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

#[test]
fn the_line_is_the_object_however_it_is_written() {
    let correlation = Correlation { request_id: "r".into(), incarnation: "i".into() };
    let bodies = [
        Body::text(),
        Body::Broadcast {},
        Body::Message { summary: Some("s".into()) },
        Body::ShutdownResponse { approve: true, reason: None },
    ];
    for body in bodies {
        for correlation in [None, Some(correlation.clone())] {
            for extra in [Map::new(), Map::from_iter([("k".into(), 1.into())])] {
                let (from, to) = (AgentName::lead(), AgentName::user());
                let (id, content) = ("lead:1".into(), "\u{1}\"ä\n".into());
                let (timestamp, body, correlation) =
                    (1.5.into(), body.clone(), correlation.clone());
                let draft =
                    OutgoingMessage { id, from, to, content, timestamp, correlation, body, extra };
                assert_eq!(draft.line(), Value::Object(draft.object()).to_string() + "\n");
            }
        }
    }
}

#[test]
fn readers_accept_the_dialects_of_the_origins() {
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
}

#[test]
fn old_names_of_the_shutdown_answer_are_understood() {
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
fn what_cannot_be_a_message_says_why() {
    assert_eq!(read(r#"{"type":[1],"content":"x"}"#), Err(Malformed::NotText("type")));
    assert_eq!(read(r#"{"from":{"a":1},"content":"x"}"#), Err(Malformed::NotText("from")));
    assert_eq!(read(r#"{"from":"a"}"#), Err(Malformed::NoContent));
}

#[test]
fn a_written_line_has_the_fields_in_the_order_of_the_contract() {
    let draft = OutgoingMessage {
        id: "lead:7".into(),
        from: AgentName::lead(),
        to: AgentName::member("alice").unwrap(),
        content: "start\nnow".into(),
        timestamp: 1.5.into(),
        correlation: None,
        body: Body::text(),
        extra: Map::new(),
    };
    assert_eq!(
        draft.line(),
        "{\"type\":\"message\",\"from\":\"lead\",\"to\":\"alice\",\
         \"content\":\"start\\nnow\",\"timestamp\":1.5,\"id\":\"lead:7\"}\n"
    );
}

fn bodies() -> impl Strategy<Value = Body> {
    let maybe = proptest::option::of(any::<String>());
    let input = any::<i32>().prop_map(|n| serde_json::json!({ "n": n }));
    prop_oneof![
        maybe.clone().prop_map(|summary| Body::Message { summary }),
        Just(Body::Broadcast {}),
        Just(Body::Result { outcome: Outcome::Interrupted }),
        Just(Body::IdleNotification { reason: IdleReason::Failed }),
        (maybe.clone(), proptest::option::of((0.0..1e9).prop_map(WallTime::from_secs)))
            .prop_map(|(reason, deadline)| Body::ShutdownRequest { reason, deadline }),
        (any::<bool>(), maybe.clone())
            .prop_map(|(approve, reason)| Body::ShutdownResponse { approve, reason }),
        (any::<String>(), proptest::option::of(any::<String>()))
            .prop_map(|(plan, decider)| Body::PlanApprovalRequest { plan, decider }),
        (any::<bool>(), maybe.clone(), maybe.clone()).prop_map(|(approve, feedback, mode)| {
            Body::PlanApprovalResponse { approve, feedback, mode }
        }),
        (any::<String>(), input.clone(), any::<String>()).prop_map(|(tool, input, description)| {
            Body::PermissionRequest { tool, input, description }
        }),
        (any::<bool>(), maybe.clone(), proptest::option::of(input.clone())).prop_map(
            |(approve, reason, updated_input)| Body::PermissionResponse {
                approve,
                scope: Scope::Session,
                reason,
                updated_input
            }
        ),
        input.clone().prop_map(|rules| Body::PermissionUpdate { rules }),
        any::<String>().prop_map(|mode| Body::ModeSetRequest { mode }),
        (maybe.clone(), maybe.clone(), maybe.clone(), proptest::option::of(input)).prop_map(
            |(host, path, tool, input)| Body::SandboxPermissionRequest { host, path, tool, input }
        ),
        (any::<bool>(), maybe).prop_map(|(approve, reason)| Body::SandboxPermissionResponse {
            approve,
            scope: Scope::Always,
            reason
        }),
        any::<String>().prop_map(|text| Body::TaskAssignment {
            task_id: "1".into(),
            subject: text.clone(),
            description: text,
            assigned_by: "lead".into(),
            blocked_by: Vec::new(),
        }),
        any::<String>().prop_map(|exit| Body::TeammateTerminated {
            name: "bob".into(),
            cause: "crash".into(),
            exit
        }),
    ]
}

proptest! {
    #[test]
    fn every_type_survives_the_round_trip(body in bodies(), content in any::<String>()) {
        let draft = OutgoingMessage {
            id: "alice:1".into(),
            from: AgentName::member("alice").unwrap(),
            to: AgentName::lead(),
            content: content.clone(),
            timestamp: 1.25.into(),
            correlation: Some(Correlation { request_id: "r".into(), incarnation: "i".into() }),
            body: body.clone(),
            extra: Map::new(),
        };
        let line = draft.line();
        prop_assert_eq!(line.matches('\n').count(), 1);
        let message = read(line.trim_end()).unwrap();
        prop_assert!(Body::is_known_kind(body.kind()));
        prop_assert_eq!(message.body, body);
        prop_assert_eq!(message.content, content);
        prop_assert_eq!(message.request_id.as_deref(), Some("r"));
    }
}
