//! Spawning: limits, names in use, spawns under an old name, failed starts.

use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, listing, says, script, scripted_lead, spawn,
    tool_results, wait_file, wait_for_lead,
};
use serde_json::{Value, json};
use std::fs;

#[test]
fn no_more_than_max_teammates_run_at_once() {
    let team = Team::new();
    fs::create_dir(team.workspace().join(".team")).unwrap();
    write(&team.path("settings.toml"), "max_teammates = 2\n");
    let stop = ("shutdown_teammate", json!({ "name": "a1" }));
    let first = [spawn("a1"), spawn("a2"), spawn("a3"), stop, spawn("a3")];
    let model = script(&team, &[calls("lead", &first)]);
    headless(&team, &model, "begin").expect(0);
    let results = tool_results(&team, "lead");
    let failed: Vec<bool> = results.iter().map(|(_, _, error)| *error).collect();
    assert_eq!(failed, [false, false, true, false, false], "{results:?}");
    assert!(results[2].1.contains("max_teammates is 2"), "{results:?}");
    assert_left_in_order(&team);
}

/// A run whose last turn was cut is not a success.
#[test]
fn a_headless_run_that_max_rounds_cuts_ends_with_7() {
    let team = Team::new();
    fs::create_dir(team.workspace().join(".team")).unwrap();
    write(&team.path("settings.toml"), "max_rounds = 1\n");
    let model = script(&team, &[calls("lead", &[bash("echo one")]), says("lead", "never said")]);
    let words = ["lead", "-p", "begin", "--model", &model, "--mode", "bypass", "--output", "json"];
    let ran = team.team(&words).expect(7);
    let result = ran.json();
    assert_eq!((&result["outcome"], &result["exit_code"]), (&json!("budget"), &json!(7)));
    assert!(result["error"].as_str().unwrap().contains("a limit ended"), "{result}");
    assert!(result["result"].as_str().unwrap().contains("max_rounds"), "{result}");
}

#[test]
fn a_turn_without_end_is_ended_by_max_rounds() {
    let team = Team::new();
    fs::create_dir(team.workspace().join(".team")).unwrap();
    write(&team.path("settings.toml"), "max_rounds = 3\n");
    let mut lines = vec![calls("lead", &[spawn("bob")]), says("lead", "spawned")];
    lines.extend((0..6).map(|round| calls("bob", &[bash(&format!("echo {round} >> bob.txt"))])));
    let model = script(&team, &lines);
    headless(&team, &model, "begin").expect(0);
    assert_eq!(fs::read_to_string(team.workspace().join("bob.txt")).unwrap(), "0\n1\n2\n");
    assert!(team.has_mail("lead", "bob", "max_rounds"), "{}", team.describe());
    let ends = team.lines("transcript/bob.jsonl").into_iter();
    let ends: Vec<Value> = ends.filter(|line| line["kind"] == "turn_end").collect();
    assert_eq!((ends.len(), &ends[0]["outcome"]), (1, &json!("interrupted")), "{ends:?}");
    assert_left_in_order(&team);
}

