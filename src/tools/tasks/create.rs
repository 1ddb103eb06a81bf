//! The `create_task` tool.

use super::context::{TaskContext, owner_name, report};
use crate::protocol::tasks::NewTask;
use crate::tools::call::{Call, Tool, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::hook::HookEvent;
use crate::wire::task::TaskId;
use crate::wire::tool::{Effect, Parameter, ParameterType, ToolSpec};
use serde::Deserialize;
use serde_json::json;
use std::rc::Rc;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "create_task",
        description: "Put a task on the list that the team shares. Whoever is free claims it, once every \
                      task in blocked_by is completed. Answers with its id.",
        parameters: &[
            Parameter::required("subject", ParameterType::Text, "what is to be done, in one line"),
            Parameter::optional("description", ParameterType::Text, "the details"),
            Parameter::optional(
                "blocked_by",
                ParameterType::TextList,
                "ids of tasks that must be completed first",
            ),
            Parameter::optional(
                "owner",
                ParameterType::Text,
                "who is to do it; leave it out to let anybody take it",
            ),
            Parameter::optional(
                "role",
                ParameterType::Text,
                "only teammates with this role take it by themselves",
            ),
        ],
        effect: Effect::Talks,
        ..ToolSpec::STRICT
    },
    build: |parts| Some(Box::new(CreateTask(Rc::clone(&parts.tasks)))),
};

struct CreateTask(Rc<TaskContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    subject: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    blocked_by: Vec<TaskId>,
    owner: Option<String>,
    role: Option<String>,
}

impl Tool for CreateTask {
    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let Arguments { subject, description, blocked_by, owner, role } = arguments(call)?;
            let owner = owner.filter(|owner| !owner.is_empty());
            let new = NewTask {
                subject,
                description,
                blocked_by,
                owner: owner.as_deref().map(owner_name).transpose()?,
                role,
                origin: Some(format!("{}:{}", self.0.team().me(), call.id)),
            };
            let fields = json!({
                "subject": new.subject, "description": new.description, "owner": owner,
                "blocked_by": new.blocked_by, "role": new.role,
            });
            self.0.team().hooks().ask(HookEvent::TaskCreated, fields).await?;
            let made = self.0.work(move |tasks, me| tasks.create(&new, me)).await?;
            let owner = match &made.task.owner {
                Some(owner) => format!(" for {owner}"),
                None => String::new(),
            };
            Ok(report(format!("Created task {}{owner}.", made.task.id), &made))
        })
    }
}
