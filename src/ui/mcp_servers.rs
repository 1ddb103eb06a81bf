//! The MCP servers as a table, and the tools of one.

use super::sanitize::{one_line, sanitize};
use super::style::Palette;
use super::tables::table;
use crate::os::local_time;
use crate::wire::WallTime;
use std::fmt::Write as _;

/// The width of a command or a description, in columns.
const PROSE: usize = 60;

/// A server, as a person sees it.
#[derive(Debug, Clone)]
pub(crate) struct ShownServer {
    pub(crate) name: String,
    /// The file that defines it.
    pub(crate) source: String,
    /// Its command line or address.
    pub(crate) summary: String,
    /// The agents that have it; `None` for all.
    pub(crate) agents: Option<Vec<String>>,
    pub(crate) is_trusted: bool,
    /// The state at each agent that has used it.
    pub(crate) states: Vec<ServerState>,
    /// Its tools, as listed last; `None` if it never was.
    pub(crate) tools: Option<Vec<ServerTool>>,
}

/// The state of a server at one agent.
#[derive(Debug, Clone)]
pub(crate) struct ServerState {
    pub(crate) agent: String,
    pub(crate) since: WallTime,
    pub(crate) calls: u64,
    /// The memory of its processes; `None` if it does not run.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) problem: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct ServerTool {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Whether the user has accepted it as it is.
    pub(crate) is_accepted: bool,
}

impl ShownServer {
    /// Returns the state in words: not trusted, running, failed, or ready.
    fn words(&self, state: Option<&ServerState>) -> String {
        match state {
            _ if !self.is_trusted => "not trusted".into(),
            Some(ServerState { problem: Some(_), .. }) => "failed".into(),
            Some(ServerState { memory_bytes: Some(_), calls, .. }) => {
                format!("running, {calls} call{}", if *calls == 1 { "" } else { "s" })
            }
            Some(_) | None => "not running".into(),
        }
    }

    fn tools_in_words(&self) -> String {
        let Some(tools) = &self.tools else { return "?".into() };
        let changed = tools.iter().filter(|tool| !tool.is_accepted).count();
        let changed = if changed == 0 { String::new() } else { format!(" ({changed} changed)") };
        format!("{}{changed}", tools.len())
    }

    fn rows(&self) -> Vec<[String; 6]> {
        let row = |state: Option<&ServerState>| {
            let memory = state.and_then(|state| state.memory_bytes);
            [
                one_line(&self.name, 32),
                state.map_or_else(|| "-".into(), |state| one_line(&state.agent, 32)),
                self.words(state),
                self.tools_in_words(),
                memory.map_or_else(
                    || "-".into(),
                    |bytes| format!("{} MB", bytes.div_ceil(1_000_000)),
                ),
                one_line(&self.summary, PROSE),
            ]
        };
        if self.states.is_empty() {
            return vec![row(None)];
        }
        self.states.iter().map(|state| row(Some(state))).collect()
    }
}

/// Renders a row for each agent that uses a server, and one for each other server.
pub(crate) fn server_table(servers: &[ShownServer], palette: Palette) -> String {
    if servers.is_empty() {
        return "no MCP servers: name them in .mcp.json of the workspace, or under [mcp.servers.NAME] in your settings\n"
            .into();
    }
    let rows = servers.iter().flat_map(ShownServer::rows);
    let mut text = table(["SERVER", "AGENT", "STATE", "TOOLS", "MEMORY", "COMMAND"], rows, palette);
    for server in servers {
        for ServerState { agent, since, problem, .. } in &server.states {
            if let Some(problem) = problem {
                let at = local_time(*since);
                let line = format!("{}, {agent}, {at}: {problem}", server.name);
                let _infallible = writeln!(text, "{}", one_line(&line, 400));
            }
        }
        if !server.is_trusted {
            let name = one_line(&server.name, 32);
            let _infallible = writeln!(
                text,
                "{name} is not started: look at .mcp.json; `team trust` puts it in force as it stands now"
            );
        }
    }
    text
}

/// Renders one server with all its tools.
pub(crate) fn server_page(server: &ShownServer, palette: Palette) -> String {
    let mut text = format!("{}\n", palette.bold(&one_line(&server.name, 32)));
    let _infallible = writeln!(text, "  from {}", one_line(&server.source, 200));
    let _infallible = writeln!(text, "  {}", one_line(&server.summary, 400));
    if let Some(agents) = &server.agents {
        let _infallible = writeln!(text, "  only for {}", one_line(&agents.join(", "), 200));
    }
    for tool in server.tools.iter().flatten() {
        let changed = if tool.is_accepted { "" } else { "  changed since you accepted it" };
        let _infallible = writeln!(text, "\n{}{changed}", palette.bold(&one_line(&tool.name, 64)));
        for line in sanitize(&tool.description).lines() {
            let _infallible = writeln!(text, "  {line}");
        }
    }
    match &server.tools {
        None => text.push_str("\nits tools are not known: no agent has used it yet\n"),
        Some(tools) if tools.iter().any(|tool| !tool.is_accepted) => {
            let name = one_line(&server.name, 32);
            let _infallible = writeln!(
                text,
                "\n`team mcp-servers --accept {name}` accepts the tools as they are now"
            );
        }
        Some(_) => {}
    }
    text
}
