//! The frame: the layout of the panes and their content.

use super::super::roster::short;
use super::super::sanitize::one_line;
use super::super::text_width::columns;
use super::super::view::View;
use super::paint::Paint;
use super::panes::{self, Rows};
use super::{Mode, Notice, PANES, Pane, RequestAnswer, Top, help};
use crate::view::Snapshot;
use crate::wire::WallTime;
use crate::wire::money::Money;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::{Line, Span};

/// The smallest terminal that can show the view, in columns and rows.
const LEAST: (u16, u16) = (40, 10);

/// The smallest terminal that shows all panes side by side, in columns and rows.
const WIDE: (u16, u16) = (110, 24);

/// Draws the frame; returns the position of the cursor while text is typed.
pub(crate) fn draw(
    top: &mut Top,
    snapshot: &Snapshot,
    now: WallTime,
    view: &View,
    buffer: &mut Buffer,
) -> Option<Position> {
    let area = buffer.area;
    let paint = Paint::of(view.palette);
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text =
            format!("too small: {}x{}, needs {}x{}", area.width, area.height, LEAST.0, LEAST.1);
        line(buffer, area, &Line::raw(text));
        return None;
    }
    let rows = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
    let [head, body, foot] = area.layout(&Layout::vertical(rows));
    line(buffer, head, &header(snapshot, head.width, paint));
    if top.mode == Mode::Help {
        let rows = help::ALL.iter().map(|(key, what)| {
            Line::from(vec![
                Span::styled(format!("  {key:<22}"), paint.bold()),
                Span::raw(if key.is_empty() { format!("\n{what}") } else { (*what).to_owned() }),
            ])
        });
        fill(buffer, body, rows);
    } else {
        for (pane, place) in arrange(top, snapshot, body) {
            let [head, inside] =
                place.layout(&Layout::vertical([Constraint::Length(1), Constraint::Min(0)]));
            let view = view.as_wide_as(usize::from(inside.width));
            let rows = panes::rows(pane, top, snapshot, now, &view, usize::from(inside.height));
            line(buffer, head, &title(top, pane, &rows, head.width, paint));
            fill(buffer, inside, rows.lines.into_iter());
        }
    }
    draw_footer(top, paint, buffer, foot)
}

/// The team in one line: the parts that fit in `width` columns as a whole.
fn header(snapshot: &Snapshot, width: u16, paint: Paint) -> Line<'static> {
    let alive = snapshot.members.iter().filter(|member| member.alive).count();
    let tokens: u64 = snapshot.members.iter().map(|member| member.usage.tokens()).sum();
    let costs = snapshot.members.iter().filter_map(|member| member.usage.cost);
    let cost = costs.reduce(Money::plus).map(|cost| format!(" · cost {cost}"));
    let mut text = format!("  {alive} of {} alive", snapshot.members.len());
    let counts = [
        format!(" · {} messages", snapshot.messages.len()),
        format!(" · {} tokens", short(tokens)),
    ];
    for part in counts.into_iter().chain(cost) {
        if columns("team") + columns(&text) + columns(&part) > usize::from(width) {
            break;
        }
        text.push_str(&part);
    }
    let mut spans = vec![Span::styled("team", paint.bold()), Span::styled(text, paint.dim())];
    if let Some(trouble) = &snapshot.trouble {
        spans.push(Span::styled(format!("  {}", one_line(trouble, 200)), paint.bad()));
    }
    Line::from(spans)
}

/// The panes and their areas.
fn arrange(top: &Top, snapshot: &Snapshot, body: Rect) -> Vec<(Pane, Rect)> {
    if body.width >= WIDE.0 && body.height + 2 >= WIDE.1 {
        let halves = [Constraint::Percentage(50), Constraint::Percentage(50)];
        let [left, right] = body.layout(&Layout::horizontal(halves).spacing(2));
        let asked = u16::try_from(snapshot.requests.len()).unwrap_or(u16::MAX);
        let quarter = left.height / 4;
        let rows = [
            Constraint::Min(0),
            Constraint::Length(quarter),
            Constraint::Length(asked.saturating_add(2).clamp(2, quarter)),
        ];
        let [members, tasks, requests] = left.layout(&Layout::vertical(rows));
        let [messages, conversation] = right.layout(&Layout::vertical(halves));
        return vec![
            (Pane::Members, members),
            (Pane::Tasks, tasks),
            (Pane::Requests, requests),
            (Pane::Messages, messages),
            (Pane::Conversation, conversation),
        ];
    }
    // Title, table header and all members, as long as enough rows are left for the other pane.
    let wanted = u16::try_from(snapshot.members.len()).unwrap_or(u16::MAX).max(1).saturating_add(2);
    let members = wanted.clamp(3, (body.height * 2 / 5).max(3));
    let rows = [Constraint::Length(members), Constraint::Min(0)];
    let [members, below] = body.layout(&Layout::vertical(rows));
    vec![(Pane::Members, members), (top.below, below)]
}

