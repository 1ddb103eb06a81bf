//! `team lead -p`: its exit codes, the sources of the prompt, its output.

use crate::support::child_process::write;
use crate::support::harness::{ASK_DEADLINE, Team, in_parallel};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, last_exit, listing, says, script, signal, spawn,
    stop_process, until_mail, wait, wait_file, wait_for_lead,
};
use crate::support::terminal::Terminal;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Instant;

#[test]
fn usage_errors_start_nothing() {
    let team = Team::new();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["lead", "-p"], 2, "-p needs a prompt"),
        (&["lead", "-p", "hi", "--model", "rehearsal", "--mode", "free"], 2, "bypass"),
        (&["lead", "-p", "hi"], 4, "no model is configured"),
        (&["lead", "-p", "-", "--model", "rehearsal"], 2, "the prompt is empty"),
        (&["lead", "-p", " ", "--model", "rehearsal"], 2, "the prompt is empty"),
        (&["lead", "--output", "json"], 2, "--print"),
        (&["lead", "-p", "hi", "--model", "rehearsal", "--timeout", "soon"], 2, "--timeout"),
        (&["lead", "-p", "hi", "--model", "no-such-provider/x"], 2, "no-such-provider"),
    ];
    for (args, code, text) in cases {
        let ran = team.team(args).expect(code);
        assert!(ran.err.contains(text), "{ran:#?}");
        assert_eq!(ran.out, "");
        assert!(
            listing(team.workspace()).is_empty(),
            "{args:?} made {:?}",
            listing(team.workspace())
        );
    }
}

/// A line that arrives during a turn belongs to that turn. It must not keep the lead from its end.
#[test]
fn a_prompt_from_a_pipe_during_a_turn_does_not_delay_the_end() {
    let team = Team::new();
    let wait = bash("touch begun; until [ -e over ]; do sleep 0.05; done");
    let model = script(&team, &[calls("lead", &[wait]), says("lead", "one"), says("lead", "two")]);
    let line = format!(
        "(echo first; until [ -e begun ]; do sleep 0.05; done; echo second; sleep 1; touch over) | \
         team lead --model {model} --timeout 30"
    );
    let ran = team.shell(&line).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}\n{}", team.describe());
    let turns =
        team.lines("transcript/lead.jsonl").iter().filter(|it| it["kind"] == "turn_end").count();
    assert_eq!(turns, 1, "the turn took the second line in: {}", team.describe());
    assert_left_in_order(&team);
}

#[test]
fn a_run_that_cannot_start_has_a_result_for_programs() {
    let team = Team::new();
    let ran = team.team(&["lead", "-p", "hi", "--output", "json"]).expect(4);
    let result = ran.json();
    assert_eq!((&result["outcome"], &result["exit_code"]), (&json!("not_started"), &json!(4)));
    let error = result["error"].as_str().unwrap();
    assert!(error.contains("no model is configured") && ran.err.contains("now: "), "{ran:#?}");
}

/// The end of the input is no reason to leave what was read undone.
#[test]
fn a_prompt_from_a_pipe_is_carried_out() {
    for _ in 0..10 {
        let team = Team::new();
        let ran = team.team_with_input(&["lead", "--model", "rehearsal"], "Run touch here\n");
        assert_eq!(ran.code, Some(0), "{ran:#?}");
        assert!(team.workspace().join("here").exists(), "{}", team.describe());
    }
}

#[test]
fn a_prompt_from_stdin_and_the_three_outputs() {
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "first"),
        calls("alice", &[wait_for_lead()]),
        says("alice", "alice's result"),
        says("lead", "the last text"),
    ];
    let run = |output: &str| {
        let team = Team::without_walls();
        let model = script(&team, &lines);
        let words = ["lead", "-p", "-", "--model", &model, "--output", output];
        let ran = team.team_with_input(&words, "do it\n").expect(0);
        let transcript = team.lines("transcript/lead.jsonl");
        let asked = transcript.iter().find(|line| line["kind"] == "user").unwrap();
        assert_eq!(asked["content"], "do it\n");
        assert_left_in_order(&team);
        ran
    };
    let ran = run("text");
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("the last text\n", ""));

    let result = run("json").json();
    assert_eq!(result["type"], "result");
    assert_eq!(result["schema"], 1);
    assert_eq!((&result["outcome"], &result["exit_code"]), (&json!("done"), &json!(0)));
    assert_eq!((&result["result"], &result["error"]), (&json!("the last text"), &Value::Null));
    let alice = &result["members"][0];
    assert_eq!((&alice["name"], &alice["status"]), (&json!("alice"), &json!("shutdown")));

    let stream = run("stream-json");
    let events: Vec<Value> =
        stream.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for kind in ["turn_started", "text", "tool_started", "tool_ended", "turn_ended", "mail", "idle"]
    {
        assert!(kinds.contains(&kind), "{kind} is missing in {kinds:?}");
    }
    assert_eq!(kinds.iter().filter(|kind| **kind == "result").count(), 1);
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["result"]), (&json!("result"), &json!("the last text")));
}

