//! One server of an agent: its list of tools, its connection while it is used, and its failures.

use super::catalog::ListedTool;
use super::process::ServerProcess;
use super::setup::McpSetup;
use crate::mcp::{CallContent, Connection, ConnectionError, Era, MAX_PROGRESS, RemoteTool};
use crate::os::deadline::deadline;
use crate::os::spawn::spawn_local;
use crate::os::{Clock, SystemClock};
use crate::store::asynchronous::offload;
use crate::store::mcp::{self, ServerRecord};
use crate::store::tool_pins::ToolDigests;
use crate::wire::WallTime;
use crate::wire::mcp::{CALL_SECONDS, McpTransport, NamedMcpServer};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::time::sleep;

/// The time in which a server starts and lists its tools.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A server that has ended by itself so often within this time is not started again before that is over.
const MAX_DEATHS: usize = 3;
const DEATHS_WITHIN: Duration = Duration::from_secs(300);

/// The pause after which a server that could not list its tools is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A server of one agent.
pub(super) struct Server {
    pub(super) named: NamedMcpServer,
    pub(super) setup: Rc<McpSetup>,
    /// The digest of its definition, with all values.
    digest: String,
    /// Its tools; `None` until they are known.
    tools: RefCell<Option<Vec<ListedTool>>>,
    /// The number of changes of the tools.
    version: Cell<u64>,
    /// The time of the last attempt to list the tools that failed.
    failed_at: Cell<Option<Instant>>,
    /// Held during each start, call and end.
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    connection: Option<Connection>,
    process: Option<ServerProcess>,
    /// The times at which it has ended by itself.
    deaths: Vec<Instant>,
    last_words: String,
    used_at: Option<Instant>,
    started_at: WallTime,
    calls: u64,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The agent ends, and with it the process of the server.
        let withdrawn = mcp::withdraw(&self.setup.team, &self.setup.me, &self.named.name);
        if let Err(why) = withdrawn {
            tracing::debug!(%why, "the record of an MCP server stays");
        }
    }
}

impl Server {
    pub(super) fn new(named: NamedMcpServer, setup: Rc<McpSetup>) -> Self {
        let digest = named.digest();
        Self {
            named,
            setup,
            digest,
            tools: RefCell::default(),
            version: Cell::default(),
            failed_at: Cell::default(),
            state: Mutex::default(),
        }
    }

    /// Whether its tools are not known, and may be asked for now.
    pub(super) fn needs_tools(&self) -> bool {
        let is_paused = self.failed_at.get().is_some_and(|at| at.elapsed() < RETRY_AFTER);
        self.tools.borrow().is_none() && !is_paused
    }

    /// Returns the tools that are known.
    pub(super) fn tools(&self) -> Vec<ListedTool> {
        self.tools.borrow().clone().unwrap_or_default()
    }

    /// Returns the number of changes of the tools.
    pub(super) fn version(&self) -> u64 {
        self.version.get()
    }

    fn call_limit(&self) -> Duration {
        Duration::from_secs(self.named.server.timeout.unwrap_or(CALL_SECONDS))
    }

    /// Returns the longest time of a call, with a start before it.
    pub(super) fn longest_call(&self) -> Duration {
        START_TIMEOUT * 2 + self.call_limit().max(MAX_PROGRESS)
    }

    /// Learns the tools from the list that is kept, or else from the server itself, which then ends.
    pub(super) async fn load_tools(self: Rc<Self>) {
        let mut state = self.state.lock().await;
        if self.tools.borrow().is_some() {
            return;
        }
        let (team, name, digest) =
            (self.setup.team.clone(), self.named.name.clone(), self.digest.clone());
        let kept = offload(move || mcp::tools::<Vec<RemoteTool>>(&team, &name, &digest)).await;
        let listed = match kept {
            Some(tools) => self.set_tools(tools).await,
            None => match self.start(&mut state).await {
                Ok(()) => {
                    self.stop(&mut state).await;
                    Ok(())
                }
                Err(why) => Err(why),
            },
        };
        if let Err(why) = listed {
            self.failed_at.set(Some(SystemClock.monotonic()));
            tracing::warn!(server = self.named.name, why, "an MCP server cannot be used");
            (self.setup.tell)(format!("{why}; its tools are missing"));
        }
    }

