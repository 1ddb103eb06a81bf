//! The number of agents of other vendors that have a process at once, and agents that hang.

use crate::support::acp_agent::{
    agent_team, calls_of, prompts, reports, spawn_agent, write_script,
};
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, calls, says, scripted_lead, turns, wait};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Settings in which no agent sleeps by itself.
fn places(most: u32) -> String {
    format!("[agents]\nsleep_after = 0\nmax_awake = {most}")
}

/// Returns the number of agents that have a process at one time, which is between two looks. The guard of each has the same
/// words in its command line, after its own.
fn awake(team: &Team) -> usize {
    let look = || -> BTreeSet<i32> {
        let is_agent = |line: &str| line.starts_with("python3") && line.contains("acp_agent.py");
        let found = team.processes().into_iter().filter(|(_, line)| is_agent(line));
        found.map(|(pid, _)| pid).collect()
    };
    look().intersection(&look()).count()
}

#[test]
fn so_many_agents_have_a_process_and_mail_wakes_each() {
    let every = vec![json!([{ "say": "done" }]); 8];
    let script = json!({ "session": ["resume", "close"], "prompts": every });
    let Some(team) = agent_team(&script, &places(2)) else { return };
    let names = ["ann", "bob", "cid", "dan"];
    let mut members: Vec<_> =
        names.iter().map(|name| team.start(&["teammate", name, "--model", "acp/fake"])).collect();
    for round in 1..=2 {
        for name in names {
            team.wait_status(name, "idle");
            team.team(&["send", name, "work"]).expect(0);
        }
        for name in names {
            team.eventually(&format!("{name} has worked"), || {
                let awake = awake(&team);
                assert!(awake <= 2, "{awake} agents have a process");
                turns(&team, name) == round
            });
        }
    }
    assert_eq!(prompts(&team).len(), 8, "each message is told once");
    for name in names {
        team.team(&["stop", name]).expect(0);
    }
    for member in &mut members {
        wait(&team, member);
    }
    assert_left_in_order(&team);
}

#[test]
fn an_agent_without_a_place_waits_and_says_so() {
    let Some(team) = agent_team(&json!({}), &places(1)) else { return };
    let go = team.workspace().join("go");
    let steps = json!([[{ "wait_file": go }, { "say": "first" }], [{ "say": "second" }]]);
    write_script(&team, &json!({ "prompts": steps }));
    let lines = [
        calls("lead", &[spawn_agent("bob")]),
        calls("lead", &[spawn_agent("cid")]),
        says("lead", "both"),
        says("lead", "seen"),
        says("lead", "seen"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    team.wait_status("cid", "waiting");
    assert_eq!(team.member("cid")["activity"], "queued: 1 of 1 agents of other vendors run");
    assert_eq!(awake(&team), 1);
    write(&go, "");
    team.eventually("both have reported", || {
        team.has_mail("lead", "bob", "first") && team.has_mail("lead", "cid", "second")
    });
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
    assert_left_in_order(&team);
}

#[test]
fn one_that_waits_can_be_stopped_and_a_place_is_free_once_its_member_is_killed() {
    let Some(team) = agent_team(&json!({}), &places(1)) else { return };
    let steps = json!([[{ "hang": 1 }], [{ "say": "second" }]]);
    write_script(&team, &json!({ "prompts": steps }));
    let mut bob = team.start(&["teammate", "bob", "--model", "acp/fake"]);
    team.wait_status("bob", "idle");
    team.team(&["send", "bob", "work"]).expect(0);
    team.eventually("bob works", || prompts(&team).len() == 1);
    let [mut cid, mut dan] =
        ["cid", "dan"].map(|name| team.start(&["teammate", name, "--model", "acp/fake"]));
    for name in ["cid", "dan"] {
        team.wait_status(name, "idle");
        team.team(&["send", name, "work"]).expect(0);
        team.wait_status(name, "waiting");
    }
    team.team(&["stop", "dan"]).expect(0);
    wait(&team, &mut dan);
    bob.kill().unwrap();
    bob.wait().unwrap();
    team.eventually("cid has the place", || reports(&team, "second"));
    team.team(&["stop", "cid"]).expect(0);
    wait(&team, &mut cid);
    team.eventually("nothing is left", || team.processes().is_empty());
}

#[test]
fn an_agent_that_gives_no_sign_is_interrupted_and_started_again() {
    for step in [json!({ "hang": 1 }), json!({ "wait_cancel": 1 })] {
        let script = json!({ "session": ["resume"], "prompts": [[step], [{ "say": "after" }]] });
        // The signs are looked at with each heartbeat.
        let settings = "hung_after = 2\n[agents]\nhung_after = 1";
        let Some(team) = agent_team(&script, "") else { return };
        let own = team.workspace().join(".config/team/settings.toml");
        let text = std::fs::read_to_string(&own).unwrap();
        let (first, rest) = settings.split_once('\n').unwrap();
        write(&own, format!("{first}\n{text}\n{rest}\n"));
        let mut bob = team.start(&["teammate", "bob", "--model", "acp/fake"]);
        team.wait_status("bob", "idle");
        team.team(&["send", "bob", "work"]).expect(0);
        team.eventually("it goes on in a new process", || reports(&team, "after"));
        assert_eq!(calls_of(&team, "session/resume").len(), 1);
        assert!(calls_of(&team, "session/cancel").iter().all(Value::is_object));
        assert_eq!((calls_of(&team, "session/cancel").len(), turns(&team, "bob")), (1, 1));
        team.team(&["stop", "bob"]).expect(0);
        wait(&team, &mut bob);
        assert_left_in_order(&team);
    }
}
