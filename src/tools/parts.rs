//! The parts that the tools of one agent work with.

use super::approval_queue::ApprovalQueue;
use super::call::{ToolError, ToolFuture};
use super::command::OutputStore;
use super::files::FileAccess;
use super::team::TeamContext;
use crate::os::command::CommandSetup;
use crate::tasks::{TaskError, Tasks};
use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;
use crate::wire::tool::Audience;
use std::rc::Rc;
use std::sync::Arc;

/// Everything that a tool may need.
pub(crate) struct ToolParts {
    pub(crate) commands: CommandSetup,
    pub(crate) output_store: OutputStore,
    pub(crate) files: FileAccess,
    pub(crate) team: Rc<TeamContext>,
    pub(crate) tasks: Arc<Tasks>,
    /// The lead's operations; a teammate has none.
    pub(crate) ops: Option<Ops>,
}

impl ToolParts {
    /// The kind of agent.
    pub(super) fn audience(&self) -> Audience {
        if self.ops.is_some() { Audience::Lead } else { Audience::Teammate }
    }

    /// The lead's operations; a teammate gets an error.
    pub(super) fn ops(&self) -> Result<&Ops, ToolError> {
        self.ops.as_ref().ok_or_else(|| ToolError::reply("only the lead can do that"))
    }

    /// Works on the task list on another thread, as this agent; fatal if the team folder is gone.
    pub(super) async fn with_tasks<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tasks, &AgentName) -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let (tasks, me) = (Arc::clone(&self.tasks), self.team.me.clone());
        match tokio::task::spawn_blocking(move || work(&tasks, &me)).await {
            Ok(done) => Ok(done?),
            Err(why) => Err(ToolError::Reply(format!("the task list was not reached: {why}"))),
        }
    }
}

/// The parts of a lead that a teammate lacks.
pub(crate) struct Ops {
    /// The team's processes.
    pub(crate) team: Rc<dyn TeamOps>,
    /// Open requests for a decision.
    pub(crate) approval_queue: Rc<ApprovalQueue>,
}

/// Operations on the team's processes, which only the lead's program can perform.
pub(crate) trait TeamOps {
    /// Starts a teammate, or gives an idle one a new prompt; resolves when it is ready.
    fn spawn(&self, order: SpawnOrder) -> ToolFuture<'_>;

    /// Takes a teammate down the shutdown ladder; resolves when its process has exited.
    fn shutdown(&self, name: AgentName, reason: String) -> ToolFuture<'_>;
}

/// A teammate to be started.
#[derive(Debug, Clone)]
pub(crate) struct SpawnOrder {
    /// Its name.
    pub(crate) name: AgentName,
    /// Its role.
    pub(crate) role: String,
    /// Its first prompt, delivered as a message.
    pub(crate) prompt: String,
    /// The id of that message, derived from the tool call: a repeated call delivers it once.
    pub(crate) message_id: String,
    /// A model other than the lead's.
    pub(crate) model: Option<String>,
    /// A permission mode stricter than the lead's.
    pub(crate) mode: Option<PermissionMode>,
}
