//! Tests of the history of a message.

use super::*;
use crate::view::testing::{record, team_folder};
use serde_json::json;

#[test]
fn each_step_has_the_line_that_proves_it() {
    let (_top, dir) = team_folder();
    let lead = AgentName::lead();
    let message = json!({"type":"message","from":"user","content":"hi","id":"user:1"});
    record(&dir.inbox(&lead), &json!({"from":"x"}));
    record(&dir.inbox(&lead), &message);
    let shown = |id: &str| {
        let steps = of(&dir, id).unwrap().steps.into_iter();
        steps.map(|step| (step.what, step.proof.unwrap())).collect::<Vec<_>>()
    };
    let steps = shown("user:1");
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0].0, steps[0].1.offset), (TraceEvent::Waits, 13));
    let taken_in = json!({"kind":"mail","at":1,"gen":"1-0123abcd","offset":13,"message":message});
    record(&dir.transcript(&lead), &taken_in);
    let steps = shown("user:1");
    let (what, proof) = &steps[0];
    assert_eq!((steps.len(), what.stage()), (2, Some(Stage::Acknowledged)));
    assert_eq!(proof.claim, Some(("1-0123abcd".into(), 13)));
    assert_eq!((dir.root().join(&proof.file), proof.offset), (dir.transcript(&lead), 0));
    assert!(shown("user:2").is_empty());
}

#[test]
fn each_copy_of_a_broadcast_is_traced_to_the_call() {
    let (_top, dir) = team_folder();
    let input = json!({"content": "all hear"});
    let call = json!({"type":"tool_use","id":"t1","name":"broadcast","input":input});
    let reply = json!({"kind":"assistant","at":1,"blocks":[call],"stop_reason":"tool_use",
        "usage":{},"model":"m"});
    record(&dir.transcript(&AgentName::lead()), &reply);
    for id in ["lead:t1:bob", "lead:t1"] {
        let steps = of(&dir, id).unwrap().steps;
        let events: Vec<_> = steps.iter().map(|step| step.what).collect();
        assert_eq!(events, [TraceEvent::Called]);
        assert_eq!(steps[0].text, "broadcast");
    }
    assert!(of(&dir, "lead:t").unwrap().steps.is_empty());
    assert!(of(&dir, "bob:t1").unwrap().steps.is_empty(), "the call is the lead's");
}

#[test]
fn an_older_conversation_is_read_only_if_no_other_file_has_the_message() {
    let (_top, dir) = team_folder();
    let lead = AgentName::lead();
    // Its UUID was made in 2023.
    let message = json!({"type":"message","id":"user:01890a5d-ac96-774b-bcce-b302099a8057"});
    let id = word(message.as_object().unwrap(), "id").unwrap();
    let archived = dir.archive().join("lead-000001").with_extension("jsonl");
    let taken_in = json!({"kind":"mail","at":1,"gen":"1-a","offset":0,"message":message});
    std::fs::create_dir_all(dir.archive()).unwrap();
    record(&archived, &taken_in);
    record(&dir.transcript(&lead), &json!({"kind":"session","at":2}));
    let events = || of(&dir, id).unwrap().steps.iter().map(|it| it.what).collect::<Vec<_>>();
    let age = |years: u64| {
        let at = std::time::UNIX_EPOCH + Duration::from_secs(years * 31_557_600);
        std::fs::File::options().append(true).open(&archived).unwrap().set_modified(at).unwrap();
    };
    age(40);
    assert_eq!(events(), [TraceEvent::TakenIn], "the clock was set back by decades");
    record(&dir.inbox(&lead), &message);
    assert_eq!(events(), [TraceEvent::Waits], "it is not read");
    age(60);
    assert_eq!(events(), [TraceEvent::TakenIn, TraceEvent::Waits]);
}

#[test]
fn an_id_is_exact_or_a_unique_prefix() {
    let (_top, dir) = team_folder();
    let lead = AgentName::lead();
    for id in ["user:a-1", "user:a-10", "user:b"] {
        record(&dir.inbox(&lead), &json!({"type":"message","content":id,"id":id}));
    }
    let raw = json!({"id":"user:dead"}).to_string();
    record(&dir.dead(&lead), &json!({"reason":"no content","at":1,"raw":raw}));
    for text in ["user:a-1 was kept", "user:a-10 was kept", "x"] {
        record(&dir.log(&lead), &json!({"timestamp":"2020-01-01T00:00:00Z","message":text}));
    }
    let call = |id: &str, name: &str| json!({"type":"tool_use","id":id,"name":name,"input":{}});
    let reply = json!({"kind":"assistant","at":1,"stop_reason":"tool_use","usage":{},"model":"m",
        "blocks":[call("t1", "broadcast"), call("t2", "list_tasks")]});
    record(&dir.transcript(&lead), &reply);
    for (given, wanted) in [
        ("user:a-1", &["user:a-1"][..]),
        ("user:a", &["user:a-1", "user:a-10"]),
        ("user:b", &["user:b"]),
        ("user:d", &["user:dead"]),
        ("us", &["user:a-1", "user:a-10", "user:b", "user:dead"]),
        ("le", &["lead:t1"]),
        ("a-", &["user:a-1", "user:a-10"]),
        ("a-1", &["user:a-1"]),
        ("t", &["lead:t1"]),
        ("x", &[]),
    ] {
        assert_eq!(ids(&dir, given).unwrap(), wanted, "{given}");
    }
    let steps = of(&dir, "user:a-1").unwrap().steps;
    let texts: Vec<_> = steps.iter().map(|step| (step.what, step.text.as_str())).collect();
    assert_eq!(
        texts,
        [(TraceEvent::Logged, "user:a-1 was kept"), (TraceEvent::Waits, "")],
        "nothing of user:a-10"
    );
    assert!(names_id("sent user:b: done", "user:b") && !names_id("user:b:bob", "user:b"));
}

#[test]
fn the_time_of_a_call_tells_which_older_conversations_may_have_its_message() {
    let (_top, dir) = team_folder();
    let (alice, lead) = (AgentName::member("alice").unwrap(), AgentName::lead());
    let call = json!({"type":"tool_use","id":"t1","name":"send_message","input":{}});
    let reply = |blocks: Value| {
        json!({"kind":"assistant","at":1_700_000_000,"blocks":blocks,
        "stop_reason":"tool_use","usage":{},"model":"m"})
    };
    record(&dir.transcript(&lead), &reply(json!([call])));
    let message = json!({"type":"message","id":"lead:t1"});
    let taken_in =
        json!({"kind":"mail","at":1_700_000_001,"gen":"1-a","offset":0,"message":message});
    record(&dir.transcript(&alice), &taken_in);
    std::fs::create_dir_all(dir.archive()).unwrap();
    let archived = dir.archive().join("alice-000001").with_extension("jsonl");
    // She goes on in another conversation than the one that took the message in.
    record(&archived, &reply(json!([{"type":"text","text":"lead:t1"}])));
    record(&archived, &taken_in);
    record(&archived, &reply(json!([{"type":"text","text":"seen"}])));
    let events = || of(&dir, "lead:t1").unwrap().steps.iter().map(|it| it.what).collect::<Vec<_>>();
    let (called, taken, read) = (TraceEvent::Called, TraceEvent::TakenIn, TraceEvent::Read);
    assert_eq!(events(), [called, read, taken], "the message is in both, once in the history");
    let file = std::fs::File::options().append(true).open(&archived).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_600_000_000)).unwrap();
    assert_eq!(events(), [called, taken], "the archive ended before the call");
}
