//! Restarts of teammates after a crash, and exits without a restart.

use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, last_exit, lead, says, script, scripted_lead,
    signal, spawn, tool_results, turns, wait, wait_file, wait_tool,
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The variable for the pause before the first restart, in milliseconds.
const FIRST_PAUSE: &str = "TEAM_FIRST_PAUSE_MS";

/// A pause in milliseconds that exceeds the duration of any test.
const NEVER: &str = "3600000";

fn terminated(team: &Team, name: &str) -> Vec<Value> {
    let mail = team.mail_of("lead").into_iter();
    mail.filter(|mail| mail["type"] == "teammate_terminated" && mail["name"] == name).collect()
}

fn notes(team: &Team, name: &str) -> String {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    let notes = lines.iter().filter(|line| line["kind"] == "note");
    notes.filter_map(|note| note["content"].as_str()).collect::<Vec<_>>().join("\n")
}

/// A lead with bob, who runs an endless command and, after a restart, sends a report.
fn bob_at_work() -> Vec<Value> {
    vec![
        calls("lead", &[spawn("bob")]),
        says("lead", "spawned"),
        calls("bob", &[bash("touch bob.here; sleep 1000")]),
        says("bob", "bob is back"),
    ]
}

#[test]
fn a_crashed_teammate_is_restarted_with_its_transcript_and_mail() {
    let team = Team::new();
    team.variable(FIRST_PAUSE, "50");
    let mut lead = scripted_lead(&team, &bob_at_work());
    wait_file(&team, "bob.here");
    team.wait_status("lead", "idle");
    let bob = team.pid_of("bob");
    team.team(&["send", "bob", "it waits"]).expect(0);
    kill_9(&team, "bob");
    team.eventually("bob reports", || team.has_mail("lead", "bob", "bob is back"));
    team.wait_status("bob", "idle");
    assert_ne!(team.pid_of("bob"), bob);
    assert_eq!(team.member("bob")["restarts"], 1);
    assert!(team.has_mail("bob", "user", "it waits"), "{}", team.describe());
    let told = notes(&team, "bob");
    assert!(told.contains("your process crashed and was restarted"), "{told}");
    assert!(told.contains("in the middle of a turn (during bash)"), "{told}");
    assert!(told.contains("the message that comes next is older than this start"), "{told}");
    let results = tool_results(&team, "bob");
    assert!(results[0].1.contains("state unknown") && results[0].2, "{results:?}");
    assert!(terminated(&team, "bob").is_empty(), "nobody is gone");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// Bob is killed during the model call for a message that he has received and not answered.
#[test]
fn a_turn_that_mail_began_is_resumed() {
    let team = Team::new();
    team.variable(FIRST_PAUSE, "50");
    let slow =
        serde_json::json!({ "agent": "bob", "text": "thought about it", "delay_ms": 600_000 });
    let lines = [calls("lead", &[spawn("bob")]), says("lead", "spawned"), slow];
    let mut lead = scripted_lead(&team, &lines);
    team.eventually("bob has taken his prompt in", || team.has_mail("bob", "lead", "begin"));
    team.wait_status("bob", "working");
    // A process reads the script at its start.
    script(&team, &[&lines[..2], &[says("bob", "thought about it")]].concat());
    kill_9(&team, "bob");
    team.eventually("bob reports", || team.has_mail("lead", "bob", "thought about it"));
    assert_eq!(team.mail_of("bob").len(), 1, "{}", team.describe());
    assert_eq!(team.member("bob")["restarts"], 1);
    team.wait_status("bob", "idle");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_crash_loop_is_given_up_and_reported_once() {
    let team = Team::new();
    team.variable(FIRST_PAUSE, "20");
    let lines = [calls("lead", &[spawn("bob")]), says("lead", "spawned"), says("bob", "ready")];
    let mut lead = scripted_lead(&team, &lines);
    team.wait_status("bob", "idle");
    for restarts in 1..=5 {
        kill_9(&team, "bob");
        team.eventually("bob is back", || {
            team.member("bob")["restarts"] == restarts && team.status("bob") == "idle"
        });
        assert!(terminated(&team, "bob").is_empty());
    }
    kill_9(&team, "bob");
    team.wait_status("bob", "failed");
    team.eventually("the lead is told", || !terminated(&team, "bob").is_empty());
    let told = terminated(&team, "bob");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((&told[0]["cause"], &told[0]["exit"]), (&"crash".into(), &"signal 9".into()));
    let content = told[0]["content"].as_str().unwrap();
    assert!(content.contains("5 times within 60 s"), "{content}");
    team.team(&["send", "bob", "nobody is there"]).expect(1);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_stopped_member_is_not_restarted() {
    let team = Team::new();
    team.variable("TEAM_RESTART", "always");
    team.variable(FIRST_PAUSE, "20");
    let lines = [
        calls("lead", &[spawn("alice"), spawn("bob")]),
        says("lead", "spawned"),
        says("alice", "ready"),
        says("bob", "ready"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    team.wait_status("alice", "idle");
    team.wait_status("bob", "idle");
    signal(team.pid_of("alice"), Signal::SIGTERM);
    team.team(&["stop", "bob"]).expect(0);
    team.eventually("alice is gone", || team.status("alice") == "shutdown");
    team.eventually("the lead has seen both ends", || {
        let log = team.lines("log/lead.jsonl");
        log.iter().filter(|line| line["message"] == "teammate ended").count() == 2
    });
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    // Only a stop by name keeps a member out of a resumed team.
    for (name, cause) in [("alice", "team_stopped"), ("bob", "stopped")] {
        assert_eq!(
            (team.status(name), last_exit(&team, name).0),
            ("shutdown".into(), cause.into())
        );
        assert_eq!(team.member(name)["restarts"], 0, "{name}");
    }
    assert_left_in_order(&team);
}

#[test]
fn a_stop_cancels_a_pending_restart_and_a_spawn_starts_it_now() {
    let team = Team::new();
    team.variable(FIRST_PAUSE, NEVER);
    let names = ["alice", "bob", "carol"];
    let mut lines = vec![
        calls("lead", &names.map(spawn)),
        says("lead", "spawned"),
        says("lead", "noted"),
        says("lead", "noted"),
        says("lead", "noted"),
    ];
    lines.extend(names.map(|name| says(name, "ready")));
    lines.push(calls("lead", &[spawn("carol")]));
    let mut lead = scripted_lead(&team, &lines);
    for name in names {
        team.wait_status(name, "idle");
    }
    team.eventually("all results are noted", || {
        names.iter().all(|name| team.has_mail("lead", name, "ready"))
            && team.status("lead") == "idle"
    });
    for name in names {
        kill_9(&team, name);
        team.wait_status(name, "starting");
        lead.expect("restarting (crash)");
        assert_eq!(last_exit(&team, name), ("crash".into(), None, Some(9)));
        // It has no process, but accepts mail because a live lead is about to restart it.
        if name == "carol" {
            team.team(&["send", "carol", "it waits"]).expect(0);
        }
    }
    let ran = team.team(&["stop", "alice"]).expect(0);
    assert!(ran.out.contains("alice was not running"), "{ran:?}");
    assert_eq!(
        (team.status("alice"), last_exit(&team, "alice").0),
        ("shutdown".into(), "stopped".into())
    );
    team.team(&["send", "alice", "too late"]).expect(1);
    lead.type_line("/stop bob");
    lead.expect("bob was not running");
    team.wait_status("bob", "shutdown");
    lead.type_line("more");
    team.eventually("carol is back at once", || {
        team.status("carol") == "idle" || team.status("carol") == "working" || {
            // The position in the script depends on the number of results that came in one turn.
            lead.type_line("more");
            false
        }
    });
    // If carol were killed before her turn, her prompt would stay unread, because no restart follows.
    team.eventually("carol has done what she was told", || {
        // The order and the message are handled in one turn or in two.
        turns(&team, "carol") >= 2
            && team.has_mail("carol", "user", "it waits")
            && team.mail_of("carol").len() == 3
            && team.status("carol") == "idle"
    });
    kill_9(&team, "carol");
    team.wait_status("carol", "starting");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_eq!(
        (team.status("carol"), last_exit(&team, "carol").0),
        ("shutdown".into(), "team_stopped".into())
    );
    assert_left_in_order(&team);
}

#[test]
fn a_headless_run_waits_for_a_restart() {
    let team = Team::new();
    let model = script(&team, &bob_at_work());
    let mut lead = team.start(&["lead", "-p", "begin", "--model", &model]);
    wait_tool(&team, "bob", "bash");
    wait_file(&team, "bob.here");
    team.wait_status("lead", "idle");
    kill_9(&team, "bob");
    assert_eq!(wait(&team, &mut lead), Some(0));
    assert!(team.has_mail("lead", "bob", "bob is back"), "{}", team.describe());
    assert_left_in_order(&team);
}

/// The lead stays responsive while a spawn waits for the lock of the roster, which another process holds.
#[test]
fn a_held_roster_does_not_stop_the_lead() {
    let team = Team::new();
    let mut lead = lead(&team, &script(&team, &[calls("lead", &[spawn("bob")])]));
    let held = std::fs::File::open(team.path("run/.state/config.lock")).unwrap();
    fs4::FileExt::lock(&held).unwrap();
    lead.type_line("begin");
    wait_tool(&team, "lead", "spawn_teammate");
    lead.type_line("/help");
    lead.expect("@");
    lead.type_line("/mode");
    lead.expect("mode bypass: tools run");
    assert!(tool_results(&team, "lead").is_empty(), "it still waits for the roster");
    fs4::FileExt::unlock(&held).unwrap();
    team.wait_status("bob", "idle");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}
