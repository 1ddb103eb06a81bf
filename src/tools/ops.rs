//! Operations that tools have their agent's process perform: on teammates, by the lead alone, and on subagents.

use super::approval_queue::ApprovalQueue;
use super::call::{ToolError, ToolFuture};
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use crate::wire::host_order::CloneStart;
use crate::wire::isolation::{ClonePlace, Isolation};
use crate::wire::permission::PermissionMode;
use std::pin::Pin;
use std::rc::Rc;

/// The parts of a lead that a teammate does not have.
pub(crate) struct Ops {
    pub(crate) team: Rc<dyn TeamOps>,
    pub(crate) approval_queue: Rc<ApprovalQueue>,
}

/// Operations on the team's processes, which only the lead can perform.
pub(crate) trait TeamOps {
    /// Starts a teammate, or gives an idle one a new prompt; resolves when it is ready.
    fn spawn(&self, order: SpawnOrder) -> ToolFuture<'_>;

    /// Stops a teammate by the shutdown ladder; resolves when its process has exited.
    fn shutdown(&self, name: AgentName, reason: String) -> ToolFuture<'_>;

    /// Brings the saved work of a teammate on another host here. Resolves with its clone, and the reason if what is here may not
    /// be all.
    fn collect_work(&self, name: AgentName) -> CollectFuture<'_>;

    /// Sends the files of the workspace as they are now to the host of a teammate, for its clone to merge.
    fn send_files(&self, name: AgentName) -> ToolFuture<'_>;
}

/// A clone whose work is collected.
pub(crate) type CollectFuture<'a> =
    Pin<Box<dyn Future<Output = Result<(ClonePlace, Option<String>), ToolError>> + 'a>>;

#[derive(Debug, Clone)]
pub(crate) struct SpawnOrder {
    pub(crate) name: AgentName,
    pub(crate) role: String,
    /// Its first prompt, delivered as a message.
    pub(crate) prompt: String,
    /// The id of that message, derived from the tool call, so that a repeated call delivers it once.
    pub(crate) message_id: String,
    /// A model other than the lead's.
    pub(crate) model: Option<String>,
    /// A permission mode stricter than the lead's.
    pub(crate) mode: Option<PermissionMode>,
    /// The folder that it works in, if not that of its role or of the settings.
    pub(crate) isolation: Option<Isolation>,
    /// The name or a label of the host on which it is to run, if it is not this one.
    pub(crate) host: Option<String>,
    /// The commits with which its clone begins, for a lead on another host.
    pub(crate) clone_of: Option<CloneOf>,
}

/// The project of a lead on another host, of which a teammate gets a clone.
#[derive(Debug, Clone)]
pub(crate) struct CloneOf {
    pub(crate) host: HostName,
    pub(crate) start: CloneStart,
}

/// The subagents of an agent.
pub(crate) trait SubagentOps {
    /// Runs a subagent, or goes on with the one of the same call; resolves with its result or, for one in the background,
    /// when it is recorded.
    fn run(&self, order: SubagentOrder) -> ToolFuture<'_>;
}

/// A task for a subagent.
#[derive(Debug, Clone)]
pub(crate) struct SubagentOrder {
    /// The id of the call that orders it.
    pub(crate) call_id: String,
    pub(crate) task: String,
    /// Its role, which limits it within the role of its caller.
    pub(crate) role: Option<String>,
    /// The model, if it is not that of its role or its caller.
    pub(crate) model: Option<String>,
    pub(crate) is_background: bool,
}
