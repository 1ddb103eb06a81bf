//! The rows of each pane; only visible rows are rendered.

use super::super::roster::{RosterRow, roster_table};
use super::super::sanitize::one_line;
use super::super::style::{Mark, Palette};
use super::super::tasks::{TaskRow, task_table};
use super::super::transcript;
use super::super::view::View;
use super::paint::Paint;
use super::{Pane, Top};
use crate::view::{MessageProgress, Snapshot, Stage};
use crate::wire::WallTime;
use ratatui::text::{Line, Span};

/// The content of a pane.
pub(super) struct Rows {
    pub(super) title: String,
    pub(super) lines: Vec<Line<'static>>,
}

/// The content of a pane in `height` rows.
pub(super) fn rows(
    pane: Pane,
    top: &mut Top,
    snapshot: &Snapshot,
    now: WallTime,
    view: &View,
    height: usize,
) -> Rows {
    match pane {
        Pane::Members => members_pane(top, snapshot, now, view, height),
        Pane::Messages => messages(top, snapshot, view, height),
        Pane::Conversation => conversation(top, snapshot, view, height),
        Pane::Tasks => tasks(top, snapshot, view, height),
        Pane::Requests => requests(top, snapshot, view, height),
    }
}

fn members_pane(top: &Top, snapshot: &Snapshot, now: WallTime, view: &View, height: usize) -> Rows {
    let paint = Paint::of(view.palette);
    let members = top.members(snapshot);
    let title = count("members", members.len(), snapshot.members.len());
    let rows: Vec<RosterRow> = members.iter().map(|member| RosterRow::of(member, now)).collect();
    if rows.is_empty() {
        let text = if snapshot.members.is_empty() { "no members yet" } else { "no match" };
        return Rows { title, lines: vec![Line::styled(text, paint.dim())] };
    }
    let width = view.width.unwrap_or(80).saturating_sub(2);
    let table = roster_table(&rows, Palette::plain(), width);
    let mut table = table.lines();
    let head = table.next().unwrap_or_default();
    let mut lines = vec![Line::styled(format!("  {head}"), paint.dim())];
    let room = height.saturating_sub(1);
    let at = rows.iter().position(|row| row.name == top.selected).unwrap_or_default();
    let first = (at + 1).saturating_sub(room);
    for (row, text) in rows.iter().zip(table).skip(first).take(room) {
        lines.push(member(row, text, row.name == top.selected, paint));
    }
    Rows { title, lines }
}

/// One row of the table, with name and status in colour.
fn member(row: &RosterRow, text: &str, is_selected: bool, paint: Paint) -> Line<'static> {
    if is_selected {
        return Line::styled(format!("› {text}"), Paint::selected());
    }
    let mark = Mark::of(row.status, row.life);
    let named = text.split_once(mark.glyph).and_then(|(name, rest)| {
        let rest = rest.strip_prefix(' ')?.strip_prefix(mark.word)?;
        Some((name.to_owned(), rest.to_owned()))
    });
    let Some((name, rest)) = named else { return Line::raw(format!("  {text}")) };
    Line::from(vec![
        Span::styled(format!("  {name}"), paint.member(&row.color)),
        Span::styled(format!("{} {}", mark.glyph, mark.word), paint.mark(mark)),
        Span::raw(rest),
    ])
}

fn messages(top: &mut Top, snapshot: &Snapshot, view: &View, height: usize) -> Rows {
    let found: Vec<&MessageProgress> = if top.filter.is_empty() {
        snapshot.messages.iter().collect()
    } else {
        let passes = |progress: &&MessageProgress| {
            top.matches(&[&progress.from, &progress.to, &progress.kind, &progress.content])
        };
        snapshot.messages.iter().filter(passes).collect()
    };
    let title = count("messages", found.len(), snapshot.messages.len());
    let back = top.clamp(Pane::Messages, found.len().saturating_sub(height));
    let end = found.len() - back;
    let seen = found.iter().take(end).skip(end.saturating_sub(height));
    let mut lines: Vec<Line<'_>> = seen.map(|progress| message(progress, snapshot, view)).collect();
    if lines.is_empty() {
        lines.push(Line::styled("no messages", Paint::of(view.palette).dim()));
    }
    Rows { title: scrolled(title, back), lines }
}

