//! Costs and budgets: usage with cached tokens and money; budgets of the team and of one teammate, which warn
//! once, stop work, and hold across resumes.

use crate::support::harness::{CommandResult, Team};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, last_exit, says, script, spawn, until_mail, wait_for_lead,
};
use serde_json::{Value, json};
use std::fs;

/// A text reply with a usage of 1000 tokens, 700 of them from the cache.
fn costly(agent: &str, text: &str) -> Value {
    json!({ "agent": agent, "text": text, "usage": usage() })
}

fn usage() -> Value {
    json!({ "input_tokens": 100, "output_tokens": 100,
        "cache_read_input_tokens": 700, "cache_creation_input_tokens": 100 })
}

/// A reply with a harmless tool call and the same usage.
fn busy(agent: &str) -> Value {
    json!({ "agent": agent, "tools": [{ "name": "bash", "input": { "command": "echo x >> effects" } }],
        "usage": usage() })
}

fn effects(team: &Team) -> usize {
    fs::read_to_string(team.workspace().join("effects")).unwrap_or_default().lines().count()
}

fn settings(team: &Team, text: &str) {
    team.team(&["init"]).expect(0);
    crate::support::child_process::write(&team.path("settings.toml"), text);
}

fn lead(team: &Team, model: &str, further: &[&str]) -> CommandResult {
    let words = ["lead", "-p", "begin", "--model", model, "--output", "json", "--timeout", "600"];
    team.team(&[&words[..], further].concat())
}

fn notes(team: &Team, name: &str, text: &str) -> usize {
    let lines = team.lines(&format!("transcript/{name}.jsonl"));
    let said = |line: &&Value| line["content"].as_str().is_some_and(|said| said.contains(text));
    lines.iter().filter(|line| line["kind"] == "note").filter(said).count()
}

#[test]
fn usage_tells_of_the_cache_and_of_money() {
    let team = Team::without_walls();
    let mut hers = calls("alice", &[wait_for_lead()]);
    hers["usage"] = usage();
    let lines = [
        calls("lead", &[spawn("alice")]),
        costly("lead", "one"),
        hers,
        says("alice", "hers"),
        costly("lead", "two"),
    ];
    let model = script(&team, &lines);
    let prices = format!(
        "[prices.\"{model}\"]\ninput = 3\noutput = 15\ncache_read = 0.3\ncache_write = 3.75\n"
    );
    settings(&team, &prices);
    let result = lead(&team, &model, &[]).expect(0).json();
    // The cost of one call is 100 * 3 + 100 * 15 + 700 * 0.3 + 100 * 3.75, in millionths.
    let one = json!({ "turns": 1, "input_tokens": 900, "output_tokens": 100,
        "cache_read_tokens": 700, "cache_write_tokens": 100, "cost": 0.002_385 });
    let mut hers = team.member("alice")["usage"].clone();
    hers.as_object_mut().unwrap().remove("seconds");
    assert_eq!(hers, one);
    assert_eq!(result["usage"]["cache_read_tokens"], 2100);
    assert_eq!(result["usage"]["cost"], 0.007_155);
    let shown = team.team(&["ls"]).expect(0).out;
    assert!(
        shown.contains("CACHED") && shown.contains("77%") && shown.contains("0.0024"),
        "{shown}"
    );
    let used = team.team(&["ls", "--json"]).expect(0).json()["used"].clone();
    assert_eq!((&used["input_tokens"], &used["cost"]), (&json!(2700), &json!(0.007_155)));
    let log = team.lines("log/alice.jsonl");
    let logged =
        |message: &str| log.iter().find(|line| line["message"] == message).unwrap().clone();
    assert_eq!(logged("model call")["cache_read"], 700);
    assert_eq!(logged("turn ended")["cost"], 0.002_385);

    // A resumed conversation keeps its usage, a new one starts at zero.
    let resumed = lead(&team, &model, &["--resume"]).expect(0).json();
    assert_eq!(
        resumed["usage"]["cache_read_tokens"], 0,
        "this run used nothing: the script is over"
    );
    let used =
        || team.team(&["ls", "--json"]).expect(0).json()["used"]["cache_read_tokens"].clone();
    assert_eq!(used(), 2100);
    let other = script(&team, &[costly("lead", "anew")]);
    lead(&team, &other, &[]).expect(0);
    assert_eq!(used(), 700);
}

/// Alice never ends her turn. She is warned once, the lead is informed once, and the team continues without her:
/// she is stopped at the end of her budget and not restarted.
#[test]
fn a_teammate_is_stopped_at_the_end_of_its_budget() {
    let team = Team::without_walls();
    // The lead's turn ends after it is told, since the run ends once all members are at rest.
    let told = until_mail("lead", "alice is gone");
    let mut lines = vec![calls("lead", &[spawn("alice"), bash(&told)]), says("lead", "I wait.")];
    lines.extend((0..20).map(|_| busy("alice")));
    lines.extend((0..5).map(|_| says("lead", "I see.")));
    let model = script(&team, &lines);
    settings(&team, "restart = \"always\"\n[budget.member]\ntokens = 5000\n");
    lead(&team, &model, &[]).expect(0);
    assert_eq!(effects(&team), 5, "{}", team.describe());
    assert_eq!(last_exit(&team, "alice"), ("budget".into(), Some(7), None));
    assert_eq!(team.member("alice")["restarts"], 0);
    let warning = "4000 of 5000 tokens of this teammate's budget";
    assert_eq!(notes(&team, "alice", warning), 1);
    let mail = team.mail_of("lead");
    let told = |text: &str| {
        let said = |mail: &&Value| mail["content"].as_str().is_some_and(|said| said.contains(text));
        mail.iter().filter(said).count()
    };
    assert_eq!(told(warning), 1, "{mail:#?}");
    assert_eq!(told("Stopped: 5000 of 5000 tokens of this teammate's budget"), 1);
    assert_eq!(told("alice is gone (budget, exit 7)"), 1);
    assert_left_in_order(&team);
}

