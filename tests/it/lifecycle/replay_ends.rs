//! `team replay`: the end of the play. It ends where the record ends or where the person did what is not played, at a
//! fault, at a signal; and it says why.

use super::replay::{alike, count, lines, replay, small_record};
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{bash, calls, headless, lead, says, script, signal, spawn};
use crate::support::terminal::Terminal;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

pub(super) const ESC: &str = "\x1b";

/// A delay that no test waits for.
const FOREVER_MS: u64 = 600_000;

/// Returns a reply that comes late.
fn late(reply: Value, delay_ms: u64) -> Value {
    let mut reply = reply;
    reply["delay_ms"] = json!(delay_ms);
    reply
}

pub(super) fn quit(team: &Team, mut lead: Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    team.wait_no_process();
}

pub(super) fn wait_for(team: &Team, name: &str, kind: &str, count: usize) {
    team.eventually(&format!("{name} has {count} of {kind}"), || {
        let lines = team.lines(&format!("transcript/{name}.jsonl"));
        lines.iter().filter(|line| line["kind"] == kind).count() >= count
    });
}

/// Plays the record with each origin of results. Asserts that it stops early for this reason.
pub(super) fn stops_early(team: &Team, why: &str) {
    for tools in ["real", "recorded"] {
        let outcome = alike(&replay(team, tools, &["--tools", tools]));
        let told = outcome["cut"].as_str().unwrap_or_default();
        assert!(told.contains(why) && told.contains("not played"), "{outcome:#}");
        assert!(count(&outcome, "lead") > 1, "{outcome:#}");
    }
    team.wait_no_process();
}

#[test]
fn a_turn_that_the_end_cut_off_is_cut_off_again() {
    for cut_in_call in [true, false] {
        let team = Team::new();
        let second = if cut_in_call {
            calls("lead", &[bash("touch here; sleep 600")])
        } else {
            late(says("lead", "never"), FOREVER_MS)
        };
        let lines_of_script = [
            calls("lead", &[spawn("alice")]),
            second,
            says("lead", "all done"),
            says("alice", "I am done"),
        ];
        let mut front = lead(&team, &script(&team, &lines_of_script));
        front.type_line("go");
        if cut_in_call {
            team.eventually("the command runs", || team.workspace().join("here").exists());
        } else {
            wait_for(&team, "lead", "tool_result", 1);
            // Between the result and the next call, the end would cut off another turn.
            team.eventually("the model is asked again", || {
                team.roster()["lead"]["activity"] == "model"
            });
        }
        wait_for(&team, "alice", "turn_end", 1);
        quit(&team, front);
        let end = |lines: &[Value]| {
            lines.iter().rfind(|line| line["kind"] == "turn_end").cloned().unwrap()
        };
        for tools in ["real", "recorded"] {
            alike(&replay(&team, tools, &["--tools", tools]));
            let end = end(&lines(&team, tools, "lead"));
            assert_eq!((&end["outcome"], &end["cut_off"]), (&json!("interrupted"), &json!(true)));
        }
        team.wait_no_process();
    }
}

#[test]
fn the_play_ends_before_a_turn_that_the_person_interrupts() {
    for who in ["lead", "alice"] {
        let team = Team::new();
        let mut front = lead(
            &team,
            &script(
                &team,
                &[
                    calls("lead", &[spawn("alice")]),
                    if who == "lead" {
                        calls("lead", &[bash("touch here; sleep 600")])
                    } else {
                        says("lead", "alice is at work")
                    },
                    says("lead", "I go on"),
                    if who == "alice" {
                        calls("alice", &[bash("touch here; sleep 600")])
                    } else {
                        says("alice", "I am done")
                    },
                    says("alice", "bye"),
                ],
            ),
        );
        front.type_line("go");
        team.eventually("the command runs", || team.workspace().join("here").exists());
        if who == "lead" {
            front.press(ESC);
        } else {
            wait_for(&team, "lead", "turn_end", 1);
            front.type_line("/interrupt alice");
        }
        wait_for(&team, who, "turn_end", 1);
        let rests = |name: &&str| team.status(name) == "idle";
        team.eventually("both rest", || ["lead", "alice"].iter().all(rests));
        quit(&team, front);
        stops_early(&team, &format!("{who} is interrupted there"));
    }
}

