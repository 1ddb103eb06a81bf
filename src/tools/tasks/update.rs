//! The `update_task` tool.

use super::context::{STATUSES, TASK_ID, TaskContext, owner_name, report};
use crate::protocol::tasks::{NewOwner, TaskEdit};
use crate::tools::call::{Call, Tool, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::task::{TaskId, TaskStatus};
use crate::wire::tool::{Effect, Parameter, ParameterType, ToolSpec};
use serde::Deserialize;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "update_task",
        description: "Change a task; what you leave out stays. A new owner is told. status failed: it \
                      could not be done (say why in note); pending: you give it back, or it is to be \
                      done after all.",
        parameters: &[
            TASK_ID,
            Parameter::optional("status", ParameterType::Word(&STATUSES), ""),
            Parameter::optional("owner", ParameterType::Text, "who is to do it; \"\" for nobody"),
            Parameter::optional("subject", ParameterType::Text, "what is to be done, in one line"),
            Parameter::optional("description", ParameterType::Text, "the details"),
            Parameter::optional(
                "role",
                ParameterType::Text,
                "only teammates with this role take it; \"\" for anybody",
            ),
            Parameter::optional(
                "blocked_by",
                ParameterType::TextList,
                "all tasks that must be completed first",
            ),
            Parameter::optional("note", ParameterType::Text, "why, for the history"),
        ],
        effect: Effect::Talks,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(UpdateTask(Rc::clone(&parts.tasks)))),
};

struct UpdateTask(Rc<TaskContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    task_id: TaskId,
    status: Option<TaskStatus>,
    owner: Option<String>,
    subject: Option<String>,
    description: Option<String>,
    role: Option<String>,
    blocked_by: Option<Vec<TaskId>>,
    note: Option<String>,
}

impl Tool for UpdateTask {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: Arguments = arguments(call)?;
            let id = input.task_id;
            if input.status == Some(TaskStatus::Completed) {
                self.0.ask_to_complete(id).await?;
            }
            let owner = match input.owner.as_deref() {
                None => None,
                Some("") => Some(NewOwner::Nobody),
                Some(name) => Some(NewOwner::Agent(owner_name(name)?)),
            };
            let edit = TaskEdit {
                subject: input.subject,
                description: input.description,
                role: input.role,
                blocked_by: input.blocked_by,
                owner,
                status: input.status,
                note: input.note,
            };
            let done = self.0.work(move |tasks, me| tasks.update(id, edit, me)).await?;
            let owner = done.task.owner.as_deref().unwrap_or("nobody");
            let status = done.task.status.word();
            Ok(report(format!("Task {id} is {status}, its owner is {owner}."), &done))
        })
    }
}
