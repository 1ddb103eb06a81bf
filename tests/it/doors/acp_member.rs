//! Members whose work is done by an agent of another vendor, over the Agent Client Protocol.

use crate::support::acp_agent::{
    agent_team, answers, calls_of, pids, prompts, spawn_agent, wait_report, write_script,
};
use crate::support::approvals::{requests, wait_asked};
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, calls, headless, kill_9, says, script, scripted_lead, turns, wait,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

const BOB: [&str; 4] = ["teammate", "bob", "--model", "acp/fake"];

fn wait_turns(team: &Team, name: &str, count: usize) {
    team.eventually("the turn is over", || turns(team, name) == count);
    team.wait_status(name, "idle");
}

#[test]
fn a_turn_asks_the_person_works_and_reports() {
    let cost = json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": { "amount": 0.5, "currency": "USD" } });
    let steps = json!([[{ "message": ["m1", "I look."] }, { "update": cost }, { "command": "touch made" }, { "message": ["m2", "All is done."] }]]);
    let usage = json!({ "inputTokens": 100, "outputTokens": 7 });
    let agent = json!({ "prompts": steps, "usage": usage, "modes": ["other", "ask"] });
    let Some(team) = agent_team(&agent, "mode = \"ask\"") else { return };
    let lines =
        [calls("lead", &[spawn_agent("alice")]), says("lead", "spawned"), says("lead", "seen")];
    let mut lead = scripted_lead(&team, &lines);
    let id = wait_asked(&team, "alice");
    let asked = &requests(&team)[0];
    assert_eq!(
        (asked["tool"].as_str(), asked["content"][0].as_str()),
        (Some("bash"), Some("touch made"))
    );
    assert!(!team.workspace().join("made").exists());
    team.team(&["approve", &id]).expect(0);
    team.eventually("the lead has the report", || team.has_mail("lead", "alice", "All is done."));
    assert!(team.workspace().join("made").exists());
    assert_eq!(answers(&team), ["allow_once"]);
    assert_eq!(calls_of(&team, "session/set_mode")[0]["modeId"], "ask");
    let prompt = &prompts(&team)[0];
    assert!(prompt.contains("Your name is alice") && prompt.contains("<inbox>\n[{"), "{prompt}");
    // The report is sent before the roster has the tokens of its turn.
    wait_turns(&team, "alice", 1);
    team.eventually("the roster has them", || team.member("alice")["usage"]["cost"] == 0.5);
    let alice = team.member("alice");
    assert_eq!(
        (&alice["model"], &alice["usage"]["input_tokens"]),
        (&json!("acp/fake"), &json!(100))
    );
    let kinds: Vec<String> = team
        .lines("transcript/alice.jsonl")
        .iter()
        .map(|line| line["kind"].as_str().unwrap().into())
        .collect();
    let expected = "session session mail assistant assistant request mail decision tool_start tool_result assistant turn_end";
    assert_eq!(kinds.join(" "), expected);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn rules_and_the_deadline_decide_without_a_person() {
    let steps = json!([[{ "command": "rm -rf x" }, { "command": "touch free" }, { "command": "touch late" },
        { "call": { "toolCallId": "w", "kind": "edit", "rawInput": { "path": ".team/config.json" } } }, { "say": "over" }]]);
    let agent = json!({ "prompts": steps });
    let rules =
        "[permissions]\ndeny = [\"bash(rm:*)\"]\nallow = [\"bash(touch free)\"]\ntimeout = 1";
    let Some(team) = agent_team(&agent, rules) else { return };
    let mut bob = team.start(&BOB);
    team.wait_status("bob", "idle");
    let mut lead = scripted_lead(&team, &[says("lead", "here")]);
    // Nobody is asked about the first two; the third one is put off until its deadline.
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    team.team(&["send", "bob", "work"]).expect(0);
    wait_turns(&team, "bob", 1);
    assert_eq!(answers(&team), ["reject_once", "allow_once", "reject_once", "reject_once"]);
    assert!(team.workspace().join("free").exists() && !team.workspace().join("late").exists());
    let lines = team.lines("transcript/bob.jsonl");
    let results: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["content"].as_str().filter(|_| line["kind"] == "tool_result"))
        .collect();
    assert!(
        results[0].contains("denied by the rule") && results[3].contains("team folder"),
        "{results:#?}"
    );
    team.team(&["stop", "bob"]).expect(0);
    wait(&team, &mut bob);
    assert_left_in_order(&team);
}

