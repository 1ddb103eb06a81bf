//! Mail and the tools of the team for an agent of another vendor, and its sleep.

use crate::support::acp_agent::{
    agent_team, calls_of, pids, prompts, received, reports, spawn_agent, wait_report, write_script,
};
use crate::support::approvals::wait_asked;
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, calls, says, scripted_lead, turns, wait};
use serde_json::{Value, json};

const BOB: [&str; 4] = ["teammate", "bob", "--model", "acp/fake"];

/// Sends bob mail during his first prompt, and lets the agent go on once it is in his transcript.
fn send_in_turn(team: &Team) {
    team.wait_status("bob", "idle");
    team.team(&["send", "bob", "first"]).expect(0);
    team.eventually("the agent works", || prompts(team).len() == 1);
    team.team(&["send", "bob", "in between"]).expect(0);
    team.eventually("the mail is taken in", || team.has_mail("bob", "user", "in between"));
    write(&team.workspace().join("go"), "");
    team.eventually("the turn is over", || turns(team, "bob") >= 1);
    team.wait_status("bob", "idle");
}

fn go(team: &Team) -> Value {
    json!({ "wait_file": team.workspace().join("go") })
}

fn stop(team: &Team, mut bob: std::process::Child) {
    team.team(&["stop", "bob"]).expect(0);
    wait(team, &mut bob);
    assert_left_in_order(team);
}

#[test]
fn the_tools_of_the_team_are_called_and_bring_mail() {
    let Some(team) = agent_team(&json!({}), "") else { return };
    let steps = json!([[go(&team), { "tool": ["list_teammates", {}] }, { "tool": ["create_task", { "subject": "look" }] },
        { "tool": ["bash", { "command": "ls" }] }, { "say": "done" }]]);
    write_script(&team, &json!({ "prompts": steps }));
    let bob = team.start(&BOB);
    send_in_turn(&team);
    let server = &calls_of(&team, "session/new")[0]["mcpServers"][0];
    assert_eq!((server["name"].as_str(), server["type"].as_str()), (Some("team"), Some("http")));
    let results: Vec<Value> =
        received(&team).into_iter().filter(|it| it.get("tool").is_some()).collect();
    let text = |at: usize| results[at]["result"].to_string();
    assert!(text(0).contains("bob (you)") && text(0).contains("in between"), "{results:#?}");
    assert!(
        !text(1).contains("in between") && text(2).contains("no tool of this name"),
        "{results:#?}"
    );
    let task: Value =
        serde_json::from_str(&std::fs::read_to_string(team.path("tasks/1.json")).unwrap()).unwrap();
    assert_eq!(task["subject"], "look");
    assert_eq!((prompts(&team).len(), turns(&team, "bob")), (1, 1), "the mail is told once");
    stop(&team, bob);
}

#[test]
fn a_message_of_the_agent_reaches_the_lead_and_rules_hold_for_it() {
    let steps = json!([[{ "tool": ["send_message", { "to": "lead", "content": "from inside" }] }, { "tool": ["broadcast", { "content": "x" }] }, { "say": "done" }]]);
    let Some(team) =
        agent_team(&json!({ "prompts": steps }), "[permissions]\ndeny = [\"broadcast\"]")
    else {
        return;
    };
    let lines = [
        calls("lead", &[spawn_agent("alice")]),
        says("lead", "spawned"),
        says("lead", "seen"),
        says("lead", "seen"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    team.eventually("the lead has both", || {
        team.has_mail("lead", "alice", "from inside") && team.has_mail("lead", "alice", "done")
    });
    let denied = received(&team).into_iter().rfind(|it| it.get("tool").is_some()).unwrap();
    assert!(denied["result"].to_string().contains("denied by the rule"), "{denied}");
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn mail_within_a_turn_is_steered_drained_or_told_next() {
    for (script, step, in_turn) in [
        (json!({ "steers": true }), json!({ "wait_steer": "injected" }), true),
        (json!({ "steers": true }), json!({ "wait_steer": "promptRequired" }), false),
        (json!({}), json!({ "drain": true }), true),
        (json!({}), json!({ "say": "nothing" }), false),
    ] {
        let Some(team) = agent_team(&json!({}), "") else { return };
        let mut script = script;
        script["prompts"] =
            json!([[go(&team), step, { "say": "first report" }], [{ "say": "second report" }]]);
        write_script(&team, &script);
        let bob = team.start(&BOB);
        send_in_turn(&team);
        if !in_turn {
            team.eventually("it is told with the next prompt", || reports(&team, "second report"));
            assert!(prompts(&team)[1].contains("in between"));
        }
        assert_eq!(prompts(&team).len(), if in_turn { 1 } else { 2 }, "{step}");
        assert_eq!(calls_of(&team, "session/new").len(), 1);
        stop(&team, bob);
    }
}

#[test]
fn the_answer_to_a_question_is_no_mail_for_the_agent() {
    let steps = json!([[{ "command": "touch made" }, { "tool": ["list_teammates", {}] }, { "drain": true }, { "say": "done" }]]);
    let Some(team) = agent_team(&json!({ "steers": true, "prompts": steps }), "") else { return };
    let lines =
        [calls("lead", &[spawn_agent("alice")]), says("lead", "spawned"), says("lead", "seen")];
    let mut lead = scripted_lead(&team, &lines);
    let id = wait_asked(&team, "alice");
    team.team(&["approve", &id]).expect(0);
    team.eventually("the lead has the report", || team.has_mail("lead", "alice", "done"));
    let said = received(&team);
    let listed = said.iter().find(|it| it.get("tool").is_some()).unwrap();
    assert!(!listed.to_string().contains("unread mail"), "{listed}");
    let drained = said.iter().find(|it| it["id"] == "drain").unwrap();
    assert_eq!(drained["result"]["messages"], json!([]));
    assert_eq!(calls_of(&team, "_session/steering").len(), 0);
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn an_idle_agent_sleeps_and_mail_wakes_it() {
    let script = json!({ "session": ["resume", "close"], "prompts": [[{ "say": "one" }], [{ "say": "two" }]] });
    let Some(team) = agent_team(&script, "[agents]\nsleep_after = 1") else { return };
    let bob = team.start(&BOB);
    team.wait_status("bob", "idle");
    for (number, report) in ["one", "two"].into_iter().enumerate() {
        team.team(&["send", "bob", "work"]).expect(0);
        wait_report(&team, report);
        team.eventually("the agent sleeps", || pids(&team, "acp_agent.py").is_empty());
        assert_eq!((team.status("bob").as_str(), turns(&team, "bob")), ("idle", number + 1));
    }
    assert_eq!(calls_of(&team, "session/resume").len(), 1);
    stop(&team, bob);
}
