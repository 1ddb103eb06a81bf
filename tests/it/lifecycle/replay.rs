//! `team replay`: a recorded team plays again in a new folder. The replies come from the record; the processes, the mail
//! and the tools are real.

use crate::support::child_process::write;
use crate::support::harness::{CommandResult, SHORTEST_DEADLINE, Team};
use crate::support::scripts::{
    NINE_PROMPTS, all_idle, bash, calls, headless, kill_9, says, script, spawn,
};
use crate::support::terminal::Terminal;
use serde_json::{Value, json};
use std::fs;

/// Plays the record of the workspace in a new folder below it.
pub(super) fn replay(team: &Team, into: &str, args: &[&str]) -> CommandResult {
    let mut words = vec!["replay", ".", "--into", into, "--json"];
    words.extend(args);
    // A loaded machine may stand still for a while, and nothing is missing then.
    team.variable(SHORTEST_DEADLINE, "30000");
    team.team(&words)
}

/// Asserts that a replay shows no difference, and returns its outcome.
pub(super) fn alike(ran: &CommandResult) -> Value {
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let outcome = ran.json();
    assert_eq!(outcome["alike"], true, "{outcome:#}");
    outcome
}

pub(super) fn lines(team: &Team, folder: &str, name: &str) -> Vec<Value> {
    team.lines(&format!("../{folder}/.team/transcript/{name}.jsonl"))
}

/// Returns the number of entries that are alike.
pub(super) fn count(outcome: &Value, name: &str) -> u64 {
    let members = outcome["members"].as_array().unwrap();
    members.iter().find(|member| member["name"] == name).unwrap()["alike"].as_u64().unwrap()
}

#[test]
fn the_nine_prompts_play_again_without_a_difference_twice() {
    let team = Team::new();
    let mut lead = Terminal::start(team.command("team", &["lead", "--model", "rehearsal"]));
    lead.expect("rehearsal");
    let turns = || {
        let lines = team.lines("transcript/lead.jsonl");
        lines.iter().filter(|line| line["kind"] == "turn_end").count()
    };
    for prompt in NINE_PROMPTS {
        let before = turns();
        lead.type_line(prompt);
        if !prompt.starts_with('/') {
            team.eventually("the prompt is answered", || turns() > before);
        }
        team.eventually("all rest", || all_idle(&team));
    }
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    let recorded = team.lines("transcript/lead.jsonl");
    for into in ["first", "second"] {
        let outcome = alike(&replay(&team, into, &[]));
        for name in ["lead", "alice", "bob"] {
            assert!(count(&outcome, name) > 10, "{outcome:#}");
        }
        let schema = fs::read_to_string(team.workspace().join(into).join("schema.sql")).unwrap();
        assert!(schema.contains("CREATE TABLE users"), "its tools run for real");
        assert_ne!(lines(&team, into, "lead"), recorded, "it is another run");
    }
    assert_eq!(team.lines("transcript/lead.jsonl"), recorded, "the record is only read");
    team.wait_no_process();
}

#[test]
fn two_members_at_the_same_time_play_again_without_a_difference_twice() {
    let team = Team::new();
    let model = script(
        &team,
        &[
            calls("lead", &[spawn("alice"), spawn("bob")]),
            says("lead", "both are at work"),
            says("lead", "thanks"),
            says("lead", "thanks again"),
            says("lead", "and again"),
            calls(
                "alice",
                &[
                    // The lead starts bob while alice is at work already.
                    bash("until test -e bob; do sleep 0.05; done; echo one >> list"),
                    ("send_message", json!({ "to": "bob", "content": "go on" })),
                    ("create_task", json!({ "subject": "by alice" })),
                ],
            ),
            calls("alice", &[bash("until grep -qs two list; do sleep 0.05; done; cat list")]),
            calls("alice", &[("send_message", json!({ "to": "lead", "content": "both" }))]),
            says("alice", "done"),
            says("alice", "bye"),
            calls("bob", &[bash("touch bob"), ("create_task", json!({ "subject": "by bob" }))]),
            calls("bob", &[bash("until grep -qs one list; do sleep 0.05; done; echo two >> list")]),
            says("bob", "written"),
            says("bob", "bye"),
        ],
    );
    // The tasks are left open.
    headless(&team, &model, "go").expect(8);
    for into in ["first", "second"] {
        let outcome = alike(&replay(&team, into, &[]));
        assert!(count(&outcome, "alice") > 8, "{outcome:#}");
        assert_eq!(
            fs::read_to_string(team.workspace().join(into).join("list")).unwrap(),
            "one\ntwo\n"
        );
    }
    team.wait_no_process();
}

/// Records a team of two with a command whose effect can be seen.
pub(super) fn small_record(team: &Team) {
    let model = script(
        team,
        &[
            calls("lead", &[spawn("alice")]),
            says("lead", "started"),
            says("lead", "alice is done"),
            calls("alice", &[bash("echo made > made.txt; cat made.txt")]),
            calls("alice", &[bash("wc -c < made.txt")]),
            says("alice", "I have made it"),
        ],
    );
    headless(team, &model, "go").expect(0);
}

