//! Agents of other vendors in mode plan: they submit their plan with a tool of the team.

use crate::support::acp_agent::{agent_team, prompts, received, spawn_agent, write_script};
use crate::support::approvals::{requests, wait_asked};
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, calls, kill_9, says, scripted_lead};
use serde_json::{Value, json};

/// The call that spawns bob in mode plan.
fn planner() -> (&'static str, Value) {
    let (tool, mut input) = spawn_agent("bob");
    input["mode"] = json!("plan");
    (tool, input)
}

fn plan(text: &str) -> Value {
    json!({ "tool": ["submit_plan", { "plan": text }] })
}

/// A change of a file, which the agent makes once it is allowed.
fn change(team: &Team, id: &str) -> Value {
    json!({ "call": { "toolCallId": id, "kind": "edit", "rawInput": { "path": team.workspace().join("made") } } })
}

/// Returns the results of the team tools.
fn results(team: &Team) -> Vec<String> {
    let of_tools = received(team).into_iter().filter(|it| it.get("tool").is_some());
    of_tools.map(|it| it["result"].to_string()).collect()
}

#[test]
fn a_plan_is_decided_and_the_turn_goes_on_with_the_decision() {
    let Some(team) = agent_team(&json!({}), "") else { return };
    let steps = json!([
        [change(&team, "early"), plan("change it"), { "say": "I wait." }],
        [plan("change made, then look"), { "say": "I wait again." }],
        [change(&team, "late"), { "say": "made" }],
    ]);
    write_script(&team, &json!({ "prompts": steps }));
    let mut lines = vec![calls("lead", &[planner()])];
    lines.extend((0..6).map(|_| says("lead", "seen")));
    let mut lead = scripted_lead(&team, &lines);
    let first = wait_asked(&team, "bob");
    assert_eq!(requests(&team)[0]["content"][0], "change it");
    team.team(&["deny", &first, "--reason", "say what you check"]).expect(0);
    team.eventually("a second plan comes", || prompts(&team).len() == 2);
    assert!(prompts(&team)[1].contains("not approved (1 of 5): say what you check"));
    let second = wait_asked(&team, "bob");
    assert_ne!(first, second);
    team.team(&["approve", &second]).expect(0);
    team.eventually("the lead has the report", || team.has_mail("lead", "bob", "made"));
    assert!(prompts(&team)[2].contains("Your plan is approved. Continue in mode accept_edits"));
    let results = results(&team);
    assert!(results.iter().all(|it| it.contains("End your turn now")), "{results:?}");
    let said: Vec<String> =
        team.lines("transcript/bob.jsonl").iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|it| it.contains("in mode plan nothing may be changed")), "{said:#?}");
    assert!(said.iter().any(|it| it.contains("early was not allowed")), "{said:#?}");
    assert!(!said.iter().any(|it| it.contains("late was not allowed")), "{said:#?}");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_plan_within_a_prompt_is_answered_there() {
    let Some(team) = agent_team(&json!({}), "") else { return };
    let steps = json!([
        [plan("change it"), { "wait_steer": "injected" }, change(&team, "late"), plan("more"), { "say": "made" }],
    ]);
    write_script(&team, &json!({ "steers": true, "prompts": steps }));
    let mut lines = vec![calls("lead", &[planner()])];
    lines.extend((0..8).map(|_| says("lead", "seen")));
    let mut lead = scripted_lead(&team, &lines);
    let id = wait_asked(&team, "bob");
    team.team(&["approve", &id]).expect(0);
    team.eventually("the lead has the report", || team.has_mail("lead", "bob", "made"));
    assert_eq!(prompts(&team).len(), 1);
    assert!(results(&team)[1].contains("not in mode plan"), "{:?}", results(&team));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn a_plan_of_a_killed_member_is_withdrawn() {
    let steps = json!([[plan("change it"), { "say": "I wait." }], [{ "say": "gone on" }]]);
    let Some(team) = agent_team(&json!({ "prompts": steps }), "") else { return };
    let mut lines = vec![calls("lead", &[planner()])];
    lines.extend((0..6).map(|_| says("lead", "seen")));
    let mut lead = scripted_lead(&team, &lines);
    wait_asked(&team, "bob");
    team.eventually("the prompt is over", || {
        let said = team.lines("transcript/bob.jsonl");
        said.iter().any(|line| line.to_string().contains("I wait."))
    });
    kill_9(&team, "bob");
    team.eventually("it goes on", || team.has_mail("lead", "bob", "gone on"));
    assert!(requests(&team).is_empty(), "{:#?}", requests(&team));
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}
