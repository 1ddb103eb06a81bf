//! The tables of tasks and roles, and one task with its history.
//!
//! The caller reads the files, computes which tasks block which, and names the file of each role.

use super::sanitize::{columns, one_line, pad};
use super::style::Palette;
use super::view::View;
use crate::os::local_time as date;
use crate::wire::WithUnknownFields;
use crate::wire::lease::Lease;
use crate::wire::role::Role;
use crate::wire::task::{EventKind, HistoryEntry, Task, TaskId, TaskStatus};
use crate::wire::timer::{Timer, period_in_words};

/// The width of a subject or a description, in columns.
const PROSE: usize = 60;

/// Renders a header and rows of cells as aligned columns.
pub(super) fn table<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    palette: Palette,
) -> String {
    let rows: Vec<_> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let cells = |at: usize| rows.iter().filter_map(move |row| row.get(at));
    let widths: [usize; N] =
        std::array::from_fn(|at| cells(at).map(|cell| columns(cell)).max().unwrap_or_default());
    let lines = rows.iter().enumerate().map(|(at, row)| {
        let padded = row.iter().zip(widths).map(|(cell, width)| pad(cell, width) + "  ");
        let line = padded.collect::<String>();
        let line = line.trim_end();
        if at == 0 { palette.dim(line) + "\n" } else { format!("{line}\n") }
    });
    lines.collect()
}

/// A task, and the tasks that block it.
#[derive(Debug, Clone)]
pub(crate) struct TaskRow<'a> {
    pub(crate) task: &'a Task,
    pub(crate) waits_for: Vec<TaskId>,
}

pub(crate) fn task_table(rows: &[TaskRow<'_>], palette: Palette) -> String {
    if rows.is_empty() {
        let example = palette.bold("team task add \"write the schema\"");
        return format!("There are no tasks yet. Add one, for example:\n  {example}\n");
    }
    let rows = rows.iter().map(|row| {
        let owner = one_line(row.task.owner.as_deref().unwrap_or("-"), 32);
        [row.task.id.to_string(), standing(row), owner, one_line(&row.task.subject, PROSE)]
    });
    table(["ID", "STATUS", "OWNER", "SUBJECT"], rows, palette)
}

fn standing(row: &TaskRow<'_>) -> String {
    if row.task.status != TaskStatus::Pending || row.waits_for.is_empty() {
        return row.task.status.word().replace('_', " ");
    }
    format!("waits for {}", list(&row.waits_for))
}

fn list(ids: &[TaskId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether mail reaches a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostReach {
    Up,
    /// It is away, not heard yet, or cannot read what this one writes: mail for it waits.
    Waits,
    /// It was given up or removed.
    Gone,
}

/// A host of the team.
#[derive(Debug, Clone)]
pub(crate) struct HostRow {
    pub(crate) host: String,
    pub(crate) reach: HostReach,
    /// Its state, in words.
    pub(crate) state: String,
    pub(crate) members: Vec<String>,
    /// The number of messages for its members that it does not have yet.
    pub(crate) waiting: u64,
    /// The labels by which it can be chosen for an agent.
    pub(crate) labels: Vec<String>,
    /// The variables whose keys it gets from this one.
    pub(crate) keys: Vec<String>,
    pub(crate) version: String,
}

pub(crate) fn host_table(rows: &[HostRow], palette: Palette) -> String {
    if rows.is_empty() {
        return "This team has one host. docs/machines.md says how to add another.\n".into();
    }
    let has_keys = rows.iter().any(|row| !row.keys.is_empty());
    let cells = |row: &HostRow| {
        let members = if row.members.is_empty() { "-".into() } else { row.members.join(", ") };
        let members = one_line(&members, PROSE);
        let waiting = if row.waiting == 0 { String::new() } else { row.waiting.to_string() };
        let (labels, version) =
            (one_line(&row.labels.join(", "), PROSE), one_line(&row.version, 32));
        [one_line(&row.host, 32), row.state.clone(), members, waiting, labels, version]
    };
    let head = ["HOST", "STATE", "MEMBERS", "WAITING", "LABELS", "VERSION"];
    if !has_keys {
        return table(head, rows.iter().map(cells), palette);
    }
    let [host, state, members, waiting, labels, version] = head;
    let rows = rows.iter().map(|row| {
        let [host, state, members, waiting, labels, version] = cells(row);
        let keys = one_line(&row.keys.join(", "), PROSE);
        [host, state, members, waiting, labels, keys, version]
    });
    table([host, state, members, waiting, labels, "KEYS", version], rows, palette)
}

/// Renders a row for each leased path.
pub(crate) fn lease_table<'a>(leases: impl Iterator<Item = &'a Lease>, palette: Palette) -> String {
    let row = |lease: &Lease, path: &String| {
        let (owner, why) = (one_line(&lease.owner, 32), one_line(&lease.why, PROSE));
        [one_line(path, PROSE), owner, date(lease.created_at), one_line(&lease.id, 32), why]
    };
    let rows = leases.flat_map(|lease| lease.paths.iter().map(move |path| row(lease, path)));
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return "no path is leased\n".into();
    }
    table(["PATH", "OWNER", "SINCE", "ID", "WHY"], rows.into_iter(), palette)
}

/// A timer and its member.
pub(crate) struct TimerRow<'a> {
    pub(crate) owner: &'a str,
    pub(crate) timer: &'a Timer,
}

