//! Rules that answers make: for one agent, for the session, for the team, for good; listed, taken back, and forgotten when
//! they no longer hold.

use crate::support::approvals::{append_to, careful_team, requests, wait_asked};
use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, lead, says, script, spawn, wait_file,
};
use crate::support::terminal::Terminal;
use serde_json::{Value, json};

fn rules(team: &Team) -> Vec<Value> {
    let listed = team.team(&["permissions", "--json"]).expect(0).json();
    listed["rules"].as_array().unwrap().clone()
}

/// The rules of answers: number, rule, scope.
fn granted(team: &Team) -> Vec<(u64, String, String)> {
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap_or_default().to_owned();
    let rules = rules(team).into_iter().filter(|rule| rule["source"] == "answer");
    rules
        .map(|it| (it["number"].as_u64().unwrap(), text(&it, "rule"), text(&it, "scope")))
        .collect()
}

fn count(team: &Team, file: &str) -> usize {
    let text = std::fs::read_to_string(team.workspace().join(file)).unwrap_or_default();
    text.lines().count()
}

fn quit(team: &Team, lead: &mut Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(team);
}

const ONE: &str = "echo one >> one.txt";

/// The agent that asked runs it again without a question, also after a crash; its colleague asks.
#[test]
fn a_rule_for_one_agent_covers_no_other() {
    let team = careful_team();
    team.variable("TEAM_FIRST_PAUSE_MS", "10");
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "spawned"),
        calls("alice", &[bash(ONE), bash(ONE)]),
        says("alice", "twice"),
        calls("alice", &[bash(ONE)]),
        says("alice", "three times"),
        calls("lead", &[spawn("bob")]),
        says("lead", "spawned"),
        calls("bob", &[bash(ONE)]),
        says("bob", "done"),
    ];
    let mut lead = lead(&team, &script(&team, &lines));
    lead.type_line("begin");
    let id = wait_asked(&team, "alice");
    assert_eq!(requests(&team)[0]["always_allows"], json!([format!("bash({ONE})")]));
    let shown = team.team(&["requests", &id]).expect(0).out;
    assert!(shown.contains(&format!("`--always` makes the rule: bash({ONE})")), "{shown}");
    team.team(&["approve", &id, "--scope", "agent"]).expect(0);
    team.eventually("alice has run it twice", || count(&team, "one.txt") == 2);
    assert_eq!(granted(&team), [(1, format!("bash({ONE})"), "agent".into())]);
    team.wait_status("alice", "idle");
    kill_9(&team, "alice");
    team.eventually("alice is back", || team.member("alice")["restarts"] == 1);
    team.wait_status("alice", "idle");
    team.team(&["send", "alice", "again"]).expect(0);
    team.eventually("alice has run it again", || count(&team, "one.txt") == 3);
    lead.type_line("and bob");
    let id = wait_asked(&team, "bob");
    team.team(&["approve", &id]).expect(0);
    team.eventually("bob has run it", || count(&team, "one.txt") == 4);
    quit(&team, &mut lead);
}

