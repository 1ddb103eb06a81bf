//! The rows of each pane; only visible rows are rendered.

use super::super::messages::NAME_WIDTH;
use super::super::roster::roster_table;
use super::super::sanitize::{one_line, wrap};
use super::super::style::{BOLD, DIM, Palette, WARN, of_member, status_mark};
use super::super::tables::{TaskRow, task_table};
use super::super::transcript;
use super::super::view::View;
use super::{Pane, Review, Top};
use crate::view::requests::{Excerpt, content, visible_line};
use crate::view::{MemberView, MessageProgress, Snapshot, Stage};
use crate::wire::WallTime;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

impl View {
    /// Converts a style of the palette into a style of ratatui; plain without colours.
    pub(super) fn style(&self, style: anstyle::Style) -> Style {
        let mut made = Style::new();
        if !self.palette.is_colored {
            return made;
        }
        if let Some(anstyle::Color::Ansi(color)) = style.get_fg_color() {
            made = made.fg(Color::Indexed(anstyle::Ansi256Color::from_ansi(color).index()));
        }
        for (effect, modifier) in
            [(anstyle::Effects::DIMMED, Modifier::DIM), (anstyle::Effects::BOLD, Modifier::BOLD)]
        {
            if style.get_effects().contains(effect) {
                made = made.add_modifier(modifier);
            }
        }
        made
    }
}

pub(super) struct Rows {
    pub(super) title: String,
    pub(super) lines: Vec<Line<'static>>,
    /// The text that is shown if there are no lines.
    otherwise: &'static str,
}

/// Renders the content of a pane in `height` rows.
pub(super) fn rows(
    pane: Pane,
    top: &mut Top,
    snapshot: &Snapshot,
    now: WallTime,
    view: &View,
    height: usize,
) -> Rows {
    let mut rows = match pane {
        Pane::Members => members_pane(top, snapshot, now, view, height),
        Pane::Messages => messages(top, snapshot, view, height),
        Pane::Conversation => conversation(top, snapshot, view, height),
        Pane::Tasks => tasks(top, snapshot, view, height),
        Pane::Requests => requests(top, snapshot, view, height),
    };
    if rows.lines.is_empty() {
        rows.lines.push(Line::styled(rows.otherwise, view.style(DIM)));
    }
    rows
}

fn members_pane(top: &Top, snapshot: &Snapshot, now: WallTime, view: &View, height: usize) -> Rows {
    let members = top.members(snapshot);
    let title = count("members", members.len(), snapshot.members.len());
    let width = view.width.unwrap_or(80).saturating_sub(2);
    let table = roster_table(&members, now, Palette::plain(), width);
    let mut table = table.lines().filter(|_| !members.is_empty());
    let head = table.next().map(|head| Line::styled(format!("  {head}"), view.style(DIM)));
    let room = height.saturating_sub(1);
    let at = members.iter().position(|member| member.name == top.selected).unwrap_or_default();
    let first = (at + 1).saturating_sub(room);
    let seen = members.iter().zip(table).skip(first).take(room);
    let seen = seen.map(|(row, text)| member(row, text, row.name == top.selected, view));
    let otherwise = if snapshot.members.is_empty() { "no members yet" } else { "no match" };
    Rows { title, lines: head.into_iter().chain(seen).collect(), otherwise }
}

/// Renders one row of the table, with name and status in colour.
fn member(row: &MemberView, text: &str, is_selected: bool, view: &View) -> Line<'static> {
    if is_selected {
        return Line::styled(format!("› {text}"), SELECTED);
    }
    let (status, style) = status_mark(row.status, row.found_dead);
    let Some((name, rest)) = text.split_once(status) else {
        return Line::raw(format!("  {text}"));
    };
    let name = Span::styled(format!("  {name}"), view.style(of_member(&row.color)));
    Line::from(vec![name, Span::styled(status, view.style(style)), Span::raw(rest.to_owned())])
}

fn messages(top: &mut Top, snapshot: &Snapshot, view: &View, height: usize) -> Rows {
    let passes =
        |top: &Top, it: &MessageProgress| top.matches(&[&it.from, &it.to, &it.kind, &it.content]);
    let all = &snapshot.messages;
    let is_filtered = !top.filter.is_empty();
    let found =
        if is_filtered { all.iter().filter(|it| passes(top, it)).count() } else { all.len() };
    let title = count("messages", found, all.len());
    let back = top.clamp(Pane::Messages, found.saturating_sub(height));
    // Rendered from the end, and only visible rows: many messages cost no more than a few.
    let seen = all.iter().rev().filter(|it| passes(top, it)).skip(back).take(height);
    let mut lines: Vec<_> = seen.map(|progress| message(progress, snapshot, view)).collect();
    lines.reverse();
    Rows { title: scrolled(title, back), lines, otherwise: "no messages" }
}

/// Renders one message on one line: stage, time, sender, recipient, content.
fn message(progress: &MessageProgress, snapshot: &Snapshot, view: &View) -> Line<'static> {
    let (mark, style) = match progress.stage {
        Stage::Sent => ("… ", view.style(WARN)),
        Stage::Appended | Stage::Claimed => ("✉ ", view.style(WARN)),
        Stage::Acknowledged | Stage::Answered => ("✓ ", view.style(DIM)),
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
    Line::from(vec![
        Span::styled(mark, style),
        Span::styled(time + " ", view.style(DIM)),
        colored(&progress.from),
        Span::styled(" → ", view.style(DIM)),
        colored(&progress.to),
        Span::styled(kind, view.style(DIM)),
        Span::raw(": "),
        Span::raw(one_line(&progress.content, view.width.unwrap_or(200))),
    ])
}

