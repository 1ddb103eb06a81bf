//! Commands in the background: their output, their end, and what is left of them when their agent ends or is killed.

use crate::support::child_process::write;
use crate::support::harness::{Team, program};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, kill_9, says, script, scripted_lead, spawn,
    tool_results, turns, wait_file,
};
use serde_json::{Value, json};
use std::fs;

fn background(command: &str) -> (&'static str, Value) {
    ("bash", json!({ "command": command, "background": true }))
}

fn limited(command: &str) -> (&'static str, Value) {
    ("bash", json!({ "command": command, "background": true, "timeout": 600 }))
}

fn output(id: &str, wait: u64) -> (&'static str, Value) {
    ("command_output", json!({ "id": id, "wait": wait }))
}

fn stop(id: &str) -> (&'static str, Value) {
    ("stop_command", json!({ "id": id }))
}

/// Returns the notices of background commands that an agent has received.
fn notices(team: &Team, name: &str) -> Vec<String> {
    let mail = team.mail_of(name).into_iter().filter(|mail| mail["from"] == "system");
    let text = mail.filter_map(|mail| mail["content"].as_str().map(ToOwned::to_owned));
    text.filter(|text| text.starts_with("background command")).collect()
}

/// Returns the record of the background commands of an agent.
fn records(team: &Team, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(team.path(&format!("run/.state/{name}.commands")));
    let list: Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
    list["commands"].as_array().cloned().unwrap_or_default()
}

fn runs(team: &Team, word: &str) -> bool {
    team.processes().iter().any(|(_, line)| line.contains(word))
}

#[test]
fn a_command_runs_beside_turns_and_its_end_wakes_the_agent() {
    let team = Team::new();
    let command = "echo one; until [ -e go ]; do sleep 0.05; done; echo two; exit 3";
    let lines = [
        calls("lead", &[background(command)]),
        calls("lead", &[output("c1", 600)]),
        calls("lead", &[bash("touch busy; sleep 1000")]),
        says("lead", "it has ended"),
        calls("lead", &[output("c1", 600), output("c7", 1)]),
        says("lead", "all is known"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "busy");
    // An interrupt ends the command in the turn, and not the one beside it.
    lead.press("\x03");
    team.wait_status("lead", "idle");
    let results = tool_results(&team, "lead");
    assert!(results[0].1.starts_with("c1 runs in the background"), "{results:?}");
    assert!(results[1].1.starts_with("one\n[c1: running for "), "{results:?}");
    lead.type_line("/jobs");
    lead.expect("lead c1 (echo one; until");
    let listed = team.team(&["ls"]).expect(0);
    assert!(listed.out.contains("1 in background"), "{listed:?}");
    assert_eq!(records(&team, "lead")[0]["state"], "running");
    write(&team.workspace().join("go"), "");
    team.eventually("the lead is told", || !notices(&team, "lead").is_empty());
    team.eventually("the notice began a turn", || {
        turns(&team, "lead") == 2 && team.status("lead") == "idle"
    });
    let told = notices(&team, "lead");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("exit code 3 after") && told[0].ends_with("its new output:\ntwo"));
    lead.type_line("look again");
    team.eventually("the lead has looked", || turns(&team, "lead") == 3);
    let results = tool_results(&team, "lead");
    assert!(results[3].1.starts_with("two\n[c1: exit code 3 after"), "{results:?}");
    assert!(results[4].2 && results[4].1.contains("known: c1 (echo one"), "{results:?}");
    lead.type_line("/jobs");
    lead.expect("No command runs in the background");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_eq!(notices(&team, "lead").len(), 1);
    assert_left_in_order(&team);
}

