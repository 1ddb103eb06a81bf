//! The tools by which agents share the task list. What may be done is decided by `protocol::tasks`; here
//! arguments are read and answers worded.

use super::output::Capped;
use super::team::{TeamContext, spec, text_property};
use super::{Call, Registry, Tool, ToolError, ToolFuture, arguments};
use crate::protocol::tasks::{NewOwner, NewTask, TaskEdit, TaskEnd, is_claimable};
use crate::tasks::{Changed, Seen, TaskError, Tasks};
use crate::wire::chat::ToolSpec;
use crate::wire::hook::HookEvent;
use crate::wire::task::{Task, TaskId, TaskStatus};
use crate::wire::{AgentName, WithUnknownFields};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

/// What the tools of one agent share.
struct TaskContext {
    team_context: Rc<TeamContext>,
    tasks: Arc<Tasks>,
}

/// The words for how far a task has come.
const STATUSES: [&str; 5] = ["pending", "in_progress", "completed", "failed", "cancelled"];

/// Adds the task tools, the same for a lead and for teammates.
pub(crate) fn add_task_tools(
    registry: &mut Registry,
    team_context: &Rc<TeamContext>,
    tasks: &Arc<Tasks>,
) {
    let task_context =
        Rc::new(TaskContext { team_context: Rc::clone(team_context), tasks: Arc::clone(tasks) });
    registry.add(CreateTask(Rc::clone(&task_context)));
    registry.add(ListTasks(Rc::clone(&task_context)));
    registry.add(GetTask(Rc::clone(&task_context)));
    registry.add(ClaimTask(Rc::clone(&task_context)));
    registry.add(UpdateTask(Rc::clone(&task_context)));
    registry.add(CompleteTask(task_context));
}

impl TaskContext {
    /// Works on the list beside the event loop, as this agent.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tasks, &AgentName) -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let (tasks, me) = (Arc::clone(&self.tasks), self.team_context.me().clone());
        let done = tokio::task::spawn_blocking(move || work(&tasks, &me)).await;
        match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(why)) if why.is_without_team() => Err(ToolError::Fatal(why.to_string())),
            Ok(Err(why)) => Err(ToolError::Reply(format!("{why}; {}", why.hint()))),
            Err(why) => Err(ToolError::Reply(format!("the task list was not reached: {why}"))),
        }
    }
}

impl TaskContext {
    /// Whether the hooks let a task be completed.
    async fn may_complete(&self, id: TaskId) -> Result<(), ToolError> {
        let hooks = self.team_context.hooks();
        if !hooks.are_there_for(HookEvent::TaskCompleted) {
            return Ok(());
        }
        let (task, _) = self.work(move |tasks, _| tasks.get(id)).await?;
        hooks.ask(HookEvent::TaskCompleted, json!({ "task_id": id, "task": task })).await
    }
}

/// An id as models write it: text or a number.
#[derive(Debug, Clone, Copy)]
struct Id(TaskId);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TaskId::deserialize(deserializer).map(Self)
    }
}

fn ids(ids: Vec<Id>) -> Vec<TaskId> {
    ids.into_iter().map(|Id(id)| id).collect()
}

fn id_property() -> Value {
    text_property("the id of the task, such as \"3\"")
}