/// The title of a pane on a line; the pane with the focus is marked.
fn title(top: &Top, pane: Pane, rows: &Rows, width: u16, paint: Paint) -> Line<'static> {
    let has_keys = top.focus == pane;
    let number = PANES.iter().position(|it| *it == pane).unwrap_or_default() + 1;
    let mark = if has_keys { '▸' } else { '─' };
    let name = format!("{mark} {number} {} ", one_line(&rows.title, usize::from(width)));
    let rule = "─".repeat(usize::from(width).saturating_sub(columns(&name)));
    let style = if has_keys { paint.bold() } else { paint.dim() };
    Line::from(vec![Span::styled(name, style), Span::styled(rule, paint.dim())])
}

fn draw_footer(top: &Top, paint: Paint, buffer: &mut Buffer, foot: Rect) -> Option<Position> {
    match (&top.mode, &top.notice) {
        (Mode::Filter { .. }, _) => Some(prompt(buffer, foot, "show only: ", &top.filter, paint)),
        (Mode::Write { to, text }, _) => {
            Some(prompt(buffer, foot, &format!("to {to}: "), text, paint))
        }
        (Mode::Confirm { name }, _) => {
            let question = format!("stop {name}? y: yes, any other key: no");
            line(buffer, foot, &Line::styled(question, paint.warn()));
            None
        }
        (Mode::Decide { what, answer, .. }, _) => {
            let verb = match answer {
                RequestAnswer::Approve => "approve",
                RequestAnswer::Deny => "deny",
            };
            let room = usize::from(foot.width).saturating_sub(verb.len() + 30);
            let what = one_line(what, room);
            let question = format!("{verb} {what}? y: yes, any other: no");
            line(buffer, foot, &Line::styled(question, paint.warn()));
            None
        }
        (Mode::Browse | Mode::Help, Some(notice)) => {
            let (text, style) = match notice {
                Notice::Fine(text) => (text, paint.bold()),
                Notice::Failed(text) => (text, paint.bad()),
            };
            line(buffer, foot, &Line::styled(one_line(text, usize::from(foot.width)), style));
            None
        }
        (Mode::Browse | Mode::Help, None) => {
            let keys = help::footer(&top.mode, top.focus, !top.filter.is_empty());
            let spans = keys.into_iter().flat_map(|(key, what)| {
                [Span::styled(key, paint.bold()), Span::styled(format!(" {what}  "), paint.dim())]
            });
            let mut spans: Vec<Span<'_>> = spans.collect();
            if !top.filter.is_empty() {
                let filter = format!("only: {}", one_line(&top.filter, 20));
                spans.insert(0, Span::styled(filter + "  ", paint.warn()));
            }
            line(buffer, foot, &Line::from(spans));
            None
        }
    }
}

/// The line being typed; if it is long, its end.
fn prompt(buffer: &mut Buffer, foot: Rect, label: &str, text: &str, paint: Paint) -> Position {
    let room = usize::from(foot.width).saturating_sub(columns(label) + 1);
    let mut shown = text.replace(['\n', '\t'], " ");
    while columns(&shown) > room {
        shown.remove(0);
    }
    let end = columns(label) + columns(&shown);
    let spans = vec![Span::styled(label.to_owned(), paint.bold()), Span::raw(shown)];
    line(buffer, foot, &Line::from(spans));
    Position::new(foot.x.saturating_add(u16::try_from(end).unwrap_or(u16::MAX)), foot.y)
}

fn line(buffer: &mut Buffer, place: Rect, text: &Line<'_>) {
    buffer.set_line(place.x, place.y, text, place.width);
}

fn fill<'a>(buffer: &mut Buffer, place: Rect, rows: impl Iterator<Item = Line<'a>>) {
    for (row, text) in place.rows().zip(rows) {
        line(buffer, row, &text);
        buffer.set_style(row, text.style);
    }
}