#[test]
fn a_spawn_of_an_existing_name_depends_on_its_state() {
    let team = Team::without_walls();
    let in_mode = |mode: &str| {
        ("spawn_teammate", json!({ "name": "bob", "role": "w", "prompt": "go", "mode": mode }))
    };
    let mut lead = scripted_lead(
        &team,
        &[
            calls("lead", &[spawn("bob")]),
            says("lead", "spawned"),
            calls("bob", &[wait_for_lead()]),
            says("bob", "the first answer"),
            says("lead", "got the first"),
            // If bob is idle, his process is used again. If he is working, the spawn is an error.
            calls(
                "lead",
                &[
                    in_mode("plan"),
                    in_mode("bypass"),
                    bash("until [ -e bob.here ]; do sleep 0.05; done"),
                    spawn("bob"),
                ],
            ),
            calls("bob", &[bash("touch bob.here; until [ -e go ]; do sleep 0.05; done")]),
            says("lead", "it works"),
            says("bob", "the second answer"),
            says("lead", "got the second"),
            // If bob is shut down, a new process resumes his transcript.
            calls("lead", &[("shutdown_teammate", json!({ "name": "bob" })), spawn("bob")]),
            says("lead", "respawned"),
            calls("bob", &[bash("until [ -e again ]; do sleep 0.05; done")]),
            says("bob", "the third answer"),
            says("lead", "got the third"),
        ],
    );
    let turns = |count: u64| {
        team.eventually("the turn is over", || {
            team.roster()["lead"]["usage"]["turns"].as_u64() >= Some(count)
                && team.status("lead") == "idle"
        });
    };
    turns(2);
    let first = team.pid_of("bob");
    lead.type_line("once more");
    wait_file(&team, "bob.here");
    turns(3);
    write(&team.workspace().join("go"), "");
    turns(4);
    let results = tool_results(&team, "lead");
    assert!(results[1].1.contains("in another mode") && results[1].2, "{results:?}");
    assert!(results[2].1.contains("was idle") && !results[2].2, "{results:?}");
    assert!(results[4].1.contains("bob is working") && results[4].2, "{results:?}");
    assert_eq!(team.pid_of("bob"), first);
    let memory = fs::read_to_string(team.path("transcript/bob.jsonl")).unwrap();
    lead.type_line("and again");
    turns(5);
    write(&team.workspace().join("again"), "");
    turns(6);
    assert_ne!(team.pid_of("bob"), first);
    assert!(fs::read_to_string(team.path("transcript/bob.jsonl")).unwrap().starts_with(&memory));
    for answer in ["the first answer", "the second answer", "the third answer"] {
        assert!(team.has_mail("lead", "bob", answer), "{answer}: {}", team.describe());
    }
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// A failed start is a clear error, and leaves no roster entry, no inbox and no process.
#[test]
fn a_failed_start_leaves_nothing() {
    let team = Team::new();
    let broken = team.workspace().join("broken.jsonl");
    write(&broken, "this is no script\n");
    let on = |model: &str| {
        let input = json!({ "name": "bob", "role": "worker", "prompt": "begin", "model": model });
        ("spawn_teammate", input)
    };
    let script_of = |file: &str| format!("script:{}", team.workspace().join(file).display());
    let plan = json!({ "name": "bob", "role": "worker", "prompt": "begin", "mode": "free" });
    let tries = [
        on(&script_of("broken.jsonl")),
        on(&script_of("missing.jsonl")),
        on("anthropic/some-model"),
        on("nonsense"),
        ("spawn_teammate", plan),
    ];
    let model = script(&team, &[calls("lead", &tries)]);
    headless(&team, &model, "begin").expect(0);
    let results = tool_results(&team, "lead");
    for ((tool, text, error), says) in
        results.iter().zip(["broken.jsonl", "missing.jsonl", "credentials", "nonsense", "free"])
    {
        assert!(*error && tool == "spawn_teammate" && text.contains(says), "{says}: {text}");
    }
    assert_eq!(team.roster()["members"], json!([]));
    for file in listing(&team.workspace().join(".team")) {
        let harmless =
            file.starts_with("log/") || file.starts_with("run/") || file.starts_with("inbox/.lock");
        assert!(!file.contains("bob") || harmless, "{file} is left");
    }
    assert!(!team.path("inbox/bob.jsonl").exists());
    assert_left_in_order(&team);

    // The name can be used once the cause is gone. A member that has run before becomes `failed`.
    write(&broken, "{\"agent\":\"bob\",\"text\":\"well again\"}\n");
    let model = script(&team, &[calls("lead", &[on(&script_of("broken.jsonl"))])]);
    headless(&team, &model, "begin").expect(0);
    assert!(team.has_mail("lead", "bob", "well again"), "{}", team.describe());
    write(&broken, "this is no script\n");
    headless(&team, &model, "begin").expect(0);
    assert_eq!(team.status("bob"), "failed");
    assert_left_in_order(&team);
}
