//! `team interrupt` ends a teammate's turn during a model call, a tool or a question. The process stays; forged and repeated
//! requests change nothing.

use crate::support::approvals::{append_to, careful_team, wait_asked};
use crate::support::child_process::{append, write};
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, says, scripted_lead, signal, spawn, stop_process,
    tool_results, turns, wait_file,
};
use crate::support::terminal::Terminal;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn kinds<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

fn outcomes(team: &Team) -> Vec<String> {
    let lines = team.lines("transcript/alice.jsonl");
    let ends = kinds(&lines, "turn_end").into_iter();
    ends.map(|end| end["outcome"].as_str().unwrap().to_owned()).collect()
}

fn quit(team: &Team, lead: &mut Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(team);
}

#[test]
fn an_interrupt_ends_a_tool_and_a_model_call_and_the_process_stays() {
    let team = Team::new();
    let mut slow = says("alice", "too late");
    slow["delay_ms"] = 600_000.into();
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash("touch here; sleep 1000"), bash("touch never")]),
        slow,
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "here");
    let pid = team.pid_of("alice");
    let done = team.team(&["interrupt", "alice", "--json"]).expect(0).json();
    assert_eq!(done["interrupted"], json!([{"name": "alice", "outcome": "interrupted"}]));
    team.eventually("the command is gone", || {
        !team.processes().iter().any(|(_, line)| line.contains("sleep 1000"))
    });
    let results = tool_results(&team, "alice");
    let texts: Vec<&str> = results.iter().map(|(_, text, _)| text.as_str()).collect();
    assert!(texts[0].contains("interrupted by the user"), "{texts:?}");
    assert!(texts[1].contains("not run"), "{texts:?}");
    team.wait_status("alice", "idle");
    let told = || team.mail_of("lead").into_iter().find(|mail| mail["type"] == "idle_notification");
    team.eventually("the lead is told", || told().is_some());
    assert_eq!(told().unwrap()["reason"], "interrupted");
    let idle = team.team(&["interrupt", "alice"]).expect(1);
    assert!(idle.out.contains("alice is idle: there is no turn to interrupt"), "{idle:?}");

    team.team(&["send", "alice", "go on"]).expect(0);
    team.eventually("her model is called", || {
        let alice = team.member("alice");
        alice["status"] == "working" && team.has_mail("alice", "user", "go on")
    });
    let why = ["interrupt", "alice", "--reason", "use cargo instead"];
    let done = team.team(&why).expect(0);
    assert!(done.out.contains("alice was interrupted"), "{done:?}");
    assert_eq!(outcomes(&team), ["interrupted", "interrupted"]);
    let lines = team.lines("transcript/alice.jsonl");
    let notes = kinds(&lines, "note");
    let is_told = |note: &&Value| note["content"].as_str().unwrap().contains("use cargo instead");
    assert!(notes.iter().any(is_told), "{notes:?}");
    team.wait_status("alice", "idle");
    assert_eq!(team.pid_of("alice"), pid, "the process stays");
    quit(&team, &mut lead);
}

/// A stopped process answers nothing, and is waited for until the limit. Bob's turn ends all the same.
#[test]
fn one_that_does_not_answer_keeps_no_other_from_its_end() {
    let team = Team::new();
    let lines = [
        calls("lead", &[spawn("alice"), spawn("bob")]),
        says("lead", "spawned"),
        calls("alice", &[bash("touch alice.here; sleep 1000")]),
        calls("bob", &[bash("touch bob.here; sleep 1000")]),
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "alice.here");
    wait_file(&team, "bob.here");
    stop_process(&team, "alice");
    let both = team.team(&["interrupt", "alice", "bob"]).expect(1);
    assert!(both.err.contains("alice was not interrupted"), "{both:?}");
    assert!(both.out.contains("bob was interrupted"), "{both:?}");
    signal(team.pid_of("alice"), Signal::SIGCONT);
    quit(&team, &mut lead);
}

#[test]
fn an_interrupt_withdraws_the_question_that_waits() {
    let team = careful_team();
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash("touch never")]),
        says("alice", "over"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    let id = wait_asked(&team, "alice");
    team.team(&["interrupt", "alice"]).expect(0);
    let lines = team.lines("transcript/alice.jsonl");
    let decisions = kinds(&lines, "decision");
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    assert_eq!(
        (&decisions[0]["request_id"], &decisions[0]["outcome"]),
        (&json!(id), &json!("withdrawn"))
    );
    assert_eq!(outcomes(&team), ["interrupted"]);
    team.wait_status("alice", "idle");
    let late = team.team(&["approve", &id]).expect(1);
    assert!(late.err.contains("open"), "{late:?}");
    assert!(!team.workspace().join("never").exists());
    quit(&team, &mut lead);
}

