//! The doors: agents, tools and editors that people already have, and pages of the web.

mod acp_calls;
mod acp_failures;
mod acp_lead;
mod acp_lead_ends;
mod acp_lead_sessions;
mod acp_mail;
mod acp_member;
mod acp_places;
mod acp_plans;
mod acp_recordings;

mod mcp_bad_servers;
mod mcp_hooks;
mod mcp_install;
mod mcp_lead;
mod mcp_member;
mod mcp_servers;

mod pages;
mod pages_asked;

use crate::support::child_process::write;
use crate::support::harness::{Team, has_python};
use serde_json::{Map, Value, json};

/// The scripted MCP server. It runs in the workspace, because walls may hide the folder of this repository.
const SCRIPT: &str = include_str!("../../support/mcp_server.py");

/// Returns the definition of a scripted MCP server with these options.
pub(crate) fn scripted_server(options: &[&str]) -> Value {
    let args: Vec<&str> =
        ["-B", "mcp_server.py"].into_iter().chain(options.iter().copied()).collect();
    json!({ "command": "python3", "args": args })
}

/// Writes the `.mcp.json` of the workspace.
fn define(team: &Team, servers: &[(&str, Value)]) {
    write(&team.workspace().join("mcp_server.py"), SCRIPT);
    let servers: Map<String, Value> =
        servers.iter().map(|(name, server)| ((*name).to_owned(), server.clone())).collect();
    write(&team.workspace().join(".mcp.json"), json!({ "mcpServers": servers }).to_string());
}

/// Creates a team that trusts a folder with these servers; `None` without python.
pub(crate) fn team_with(servers: &[(&str, Value)]) -> Option<Team> {
    if !has_python("the scripted MCP server is written in it") {
        return None;
    }
    let team = Team::new();
    define(&team, servers);
    team.team(&["init"]).expect(0);
    team.team(&["trust"]).expect(0);
    Some(team)
}

/// Returns the call of a tool of the server `s`.
fn tool(name: &str, text: &str) -> (String, Value) {
    (format!("mcp__s__{name}"), json!({ "text": text }))
}
