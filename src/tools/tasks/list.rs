//! The `list_tasks` tool.

use super::context::{STATUSES, TaskContext};
use crate::protocol::tasks::is_claimable;
use crate::tasks::Seen;
use crate::tools::call::{Call, Tool, ToolFuture, arguments};
use crate::tools::command::output::CappedOutput;
use crate::tools::registry::Registration;
use crate::wire::task::{Task, TaskStatus};
use crate::wire::tool::{Effect, Parameter, ParameterType, ToolSpec};
use serde::Deserialize;
use serde_json::json;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "list_tasks",
        description: "Show the team's tasks, one JSON object a line. `claimable` says whether you may \
                      take one.",
        parameters: &[Parameter::optional(
            "status",
            ParameterType::Word(&STATUSES),
            "only tasks of this status",
        )],
        effect: Effect::Reads,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(ListTasks(Rc::clone(&parts.tasks)))),
};

struct ListTasks(Rc<TaskContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    status: Option<TaskStatus>,
}

impl Tool for ListTasks {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let Arguments { status } = arguments(call)?;
            let seen = self.0.work(|tasks, _| tasks.look()).await?;
            let tasks = seen.board.values();
            let listed = tasks.filter(|task| status.is_none_or(|status| task.status == status));
            let mut lines: Vec<String> = listed.map(|task| line(task, &seen)).collect();
            if lines.is_empty() {
                lines.push("There are no such tasks. create_task makes one.".into());
            }
            for problem in &seen.problems {
                lines.push(format!("The file {} is no task: {}", problem.file, problem.why));
            }
            Ok(CappedOutput::cap(&lines.join("\n")))
        })
    }
}

/// A task as a line of JSON, so that its text cannot pass for another task.
fn line(task: &Task, seen: &Seen) -> String {
    json!({
        "id": task.id,
        "subject": task.subject,
        "status": task.status,
        "owner": task.owner,
        "role": task.role,
        "blocked_by": task.blocked_by,
        "claimable": is_claimable(&seen.board, task),
    })
    .to_string()
}