/// Renders a row for each timer.
pub(crate) fn timer_table<'a>(
    rows: impl Iterator<Item = TimerRow<'a>>,
    palette: Palette,
) -> String {
    let row = |TimerRow { owner, timer }: TimerRow<'_>| {
        let every = timer.every_s.map_or_else(|| "-".into(), period_in_words);
        let (id, by) = (one_line(&timer.id, 40), one_line(&timer.by, 32));
        [id, one_line(owner, 32), date(timer.due), every, by, one_line(&timer.text, PROSE)]
    };
    let rows: Vec<_> = rows.map(row).collect();
    if rows.is_empty() {
        return "no timer is open\n".into();
    }
    table(["ID", "FOR", "DUE", "EVERY", "SET BY", "TEXT"], rows.into_iter(), palette)
}

/// Renders one task with all its fields and its history.
pub(crate) fn task(row: &TaskRow<'_>, view: &View) -> String {
    let task = row.task;
    let title = format!("task {}: {}", task.id, one_line(&task.subject, 400));
    let mut rows = vec![view.palette.bold(&title)];
    let owner = one_line(task.owner.as_deref().unwrap_or("none"), 32);
    let role = task.role.as_ref().map(|role| format!(", for a {}", one_line(role, 80)));
    rows.push(format!("  {}, owner {owner}{}", standing(row), role.unwrap_or_default()));
    if !task.blocked_by.is_empty() {
        rows.push(format!("  after {}", list(&task.blocked_by)));
    }
    if !task.description.trim().is_empty() {
        rows.push(String::new());
        rows.extend(view.block(&task.description, "  ", None));
    }
    rows.push(String::new());
    rows.extend(task.history.iter().map(history_line));
    rows.join("\n") + "\n"
}

fn history_line(what: &WithUnknownFields<HistoryEntry>) -> String {
    let word = serde_json::json!(what.what);
    let event = match word.as_str().unwrap_or_default() {
        "released" => "given back",
        word => word,
    };
    let to = what.owner.as_ref().filter(|_| what.what == EventKind::Assigned);
    let to = to.map(|owner| format!(" to {owner}")).unwrap_or_default();
    let note = what.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    let text = format!("{event}{to} by {}{note}", what.by);
    format!("  {}  {}", date(what.at), one_line(&text, 400))
}

pub(crate) fn role_table(roles: &[(&Role, String)], palette: Palette) -> String {
    if roles.is_empty() {
        let example = palette.bold("team init");
        return format!("There are no roles here. To create three examples:\n  {example}\n");
    }
    let rows = roles.iter().map(|(role, from)| {
        let mode = role.mode.map_or_else(|| "-".into(), |mode| mode.to_string());
        let (name, from) = (one_line(&role.name, 64), one_line(from, 160));
        [name, from, tools(role), models(role), mode, one_line(&role.description, PROSE)]
    });
    table(["ROLE", "FROM", "TOOLS", "MODEL", "MODE", "FOR"], rows, palette)
}

fn tools(role: &Role) -> String {
    let given = match role.tools.as_deref() {
        None => "all".to_owned(),
        Some([]) => "none".to_owned(),
        Some(tools) => tools.join(","),
    };
    let but = if role.disallowed.is_empty() { "" } else { " but " };
    one_line(&format!("{given}{but}{}", role.disallowed.join(",")), 48)
}

/// Returns the model of a role, and those that go on if it fails.
fn models(role: &Role) -> String {
    let own = role.model.as_deref().unwrap_or("-");
    match role.fallback_models.as_deref() {
        None => one_line(own, 32),
        Some([]) => one_line(&format!("{own}, else none"), 64),
        Some(others) => one_line(&format!("{own}, else {}", others.join(", ")), 64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: serde_json::Value) -> Task {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_table_shows_which_tasks_block_a_task() {
        let first = read(json!({"id": "1", "subject": "schema\u{1b}[2J", "status": "in_progress",
            "owner": "alice"}));
        let second = read(json!({"id": "2", "subject": "server", "blocked_by": ["1"]}));
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
        let told = read(json!({"id": "3", "subject": "tests", "description": "all\nof them",
            "role": "tester", "history": [
                {"at": 0.0, "by": "lead", "what": "assigned", "owner": "bob"},
                {"at": 1.0, "by": "system", "what": "released", "note": "bob is gone"}]}));
        let text = task(&TaskRow { task: &told, waits_for: Vec::new() }, &View::fixed(Some(80)));
        for part in [
            "task 3: tests\n",
            "pending, owner none, for a tester",
            "  all\n  of them",
            "assigned to bob by lead\n",
            "given back by system: bob is gone\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn each_role_is_a_row() {
        let (role, _) = Role::parse(
            "a",
            "---\ntools: Read\ndisallowedTools: broadcast\ndescription: \"x\\ny\"\nmodel: rehearsal\n---\n",
            crate::tools::find_by_alias,
        );
        let table = role_table(&[(&role, "roles/a.md".into())], Palette::plain());
        let row = table.lines().nth(1).unwrap().split("  ").filter(|it| !it.is_empty());
        let wanted = ["a", "roles/a.md", "read_file but broadcast", "rehearsal", "-", "x y"];
        assert_eq!(row.map(str::trim).collect::<Vec<_>>(), wanted);
        assert!(role_table(&[], Palette::plain()).contains("team init"));
    }
}