/// One message on one line: stage, time, sender, recipient, content.
fn message(progress: &MessageProgress, snapshot: &Snapshot, view: &View) -> Line<'static> {
    let paint = Paint::of(view.palette);
    let (mark, style) = match progress.stage {
        Stage::Sent => ("… ", paint.warn()),
        Stage::Appended | Stage::Claimed => ("✉ ", paint.warn()),
        Stage::Acknowledged | Stage::Answered => ("✓ ", paint.dim()),
    };
    let colored = |name: &str| {
        let color = snapshot.member(name).map(|member| member.color.as_str()).unwrap_or_default();
        Span::styled(one_line(name, 32), paint.member(color))
    };
    let kind = match progress.kind.as_str() {
        "message" => String::new(),
        kind => format!(" [{}]", one_line(kind, 32)),
    };
    let time = progress.timestamp.map_or_else(|| "--:--:--".into(), |at| view.clock(at));
    Line::from(vec![
        Span::styled(mark, style),
        Span::styled(time + " ", paint.dim()),
        colored(&progress.from),
        Span::styled(" → ", paint.dim()),
        colored(&progress.to),
        Span::styled(kind, paint.dim()),
        Span::raw(": "),
        Span::raw(one_line(&progress.content, view.width.unwrap_or(200))),
    ])
}

fn conversation(top: &mut Top, snapshot: &Snapshot, view: &View, height: usize) -> Rows {
    let paint = Paint::of(view.palette);
    let shown = &snapshot.conversation;
    let name = if shown.name.is_empty() { "conversation".into() } else { shown.name.clone() };
    let title = format!("conversation of {name}");
    let back = top.scrolled.get(&Pane::Conversation).copied().unwrap_or_default();
    let plain = view.unpainted();
    // From the end, and only visible rows: a long conversation costs no more than a short one.
    let mut rows: Vec<String> = Vec::new();
    for line in shown.lines.iter().rev() {
        let text = transcript::line(line, &plain);
        let passes = top.filter.is_empty() || top.matches(&[&text]);
        rows.extend(text.lines().rev().filter(|_| passes).map(ToOwned::to_owned));
        if rows.len() >= height.saturating_add(back) {
            break;
        }
    }
    let back = top.clamp(Pane::Conversation, rows.len().saturating_sub(height));
    let seen = rows.into_iter().skip(back).take(height);
    let mut lines: Vec<Line<'_>> = seen.map(|row| entry(row, paint)).collect();
    lines.reverse();
    if lines.is_empty() {
        lines.push(Line::styled("nothing yet", paint.dim()));
    }
    Rows { title: scrolled(title, back), lines }
}

/// A row of a conversation; the first row of an entry is bold.
fn entry(row: String, paint: Paint) -> Line<'static> {
    if row.starts_with("    ") {
        Line::styled(row, paint.dim())
    } else if row.starts_with(' ') || row.is_empty() {
        Line::raw(row)
    } else {
        Line::styled(row, paint.bold())
    }
}

fn tasks(top: &mut Top, snapshot: &Snapshot, view: &View, height: usize) -> Rows {
    let paint = Paint::of(view.palette);
    let rows = snapshot.tasks.iter().filter(|(task, _)| {
        let owner = task.owner.as_deref().unwrap_or_default();
        top.matches(&[&task.subject, owner, task.status.word()])
    });
    let rows = rows.map(|(task, waits_for)| TaskRow { task, waits_for: waits_for.clone() });
    let rows: Vec<TaskRow<'_>> = rows.collect();
    let title = count("tasks", rows.len(), snapshot.tasks.len());
    if rows.is_empty() {
        return Rows { title, lines: vec![Line::styled("no tasks", paint.dim())] };
    }
    let first = top.clamp(Pane::Tasks, rows.len().saturating_sub(height.saturating_sub(1)));
    let table = task_table(&rows, Palette::plain());
    let mut table = table.lines().map(ToOwned::to_owned);
    let head = Line::styled(table.next().unwrap_or_default(), paint.dim());
    let lines = std::iter::once(head).chain(table.skip(first).map(Line::raw)).take(height);
    Rows { title, lines: lines.collect() }
}

fn requests(top: &mut Top, snapshot: &Snapshot, view: &View, height: usize) -> Rows {
    let paint = Paint::of(view.palette);
    let open = &snapshot.requests;
    let title = count("requests", open.len(), open.len());
    let at = top.clamp(Pane::Requests, open.len().saturating_sub(1));
    let first = (at + 1).saturating_sub(height);
    let seen = open.iter().enumerate().skip(first).take(height);
    let mut lines: Vec<Line<'_>> = seen
        .map(|(number, asked)| {
            let (from, question) = (&asked.from, &asked.question);
            let text = format!("{from} asks for {}: {}", question.tool, question.description);
            let text = one_line(&text, view.width.unwrap_or(200).saturating_sub(2));
            if number == at && top.focus == Pane::Requests {
                Line::styled(format!("› {text}"), Paint::selected())
            } else {
                Line::styled(format!("  {text}"), paint.warn())
            }
        })
        .collect();
    if lines.is_empty() {
        lines.push(Line::styled("nothing waits for an answer", paint.dim()));
    }
    Rows { title, lines }
}

fn count(what: &str, shown: usize, all: usize) -> String {
    if shown == all { format!("{what} ({all})") } else { format!("{what} ({shown} of {all})") }
}

fn scrolled(title: String, back: usize) -> String {
    if back == 0 { title } else { format!("{title}, {back} rows back") }
}
