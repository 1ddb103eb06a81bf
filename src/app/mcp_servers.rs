//! The MCP servers of this folder's agents: from the settings for agents that start, and as a view for a person.

use super::context::Context;
use super::output::warn;
use crate::error::{Exit, Failure};
use crate::mcp::RemoteTool;
use crate::os::processes;
use crate::settings::Settings;
use crate::store::mcp::{self, ServerRecord};
use crate::store::tool_pins::{ToolDigests, ToolPins};
use crate::ui::mcp_servers::{ServerState, ServerTool, ShownServer};
use crate::wire::AgentName;
use crate::wire::mcp::{McpServer, NamedMcpServer, TOOL_PREFIX, tool_name};
use crate::wire::nearest::nearest;
use crate::wire::permission::Permissions;
use crate::wire::role::Role;
use std::collections::BTreeSet;

/// Returns the servers that agents may use, and warns of those that cannot be.
pub(super) fn resolve(context: &Context, settings: &Settings) -> Vec<NamedMcpServer> {
    let further = &settings.pass_environment.value;
    let (servers, problems) = settings.mcp_servers.resolved(&context.environment, further);
    settings.mcp_servers.problems.iter().chain(&problems).for_each(|problem| warn(problem));
    servers
}

/// Returns the MCP servers of an agent: those that are for all, or name it or its role, and that its role names if it
/// names any.
pub(super) fn of_agent(
    servers: Vec<NamedMcpServer>,
    me: &AgentName,
    (role_name, role): (&str, &Role),
) -> Vec<NamedMcpServer> {
    let is_me = |name: &String| name == me.as_str() || name == role_name;
    let is_for_me = |it: &NamedMcpServer| {
        it.server.agents.as_ref().is_none_or(|agents| agents.iter().any(is_me))
    };
    let is_of_role = |it: &NamedMcpServer| {
        role.mcp_servers.as_ref().is_none_or(|names| names.contains(&it.name))
    };
    servers.into_iter().filter(|it| is_for_me(it) && is_of_role(it)).collect()
}

/// Adds the rules for the tools that the definitions of servers let run without a question.
pub(super) fn with_allowed(
    mut permissions: Permissions,
    servers: &[NamedMcpServer],
) -> Permissions {
    for NamedMcpServer { name, server, .. } in servers {
        let rules = server.allow.iter().map(|tool| match tool.as_str() {
            "*" => format!("{TOOL_PREFIX}{name}__*"),
            tool => tool_name(name, tool),
        });
        permissions.rules.allow.extend(rules);
    }
    permissions
}

/// The servers of a folder, and the problems of their definitions.
#[derive(Debug)]
pub(crate) struct ServerList {
    pub(crate) servers: Vec<ShownServer>,
    pub(crate) problems: Vec<String>,
}

/// Returns all servers that the settings name, with the agents that run them.
pub(crate) fn list(context: &Context) -> Result<ServerList, Failure> {
    let settings = context.settings()?;
    let further = &settings.pass_environment.value;
    let configured = &settings.mcp_servers;
    let (servers, missing) = configured.resolved(&context.environment, further);
    let problems = configured.problems.iter().cloned().chain(missing).collect();
    let team = context.team_to_view();
    let records = team.as_ref().map_or_else(|_| Ok(Vec::new()), mcp::records)?;
    let table = processes::all();
    let mut shown = Vec::new();
    for named in servers {
        let own = records.iter().filter(|record| record.server == named.name);
        let states = own.map(|record| state_of(record, &table)).collect();
        let known = team.as_ref().ok();
        let tools = known
            .and_then(|team| mcp::tools::<Vec<RemoteTool>>(team, &named.name, &named.digest()));
        let source = configured.source(&named.name).unwrap_or_default().to_owned();
        shown.push(ShownServer {
            tools: tools.map(|tools| with_pins(context, &named, tools)),
            summary: named.server.summary(),
            agents: named.server.agents,
            name: named.name,
            is_trusted: true,
            source,
            states,
        });
    }
    shown.extend(configured.untrusted.iter().map(untrusted));
    Ok(ServerList { servers: shown, problems })
}

fn untrusted((name, server): &(String, McpServer)) -> ShownServer {
    ShownServer {
        name: name.clone(),
        source: ".mcp.json".into(),
        summary: server.summary(),
        agents: None,
        is_trusted: false,
        states: Vec::new(),
        tools: None,
    }
}

/// Returns what an agent's record of a server says now.
fn state_of(record: &ServerRecord, table: &[processes::Process]) -> ServerState {
    let running = record.process.as_ref().filter(|process| process.is_running());
    let memory = running.map(|process| {
        let pids = processes::below(&BTreeSet::from([process.pid]), table);
        pids.into_iter().chain([process.pid]).filter_map(processes::memory_bytes).sum()
    });
    ServerState {
        agent: record.agent.clone(),
        since: record.since,
        calls: record.calls,
        memory_bytes: memory,
        problem: record.problem.clone(),
    }
}

/// Returns tools with whether the user has accepted them as they are.
fn with_pins(context: &Context, named: &NamedMcpServer, tools: Vec<RemoteTool>) -> Vec<ServerTool> {
    let present: ToolDigests = tools.iter().map(|it| (it.name.clone(), it.digest())).collect();
    let pins = ToolPins::below(context.environment.state_home());
    let accepted = pins.known(&named.digest()).unwrap_or_else(|| present.clone());
    let shown = tools.into_iter().map(|tool| ServerTool {
        is_accepted: accepted.get(&tool.name) == present.get(&tool.name),
        name: tool_name(&named.name, &tool.name),
        description: tool.description,
    });
    shown.collect()
}

/// Accepts all tools of a server as they are. Returns the names of those that were not accepted before.
pub(crate) fn accept(context: &Context, name: &str) -> Result<Vec<String>, Failure> {
    context.refuse_inside_agent("mcp-servers --accept")?;
    let settings = context.settings()?;
    let further = &settings.pass_environment.value;
    let (servers, _) = settings.mcp_servers.resolved(&context.environment, further);
    let Some(named) = servers.iter().find(|named| named.name == name) else {
        let near = nearest(name, servers.iter().map(|named| named.name.as_str()));
        let hint = near.map(|near| format!("did you mean {near}? "));
        let hint = format!("{}`team mcp-servers` lists them", hint.unwrap_or_default());
        let why = "no setting and no trusted file names it";
        return Err(Failure::new(
            Exit::Failure,
            format!("there is no MCP server {name:?}"),
            why,
            hint,
        ));
    };
    let team = context.team_to_view()?;
    let digest = named.digest();
    let Some(tools) = mcp::tools::<Vec<RemoteTool>>(&team, name, &digest) else {
        let why = "it was not used yet: its tools are accepted at its first use";
        let hint = "start a lead, and run this again if the tools change later";
        return Err(Failure::new(
            Exit::Failure,
            format!("{name} has no tools to accept"),
            why,
            hint,
        ));
    };
    let changed: Vec<String> = with_pins(context, named, tools.clone())
        .into_iter()
        .filter(|tool| !tool.is_accepted)
        .map(|tool| tool.name)
        .collect();
    let digests = tools.iter().map(|tool| (tool.name.clone(), tool.digest())).collect();
    ToolPins::below(context.environment.state_home()).accept((name, &digest), &digests)?;
    Ok(changed)
}