/// A request counts once, and only with a seal of the user or the lead to this incarnation.
#[test]
fn forged_and_repeated_interrupts_change_nothing() {
    let team = Team::new();
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash("touch one; sleep 1000")]),
        calls("alice", &[bash("touch two; sleep 1000")]),
        says("alice", "over"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "one");
    team.team(&["interrupt", "alice"]).expect(0);
    team.eventually("the request is drained", || requests(&team).len() == 1);
    let first = requests(&team).remove(0);
    team.team(&["send", "alice", "again"]).expect(0);
    wait_file(&team, "two");
    // As it came, sealed; with another id, under which the seal does not hold; from a colleague; without a seal.
    let with = |changes: Value| {
        let mut line = first.clone();
        line.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        line
    };
    for line in [
        first.clone(),
        with(json!({"id": "user:x1", "request_id": "x1"})),
        with(json!({"id": "user:x2", "request_id": "x2", "from": "bob"})),
        with(json!({"id": "user:x3", "request_id": "x3", "seal": null})),
        with(json!({"id": "lead:x4", "request_id": "x4", "from": "lead", "incarnation": "other"})),
    ] {
        append_to(&team, "inbox/alice.jsonl", &line);
    }
    append(&team.path("inbox/alice.jsonl"), "{\"type\":\"interrupt_request\"}\n");
    // The true request stands behind them in the inbox, and is the only one that acts.
    assert_eq!(outcomes(&team), ["interrupted"]);
    team.team(&["interrupt", "alice"]).expect(0);
    let lines = team.lines("transcript/alice.jsonl");
    let acted_on = kinds(&lines, "interrupt");
    let ids: Vec<&Value> = acted_on.iter().map(|line| &line["request_id"]).collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    assert_eq!(ids[0], &first["request_id"]);
    assert!(ids[1].as_str().unwrap().starts_with("user:0"), "{ids:?}");
    team.eventually("the inbox is drained", || requests(&team).len() >= 6);
    assert_eq!(turns(&team, "alice"), 2, "{}", team.describe());
    quit(&team, &mut lead);
}

fn requests(team: &Team) -> Vec<Value> {
    let mail = team.mail_of("alice").into_iter();
    mail.filter(|mail| mail["type"] == "interrupt_request").collect()
}

/// The restarted process goes on with the turn, since its end was not recorded; the request was for the killed one.
#[test]
fn a_kill_during_the_interrupt_leaves_the_turn_to_the_next_process() {
    let team = Team::new();
    let token = team.workspace().join("token");
    write(&token, "");
    team.variable("TEAM_FAILPOINTS", &format!("alice/turn.ending={}", token.display()));
    team.variable("TEAM_FIRST_PAUSE_MS", "10");
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash("touch here; sleep 1000")]),
        says("alice", "finished after all"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "here");
    let ended = team.team(&["interrupt", "alice"]).expect(1);
    assert!(ended.out.contains("alice has ended before"), "{ended:?}");
    team.eventually("the next process finishes the turn", || {
        team.has_mail("lead", "alice", "finished after all")
    });
    team.wait_status("alice", "idle");
    assert_eq!(outcomes(&team), ["done"], "{}", team.describe());
    let lines = team.lines("transcript/alice.jsonl");
    assert!(kinds(&lines, "interrupt").is_empty(), "{lines:?}");
    quit(&team, &mut lead);
}

#[test]
fn an_interrupt_of_nobody_is_an_error() {
    let team = Team::new();
    let lines = [calls("lead", &[spawn("alice")]), says("lead", "spawned"), says("alice", "done")];
    let mut lead = scripted_lead(&team, &lines);
    team.wait_status("alice", "idle");
    for (name, code, why) in [
        ("bob", 1, "there is no member bob"),
        ("alcie", 1, "did you mean alice?"),
        ("lead", 2, "press Ctrl-C there"),
        ("Alice", 2, "alice"),
    ] {
        let refused = team.team(&["interrupt", name]).expect(code);
        assert!(refused.err.contains(why), "{name}: {refused:?}");
    }
    team.team(&["stop", "alice"]).expect(0);
    let gone = team.team(&["interrupt", "alice"]).expect(1);
    assert!(gone.err.contains("it is not running"), "{gone:?}");
    quit(&team, &mut lead);
}