/// At the end of the team's budget the run exits with 7, and no model call is made beyond it. A resumed run exits with
/// 7 immediately; with a larger budget it continues.
#[test]
fn the_budget_of_the_team_holds_through_resumes() {
    let team = Team::without_walls();
    let mut lines: Vec<Value> = (0..14).map(|_| busy("lead")).collect();
    lines.push(says("lead", "all is done"));
    let model = script(&team, &lines);
    // Each call of the model reads or writes 900 tokens of input.
    let model_calls = || {
        let used = team.team(&["ls", "--json"]).expect(0).json()["used"]["input_tokens"].clone();
        used.as_u64().expect("a number of tokens") / 900
    };
    for (limit, warned, spent) in [
        ("tokens = 10000", "8000 of 10000 tokens", "10000 of 10000 tokens"),
        ("money = 0.02385", "0.0191 of 0.0238 in money", "0.0238 of 0.0238 in money"),
    ] {
        let team_settings = |limit: &str| {
            let prices = format!(
                "[prices.\"{model}\"]\ninput = 3\noutput = 15\ncache_read = 0.3\ncache_write = 3.75\n"
            );
            settings(&team, &format!("[budget.team]\n{limit}\n{prices}"));
        };
        let _fresh = fs::remove_file(team.workspace().join("effects"));
        team_settings(limit);
        let ran = lead(&team, &model, &[]).expect(7);
        assert_eq!(model_calls(), 10, "{ran:#?}");
        // The end of the team, at the next look at its budget, may cut off the command of the last call.
        let done = effects(&team);
        assert!((9..=10).contains(&done), "{done}: {ran:#?}");
        assert!(ran.err.contains(&format!("{spent} of the team's budget are used")), "{ran:#?}");
        let result = ran.json();
        assert_eq!((&result["outcome"], &result["exit_code"]), (&json!("budget"), &json!(7)));
        assert!(ran.err.contains(warned), "{ran:#?}");
        assert_eq!(notes(&team, "lead", warned), 1, "{}", team.describe());
        let again = lead(&team, &model, &["--resume"]).expect(7);
        assert_eq!((model_calls(), effects(&team)), (10, done), "{again:#?}");
        team_settings("tokens = 100000");
        let result = lead(&team, &model, &["--resume"]).expect(0).json();
        assert_eq!(
            (model_calls(), effects(&team), &result["result"]),
            (14, done + 4, &json!("all is done"))
        );
    }
    assert_left_in_order(&team);
}

#[test]
fn turns_and_minutes_are_limits_too() {
    let team = Team::without_walls();
    let model = script(
        &team,
        &[
            calls("lead", &[spawn("alice")]),
            says("lead", "first"),
            calls("alice", &[wait_for_lead()]),
            says("alice", "hers"),
            says("lead", "second"),
        ],
    );
    settings(&team, "[budget.team]\nturns = 2\n");
    let ran = lead(&team, &model, &[]).expect(7);
    assert!(ran.err.contains("2 of 2 turns of the team's budget"), "{ran:#?}");
    assert!(ran.json()["result"].as_str().unwrap().starts_with("Stopped: "), "{ran:#?}");

    let late = Team::without_walls();
    let model = script(&late, &[calls("lead", &[crate::support::scripts::bash("sleep 1000")])]);
    settings(&late, "[budget.team]\nminutes = 1\n");
    // The conversation has used nearly a minute.
    lead(&late, &script(&late, &[says("lead", "hi")]), &[]).expect(0);
    let mut roster: Value =
        serde_json::from_slice(&fs::read(late.path("config.json")).unwrap()).unwrap();
    roster["lead"]["usage"]["seconds"] = 58.into();
    crate::support::child_process::write(&late.path("config.json"), roster.to_string());
    script(
        &late,
        &[says("lead", "hi"), calls("lead", &[crate::support::scripts::bash("sleep 1000")])],
    );
    let ran = lead(&late, &model, &["--resume"]).expect(7);
    assert!(ran.err.contains("1 of 1 minutes of the team's budget"), "{ran:#?}");
    assert_left_in_order(&late);
}

#[test]
fn a_budget_in_money_wants_prices() {
    let team = Team::new();
    settings(&team, "[budget.team]\nmoney = 5\n");
    let ran =
        team.team(&["lead", "-p", "hi", "--model", "anthropic/x", "--mode", "bypass"]).expect(2);
    assert!(ran.err.contains("[models.\"anthropic/x\"]"), "{ran:#?}");
    let shown = team.team(&["config"]).expect(0).out;
    assert!(shown.contains("budget.team.money"), "{shown}");
}
