//! The tool that starts a subagent: a helper with a conversation of its own, which ends with its task.

use super::call::{Call, ToolError};
use super::ops::SubagentOrder;
use super::registry::{TALKS, Tool, ToolParts, parameters};
use crate::wire::tool::ParameterType::{Boolean, Text};
use crate::wire::tool::{AfterCrash, Signal, ToolSpec};

parameters!(RunSubagent {
    task: String = required(Text, ""),
    role: Option<String> = optional(Text, ""),
    model: Option<String> = optional(Text, ""),
    background: Option<bool> = optional(Boolean, ""),
});

impl Tool for RunSubagent {
    const SPEC: ToolSpec = ToolSpec {
        name: "run_subagent",
        aliases: &["Task", "Agent"],
        description: "A helper with a fresh conversation does a task; you get its last text (background: by \
                      mail). Say all that it must know.",
        after_crash: AfterCrash::Continue,
        signal: Signal::RunsSubagent,
        ..TALKS
    };

    fn is_available(parts: &ToolParts) -> bool {
        parts.subagents.is_some()
    }

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let subagents = parts.subagents.as_ref().ok_or_else(|| {
            ToolError::reply("you can start no subagent; do the work yourself, or ask a colleague")
        })?;
        if self.task.trim().is_empty() {
            return Err(ToolError::reply(
                "the task is empty; say all that the helper must know, for it sees nothing else",
            ));
        }
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let order = SubagentOrder {
            call_id: call.id.clone(),
            task: self.task,
            role: given(self.role),
            model: given(self.model),
            is_background: self.background == Some(true),
        };
        subagents.run(order).await
    }
}
