//! The frame: the layout of the panes, their content, and the help.

use super::super::roster::{short, walls_in_words};
use super::super::sanitize::{columns, one_line};
use super::super::style::{BAD, BOLD, DIM, WARN};
use super::super::view::View;
use super::panes;
use super::{Mode, Notice, Pane, Top};
use crate::view::{Snapshot, requests::visible_line};
use crate::wire::WallTime;
use crate::wire::money::Money;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The smallest terminal that can show the view, in columns and rows.
const LEAST: (u16, u16) = (40, 10);

/// The smallest terminal that shows all panes side by side, in columns and rows.
const WIDE: (u16, u16) = (110, 24);

/// All keys, by task: the help that `?` shows.
const KEYS: [(&str, &str); 13] = [
    ("tab, shift-tab, 1-5", "go to another pane"),
    ("arrows, j, k", "move or scroll by one"),
    ("page up, page down", "by ten"),
    ("home, end, g, G", "to the start, to the end"),
    ("enter", "the conversation of the selected agent"),
    ("/", "filter by text"),
    ("esc", "show everything again; back"),
    ("m", "write to the selected agent"),
    ("s", "stop the selected teammate (asks first)"),
    ("a, d", "show the selected request, to approve or deny it"),
    ("?", "this help; any key closes it"),
    ("q, ctrl-c", "leave; the team goes on"),
    ("", "Looking changes nothing: this view only reads the files of the team."),
];

/// Draws the frame; returns the position of the cursor while text is typed.
pub(crate) fn draw(
    top: &mut Top,
    snapshot: &Snapshot,
    now: WallTime,
    view: &View,
    buffer: &mut Buffer,
) -> Option<Position> {
    let area = buffer.area;
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (width, height) = (area.width, area.height);
        let text = format!("too small: {width}x{height}, needs {}x{}", LEAST.0, LEAST.1);
        line(buffer, area, &Line::raw(text));
        return None;
    }
    let rows = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
    let [head, body, foot] = area.layout(&Layout::vertical(rows));
    line(buffer, head, &header(snapshot, head.width, view));
    if top.mode == Some(Mode::Help) {
        let rows = KEYS.map(|(key, what)| {
            let key = Span::styled(format!("  {key:<22}"), view.style(BOLD));
            Line::from(vec![key, Span::raw(what)])
        });
        fill(buffer, body, rows.into_iter());
    } else {
        for (pane, place) in arrange(top, snapshot, body) {
            let [head, inside] =
                place.layout(&Layout::vertical([Constraint::Length(1), Constraint::Min(0)]));
            let view = View { width: Some(usize::from(inside.width)), ..view.clone() };
            let rows = panes::rows(pane, top, snapshot, now, &view, usize::from(inside.height));
            line(buffer, head, &title(top, pane, &rows.title, head.width, &view));
            fill(buffer, inside, rows.lines.into_iter());
        }
    }
    if let Some(Mode::Review(review)) = &mut top.mode {
        for row in body.rows() {
            buffer.set_stringn(
                row.x,
                row.y,
                " ".repeat(usize::from(row.width)),
                row.width.into(),
                Style::new(),
            );
        }
        let view = View { width: Some(usize::from(body.width)), ..view.clone() };
        fill(buffer, body, panes::review(review, &view, usize::from(body.height)).into_iter());
    }
    draw_footer(top, view, buffer, foot)
}

/// Renders the team in one line: the parts that fit in `width` columns as a whole.
fn header(snapshot: &Snapshot, width: u16, view: &View) -> Line<'static> {
    let alive = snapshot.members.iter().filter(|member| member.alive).count();
    let tokens: u64 = snapshot.members.iter().map(|member| member.usage.tokens()).sum();
    let costs = snapshot.members.iter().filter_map(|member| member.usage.cost);
    let cost = costs.reduce(Money::plus).map(|cost| format!(" · cost {cost}"));
    let mut text = format!("  {alive} of {} alive", snapshot.members.len());
    let messages = format!(" · {} messages", snapshot.messages.len());
    let tokens = format!(" · {} tokens", short(tokens));
    let members: Vec<_> = snapshot.members.iter().collect();
    let walls = walls_in_words(&members).map(|walls| format!(" · walls: {walls}"));
    for part in [messages, tokens].into_iter().chain(cost).chain(walls) {
        if columns("team") + columns(&text) + columns(&part) > usize::from(width) {
            break;
        }
        text.push_str(&part);
    }
    let mut spans =
        vec![Span::styled("team", view.style(BOLD)), Span::styled(text, view.style(DIM))];
    if let Some(trouble) = &snapshot.trouble {
        spans.push(Span::styled(format!("  {}", one_line(trouble, 200)), view.style(BAD)));
    }
    Line::from(spans)
}

