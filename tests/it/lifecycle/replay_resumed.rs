//! `team replay` of a team that was resumed: each run of the lead is played by a process of its own, which ends as the
//! recorded one did.

use super::replay::{alike, count, lines, replay, small_record};
use crate::support::child_process::write;
use crate::support::harness::{SHORTEST_DEADLINE, Team};
use crate::support::scripts::{bash, calls, headless, says, script, spawn, wait_tool};
use serde_json::{Value, json};
use std::fs::{self, create_dir};
use std::process::Stdio;

/// A delay that no test waits for.
const FOREVER_MS: u64 = 600_000;

fn entries(lines: &[Value], kind: &str) -> usize {
    lines.iter().filter(|line| line["kind"] == kind).count()
}

/// Plays the record twice. Asserts that all of it is played, without a difference and with these processes of each member.
fn plays_twice(team: &Team, args: &[&str], sessions: &[(&str, usize)]) {
    for into in ["first", "second"] {
        let outcome = alike(&replay(team, into, args));
        assert!(outcome["cut"].is_null(), "{outcome:#}");
        for (name, sessions) in sessions {
            let new = lines(team, into, name);
            assert_eq!(entries(&new, "session"), *sessions, "{name}: {outcome:#}");
            let recorded = team.lines(&format!("transcript/{name}.jsonl"));
            for kind in ["assistant", "mail", "turn_end"] {
                assert_eq!(entries(&new, kind), entries(&recorded, kind), "{kind} of {name}");
            }
        }
    }
    team.wait_no_process();
}

#[test]
fn a_team_that_ended_and_was_resumed_plays_again_twice() {
    let team = Team::new();
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "one"),
        says("lead", "two"),
        calls("lead", &[("send_message", json!({ "to": "alice", "content": "again" }))]),
        says("lead", "three"),
        says("lead", "four"),
        calls("alice", &[bash("echo made >> made.txt")]),
        says("alice", "hello"),
        calls("alice", &[bash("cat made.txt")]),
        says("alice", "hello again"),
    ];
    let model = script(&team, &replies);
    headless(&team, &model, "go").expect(0);
    for prompt in ["go on", "what now?"] {
        team.team(&["lead", "--resume", "-p", prompt, "--model", &model]).expect(0);
    }
    plays_twice(&team, &[], &[("lead", 3), ("alice", 3)]);
    // The second run of the lead has the third turn.
    let until = alike(&replay(&team, "part", &["--until", "3", "--tools", "recorded"]));
    assert!(until["cut"].as_str().unwrap().contains("turn 3"), "{until:#}");
    assert_eq!(entries(&lines(&team, "part", "lead"), "session"), 2, "{until:#}");
    assert!(count(&until, "lead") < count(&alike(&replay(&team, "whole", &[])), "lead"));
    team.wait_no_process();
}

#[test]
fn a_team_that_was_killed_as_a_whole_and_resumed_plays_again_twice() {
    let team = Team::new();
    let waits = "touch waits; until test -e go; do sleep 0.05; done; echo over";
    let message = |to: &str, text: &str| ("send_message", json!({ "to": to, "content": text }));
    let replies = |delay: u64| {
        let mut late = says("alice", "told");
        late["delay_ms"] = json!(delay);
        [
            calls("lead", &[spawn("alice"), spawn("bob"), bash(waits), bash("echo next")]),
            says("lead", "started"),
            says("lead", "thanks"),
            says("lead", "thanks again"),
            says("lead", "and again"),
            calls("alice", &[bash("until test -e sends; do sleep 0.05; done")]),
            calls("alice", &[message("lead", "for later"), message("bob", "go on")]),
            late,
            says("alice", "bye"),
            // His report comes while the lead is in its call.
            calls("bob", &[bash("until test -e waits; do sleep 0.05; done")]),
            says("bob", "ready"),
            calls("bob", &[bash(waits)]),
            says("bob", "done"),
        ]
    };
    let model = script(&team, &replies(FOREVER_MS));
    let words = ["lead", "-p", "go", "--model", &model];
    let mut first = team.command("team", &words);
    first.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut first = first.spawn().unwrap();
    team.eventually("the lead waits in its call", || team.workspace().join("waits").exists());
    let of =
        |name: &str, kind: &str| entries(&team.lines(&format!("transcript/{name}.jsonl")), kind);
    team.eventually("bob is ready", || of("bob", "turn_end") == 1);
    write(&team.workspace().join("sends"), "");
    team.eventually("alice waits for her model", || of("alice", "tool_result") == 3);
    wait_tool(&team, "bob", "bash");
    team.kill_all();
    first.wait().unwrap();
    assert_eq!(of("lead", "mail"), 0, "what alice and bob have sent waits");
    script(&team, &replies(0));
    let words = ["lead", "--resume", "-p", "go on", "--model", &model];
    team.team(&words).expect(0);
    // The new folder begins with the files for which alice and bob wait.
    create_dir(team.workspace().join("begin")).unwrap();
    for file in ["sends", "waits"] {
        write(&team.workspace().join("begin").join(file), "");
    }
    plays_twice(&team, &["--from", "begin"], &[("lead", 2), ("alice", 2), ("bob", 2)]);
    alike(&replay(&team, "recorded", &["--tools", "recorded"]));
    team.wait_no_process();
}

#[test]
fn only_the_last_conversation_of_the_lead_is_played() {
    let team = Team::new();
    small_record(&team);
    small_record(&team);
    let refused = replay(&team, "mixed", &[]).expect(2);
    assert!(refused.err.contains("alice began before the conversation"), "{}", refused.err);
    assert!(!team.workspace().join("mixed").exists(), "nothing is made");
    // In the next conversation she does nothing.
    let model = script(&team, &[says("lead", "alone")]);
    headless(&team, &model, "another one").expect(0);
    let outcome = alike(&replay(&team, "alone", &[]));
    assert_eq!(outcome["members"].as_array().unwrap().len(), 1, "{outcome:#}");
    team.wait_no_process();
}

/// A record that has more than what can happen ends with a difference.
#[test]
fn a_replay_without_an_expected_member_ends() {
    let team = Team::new();
    small_record(&team);
    let path = team.path("transcript/lead.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    // Nobody starts alice, and the lead is not told anything.
    let kept: Vec<&str> = text.split_inclusive('\n').take(2).collect();
    write(&path, kept.concat());
    let mut command = team.command("team", &["replay", ".", "--into", "again", "--json"]);
    command.env(SHORTEST_DEADLINE, "100").stderr(Stdio::null());
    let ran = command.output().unwrap();
    let outcome: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.status.code(), &outcome["alike"]), (Some(1), &json!(false)), "{outcome:#}");
    assert_eq!(count(&outcome, "alice"), 0, "{outcome:#}");
    team.wait_no_process();
}
