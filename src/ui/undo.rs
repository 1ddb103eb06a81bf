//! The plan of an undo, the turns of an agent, and the changes of a session, as text.

use super::diff;
use super::sanitize::{one_line, sanitize};
use super::style::{BAD, Palette};
use super::view::View;
use crate::undo::history::Turn;
use crate::undo::plan::{UndoAction, UndoPlan, shown};
use crate::undo::session_diff::{AgentDiff, DiffContent, DiffKind, FileDiff, unified};
use crate::wire::roster::{Member, Roster};
use anstyle::{AnsiColor, Style};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const ADDED: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
const PLACE: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Cyan)));

/// The maximum number of files that the line of a turn names.
const MOST_NAMED: usize = 3;

const INDENT: &str = "  ";

const NO_CHANGES: &str = "no changes are recorded since the session began";

/// The maximum width of a path or a prompt in a line.
const WIDTH: usize = 200;

/// The folders of the clones in which agents work, with their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct CloneFolders(Vec<(PathBuf, String)>);

impl CloneFolders {
    pub(crate) fn of(roster: &Roster) -> Self {
        let folder = |member: &Member| {
            let path = PathBuf::from(&member.work.as_ref()?.path);
            // Recorded paths have no links.
            Some((path.canonicalize().unwrap_or(path), member.name.clone()))
        };
        Self(roster.members.iter().filter_map(|member| folder(member)).collect())
    }

    /// Returns a path on one line. A path in a clone is relative to it.
    fn shown(&self, path: &str) -> String {
        let in_clone = self.0.iter().find_map(|(folder, name)| {
            let inside = Path::new(path).strip_prefix(folder).ok()?;
            Some(format!("{} (clone of {name})", inside.display()))
        });
        one_line(in_clone.as_deref().unwrap_or(path), WIDTH)
    }
}

/// Renders what an undo would do.
pub(crate) fn plan(plan: &UndoPlan, folders: &CloneFolders, view: &View) -> String {
    let palette = view.palette;
    let more = match plan.turns.saturating_sub(1) {
        0 => String::new(),
        1 => " and a later one".into(),
        more => format!(" and {more} later ones"),
    };
    let about = one_line(&plan.about, WIDTH);
    let head = format!("turn {} of {}{more}: {about}", plan.to_turn, plan.agent);
    let mut rows = vec![palette.bold(&head)];
    for step in &plan.steps {
        let path = folders.shown(&step.shown);
        let command = if step.is_by_command { "  (changed by a command)" } else { "" };
        rows.push(format!("  {:<12}{path}{}", step.action.word(), palette.dim(command)));
    }
    if plan.steps.is_empty() {
        rows.push("  no file is to be changed".into());
    }
    if !plan.refusals.is_empty() {
        rows.push(palette.warn("not taken back:"));
    }
    for refusal in &plan.refusals {
        let path = folders.shown(&refusal.shown);
        let why = one_line(&refusal.why.in_words(), WIDTH);
        rows.push(format!("  {path}: {why}"));
    }
    rows.extend(uncovered(&plan.uncovered, palette));
    rows.join("\n")
}

fn uncovered(reasons: &[String], palette: Palette) -> impl Iterator<Item = String> {
    reasons.iter().map(move |why| palette.warn(&format!("note: {}", one_line(why, WIDTH))))
}