#[test]
fn a_failed_last_turn_and_unusable_models_have_their_codes() {
    let team = Team::new();
    let code = |error: &str, code: i32| {
        let lines = [says("lead", "fine so far"), json!({ "error": error })];
        let model = script(&team, &lines[1..]);
        let ran = headless(&team, &model, "begin").expect(code);
        assert!(ran.err.contains("error: "), "{ran:#?}");
        assert_left_in_order(&team);
    };
    for (error, exit) in [
        ("rejected", 3),
        ("context_full", 3),
        ("credentials", 4),
        ("unavailable", 6),
        ("spend_cap", 6),
    ] {
        code(error, exit);
    }
}

/// A run in which the lead's command is endless, and bob runs the given command.
fn endless(team: &Team, bob: &str) -> Child {
    let hang = "setsid sleep 1000 & touch lead.here; sleep 1000";
    let bob = format!("setsid sleep 1000 & touch bob.here; {bob}");
    let model = script(
        team,
        &[
            calls("lead", &[spawn("bob"), bash(hang)]),
            calls("bob", &[bash(&bob)]),
            says("bob", "bob's last words"),
        ],
    );
    let run = team.start(&["lead", "-p", "begin", "--model", &model, "--output", "json"]);
    wait_file(team, "lead.here");
    wait_file(team, "bob.here");
    run
}

/// The JSON result that a run has printed.
fn result(run: &mut Child) -> Value {
    let mut out = String::new();
    run.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    serde_json::from_str(&out).unwrap()
}

#[test]
fn signals_end_a_run_gracefully_and_a_storm_is_one_signal() {
    in_parallel(
        [(Signal::SIGINT, 130, 1), (Signal::SIGTERM, 143, 1000), (Signal::SIGHUP, 143, 2)],
        |(kind, code, times)| {
            let team = Team::new();
            let mut run = endless(&team, "sleep 2");
            let pid = team.pid_of("lead");
            for _ in 0..times {
                signal(pid, kind);
            }
            assert_eq!(wait(&team, &mut run), Some(code), "{kind}");
            let result = result(&mut run);
            assert_eq!(result["outcome"], "interrupted");
            assert_eq!(result["exit_code"], code);
            assert!(
                team.has_mail("lead", "bob", "bob's last words"),
                "{kind}: {}",
                team.describe()
            );
            assert_eq!(last_exit(&team, "bob"), ("team_stopped".into(), Some(0), None), "{kind}");
            assert_left_in_order(&team);
        },
    );
}

#[test]
fn a_second_interrupt_stops_members_without_waiting() {
    let team = Team::new();
    let mut run = endless(&team, "sleep 1000");
    let pid = team.pid_of("lead");
    signal(pid, Signal::SIGINT);
    team.wait_status("bob", "stopping");
    let began = Instant::now();
    signal(pid, Signal::SIGINT);
    assert_eq!(wait(&team, &mut run), Some(130));
    assert!(began.elapsed() < ASK_DEADLINE, "{:?}", began.elapsed());
    assert_eq!(result(&mut run)["exit_code"], 130);
    assert_eq!(last_exit(&team, "bob").0, "team_stopped");
    assert_left_in_order(&team);
}

#[test]
fn a_timeout_stops_the_team() {
    let asked = until_mail("bob", "shutdown_request");
    let lines = [
        calls("lead", &[spawn("bob"), bash("sleep 1000")]),
        calls("bob", &[bash(&format!("touch bob.here; {asked}; touch bob.done"))]),
        says("bob", "just in time"),
    ];
    // On a loaded machine, bob is not at work after two seconds.
    let was_at_work = ["2s", "8s", "32s"].iter().any(|timeout| {
        let team = Team::without_walls();
        let model = script(&team, &lines);
        let args = ["lead", "-p", "begin", "--model", &model, "--timeout", timeout];
        let ran = team.team(&args).expect(124);
        assert!(ran.err.contains("--timeout passed"), "{ran:#?}");
        assert_left_in_order(&team);
        let exists = |file: &str| team.workspace().join(file).exists();
        assert_eq!(exists("bob.here"), exists("bob.done"), "it is a graceful stop");
        exists("bob.here")
    });
    assert!(was_at_work);
}

