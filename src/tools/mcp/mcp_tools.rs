//! The tools of an agent's servers: what a model is offered, how a call is judged, and its server.

use super::catalog::{Catalog, CatalogTool};
use super::server::Server;
use super::setup::McpSetup;
use crate::mcp::CallContent;
use crate::os::spawn::erased;
use crate::os::wall::Walls;
use crate::protocol::permission::PermissionSubject;
use crate::tools::call::Call;
use crate::wire::chat::ToolDefinition;
use crate::wire::tool::{Effect, ToolSpec};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;

/// The number of tools above which a model gets `find_tools` instead of all of them.
const MAX_OFFERED: usize = 40;

/// The number of judged calls that are remembered. A call runs before so many others are judged.
const MOST_JUDGED: usize = 16;

/// The tools of an agent's servers. Its subagents have the same servers, and find tools for themselves.
pub(crate) struct McpTools {
    servers: Vec<Rc<Server>>,
    is_compact: bool,
    catalog: RefCell<Catalog>,
    /// The number of changes of the servers' tools that the catalog has.
    changes: Cell<u64>,
    /// The ids of the calls that were judged last, and the digests of their tools, oldest first.
    judged: RefCell<VecDeque<(String, String)>>,
}

impl McpTools {
    /// Returns the tools of these servers; `None` if there is none. Starts nothing.
    pub(crate) fn new(setup: McpSetup) -> Option<Rc<Self>> {
        if setup.servers.is_empty() {
            return None;
        }
        let (servers, setup) = (setup.servers.clone(), Rc::new(setup));
        let is_compact = setup.is_compact;
        let servers = servers.into_iter().map(|named| Server::new(named, Rc::clone(&setup)));
        Some(Rc::new(Self::of_servers(servers.map(Rc::new).collect(), is_compact)))
    }

    fn of_servers(servers: Vec<Rc<Server>>, is_compact: bool) -> Self {
        let (catalog, judged) = (RefCell::default(), RefCell::default());
        Self { servers, is_compact, catalog, changes: Cell::default(), judged }
    }

    /// Returns the tools of a subagent: those of all servers, or of those that its role names. `None` if there is none.
    pub(in crate::tools) fn for_subagent(&self, of_role: Option<&[String]>) -> Option<Rc<Self>> {
        let is_named =
            |server: &&Rc<Server>| of_role.is_none_or(|names| names.contains(&server.named.name));
        let servers: Vec<_> = self.servers.iter().filter(is_named).map(Rc::clone).collect();
        let tools = (!servers.is_empty()).then(|| Self::of_servers(servers, self.is_compact))?;
        // A subagent that goes on may begin with a call.
        tools.refresh();
        Some(Rc::new(tools))
    }

    /// Learns the tools of all servers: from the lists that are kept, or from a server that starts for it. A server that
    /// cannot be used is told of, and has no tools until it can.
    pub(in crate::tools) async fn load(&self) {
        let mut loading = JoinSet::new();
        for server in self.servers.iter().filter(|server| server.needs_tools()) {
            let server = Rc::clone(server);
            loading.spawn_local(erased(async move { server.load_tools().await }));
        }
        while loading.join_next().await.is_some() {}
        self.refresh();
    }

    /// Rebuilds the catalog from what the servers know now.
    fn refresh(&self) {
        let changes = self.servers.iter().map(|server| server.version()).sum();
        if self.changes.replace(changes) != changes {
            let lists = self.servers.iter().map(|server| (server.named.clone(), server.tools()));
            self.catalog.borrow_mut().set(lists.collect());
        }
    }

    /// Whether the model finds tools with `find_tools`, because there are too many.
    pub(in crate::tools) fn is_deferred(&self) -> bool {
        let count = self.catalog.borrow().tools().len();
        count > MAX_OFFERED || self.is_compact && count > 0
    }

