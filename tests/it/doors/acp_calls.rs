//! The ways in which agents of other vendors report and name their calls.

use crate::support::acp_agent::{
    agent_team, answers, calls_of, pids, prompts, wait_report, work_once,
};
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, turns, wait};
use serde_json::{Value, json};

/// Lets bob work through a prompt, and returns the lines of his transcript.
fn work(team: &Team) -> Vec<Value> {
    work_once(team);
    team.lines("transcript/bob.jsonl")
}

/// Adds the name of a known program to the words of the agent's command.
fn call_it(team: &Team, name: &str) {
    let settings = team.workspace().join(".config/team/settings.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let end = "agent.log\"]";
    assert!(text.contains(end));
    write(&settings, text.replacen(end, &format!("agent.log\", \"{name}\"]"), 1));
}

fn of_kind<'l>(lines: &'l [Value], kind: &str) -> Vec<&'l Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

#[test]
fn a_question_about_a_call_that_is_reported_as_running_is_about_that_call() {
    let call = json!({ "toolCallId": "c", "title": "ls", "kind": "execute", "rawInput": { "command": "ls" } });
    let mut running = call.clone();
    running["sessionUpdate"] = json!("tool_call");
    running["status"] = json!("in_progress");
    let agent =
        json!({ "prompts": [[{ "update": running }, { "call": call }, { "say": "done" }]] });
    let Some(team) = agent_team(&agent, "[permissions]\nallow = [\"bash(ls)\"]") else { return };
    let lines = work(&team);
    assert_eq!(answers(&team), ["allow_once"]);
    let results = of_kind(&lines, "tool_result");
    assert!(results.len() == 1 && results[0]["is_error"] == false, "{results:#?}");
    assert_eq!(of_kind(&lines, "tool_start").len(), 1);
}

#[test]
fn rules_bind_calls_that_are_named_in_other_places() {
    let own = |id: &str, more: Value| {
        let mut call = json!({ "toolCallId": id, "kind": "other", "title": "x" });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "call": call })
    };
    let shell = json!({ "kind": "execute", "title": "rm -rf x" });
    let agent = json!({ "prompts": [[
        own("run_shell_command__run_shell_command_1_0", shell),
        own("mcp_team_send_message__1", json!({})),
        own("c", json!({ "_meta": { "toolName": "mcp__team__send_message" } })),
        own("d", json!({ "_meta": { "toolName": "mcp__git__log" } })),
        { "say": "done" }]] });
    let rules = "[permissions]\ndeny = [\"bash(rm:*)\", \"mcp__git__log\"]";
    let Some(team) = agent_team(&agent, rules) else { return };
    let lines = work(&team);
    assert_eq!(answers(&team), ["reject_once", "allow_once", "allow_once", "reject_once"]);
    assert!(of_kind(&lines, "request").is_empty(), "nobody is asked");
}

#[test]
fn a_notice_of_copilot_is_neither_a_report_nor_an_answer_to_a_refusal() {
    let call = json!({ "toolCallId": "c", "kind": "execute", "rawInput": { "command": "rm x" } });
    let agent = json!({ "ends_at_refusal": true, "prompts": [
        [{ "say": "Info: begun" }, { "call": call }],
        [{ "say": "understood" }, { "say": "Info: ended" }]] });
    let Some(team) = agent_team(&agent, "[permissions]\ndeny = [\"bash(rm:*)\"]") else { return };
    call_it(&team, "copilot");
    let lines = work(&team);
    assert!(prompts(&team)[1].contains("denied by the rule"), "{:?}", prompts(&team));
    assert_eq!(of_kind(&lines, "turn_end")[0]["report"]["text"], "understood");
    let started = calls_of(&team, "started");
    assert_eq!(started[0]["arguments"], json!(["copilot", "--allow-tool=team"]));
}

#[test]
fn gemini_begins_anew_after_a_call_was_cancelled() {
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "kind": "execute", "status": "in_progress" });
    let mut done = call.clone();
    done["status"] = json!("completed");
    let steps = json!([[{ "update": call }, { "wait_cancel": true }], [{ "say": "back" }], [{ "update": done }, { "wait_cancel": true }], [{ "say": "again" }]]);
    let Some(team) = agent_team(&json!({ "loads": true, "prompts": steps }), "") else { return };
    call_it(&team, "gemini");
    let mut bob = team.start(&["teammate", "bob", "--model", "acp/fake"]);
    team.wait_status("bob", "idle");
    for number in 1..=4 {
        team.team(&["send", "bob", &format!("order {number}")]).expect(0);
        if number % 2 == 1 {
            team.eventually("the agent works", || prompts(&team).len() == number);
            team.eventually("its call is told", || {
                of_kind(&team.lines("transcript/bob.jsonl"), "tool_start").len() > number / 2
            });
            team.team(&["interrupt", "bob"]).expect(0);
        }
        team.eventually("the turn is over", || turns(&team, "bob") == number);
        team.wait_status("bob", "idle");
    }
    // Only the first interrupt met a call that had not ended.
    assert_eq!(
        (calls_of(&team, "session/new").len(), calls_of(&team, "session/load").len()),
        (2, 0)
    );
    let told = prompts(&team);
    let is_digest = |text: &String| text.contains("does not have your earlier conversation");
    assert_eq!(told.iter().map(is_digest).collect::<Vec<_>>(), [false, true, false, false]);
    team.team(&["stop", "bob"]).expect(0);
    wait(&team, &mut bob);
    assert_left_in_order(&team);
}

#[test]
fn a_cancelled_command_of_codex_is_ended_and_its_session_goes_on() {
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "kind": "execute", "status": "in_progress" });
    let steps = json!([[{ "run": "exec sleep 1000" }, { "update": call }, { "wait_cancel": true }], [{ "say": "back" }]]);
    let agent = json!({ "session": ["resume"], "prompts": steps });
    let Some(team) = agent_team(&agent, "") else { return };
    call_it(&team, "codex-acp");
    let mut bob = team.start(&["teammate", "bob", "--model", "acp/fake"]);
    team.wait_status("bob", "idle");
    team.team(&["send", "bob", "work"]).expect(0);
    team.eventually("its call is told", || {
        !of_kind(&team.lines("transcript/bob.jsonl"), "tool_start").is_empty()
    });
    team.team(&["interrupt", "bob"]).expect(0);
    team.eventually("its command is ended", || pids(&team, "sleep 1000").is_empty());
    team.eventually("the turn is over", || turns(&team, "bob") == 1);
    team.team(&["send", "bob", "again"]).expect(0);
    wait_report(&team, "back");
    assert_eq!(
        (calls_of(&team, "session/new").len(), calls_of(&team, "session/resume").len()),
        (1, 1)
    );
    team.team(&["stop", "bob"]).expect(0);
    wait(&team, &mut bob);
    assert_left_in_order(&team);
}
