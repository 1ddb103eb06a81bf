//! Modes and rules: the calls that run, ask or are denied, and the settings that count.

use crate::support::approvals::{careful_team, requests};
use crate::support::child_process::write;
use crate::support::harness::{CommandResult, Team};
use crate::support::scripts::{
    NINE_PROMPTS, all_idle, assert_left_in_order, bash, calls, headless, lead, says, script, spawn,
    tool_results,
};
use crate::support::terminal::Terminal;
use serde_json::{Value, json};
use std::fs;

const ALT_Y: &str = "\x1by";

fn write_file(path: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": "x\n" }))
}

/// Runs three calls of a headless lead: a command, a write to a file, a listing of the roster. Returns for each
/// whether it ran.
fn which_ran(team: &Team, further: &[&str]) -> (CommandResult, Vec<bool>) {
    let calls = calls("lead", &[bash("ls"), write_file("made.txt"), ("list_teammates", json!({}))]);
    let model = script(team, &[calls, says("lead", "done")]);
    let words = [&["lead", "-p", "begin", "--model", &model, "--timeout", "600"], further].concat();
    let ran = team.team(&words);
    let lines = team.lines("transcript/lead.jsonl");
    // Mode `plan` denies nothing: it asks for a plan first.
    let is_denied = lines.iter().any(|line| line["kind"] == "decision");
    assert_eq!(ran.code, Some(if is_denied { 9 } else { 0 }), "{ran:#?}");
    let results = lines.iter().filter(|line| line["kind"] == "tool_result");
    let ok: Vec<bool> = results.map(|line| line["is_error"] == false).collect();
    let is_plan = team.roster()["lead"]["mode"] == "plan";
    assert_eq!(is_denied, !is_plan && ok.contains(&false), "{lines:#?}");
    assert_left_in_order(team);
    (ran, ok)
}

#[test]
fn each_mode_runs_what_it_may_without_asking() {
    for (mode, ran) in [
        ("plan", [false, false, true]),
        ("default", [false, false, true]),
        ("accept_edits", [false, true, true]),
        ("bypass", [true, true, true]),
    ] {
        let team = Team::new();
        assert_eq!(which_ran(&team, &["--mode", mode]).1, ran, "{mode}");
        assert_eq!(team.roster()["lead"]["mode"], mode);
        assert_eq!(team.workspace().join("made.txt").exists(), ran[1], "{mode}");
        assert!(requests(&team).is_empty(), "{mode}: nobody could be asked");
    }
    let team = careful_team();
    assert_eq!(which_ran(&team, &[]).1, [false, false, true], "TEAM_MODE");
    let lines = team.lines("transcript/lead.jsonl");
    let why = lines.iter().find(|line| line["kind"] == "tool_result").unwrap();
    assert!(why["content"].as_str().unwrap().contains("\"bash(ls)\""), "{why}");
}

#[test]
fn a_folders_own_rules_loosen_only_after_it_was_trusted() {
    let team = Team::new();
    team.variable("TEAM_MODE", "");
    fs::create_dir(team.path("")).unwrap();
    let rules = "[permissions]\nmode = \"accept_edits\"\nallow = [\"bash(ls)\"]\n\
        deny = [\"write_file(made.txt)\"]\n";
    write(&team.path("settings.toml"), rules);
    let (ran, ok) = which_ran(&team, &[]);
    assert_eq!(ok, [false, false, true]);
    assert!(ran.err.contains("not trusted") && ran.err.contains("team trust"), "{}", ran.err);
    let config = team.team(&["config"]).expect(0).out;
    assert!(config.contains("permissions.mode") && config.contains("default"), "{config}");
    assert!(config.contains("write_file(made.txt)"), "a rule that denies needs no trust: {config}");

    assert!(team.team(&["trust"]).expect(0).out.contains("is trusted"));
    assert!(team.team(&["trust"]).expect(0).out.contains("already"));
    let (ran, ok) = which_ran(&team, &[]);
    assert_eq!(ok, [true, false, true], "deny wins over the mode");
    assert!(!ran.err.contains("not trusted"), "{}", ran.err);

    write(&team.path("settings.toml"), "[permissions]\nallow = [\"bash(\"]\n");
    let asks_again = team.team(&["config"]).expect(0).err;
    assert!(asks_again.contains("not trusted: allow"), "what changed asks again: {asks_again}");
    team.team(&["trust"]).expect(0);
    let why = team.team(&["lead", "-p", "x", "--model", "rehearsal"]).expect(2).err;
    assert!(why.contains("\"bash(\"") && why.contains("permission rule"), "{why}");
}