/// A rule that is taken back asks again in the agent that asked and in a colleague.
#[test]
fn a_rule_that_is_taken_back_asks_again_in_every_agent() {
    let team = careful_team();
    std::fs::create_dir(team.path("")).unwrap();
    write(&team.path("settings.toml"), "[permissions]\ndeny = [\"bash(rm:*)\"]\n");
    let go = |name: &str| [calls(name, &[bash(ONE)]), says(name, "done")];
    let lines = [
        vec![calls("lead", &[spawn("alice"), spawn("bob")]), says("lead", "spawned")],
        [go("alice"), go("alice"), go("bob"), go("bob")].concat(),
    ]
    .concat();
    // Bob begins when alice's question is answered.
    let mut lines = lines;
    let wait = calls("bob", &[bash("until [ -e go ]; do sleep 0.05; done")]);
    lines.insert(6, wait);
    let mut lead = lead(&team, &script(&team, &lines));
    lead.type_line("begin");
    let id = wait_asked(&team, "alice");
    team.team(&["approve", &id, "--scope", "team"]).expect(0);
    let id = wait_asked(&team, "bob");
    team.team(&["approve", &id]).expect(0);
    write(&team.workspace().join("go"), "");
    team.eventually("bob needs no answer", || count(&team, "one.txt") == 2);
    team.wait_status("bob", "idle");
    let listed = team.team(&["permissions"]).expect(0).out;
    for part in ["bash(rm:*)", "settings.toml line 2", "to alice; for all agents, also after"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    // A forged order, and one with another incarnation, take nothing back.
    let forged = json!({"type": "permission_update", "from": "user", "to": "lead", "rules": {},
        "revoked": [1], "request_id": "x", "id": "x", "incarnation": team.roster()["lead"]["incarnation"]});
    append_to(&team, "inbox/lead.jsonl", &forged);
    team.eventually("it is drained", || team.mail_of("lead").iter().any(|mail| mail["id"] == "x"));
    assert_eq!(granted(&team).len(), 1);
    let gone = team.team(&["permissions", "revoke", "1"]).expect(0);
    assert!(gone.out.contains("asks again"), "{gone:?}");
    assert_eq!(granted(&team), []);
    for name in ["alice", "bob"] {
        team.team(&["send", name, "again"]).expect(0);
        let id = wait_asked(&team, name);
        team.team(&["deny", &id]).expect(0);
        team.wait_status(name, "idle");
    }
    assert_eq!(count(&team, "one.txt"), 2);
    let unknown = team.team(&["permissions", "revoke", "1"]).expect(1);
    assert!(unknown.err.contains("no answer has made a rule 1"), "{unknown:?}");
    quit(&team, &mut lead);
}

#[test]
fn a_rule_that_is_taken_back_asks_again_in_the_lead_during_a_turn() {
    let team = careful_team();
    let lines = [
        calls("lead", &[bash(ONE)]),
        calls("lead", &[bash("touch here; until [ -e go ]; do sleep 0.05; done")]),
        calls("lead", &[bash(ONE)]),
        says("lead", "done"),
    ];
    let mut lead = lead(&team, &script(&team, &lines));
    lead.type_line("begin");
    let id = wait_asked(&team, "lead");
    team.team(&["approve", &id, "--scope", "session"]).expect(0);
    let mut id = String::new();
    team.eventually("it asks for the next one", || {
        id = wait_asked(&team, "lead");
        requests(&team)[0]["description"].as_str().is_some_and(|it| it.starts_with("touch"))
    });
    team.team(&["approve", &id]).expect(0);
    wait_file(&team, "here");
    // The lead does not drain its mail while its tool runs.
    team.team(&["permissions", "revoke", "1"]).expect(0);
    write(&team.workspace().join("go"), "");
    let id = wait_asked(&team, "lead");
    assert_eq!(requests(&team)[0]["description"], ONE);
    team.team(&["deny", &id]).expect(0);
    team.wait_status("lead", "idle");
    assert_eq!(count(&team, "one.txt"), 1);
    quit(&team, &mut lead);
}

/// A resumed lead keeps the rules of the team and those for good, a new one those for good alone.
#[test]
fn a_scope_decides_which_later_lead_has_the_rule() {
    let team = careful_team();
    let scopes = ["agent", "session", "team", "good"];
    let command = |scope: &str| format!("echo {scope} >> {scope}.txt");
    let asks: Vec<_> = scopes.iter().map(|scope| bash(&command(scope))).collect();
    let lines = [calls("lead", &asks), says("lead", "all four")];
    let model = script(&team, &lines);
    let mut first = lead(&team, &model);
    first.type_line("begin");
    for scope in scopes {
        let mut id = String::new();
        team.eventually("it asks for the next one", || {
            id = wait_asked(&team, "lead");
            requests(&team)[0]["description"] == command(scope)
        });
        team.team(&["approve", &id, "--scope", scope]).expect(0);
        wait_file(&team, &format!("{scope}.txt"));
    }
    let kept = |team: &Team| granted(team).into_iter().map(|it| it.2).collect::<Vec<_>>();
    assert_eq!(kept(&team), scopes);
    team.wait_status("lead", "idle");
    quit(&team, &mut first);
    assert_eq!(kept(&team), ["good"], "without a lead");
    let again = [lines.to_vec(), vec![calls("lead", &asks), says("lead", "again")]].concat();
    let model = script(&team, &again);
    let mut resumed =
        Terminal::start(team.command("team", &["lead", "--resume", "--model", &model]));
    resumed.expect("/quit ends the team");
    team.wait_status("lead", "idle");
    assert_eq!(kept(&team), ["team", "good"]);
    resumed.type_line("again");
    for scope in ["agent", "session"] {
        let mut id = String::new();
        team.eventually("it asks again", || {
            id = wait_asked(&team, "lead");
            requests(&team)[0]["description"] == command(scope)
        });
        team.team(&["deny", &id]).expect(0);
    }
    team.eventually("the others run", || {
        ["team", "good"].map(|it| count(&team, &format!("{it}.txt"))) == [2, 2]
    });
    team.wait_status("lead", "idle");
    quit(&team, &mut resumed);
    let mut new = lead(&team, &script(&team, &lines));
    assert_eq!(kept(&team), ["good"]);
    quit(&team, &mut new);
    let number = granted(&team)[0].0.to_string();
    team.team(&["permissions", "revoke", &number]).expect(0);
    assert_eq!(granted(&team), [], "taken back without a lead");
}
