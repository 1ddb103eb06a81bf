//! Bad MCP servers: each gets a clear word, and nothing is lost or left.

use super::{scripted_server, team_with, tool};
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, calls, headless, says, script, tool_results};
use serde_json::{Value, json};
use std::fs;

/// The tool, the text, and whether it is an error, of each result of the lead.
type Results = Vec<(String, String, bool)>;

/// Runs a lead that makes these calls of the server `s`, defined so; returns its team and results.
fn run(server: Value, list: &[(&str, &str)]) -> Option<(Team, Results)> {
    let team = team_with(&[("s", server)])?;
    let lines = list.iter().map(|(name, text)| {
        let (name, input) = tool(name, text);
        calls("lead", &[(&name, input)])
    });
    let lines: Vec<Value> = lines.chain([says("lead", "done")]).collect();
    headless(&team, &script(&team, &lines), "go").expect(0);
    let results = tool_results(&team, "lead");
    assert_left_in_order(&team);
    Some((team, results))
}

fn log_of_lead(team: &Team) -> String {
    fs::read_to_string(team.path("log/lead.jsonl")).unwrap()
}

#[test]
fn text_between_messages_floods_and_forged_answers_disturb_no_call() {
    let calls = [("garbage", "1"), ("forged", "2"), ("flood", "20000"), ("echo", "4")];
    let Some((_team, results)) = run(scripted_server(&["start=garbage"]), &calls) else { return };
    let texts: Vec<&str> = results.iter().map(|(_, text, _)| text.as_str()).collect();
    assert_eq!(texts, ["answer: 1", "answer: 2", "answer: 20000", "answer: 4"]);
}

#[test]
fn an_answer_that_is_not_understood_leaves_the_call_unknown() {
    let calls = [("odd", ""), ("unknown", "seen"), ("echo", "after")];
    let Some((_team, results)) = run(scripted_server(&[]), &calls) else { return };
    assert!(results[0].2 && results[0].1.contains("not understood"), "{results:?}");
    assert!(results[0].1.contains("whether the call was done is unknown"), "{results:?}");
    // A block that is not known leaves the others readable.
    assert_eq!(results[1].1, "{\"type\":\"hologram\",\"data\":\"x\"}\nseen");
    assert_eq!(results[2].1, "answer: after");
}

#[test]
fn a_server_that_dies_in_calls_is_started_again_until_it_was_too_often() {
    let calls = [("die", ""), ("echo", "back"), ("long", ""), ("die", ""), ("echo", "gone")];
    let Some((_team, results)) = run(scripted_server(&[]), &calls) else { return };
    assert!(results[0].1.contains("has ended during the call"), "{results:?}");
    assert!(results[0].1.contains("it said: fatal: the disk is on fire"), "{results:?}");
    assert!(results[0].1.contains("unknown: look before you repeat it"), "{results:?}");
    assert_eq!(results[1].1, "answer: back");
    assert!(results[2].1.contains("it wrote a line of more than 16 MiB"), "{results:?}");
    assert!(results[4].1.contains("has ended 3 times within 5 minutes"), "{results:?}");
    assert!(results[4].1.contains("fatal: the disk is on fire"), "{results:?}");
}

#[test]
fn a_server_that_cannot_start_has_no_tools_and_its_reason_is_told() {
    for (options, reason) in [
        (&["start=exit"][..], "error: no port"),
        (&["start=error"], "no licence"),
        (&["start=long"], "a line of more than 16 MiB"),
    ] {
        let Some((team, results)) = run(scripted_server(options), &[("echo", "hi")]) else {
            return;
        };
        assert!(results[0].1.starts_with("there is no tool \"mcp__s__echo\""), "{results:?}");
        let log = log_of_lead(&team);
        assert!(log.contains("the MCP server s cannot be used") && log.contains(reason), "{log}");
    }
    let missing = json!({ "command": "no-such-program-anywhere" });
    let Some((team, _)) = run(missing, &[]) else { return };
    assert!(log_of_lead(&team).contains("no-such-program-anywhere: not found"));
}

#[test]
fn a_server_without_the_handshake_is_spoken_to_as_it_wants() {
    let calls = [("echo", "hi")];
    let Some((_team, results)) = run(scripted_server(&["start=modern"]), &calls) else { return };
    assert_eq!(results[0].1, "answer: hi");
}

#[test]
fn a_server_that_ignores_the_end_of_its_input_is_ended() {
    let Some((_team, results)) = run(scripted_server(&["end=ignore"]), &[("echo", "hi")]) else {
        return;
    };
    assert_eq!(results[0].1, "answer: hi");
}

#[test]
fn a_tool_with_control_characters_in_its_name_has_a_legible_one() {
    let Some(team) = team_with(&[("s", scripted_server(&["tools=tools.json"]))]) else { return };
    let tools = json!([
        { "name": "a\u{1b}[2Jb c", "description": "\u{1b}]0;title\u{7}Clears.", "inputSchema": { "type": "object" } },
        { "name": "x y", "description": "One.", "inputSchema": { "type": "object" } },
        { "name": "x_y", "description": "Two.", "inputSchema": { "type": "object" } },
        { "name": "n".repeat(200), "description": "Long.", "inputSchema": { "type": "object" } },
    ]);
    crate::support::child_process::write(&team.workspace().join("tools.json"), tools.to_string());
    let (name, input) = tool("a__2Jb_c", "hi");
    let lines = [calls("lead", &[(&name, input)]), says("lead", "done")];
    headless(&team, &script(&team, &lines), "go").expect(0);
    assert_eq!(tool_results(&team, "lead")[0].1, "answer: hi");
    let log = log_of_lead(&team);
    assert!(log.contains("MCP tools of the same name are left out"), "{log}");
    let page = team.team(&["mcp-servers", "s"]).expect(0).out;
    assert!(!page.contains(['\u{1b}', '\u{7}']) && page.contains("mcp__s__a__2Jb_c"), "{page}");
    assert_left_in_order(&team);
}

#[test]
#[ignore = "it waits until a server has not answered for 30 s"]
fn a_server_that_does_not_answer_is_given_up() {
    let Some((team, results)) = run(scripted_server(&["start=silent"]), &[("echo", "hi")]) else {
        return;
    };
    assert!(results[0].1.starts_with("there is no tool"), "{results:?}");
    assert!(log_of_lead(&team).contains("it did not answer within 30 s"));
}

#[test]
fn a_call_that_takes_too_long_is_cancelled() {
    let mut server = scripted_server(&[]);
    server["timeout"] = json!(3);
    let calls = [("slow", "600"), ("progress", "20")];
    let Some(team) = team_with(&[("s", server)]) else { return };
    let lines = calls.map(|(name, text)| {
        let (name, input) = tool(name, text);
        crate::support::scripts::calls("lead", &[(&name, input)])
    });
    let lines: Vec<Value> = lines.into_iter().chain([says("lead", "done")]).collect();
    headless(&team, &script(&team, &lines[..1]), "go").expect(0);
    let results = tool_results(&team, "lead");
    assert!(results[0].1.contains("did not answer within 3 s, and the call was cancelled"));
    // Each report of progress gives it the same time again.
    headless(&team, &script(&team, &lines[1..]), "go").expect(0);
    assert_eq!(tool_results(&team, "lead").last().unwrap().1, "answer: 20");
    assert_left_in_order(&team);
}
