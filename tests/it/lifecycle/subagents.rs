//! Subagents: their work in the name of their caller, their limits, several at once, in the background, and kills at each
//! step.

use crate::support::approvals::{careful_team, wait_asked};
use crate::support::child_process::write;
use crate::support::harness::{Team, in_parallel};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, headless, says, script, scripted_lead, spawn, tool_results,
    wait_file,
};
use serde_json::{Value, json};
use std::fs;

const ALT_Y: &str = "\x1by";

fn run(task: &str) -> (&'static str, Value) {
    ("run_subagent", json!({ "task": task }))
}

fn in_background(task: &str) -> (&'static str, Value) {
    ("run_subagent", json!({ "task": task, "background": true }))
}

fn write_file(path: &str, content: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": content }))
}

/// Returns the transcript of a subagent.
fn lines(team: &Team, file: &str) -> Vec<Value> {
    team.lines(&format!("transcript/sub/{file}.jsonl"))
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

fn with_usage(mut reply: Value, tokens: u64) -> Value {
    reply["usage"] = json!({ "input_tokens": tokens, "output_tokens": 0,
        "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0 });
    reply
}

#[test]
fn a_subagent_works_in_the_name_of_its_caller_and_gives_back_its_last_text() {
    let team = Team::new();
    let model = script(
        &team,
        &[
            with_usage(calls("lead", &[run("write the note")]), 10),
            says("lead", "the note is there"),
            with_usage(calls("lead:1", &[write_file("note", "one\n")]), 100),
            calls("lead:1", &[("send_message", json!({ "to": "user", "content": "hi" }))]),
            calls("lead:1", &[run("do it for me")]),
            calls("lead:1", &[("bash", json!({ "command": "sleep 1000", "background": true }))]),
            with_usage(says("lead:1", "I wrote it."), 1000),
        ],
    );
    let done = team.team(&["lead", "-p", "begin", "--model", &model, "--mode", "accept_edits"]);
    done.expect(0);
    let results = tool_results(&team, "lead");
    let (tool, text, is_error) = &results[0];
    assert_eq!((tool.as_str(), *is_error), ("run_subagent", false), "{results:?}");
    assert_eq!(text, "I wrote it.\n[subagent lead:1: 5 model calls, 1100 tokens]");
    let own = lines(&team, "lead-1");
    let first = &own[0];
    assert_eq!((&first["kind"], &first["id"]), (&json!("subagent"), &json!("lead:1")), "{first}");
    assert_eq!((&first["caller"], &first["task"]), (&json!("lead"), &json!("write the note")));
    let of_lead = team.lines("transcript/lead.jsonl");
    let named = of_kind(&of_lead, "subagent");
    assert_eq!((named.len(), &named[0]["tool_use_id"]), (1, &first["tool_use_id"]));
    assert!(!of_lead.iter().any(|line| line.to_string().contains("one\\n")), "its work is its own");
    // Mail, and subagents of its own, are not among its tools.
    let refused: Vec<&Value> = of_kind(&own, "tool_result").into_iter().skip(1).collect();
    assert_eq!(refused.len(), 3);
    assert!(refused[2]["content"].as_str().unwrap().contains("no command in the background"));
    for (result, tool) in refused.iter().zip(["send_message", "run_subagent"]) {
        let content = result["content"].as_str().unwrap();
        assert!(content.contains(&format!("there is no tool \"{tool}\"")), "{content}");
    }
    assert_eq!(team.roster()["lead"]["usage"]["input_tokens"], 1110, "its calls are the lead's");
    // Its change is taken back with the turn of its caller.
    assert!(team.workspace().join("note").exists());
    team.team(&["undo", "lead", "--yes"]).expect(0);
    assert!(!team.workspace().join("note").exists());
}

#[test]
fn a_role_and_the_budget_of_the_caller_limit_a_subagent() {
    let team = Team::new();
    fs::create_dir_all(team.path("roles")).unwrap();
    let role = "---\ntools: Read, Bash\ndisallowedTools: Bash(touch *)\n---\nBe brief.\n";
    write(&team.path("roles/reader.md"), role.as_bytes());
    let ordered = json!({ "task": "look", "role": "reader" });
    let model = script(
        &team,
        &[
            calls("lead", &[("run_subagent", ordered), run("go on")]),
            says("lead", "never said"),
            calls("lead:1", &[write_file("a", "a"), bash("touch b"), bash("echo ok > c")]),
            says("lead:1", "done"),
            with_usage(calls("lead:2", &[bash("true")]), 5000),
            says("lead:2", "never said"),
        ],
    );
    team.variable("TEAM_MAX_SUBAGENTS", "1");
    let done = team.team(&[
        "lead",
        "-p",
        "begin",
        "--model",
        &model,
        "--mode",
        "bypass",
        "--max-tokens",
        "4000",
    ]);
    let own = lines(&team, "lead-1");
    let told: Vec<&str> = of_kind(&own, "tool_result")
        .iter()
        .map(|result| result["content"].as_str().unwrap())
        .collect();
    let told = told.join("\n");
    assert!(told.contains("does not have the tool \"write_file\""), "{told}");
    assert!(told.contains("touch"), "{told}");
    let there = ["a", "b", "c"].map(|file| team.workspace().join(file).exists());
    assert_eq!(there, [false, false, true], "{told}");
    let second = lines(&team, "lead-2");
    assert_eq!(of_kind(&second, "assistant").len(), 1, "a spent budget stops both: {done:?}");
    let end = of_kind(&second, "turn_end");
    assert_eq!((end.len(), &end[0]["outcome"]), (1, &json!("interrupted")));
    assert!(
        !team.lines("transcript/lead.jsonl").iter().any(|it| it.to_string().contains("never said"))
    );
}

#[test]
fn a_subagent_has_the_model_of_its_call_and_an_unusable_one_begins_nothing() {
    let team = Team::new();
    let other = team.workspace().join("other.jsonl");
    write(&other, says("lead:1", "the other model").to_string());
    let other = format!("script:{}", other.display());
    let with_model = |model: &str| ("run_subagent", json!({ "task": "look", "model": model }));
    let replies = [
        calls("lead", &[with_model(&other), with_model("acp/claude"), run("look")]),
        says("lead", "all is known"),
        says("lead:2", "my own model"),
    ];
    headless(&team, &script(&team, &replies), "begin").expect(0);
    let results = tool_results(&team, "lead");
    assert!(results[0].1.starts_with("the other model\n[subagent lead:1: "), "{results:?}");
    assert!(results[1].2 && results[1].1.contains("only a teammate can run it"), "{results:?}");
    assert!(results[2].1.starts_with("my own model\n[subagent lead:2: "), "{results:?}");
    assert_eq!(lines(&team, "lead-1")[0]["model"], other);
}

#[test]
fn several_work_at_once_and_further_ones_wait_for_a_place() {
    let team = Team::new();
    team.variable("TEAM_MAX_SUBAGENTS", "2");
    let replies = [
        calls("lead", &[run("wait"), run("write"), run("last")]),
        says("lead", "all three are done"),
        calls("lead:1", &[bash("until [ -e two ] && [ -e go ]; do sleep 0.05; done")]),
        says("lead:1", "first"),
        calls("lead:2", &[write_file("two", "2")]),
        calls("lead:2", &[bash("until [ -e go ]; do sleep 0.05; done")]),
        says("lead:2", "second"),
        says("lead:3", "third"),
    ];
    let mut lead = scripted_lead(&team, &replies);
    // The first waits for a file that the second writes meanwhile. One of the commands waits for the other one.
    wait_file(&team, "two");
    team.eventually("two work", || team.roster()["lead"]["activity"] == "subagent 1 bash, 2 bash");
    assert!(!team.path("transcript/sub/lead-3.jsonl").exists(), "the third waits for a place");
    write(&team.workspace().join("go"), b"");
    lead.expect("all three are done");
    let results = tool_results(&team, "lead");
    let texts: Vec<&str> = results.iter().map(|it| it.1.split('\n').next().unwrap()).collect();
    assert_eq!(texts, ["first", "second", "third"], "in the order of the calls");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_question_of_a_subagent_is_asked_by_its_caller_and_names_it() {
    let team = careful_team();
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[run("one"), run("two")]),
        says("alice", "both were asked"),
        calls("alice:1", &[bash("echo one > one")]),
        says("alice:1", "done one"),
        calls("alice:2", &[bash("echo two > two")]),
        says("alice:2", "done two"),
    ];
    let mut lead = scripted_lead(&team, &replies);
    wait_asked(&team, "alice");
    team.eventually("both are asked", || {
        of_kind(&team.lines("transcript/alice.jsonl"), "request").len() == 2
    });
    let asked = team.team(&["requests", "--json"]).expect(0).json().to_string();
    assert!(asked.contains("alice:1") && asked.contains("alice:2"), "{asked}");
    // They ask at the same time, so either may be first.
    lead.expect(" asks to run:");
    let [first, second] = if lead.printed().contains("alice:1 asks to run:") {
        [("one", "alice:1"), ("two", "alice:2")]
    } else {
        [("two", "alice:2"), ("one", "alice:1")]
    };
    lead.expect(&format!("{} asks to run:", first.1));
    lead.press(ALT_Y);
    lead.expect(&format!("{} asks to run:", second.1));
    team.eventually("the first ran", || team.workspace().join(first.0).exists());
    assert!(!team.workspace().join(second.0).exists());
    lead.press(ALT_Y);
    team.eventually("alice reports", || team.has_mail("lead", "alice", "both were asked"));
    let decided = team.lines("transcript/alice.jsonl");
    let outcomes: Vec<&Value> =
        of_kind(&decided, "decision").iter().map(|line| &line["outcome"]).collect();
    assert_eq!(outcomes, ["approved", "approved"]);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

/// Its caller is killed when the question is in the transcript of the subagent alone.
#[test]
fn a_question_of_a_subagent_is_asked_again_after_a_kill() {
    let team = careful_team();
    let token = team.workspace().join("token");
    fs::File::create(&token).unwrap();
    team.variable("TEAM_FIRST_PAUSE_MS", "50");
    team.variable("TEAM_FAILPOINTS", &format!("alice/sub.asked={}", token.display()));
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[run("count")]),
        says("alice", "alice has it"),
        calls("alice:1", &[bash("echo ran >> effects")]),
        says("alice:1", "Counted."),
    ];
    let mut lead = scripted_lead(&team, &replies);
    team.eventually("alice was killed", || !token.exists());
    let id = wait_asked(&team, "alice");
    assert!(id.starts_with("alice:1:"), "{id}");
    assert_eq!(team.member("alice")["activity"], "subagent 1 permission bash");
    assert!(!team.workspace().join("effects").exists(), "nothing runs unasked");
    team.team(&["approve", &id]).expect(0);
    team.eventually("alice reports", || team.has_mail("lead", "alice", "alice has it"));
    assert_eq!(fs::read_to_string(team.workspace().join("effects")).unwrap(), "ran\n");
    let results = tool_results(&team, "alice");
    assert!(results[0].1.starts_with("Counted."), "{results:?}");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn an_interrupt_ends_the_subagents_of_a_member_and_their_transcripts_say_so() {
    let team = Team::new();
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[in_background("slow"), run("slower")]),
        calls("alice:1", &[bash("touch begun; sleep 1000")]),
        calls("alice:2", &[bash("touch begun; sleep 1000")]),
        says("alice", "too late"),
    ];
    let mut lead = scripted_lead(&team, &replies);
    // One of the commands waits for the other one, whichever comes first.
    wait_file(&team, "begun");
    team.eventually("both work", || team.member("alice")["activity"] == "subagent 1 bash, 2 bash");
    team.team(&["interrupt", "alice"]).expect(0);
    team.eventually("the command is gone", || {
        !team.processes().iter().any(|(_, line)| line.contains("sleep 1000"))
    });
    team.wait_status("alice", "idle");
    for file in ["alice-1", "alice-2"] {
        let own = lines(&team, file);
        let end = of_kind(&own, "turn_end");
        assert_eq!((end.len(), &end[0]["outcome"]), (1, &json!("interrupted")), "{own:?}");
    }
    let results = tool_results(&team, "alice");
    assert!(results[1].1.contains("interrupted by the user"), "{results:?}");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_run_waits_for_a_subagent_in_the_background_whose_result_is_mail() {
    let team = Team::without_walls();
    let model = script(
        &team,
        &[
            calls("lead", &[in_background("look")]),
            says("lead", "I go on meanwhile."),
            says("lead", "Now I know."),
            calls(
                "lead:1",
                &[bash(
                    "until grep -q 'go on mean' .team/transcript/lead.jsonl; do sleep 0.05; done",
                )],
            ),
            says("lead:1", "It is 42."),
        ],
    );
    let done = headless(&team, &model, "begin").expect(0);
    assert!(done.out.contains("Now I know."), "{done:?}");
    let results = tool_results(&team, "lead");
    assert!(results[0].1.starts_with("The subagent lead:1 works in the background"), "{results:?}");
    let mail = team.mail_of("lead");
    let told: Vec<&Value> = mail.iter().filter(|mail| mail["from"] == "system").collect();
    assert_eq!(told.len(), 1, "{mail:?}");
    assert!(told[0]["content"].as_str().unwrap().starts_with("It is 42.\n[subagent lead:1: 2"));
    assert_left_in_order(&team);
}

/// A teammate that is killed at a step of its subagent goes on with the same one: one file, one command, one result.
#[test]
fn a_killed_caller_goes_on_with_the_same_subagent() {
    let points = [
        "sub.recorded",
        "sub.created",
        "sub.ended",
        "turn.recorded+1",
        "tool.intended+1",
        "tool.answered",
        "turn.replied+2",
    ];
    in_parallel(points, |point| {
        let team = killed_at(point, run("count"));
        let results = tool_results(&team, "alice");
        let of_call: Vec<_> = results.iter().filter(|it| it.0 == "run_subagent").collect();
        assert_eq!(of_call.len(), 1, "{point}: {results:?}");
        assert!(of_call[0].1.starts_with("Counted.\n[subagent alice:1: "), "{point}: {results:?}");
    });
}

#[test]
fn the_result_of_a_subagent_in_the_background_of_a_killed_caller_is_delivered_once() {
    let points = ["sub.recorded", "sub.created", "sub.ended", "sub.told", "tool.intended+1"];
    in_parallel(points, |point| {
        let team = killed_at(point, in_background("count"));
        let mail = team.mail_of("alice");
        let told = mail.iter().filter(|mail| mail["from"] == "system");
        let told: Vec<&str> = told.map(|mail| mail["content"].as_str().unwrap()).collect();
        assert_eq!(told.len(), 1, "{point}: {mail:?}");
        assert!(told[0].starts_with("Counted.\n[subagent alice:1: "), "{point}: {told:?}");
    });
}

/// Runs alice, who calls a subagent and is killed once at a failpoint, until she has its result.
fn killed_at(point: &str, call: (&'static str, Value)) -> Team {
    let team = Team::new();
    let token = team.workspace().join("token");
    fs::File::create(&token).unwrap();
    team.variable("TEAM_FIRST_PAUSE_MS", "50");
    team.variable("TEAM_FAILPOINTS", &format!("alice/{point}={}", token.display()));
    let replies = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[call]),
        says("alice", "alice goes on"),
        says("alice", "alice has it"),
        calls("alice:1", &[bash("echo ran >> effects")]),
        says("alice:1", "Counted."),
    ];
    let mut lead = scripted_lead(&team, &replies);
    let known = || {
        let text = fs::read_to_string(team.path("transcript/alice.jsonl")).unwrap_or_default();
        text.contains("Counted.") && text.matches("\"turn_end\"").count() > 0
    };
    team.eventually(&format!("{point}: alice has the result"), known);
    assert!(!token.exists(), "alice was not killed at {point}");
    team.wait_status("alice", "idle");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    let own = lines(&team, "alice-1");
    assert!(!team.path("transcript/sub/alice-2.jsonl").exists(), "{point}: one subagent");
    assert_eq!(of_kind(&own, "turn_end").len(), 1, "{point}: {own:?}");
    assert_eq!(of_kind(&own, "subagent").len(), 1, "{point}: {own:?}");
    let effects = fs::read_to_string(team.workspace().join("effects")).unwrap_or_default();
    // A command that had not begun is not run, and the script goes on without it.
    let is_cut_off = ["tool.intended+1", "turn.recorded+1"].contains(&point);
    assert!(effects == "ran\n" || is_cut_off && effects.is_empty(), "{point}: {effects:?}");
    assert_left_in_order(&team);
    team
}
