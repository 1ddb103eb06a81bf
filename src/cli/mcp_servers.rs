//! `team mcp-servers [NAME]`: the MCP servers of agents, and the tools of one.

use super::args::Json;
use crate::app::context::Context;
use crate::app::mcp_servers::{self, ServerList};
use crate::app::output::{exit_after, print, print_result, warn};
use crate::error::{Exit, Failure};
use crate::ui::mcp_servers::{ServerState, ShownServer, server_page, server_table};
use crate::ui::sanitize::{one_line, sanitize};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show this server with all its tools
    #[arg(value_name = "NAME")]
    server: Option<String>,
    /// Accept the tools of a server as they are now
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    accept: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(context: &Context, args: Args) -> Result<Exit, Failure> {
    if let Some(name) = args.accept {
        let changed = mcp_servers::accept(context, &name)?;
        let text = if changed.is_empty() {
            format!("{name} has only tools that you have accepted")
        } else {
            format!("accepted: {}", changed.join(", "))
        };
        return Ok(exit_after(print(&sanitize(&text))));
    }
    let ServerList { mut servers, problems } = mcp_servers::list(context)?;
    if let Some(name) = &args.server {
        servers.retain(|server| server.name == *name);
        if servers.is_empty() {
            let what = format!("there is no MCP server {name:?}");
            let why = "no setting and no .mcp.json names it";
            return Err(Failure::new(Exit::Failure, what, why, "`team mcp-servers` lists them"));
        }
    }
    if !args.json.json {
        for problem in &problems {
            warn(&one_line(&format!("warning: {problem}"), 400));
        }
    }
    let as_json = || {
        let rows: Vec<Value> = servers.iter().map(server_json).collect();
        json!({ "schema": 1, "servers": rows, "problems": problems })
    };
    let as_text = || match (&args.server, servers.first()) {
        (Some(_), Some(server)) => server_page(server, context.palette()),
        _ => server_table(&servers, context.palette()),
    };
    Ok(print_result(args.json.json, as_json, as_text))
}

fn server_json(server: &ShownServer) -> Value {
    let agents = server.states.iter().map(|state| {
        let ServerState { agent, since, calls, memory_bytes, problem } = state;
        json!({
            "agent": agent, "since": since, "calls": calls, "running": memory_bytes.is_some(),
            "memory_bytes": memory_bytes, "problem": problem,
        })
    });
    let tools = server.tools.as_ref().map(|tools| {
        let rows = tools.iter().map(|tool| {
            json!({ "name": tool.name, "description": tool.description, "accepted": tool.is_accepted })
        });
        rows.collect::<Vec<_>>()
    });
    json!({
        "name": server.name,
        "file": server.source,
        "command": server.summary,
        "only_for": server.agents,
        "trusted": server.is_trusted,
        "agents": agents.collect::<Vec<_>>(),
        "tools": tools,
    })
}