#[test]
fn the_play_ends_before_the_person_changes_a_task() {
    let team = Team::new();
    let task = ("create_task", json!({ "subject": "tidy up" }));
    let replies = [calls("lead", &[task]), says("lead", "made"), says("lead", "well")];
    let mut front = lead(&team, &script(&team, &replies));
    front.type_line("go");
    wait_for(&team, "lead", "turn_end", 1);
    team.team(&["task", "cancel", "1"]).expect(0);
    front.type_line("it is cancelled");
    wait_for(&team, "lead", "turn_end", 2);
    quit(&team, front);
    stops_early(&team, "the person changes task 1 there");
}

#[test]
fn the_play_ends_before_a_reply_after_which_a_member_was_killed() {
    std::thread::scope(|scope| {
        // After a reply with a call, after a result of two calls, and after the last reply of a turn.
        for point in ["turn.recorded", "tool.answered", "turn.ending"] {
            scope.spawn(move || {
                let team = Team::new();
                let tokens = tempfile::tempdir().unwrap();
                let token = tokens.path().join("token");
                write(&token, "");
                team.variable("TEAM_FAILPOINTS", &format!("alice/{point}={}", token.display()));
                team.variable("TEAM_FIRST_PAUSE_MS", "50");
                let replies = [
                    calls("lead", &[spawn("alice")]),
                    says("lead", "started"),
                    says("lead", "alice is done"),
                    calls("alice", &[bash("echo one"), bash("echo two")]),
                    says("alice", "done"),
                ];
                headless(&team, &script(&team, &replies), "go").expect(0);
                assert!(!token.exists(), "she was killed at {point}");
                stops_early(&team, "alice is killed there between two steps");
            });
        }
    });
}

#[test]
fn members_of_a_fork_go_on_with_their_models() {
    let team = Team::new();
    let words = |prompt| ["lead", "-p", prompt, "--model", "rehearsal"];
    team.team(&words("Spawn alice (coder). Ask her to run \"echo one\".")).expect(0);
    let outcome = alike(&replay(&team, "fork", &["--until", "1", "--fork"]));
    assert_eq!(outcome["forked"], true, "{outcome:#}");
    let ask = ["-C", "fork", "lead", "--resume", "-p", "Ask alice to run \"echo two\"."];
    let ran = team.team(&ask).expect(0);
    assert!(ran.out.contains("two"), "{}{}", ran.out, ran.err);
    let alice = lines(&team, "fork", "alice");
    let sessions = alice.iter().filter(|line| line["kind"] == "session");
    let models: Vec<_> = sessions.map(|line| line["model"].clone()).collect();
    assert_eq!(models, ["replay", "rehearsal"], "she went on live");
    team.wait_no_process();
}

#[test]
fn members_that_no_replay_can_start_are_refused() {
    let team = Team::new();
    small_record(&team);
    let path = team.path("config.json");
    let roster: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let place = json!({ "repository": "/r", "branch": "team/alice" });
    for (field, value, why) in [
        ("started_by", json!("hand"), "alice was started by hand"),
        ("work", place, "alice worked in a clone"),
    ] {
        let mut changed = roster.clone();
        changed["members"][0][field] = value;
        write(&path, changed.to_string());
        let ran = replay(&team, "new", &[]).expect(2);
        assert!(ran.err.contains(why), "{}", ran.err);
        assert!(!team.workspace().join("new").exists(), "nothing is made");
    }
}

