//! Hang detection: a hung member is killed and restarted, a slow one is left alone.

use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, last_exit, lead, says, scripted_lead, signal, spawn,
    stop_process, wait, wait_file,
};
use nix::sys::signal::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

/// The time without a heartbeat after which a member counts as hung, in seconds.
const HUNG_AFTER: u32 = 4;

fn impatient() -> Team {
    let team = Team::new();
    team.variable("TEAM_HUNG_AFTER", &HUNG_AFTER.to_string());
    team.variable("TEAM_FIRST_PAUSE_MS", "50");
    team
}

#[test]
fn an_idle_teammate_that_leaves_its_mail_unread_is_restarted() {
    let team = impatient();
    let lines = [calls("lead", &[spawn("bob")]), says("lead", "spawned"), says("bob", "ready")];
    let mut lead = scripted_lead(&team, &lines);
    team.wait_status("bob", "idle");
    team.eventually("his report is in", || team.has_mail("lead", "bob", "ready"));
    let bob = team.pid_of("bob");
    stop_process(&team, "bob");
    team.team(&["send", "bob", "are you there?"]).expect(0);
    team.eventually("bob is another process", || {
        team.member("bob")["restarts"] == 1 && team.has_mail("bob", "user", "are you there?")
    });
    assert_eq!(last_exit(&team, "bob").0, "hung", "{}", team.describe());
    team.wait_status("bob", "idle");
    assert_ne!(team.pid_of("bob"), bob);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// Three of four members are stopped by SIGSTOP: one during a model call, one in a command that may take longer,
/// one idle without mail. The fourth is only slow.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn only_a_member_that_owes_a_heartbeat_is_hung() {
    let team = impatient();
    let long = (HUNG_AFTER + 4) * 1000;
    let lines = [
        calls("lead", &["alice", "bob", "carol", "dave"].map(spawn)),
        says("lead", "spawned"),
        json!({ "agent": "alice", "text": "late", "delay_ms": 600_000 }),
        calls("bob", &[bash("touch bob.here; sleep 1000")]),
        says("carol", "ready"),
        json!({ "agent": "dave", "text": "slow but well", "delay_ms": long }),
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "bob.here");
    // Her status is idle before her first turn, too, but then she has unread mail.
    team.eventually("carol's report is in", || team.has_mail("lead", "carol", "ready"));
    team.wait_status("carol", "idle");
    team.wait_status("alice", "working");
    team.eventually("bob says what he does", || {
        std::fs::read_to_string(team.path("run/.state/bob.beat"))
            .is_ok_and(|beat| beat.contains("tool:bash"))
    });
    let (bob, carol) = (team.pid_of("bob"), team.pid_of("carol"));
    for name in ["alice", "bob", "carol"] {
        stop_process(&team, name);
    }
    let stopped = Instant::now();
    team.eventually("alice is restarted", || team.member("alice")["restarts"] == 1);
    assert_eq!(last_exit(&team, "alice").0, "hung");
    team.eventually("dave was only slow", || team.has_mail("lead", "dave", "slow but well"));
    team.eventually("twice the time has passed", || {
        stopped.elapsed() > Duration::from_secs(u64::from(2 * HUNG_AFTER))
    });
    let shown = team.team(&["ls", "--json"]).expect(0).json();
    let silent = |name: &str| {
        let members = shown["members"].as_array().unwrap();
        members.iter().find(|member| member["name"] == name).unwrap()["silent_for"].clone()
    };
    assert!(silent("bob").as_f64().unwrap() > f64::from(HUNG_AFTER), "{shown}");
    assert!(silent("carol").is_null(), "who is idle owes nothing: {shown}");
    for (name, pid) in [("bob", bob), ("carol", carol)] {
        assert_eq!((team.pid_of(name), &team.member(name)["restarts"]), (pid, &json!(0)), "{name}");
        signal(pid, Signal::SIGCONT);
    }
    assert_eq!(team.member("dave")["restarts"], 0);
    lead.type_line("/quit");
    lead.expect("Stopping");
    lead.press("\u{3}");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// Lead and teammate are stopped together, as on a suspended laptop. Afterwards no member counts as hung.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn no_member_is_hung_after_the_whole_team_was_suspended() {
    let team = impatient();
    let lines = [
        calls("lead", &[spawn("bob")]),
        says("lead", "spawned"),
        json!({ "agent": "bob", "text": "bob's answer", "delay_ms": (2 * HUNG_AFTER + 4) * 1000 }),
    ];
    let mut lead = scripted_lead(&team, &lines);
    team.wait_status("bob", "working");
    team.wait_status("lead", "idle");
    let (bob, leader) = (team.pid_of("bob"), team.pid_of("lead"));
    signal(bob, Signal::SIGSTOP);
    signal(leader, Signal::SIGSTOP);
    let asleep = Instant::now();
    team.eventually("a long sleep", || {
        asleep.elapsed() > Duration::from_secs(u64::from(2 * HUNG_AFTER))
    });
    signal(leader, Signal::SIGCONT);
    signal(bob, Signal::SIGCONT);
    team.eventually("bob answers", || team.has_mail("lead", "bob", "bob's answer"));
    assert_eq!((team.pid_of("bob"), &team.member("bob")["restarts"]), (bob, &json!(0)));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn the_exit_of_a_manually_started_member_is_noticed() {
    let team = Team::new();
    let mut lead = lead(&team, "rehearsal");
    let mut bob = team.start(&["teammate", "bob", "--model", "rehearsal"]);
    team.wait_status("bob", "idle");
    kill_9(&team, "bob");
    wait(&team, &mut bob);
    team.wait_status("bob", "failed");
    assert_eq!(last_exit(&team, "bob").0, "crash");
    team.eventually("the lead is told", || {
        team.mail_of("lead").iter().any(|mail| mail["type"] == "teammate_terminated")
    });
    assert_eq!(team.member("bob")["restarts"], 0, "a lead restarts what it spawned");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}
