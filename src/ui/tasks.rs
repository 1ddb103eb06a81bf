//! The task list for people: a table, and one task with its history.
//!
//! The caller reads the tasks and computes which tasks block which.

use super::sanitize::one_line;
use super::style::Palette;
use super::text_width::{columns, pad};
use super::view::{Extent, View, date};
use crate::wire::WithUnknownFields;
use crate::wire::task::{EventKind, HistoryEntry, Task, TaskId, TaskStatus};

/// One row of the table.
#[derive(Debug, Clone)]
pub(crate) struct TaskRow<'a> {
    /// The task.
    pub(crate) task: &'a Task,
    /// The tasks that block it.
    pub(crate) waits_for: Vec<TaskId>,
}

/// The width of a subject, in columns.
const SUBJECT: usize = 60;

/// The table of tasks.
pub(crate) fn task_table(rows: &[TaskRow<'_>], palette: Palette) -> String {
    if rows.is_empty() {
        let example = palette.bold("team task add \"write the schema\"");
        return format!("There are no tasks yet. Make one, for example:\n  {example}\n");
    }
    let header = ["ID", "STATUS", "OWNER", "SUBJECT"].map(str::to_owned);
    let cells = std::iter::once(header).chain(rows.iter().map(|row| {
        let owner = row.task.owner.as_deref().unwrap_or("-");
        let subject = one_line(&row.task.subject, SUBJECT);
        [row.task.id.to_string(), standing(row), one_line(owner, 32), subject]
    }));
    let cells: Vec<[String; 4]> = cells.collect();
    let width = |at: usize| {
        let widths = cells.iter().filter_map(|row| row.get(at)).map(|cell| columns(cell));
        widths.max().unwrap_or_default()
    };
    let widths = [width(0), width(1), width(2), width(3)];
    let mut table = String::new();
    for (at, row) in cells.iter().enumerate() {
        let padded: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| pad(cell, width)).collect();
        let line = padded.join("  ").trim_end().to_owned();
        table.push_str(&if at == 0 { palette.dim(&line) } else { line });
        table.push('\n');
    }
    table
}

/// The state of a task in words.
fn standing(row: &TaskRow<'_>) -> String {
    if row.task.status != TaskStatus::Pending || row.waits_for.is_empty() {
        return row.task.status.word().replace('_', " ");
    }
    format!("waits for {}", list(&row.waits_for))
}

fn list(ids: &[TaskId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// One task with all its fields and its history.
pub(crate) fn task(row: &TaskRow<'_>, view: &View) -> String {
    let task = row.task;
    let title = format!("task {}: {}", task.id, one_line(&task.subject, 400));
    let mut rows = vec![view.palette.bold(&title)];
    let owner = task.owner.as_deref().unwrap_or("nobody");
    let role = task.role.as_ref().map(|role| format!(", for a {}", one_line(role, 80)));
    let whose = format!("{}, owner {}", standing(row), one_line(owner, 32));
    rows.push(format!("  {whose}{}", role.unwrap_or_default()));
    if !task.blocked_by.is_empty() {
        rows.push(format!("  after {}", list(&task.blocked_by)));
    }
    if !task.description.trim().is_empty() {
        rows.push(String::new());
        rows.extend(view.block(&task.description, "  ", Extent::Whole));
    }
    rows.push(String::new());
    rows.extend(task.history.iter().map(happening));
    rows.join("\n") + "\n"
}

fn happening(what: &WithUnknownFields<HistoryEntry>) -> String {
    let event = match &what.what {
        EventKind::Created => "created",
        EventKind::Changed => "changed",
        EventKind::Assigned => "assigned",
        EventKind::Claimed => "claimed",
        EventKind::Released => "given back",
        EventKind::Completed => "completed",
        EventKind::Failed => "failed",
        EventKind::Cancelled => "cancelled",
        EventKind::Reopened => "reopened",
        EventKind::Other(word) => word,
    };
    let to = what.owner.as_ref().filter(|_| what.what == EventKind::Assigned);
    let to = to.map(|owner| format!(" to {owner}")).unwrap_or_default();
    let note = what.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    let text = format!("{event}{to} by {}{note}", what.by);
    format!("  {}  {}", date(what.at), one_line(&text, 400))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &serde_json::Value) -> Task {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn a_table_shows_which_tasks_block_a_task() {
        let first = read(&json!({"id": "1", "subject": "schema\u{1b}[2J", "status": "in_progress",
            "owner": "alice"}));
        let second = read(&json!({"id": "2", "subject": "server", "blocked_by": ["1"]}));
        let rows = [
            TaskRow { task: &first, waits_for: Vec::new() },
            TaskRow { task: &second, waits_for: second.blocked_by.clone() },
        ];
        let wanted = "\
ID  STATUS       OWNER  SUBJECT
1   in progress  alice  schema
2   waits for 1  -      server
";
        assert_eq!(task_table(&rows, Palette::plain()), wanted);
        assert!(task_table(&[], Palette::plain()).contains("team task add"));
    }

    #[test]
    fn one_task_is_shown_with_its_history() {
        let told = read(&json!({"id": "3", "subject": "tests", "description": "all\nof them",
            "role": "tester", "history": [
                {"at": 0.0, "by": "lead", "what": "assigned", "owner": "bob"},
                {"at": 1.0, "by": "system", "what": "released", "note": "bob is gone"}]}));
        let text = task(&TaskRow { task: &told, waits_for: Vec::new() }, &View::fixed(Some(80)));
        for part in ["task 3: tests\n", "pending, owner nobody, for a tester", "  all\n  of them"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(text.contains("assigned to bob by lead\n"), "{text}");
        assert!(text.contains("given back by system: bob is gone\n"), "{text}");
    }
}
