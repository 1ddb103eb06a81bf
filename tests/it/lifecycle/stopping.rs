//! The shutdown ladder, run by commands and by tools, on members in every state.

use crate::support::child_process::write;
use crate::support::harness::{ASK_DEADLINE, SHORTEST_DEADLINE, Team};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, last_exit, lead, says, scripted_lead, spawn, stop_process,
    tool_results, wait_file,
};
use agent_team::store::failpoint::{HANG, VARIABLE};
use agent_team::wire::limits::STOP_NOW_TERMINATE;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::time::Instant;

/// The outcome of a member in the output of `team stop --json`.
fn how(stopped: &Value, name: &str) -> String {
    let all = stopped["stopped"].as_array().unwrap();
    let one = all.iter().find(|one| one["name"] == name).unwrap();
    one["how"].as_str().unwrap().to_owned()
}

/// One ladder stops members that are idle, finish soon, run a command that ignores SIGTERM, or are stopped by
/// SIGSTOP.
#[test]
fn one_ladder_stops_members_in_every_state() {
    let team = Team::new();
    let ignores_sigterm =
        "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 1000\" & touch bob.here; sleep 1000";
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("alice"), spawn("bob"), spawn("carol"), spawn("dave")]),
            says("alice", "ready"),
            calls("bob", &[bash(ignores_sigterm)]),
            says("carol", "ready"),
            calls("dave", &[bash("touch dave.here; sleep 2; echo finished > dave.done")]),
            says("dave", "dave's last report"),
        ],
    );
    wait_file(&team, "bob.here");
    wait_file(&team, "dave.here");
    team.wait_status("alice", "idle");
    team.wait_status("carol", "idle");
    stop_process(&team, "carol");

    let began = Instant::now();
    let ran = team.team(&["stop", "alice", "bob", "carol", "dave", "--json"]).expect(0);
    let took = began.elapsed();
    assert!(took < 2 * ASK_DEADLINE, "one ladder bounds them all: {took:?}");
    let stopped = ran.json();
    assert_eq!(how(&stopped, "alice"), "ended when asked");
    assert_eq!(how(&stopped, "dave"), "ended when asked");
    assert_eq!(how(&stopped, "bob"), "ended on SIGTERM");
    assert_eq!(how(&stopped, "carol"), "ended on SIGTERM");
    assert!(team.workspace().join("dave.done").exists(), "the running tool was finished");
    assert!(team.has_mail("lead", "dave", "dave's last report"), "{}", team.describe());
    for (name, code) in [("alice", 0), ("dave", 0), ("bob", 143)] {
        assert_eq!(team.status(name), "shutdown");
        assert_eq!(last_exit(&team, name), ("stopped".into(), Some(code), None), "{name}");
    }
    assert_eq!(last_exit(&team, "carol").0, "stopped");
    team.eventually("everybody asked has answered", || {
        let answers = team.mail_of("user").into_iter();
        let agreed: Vec<Value> = answers
            .filter(|mail| mail["type"] == "shutdown_response" && mail["approve"] == true)
            .collect();
        ["alice", "dave"].iter().all(|name| agreed.iter().any(|mail| mail["from"] == *name))
    });
    team.wait_status("lead", "idle");
    team.team(&["send", "alice", "too late"]).expect(1);
    assert!(team.team(&["stop", "alice"]).expect(0).out.contains("was not running"));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn stop_now_skips_the_request_and_kills_members_that_ignore_signals() {
    let team = Team::new();
    // Carol's process hangs after the first reply of her model and handles no signal.
    let hang = team.workspace().join("hang");
    write(&hang, HANG);
    team.variable(VARIABLE, &format!("carol/turn.replied={}", hang.display()));
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("bob"), spawn("carol")]),
            calls("bob", &[bash("setsid sleep 1000 & touch bob.here; sleep 1000")]),
            says("carol", "never recorded"),
        ],
    );
    wait_file(&team, "bob.here");
    team.eventually("carol hangs", || !hang.exists());
    let bobs = team.team(&["stop", "bob", "--now", "--json"]).expect(0).json();
    assert_eq!(how(&bobs, "bob"), "ended on SIGTERM");
    // The deadlines of the contract.
    team.variable(SHORTEST_DEADLINE, "0");
    let began = Instant::now();
    let ran = team.team(&["stop", "carol", "--now", "--json"]);
    let took = began.elapsed();
    assert!((STOP_NOW_TERMINATE..ASK_DEADLINE).contains(&took), "{took:?}");
    let stopped = ran.expect(0).json();
    assert_eq!(how(&stopped, "carol"), "had to be killed");
    assert_eq!(last_exit(&team, "bob"), ("stopped".into(), Some(143), None));
    assert_eq!(last_exit(&team, "carol"), ("stopped".into(), None, Some(9)));
    team.eventually("only the lead runs", || {
        team.processes().iter().all(|(_, line)| line.contains("/team lead "))
    });
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn stop_all_ends_the_lead_last() {
    let team = Team::new();
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("alice"), spawn("bob")]),
            says("alice", "ready"),
            calls("bob", &[bash("touch bob.here; sleep 2")]),
            says("bob", "done"),
        ],
    );
    wait_file(&team, "bob.here");
    team.wait_status("alice", "idle");
    team.wait_status("lead", "idle");
    let began = Instant::now();
    let ran = team.team(&["stop", "--all", "--json"]).expect(0);
    let took = began.elapsed();
    let stopped = ran.json();
    let names: Vec<&str> = stopped["stopped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.last(), Some(&"lead"), "{stopped}");
    assert_eq!(how(&stopped, "bob"), "ended when asked");
    assert!(took < ASK_DEADLINE, "an idle lead needs no deadline: {took:?}");
    assert_eq!(lead.wait().code(), Some(143));
    for name in ["alice", "bob"] {
        assert_eq!(
            (team.status(name), last_exit(&team, name).0),
            ("shutdown".into(), "team_stopped".into())
        );
    }
    assert_eq!(team.status("lead"), "shutdown");
    assert_left_in_order(&team);
    assert_eq!(team.team(&["stop", "--all"]).expect(0).out.matches("was not running").count(), 2);
}

