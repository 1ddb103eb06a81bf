//! Task tools, by which a model uses the shared task list. `protocol::tasks` decides which changes are allowed;
//! this file reads arguments and formats answers.

use super::call::{Call, ToolError};
use super::command::output::CappedOutput;
use super::registry::{TALKS, Tool, ToolParts, parameters};
use crate::protocol::tasks::{NewOwner, NewTask, TaskEdit, is_claimable};
use crate::tasks::Changed;
use crate::wire::AgentName;
use crate::wire::hook::HookEvent;
use crate::wire::task::{Task, TaskId, TaskStatus};
use crate::wire::tool::ParameterType::{Text, TextList, Word};
use crate::wire::tool::{
    Audience, CompactOffer, Effect, OfferCondition, Served, Supersedes, ToolSpec,
};
use serde_json::json;
use std::fmt::Write as _;

const STATUSES: [&str; 5] = {
    let [a, b, c, d, e] = TaskStatus::ALL;
    [a.word(), b.word(), c.word(), d.word(), e.word()]
};

parameters!(CreateTask {
    subject: String = required(Text, "the task in one line"),
    #[serde(default)]
    description: String = recommended(Text, ""),
    #[serde(default)]
    blocked_by: Vec<TaskId> = optional(TextList, "tasks that must be completed first"),
    owner: Option<String> = optional(Text, "without one, any idle teammate may claim it"),
    role: Option<String> = optional(Text, "only teammates with this role claim it by themselves"),
});

impl Tool for CreateTask {
    const SPEC: ToolSpec = ToolSpec {
        name: "create_task",
        description: "Add a task to the list that the team shares. An idle teammate claims it once \
                      all of blocked_by are completed.",
        compact: Some(CompactOffer::when(
            OfferCondition::OpenTasks,
            Audience::Lead,
            "Add a task to the team's list. An idle teammate claims it.",
        )),
        served: Served::Listed,
        ..TALKS
    };

    async fn run(self, call: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let Self { subject, description, blocked_by, owner, role } = self;
        let owner = owner.filter(|owner| !owner.is_empty());
        let fields = json!({
            "subject": subject, "description": description, "owner": owner,
            "blocked_by": blocked_by, "role": role,
        });
        let owner = owner.as_deref().map(AgentName::mailbox).transpose()?;
        let origin = Some(parts.team.message_id(call));
        let new = NewTask { subject, description, blocked_by, owner, role, origin };
        parts.team.hooks.ask(HookEvent::TaskCreated, fields).await?;
        let made = parts.with_tasks(move |tasks, me| tasks.create(&new, me)).await?;
        let owner = made.task.owner.as_ref().map(|owner| format!(" for {owner}"));
        Ok(report(format!("Created task {}{}.", made.task.id, owner.unwrap_or_default()), &made))
    }
}

parameters!(ListTasks {
    status: Option<TaskStatus> = optional(Word(&STATUSES), ""),
});

impl Tool for ListTasks {
    const SPEC: ToolSpec = ToolSpec {
        name: "list_tasks",
        description: "Show the team's tasks, one JSON object a line. `claimable` says whether you may \
                      take one.",
        compact: Some(CompactOffer::when(
            OfferCondition::OpenTasks,
            Audience::Both,
            "Show the team's tasks.",
        )),
        effect: Effect::Reads,
        served: Served::Listed,
        supersedes: Supersedes::SameCall,
        ..ToolSpec::STRICT
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let seen = parts.with_tasks(|tasks, _| tasks.snapshot()).await?;
        let tasks = seen.board.values();
        let listed = tasks.filter(|task| self.status.is_none_or(|status| task.status == status));
        // Each task is a line of JSON, so that its text cannot pass for another task.
        let line = |task: &Task| {
            json!({
                "id": task.id, "subject": task.subject, "status": task.status,
                "owner": task.owner, "role": task.role, "blocked_by": task.blocked_by,
                "claimable": is_claimable(&seen.board, task),
            })
        };
        let mut lines: Vec<String> = listed.map(|task| line(task).to_string()).collect();
        if lines.is_empty() {
            lines.push("There are no such tasks. create_task creates one.".into());
        }
        for problem in &seen.problems {
            lines.push(format!("The file {} is not a task: {}", problem.file, problem.why));
        }
        Ok(CappedOutput::cap([&*lines.join("\n")]))
    }
}

parameters!(GetTask { task_id: TaskId = required(Text, "") });

impl Tool for GetTask {
    const SPEC: ToolSpec = ToolSpec {
        name: "get_task",
        description: "Show a task with its history, as JSON.",
        effect: Effect::Reads,
        served: Served::Listed,
        supersedes: Supersedes::SameCall,
        ..ToolSpec::STRICT
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let (task, _) = parts.with_tasks(move |tasks, _| tasks.get(self.task_id)).await?;
        let text = serde_json::to_string(&task).map_err(ToolError::reply)?;
        Ok(CappedOutput::cap([&*text]))
    }
}

