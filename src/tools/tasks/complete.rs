//! The `complete_task` tool.

use super::context::{OnlyTaskId, TASK_ID, TaskContext, report};
use crate::tasks::Tasks;
use crate::tools::call::{Call, Tool, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::AgentName;
use crate::wire::task::TaskStatus;
use crate::wire::tool::{Effect, ToolSpec};
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "complete_task",
        description: "Say that a task of yours is done. Answers what can begin now.",
        parameters: &[TASK_ID],
        effect: Effect::Talks,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(CompleteTask(Rc::clone(&parts.tasks)))),
};

struct CompleteTask(Rc<TaskContext>);

impl Tool for CompleteTask {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let OnlyTaskId { task_id: id } = arguments(call)?;
            self.0.ask_to_complete(id).await?;
            let end =
                move |tasks: &Tasks, me: &AgentName| tasks.end(id, TaskStatus::Completed, None, me);
            let done = self.0.work(end).await?;
            Ok(report(format!("Task {id} is completed."), &done))
        })
    }
}