/// A lead without teammates is in a long turn. `team stop --all` sends it no mail and does not wait for the turn.
#[test]
fn stop_all_does_not_wait_for_a_working_lead() {
    let team = Team::new();
    let mut lead = scripted_lead(&team, &[calls("lead", &[bash("touch lead.here; sleep 1000")])]);
    wait_file(&team, "lead.here");
    let began = Instant::now();
    let stopped = team.team(&["stop", "--all", "--json"]).expect(0).json();
    assert!(began.elapsed() < ASK_DEADLINE, "{:?}", began.elapsed());
    assert_eq!(how(&stopped, "lead"), "ended when asked");
    assert_eq!(lead.wait().code(), Some(143));
    assert_eq!(team.mail_of("lead").len(), 0);
    assert_left_in_order(&team);

    let mut lead = crate::support::scripts::lead(&team, "rehearsal");
    let stopped = team.team(&["stop", "--all", "--now", "--json"]).expect(0).json();
    assert_eq!(how(&stopped, "lead"), "ended on SIGTERM");
    assert_eq!(lead.wait().code(), Some(143));
    assert_eq!(team.status("lead"), "shutdown");
    assert_left_in_order(&team);
}

#[test]
fn a_second_stop_does_not_wait() {
    let team = Team::new();
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("bob")]),
            says("lead", "spawned"),
            calls("bob", &[bash("touch here; sleep 1000")]),
        ],
    );
    wait_file(&team, "here");
    let before = Instant::now();
    lead.type_line("/stop bob");
    team.wait_status("bob", "stopping");
    lead.type_line("/stop bob");
    lead.expect("no longer waiting for bob");
    lead.expect("bob ended on SIGTERM");
    assert!(before.elapsed() < ASK_DEADLINE, "{:?}", before.elapsed());
    assert_eq!(lead.printed().matches("bob ended").count(), 1, "{}", lead.printed());
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

