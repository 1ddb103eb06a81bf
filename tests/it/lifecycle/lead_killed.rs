//! `kill -9` of the lead: the team shuts down, nothing is lost, and the next lead starts normally.

use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, kill_9, last_exit, lead, says, script,
    scripted_lead, spawn, wait_file, wait_tool,
};
use crate::support::terminal::Terminal;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The time limit for the members to exit after their lead (RELIABILITY 4).
const GRACE: Duration = Duration::from_secs(35);

/// Kills the lead and waits until no process of the team is left, within the grace period.
fn kill_lead(team: &Team, lead: &mut Terminal) -> Duration {
    let began = Instant::now();
    kill_9(team, "lead");
    lead.wait();
    team.wait_no_process();
    let took = began.elapsed();
    assert!(took < GRACE, "the team outlived its lead by {took:?}");
    took
}

#[test]
fn an_idle_team_ends_at_once_and_the_next_lead_reports_it() {
    let team = Team::new();
    let mut first = lead(&team, "rehearsal");
    first.type_line("Spawn alice (coder) and bob (tester).");
    for name in ["alice", "bob"] {
        team.wait_status(name, "idle");
    }
    let took = kill_lead(&team, &mut first);
    assert!(took < GRACE / 2, "idle members need no grace: {took:?}");
    for name in ["alice", "bob"] {
        assert_eq!(team.status(name), "shutdown");
        assert_eq!(last_exit(&team, name), ("lead_lost".into(), Some(0), None));
    }
    assert_eq!(team.team(&["ls", "--json"]).expect(0).json()["lead"]["alive"], false);

    let mut next = lead(&team, "rehearsal");
    next.expect("An earlier team was here");
    next.expect("its lead had exited");
    next.type_line("/quit");
    assert_eq!(next.wait().code(), Some(0));
    assert_left_in_order(&team);
    let mut third = lead(&team, "rehearsal");
    third.type_line("/quit");
    assert_eq!(third.wait().code(), Some(0));
    assert!(!third.printed().contains("An earlier team"), "that lead ended in order");
    assert_left_in_order(&team);
}

/// One member runs an endless command and a daemon, one finishes its command, one waits for its model, and one
/// has reported its result.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_working_team_finishes_its_tools_reports_and_ends_within_the_grace() {
    let team = Team::new();
    let daemon = "setsid nohup sleep 1000 >/dev/null 2>&1 & touch bob.here; sleep 1000";
    let thinks = serde_json::json!({ "agent": "dave", "text": "late", "delay_ms": 600_000 });
    let mut first = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("bob"), spawn("carol"), spawn("dave"), spawn("erin")]),
            calls("bob", &[bash(daemon)]),
            calls("carol", &[bash("touch carol.here; sleep 3; echo done > carol.done")]),
            thinks,
            says("erin", "erin's result"),
        ],
    );
    wait_file(&team, "bob.here");
    wait_file(&team, "carol.here");
    team.wait_status("dave", "working");
    team.eventually("erin is done", || {
        team.lines("transcript/erin.jsonl").iter().any(|line| line["kind"] == "turn_end")
    });
    team.team(&["send", "bob", "for the next life"]).expect(0);
    kill_lead(&team, &mut first);

    assert!(team.workspace().join("carol.done").exists(), "a running tool may finish");
    for name in ["bob", "carol", "dave", "erin"] {
        assert_eq!(team.status(name), "shutdown", "{name}: {}", team.describe());
        assert_eq!(last_exit(&team, name).0, "lead_lost", "{name}");
    }
    let ran = headless(&team, "rehearsal", "Check the lead inbox for any messages").expect(0);
    assert!(ran.err.contains("its lead had exited"), "{ran:#?}");
    // Either the first lead or the second one has received erin's result.
    let first = team.lines("transcript/archive/lead-000001.jsonl");
    let told = |line: &serde_json::Value| line["message"]["content"] == "erin's result";
    let told = first.iter().any(told) || team.has_mail("lead", "erin", "erin's result");
    assert!(told, "{}", team.describe());
    assert!(team.has_mail("bob", "user", "for the next life"), "{}", team.describe());
    assert_left_in_order(&team);
}

/// A member is stopped with SIGSTOP while it shuts down. The next lead waits for the rest of the grace period,
/// then terminates it.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_member_that_does_not_leave_is_ended_by_the_next_lead() {
    let team = Team::new();
    let lines =
        [calls("lead", &[spawn("bob")]), calls("bob", &[bash("touch bob.here; sleep 1000")])];
    let mut first = scripted_lead(&team, &lines);
    wait_file(&team, "bob.here");
    kill_9(&team, "lead");
    first.wait();
    let began = Instant::now();
    team.eventually("bob has noticed", || {
        let record = std::fs::read_to_string(team.path("run/bob.lock")).unwrap();
        !record.contains("\"lead_lost\":null")
    });
    crate::support::scripts::stop_process(&team, "bob");
    let mut next = lead(&team, "rehearsal");
    next.expect("bob of an earlier lead ended");
    let took = began.elapsed();
    assert!(took + Duration::from_secs(1) >= GRACE, "he had his time: {took:?}");
    assert_eq!(
        (team.status("bob"), last_exit(&team, "bob").0),
        ("shutdown".into(), "lead_lost".into())
    );
    next.type_line("/quit");
    assert_eq!(next.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn members_that_died_with_the_lead_are_found_and_marked() {
    let team = Team::new();
    let model = script(
        &team,
        &[
            calls("lead", &[spawn("alice"), spawn("bob")]),
            calls("alice", &[bash("touch alice.here; sleep 1000")]),
            calls("bob", &[bash("touch bob.here; sleep 1000")]),
        ],
    );
    let mut first = lead(&team, &model);
    first.type_line("begin");
    wait_file(&team, "alice.here");
    wait_file(&team, "bob.here");
    wait_tool(&team, "alice", "bash");
    // The lead is killed last, because it would record the exits of the others.
    crate::support::scripts::signal(team.pid_of("lead"), nix::sys::signal::Signal::SIGSTOP);
    kill_9(&team, "alice");
    kill_9(&team, "bob");
    kill_lead(&team, &mut first);

    // The kernel removes a killed process in steps.
    team.eventually("both are shown as dead", || {
        let shown = team.team(&["ls", "--json"]).expect(0).json();
        let is_dead = |member: &Value| member["alive"] == false && member["status"] == "failed";
        shown["members"].as_array().unwrap().iter().all(is_dead)
    });
    let shown = team.team(&["ls"]).expect(0).out;
    assert_eq!(
        (shown.matches("✗ dead").count(), shown.matches("is gone").count()),
        (3, 3),
        "{shown}"
    );
    let mut next = lead(&team, "rehearsal");
    next.expect("its lead had exited");
    next.expect("alice, bob had exited");
    for name in ["alice", "bob"] {
        assert_eq!(team.status(name), "failed");
        assert_eq!(last_exit(&team, name).0, "crash");
    }
    // The name can be used again, with its transcript.
    next.type_line("Spawn alice (coder).");
    team.eventually("alice is back", || team.status("alice") == "idle");
    next.type_line("/quit");
    assert_eq!(next.wait().code(), Some(0));
    assert_left_in_order(&team);
}
