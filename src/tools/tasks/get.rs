//! The `get_task` tool.

use super::context::{OnlyTaskId, TASK_ID, TaskContext};
use crate::tools::call::{Call, Tool, ToolError, ToolFuture, arguments};
use crate::tools::command::output::CappedOutput;
use crate::tools::registry::Registration;
use crate::wire::tool::{Effect, ToolSpec};
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "get_task",
        description: "Show one task with its description and its history, as JSON.",
        parameters: &[TASK_ID],
        effect: Effect::Reads,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(GetTask(Rc::clone(&parts.tasks)))),
};

struct GetTask(Rc<TaskContext>);

impl Tool for GetTask {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let OnlyTaskId { task_id: id } = arguments(call)?;
            let (task, _) = self.0.work(move |tasks, _| tasks.get(id)).await?;
            Ok(CappedOutput::cap(&serde_json::to_string(&task).map_err(ToolError::reply)?))
        })
    }
}