fn arrange(top: &Top, snapshot: &Snapshot, body: Rect) -> Vec<(Pane, Rect)> {
    if body.width >= WIDE.0 && body.height + 2 >= WIDE.1 {
        let halves = [Constraint::Percentage(50), Constraint::Percentage(50)];
        let [left, right] = body.layout(&Layout::horizontal(halves).spacing(2));
        let asked = u16::try_from(snapshot.requests.len()).unwrap_or(u16::MAX);
        let quarter = left.height / 4;
        let asked = Constraint::Length(asked.saturating_add(2).clamp(2, quarter));
        let rows = [Constraint::Min(0), Constraint::Length(quarter), asked];
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
    vec![(Pane::Members, members), (top.below.unwrap_or(Pane::Messages), below)]
}

fn title(top: &Top, pane: Pane, text: &str, width: u16, view: &View) -> Line<'static> {
    let has_keys = top.focus == pane;
    let number = pane as usize + 1;
    let mark = if has_keys { '▸' } else { '─' };
    let name = format!("{mark} {number} {} ", one_line(text, usize::from(width)));
    let rule = "─".repeat(usize::from(width).saturating_sub(columns(&name)));
    let style = view.style(if has_keys { BOLD } else { DIM });
    Line::from(vec![Span::styled(name, style), Span::styled(rule, view.style(DIM))])
}

fn draw_footer(top: &Top, view: &View, buffer: &mut Buffer, foot: Rect) -> Option<Position> {
    let width = usize::from(foot.width);
    let shown = match (&top.mode, &top.notice) {
        (Some(Mode::Filter { .. }), _) => {
            return Some(prompt(buffer, foot, "show only: ", &top.filter, view));
        }
        (Some(Mode::Write { to, text }), _) => {
            return Some(prompt(buffer, foot, &format!("to {to}: "), text, view));
        }
        (Some(Mode::Confirm { what, .. }), _) => {
            Line::styled(format!("{what}? y: yes, any other key: no"), view.style(WARN))
        }
        (Some(Mode::Review(_)), Some(Notice::Failed(why) | Notice::Fine(why))) => {
            Line::styled(one_line(why, width), view.style(BAD))
        }
        (Some(Mode::Review(review)), None) => {
            let verb = if review.approve { "approve" } else { "deny" };
            let (from, question) = (&review.asked.from, &review.asked.question);
            let what = visible_line(&question.description);
            let what = format!("{from} {}: {what}", question.tool);
            let v = if review.omitted == Some(0) { "" } else { "v: all of it, " };
            let what = one_line(&what, width.saturating_sub(verb.len() + v.len() + 30));
            Line::styled(format!("{verb} {what}? {v}y: yes, any other: no"), view.style(WARN))
        }
        (None | Some(Mode::Help), Some(Notice::Fine(text))) => {
            Line::styled(one_line(text, width), view.style(BOLD))
        }
        (None | Some(Mode::Help), Some(Notice::Failed(text))) => {
            Line::styled(one_line(text, width), view.style(BAD))
        }
        (None | Some(Mode::Help), None) => {
            let only = (!top.filter.is_empty()).then(|| {
                let filter = format!("only: {}  ", one_line(&top.filter, 20));
                Span::styled(filter, view.style(WARN))
            });
            let keys = footer_keys(top).into_iter().flat_map(|(key, what)| {
                [
                    Span::styled(key, view.style(BOLD)),
                    Span::styled(format!(" {what}  "), view.style(DIM)),
                ]
            });
            only.into_iter().chain(keys).collect()
        }
    };
    line(buffer, foot, &shown);
    None
}

/// Returns the keys that the footer names while no text is typed.
fn footer_keys(top: &Top) -> Vec<(&'static str, &'static str)> {
    if top.mode == Some(Mode::Help) {
        return vec![("any key", "back")];
    }
    let mut keys = vec![("q", "quit"), ("?", "help"), ("tab", "pane")];
    keys.extend(match top.focus {
        Pane::Members => &[("↑↓", "select"), ("enter", "open")][..],
        Pane::Requests => &[("↑↓", "scroll"), ("a", "approve"), ("d", "deny")],
        Pane::Messages | Pane::Conversation | Pane::Tasks => &[("↑↓", "scroll")],
    });
    keys.extend([("m", "message"), ("s", "stop"), ("/", "filter")]);
    if !top.filter.is_empty() {
        keys.push(("esc", "show all"));
    } else if top.focus != Pane::Members {
        keys.push(("esc", "back"));
    }
    keys
}

/// Draws the line being typed, or the end of a long one; returns the position of the cursor.
fn prompt(buffer: &mut Buffer, foot: Rect, label: &str, text: &str, view: &View) -> Position {
    let room = usize::from(foot.width).saturating_sub(columns(label) + 1);
    let mut shown = text.replace(['\n', '\t'], " ");
    while columns(&shown) > room {
        shown.remove(0);
    }
    let end = columns(label) + columns(&shown);
    let spans = vec![Span::styled(label.to_owned(), view.style(BOLD)), Span::raw(shown)];
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