#[test]
fn an_end_that_the_model_has_seen_is_not_told() {
    let team = Team::new();
    let one = limited("until [ -e go ]; do sleep 0.05; done");
    let lines = [
        calls("lead", &[one, background("echo up; sleep 1000")]),
        calls("lead", &[output("c1", 600), output("c2", 600)]),
        calls("lead", &[stop("c2"), stop("c2")]),
        says("lead", "both are known"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    // The call is shown when it begins, so that the command ends while it is looked at.
    lead.expect("command_output");
    write(&team.workspace().join("go"), "");
    lead.expect("both are known");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    let results = tool_results(&team, "lead");
    let text = |at: usize| results[at].1.as_str();
    assert!(text(2).starts_with("(no new output)\n[c1: exit code 0 after"), "{results:?}");
    assert!(text(3).starts_with("up\n[c2: running for"), "{results:?}");
    assert!(text(4).starts_with("(no new output)\n[c2: stopped after"), "{results:?}");
    assert!(text(5).starts_with("(no new output)\n[c2: stopped after"), "{results:?}");
    assert_eq!(notices(&team, "lead"), Vec::<String>::new());
    assert_left_in_order(&team);
}

#[test]
fn a_person_stops_a_command_of_the_lead() {
    let team = Team::new();
    let lines = [
        calls("lead", &[background("touch up; sleep 1000")]),
        says("lead", "it runs"),
        says("lead", "it was stopped"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "up");
    lead.expect("it runs");
    lead.type_line("/jobs stop c7");
    lead.expect("the lead runs no command c7");
    lead.type_line("/jobs stop c1");
    lead.expect("stopping c1 (touch up");
    lead.expect("it was stopped");
    let told = notices(&team, "lead");
    assert!(told.len() == 1 && told[0].contains("stopped by the user after"), "{told:?}");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_run_waits_for_a_command_with_a_time_limit_and_ends_a_server() {
    let team = Team::new();
    let build = "until [ -e served ]; do sleep 0.05; done; sleep 0.5; echo built";
    let lines = [
        calls("lead", &[limited(build), background("touch served; sleep 1000")]),
        says("lead", "waiting"),
        says("lead", "the build is done"),
    ];
    let model = script(&team, &lines);
    let done = headless(&team, &model, "begin").expect(0);
    assert!(done.out.contains("the build is done"), "{done:?}");
    let told = notices(&team, "lead");
    assert!(told.len() == 1 && told[0].contains("\nbuilt"), "{told:?}");
    assert_eq!(records(&team, "lead")[1]["state"], "running", "the next process tells its end");
    assert_left_in_order(&team);
}

#[test]
fn a_time_limit_ends_a_command_and_its_mail_is_sent() {
    let team = Team::new();
    let send = format!("{} send alice 'from the build'; sleep 1000", program("team").display());
    let mail = ("bash", json!({ "command": send, "background": true, "timeout": 3 }));
    let lines = [
        calls("lead", &[spawn("alice")]),
        calls("lead", &[mail]),
        says("lead", "waiting"),
        says("lead", "it has ended"),
        says("alice", "ready"),
    ];
    let model = script(&team, &lines);
    headless(&team, &model, "begin").expect(0);
    let told = notices(&team, "lead");
    assert!(told.len() == 1 && told[0].contains("timed out (3 s) after"), "{told:?}");
    assert!(team.has_mail("alice", "lead", "from the build"), "{}", team.describe());
    assert_left_in_order(&team);
}

#[test]
fn a_ninth_command_is_refused_with_a_list() {
    let team = Team::new();
    let nine: Vec<_> = (1..=9).map(|number| background(&format!("sleep 100{number}"))).collect();
    let model = script(&team, &[calls("lead", &nine), says("lead", "eight run")]);
    headless(&team, &model, "begin").expect(0);
    let results = tool_results(&team, "lead");
    assert_eq!(results.iter().filter(|(_, _, is_error)| *is_error).count(), 1, "{results:?}");
    let refused = &results[8].1;
    assert!(refused.starts_with("8 commands already run"), "{refused}");
    assert!(refused.contains("c1 (sleep 1001), c2 (sleep 1002)"), "{refused}");
    assert_left_in_order(&team);
}

#[test]
fn the_next_process_tells_once_what_has_become_of_a_command() {
    let team = Team::new();
    let shown = "until [ -e shown ]; do sleep 0.05; done";
    let lines = [
        calls("lead", &[background("echo before; touch shown; sleep 1000"), bash(shown)]),
        says("lead", "a server runs"),
        calls("lead", &[output("c1", 600), background("sleep 1001")]),
        says("lead", "it is gone"),
        says("lead", "more"),
        says("lead", "more"),
    ];
    let model = script(&team, &lines);
    headless(&team, &model, "begin").expect(0);
    let resumed = |prompt: &str| {
        team.team(&["lead", "--resume", "-p", prompt, "--model", &model]).expect(0);
        notices(&team, "lead")
    };
    let told = resumed("go on");
    let state = "state unknown: it ended with the earlier process";
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(state) && told[0].ends_with("\nbefore"), "{told:?}");
    let results = tool_results(&team, "lead");
    assert_eq!(results[2].1, format!("before\n[c1: {state}]"));
    assert!(results[3].1.starts_with("c2 runs in the background"), "an id was given twice");
    let told = resumed("once more");
    assert!(told.len() == 2 && told[1].contains("c2 (sleep 1001): state unknown"), "{told:?}");
    assert_eq!(resumed("and again").len(), 2);
    assert_left_in_order(&team);
}

/// Alice is killed at each step of the life of a background command.
#[test]
fn a_kill_at_any_step_loses_no_notice_and_leaves_no_process() {
    let cases = [
        ("background.recorded", "state unknown"),
        ("background.started", "state unknown"),
        ("background.ended", "exit code 3"),
        ("background.told", "exit code 3"),
    ];
    for (point, end) in cases {
        let team = Team::new();
        let token = team.workspace().join("token");
        write(&token, "");
        team.variable("TEAM_FIRST_PAUSE_MS", "50");
        team.variable("TEAM_FAILPOINTS", &format!("alice/{point}={}", token.display()));
        let rest = if end.starts_with("exit") { "exit 3" } else { "sleep 1003" };
        let lines = [
            calls("lead", &[spawn("alice")]),
            says("lead", "spawned"),
            calls("alice", &[background(&format!("echo out; {rest}"))]),
        ];
        let mut lead = scripted_lead(&team, &lines);
        team.eventually("alice is back and knows the end", || {
            team.member("alice")["restarts"] == 1
                && team.status("alice") == "idle"
                && records(&team, "alice").iter().all(|it| it["told"] == true)
                && !notices(&team, "alice").is_empty()
        });
        assert!(!token.exists(), "alice was not killed at {point}");
        assert!(!runs(&team, "sleep 1003"), "{point}: {:?}", team.processes());
        // Whatever is still in the inbox would come with this.
        team.team(&["send", "alice", "is there more"]).expect(0);
        team.eventually("alice has all mail", || team.has_mail("alice", "user", "is there more"));
        let told = notices(&team, "alice");
        assert_eq!(told.len(), 1, "{point}: {told:?}");
        assert!(told[0].contains(end), "{point}: {told:?}");
        lead.type_line("/quit");
        assert_eq!(lead.wait().code(), Some(0));
        assert_left_in_order(&team);
    }
}

#[test]
fn a_killed_agent_leaves_no_background_process_and_gets_the_rest_of_the_output() {
    let team = Team::new();
    team.variable("TEAM_FIRST_PAUSE_MS", "50");
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls(
            "alice",
            &[background("echo one; until [ -e go ]; do sleep 0.05; done; echo two; sleep 1004")],
        ),
        calls("alice", &[output("c1", 600)]),
        says("alice", "it runs"),
        calls("alice", &[output("c1", 600)]),
        says("alice", "it is gone"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    team.eventually("alice rests", || turns(&team, "alice") == 1 && team.status("alice") == "idle");
    write(&team.workspace().join("go"), "");
    let stored = team.path("log/.out/alice-c1.txt");
    team.eventually("the output is stored", || {
        fs::read_to_string(&stored).is_ok_and(|text| text == "one\ntwo\n")
    });
    kill_9(&team, "alice");
    team.eventually("alice has looked", || tool_results(&team, "alice").len() == 3);
    assert!(!runs(&team, "sleep 1004"), "{:?}", team.processes());
    let results = tool_results(&team, "alice");
    assert!(results[2].1.starts_with("two\n[c1: state unknown"), "{results:?}");
    let told = notices(&team, "alice");
    assert!(told.len() == 1 && told[0].ends_with("its new output:\ntwo"), "{told:?}");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// A command in the foreground may not be blamed for what another one does beside it.
#[test]
fn undo_takes_back_no_change_beside_a_background_command() {
    let team = Team::new();
    let git = |line: &str| {
        let settings = "git -c user.name=t -c user.email=t@localhost";
        assert!(team.shell(&format!("{settings} {line}")).status().unwrap().success(), "{line}");
    };
    write(&team.workspace().join("a"), "one\n");
    git("init --quiet");
    git("add a");
    git("commit --quiet -m first");
    let beside = "until [ -e b ]; do sleep 0.05; done; echo two > a; touch c; sleep 1005";
    let new = ("write_file", json!({ "path": "d", "content": "new\n" }));
    let during = bash("touch b; until [ -e c ]; do sleep 0.05; done");
    let lines = [calls("lead", &[new, background(beside), during]), says("lead", "done")];
    let model = script(&team, &lines);
    headless(&team, &model, "begin").expect(0);
    let undone = team.team(&["undo", "lead", "--yes"]).expect(0);
    assert!(undone.out.contains("the changes of the background command c1 are not known"));
    let text = |name: &str| fs::read_to_string(team.workspace().join(name)).ok();
    let texts = ["a", "b", "d"].map(text);
    assert_eq!(texts, [Some("two\n".into()), Some(String::new()), None], "{undone:?}");
    assert_left_in_order(&team);
}
