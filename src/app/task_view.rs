//! The shared task list as tables and as JSON.

use crate::protocol::tasks::{blockers, is_claimable};
use crate::tasks::{Changed, Seen};
use crate::ui::style::Palette;
use crate::ui::tables::{TaskRow, task, task_table};
use crate::ui::view::View;
use crate::wire::WithUnknownFields;
use crate::wire::task::{Board, Task, TaskId};
use serde_json::{Value, json};

/// Renders the list as a table.
pub(crate) fn table(seen: &Seen, palette: Palette) -> String {
    let rows: Vec<TaskRow<'_>> = seen.board.values().map(|task| row(task, &seen.board)).collect();
    task_table(&rows, palette)
}

/// Renders one task with its history.
pub(crate) fn details(found: &Task, board: &Board, view: &View) -> String {
    task(&row(found, board), view)
}

fn row<'a>(task: &'a Task, board: &Board) -> TaskRow<'a> {
    let waits_for = blockers(board, task).into_iter().map(|(id, _)| id).collect();
    TaskRow { task, waits_for }
}

/// Renders the list as JSON.
pub(crate) fn list_json(seen: &Seen) -> Value {
    let tasks = seen.board.values();
    let tasks: Vec<Value> =
        tasks.map(|task| with_claimable(json!({}), task, &seen.board)).collect();
    let problems = seen.problems.iter();
    let problems: Vec<Value> =
        problems.map(|problem| json!({ "file": problem.file, "why": problem.why })).collect();
    json!({ "schema": 1, "tasks": tasks, "problems": problems })
}

/// Renders one task as JSON.
pub(crate) fn json(task: &WithUnknownFields<Task>, board: &Board) -> Value {
    with_claimable(json!({ "schema": 1 }), task, board)
}

/// Renders a change and what follows from it as JSON.
pub(crate) fn change_json(done: &Changed) -> Value {
    let ready: Vec<TaskId> = done.ready.iter().map(|task| task.id).collect();
    with_field(with_task(json!({ "schema": 1 }), &done.task), "ready", json!(ready))
}

/// Renders a change and what follows from it as text.
pub(crate) fn change_text(done: &Changed, what: &str) -> String {
    let ready = done.ready.iter().map(|task| match &task.owner {
        Some(owner) => format!("task {} ({owner}'s) can begin now", task.id),
        None => format!("task {} can be claimed now", task.id),
    });
    std::iter::once(what.to_owned()).chain(ready).collect::<Vec<_>>().join("\n")
}

fn with_claimable(object: Value, task: &WithUnknownFields<Task>, board: &Board) -> Value {
    with_field(with_task(object, task), "claimable", is_claimable(board, task).into())
}

fn with_task(mut object: Value, task: &WithUnknownFields<Task>) -> Value {
    if let (Value::Object(fields), Ok(Value::Object(task))) =
        (&mut object, serde_json::to_value(task))
    {
        fields.extend(task);
    }
    object
}

fn with_field(mut object: Value, key: &str, value: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.insert(key.into(), value);
    }
    object
}