/// Renders the turns in which an agent changed files, newest first. `workspace` is left out of paths.
pub(crate) fn turns(
    turns: &[Turn],
    workspace: &Path,
    folders: &CloneFolders,
    view: &View,
) -> String {
    let palette = view.palette;
    let mut rows = Vec::new();
    for turn in turns.iter().rev() {
        let mut files: Vec<String> = turn
            .changes
            .iter()
            .map(|it| folders.shown(&shown(workspace, &it.change.path)))
            .collect();
        files.sort_unstable();
        files.dedup();
        let more = files.len().saturating_sub(MOST_NAMED);
        files.truncate(MOST_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (number, time) = (turn.number, view.clock(Some(turn.at)));
        let about = one_line(&turn.about, WIDTH);
        let named = one_line(&format!("{}{more}", files.join(", ")), WIDTH);
        let state = if turn.is_active || turn.undoes.is_some() { "" } else { " (taken back)" };
        rows.push(format!("{number:>4}  {}  {about}{}", palette.dim(&time), palette.dim(state)));
        rows.push(format!("      {}", palette.dim(&named)));
    }
    if rows.is_empty() { "no changes are recorded".into() } else { rows.join("\n") }
}

/// Renders the changes of agents as unified differences, each with the name of the agent.
pub(crate) fn diff(diffs: &[AgentDiff], folders: &CloneFolders, palette: Palette) -> String {
    let mut text = String::new();
    for AgentDiff { agent, files, uncovered: reasons } in diffs {
        let head = format!("{agent}: {}", counted(files.len()));
        let _infallible = writeln!(text, "{}", palette.bold(&head));
        for file in files {
            text.push_str(&file_text(file, folders, palette));
        }
        for note in uncovered(reasons, palette) {
            let _infallible = writeln!(text, "{note}");
        }
        text.push('\n');
    }
    if text.is_empty() {
        return NO_CHANGES.to_owned();
    }
    text.trim_end().to_owned()
}

fn file_text(file: &FileDiff, folders: &CloneFolders, palette: Palette) -> String {
    let path = folders.shown(&file.shown);
    let (old, new) = match file.kind {
        DiffKind::Created => ("/dev/null".to_owned(), format!("b/{path}")),
        DiffKind::Changed => (format!("a/{path}"), format!("b/{path}")),
        DiffKind::Removed => (format!("a/{path}"), "/dev/null".to_owned()),
    };
    let note = match &file.content {
        DiffContent::Text { before, after } => {
            let head = palette.bold(&format!("--- {old}\n+++ {new}"));
            return format!("{head}\n{}", painted(&unified(before, after), palette));
        }
        DiffContent::Mode(..) | DiffContent::Binary | DiffContent::Unknown(_) => {
            note(file, folders)
        }
    };
    format!("{}\n", palette.bold(&note))
}

/// Describes a change whose lines are not shown.
fn note(file: &FileDiff, folders: &CloneFolders) -> String {
    let path = folders.shown(&file.shown);
    let what = match &file.content {
        DiffContent::Text { .. } => String::new(),
        DiffContent::Mode(before, after) => format!(" (mode {before:04o} to {after:04o})"),
        DiffContent::Binary => " (binary content)".into(),
        DiffContent::Unknown(why) => format!(" ({})", one_line(why, WIDTH)),
    };
    format!("{path}: {}{what}", file.kind.word())
}

/// Renders the changes of agents with the numbers of their lines.
pub(crate) fn numbered(diffs: &[AgentDiff], folders: &CloneFolders, view: &View) -> String {
    let palette = view.palette;
    let room = view.width.map(|width| width.saturating_sub(INDENT.len()));
    let narrow = View { width: room, ..view.clone() };
    let mut rows = Vec::new();
    for AgentDiff { agent, files, uncovered: reasons } in diffs {
        rows.push(palette.bold(&format!("{agent}: {}", counted(files.len()))));
        for file in files {
            let DiffContent::Text { before, after } = &file.content else {
                rows.push(note(file, folders));
                continue;
            };
            let diff = diff::diff(before, after, &narrow);
            rows.push(format!("{} {}", note(file, folders), palette.dim(&diff.counts())));
            rows.extend(diff.rows.into_iter().map(|row| format!("{INDENT}{row}")));
        }
        rows.extend(uncovered(reasons, palette));
    }
    if rows.is_empty() { NO_CHANGES.to_owned() } else { rows.join("\n") }
}

/// Renders the changes of an agent as one line, without its name: the files, each with the numbers of its lines.
pub(crate) fn in_one_line(files: &[FileDiff], folders: &CloneFolders) -> String {
    let named = files.iter().take(MOST_NAMED).map(|file| {
        let path = folders.shown(&file.shown);
        match (&file.content, file.kind) {
            (DiffContent::Text { before, after }, DiffKind::Created | DiffKind::Changed) => {
                format!(
                    "{path} {}",
                    diff::diff(before, after, &View::new(Palette::default(), None)).counts()
                )
            }
            (_, kind) => format!("{path} {}", kind.word()),
        }
    });
    let named = named.collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn counted(files: usize) -> String {
    if files == 1 { "1 file".into() } else { format!("{files} files") }
}

impl DiffKind {
    /// Returns the word for people and for JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

/// Paints the lines of a difference.
fn painted(lines: &str, palette: Palette) -> String {
    let mut text = String::new();
    for line in sanitize(lines).lines() {
        let style = match line.chars().next() {
            Some('+') => ADDED,
            Some('-') => BAD,
            Some('@') => PLACE,
            Some(_) | None => Style::new(),
        };
        text.push_str(&palette.paint(style, line));
        text.push('\n');
    }
    text
}

impl UndoAction {
    /// Returns the word for people and for JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::RestoreMode => "restore mode",
            Self::Remove => "remove",
            Self::Recreate => "recreate",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::style::ColorChoice;
    use crate::undo::plan::{RefusalReason, UndoRefusal, UndoStep};
    use crate::wire::AgentName;

    fn alice() -> AgentName {
        AgentName::member("alice").unwrap()
    }

    #[test]
    fn a_plan_names_each_file_what_is_done_and_what_is_refused() {
        let step = |shown: &str, action, is_by_command| UndoStep {
            path: format!("/w/{shown}"),
            shown: shown.into(),
            action,
            is_by_command,
            from: None,
            to: None,
        };
        let refusal = |shown: &str, why| UndoRefusal { shown: shown.into(), why };
        let planned = UndoPlan {
            agent: alice(),
            to_turn: 3,
            about: "add a\u{1b}[2J page".into(),
            turns: 2,
            steps: vec![
                step("src/a.rs", UndoAction::Restore, false),
                step("new\u{1b}[31m", UndoAction::Remove, true),
            ],
            refusals: vec![refusal("b.rs", RefusalReason::ChangedBy("bob".into()))],
            uncovered: vec!["changes are not covered".into()],
        };
        let text = plan(&planned, &CloneFolders::default(), &View::fixed(None));
        let rows: Vec<&str> = text.lines().collect();
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(rows[0].starts_with("turn 3 of alice and a later one: add a"), "{text}");
        assert_eq!(rows[1], "  restore     src/a.rs");
        assert!(rows[2].ends_with("(changed by a command)"), "{text}");
        assert_eq!(rows[3], "not taken back:");
        assert_eq!(rows[4], "  b.rs: changed since by bob");
        assert_eq!(rows[5], "note: changes are not covered");
    }

    #[test]
    fn a_difference_is_coloured_by_line_and_cannot_send_codes() {
        let file = FileDiff {
            shown: "a.rs".into(),
            kind: DiffKind::Changed,
            is_by_command: false,
            content: DiffContent::Text { before: "old\n".into(), after: "new\u{1b}[2J\n".into() },
        };
        let diffs = [AgentDiff { agent: alice(), files: vec![file], uncovered: Vec::new() }];
        let plain = diff(&diffs, &CloneFolders::default(), Palette::plain());
        assert!(
            plain.starts_with("alice: 1 file\n--- a/a.rs\n+++ b/a.rs\n@@ -1 +1 @@\n-old\n+new")
        );
        assert!(!plain.contains('\u{1b}'));
        let painted =
            diff(&diffs, &CloneFolders::default(), Palette::new(ColorChoice::Always, true));
        assert!(painted.contains("\u{1b}[31m-old\u{1b}[0m"), "{painted:?}");
        assert!(painted.contains("\u{1b}[32m+new"), "{painted:?}");
        assert!(!painted.contains("[2J\u{1b}") && !painted.contains("\u{1b}[2J"), "{painted:?}");
        assert_eq!(diff(&[], &CloneFolders::default(), Palette::plain()), NO_CHANGES);
    }
}
