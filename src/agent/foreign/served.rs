//! The tools of the team for a foreign agent: a server on loopback in the member's process, which only this process of
//! the agent can use. Mail that the agent has not seen comes with the results of calls.

use super::past::{Unseen, text_of};
use super::process::{FromTools, ToolVerdict};
use crate::acp::session::ToolServerAccess;
use crate::agent::event::{Event, Events};
use crate::os::spawn::spawn_local;
use crate::tool_server::http::HttpServer;
use crate::tool_server::{LocalFuture, ServedMember, ToolServer};
use crate::tools::{Call, Registry, ToolError};
use crate::wire::tool::{Served, ToolSpec};
use crate::wire::transcript::Entry;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The usual name of the server, by which agents name its tools.
const SERVER: &str = "team";

const INSTRUCTIONS: &str = "The tools of your team: mail to its members, and its task list. Write to a colleague with \
    send_message. The results of these tools end with your unread mail.";

/// A running server.
pub(super) struct TeamTools {
    name: String,
    member: Rc<ServedAgent>,
    http: Rc<HttpServer>,
    serving: JoinHandle<()>,
}

struct ServedAgent {
    tools: Rc<Registry>,
    unseen: Rc<Unseen>,
    events: Events,
    /// The entries that were handed out with calls whose answers are not written yet.
    handed_out: RefCell<BTreeMap<String, Vec<Entry>>>,
}

impl TeamTools {
    /// Starts the server. Fails if no port is free.
    pub(super) async fn start(
        tools: Rc<Registry>,
        unseen: Rc<Unseen>,
        events: Events,
        folder: &Path,
    ) -> io::Result<Self> {
        let handed_out = RefCell::default();
        let member = Rc::new(ServedAgent { tools, unseen, events, handed_out });
        let http =
            HttpServer::open(ToolServer::new(Rc::clone(&member) as Rc<dyn ServedMember>)).await?;
        let serving = spawn_local(Rc::clone(&http).serve());
        Ok(Self { name: name_in(folder), member, http, serving })
    }

    pub(super) fn access(&self) -> ToolServerAccess {
        let (url, authorization) = (self.http.url(), self.http.authorization());
        ToolServerAccess { name: self.name.clone(), url, authorization }
    }

    /// Whether an agent calls a tool of this server so.
    pub(super) fn has(&self, name: &str) -> bool {
        let inner = ["mcp__", "mcp_"].iter().find_map(|prefix| name.strip_prefix(prefix));
        let rest = inner.and_then(|inner| inner.strip_prefix(self.name.as_str()));
        let tool = rest.and_then(|rest| rest.strip_prefix("__").or(rest.strip_prefix('_')));
        tool.is_some_and(|tool| self.member.tools().iter().any(|spec| spec.name == tool))
    }
}

impl Drop for TeamTools {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Returns a name for the server that no server of the folder has.
fn name_in(folder: &Path) -> String {
    let known = std::fs::read_to_string(folder.join(".mcp.json")).unwrap_or_default();
    if known.contains("\"team\"") {
        let id = uuid::Uuid::new_v4().simple().to_string();
        return format!("{SERVER}_{}", id.get(..4).unwrap_or_default());
    }
    SERVER.to_owned()
}

impl ServedMember for ServedAgent {
    fn welcome<'a>(&'a self, _: &'a str, _: &'a str) -> LocalFuture<'a, Result<String, String>> {
        Box::pin(async { Ok(INSTRUCTIONS.to_owned()) })
    }

    fn tools(&self) -> Vec<&'static ToolSpec> {
        let mut specs = self.tools.served();
        specs.retain(|spec| spec.served != Served::Never);
        specs
    }

    fn call<'a>(&'a self, call: &'a Call) -> LocalFuture<'a, Result<String, ToolError>> {
        Box::pin(async move {
            if !self.tools().iter().any(|spec| spec.name == call.name) {
                let why = "there is no tool of this name here; use those of your own program";
                return Err(ToolError::reply(why));
            }
            let (answer, judged) = oneshot::channel();
            let is_over = || ToolError::reply("the member is ending");
            let asked = FromTools::Call(call.clone(), answer);
            self.events.send(Event::FromTools(asked)).map_err(|_ended| is_over())?;
            match judged.await.map_err(|_ended| is_over())? {
                ToolVerdict::Run => Ok(self.tools.call(call).await?.text),
                ToolVerdict::Refuse(why) => Err(ToolError::Reply(why)),
                ToolVerdict::Answer(text) => Ok(text),
            }
        })
    }

    fn unread<'a>(&'a self, call: &'a Call) -> LocalFuture<'a, Option<String>> {
        Box::pin(async move {
            let entries = self.unseen.take();
            if entries.is_empty() {
                return None;
            }
            let text = text_of(&entries);
            self.handed_out.borrow_mut().insert(call.id.clone(), entries);
            Some(text)
        })
    }

    fn answered(&self, call_id: &str, was_written: bool) {
        let Some(entries) = self.handed_out.borrow_mut().remove(call_id) else { return };
        if was_written {
            let _ended = self.events.send(Event::FromTools(FromTools::HandedOver));
        } else {
            self.unseen.put_back(entries);
        }
    }
}
