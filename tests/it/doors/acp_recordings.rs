//! Recorded messages of the real agents of other vendors, played again. `scripts/foreign-agents --record` makes them.

use crate::support::acp_agent::{agent_team, reports};
use crate::support::child_process::write;
use crate::support::scripts::{assert_left_in_order, turns, wait};
use serde_json::{Value, json};
use std::path::Path;

/// The agents, with the tokens of the turn and the third tool, as they are told.
const AGENTS: [(&str, (u64, u64), &str); 6] = [
    ("claude", (400, 40), "mcp__team__send_message"),
    ("codex", (400, 40), "mcp__team__send_message"),
    // It reports the last call of its model only.
    ("opencode", (100, 10), "other"),
    ("qwen", (500, 50), "mcp__team__send_message"),
    ("gemini", (400, 40), "mcp_team_send_message"),
    ("copilot", (400, 40), "other"),
];

#[test]
fn a_recorded_turn_of_each_agent_is_understood() {
    for (name, tokens, message) in AGENTS {
        let Some(team) = agent_team(&json!({}), "") else { return };
        team.variable("TEAM_MODE", "bypass");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let replay = root.join("tests/support/acp_replay.py");
        let record = root.join(format!("tests/it/golden/acp/{name}.jsonl"));
        // The name among the words is the one by which the program knows the agent.
        let known = if name == "claude" { "claude-agent-acp" } else { name };
        let words = json!(["python3", replay, record, known]);
        let settings = team.workspace().join(".config/team/settings.toml");
        let mode = match name {
            "codex" => "mode = \"read-only\"\n",
            "opencode" | "copilot" => "",
            _ => "mode = \"default\"\n",
        };
        write(&settings, format!("[agents.fake]\ncommand = {words}\n{mode}"));
        let mut bob = team.start(&["teammate", "bob", "--model", "acp/fake"]);
        team.wait_status("bob", "idle");
        team.team(&["send", "bob", "work"]).expect(0);
        team.eventually(&format!("{name} has reported"), || {
            turns(&team, "bob") == 1 && reports(&team, "done")
        });
        let lines = team.lines("transcript/bob.jsonl");
        let of_kind = |kind: &str| -> Vec<Value> {
            lines.iter().filter(|line| line["kind"] == kind).cloned().collect()
        };
        let tools: Vec<String> = of_kind("tool_start")
            .iter()
            .map(|line| line["name"].as_str().unwrap().to_owned())
            .filter(|tool| tool != "tool_search")
            .collect();
        let writer = if name == "codex" { "bash" } else { "write_file" };
        assert_eq!(tools, ["bash", writer, message], "{name}");
        let results = of_kind("tool_result");
        assert!(results.iter().all(|result| result["is_error"] == false), "{name}: {results:#?}");
        team.eventually(&format!("the tokens of {name} are on the roster"), || {
            let usage = &team.member("bob")["usage"];
            usage["input_tokens"] == tokens.0 && usage["output_tokens"] == tokens.1
        });
        team.team(&["stop", "bob"]).expect(0);
        wait(&team, &mut bob);
        assert_left_in_order(&team);
    }
}
