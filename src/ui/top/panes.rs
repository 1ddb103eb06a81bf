//! The rows of each pane; only visible rows are rendered.

use super::super::roster::roster_table;
use super::super::sanitize::one_line;
use super::super::style::{DIM, Palette, WARN, of_member, status_mark};
use super::super::tables::{TaskRow, task_table};
use super::super::view::View;
use super::Top;
use super::items::{Item, items, waiting};
use super::layout::Pane;
use super::paint::SELECTED;
use crate::view::change::PendingQuestion;
use crate::view::requests::visible_line;
use crate::view::{MemberView, MessageProgress, Snapshot, Stage, SubagentView};
use crate::wire::WallTime;
use ratatui::text::{Line, Span};

pub(super) struct Rows {
    pub(super) title: String,
    pub(super) lines: Vec<Line<'static>>,
}

/// Renders the content of a pane in `height` rows of `width` columns.
pub(super) fn rows(
    pane: Pane,
    top: &mut Top,
    snapshot: &Snapshot,
    now: WallTime,
    width: usize,
    height: usize,
) -> Rows {
    let view = top.view.clone();
    if pane == Pane::Conversation {
        return conversation(top, snapshot, &view, height);
    }
    let all = items(pane, snapshot, top.shows_protocol);
    let at = top.at(pane, &all);
    let table = table(&all, now, width);
    let room = height.saturating_sub(usize::from(table.is_some()));
    let first = top.first_visible(pane, at, all.len(), room);
    let has_keys = top.opened.is_none() && top.focus == pane;
    // The conversation of the selected agent is shown, so its row is always marked.
    let is_marked = |index: usize| index == at && (has_keys || pane == Pane::Members);
    let seen = all.iter().enumerate().skip(first).take(room);
    let rows = seen.map(|(index, item)| {
        let text = table.as_ref().and_then(|rows| rows.get(index + 1)).map_or("", String::as_str);
        let row = row(item, text, snapshot, width, &view);
        if is_marked(index) { selected(&row) } else { row }
    });
    let rows: Vec<Line<'static>> = rows.collect();
    let head = table.as_ref().and_then(|rows| rows.first()).filter(|_| height > 1);
    let indent = if pane == Pane::Members { "   " } else { "  " };
    let head = head.map(|head| Line::styled(format!("{indent}{head}"), view.style(DIM)));
    let mut lines: Vec<Line<'static>> = head.into_iter().chain(rows).collect();
    if all.is_empty() {
        lines.push(Line::styled(nothing(pane, top, snapshot), view.style(DIM)));
    }
    let branches = all.iter().filter(|it| matches!(it, Item::Subagent(_))).count();
    Rows { title: title(pane, top, at, all.len() - branches), lines }
}

impl Top {
    /// Returns the first visible row of a list of which `room` rows are visible: the row at `at` is one of them, and
    /// the list moves as little as possible.
    fn first_visible(&mut self, pane: Pane, at: usize, all: usize, room: usize) -> usize {
        let room = room.max(1);
        let first = self.firsts.entry(pane).or_default();
        *first = (*first).clamp((at + 1).saturating_sub(room), at).min(all.saturating_sub(room));
        *first
    }
}

fn nothing(pane: Pane, top: &Top, snapshot: &Snapshot) -> &'static str {
    match pane {
        Pane::Members => "No members yet",
        Pane::Messages if !top.shows_protocol && snapshot.messages.len() > 0 => {
            "Only protocol messages: p shows them"
        }
        Pane::Messages => "No messages yet",
        Pane::Conversation => "No conversation yet",
        Pane::Tasks => "No tasks yet",
        Pane::Questions => "No open questions",
    }
}

fn title(pane: Pane, top: &Top, at: usize, all: usize) -> String {
    let [name, ..] = pane.names();
    let is_last = at + 1 >= all;
    match pane {
        Pane::Messages => {
            let count = if is_last { all.to_string() } else { format!("{} of {all}", at + 1) };
            format!("{name} ({count}, {})", protocol(top))
        }
        Pane::Members | Pane::Conversation | Pane::Tasks | Pane::Questions => {
            format!("{name} ({all})")
        }
    }
}

/// Returns the words for whether protocol messages are shown.
pub(super) fn protocol(top: &Top) -> &'static str {
    if top.shows_protocol { "with protocol" } else { "protocol hidden" }
}

/// Returns the rows of the table of a list, the head first; `None` for a list that is not a table.
fn table(all: &[Item<'_>], now: WallTime, width: usize) -> Option<Vec<String>> {
    let members: Vec<&MemberView> = all
        .iter()
        .filter_map(|it| if let Item::Member(it) = it { Some(*it) } else { None })
        .collect();
    let tasks = all.iter().filter_map(|it| {
        let Item::Task(task, waits_for) = it else { return None };
        Some(TaskRow { task, waits_for: waits_for.to_vec() })
    });
    let tasks: Vec<TaskRow<'_>> = tasks.collect();
    let text = if !members.is_empty() {
        roster_table(&members, now, Palette::plain(), width.saturating_sub(3))
    } else if !tasks.is_empty() {
        task_table(&tasks, Palette::plain())
    } else {
        return None;
    };
    let mut text = text.lines().map(str::to_owned);
    let head = text.next();
    let of_item = |item: &Item<'_>| {
        // A branch is no row of the table.
        if matches!(item, Item::Subagent(_)) { None } else { text.next() }
    };
    Some(head.into_iter().chain(all.iter().map(of_item).map(Option::unwrap_or_default)).collect())
}