#[test]
fn members_have_the_rules_of_their_lead_and_a_headless_run_denies_requests() {
    let team = careful_team();
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash("echo a > a.txt"), bash("echo b > b.txt"), write_file("src/c.txt")]),
        says("alice", "I tried"),
        says("lead", "over"),
    ];
    let config = team.workspace().join(".config/team");
    fs::create_dir_all(&config).unwrap();
    let rules = "[permissions]\nallow = [\"bash(echo b > b.txt)\", \"write_file(src/**)\"]\n";
    write(&config.join("settings.toml"), rules);
    let model = script(&team, &lines);
    let words = ["lead", "-p", "begin", "--model", &model, "--timeout", "600", "--output", "json"];
    let ran = team.team(&words).expect(9);
    assert!(ran.err.contains("a call was denied (alice: bash: echo a > a.txt)"), "{ran:#?}");
    let result = ran.json();
    assert_eq!(result["outcome"], "denied");
    assert_eq!(result["denied"], json!(["alice: bash: echo a > a.txt"]));
    let made = ["a.txt", "b.txt", "src/c.txt"].map(|file| team.workspace().join(file).exists());
    assert_eq!(made, [false, true, true], "{}", team.describe());
    let lines = team.lines("transcript/alice.jsonl");
    let denied = lines.iter().find(|line| line["kind"] == "decision").unwrap();
    assert_eq!(denied["outcome"], "rejected");
    assert_eq!(denied["by"], "program", "nobody was asked: {denied}");
    assert!(denied["reason"].as_str().unwrap().contains("headless"), "{denied}");
    let told = &tool_results(&team, "alice")[0].1;
    assert!(told.starts_with("denied: ") && !told.contains("by the user"), "{told}");
    assert!(told.contains("a rule such as \"bash(echo a > a.txt)\""), "{told}");
    assert_eq!(team.member("alice")["mode"], "default");
    assert_left_in_order(&team);
}

/// The advice of exit 9 works: the teammates in the lead's mode follow a resumed lead into another one.
#[test]
fn a_resumed_lead_takes_its_teammates_into_its_mode() {
    let team = careful_team();
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash("echo a > a.txt")]),
        says("alice", "I tried"),
        says("lead", "over"),
        calls("lead", &[("send_message", json!({ "to": "alice", "content": "again" }))]),
        says("lead", "sent"),
        calls("alice", &[bash("echo a > a.txt")]),
        says("alice", "done"),
        says("lead", "over"),
    ];
    let model = script(&team, &lines);
    headless(&team, &model, "begin").expect(9);
    let words = ["lead", "--resume", "-p", "again", "--model", &model, "--mode", "bypass"];
    team.team(&words).expect(0);
    assert!(team.workspace().join("a.txt").exists(), "{}", team.describe());
    assert_eq!(team.member("alice")["mode"], "bypass");
}

#[test]
fn a_manual_teammate_asks_at_its_own_terminal_only() {
    let team = careful_team();
    let model = script(&team, &[calls("carol", &[bash("touch done")]), says("carol", "over")]);
    let words = ["teammate", "carol", "--model", &model, "--once", "--prompt", "begin"];
    team.team(&words).expect(0);
    assert!(!team.workspace().join("done").exists());
    let lines = team.lines("transcript/carol.jsonl");
    let denied = lines.iter().find(|line| line["kind"] == "decision").unwrap();
    assert!(denied["reason"].as_str().unwrap().contains("no lead"), "{denied}");
    fs::remove_file(team.path("transcript/carol.jsonl")).unwrap();

    let mut carol = Terminal::start(team.command("team", &words));
    carol.expect("the agent asks to run:");
    team.wait_status("carol", "waiting");
    let asked = requests(&team);
    let id = asked[0]["request_id"].as_str().unwrap();
    let why = team.team(&["approve", id]).expect(1).err;
    assert!(why.contains("on its own terminal"), "{why}");
    carol.type_line("perhaps");
    carol.expect("answer with y");
    carol.type_line("e touch done instead");
    assert_eq!(carol.wait().code(), Some(0), "{}", carol.screen());
    assert!(team.workspace().join("done").exists() && team.workspace().join("instead").exists());
    assert_left_in_order(&team);
}

