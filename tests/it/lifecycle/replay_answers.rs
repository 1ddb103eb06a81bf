//! `team replay`: the answers of the person are given again at their time, also those that make a rule, change a command,
//! or come from another terminal.

use super::replay::{alike, count, lines, replay};
use super::replay_ends::{ESC, quit, stops_early, wait_for};
use crate::support::approvals::wait_asked;
use crate::support::child_process::write;
use crate::support::harness::{SHORTEST_DEADLINE, Team};
use crate::support::scripts::{all_idle, bash, calls, says, script, spawn};
use crate::support::terminal::Terminal;
use serde_json::{Value, json};
use std::fs;

/// Starts a lead that asks the person.
fn asking_lead(team: &Team, mode: &str, replies: &[Value]) -> Terminal {
    let mut command = team.command("team", &["lead", "--new", "--mode", mode]);
    command.args(["--model", &script(team, replies)]);
    let lead = Terminal::start(command);
    lead.expect("/quit ends the team");
    lead
}

/// Waits until a member has ended so many turns, and rests.
fn rest_of(team: &Team, name: &str, count: usize) {
    wait_for(team, name, "turn_end", count);
    team.wait_status(name, "idle");
}

#[test]
fn the_answers_of_the_person_are_given_again_twice() {
    let team = Team::new();
    let append = |what: &str| bash(&format!("echo {what} >> list"));
    let tell_alice = ("send_message", json!({ "to": "alice", "content": "while you wait" }));
    let replies = [
        calls("lead", &[append("lead")]),
        calls("lead", &[append("wrong")]),
        calls("lead", &[append("retyped")]),
        says("lead", "done"),
        // Results wake it in one turn or in several.
        calls("lead", &[spawn("alice"), spawn("bob")]),
        calls("alice", &[append("alice")]),
        calls("alice", &[append("alice")]),
        says("alice", "listed"),
        says("bob", "ready"),
        calls("bob", &[tell_alice]),
        says("bob", "told"),
        calls("bob", &[append("bob")]),
        says("bob", "listed, too"),
    ];
    let mut lead = asking_lead(&team, "default", &replies);
    lead.type_line("go");
    lead.expect_screen("? lead asks to run: echo lead");
    lead.type_line("y");
    lead.expect_screen("? lead asks to run: echo wrong");
    lead.type_line("n not this one");
    lead.expect_screen("? lead asks to run: echo retyped");
    lead.type_line("e echo changed >> list");
    rest_of(&team, "lead", 1);
    lead.type_line("and the others?");
    wait_asked(&team, "alice");
    rest_of(&team, "bob", 1);
    team.team(&["send", "bob", "tell alice"]).expect(0);
    team.eventually("alice has mail of bob", || team.has_mail("alice", "bob", "while you wait"));
    rest_of(&team, "bob", 2);
    lead.expect_screen("? alice asks to run: echo alice");
    lead.type_line("always session");
    rest_of(&team, "alice", 1);
    team.team(&["send", "bob", "list yourself"]).expect(0);
    let id = wait_asked(&team, "bob");
    team.team(&["approve", &id]).expect(0);
    rest_of(&team, "bob", 3);
    team.eventually("all rest", || all_idle(&team));
    quit(&team, lead);
    let list = "lead\nchanged\nalice\nalice\nbob\n";
    let read = |folder: &str| fs::read_to_string(team.workspace().join(folder).join("list"));
    assert_eq!(read("").unwrap(), list);
    for into in ["first", "second"] {
        let outcome = alike(&replay(&team, into, &[]));
        assert!(outcome["cut"].is_null(), "{outcome:#}");
        assert_eq!(read(into).unwrap(), list);
        assert!(count(&outcome, "lead") > 20, "{outcome:#}");
    }
    alike(&replay(&team, "told", &["--tools", "recorded"]));
    assert!(read("told").is_err(), "no command has run");
    team.wait_no_process();
}

#[test]
fn a_rule_for_good_and_the_plan_of_a_teammate_are_decided_again() {
    let team = Team::new();
    let plan = |text: &str| ("submit_plan", json!({ "plan": text }));
    let order = json!({ "name": "alice", "role": "worker", "prompt": "begin", "mode": "plan" });
    let list = "echo lead >> list";
    let replies = [
        calls("lead", &[bash(list), bash(list)]),
        calls("lead", &[("spawn_teammate", order)]),
        says("lead", "started"),
        // Plans and the report wake it, in one turn or in several.
        says("lead", "noted"),
        says("lead", "noted"),
        says("lead", "noted"),
        says("lead", "noted"),
        calls("alice", &[plan("1. guess")]),
        calls("alice", &[plan("1. look")]),
        calls("alice", &[bash("echo alice >> list")]),
        says("alice", "done"),
    ];
    let mut lead = asking_lead(&team, "default", &replies);
    lead.type_line("go");
    lead.expect_screen("? lead asks to run: echo lead");
    lead.type_line("always good");
    let first = wait_asked(&team, "alice");
    team.team(&["deny", &first, "--reason", "look first"]).expect(0);
    wait_for(&team, "alice", "decision", 1);
    let second = wait_asked(&team, "alice");
    team.team(&["approve", &second]).expect(0);
    lead.expect_screen("? alice asks to run: echo alice");
    lead.type_line("y");
    rest_of(&team, "alice", 1);
    quit(&team, lead);
    for into in ["first", "second"] {
        let outcome = alike(&replay(&team, into, &[]));
        assert!(outcome["cut"].is_null(), "{outcome:#}");
        let read = fs::read_to_string(team.workspace().join(into).join("list"));
        assert_eq!(read.unwrap(), "lead\nlead\nalice\n");
    }
    team.wait_no_process();
}