    /// Returns the tools for a model call, of those that the role `has`.
    pub(in crate::tools) fn definitions(
        &self,
        has: impl Fn(&ToolSpec) -> bool,
    ) -> Vec<ToolDefinition> {
        let is_deferred = self.is_deferred();
        let catalog = self.catalog.borrow();
        let offered = catalog.tools().iter().filter(|tool| has(tool.spec));
        let offered = offered.filter(|tool| !is_deferred || catalog.is_found(tool.spec.name));
        offered.map(CatalogTool::definition).collect()
    }

    /// Returns the spec of a tool; `None` if there is none of this name.
    pub(in crate::tools) fn find(&self, name: &str) -> Option<&'static ToolSpec> {
        self.catalog.borrow().find(name).map(|tool| tool.spec)
    }

    /// Returns the part of a call that permission rules match, and notes the tool as it is now.
    pub(in crate::tools) fn judge(&self, call: &Call) -> PermissionSubject {
        let catalog = self.catalog.borrow();
        let Some(tool) = catalog.find(&call.name) else { return PermissionSubject::Nothing };
        let mut judged = self.judged.borrow_mut();
        judged.retain(|(id, _)| *id != call.id);
        judged.push_back((call.id.clone(), tool.digest.clone()));
        if judged.len() > MOST_JUDGED {
            judged.pop_front();
        }
        if tool.is_accepted {
            return PermissionSubject::Nothing;
        }
        PermissionSubject::ChangedTool(format!(
            "{} of the MCP server {} is not as you have accepted it. It says now: {}\nThe call: {}",
            tool.remote.name, tool.server, tool.remote.description, call.input
        ))
    }

    /// Returns the longest time of a call.
    pub(in crate::tools) fn time_limit(&self, name: &str) -> Option<Duration> {
        let catalog = self.catalog.borrow();
        let server = self.server(&catalog.find(name)?.server)?;
        Some(server.longest_call())
    }

    fn server(&self, name: &str) -> Option<Rc<Server>> {
        self.servers.iter().find(|server| server.named.name == name).map(Rc::clone)
    }

    /// Prepares a call that was judged: starts the server. Returns the tool as it is now; the error is for the model.
    pub(super) async fn prepare(&self, call: &Call) -> Result<PreparedCall, String> {
        let gone = || format!("there is no tool {} any more", call.name);
        let tool = self.catalog.borrow().find(&call.name).cloned().ok_or_else(gone)?;
        let server = self.server(&tool.server).ok_or_else(gone)?;
        server.connect().await?;
        // The server has listed its tools anew when it started.
        self.refresh();
        let now = self.catalog.borrow().find(&call.name).cloned().ok_or_else(gone)?;
        let is_same = self.judged.borrow().contains(&(call.id.clone(), now.digest.clone()));
        if !is_same {
            return Err(format!(
                "nothing was done: the MCP server {} has changed this tool since the call was judged; repeat the call \
                 if it still fits",
                tool.server
            ));
        }
        if !now.is_accepted {
            server.accept(&now.remote).await?;
            self.refresh();
        }
        Ok(PreparedCall { server, tool: now.remote.name, effect: now.spec.effect })
    }

    /// Finds tools by words, and offers those that are found from the next model call on.
    pub(in crate::tools) fn search(&self, query: &str, has: impl Fn(&ToolSpec) -> bool) -> String {
        self.catalog.borrow_mut().search(query, has)
    }

    /// Offers again what an earlier result of `find_tools` has found.
    pub(in crate::tools) fn restore(&self, result: &str) {
        self.catalog.borrow_mut().restore(result);
    }
}

/// A call whose server runs.
pub(super) struct PreparedCall {
    server: Rc<Server>,
    /// The server's own name of the tool.
    tool: String,
    pub(super) effect: Effect,
}

impl PreparedCall {
    /// Returns the walls around the server.
    pub(in crate::tools) fn walls(&self) -> Option<&Walls> {
        self.server.setup.commands.walls.as_deref()
    }

    /// Calls the tool; the error is for the model.
    pub(super) async fn call(&self, input: &Value) -> Result<CallContent, String> {
        self.server.call(&self.tool, input).await
    }
}