#[test]
fn several_questions_are_open_at_once_and_a_refusal_is_told() {
    let call = |id: &str| json!({ "toolCallId": id, "kind": "execute", "rawInput": { "command": format!("touch {id}") } });
    let agent = json!({ "ends_at_refusal": true, "prompts": [[{ "calls": [call("a"), call("b")] }], [{ "say": "understood" }]] });
    let Some(team) = agent_team(&agent, "") else { return };
    let mut lead = scripted_lead(
        &team,
        &[calls("lead", &[spawn_agent("alice")]), says("lead", "spawned"), says("lead", "seen")],
    );
    wait_asked(&team, "alice");
    team.eventually("both questions are open", || requests(&team).len() == 2);
    team.team(&["approve", "alice-1"]).expect(0);
    team.eventually("one question is open", || requests(&team).len() == 1);
    team.team(&["deny", "alice-2", "--reason", "too early"]).expect(0);
    team.eventually("alice has reported", || team.has_mail("lead", "alice", "understood"));
    let mut given = answers(&team);
    given.sort();
    assert_eq!(given, ["allow_once", "reject_once"]);
    assert!(
        prompts(&team)[1].contains("touch b: denied by the user: too early"),
        "{:?}",
        prompts(&team)
    );
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn an_agent_goes_on_with_its_session_or_is_told_the_past() {
    let one = |more: serde_json::Value| {
        let mut script = json!({ "prompts": [[{ "say": "first answer" }], [{ "say": "second answer" }], [{ "say": "third answer" }]] });
        script.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        script
    };
    let Some(team) = agent_team(&one(json!({ "session": ["resume", "close"] })), "") else {
        return;
    };
    let turn = |number: usize| {
        let mut bob = team.start(&BOB);
        team.wait_status("bob", "idle");
        team.team(&["send", "bob", &format!("question {number}")]).expect(0);
        wait_turns(&team, "bob", number);
        team.team(&["stop", "bob"]).expect(0);
        wait(&team, &mut bob);
        team.wait_no_process();
    };
    turn(1);
    assert_eq!(calls_of(&team, "session/close").len(), 1);
    turn(2);
    assert_eq!(calls_of(&team, "session/resume")[0]["sessionId"], "session-1");
    assert!(!prompts(&team)[1].contains("first answer"));
    // This one loads, and its history is not a part of the next turn. Then one that forgets everything.
    write_script(&team, &one(json!({ "loads": true })));
    turn(3);
    let lines = team.lines("transcript/bob.jsonl");
    assert!(!lines.iter().any(|line| line.to_string().contains("said before")));
    write_script(&team, &one(json!({})));
    turn(4);
    let told = &prompts(&team)[3];
    assert!(told.contains("you: third answer") && told.contains("question 4"), "{told}");
    assert_eq!(calls_of(&team, "session/new").len(), 2);
    assert_left_in_order(&team);
}

#[test]
fn an_interrupt_cancels_the_prompt_and_an_agent_that_goes_on_is_ended() {
    let agent = json!({ "prompts": [[{ "say": "begun" }, { "wait_cancel": true }], [{ "say": "begun" }, { "hang": true }], [{ "say": "back" }]] });
    let Some(team) = agent_team(&agent, "") else { return };
    let mut bob = team.start(&BOB);
    team.wait_status("bob", "idle");
    for number in 1..=2 {
        team.team(&["send", "bob", "work"]).expect(0);
        team.wait_status("bob", "working");
        team.eventually("the agent works", || prompts(&team).len() == number);
        team.team(&["interrupt", "bob"]).expect(0);
        wait_turns(&team, "bob", number);
    }
    assert_eq!(calls_of(&team, "session/cancel").len(), 2);
    team.team(&["send", "bob", "again"]).expect(0);
    wait_turns(&team, "bob", 3);
    wait_report(&team, "back");
    team.team(&["stop", "bob"]).expect(0);
    wait(&team, &mut bob);
    assert_left_in_order(&team);
}

#[test]
fn no_process_is_left_by_a_kill_of_teammate_agent_or_supervisor() {
    let work = json!([{ "run": "exec sleep 1000" }, { "run": "setsid sleep 1000 & exec setsid sleep 1000" }, { "say": "begun" }, { "hang": true }]);
    let agent = json!({ "prompts": [work, work, [{ "say": "back" }]], "ignores_eof": true });
    let Some(team) = agent_team(&agent, "") else { return };
    let mut bob = team.start(&BOB);
    team.wait_status("bob", "idle");
    team.team(&["send", "bob", "work"]).expect(0);
    for (number, victim) in ["acp_agent.py", "__guard"].into_iter().enumerate() {
        team.eventually("the agent works", || prompts(&team).len() > number);
        team.eventually("its processes run", || pids(&team, "sleep 1000").len() >= 3);
        let old = pids(&team, "sleep 1000");
        for pid in pids(&team, victim) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
        team.eventually("nothing of that agent is left", || {
            pids(&team, "sleep 1000").iter().all(|pid| !old.contains(pid))
        });
    }
    wait_turns(&team, "bob", 1);
    wait_report(&team, "back");
    assert!(prompts(&team)[1].contains("ended unexpectedly and was started again"));

    write_script(&team, &json!({ "prompts": [[], [], [], work], "ignores_eof": true }));
    team.team(&["stop", "bob"]).expect(0);
    wait(&team, &mut bob);
    team.wait_no_process();
    let mut bob = team.start(&BOB);
    team.wait_status("bob", "idle");
    team.team(&["send", "bob", "work"]).expect(0);
    team.eventually("its processes run", || pids(&team, "sleep 1000").len() >= 3);
    kill_9(&team, "bob");
    wait(&team, &mut bob);
    team.wait_no_process();
}

#[test]
fn a_killed_member_is_restarted_and_asked_again() {
    let agent = json!({ "session": ["resume"], "prompts": [[{ "say": "begun" }, { "hang": true }], [{ "say": "the answer" }]] });
    let Some(team) = agent_team(&agent, "") else { return };
    team.variable("TEAM_FIRST_PAUSE_MS", "1");
    let mut lead = scripted_lead(
        &team,
        &[calls("lead", &[spawn_agent("alice")]), says("lead", "spawned"), says("lead", "seen")],
    );
    team.eventually("the agent works", || prompts(&team).len() == 1);
    kill_9(&team, "alice");
    team.eventually("the lead has the report", || team.has_mail("lead", "alice", "the answer"));
    let again = &prompts(&team)[1];
    assert!(
        again.contains("you may have seen it]\n<inbox>")
            && again.contains("restarted in the middle of a turn"),
        "{again}"
    );
    assert_eq!(calls_of(&team, "session/resume").len(), 1);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn mode_plan_refuses_changes_and_budgets_end_the_member() {
    let agent = json!({ "prompts": [[{ "command": "touch x" }, { "call": { "toolCallId": "r", "kind": "read", "rawInput": { "path": "agent.json" } } }, { "say": "one" }], [{ "say": "two" }]],
        "usage": { "inputTokens": 60, "outputTokens": 40 } });
    let Some(team) = agent_team(&agent, "[budget.member]\ntokens = 100") else { return };
    let mut bob = team.start(&[&BOB[..], &["--mode", "plan"]].concat());
    team.wait_status("bob", "idle");
    team.team(&["send", "bob", "work"]).expect(0);
    wait_turns(&team, "bob", 1);
    assert_eq!(answers(&team), ["reject_once", "allow_once"]);
    assert!(!team.workspace().join("x").exists());
    team.team(&["send", "bob", "more"]).expect(0);
    assert_eq!(wait(&team, &mut bob), Some(7), "the budget is used up");
    assert_eq!(prompts(&team).len(), 1);
    assert_left_in_order(&team);
}

#[test]
fn a_lead_is_never_an_agent_of_another_vendor() {
    let Some(team) = agent_team(&json!({ "prompts": [] }), "") else { return };
    let ran = headless(&team, "acp/fake", "hello");
    assert!(ran.code != Some(0) && ran.err.contains("only a teammate can run it"), "{ran:?}");
    let spawn = |model: &str| {
        let input = json!({ "name": "alice", "role": "worker", "prompt": "begin", "model": model });
        ("spawn_teammate", input)
    };
    let lines = [calls("lead", &[spawn("acp/codex"), spawn("acp/none")]), says("lead", "over")];
    let model = script(&team, &lines);
    headless(&team, &model, "begin").expect(0);
    let results = crate::support::scripts::tool_results(&team, "lead");
    assert!(
        results[0].2 && results[0].1.contains("npm install -g @agentclientprotocol/codex-acp"),
        "{results:?}"
    );
    assert!(results[1].2 && results[1].1.contains("there is no agent \"none\""), "{results:?}");
    assert_left_in_order(&team);
}