parameters!(ClaimTask { task_id: TaskId = required(Text, "") });

impl Tool for ClaimTask {
    const SPEC: ToolSpec = ToolSpec {
        name: "claim_task",
        description: "Take a task and begin to work on it. It is yours until you complete it, give it \
                      back (update_task, status pending), or end.",
        compact: Some(CompactOffer::when(
            OfferCondition::OpenTasks,
            Audience::Teammate,
            "Take a task of the list and begin to work on it.",
        )),
        served: Served::Listed,
        ..TALKS
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let id = self.task_id;
        let Changed { task, .. } = parts.with_tasks(move |tasks, me| tasks.claim(id, me)).await?;
        let words = json!({ "subject": task.subject, "description": task.description });
        Ok(format!("Task {id} is yours: {words}\nCall complete_task when it is done."))
    }
}

parameters!(UpdateTask {
    task_id: TaskId = required(Text, ""),
    status: Option<TaskStatus> = recommended(Word(&STATUSES), ""),
    owner: Option<String> = optional(Text, "\"\" for none"),
    subject: Option<String> = optional(Text, ""),
    description: Option<String> = optional(Text, ""),
    role: Option<String> = optional(Text, "of those that may claim it; \"\" for any"),
    blocked_by: Option<Vec<TaskId>> = optional(TextList, "the whole list"),
    note: Option<String> = recommended(Text, "why, for the history"),
});

impl Tool for UpdateTask {
    const SPEC: ToolSpec = ToolSpec {
        name: "update_task",
        description: "Change a task; what you leave out stays. A new owner is told. status failed: it \
                      could not be done (say why in note); pending: you give it back, or it is to be \
                      done after all.",
        compact: Some(CompactOffer::when(
            OfferCondition::OwnTask,
            Audience::Both,
            "status failed: your task cannot be done; pending: you give it back. Say why in note.",
        )),
        served: Served::Listed,
        ..TALKS
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let Self { task_id: id, status, owner, subject, description, role, blocked_by, note } =
            self;
        if status == Some(TaskStatus::Completed) {
            ask_to_complete(parts, id).await?;
        }
        let owner = match owner.as_deref() {
            None => None,
            Some("") => Some(NewOwner::Unowned),
            Some(name) => Some(NewOwner::Agent(AgentName::mailbox(name)?)),
        };
        let edit = TaskEdit { subject, description, role, blocked_by, owner, status, note };
        let done = parts.with_tasks(move |tasks, me| tasks.update(id, edit, me)).await?;
        let owner = done.task.owner.as_deref().unwrap_or("none");
        let status = done.task.status.word();
        Ok(report(format!("Task {id} is {status}, its owner is {owner}."), &done))
    }
}

// An agent needs this tool to take tasks from the list by itself.
parameters!(CompleteTask { task_id: TaskId = required(Text, "") });

impl Tool for CompleteTask {
    const SPEC: ToolSpec = ToolSpec {
        name: "complete_task",
        description: "Mark a task of yours as done. Returns the tasks that can begin now.",
        compact: Some(CompactOffer::when(
            OfferCondition::OwnTask,
            Audience::Both,
            "Mark your task as done.",
        )),
        served: Served::Listed,
        ..TALKS
    };

    async fn run(self, _: &Call, parts: &ToolParts) -> Result<String, ToolError> {
        let id = self.task_id;
        ask_to_complete(parts, id).await?;
        let done = parts
            .with_tasks(move |tasks, me| tasks.end(id, TaskStatus::Completed, None, me))
            .await?;
        Ok(report(format!("Task {id} is completed."), &done))
    }
}

/// Asks the user's hooks before a task is completed. Fails if one refuses, or the task cannot be read.
async fn ask_to_complete(parts: &ToolParts, id: TaskId) -> Result<(), ToolError> {
    let hooks = &parts.team.hooks;
    if !hooks.are_there_for(HookEvent::TaskCompleted) {
        return Ok(());
    }
    let (task, _) = parts.with_tasks(move |tasks, _| tasks.get(id)).await?;
    hooks.ask(HookEvent::TaskCompleted, json!({ "task_id": id, "task": task })).await
}

/// Returns the answer to a change: `done`, then the tasks that became ready and the owners that could not be
/// notified.
fn report(done: String, changed: &Changed) -> String {
    let mut text = done;
    for task in &changed.ready {
        let whose = match &task.owner {
            Some(owner) => format!("{owner}'s, who was told"),
            None => "no owner: it can be claimed".into(),
        };
        let _infallible = write!(text, "\nTask {} can begin now ({whose}).", task.id);
    }
    for untold in &changed.untold {
        let _infallible = write!(text, "\nNOT told: {untold}. Send a message yourself.");
    }
    text
}