/// Marks a row as the selected one.
fn selected(row: &Line<'static>) -> Line<'static> {
    let text: String = row.spans.iter().map(|span| &*span.content).collect();
    let rest = text.chars().skip(1).collect::<String>();
    Line::styled(format!("›{rest}"), SELECTED)
}

fn row(
    item: &Item<'_>,
    text: &str,
    snapshot: &Snapshot,
    width: usize,
    view: &View,
) -> Line<'static> {
    match item {
        Item::Member(row) => member(row, text, snapshot, view),
        Item::Subagent(row) => subagent(row, width, view),
        Item::Message(row) => message(row, snapshot, width, view),
        Item::Task(..) => Line::raw(format!("  {text}")),
        Item::Question(asked) => question(asked, snapshot, width, view),
    }
}

/// Renders one row of the table, with name and status in colour, and with a mark if the member has asked a question.
fn member(row: &MemberView, text: &str, snapshot: &Snapshot, view: &View) -> Line<'static> {
    let asks = waiting(snapshot).any(|asked| asked.from == row.name);
    let mark = Span::styled(if asks { " ? " } else { "   " }, view.style(WARN));
    let (status, style) = status_mark(row.status, row.found_dead);
    let Some((name, rest)) = text.split_once(status) else {
        return Line::from(vec![mark, Span::raw(text.to_owned())]);
    };
    let name = Span::styled(name.to_owned(), view.style(of_member(&row.color)));
    let status = Span::styled(status, view.style(style));
    Line::from(vec![mark, name, status, Span::raw(rest.to_owned())])
}

/// Renders one subagent as a branch below its caller.
fn subagent(SubagentView { id, doing }: &SubagentView, width: usize, view: &View) -> Line<'static> {
    let text = format!("     └ {id} {}", visible_line(doing));
    Line::styled(one_line(&text, width), view.style(DIM))
}

/// Renders one message on one line: stage, time, sender, recipient, content.
fn message(
    progress: &MessageProgress,
    snapshot: &Snapshot,
    width: usize,
    view: &View,
) -> Line<'static> {
    let (mark, style) = match progress.stage {
        Stage::Sent => ("  … ", view.style(WARN)),
        Stage::Appended | Stage::Claimed => ("  ✉ ", view.style(WARN)),
        Stage::Acknowledged | Stage::Answered => ("  ✓ ", view.style(DIM)),
    };
    let colored = |name: &str| {
        let color = snapshot.member(name).map(|member| member.color.as_str()).unwrap_or_default();
        Span::styled(one_line(name, 32), view.style(of_member(color)))
    };
    let kind = match progress.kind.as_str() {
        "message" => String::new(),
        kind => format!(" [{}]", one_line(kind, 32)),
    };
    let time = view.clock(progress.timestamp);
    let colon = if progress.content.is_empty() { "" } else { ": " };
    Line::from(vec![
        Span::styled(mark, style),
        Span::styled(time + " ", view.style(DIM)),
        colored(&progress.from),
        Span::styled(" → ", view.style(DIM)),
        colored(&progress.to),
        Span::styled(kind, view.style(DIM)),
        Span::raw(colon),
        Span::raw(one_line(&progress.content, width)),
    ])
}

fn question(
    asked: &PendingQuestion,
    snapshot: &Snapshot,
    width: usize,
    view: &View,
) -> Line<'static> {
    let (from, question) = (&asked.from, &asked.question);
    let what = visible_line(&question.description);
    let is_waiting = waiting(snapshot).any(|it| it.question == *question);
    let (note, style) = if is_waiting { ("", WARN) } else { (" (not running)", DIM) };
    let text = format!("{from}{note} asks for {}: {what}", question.tool);
    Line::styled(format!("  {}", one_line(&text, width.saturating_sub(2))), view.style(style))
}

fn conversation(top: &Top, snapshot: &Snapshot, view: &View, height: usize) -> Rows {
    let shown = &snapshot.conversation;
    let of = if shown.name.is_empty() { String::new() } else { format!(" of {}", shown.name) };
    let place = top.conversation.place(height).filter(|_| !top.conversation.scroll.follows);
    let place = place.map(|place| format!(", {place}")).unwrap_or_default();
    let mut lines = top.conversation.visible(height);
    if lines.is_empty() {
        lines.push(Line::styled(nothing(Pane::Conversation, top, snapshot), view.style(DIM)));
    }
    Rows { title: format!("Conversation{of} ({}{place})", protocol(top)), lines }
}