#[test]
fn budgets_end_a_run_with_7() {
    let usage = json!({ "input_tokens": 400, "output_tokens": 100 });
    let costly = |agent: &str| json!({ "agent": agent, "text": "costly", "usage": usage });
    let lines = [
        calls("lead", &[spawn("alice")]),
        costly("lead"),
        calls("alice", &[wait_for_lead()]),
        costly("alice"),
        costly("lead"),
    ];
    in_parallel(
        [
            ("--max-turns", "1", 7, "budget"),
            ("--max-tokens", "900", 7, "budget"),
            ("--max-turns", "2", 0, "team_stopped"),
            ("--max-tokens", "9000", 0, "team_stopped"),
        ],
        |(flag, most, code, cause)| {
            let team = Team::without_walls();
            let model = script(&team, &lines);
            let ran =
                team.team(&["lead", "-p", "begin", "--model", &model, flag, most]).expect(code);
            assert_eq!(ran.err.contains("budget are used"), code == 7, "{ran:#?}");
            assert_eq!(last_exit(&team, "alice").0, cause, "{ran:#?}");
            assert_left_in_order(&team);
        },
    );
}

/// Script, flags, exit code, result and turns of a run.
type Case<'a> = (&'a [Value], &'a [&'a str], i32, &'a str, u64);

/// A turn beyond `--max-turns` is interrupted: it neither counts nor replaces the answer of the turn before.
#[test]
fn the_answer_of_the_last_whole_turn_is_the_result() {
    let error = json!({ "agent": "lead", "error": "unavailable" });
    let spawned = calls("lead", &[spawn("alice")]);
    let told = says("lead", "the first answer");
    let (waits, done) = (calls("alice", &[wait_for_lead()]), says("alice", "alice's result"));
    let cases: [Case<'_>; 5] = [
        (&[says("lead", "alone")], &["--max-turns", "1"], 0, "alone", 1),
        (
            &[spawned.clone(), told.clone(), waits.clone(), done.clone()],
            &["--max-turns", "1"],
            7,
            "the first answer",
            1,
        ),
        (
            &[
                spawned.clone(),
                told.clone(),
                waits.clone(),
                done.clone(),
                says("lead", "the second answer"),
            ],
            &["--max-turns", "2"],
            0,
            "the second answer",
            2,
        ),
        (&[spawned, told, waits, done, error.clone()], &[], 6, "the first answer", 2),
        (&[error], &[], 6, "", 1),
    ];
    for (lines, flags, code, answer, turns) in cases {
        // Each run has a team of its own: a second alice would continue the conversation of the first.
        let run = |output| {
            let team = Team::without_walls();
            let model = script(&team, lines);
            let args = ["lead", "-p", "go", "--model", &model, "--output", output];
            let ran = team.team(&[&args[..], flags].concat()).expect(code);
            assert_left_in_order(&team);
            ran
        };
        let result = run("json").json();
        assert_eq!((&result["result"], &result["turns"]), (&json!(answer), &json!(turns)));
        let error = result["error"].as_str().unwrap_or_default();
        assert_eq!(error.contains("unavailable"), code == 6, "{result:#}");
        assert_eq!(error.contains("\n  now: "), code == 6, "{result:#}");
        let ran = run("text");
        assert_eq!(ran.out.trim_end(), answer, "{ran:#?}");
        assert!(ran.err.contains(error), "{ran:#?}");
    }
}

/// A start that fails leaves the roster as it was, whatever the step that fails.
#[test]
fn a_failed_start_leaves_no_lead_behind() {
    let team = Team::new();
    let refused = |args: &[&str], code, words: &str| {
        let ran = team.team(&[&["lead", "-p", "hi"], args].concat()).expect(code);
        assert!(ran.err.contains(words) && ran.err.contains("\n  now: "), "{ran:#?}");
    };
    let missing = ["--model", "script:missing.jsonl"];
    refused(&["--model", "anthropic/x"], 4, "set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN");
    refused(&missing, 2, "missing.jsonl");
    assert!(listing(team.workspace()).is_empty(), "{:?}", listing(team.workspace()));
    let model = script(&team, &[says("lead", "fine")]);
    headless(&team, &model, "begin").expect(0);
    let state = |team: &Team| (team.roster(), team.lines("transcript/lead.jsonl"));
    let before = state(&team);
    refused(&["--model", "anthropic/x"], 4, "there are no credentials for anthropic/x");
    refused(&missing, 2, "missing.jsonl");
    // The inbox of the user cannot be made, which is after the roster was written.
    let user = team.path("inbox/user.jsonl");
    fs::remove_file(&user).unwrap();
    fs::create_dir(&user).unwrap();
    let ran = team.team(&["lead", "-p", "hi", "--model", &model]);
    assert_ne!(ran.code, Some(0), "{ran:#?}");
    assert_eq!(state(&team), before, "{ran:#?}");
    fs::remove_dir(&user).unwrap();
    let ran = headless(&team, &model, "begin").expect(0);
    assert!(!ran.err.contains("had died"), "{ran:#?}");
    team.team(&["doctor"]).expect(0);
}

