//! Operations that only the lead's program can perform for its model.

use crate::tools::approval_queue::ApprovalQueue;
use crate::tools::call::ToolError;
use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;
use std::pin::Pin;
use std::rc::Rc;

/// Operations on the team's processes.
pub(crate) trait TeamOps {
    /// Starts a teammate, or gives an idle one a new prompt; resolves when it is ready.
    fn spawn(&self, order: SpawnOrder) -> OpsFuture<'_>;

    /// Takes a teammate down the shutdown ladder; resolves when its process has exited.
    fn shutdown(&self, name: AgentName, reason: String) -> OpsFuture<'_>;
}

/// The future of a [`TeamOps`] call; its value is the answer to the model.
pub(crate) type OpsFuture<'a> = Pin<Box<dyn Future<Output = Result<String, ToolError>> + 'a>>;

/// The parts of a lead that a teammate lacks.
pub(crate) struct Ops {
    /// The team's processes.
    pub(crate) team: Rc<dyn TeamOps>,
    /// Open requests for a decision.
    pub(crate) approval_queue: Rc<ApprovalQueue>,
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