#[test]
fn real_time_takes_as_long_as_the_record() {
    let team = Team::new();
    let model = script(
        &team,
        &[late(calls("lead", &[bash("echo one")]), 400), late(says("lead", "two"), 300)],
    );
    headless(&team, &model, "go").expect(0);
    alike(&replay(&team, "again", &["--real-time"]));
    let times = |lines: &[Value]| {
        let counted = lines.iter().filter(|line| {
            ["user", "assistant", "tool_start"].contains(&line["kind"].as_str().unwrap())
        });
        counted.map(|line| line["at"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let (old, new) =
        (times(&team.lines("transcript/lead.jsonl")), times(&lines(&team, "again", "lead")));
    assert_eq!(new.len(), old.len());
    // Each reply takes as long as it took; the steps between them are those of this machine.
    assert!(new[1] - new[0] >= 0.39 && new[3] - new[2] >= 0.29, "{old:?} {new:?}");
    team.wait_no_process();
}

#[test]
fn a_fault_kills_the_lead_which_comes_back_with_its_team() {
    let team = Team::new();
    team.variable("TEAM_FIRST_PAUSE_MS", "50");
    small_record(&team);
    let outcome = replay(&team, "again", &["--fault", "kill:lead@2"]).json();
    let lead = lines(&team, "again", "lead");
    let count = |kind: &str| lead.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!(count("session"), 2, "{outcome:#}");
    let recorded = team.lines("transcript/lead.jsonl");
    let replies = recorded.iter().filter(|line| line["kind"] == "assistant").count();
    assert_eq!(count("assistant"), replies, "each reply comes once: {outcome:#}");
    assert_eq!(fs::read_to_string(team.workspace().join("again/made.txt")).unwrap(), "made\n");
    team.wait_no_process();
}

#[test]
fn a_turn_that_was_ended_for_its_repetitions_is_ended_again() {
    let team = Team::new();
    let mut replies = vec![calls("lead", &[spawn("alice")]), says("lead", "started")];
    let missing = ("read_file", json!({ "path": "missing.txt" }));
    replies.extend((0..10).map(|_| calls("alice", std::slice::from_ref(&missing))));
    replies.push(says("lead", "alice was stopped"));
    headless(&team, &script(&team, &replies), "go").expect(0);
    let told = team.lines("transcript/lead.jsonl");
    let reason = "the same call of read_file returned the same result 10 times";
    assert!(told.iter().any(|line| line.to_string().contains(reason)), "{told:#?}");
    for tools in ["real", "recorded"] {
        alike(&replay(&team, tools, &["--tools", tools]));
    }
    team.wait_no_process();
}

#[test]
fn nothing_is_left_of_a_replay_that_is_interrupted_or_killed() {
    std::thread::scope(|scope| {
        let ends =
            [(Signal::SIGINT, Some(130)), (Signal::SIGTERM, Some(143)), (Signal::SIGKILL, None)];
        for (end, code) in ends {
            scope.spawn(move || ends_at(end, code));
        }
    });
}

/// Ends a replay by a signal, and asserts that its team ends, and that it has this exit code.
fn ends_at(end: Signal, code: Option<i32>) {
    let team = Team::new();
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "started"),
        says("lead", "alice is done"),
        calls("alice", &[bash("touch here; until test -e go; do sleep 0.05; done")]),
        says("alice", "I am done"),
    ];
    // The new folder begins without this file, so the command does not end there.
    write(&team.workspace().join("go"), "");
    headless(&team, &script(&team, &replies), "go").expect(0);
    let words = ["replay", ".", "--into", "again"];
    let mut command = team.command("team", &words);
    command.process_group(0).stdin(Stdio::null()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    let pid = i32::try_from(running.id()).unwrap();
    team.eventually("alice is at work", || team.workspace().join("again/here").exists());
    // A terminal signals the whole foreground group; other programs signal one process.
    if end == Signal::SIGINT {
        killpg(Pid::from_raw(pid), end).unwrap();
    } else {
        signal(pid, end);
    }
    let ran = running.wait_with_output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), code, "{said}");
    if code.is_some() {
        assert!(said.contains(&format!("{end} has ended it and its team")), "{said}");
        assert!(said.contains("what was played so far is in"), "{said}");
    }
    team.wait_no_process();
    assert!(team.workspace().join("again/.team").exists(), "what was played can be looked at");
}