/// A run ends only when no member works and no mail is unread.
#[test]
fn a_run_waits_for_all_members() {
    let team = Team::without_walls();
    let lines = [
        calls("lead", &[spawn("alice"), spawn("bob")]),
        says("lead", "spawned"),
        calls(
            "alice",
            &[
                bash(
                    "until grep -qs '\"turn_end\"' .team/transcript/bob.jsonl; do sleep 0.05; done",
                ),
                bash("sleep 2"),
                ("send_message", json!({ "to": "bob", "content": "go" })),
            ],
        ),
        says("alice", "alice is done"),
        says("bob", "bob waits"),
        calls("bob", &[bash("sleep 1; echo late > bob.txt")]),
        says("bob", "bob is done"),
    ];
    let model = script(&team, &lines);
    let ran = team.team(&["lead", "-p", "begin", "--model", &model, "--timeout", "600"]).expect(0);
    assert!(team.workspace().join("bob.txt").exists(), "{ran:#?}");
    assert!(team.has_mail("lead", "bob", "bob is done"), "{}", team.describe());
    assert_left_in_order(&team);
}

/// A member works while another process holds the lock of the roster, and the run still waits for that work.
#[test]
fn a_run_waits_for_work_that_is_not_in_the_roster_yet() {
    let team = Team::without_walls();
    let order = ("send_message", json!({ "to": "alice", "content": "work" }));
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[wait_for_lead()]),
        says("alice", "alice waits"),
        calls("lead", &[bash("touch ready; until [ -e stopped ]; do sleep 0.05; done"), order]),
        says("lead", "the lead waits"),
        calls("alice", &[bash("sleep 3; touch looked; until [ -e free ]; do sleep 0.05; done")]),
        says("alice", "alice has worked"),
        says("lead", "the end"),
    ];
    let model = script(&team, &lines);
    let args = ["lead", "-p", "begin", "--model", &model, "--timeout", "600"];
    let mut run = team.command("team", &args).stdout(Stdio::piped()).spawn().unwrap();
    wait_file(&team, "ready");
    team.wait_status("alice", "idle");
    let alice = team.pid_of("alice");
    stop_process(&team, "alice");
    write(&team.workspace().join("stopped"), "");
    team.wait_status("lead", "idle");
    // The roster now shows no working member, and cannot be updated while the lock is held.
    let roster = fs::File::open(team.path("run/.state/config.lock")).unwrap();
    fs4::FileExt::lock(&roster).unwrap();
    signal(alice, Signal::SIGCONT);
    // During this time the lead checks several times whether all members are idle.
    wait_file(&team, "looked");
    assert_eq!((team.status("lead"), team.status("alice")), ("idle".into(), "idle".into()));
    let inbox = fs::read_to_string(team.path("inbox/alice.jsonl")).unwrap();
    assert_eq!(inbox, "", "she is to end while she works");
    fs4::FileExt::unlock(&roster).unwrap();
    write(&team.workspace().join("free"), "");
    assert_eq!(wait(&team, &mut run), Some(0));
    assert!(team.has_mail("lead", "alice", "alice has worked"), "{}", team.describe());
    assert_left_in_order(&team);
}

#[test]
fn a_headless_run_shows_the_members_it_waits_for() {
    let team = Team::new();
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "she works"),
        calls("alice", &[bash("until [ -e seen ]; do sleep 0.05; done")]),
        says("alice", "slept well"),
        says("lead", "all is done"),
    ];
    let model = script(&team, &lines);
    let args = ["lead", "-p", "begin", "--model", &model, "--mode", "bypass"];
    let mut run = Terminal::start(team.command("team", &args));
    run.expect("waiting for alice (working, ");
    write(&team.workspace().join("seen"), "");
    assert_eq!(run.wait().code(), Some(0), "{}", run.screen());
    assert!(run.screen().contains("all is done"), "{}", run.screen());
    assert!(!run.screen().contains("waiting for alice"), "{}", run.screen());
    assert_left_in_order(&team);
}
