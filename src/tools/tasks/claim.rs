//! The `claim_task` tool.

use super::context::{OnlyTaskId, TASK_ID, TaskContext};
use crate::tasks::Changed;
use crate::tools::call::{Call, Tool, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::tool::{Effect, ToolSpec};
use serde_json::json;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "claim_task",
        description: "Take a task and begin to work on it. Only one agent gets it; it stays yours until \
                      you complete it, give it back (update_task with status pending), or end.",
        parameters: &[TASK_ID],
        effect: Effect::Talks,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(ClaimTask(Rc::clone(&parts.tasks)))),
};

struct ClaimTask(Rc<TaskContext>);

impl Tool for ClaimTask {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let OnlyTaskId { task_id: id } = arguments(call)?;
            let Changed { task, .. } = self.0.work(move |tasks, me| tasks.claim(id, me)).await?;
            let words = json!({ "subject": task.subject, "description": task.description });
            Ok(format!("Task {id} is yours: {words}\nCall complete_task when it is done."))
        })
    }
}
