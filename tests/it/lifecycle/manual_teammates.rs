//! Manually started teammates: without a lead, beside one, and after it has exited.

use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, calls, last_exit, lead, says, script, spawn, tool_results, wait,
};
use nix::sys::signal::Signal;
use serde_json::json;

#[test]
fn a_manual_teammate_works_without_a_lead_and_its_results_wait() {
    let team = Team::new();
    let model = script(&team, &[says("bob", "bob's first answer"), says("bob", "bob's second")]);
    let mut bob = team.start(&["teammate", "bob", "--role", "tester", "--model", &model]);
    team.wait_status("bob", "idle");
    assert_eq!(team.member("bob")["role"], "tester");
    team.team(&["send", "bob", "a question"]).expect(0);
    team.eventually("bob has answered", || {
        team.lines("inbox/lead.jsonl").iter().any(|mail| mail["content"] == "bob's first answer")
    });
    team.wait_status("bob", "idle");
    assert_eq!(team.team(&["teammate", "bob", "--model", &model]).expect(5).out, "");

    // A lead starts, receives the result, and leaves bob running when it exits.
    let pid = team.pid_of("bob");
    let stop = ("shutdown_teammate", json!({ "name": "bob" }));
    let lines =
        [calls("lead", &[stop, spawn("bob")]), says("lead", "seen"), says("bob", "bob's third")];
    let ran = crate::support::scripts::headless(&team, &script(&team, &lines), "begin").expect(0);
    assert!(ran.err.contains("bob (started by hand) is still running"), "{ran:#?}");
    assert!(team.has_mail("lead", "bob", "bob's first answer"), "{}", team.describe());
    let results = tool_results(&team, "lead");
    assert!(results[0].2 && results[0].1.contains("started by hand"), "{results:?}");
    assert!(!results[1].2 && results[1].1.contains("was idle"), "{results:?}");
    assert_eq!(team.pid_of("bob"), pid);
    team.wait_status("bob", "idle");
    assert!(team.has_mail("bob", "lead", "begin"), "it takes prompts like any other member");

    let ran = team.team(&["stop", "--all"]).expect(0);
    assert!(ran.out.contains("bob ended when asked"), "{ran:#?}");
    assert_eq!(wait(&team, &mut bob), Some(0));
    assert_eq!(last_exit(&team, "bob"), ("team_stopped".into(), Some(0), None));
    assert_left_in_order(&team);
}

#[test]
fn a_manual_teammate_outlives_a_killed_lead() {
    let team = Team::new();
    let mut first = lead(&team, "rehearsal");
    let mut bob = team.start(&["teammate", "bob", "--model", "rehearsal"]);
    team.wait_status("bob", "idle");
    first.type_line("Spawn alice (coder).");
    team.wait_status("alice", "idle");
    crate::support::scripts::kill_9(&team, "lead");
    first.wait();
    team.wait_status("alice", "shutdown");
    team.team(&["send", "bob", "Run the command `echo alive > bob.txt`"]).expect(0);
    crate::support::scripts::wait_file(&team, "bob.txt");
    team.wait_status("bob", "idle");
    let mut next = lead(&team, "rehearsal");
    next.expect("bob (started by hand) is still running");
    next.type_line("/stop bob");
    next.expect("bob ended when asked");
    assert_eq!(wait(&team, &mut bob), Some(0));
    next.type_line("/quit");
    assert_eq!(next.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn once_exits_after_its_turn_and_signals_have_their_exit_codes() {
    let team = Team::new();
    let bob = [
        "teammate",
        "bob",
        "--model",
        "rehearsal",
        "--prompt",
        "Run the command `echo x > once.txt`",
    ];
    team.team(&[&bob[..], &["--once"]].concat()).expect(0);
    assert!(team.workspace().join("once.txt").exists());
    assert_eq!(
        (team.status("bob"), last_exit(&team, "bob").0),
        ("shutdown".into(), "stopped".into())
    );
    assert_left_in_order(&team);
    for (kind, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 143)] {
        let mut bob = team.start(&["teammate", "bob", "--model", "rehearsal"]);
        team.wait_status("bob", "idle");
        crate::support::scripts::signal(team.pid_of("bob"), kind);
        assert_eq!(wait(&team, &mut bob), Some(code), "{kind}");
        assert_eq!(last_exit(&team, "bob"), ("stopped".into(), Some(code.into()), None), "{kind}");
    }
    team.team(&["teammate", "bob"]).expect(4);
    team.team(&["teammate", "bob", "--model", "rehearsal", "--mode", "free"]).expect(2);
    assert_left_in_order(&team);
}

#[test]
fn a_failed_start_leaves_no_entry() {
    let team = Team::new();
    let model = script(&team, &[says("bob", "here")]);
    let refused = |words: &str| {
        let ran = team.team(&["teammate", "bob", "--once", "--prompt", "go", "--model", &model]);
        assert!(ran.code == Some(1) && ran.err.contains(words), "{ran:#?}");
    };
    // Its inbox cannot be opened, which is after its entry was written.
    let inbox = team.path("inbox/bob.jsonl");
    std::fs::create_dir_all(&inbox).unwrap();
    refused("bob.jsonl is a folder");
    assert_eq!(team.roster()["members"], json!([]));
    std::fs::remove_dir(&inbox).unwrap();
    team.team(&["teammate", "bob", "--once", "--prompt", "go", "--model", &model]).expect(0);
    let before = team.member("bob");
    std::fs::remove_file(&inbox).unwrap();
    std::fs::create_dir(&inbox).unwrap();
    refused("bob.jsonl is a folder");
    assert_eq!(team.member("bob"), before);
}