    /// Ensures that the server runs. The error is for the model.
    pub(super) async fn connect(self: &Rc<Self>) -> Result<(), String> {
        let mut state = self.state.lock().await;
        if state.connection.as_ref().is_some_and(|connection| !connection.is_closed()) {
            if state.connection.as_ref().is_some_and(Connection::take_new_tools) {
                self.list(&mut state).await?;
            }
            return Ok(());
        }
        if state.connection.is_some() {
            self.note_death(&mut state).await;
        }
        self.start(&mut state).await
    }

    /// Calls a tool of the server, which runs. The error is for the model.
    pub(super) async fn call(
        self: &Rc<Self>,
        tool: &str,
        arguments: &Value,
    ) -> Result<CallContent, String> {
        let mut state = self.state.lock().await;
        let name = &self.named.name;
        state.used_at = Some(SystemClock.monotonic());
        let Some(connection) = &state.connection else {
            return Err(format!("the MCP server {name} does not run; repeat the call"));
        };
        let result = connection.call(tool, arguments, self.call_limit()).await;
        state.used_at = Some(SystemClock.monotonic());
        state.calls += 1;
        let unknown = "whether the call was done is unknown: look before you repeat it";
        match result {
            Ok(content) => {
                self.publish(&state, None).await;
                self.end_when_idle();
                Ok(content)
            }
            Err(ConnectionError::Ended(why)) => {
                self.note_death(&mut state).await;
                let last = &state.last_words;
                let last =
                    if last.is_empty() { String::new() } else { format!(" (it said: {last})") };
                Err(format!(
                    "the MCP server {name} has ended during the call{why}{last}; {unknown}"
                ))
            }
            Err(ConnectionError::TimedOut(limit, _)) => {
                self.end_when_idle();
                Err(format!(
                    "the MCP server {name} did not answer within {} s, and the call was cancelled; {unknown}",
                    limit.as_secs()
                ))
            }
            Err(ConnectionError::Refused(why)) => {
                self.end_when_idle();
                Err(format!("the MCP server {name} refused the call: {why}"))
            }
            Err(why @ ConnectionError::NotUnderstood(_)) => {
                self.end_when_idle();
                Err(format!("the MCP server {name} was called, but {why}; {unknown}"))
            }
        }
    }

    /// Accepts a tool as it is now.
    pub(super) async fn accept(&self, tool: &RemoteTool) -> Result<(), String> {
        let digests = ToolDigests::from([(tool.name.clone(), tool.digest())]);
        let (pins, name, digest) =
            (self.setup.pins.clone(), self.named.name.clone(), self.digest.clone());
        let accepted = offload(move || pins.accept((&name, &digest), &digests)).await;
        accepted.map_err(|why| format!("nothing was done: the answer was not kept: {why}"))?;
        let tools = self.tools().into_iter().map(|it| it.remote).collect();
        self.set_tools(tools).await
    }

    /// Starts the server and lists its tools.
    async fn start(self: &Rc<Self>, state: &mut ServerState) -> Result<(), String> {
        let name = &self.named.name;
        state.deaths.retain(|at| at.elapsed() < DEATHS_WITHIN);
        if state.deaths.len() >= MAX_DEATHS {
            return Err(format!(
                "the MCP server {name} has ended {MAX_DEATHS} times within {} minutes, and is not started again before \
                 they are over; its last words: {}",
                DEATHS_WITHIN.as_secs() / 60,
                if state.last_words.is_empty() { "(none)" } else { &state.last_words }
            ));
        }
        state.started_at = SystemClock.now();
        state.calls = 0;
        let mut started = self.open(state, Era::Handshake).await;
        if let Err(ConnectionError::Refused(_)) = started {
            // In another process, because a server may keep to the version that it was addressed in first.
            started = match self.open(state, Era::Discover).await {
                Ok(()) => Ok(()),
                Err(_) => started,
            };
        }
        let started = match started {
            Ok(()) => self.list(state).await,
            Err(why) => Err(self.not_usable(state, &why).await),
        };
        if let Err(why) = &started {
            self.drop_process(state).await;
            self.publish(state, Some(why.clone())).await;
            return started;
        }
        self.publish(state, None).await;
        self.end_when_idle();
        Ok(())
    }

