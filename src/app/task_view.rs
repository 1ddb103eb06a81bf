//! The shared task list as tables and as JSON.

use crate::protocol::tasks::{blockers, is_claimable};
use crate::tasks::{Changed, TaskSnapshot};
use crate::ui::tables::{TaskRow, task, task_table};
use crate::ui::{style::Palette, view::View};
use crate::wire::WithUnknownFields;
use crate::wire::task::{Board, Task, TaskId};
use serde_json::{Value, json};

pub(crate) fn table(snapshot: &TaskSnapshot, palette: Palette) -> String {
    let rows: Vec<TaskRow<'_>> =
        snapshot.board.values().map(|task| row(task, &snapshot.board)).collect();
    let table = task_table(&rows, palette);
    if snapshot.has_archive {
        let note = palette.dim("earlier tasks that have ended: team task ls --all");
        return format!("{table}{note}\n");
    }
    table
}

pub(crate) fn details(found: &Task, board: &Board, view: &View) -> String {
    task(&row(found, board), view)
}

fn row<'a>(task: &'a Task, board: &Board) -> TaskRow<'a> {
    TaskRow { task, waits_for: blockers(board, task).into_iter().map(|(id, _)| id).collect() }
}

pub(crate) fn list_json(snapshot: &TaskSnapshot) -> Value {
    let claimable = |task| ("claimable", is_claimable(&snapshot.board, task).into());
    let tasks = snapshot.board.values().map(|task| with(json!({}), task, claimable(task)));
    let problems = snapshot.problems.iter().map(|it| json!({ "file": it.file, "why": it.why }));
    let (tasks, problems): (Vec<Value>, Vec<Value>) = (tasks.collect(), problems.collect());
    let archived = snapshot.has_archive;
    json!({ "schema": 1, "tasks": tasks, "problems": problems, "has_archive": archived })
}

pub(crate) fn json(task: &WithUnknownFields<Task>, board: &Board) -> Value {
    with(json!({ "schema": 1 }), task, ("claimable", is_claimable(board, task).into()))
}

pub(crate) fn change_json(done: &Changed) -> Value {
    let ready: Vec<TaskId> = done.ready.iter().map(|task| task.id).collect();
    with(json!({ "schema": 1 }), &done.task, ("ready", json!(ready)))
}

pub(crate) fn change_text(done: &Changed, what: &str) -> String {
    let ready = done.ready.iter().map(|task| match &task.owner {
        Some(owner) => format!("task {} ({owner}'s) can begin now", task.id),
        None => format!("task {} can be claimed now", task.id),
    });
    std::iter::once(what.to_owned()).chain(ready).collect::<Vec<_>>().join("\n")
}

/// Adds the fields of a task, and then one more field, to an object.
fn with(mut object: Value, task: &WithUnknownFields<Task>, (key, value): (&str, Value)) -> Value {
    let task = serde_json::to_value(task);
    if let Value::Object(fields) = &mut object {
        if let Ok(Value::Object(task)) = task {
            fields.extend(task);
        }
        fields.insert(key.into(), value);
    }
    object
}
