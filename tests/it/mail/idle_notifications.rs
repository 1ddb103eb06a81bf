//! Idle notifications: they cost the lead no turn, and results that arrive together cost one turn.

use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, lead, says, script, spawn, wait_tool,
};
use serde_json::{Value, json};
use std::fs;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The number of times that each teammate becomes idle: more than a hundred for all of them together.
const TURNS: usize = 13;

fn count(team: &Team, name: &str, kind: &str) -> usize {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    lines.iter().filter(|line| line["kind"] == kind).count()
}

fn rest(team: &Team, turns: usize) {
    team.eventually(&format!("all have ended {turns} turns"), || {
        NAMES
            .iter()
            .all(|name| count(team, name, "turn_end") == turns && team.status(name) == "idle")
    });
}

/// Sends one message to each teammate.
fn tell_all(team: &Team) {
    let line = |name: &&str| json!({ "to": name, "content": "go on" }).to_string() + "\n";
    let lines: String = NAMES.iter().map(line).collect();
    team.team_with_input(&["send", "--jsonl"], &lines).expect(0);
}

/// The number of idle notifications that the lead has received.
fn notices(team: &Team) -> usize {
    team.mail_of("lead").iter().filter(|mail| mail["type"] == "idle_notification").count()
}

fn idle(name: &str) -> Value {
    calls(name, &[("idle", json!({}))])
}

#[test]
fn a_hundred_idle_changes_cost_the_lead_nothing_and_eight_results_are_one_turn() {
    let team = Team::new();
    let everybody = NAMES.map(spawn);
    let mut lines = vec![
        calls("lead", &everybody),
        says("lead", "begun"),
        calls("lead", &[bash("until [ -e go ]; do sleep 0.05; done")]),
        says("lead", "eight have spoken"),
        says("lead", "one call too many"),
    ];
    for name in NAMES {
        lines.extend((0..TURNS).map(|_| idle(name)));
        lines.push(says(name, &format!("{name} has news")));
    }
    let mut person = lead(&team, &script(&team, &lines));
    person.type_line("begin");
    rest(&team, 1);
    team.wait_status("lead", "idle");
    let usage = || {
        let usage = &team.roster()["lead"]["usage"];
        ["turns", "input_tokens", "output_tokens"].map(|name| usage[name].clone())
    };
    let usage_before = usage();
    let (calls_before, turns_before) =
        (count(&team, "lead", "assistant"), count(&team, "lead", "turn_end"));
    for turn in 2..=TURNS {
        tell_all(&team);
        rest(&team, turn);
    }
    team.eventually("every notice was taken in", || notices(&team) == NAMES.len() * TURNS);
    team.wait_status("lead", "idle");
    assert_eq!(usage(), usage_before, "no turn, no token");
    assert_eq!(count(&team, "lead", "assistant"), calls_before, "the model was not asked");
    assert_eq!(count(&team, "lead", "turn_end"), turns_before);

    person.type_line("wait");
    wait_tool(&team, "lead", "bash");
    tell_all(&team);
    rest(&team, TURNS + 1);
    let waiting = || {
        let inbox = fs::read_to_string(team.path("inbox/lead.jsonl")).unwrap_or_default();
        inbox.matches("has news").count()
    };
    let news = || NAMES.iter().filter(|name| team.has_mail("lead", name, "has news")).count();
    team.eventually("all eight have written", || waiting() + news() >= NAMES.len());
    write(&team.workspace().join("go"), "");
    team.eventually("the lead has answered", || {
        count(&team, "lead", "turn_end") > turns_before && team.status("lead") == "idle"
    });
    assert_eq!(news(), NAMES.len());
    assert_eq!(count(&team, "lead", "turn_end"), turns_before + 1);
    assert_eq!(count(&team, "lead", "assistant"), calls_before + 2, "one call for all eight");
    person.type_line("/quit");
    assert_eq!(person.wait().code(), Some(0), "{}", person.screen());
    assert_left_in_order(&team);
}