    async fn not_usable(&self, state: &mut ServerState, why: &ConnectionError) -> String {
        let last = match &mut state.process {
            Some(process) if matches!(why, ConnectionError::Ended(_)) => process.last_words().await,
            Some(process) => process.last_line(),
            None => String::new(),
        };
        let last = if last.is_empty() { String::new() } else { format!(" (it said: {last})") };
        format!("the MCP server {} cannot be used: {why}{last}", self.named.name)
    }

    /// Opens the connection; starts the process for it.
    async fn open(&self, state: &mut ServerState, era: Era) -> Result<(), ConnectionError> {
        let limit = deadline(START_TIMEOUT);
        self.drop_process(state).await;
        let refused = |why: std::io::Error| ConnectionError::Refused(why.to_string());
        let connection = match &self.named.server.transport {
            McpTransport::Http { url, headers } => {
                Connection::over_http(url, headers, era, limit).await?
            }
            McpTransport::Stdio { command, args, env, cwd } => {
                let setup = &self.setup;
                let (team, me, name) =
                    (setup.team.clone(), setup.me.clone(), self.named.name.clone());
                let printed = offload(move || mcp::printed_by(&team, &me, &name)).await;
                let printed = printed.map_err(|why| ConnectionError::Refused(why.to_string()))?;
                let folder = cwd.as_ref().map_or_else(PathBuf::new, PathBuf::from);
                let folder = setup.folder.join(folder);
                let program = (command.as_str(), args.as_slice());
                let (process, pipes) =
                    ServerProcess::start(program, env, &folder, &setup.commands, Some(printed))
                        .map_err(refused)?;
                let identity = process.identity();
                state.process = Some(process);
                let opened = Connection::over_pipes(pipes.output, pipes.input, era, limit).await;
                tracing::info!(
                    server = self.named.name,
                    pid = identity.map_or(0, |it| it.pid),
                    is_open = opened.is_ok(),
                    "an MCP server was started"
                );
                opened?
            }
        };
        state.connection = Some(connection);
        Ok(())
    }

    /// Lists the tools of the server, which runs, and keeps the list.
    async fn list(&self, state: &mut ServerState) -> Result<(), String> {
        let Some(connection) = &state.connection else { return Ok(()) };
        let tools = connection.tools(deadline(START_TIMEOUT)).await;
        let tools = match tools {
            Ok(tools) => tools,
            Err(why) => return Err(self.not_usable(state, &why).await),
        };
        let (team, name, digest) =
            (self.setup.team.clone(), self.named.name.clone(), self.digest.clone());
        let list = tools.clone();
        let kept = offload(move || mcp::keep_tools(&team, &name, &digest, &list)).await;
        if let Err(why) = kept {
            tracing::warn!(%why, "the tools of an MCP server were not kept");
        }
        self.set_tools(tools).await
    }