#[test]
fn the_person_changes_the_mode_of_the_whole_team() {
    let team = careful_team();
    let waits = "until [ -e go ]; do sleep 0.05; done";
    let mut lead = lead(
        &team,
        &script(
            &team,
            &[
                calls("lead", &[spawn("alice")]),
                says("lead", "spawned"),
                calls("alice", &[bash(waits), bash("touch free")]),
                says("alice", "free"),
                calls("lead", &[bash("touch mine")]),
                says("lead", "mine"),
            ],
        ),
    );
    lead.type_line("begin");
    lead.expect("alice asks to run:");
    lead.type_line("/mode reckless");
    lead.expect("is not a mode");
    lead.type_line("/mode bypass");
    lead.expect("mode bypass: tools run without asking");
    team.eventually("alice has heard of it", || team.member("alice")["mode"] == "bypass");
    lead.type_line("y");
    write(&team.workspace().join("go"), "");
    team.wait_status("alice", "idle");
    assert!(team.workspace().join("free").exists(), "{}", team.describe());
    team.eventually("the lead is as free", || team.workspace().join("mine").exists());
    lead.type_line("/mode");
    lead.expect("mode bypass");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn no_member_is_spawned_with_a_looser_mode_than_the_lead() {
    let team = Team::new();
    let free =
        ("spawn_teammate", json!({"name": "a", "role": "x", "prompt": "p", "mode": "bypass"}));
    let strict =
        ("spawn_teammate", json!({"name": "b", "role": "x", "prompt": "p", "mode": "plan"}));
    let model = script(&team, &[calls("lead", &[free, strict]), says("lead", "over")]);
    let words = ["lead", "-p", "begin", "--model", &model, "--mode", "accept_edits"];
    team.team(&words).expect(0);
    let results = tool_results(&team, "lead");
    assert!(results[0].2 && results[0].1.contains("looser than the lead's"), "{results:?}");
    assert!(!results[1].2, "{results:?}");
    assert_eq!(team.member("b")["mode"], "plan");
    assert_left_in_order(&team);
}

/// The nine prompts work in mode `default`, in which each permission request is approved.
#[test]
fn the_nine_prompts_run_when_their_questions_are_answered() {
    let team = careful_team();
    let mut lead = lead(&team, "rehearsal");
    lead.expect("mode default: commands and changes to files ask first");
    let (mut answered, mut prompts) = (0, 0);
    let heard = || {
        let lines = team.lines("transcript/lead.jsonl");
        lines.iter().filter(|line| line["kind"] == "user").count()
    };
    for prompt in NINE_PROMPTS {
        lead.type_line(prompt);
        prompts += usize::from(!prompt.starts_with('/'));
        let mut calm = 0;
        team.eventually(prompt, || {
            if !requests(&team).is_empty() {
                let times = lead.printed().matches("y yes").count();
                if times > answered {
                    lead.press(ALT_Y);
                    answered = times;
                }
                calm = 0;
            }
            let rests = heard() == prompts && all_idle(&team);
            calm = if rests { calm + 1 } else { 0 };
            calm > 5
        });
    }
    let schema = fs::read_to_string(team.workspace().join("schema.sql")).unwrap();
    assert!(schema.to_lowercase().contains("create table users"));
    assert!(team.has_mail("lead", "bob", "users"), "{}", team.describe());
    assert!(answered > 0, "something was asked");
    assert_eq!(team.status("alice"), "shutdown");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}