#[test]
fn the_play_ends_before_the_person_decides_on_the_plan_of_the_lead() {
    let team = Team::new();
    let replies = [
        says("lead", "what is it?"),
        calls("lead", &[("submit_plan", json!({ "plan": "1. look" }))]),
        says("lead", "thanks"),
    ];
    let mut lead = asking_lead(&team, "plan", &replies);
    lead.type_line("hello");
    wait_for(&team, "lead", "turn_end", 1);
    lead.type_line("make a plan");
    lead.expect_screen("y yes");
    lead.type_line("y");
    wait_for(&team, "lead", "turn_end", 2);
    quit(&team, lead);
    stops_early(&team, "the person decides on a plan of lead");
}

#[test]
fn the_play_ends_before_the_person_changes_the_mode() {
    let team = Team::new();
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "started"),
        says("lead", "thanks"),
        says("alice", "ready"),
    ];
    let mut lead = asking_lead(&team, "default", &replies);
    lead.type_line("go");
    rest_of(&team, "alice", 1);
    team.eventually("the lead has her report", || team.has_mail("lead", "alice", "ready"));
    team.wait_status("lead", "idle");
    lead.type_line("/mode accept_edits");
    team.eventually("alice is told", || {
        let mail = team.mail_of("alice");
        mail.iter().any(|mail| mail["type"] == "mode_set_request")
    });
    quit(&team, lead);
    stops_early(&team, "the person changes the mode there");
}

/// Starts a team whose teammate asks.
fn team_that_asks(team: &Team) -> Terminal {
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "started"),
        says("lead", "thanks"),
        says("lead", "thanks"),
        calls("alice", &[bash("echo alice >> list")]),
        says("alice", "listed"),
    ];
    let mut lead = asking_lead(team, "default", &replies);
    lead.type_line("go");
    wait_asked(team, "alice");
    wait_for(team, "lead", "turn_end", 1);
    lead.expect_screen("? alice asks to run: echo alice");
    lead
}

#[test]
fn the_play_ends_before_a_question_that_is_not_answered() {
    let team = Team::new();
    let mut lead = team_that_asks(&team);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    stops_early(&team, "a question of alice is not answered there");
}

#[test]
fn the_play_ends_before_a_question_that_is_open_when_all_are_killed() {
    let team = Team::new();
    let lead = team_that_asks(&team);
    team.kill_all();
    drop(lead);
    let model = format!("script:{}", team.workspace().join("script.jsonl").display());
    let again = ["lead", "--resume", "--mode", "default", "--model", &model];
    let mut lead = Terminal::start(team.command("team", &again));
    lead.expect_screen("? alice asks to run: echo alice");
    lead.type_line("y");
    rest_of(&team, "alice", 1);
    quit(&team, lead);
    stops_early(&team, "a question of alice is not answered there");
}

#[test]
fn a_question_whose_answer_comes_after_the_cut_stays_open() {
    let team = Team::new();
    let mut lead = team_that_asks(&team);
    lead.press(ESC);
    lead.expect_screen("1 question waiting");
    lead.type_line("does she ask?");
    wait_for(&team, "lead", "turn_end", 2);
    lead.type_line("/deny 1 later");
    rest_of(&team, "alice", 1);
    quit(&team, lead);
    for into in ["first", "second"] {
        alike(&replay(&team, into, &["--until", "2", "--fork"]));
        let alice = lines(&team, into, "alice");
        let is_answer = |line: &&Value| {
            line["message"]["type"] == "permission_response" || line["outcome"] == "rejected"
        };
        assert_eq!(alice.iter().find(is_answer), None);
        assert!(alice.iter().any(|line| line["outcome"] == "withdrawn"), "{alice:#?}");
        assert!(!team.workspace().join(into).join("list").exists());
    }
}

/// The lead says at once that nobody can answer, and the play ends with that difference.
#[test]
fn a_question_whose_answer_is_not_in_the_record_is_denied() {
    let team = Team::new();
    let mut lead = team_that_asks(&team);
    lead.type_line("y");
    rest_of(&team, "alice", 1);
    quit(&team, lead);
    let path = team.path("transcript/alice.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.split_inclusive('\n');
    let kept: Vec<&str> = lines.filter(|line| !line.contains("permission_response")).collect();
    write(&path, kept.concat());
    let mut command = team.command("team", &["replay", ".", "--into", "again", "--json"]);
    let ran = command.env(SHORTEST_DEADLINE, "100").output().unwrap();
    let outcome: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.status.code(), &outcome["first"]), (Some(1), &json!("alice")), "{outcome:#}");
    team.wait_no_process();
}
