//! Tests of the list of conversations and of their changes.

use super::*;
use crate::store::test_team;
use crate::wire::money::{Money, Price};
use serde_json::json;
use std::io::Write;

const NO_PRICE: PriceOf<'_> = &|_| None;

fn put(path: &Path, lines: &[Value]) {
    let mut file = fs::File::create(path).unwrap();
    for line in lines {
        writeln!(file, "{line}").unwrap();
    }
}

fn session(incarnation: &str) -> Value {
    json!({"kind": "session", "at": 1.0, "incarnation": incarnation, "pid": 1, "model": "m"})
}

fn user(at: u32, content: &str) -> Value {
    json!({"kind": "user", "at": at, "content": content})
}

fn reply(at: u32, text: &str) -> Value {
    json!({"kind": "assistant", "at": at, "blocks": [{"type": "text", "text": text}],
        "stop_reason": "end_turn", "model": "m", "usage": {"input_tokens": 10,
        "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}})
}

fn end(at: u32) -> Value {
    json!({"kind": "turn_end", "at": at, "outcome": "done", "rounds": 1})
}

fn mail(kind: &str, content: &str) -> Value {
    json!({"kind": "mail", "at": 2.0, "gen": "000000000001-00000000", "offset": 0, "message":
        {"type": kind, "from": "bob", "to": "lead", "content": content, "id": content,
        "reason": "available", "name": "zoe", "role": "coder", "prompt": "go"}})
}

#[test]
fn the_conversations_with_content_are_listed_with_their_facts() {
    let (_folder, dir) = test_team();
    let lead = AgentName::lead();
    let archived = |number: u32| dir.archive().join(format!("lead-{number:06}.jsonl"));
    let prompt =
        [session("incarnation-0000aaaa"), user(5, "\n  Write it \nwell"), reply(6, "ok"), end(7)];
    put(&archived(1), &prompt);
    put(&archived(2), &[session("incarnation-0000bbbb"), mail("idle_notification", "")]);
    put(&archived(3), &[session("incarnation-0000aabb"), mail("message", "hi"), reply(9, "ok")]);
    // A copy by hand, and a file that no process of this program began.
    put(&archived(4), &prompt);
    put(&dir.transcript(&lead), &[user(20, "hello"), json!("foreign")]);
    let price = |model: &str| {
        let money = Money::of_billionths(1_000_000);
        let price = Price { input: money, output: money, cache_read: None, cache_write: None };
        (model == "m").then_some(price)
    };
    let list = list(&dir, &lead, &price).unwrap();
    let shown = list.iter().map(|it| (it.id.as_str(), it.title.as_str(), it.is_last));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            ("lead", "hello", true),
            ("0000aabb", "bob: hi", false),
            ("0000aaaa", "Write it", false),
            ("0000aaaa-2", "Write it", false),
        ]
    );
    let first = &list[2];
    assert_eq!((first.began_at.as_secs(), first.last_used_at.as_secs()), (1.0, 7.0));
    assert_eq!((first.prompts, first.usage.turns, first.usage.tokens()), (1, 1, 15));
    assert!(first.is_exact && first.usage.cost.unwrap().billionths() == 15, "{first:?}");
    let found = |id: &str| find(&dir, &lead, id).map(|it| it.path);
    for (id, file) in [("0000aab", 3), ("0000aaaa", 1), ("0000aaaa-2", 4)] {
        assert_eq!(found(id).unwrap(), archived(file), "{id}");
    }
    assert_eq!(found("incarnation-0000aaaa").unwrap(), archived(1));
    assert!(matches!(found("0000"), Err(NotFound::Ambiguous(ids)) if ids.len() == 3));
    assert!(["", "f"].iter().all(|id| matches!(found(id), Err(NotFound::None))));
    assert_eq!(last(&dir, &lead).unwrap().unwrap().id, "lead");
    fs::remove_file(dir.transcript(&lead)).unwrap();
    assert_eq!(last(&dir, &lead).unwrap().unwrap().path, archived(4));
}

#[test]
fn a_large_conversation_is_estimated_and_its_ends_are_exact() {
    let (_folder, dir) = test_team();
    let lead = AgentName::lead();
    let mut lines = vec![session("incarnation-0000cccc")];
    for turn in 0..4000 {
        lines.extend([
            user(turn, &format!("prompt {turn}")),
            reply(turn, &"x".repeat(300)),
            end(turn),
        ]);
    }
    put(&dir.transcript(&lead), &lines);
    let listed = list(&dir, &lead, NO_PRICE).unwrap().remove(0);
    assert!(listed.bytes > WHOLE_BYTES && !listed.is_exact, "{listed:?}");
    assert_eq!((listed.title.as_str(), listed.last_used_at.as_secs()), ("prompt 0", 3999.0));
    assert!(listed.usage.turns.abs_diff(4000) < 100, "{listed:?}");
    assert!(listed.usage.tokens().abs_diff(60_000) < 1500, "{listed:?}");
    let path = dir.transcript(&lead);
    let exact = exactly(&dir, &lead, &path, NO_PRICE).unwrap().unwrap();
    assert_eq!((exact.prompts, exact.usage.turns, exact.usage.tokens()), (4000, 4000, 60_000));
}

#[test]
fn a_conversation_that_comes_back_replaces_none() {
    let (_folder, dir) = test_team();
    let lead = AgentName::lead();
    let archived = dir.archive().join("lead-000003.jsonl");
    let current = dir.transcript(&lead);
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    put(&archived, &[user(1, "one")]);
    put(&current, &[user(2, "two")]);
    bring_back(&dir, &lead, &archived, Fsync::Always).unwrap();
    assert!(text(&current).contains("one"));
    assert!(text(&dir.archive().join("lead-000004.jsonl")).contains("two"));
    // One that is not there changes nothing.
    bring_back(&dir, &lead, &archived, Fsync::Always).unwrap_err();
    assert!(text(&current).contains("one"));
    // An empty one is removed, unless it has taken in mail.
    let files = || fs::read_dir(dir.archive()).unwrap().count();
    for (lines, kept) in [
        (vec![session("x")], 0),
        (vec![session("x"), mail("idle_notification", "")], 1),
        (vec![session("x"), user(1, "one")], 1),
    ] {
        put(&current, &lines);
        let before = files();
        put_away(&dir, &lead, Fsync::Always).unwrap();
        assert_eq!((files() - before, current.exists()), (kept, false), "{lines:?}");
    }
}

#[test]
fn the_teammates_of_a_conversation_are_those_that_it_spawned() {
    let (_folder, dir) = test_team();
    let path = dir.transcript(&AgentName::lead());
    let mut call = reply(1, "");
    call["blocks"] =
        json!([{"type": "tool_use", "id": "t", "name": "spawn", "input": {"name": "amy"}}]);
    put(&path, &[call, mail("spawn_request", ""), mail("message", "")]);
    let spawned = |tool: &str, input: &Value| {
        (tool == "spawn").then(|| input["name"].as_str().map(ToOwned::to_owned))?
    };
    let names = teammates(&path, spawned).unwrap();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["amy", "zoe"]);
}
