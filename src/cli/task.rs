//! `team task …`: the shared task list, for the person.

use super::args::{AddTask, ClaimTask, OneTask, TaskArgs, TaskCommand};
use super::context::{Context, mailbox_name};
use super::out;
use crate::error::{Exit, Failure};
use crate::os::SystemClock;
use crate::protocol::tasks::{NewTask, TaskEnd, blockers, is_claimable};
use crate::tasks::{Changed, Seen, TaskError, Tasks};
use crate::tools::can_complete_tasks;
use crate::ui::style::Palette;
use crate::ui::tasks::{TaskRow, task, task_table};
use crate::wire::task::{Board, Task, TaskId};
use crate::wire::{AgentName, WithUnknownFields};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn run(context: &Context, args: TaskArgs) -> Result<Exit, Failure> {
    let person = AgentName::user();
    let printed = match args.command {
        TaskCommand::Ls(show) => {
            let seen = open(context)?
                .look()
                .map_err(|why| failure("the task list cannot be shown", &why))?;
            if show.json {
                out::say_json(&list_json(&seen))
            } else {
                for problem in &seen.problems {
                    out::complain(&format!("warning: {}: {}", problem.file, problem.why));
                }
                out::say(&table(&seen, context.palette()))
            }
        }
        TaskCommand::Show(OneTask { id, show }) => {
            let id = task_id(&id)?;
            let (found, seen) = open(context)?
                .get(id)
                .map_err(|why| failure(&format!("task {id} cannot be shown"), &why))?;
            if show.json {
                out::say_json(&task_json(&found, &seen.board))
            } else {
                out::say(&task(&row(&found, &seen.board), &context.view()))
            }
        }
        TaskCommand::Add(add) => {
            let json = add.show.json;
            let made = self::add(context, add)?;
            tell(&made, json, &made.task.id.to_string())
        }
        TaskCommand::Claim(ClaimTask { one, who }) => {
            let who = who.as_deref().map_or(Ok(person), mailbox_name)?;
            let (id, tasks) = steer(context, "claim", &one.id)?;
            let done = tasks.claim(id, &who).map_err(|why| not_done(id, "claimed", &why))?;
            tell(&done, one.show.json, &format!("task {id} is {who}'s"))
        }
        TaskCommand::Done(one) => end(context, "done", TaskEnd::Completed, &one)?,
        TaskCommand::Fail(one) => end(context, "fail", TaskEnd::Failed, &one)?,
        TaskCommand::Cancel(one) => end(context, "cancel", TaskEnd::Cancelled, &one)?,
    };
    Ok(if printed { Exit::Ok } else { Exit::Failure })
}

/// The list as a table; a failure as text.
pub(super) fn table(seen: &Seen, palette: Palette) -> String {
    let rows: Vec<TaskRow<'_>> = seen.board.values().map(|task| row(task, &seen.board)).collect();
    task_table(&rows, palette)
}

fn add(context: &Context, add: AddTask) -> Result<Changed, Failure> {
    let AddTask { subject, description, mut after, owner, role, show: _ } = add;
    // `--after 1 2 "subject"` takes the subject for an id.
    let subject = subject.or_else(|| after.pop_if(|last| TaskId::parse(last).is_err()));
    let subject = subject.ok_or_else(|| {
        let hint = "team task add \"write the schema\"";
        Failure::new(Exit::Usage, "a task needs a SUBJECT", "none was given", hint)
    })?;
    context.refuse_inside("task add")?;
    let new = NewTask {
        subject,
        description: description.unwrap_or_default(),
        blocked_by: after.iter().map(|id| task_id(id)).collect::<Result<_, _>>()?,
        owner: owner.as_deref().map(mailbox_name).transpose()?,
        role,
        origin: None,
    };
    let made = open(context)?.create(&new, &AgentName::user());
    made.map_err(|why| failure("the task was not made", &why))
}

fn end(context: &Context, verb: &str, how: TaskEnd, one: &OneTask) -> Result<bool, Failure> {
    let (id, tasks) = steer(context, verb, &one.id)?;
    let word = match how {
        TaskEnd::Completed => "completed",
        TaskEnd::Failed => "failed",
        TaskEnd::Cancelled => "cancelled",
    };
    let done = tasks.end(id, how, None, &AgentName::user());
    let done = done.map_err(|why| not_done(id, word, &why))?;
    Ok(tell(&done, one.show.json, &format!("task {id} is {word}")))
}

fn steer(context: &Context, verb: &str, id: &str) -> Result<(TaskId, Tasks), Failure> {
    context.refuse_inside(&format!("task {verb}"))?;
    Ok((task_id(id)?, open(context)?))
}

fn open(context: &Context) -> Result<Tasks, Failure> {
    let bus = context.bus(context.team()?)?;
    Ok(Tasks::new(bus, Arc::new(SystemClock), can_complete_tasks))
}

/// Says what was done and what follows from it.
fn tell(done: &Changed, json: bool, what: &str) -> bool {
    for untold in &done.untold {
        out::complain(&format!("warning: not told: {untold}"));
    }
    if json {
        let mut object = json!({ "schema": 1 });
        fill(&mut object, &done.task);
        let ready: Vec<TaskId> = done.ready.iter().map(|task| task.id).collect();
        if let Value::Object(fields) = &mut object {
            fields.insert("ready".into(), json!(ready));
        }
        return out::say_json(&object);
    }
    let ready = done.ready.iter().map(|task| match &task.owner {
        Some(owner) => format!("task {} ({owner}'s) can begin now", task.id),
        None => format!("task {} can be claimed now", task.id),
    });
    out::say(&std::iter::once(what.to_owned()).chain(ready).collect::<Vec<_>>().join("\n"))
}

fn row<'a>(task: &'a Task, board: &Board) -> TaskRow<'a> {
    let waits_for = blockers(board, task).into_iter().map(|(id, _)| id).collect();
    TaskRow { task, waits_for }
}

fn list_json(seen: &Seen) -> Value {
    let tasks = seen.board.values().map(|task| {
        let mut object = json!({});
        fill(&mut object, task);
        if let Value::Object(fields) = &mut object {
            fields.insert("claimable".into(), is_claimable(&seen.board, task).into());
        }
        object
    });
    let tasks: Vec<Value> = tasks.collect();
    let problems = seen.problems.iter();
    let problems: Vec<Value> =
        problems.map(|problem| json!({ "file": problem.file, "why": problem.why })).collect();
    json!({ "schema": 1, "tasks": tasks, "problems": problems })
}

fn task_json(task: &WithUnknownFields<Task>, board: &Board) -> Value {
    let mut object = json!({ "schema": 1 });
    fill(&mut object, task);
    if let Value::Object(fields) = &mut object {
        fields.insert("claimable".into(), is_claimable(board, task).into());
    }
    object
}

fn fill(object: &mut Value, task: &WithUnknownFields<Task>) {
    if let (Value::Object(fields), Ok(Value::Object(task))) = (object, serde_json::to_value(task)) {
        fields.extend(task);
    }
}

fn task_id(given: &str) -> Result<TaskId, Failure> {
    TaskId::parse(given).map_err(|why| {
        let what = format!("there is no task {given:?}");
        Failure::new(Exit::Failure, what, why.to_string(), "`team task ls` shows the ids")
    })
}

fn not_done(id: TaskId, word: &str, why: &TaskError) -> Failure {
    failure(&format!("task {id} was not {word}"), why)
}

fn failure(what: &str, why: &TaskError) -> Failure {
    let exit = if why.is_lock_timeout() { Exit::InUse } else { Exit::Failure };
    Failure::new(exit, what, why.to_string(), why.hint())
}