fn conversation(top: &mut Top, snapshot: &Snapshot, view: &View, height: usize) -> Rows {
    let shown = &snapshot.conversation;
    let name = if shown.name.is_empty() { "conversation".into() } else { shown.name.clone() };
    let title = format!("conversation of {name}");
    let back = top.scrolled.get(&Pane::Conversation).copied().unwrap_or_default();
    let plain = View { palette: Palette::plain(), ..view.clone() };
    // Rendered from the end, and only visible rows: a long conversation costs no more than a short one.
    let mut rows: Vec<String> = Vec::new();
    for line in shown.lines.iter().rev() {
        let text = transcript::line(line, &plain);
        let passes = top.matches(&[&text]);
        rows.extend(text.lines().rev().filter(|_| passes).map(ToOwned::to_owned));
        if rows.len() >= height.saturating_add(back) {
            break;
        }
    }
    let back = top.clamp(Pane::Conversation, rows.len().saturating_sub(height));
    let seen = rows.into_iter().skip(back).take(height);
    let mut lines: Vec<_> = seen.map(|row| entry(row, view)).collect();
    lines.reverse();
    Rows { title: scrolled(title, back), lines, otherwise: "nothing yet" }
}

fn entry(row: String, view: &View) -> Line<'static> {
    if row.starts_with("    ") {
        Line::styled(row, view.style(DIM))
    } else if row.starts_with(' ') || row.is_empty() {
        Line::raw(row)
    } else {
        Line::styled(row, view.style(BOLD))
    }
}

fn tasks(top: &mut Top, snapshot: &Snapshot, view: &View, height: usize) -> Rows {
    let rows = snapshot.tasks.iter().filter(|(task, _)| {
        let owner = task.owner.as_deref().unwrap_or_default();
        top.matches(&[&task.subject, owner, task.status.word()])
    });
    let rows = rows.map(|(task, waits_for)| TaskRow { task, waits_for: waits_for.clone() });
    let rows: Vec<TaskRow<'_>> = rows.collect();
    let title = count("tasks", rows.len(), snapshot.tasks.len());
    let first = top.clamp(Pane::Tasks, rows.len().saturating_sub(height.saturating_sub(1)));
    let table = task_table(&rows, Palette::plain());
    let table = table.lines().filter(|_| !rows.is_empty());
    let mut table = table.map(|line| Line::raw(line.to_owned()));
    let head = table.next().map(|head| head.style(view.style(DIM)));
    let lines = head.into_iter().chain(table.skip(first)).take(height).collect();
    Rows { title, lines, otherwise: "no tasks" }
}

fn requests(top: &mut Top, snapshot: &Snapshot, view: &View, height: usize) -> Rows {
    let open = &snapshot.requests;
    let title = count("requests", open.len(), open.len());
    let at = top.clamp(Pane::Requests, open.len().saturating_sub(1));
    let first = (at + 1).saturating_sub(height);
    let seen = open.iter().enumerate().skip(first).take(height);
    let lines = seen.map(|(number, asked)| {
        let (from, question) = (&asked.from, &asked.question);
        let what = visible_line(&question.description);
        let text = format!("{from} asks for {}: {what}", question.tool);
        let text = one_line(&text, view.width.unwrap_or(200).saturating_sub(2));
        if number == at && top.focus == Pane::Requests {
            Line::styled(format!("› {text}"), SELECTED)
        } else {
            Line::styled(format!("  {text}"), view.style(WARN))
        }
    });
    Rows { title, lines: lines.collect(), otherwise: "nothing waits for an answer" }
}

/// Renders the content of a request in `height` rows: its first and last rows, or all of them from the row to
/// which the person has scrolled.
pub(super) fn review(review: &mut Review, view: &View, height: usize) -> Vec<Line<'static>> {
    let question = &review.asked.question;
    let from = one_line(&review.asked.from, NAME_WIDTH);
    let head = format!("{from} asks for {}:", one_line(&question.tool, NAME_WIDTH));
    let height = height.saturating_sub(1);
    let room = view.width.map(|width| width.saturating_sub(2));
    let rows = content(question).into_iter().flat_map(|line| wrap(line.trim_end(), room));
    let rows: Vec<String> = rows.map(|row| format!("  {row}")).collect();
    let line = |row: &String| Line::raw(row.clone());
    let mut lines = vec![Line::styled(head, view.style(BOLD))];
    // The row that counts the others takes the place of one.
    let most = if rows.len() > height { height.saturating_sub(1) } else { height };
    let excerpt = Excerpt::of(&rows, most);
    review.omitted = Some(if review.is_whole { 0 } else { excerpt.omitted });
    if review.is_whole || excerpt.omitted == 0 {
        review.first = review.first.min(rows.len().saturating_sub(height));
        lines.extend(rows.iter().skip(review.first).take(height).map(line));
        return lines;
    }
    lines.extend(excerpt.head.iter().map(line));
    lines.push(Line::styled(format!("  {}", excerpt.gap()), view.style(WARN)));
    lines.extend(excerpt.tail.iter().map(line));
    lines
}

fn count(what: &str, shown: usize, all: usize) -> String {
    if shown == all { format!("{what} ({all})") } else { format!("{what} ({shown} of {all})") }
}

fn scrolled(title: String, back: usize) -> String {
    if back == 0 { title } else { format!("{title}, {back} rows back") }
}