/// Replaces a text in a recorded transcript.
fn edit(team: &Team, name: &str, old: &str, new: &str) {
    let path = team.path(&format!("transcript/{name}.jsonl"));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "{text}");
    write(&path, text.replacen(old, new, 1));
}

#[test]
fn a_changed_record_is_told_with_its_place() {
    let team = Team::new();
    small_record(&team);
    edit(&team, "alice", r#""content":"5\n""#, r#""content":"6\n""#);
    let ran = replay(&team, "again", &[]).expect(1);
    let outcome = ran.json();
    assert_eq!((&outcome["alike"], &outcome["first"]), (&json!(false), &json!("alice")));
    let members = outcome["members"].as_array().unwrap();
    let found = &members.iter().find(|member| member["name"] == "alice").unwrap()["difference"];
    let recorded = team.lines("transcript/alice.jsonl");
    let line = usize::try_from(found["line"].as_u64().unwrap()).unwrap();
    assert_eq!(recorded[line - 1]["content"], "6\n", "{outcome:#}");
    assert!(found["recorded"].as_str().unwrap().contains('6'), "{outcome:#}");
    assert!(found["now"].as_str().unwrap().contains('5'), "{outcome:#}");
    let shown = team.team(&["replay", ".", "--into", "text"]).expect(1).out;
    for part in
        ["first difference: alice, turn 1", "recorded: tool_result", "now:      tool_result"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // A reply that is another one has another effect.
    edit(&team, "alice", r#""content":"6\n""#, r#""content":"5\n""#);
    alike(&replay(&team, "repaired", &[]));
    edit(&team, "alice", "echo made >", "echo other >");
    let outcome = replay(&team, "other", &[]).expect(1).json();
    assert_eq!(outcome["first"], "alice", "{outcome:#}");
    team.wait_no_process();
}

#[test]
fn recorded_tools_do_not_run_and_tools_of_the_team_do() {
    let team = Team::new();
    small_record(&team);
    let outcome = alike(&replay(&team, "again", &["--tools", "recorded"]));
    assert!(count(&outcome, "alice") > 5, "{outcome:#}");
    assert!(!team.workspace().join("again/made.txt").exists(), "no command has run");
    edit(&team, "alice", "made\\n", "not made\\n");
    alike(&replay(&team, "believed", &["--tools", "recorded"]));
    team.wait_no_process();
}

#[test]
fn a_fork_goes_on_with_another_model() {
    let team = Team::new();
    let model = script(&team, &[says("lead", "one"), says("lead", "two"), says("lead", "three")]);
    headless(&team, &model, "first").expect(0);
    for prompt in ["second", "third"] {
        let words = ["lead", "--resume", "-p", prompt, "--model", &model];
        team.team(&words).expect(0);
    }
    let missing = replay(&team, "none", &["--until", "9"]).expect(2);
    assert!(missing.err.contains("no turn 9"), "{}", missing.err);
    assert!(!team.workspace().join("none").exists(), "nothing is made");
    let outcome = alike(&replay(&team, "forked", &["--until", "1", "--fork"]));
    assert_eq!(outcome["forked"], true);
    let said = script(&team, &[says("lead", "one"), says("lead", "another way")]);
    let words = ["-C", "forked", "lead", "--resume", "-p", "and now?", "--model", &said];
    let ran = team.team(&words).expect(0);
    assert!(ran.out.contains("another way"), "{}", ran.out);
    let kinds = lines(&team, "forked", "lead");
    let prompts: Vec<_> = kinds.iter().filter(|line| line["kind"] == "user").collect();
    assert_eq!(prompts[0]["content"], "first");
    assert_eq!(prompts.last().unwrap()["content"], "and now?");
    team.wait_no_process();
}

#[test]
fn a_fault_kills_a_member_which_comes_back_with_its_memory() {
    let team = Team::new();
    team.variable("TEAM_FIRST_PAUSE_MS", "50");
    small_record(&team);
    let outcome = replay(&team, "again", &["--fault", "kill:alice@2,slow:model=0.1"]);
    let outcome = outcome.json();
    let alice = lines(&team, "again", "alice");
    let sessions = alice.iter().filter(|line| line["kind"] == "session").count();
    assert_eq!(sessions, 2, "{outcome:#}");
    let replies = alice.iter().filter(|line| line["kind"] == "assistant").count();
    assert_eq!(replies, 3, "each reply comes once: {outcome:#}");
    assert_eq!(outcome["alike"], false, "its restart is told: {outcome:#}");
    team.wait_no_process();
}

#[test]
fn what_cannot_be_played_is_refused_and_makes_nothing() {
    let team = Team::new();
    fs::create_dir(team.workspace().join("empty")).unwrap();
    for (args, part) in [
        (&["nowhere"][..], "there is no record at"),
        (&["empty"], "there is no record at"),
        (&["empty", "--fault", "eat:disk"], "kill:NAME@N"),
        (&["empty", "--tools", "some"], "real or recorded"),
        (&["empty", "--fork"], "--until"),
    ] {
        let mut words = vec!["replay", "--into", "new"];
        words.extend(args);
        let ran = team.team(&words).expect(2);
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
        assert!(!team.workspace().join("new").exists(), "{args:?}");
    }
    small_record(&team);
    let ran = replay(&team, "new", &["--fault", "kill:dave@1"]).expect(2);
    assert!(ran.err.contains("alice, lead"), "{}", ran.err);
    let ran = replay(&team, "empty/..", &[]).expect(2);
    assert!(ran.err.contains("--into"), "{}", ran.err);
    assert!(!team.workspace().join("new").exists());
    team.wait_no_process();
}

/// Whether the turn of the lead has ended that mail of alice with this text started.
fn has_answered(team: &Team, text: &str) -> bool {
    let lines = team.lines("transcript/lead.jsonl");
    let is_it = |line: &Value| {
        let content = line["message"]["content"].as_str().unwrap_or_default();
        line["message"]["from"] == "alice" && content.contains(text)
    };
    let mut after = lines.iter().skip_while(|line| !is_it(line));
    after.any(|line| line["kind"] == "turn_end")
}

#[test]
fn a_crash_mail_and_tasks_of_the_person_come_again_twice() {
    let team = Team::new();
    team.variable("TEAM_AUTO_CLAIM", "true");
    let mut lead = Terminal::start(team.command("team", &["lead", "--model", "rehearsal"]));
    lead.expect("rehearsal");
    let is_idle = || ["lead", "alice"].iter().all(|name| team.status(name) == "idle");
    let answered = |text: &str| has_answered(&team, text) && is_idle();
    lead.type_line("Spawn alice (coder).");
    team.wait_status("alice", "idle");
    team.team(&["send", "alice", "Run echo one"]).expect(0);
    team.eventually("alice has answered", || answered("echo one"));
    let before = team.pid_of("alice");
    kill_9(&team, "alice");
    team.eventually("alice is back", || team.pid_of("alice") != before && is_idle());
    team.team(&["send", "alice", "Run echo two"]).expect(0);
    team.eventually("alice has answered again", || answered("echo two"));
    team.team(&["task", "add", "Run echo three"]).expect(0);
    team.team(&["task", "add", "Run echo four", "--after", "1"]).expect(0);
    team.eventually("the tasks are done", || answered("echo three") && answered("echo four"));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    for into in ["first", "second"] {
        alike(&replay(&team, into, &[]));
        let alice = lines(&team, into, "alice");
        let sessions = alice.iter().filter(|line| line["kind"] == "session").count();
        assert_eq!(sessions, 2, "it crashed and came back");
        assert!(team.workspace().join(into).join(".team/tasks/2.json").exists());
    }
    team.wait_no_process();
}

/// Records alice, who is killed at a failpoint in her second turn and then does another one.
fn record_crash_at(team: &Team, point: &str) {
    let tokens = tempfile::tempdir().unwrap();
    let token = tokens.path().join("token");
    write(&token, "");
    let mut command = team.command("team", &["lead", "--model", "rehearsal"]);
    command.env("TEAM_FAILPOINTS", format!("alice/{point}={}", token.display()));
    let mut lead = Terminal::start(command);
    lead.expect("rehearsal");
    lead.type_line("Spawn alice (coder).");
    team.wait_status("alice", "idle");
    let sessions = || {
        let lines = team.lines("transcript/alice.jsonl");
        lines.iter().filter(|line| line["kind"] == "session").count()
    };
    for text in ["one", "two"] {
        team.team(&["send", "alice", &format!("Run echo {text}")]).expect(0);
        team.eventually("alice has answered", || {
            let is_idle = ["lead", "alice"].iter().all(|name| team.status(name) == "idle");
            has_answered(team, text) && is_idle && sessions() == 2
        });
    }
    assert!(!token.exists(), "she was killed at {point}");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
}

#[test]
fn a_crash_comes_again_at_the_same_step() {
    std::thread::scope(|scope| {
        for (point, notices) in [
            ("tool.intended+1", 3),
            ("tool.ran+1", 3),
            ("tool.answered+1", 3),
            ("turn.ended+1", 2),
            ("turn.reported", 2),
            ("turn.idle+1", 3),
        ] {
            scope.spawn(move || {
                let team = Team::new();
                record_crash_at(&team, point);
                let told = |lines: &[Value]| {
                    let is_notice = |line: &&Value| {
                        let message = &line["message"];
                        message["type"] == "idle_notification" && message["from"] == "alice"
                    };
                    lines.iter().filter(is_notice).count()
                };
                assert_eq!(told(&team.lines("transcript/lead.jsonl")), notices, "{point}");
                let ran = replay(&team, "again", &[]);
                alike(&ran);
                assert_eq!(told(&lines(&team, "again", "lead")), notices, "{point}");
                team.wait_no_process();
            });
        }
    });
}