    /// Sets the tools, each with whether the user has accepted it as it is. The error is for the model.
    async fn set_tools(&self, tools: Vec<RemoteTool>) -> Result<(), String> {
        let name_and_digest = |tool: &RemoteTool| (tool.name.clone(), tool.digest());
        let present: ToolDigests = tools.iter().map(name_and_digest).collect();
        let (pins, name, digest) =
            (self.setup.pins.clone(), self.named.name.clone(), self.digest.clone());
        let accepted = offload(move || pins.accepted((&name, &digest), &present)).await;
        let accepted = accepted
            .map_err(|why| format!("it is not known which tools you have accepted: {why}"))?;
        let listed = tools.into_iter().map(|remote| {
            let digest = remote.digest();
            let is_accepted = accepted.get(&remote.name) == Some(&digest);
            ListedTool { remote, digest, is_accepted }
        });
        let listed: Vec<ListedTool> = listed.collect();
        let old = self.tools.borrow().clone();
        let is_first = old.is_none();
        let changed = listed.iter().filter(|tool| !tool.is_accepted);
        let is_known = |tool: &&ListedTool| old.iter().flatten().any(|known| known == *tool);
        let changed: Vec<&str> =
            changed.filter(|tool| !is_known(tool)).map(|tool| &*tool.remote.name).collect();
        if !changed.is_empty() {
            let (server, tools) = (&self.named.name, changed.join(", "));
            tracing::warn!(server, tools, "an MCP server has tools that the user has not accepted");
            (self.setup.tell)(format!(
                "the MCP server {server} has changed its tools since you accepted them: {tools}; each call of them asks \
                 you (see `team mcp-servers`)"
            ));
        }
        if is_first || old.as_ref() != Some(&listed) {
            *self.tools.borrow_mut() = Some(listed);
            self.version.set(self.version.get() + 1);
        }
        Ok(())
    }

    /// Ends the server once it was not used for a while.
    fn end_when_idle(self: &Rc<Self>) {
        let (server, wait) = (Rc::downgrade(self), self.setup.idle_after);
        spawn_local(async move {
            sleep(wait).await;
            let Some(server) = server.upgrade() else { return };
            let mut state = server.state.lock().await;
            let is_idle = state.used_at.is_none_or(|at| at.elapsed() >= wait);
            if is_idle && state.connection.is_some() {
                tracing::info!(server = server.named.name, "an idle MCP server is ended");
                server.stop(&mut state).await;
            }
        });
    }

    /// Ends the server in order.
    async fn stop(&self, state: &mut ServerState) {
        if let Some(connection) = state.connection.take() {
            connection.close().await;
        }
        self.drop_process(state).await;
        let (team, me, name) =
            (self.setup.team.clone(), self.setup.me.clone(), self.named.name.clone());
        let withdrawn = offload(move || mcp::withdraw(&team, &me, &name)).await;
        if let Err(why) = withdrawn {
            tracing::warn!(%why, "the record of an MCP server stays");
        }
    }

    /// Records that the server has ended by itself.
    async fn note_death(&self, state: &mut ServerState) {
        let now = SystemClock.monotonic();
        state.deaths.push(now);
        state.last_words = match &mut state.process {
            Some(process) => process.last_words().await,
            None => String::new(),
        };
        state.connection = None;
        self.drop_process(state).await;
        let (server, last) = (&self.named.name, &state.last_words);
        tracing::warn!(server, last, "an MCP server has ended by itself");
        self.publish(state, Some("it has ended by itself".into())).await;
    }

    /// Ends what is left of the process.
    async fn drop_process(&self, state: &mut ServerState) {
        state.connection = None;
        if let Some(process) = state.process.take() {
            process.end().await;
        }
    }

    /// Publishes the state of the server, for people.
    async fn publish(&self, state: &ServerState, problem: Option<String>) {
        let process = state.process.as_ref().and_then(ServerProcess::identity);
        let (team, me) = (self.setup.team.clone(), self.setup.me.clone());
        let record = ServerRecord {
            agent: me.to_string(),
            server: self.named.name.clone(),
            process: process.filter(|_| problem.is_none()),
            since: state.started_at,
            calls: state.calls,
            problem,
        };
        let published = offload(move || mcp::publish(&team, &me, &record)).await;
        if let Err(why) = published {
            tracing::warn!(%why, "the state of an MCP server was not published");
        }
    }
}