#[test]
fn the_model_and_the_person_stop_members_by_name() {
    let team = Team::new();
    let stop = |name: &str| ("shutdown_teammate", json!({ "name": name, "reason": "enough" }));
    let mut lead = scripted_lead(
        &team,
        &[
            calls(
                "lead",
                &[spawn("alice"), spawn("bob"), stop("alice"), stop("alice"), stop("nobody")],
            ),
            says("alice", "ready"),
            says("bob", "ready"),
        ],
    );
    team.eventually("the lead's calls are answered", || tool_results(&team, "lead").len() == 5);
    let results = tool_results(&team, "lead");
    assert!(results[2].1.contains("ended when asked") && !results[2].2, "{results:?}");
    assert!(results[3].1.contains("was not running"), "{results:?}");
    assert!(results[4].1.contains("there is no teammate nobody") && results[4].2, "{results:?}");
    assert_eq!(last_exit(&team, "alice"), ("stopped".into(), Some(0), None));
    team.wait_status("bob", "idle");
    lead.type_line("/stop bob");
    team.wait_status("bob", "shutdown");
    lead.expect("bob ended when asked");
    assert_eq!(last_exit(&team, "bob").0, "stopped");
    lead.type_line("/stop bob");
    lead.expect("bob was not running");
    lead.type_line("/stop lead");
    lead.expect("/quit");
    lead.type_line("/stop nobody");
    lead.expect("there is no teammate nobody");
    team.wait_status("lead", "idle");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    let told =
        team.mail_of("lead").into_iter().filter(|mail| mail["type"] == "teammate_terminated");
    assert_eq!(told.count(), 0, "who stops somebody needs no news of it");
    assert_left_in_order(&team);
}

/// Forged requests have no effect. A request counts only if it names this incarnation and comes from a sender that
/// the contract allows.
#[test]
fn forged_late_and_foreign_requests_change_nothing() {
    let team = Team::new();
    let mut lead = lead(&team, "rehearsal");
    lead.type_line("Spawn bob (tester).");
    // Bob's status is idle before his first turn, too.
    team.eventually("bob has done its first turn", || {
        team.status("bob") == "idle" && team.member("bob")["usage"]["turns"] == 1
    });
    let pid = team.pid_of("bob");
    let life = team.member("bob")["incarnation"].clone();
    let request = |fields: Value| {
        let mut line = json!({ "type": "shutdown_request", "content": "", "to": "bob" });
        line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        line
    };
    let lines = [
        request(json!({ "from": "lead" })),
        request(json!({ "from": "lead", "request_id": "r1" })),
        request(json!({ "from": "lead", "incarnation": life })),
        request(json!({ "from": "lead", "request_id": "r2", "incarnation": "an earlier life" })),
        request(json!({ "from": "alice", "request_id": "r3", "incarnation": life })),
        request(json!({ "from": "bob", "request_id": "r4", "incarnation": life })),
        request(json!({ "request_id": "r5", "incarnation": life })),
        json!({ "type": "shutdown_response", "from": "lead", "request_id": "r6", "approve": true }),
    ];
    let mut inbox = fs::OpenOptions::new().append(true).open(team.path("inbox/bob.jsonl")).unwrap();
    for line in &lines {
        inbox.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    drop(inbox);
    team.eventually("bob has seen them all", || team.mail_of("bob").len() >= lines.len());
    team.eventually("each was logged", || {
        let log = team.lines("log/bob.jsonl");
        let count = |text: &str, kind: Value| {
            let said = |line: &&Value| line["message"].as_str().is_some_and(|it| it.contains(text));
            log.iter().filter(said).filter(|line| line["kind"] == kind).count()
        };
        let ignored = count("was not acted on", Value::Null);
        ignored == lines.len() - 1 && count("mail taken in", "shutdown_response".into()) == 1
    });
    team.wait_status("bob", "idle");
    assert_eq!(team.pid_of("bob"), pid);
    // A response without a request.
    let forged = json!({ "type": "shutdown_response", "from": "bob", "request_id": "r1", "approve": true,
        "content": "", "incarnation": life });
    let mut inbox =
        fs::OpenOptions::new().append(true).open(team.path("inbox/lead.jsonl")).unwrap();
    inbox.write_all(format!("{forged}\n").as_bytes()).unwrap();
    drop(inbox);
    team.eventually("the lead has it", || team.has_mail("lead", "bob", ""));
    lead.type_line("Ask bob to run the command `echo still here > bob.txt`.");
    wait_file(&team, "bob.txt");
    assert_eq!(team.pid_of("bob"), pid);
    team.team(&["send", "bob", "bye", "--type", "shutdown_request"]).expect(2);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}