fn ids_property(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnlyId {
    task_id: Id,
}

fn only_id(name: &str, description: &str) -> ToolSpec {
    spec(name, description, &json!({ "task_id": id_property() }), &["task_id"])
}

fn owner_name(given: &str) -> Result<AgentName, ToolError> {
    AgentName::mailbox(given).map_err(|why| ToolError::Reply(format!("{why}; {}", why.hint())))
}

/// What follows from a change, behind what was done.
fn told(what: String, changed: &Changed) -> String {
    let mut text = what;
    for task in &changed.ready {
        let whose = match &task.owner {
            Some(owner) => format!("{owner}'s, who was told"),
            None => "nobody's: it can be claimed".into(),
        };
        let _infallible = write!(text, "\nTask {} can begin now ({whose}).", task.id);
    }
    for untold in &changed.untold {
        let _infallible = write!(text, "\nNOT told: {untold}. Send a message yourself.");
    }
    text
}

struct CreateTask(Rc<TaskContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateInput {
    subject: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    blocked_by: Vec<Id>,
    owner: Option<String>,
    role: Option<String>,
}

impl Tool for CreateTask {
    fn spec(&self) -> ToolSpec {
        spec(
            "create_task",
            "Put a task on the list that the team shares. Whoever is free claims it, once every task \
             in blocked_by is completed. Answers with its id.",
            &json!({
                "subject": text_property("what is to be done, in one line"),
                "description": text_property("the details"),
                "blocked_by": ids_property("ids of tasks that must be completed first"),
                "owner": text_property("who is to do it; leave it out to let anybody take it"),
                "role": text_property("only teammates with this role take it by themselves"),
            }),
            &["subject"],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: CreateInput = arguments(call)?;
            let owner = input.owner.filter(|owner| !owner.is_empty());
            let new = NewTask {
                subject: input.subject,
                description: input.description,
                blocked_by: ids(input.blocked_by),
                owner: owner.as_deref().map(owner_name).transpose()?,
                role: input.role,
                origin: Some(format!("{}:{}", self.0.team_context.me(), call.id)),
            };
            let fields = json!({
                "subject": new.subject, "description": new.description, "owner": owner,
                "blocked_by": new.blocked_by, "role": new.role,
            });
            self.0.team_context.hooks().ask(HookEvent::TaskCreated, fields).await?;
            let made = self.0.work(move |tasks, me| tasks.create(&new, me)).await?;
            let owner = match &made.task.owner {
                Some(owner) => format!(" for {owner}"),
                None => String::new(),
            };
            Ok(told(format!("Created task {}{owner}.", made.task.id), &made))
        })
    }
}

struct ListTasks(Rc<TaskContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListInput {
    status: Option<TaskStatus>,
}

impl Tool for ListTasks {
    fn spec(&self) -> ToolSpec {
        let status = json!({
            "type": "string", "enum": STATUSES, "description": "only tasks of this status",
        });
        spec(
            "list_tasks",
            "Show the team's tasks, one JSON object a line. `claimable` says whether you may take one.",
            &json!({ "status": status }),
            &[],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let ListInput { status } = arguments(call)?;
            let seen = self.0.work(|tasks, _| tasks.look()).await?;
            let wanted =
                |task: &&WithUnknownFields<Task>| status.is_none_or(|status| task.status == status);
            let mut lines: Vec<String> =
                seen.board.values().filter(wanted).map(|task| line(task, &seen)).collect();
            if lines.is_empty() {
                lines.push("There are no such tasks. create_task makes one.".into());
            }
            for problem in &seen.problems {
                lines.push(format!("The file {} is no task: {}", problem.file, problem.why));
            }
            Ok(capped(&lines.join("\n")))
        })
    }
}

fn capped(text: &str) -> String {
    let mut capped = Capped::default();
    capped.push_text(text);
    capped.finish()
}

/// A task in a list: a line of JSON, in which no text can pretend to be another one.
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

struct GetTask(Rc<TaskContext>);

impl Tool for GetTask {
    fn spec(&self) -> ToolSpec {
        only_id("get_task", "Show one task with its description and its history, as JSON.")
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let OnlyId { task_id: Id(id) } = arguments(call)?;
            let (task, _) = self.0.work(move |tasks, _| tasks.get(id)).await?;
            Ok(capped(&serde_json::to_string(&task).unwrap_or_default()))
        })
    }
}

struct ClaimTask(Rc<TaskContext>);

impl Tool for ClaimTask {
    fn spec(&self) -> ToolSpec {
        only_id(
            "claim_task",
            "Take a task and begin to work on it. Only one agent gets it; it stays yours until you \
             complete it, give it back (update_task with status pending), or end.",
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let OnlyId { task_id: Id(id) } = arguments(call)?;
            let Changed { task, .. } = self.0.work(move |tasks, me| tasks.claim(id, me)).await?;
            let words = json!({ "subject": task.subject, "description": task.description });
            Ok(format!("Task {id} is yours: {words}\nCall complete_task when it is done."))
        })
    }
}

struct CompleteTask(Rc<TaskContext>);

impl Tool for CompleteTask {
    fn spec(&self) -> ToolSpec {
        only_id("complete_task", "Say that a task of yours is done. Answers what can begin now.")
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let OnlyId { task_id: Id(id) } = arguments(call)?;
            self.0.may_complete(id).await?;
            let end =
                move |tasks: &Tasks, me: &AgentName| tasks.end(id, TaskEnd::Completed, None, me);
            let done = self.0.work(end).await?;
            Ok(told(format!("Task {id} is completed."), &done))
        })
    }
}

struct UpdateTask(Rc<TaskContext>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateInput {
    task_id: Id,
    status: Option<TaskStatus>,
    owner: Option<String>,
    subject: Option<String>,
    description: Option<String>,
    role: Option<String>,
    blocked_by: Option<Vec<Id>>,
    note: Option<String>,
}

impl Tool for UpdateTask {
    fn spec(&self) -> ToolSpec {
        spec(
            "update_task",
            "Change a task; what you leave out stays. A new owner is told. status failed: it could \
             not be done (say why in note); pending: you give it back, or it is to be done after all.",
            &json!({
                "task_id": id_property(),
                "status": { "type": "string", "enum": STATUSES },
                "owner": text_property("who is to do it; \"\" for nobody"),
                "subject": text_property("what is to be done, in one line"),
                "description": text_property("the details"),
                "role": text_property("only teammates with this role take it; \"\" for anybody"),
                "blocked_by": ids_property("all tasks that must be completed first"),
                "note": text_property("why, for the history"),
            }),
            &["task_id"],
        )
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let input: UpdateInput = arguments(call)?;
            let Id(id) = input.task_id;
            if input.status == Some(TaskStatus::Completed) {
                self.0.may_complete(id).await?;
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
                blocked_by: input.blocked_by.map(ids),
                owner,
                status: input.status,
                note: input.note,
            };
            let done = self.0.work(move |tasks, me| tasks.update(id, edit, me)).await?;
            let owner = done.task.owner.as_deref().unwrap_or("nobody");
            let status = done.task.status.word();
            Ok(told(format!("Task {id} is {status}, its owner is {owner}."), &done))
        })
    }
}
