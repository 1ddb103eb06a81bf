//! The tools by which an agent looks at its background commands, and stops them.

use crate::tools::call::{Call, ToolError};
use crate::tools::command::Bash;
use crate::tools::registry::{TALKS, Tool, ToolParts, parameters};
use crate::wire::limits::MAX_CALL_SECONDS;
use crate::wire::tool::ParameterType::{Count, Text};
use crate::wire::tool::{Repetition, ToolSpec};
use std::time::Duration;

parameters!(CommandOutput {
    id: String = required(Text, ""),
    /// In seconds.
    wait: Option<u64> = optional(Count { most: None }, ""),
});

impl Tool for CommandOutput {
    const SPEC: ToolSpec = ToolSpec {
        name: "command_output",
        description: "New output of a background command; `wait`: seconds.",
        part_of: Some(Bash::SPEC.name),
        repetition: Repetition::Failures,
        time_limit: Some("wait"),
        ..TALKS
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let wait = self.wait.map(|wait| Duration::from_secs(wait.min(MAX_CALL_SECONDS)));
        parts.background.look(&self.id, call, wait).await
    }
}

parameters!(StopCommand { id: String = required(Text, "") });

impl Tool for StopCommand {
    const SPEC: ToolSpec = ToolSpec {
        name: "stop_command",
        description: "Ends one.",
        part_of: Some(Bash::SPEC.name),
        ..TALKS
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        parts.background.stop(&self.id, call).await
    }
}
