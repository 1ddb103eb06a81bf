//! Runs the tool calls of a conversation.

use super::event::WorkResult;
use crate::os::failpoint::hit;
use crate::protocol::permission::PermissionSubject;
use crate::tools::{Call, Registry, ToolError};
use crate::wire::chat::ToolDefinition;
use crate::wire::role::Role;
use crate::wire::tool::ToolSpec;
use std::rc::Rc;

/// How long a tool call without a time limit of its own may take, in seconds.
const DEFAULT_TIME_LIMIT_S: u64 = 120;

/// The tools of one conversation.
#[derive(Clone)]
pub(crate) struct ToolRunner {
    tools: Rc<Registry>,
}

impl ToolRunner {
    /// Creates a runner of these tools.
    pub(crate) fn new(tools: Rc<Registry>) -> Self {
        Self { tools }
    }

    /// What the model is told about.
    pub(super) fn definitions(&self) -> Vec<ToolDefinition> {
        self.tools.definitions()
    }

    /// The tool of a call, and the part of the call that permission rules match.
    ///
    /// # Errors
    /// The call cannot run at all.
    pub(crate) fn inspect(
        &self,
        call: &Call,
    ) -> Result<(&'static ToolSpec, PermissionSubject), ToolError> {
        self.tools.inspect(call)
    }

    /// Leaves only the tools of this role.
    pub(crate) fn limit(&self, role: Role) {
        self.tools.limit(role);
    }

    /// Runs a call as a piece of work.
    pub(super) async fn run(self, call: Call) -> WorkResult {
        tracing::info!(tool = call.name, id = call.id, "tool started");
        hit("tool.started");
        let result = self.tools.call(&call).await;
        hit("tool.ran");
        tracing::info!(tool = call.name, id = call.id, ok = result.is_ok(), "tool ended");
        WorkResult::ToolEnded(result)
    }

    /// Runs a call that a crash cut off once more.
    pub(super) async fn repeat(&self, call: &Call) -> Result<String, ToolError> {
        self.tools.call(call).await
    }
}

/// How long a call may take by its own arguments, in seconds.
pub(crate) fn time_limit_s(call: &Call) -> u64 {
    let given = call.input.get("timeout").and_then(serde_json::Value::as_u64);
    given.unwrap_or(DEFAULT_TIME_LIMIT_S)
}
