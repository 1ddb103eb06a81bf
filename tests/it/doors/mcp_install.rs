//! `team mcp install`: entries for other programs.

use crate::support::child_process::write;
use crate::support::harness::Team;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn an_entry_is_printed_or_written_once_and_what_is_there_stays() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    for (program, file, list) in [
        ("copilot", ".mcp.json", "mcpServers"),
        ("gemini", ".gemini/settings.json", "mcpServers"),
        ("cursor", ".cursor/mcp.json", "mcpServers"),
        ("opencode", "opencode.json", "mcp"),
    ] {
        let path = team.workspace().join(file);
        let printed = team.team(&["mcp", "install", program]).expect(0);
        let entry = printed.json();
        assert!(printed.err.contains(file) && !path.exists(), "{printed:?}");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, r#"{"other": true}"#);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let wrote = team.team(&["mcp", "install", program, "--write"]).expect(0);
        assert!(wrote.out.starts_with("wrote "), "{wrote:?}");
        let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(whole, json!({ "other": true, list: entry[list] }));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = team.team(&["mcp", "install", program, "--write"]).expect(0);
        assert!(again.out.contains("already"), "{again:?}");
        let other = team.team(&["mcp", "install", program, "--write", "--as", "bob"]).expect(1);
        assert!(other.err.contains("another entry"), "{other:?}");
        assert_eq!(
            fs::read_dir(path.parent().unwrap())
                .unwrap()
                .flatten()
                .filter(|entry| entry.file_name().to_string_lossy().contains("draft"))
                .count(),
            0
        );
    }
    // The home of the tests is the workspace.
    let printed = team.team(&["mcp", "install", "codex", "--as", "cody"]).expect(0);
    assert!(printed.out.contains("[mcp_servers.team]"), "{printed:?}");
    let config = team.workspace().join(".codex/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    write(&config, "model = \"m\"\n");
    for _ in 0..2 {
        team.team(&["mcp", "install", "codex", "--as", "cody", "--write"]).expect(0);
    }
    let text = fs::read_to_string(&config).unwrap();
    assert_eq!(text, format!("model = \"m\"\n\n{}", printed.out));
    team.team(&["mcp", "install", "emacs"]).expect(2);
    // Claude Code has the same servers as Copilot, and hooks.
    let printed = team.team(&["mcp", "install", "claude"]).expect(0);
    let mut entries = serde_json::Deserializer::from_str(&printed.out).into_iter::<Value>();
    let (servers, hooks) = (entries.next().unwrap().unwrap(), entries.next().unwrap().unwrap());
    assert!(servers["mcpServers"]["team"].is_object() && entries.next().is_none(), "{printed:?}");
    let path = team.workspace().join(".claude/settings.local.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write(&path, r#"{"model": "m", "hooks": {"Stop": [{"hooks": []}]}}"#);
    let wrote = team.team(&["mcp", "install", "claude", "--write"]).expect(0);
    assert!(wrote.out.contains("already") && wrote.out.contains("wrote "), "{wrote:?}");
    let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let stop = json!([{ "hooks": [] }, hooks["hooks"]["Stop"][0]]);
    let tools = &hooks["hooks"]["PostToolUse"];
    assert_eq!(whole, json!({ "model": "m", "hooks": { "Stop": stop, "PostToolUse": tools } }));
    let again = team.team(&["mcp", "install", "claude", "--write"]).expect(0);
    assert_eq!(again.out.matches("already").count(), 2, "{again:?}");
    write(&team.workspace().join(".mcp.json"), "{ // mine\n}");
    let refused = team.team(&["mcp", "install", "claude", "--write"]).expect(1);
    assert!(refused.err.contains("not a JSON object"), "{refused:?}");
}

/// The printed command starts a member.
#[test]
fn the_entry_works() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let printed = team.team(&["mcp", "install", "copilot", "--lead"]).expect(0).json();
    assert_eq!(printed["mcpServers"]["team"]["args"], json!(["mcp", "--lead"]));
    team.team(&["mcp", "install", "claude", "--lead", "--as", "eve"]).expect(2);
    let entry = team.team(&["mcp", "install", "copilot", "--as", "eve"]).expect(0).json();
    let server = &entry["mcpServers"]["team"];
    let words = server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let args: Vec<&str> = words.collect();
    assert_eq!(args, ["mcp", "--as", "eve"]);
    let shake = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "x", "version": "1" } } });
    let answered = team.team_with_input(&args, &format!("{shake}\n")).expect(0);
    let instructions = answered.json()["result"]["instructions"].as_str().unwrap().to_owned();
    assert!(instructions.contains("you are eve"), "{instructions}");
    assert!(instructions.len() <= 1024, "{}", instructions.len());
    assert_eq!(team.status("eve"), "shutdown");
}
