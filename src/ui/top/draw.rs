//! The frame: the layout of the panes, their content, the open text, and the footer.

use super::super::roster::{age, short, walls_in_words};
use super::super::sanitize::{columns, one_line, sanitize};
use super::super::style::{BAD, BOLD, DIM, WARN};
use super::super::view::View;
use super::answer::SCOPE_KEYS;
use super::bindings::{BINDINGS, Binding, Command, Front};
use super::items::waiting;
use super::layout::{LEAST, PANES, Place};
use super::{Mode, Notice, Opened, Top, panes};
use crate::view::{MemberView, Snapshot};
use crate::wire::WallTime;
use crate::wire::money::Money;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use std::time::Duration;

/// The longest time until a question counts as denied that is shown.
const WORTH_SAYING: Duration = Duration::from_secs(24 * 60 * 60);

/// Draws the frame; returns the position of the cursor while text is typed.
pub(crate) fn draw(
    top: &mut Top,
    snapshot: &Snapshot,
    now: WallTime,
    buffer: &mut Buffer,
) -> Option<Position> {
    let area = buffer.area;
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("Needs {}x{}", LEAST.0, LEAST.1);
        line(buffer, area, &Line::raw(text));
        return None;
    }
    top.resize(area, snapshot);
    let frame = top.frame(snapshot);
    line(buffer, frame.header, &header(snapshot, frame.header.width, &top.view));
    line(buffer, frame.tabs, &tabs(top, snapshot, frame.tabs.width));
    for (pane, place) in &frame.panes {
        let (width, height) = (place.inside.width.into(), place.inside.height.into());
        let mut rows = panes::rows(*pane, top, snapshot, now, width, height);
        if *pane == top.focus {
            rows.lines = highlighted(top, rows.lines);
        }
        let text = format!("{} {}", pane.number(), rows.title);
        title(buffer, *place, &text, *pane == top.focus, top);
        fill(buffer, place.inside, rows.lines);
    }
    if let Some(place) = frame.text {
        draw_text(top, snapshot, now, place, buffer);
    }
    draw_footer(top, snapshot, buffer, frame.footer)
}

/// Draws the open text. All rows of a question that are drawn count as shown.
fn draw_text(top: &mut Top, snapshot: &Snapshot, now: WallTime, place: Place, buffer: &mut Buffer) {
    let (width, height): (usize, usize) = (place.inside.width.into(), place.inside.height.into());
    let text = match top.opened {
        None | Some(Opened::Conversation) => &top.conversation,
        Some(_) => &top.text,
    };
    let (rows, all, first) = (text.visible(height), text.len(), text.scroll.first);
    let mut rows_shown = text.place(height).map(|place| format!(", {place}")).unwrap_or_default();
    let protocol = panes::protocol(top);
    let name = match &mut top.opened {
        None => String::new(),
        Some(Opened::Help(_)) => "Keys".into(),
        Some(Opened::Conversation) => {
            let shown = &snapshot.conversation;
            if first == 0 && shown.starts_late {
                rows_shown = format!(", before: team transcript {}", shown.name);
            }
            format!("Conversation of {} ({protocol})", shown.name)
        }
        Some(Opened::Message((to, _))) => format!("Message to {to}"),
        Some(Opened::Task((_, id))) => format!("Task {id}"),
        Some(Opened::Question(open)) => {
            open.draw(first..first + rows.len(), all, width);
            let left = open.asked.deadline.since(now);
            let left = (left <= WORTH_SAYING).then(|| format!(", {} left", age(left)));
            let state = if open.still_waits(snapshot) {
                left.unwrap_or_default()
            } else {
                ", no longer open".into()
            };
            format!("Question of {}{state}", open.asked.from)
        }
    };
    title(buffer, place, &format!("{name}{rows_shown}"), true, top);
    fill(buffer, place.inside, highlighted(top, rows));
}

fn highlighted(top: &Top, rows: Vec<Line<'static>>) -> Vec<Line<'static>> {
    let style = top.view.match_style();
    rows.into_iter().map(|row| top.pattern.highlight(row, style)).collect()
}

/// Renders the team in one line: the waiting questions, then the parts that fit in `width` columns as a whole.
fn header(snapshot: &Snapshot, width: u16, view: &View) -> Line<'static> {
    let mut spans = vec![Span::styled("team", view.style(BOLD))];
    let asked = match waiting(snapshot).count() {
        0 => String::new(),
        count if width < 24 => format!("  {count} asked"),
        1 => "  1 open question".into(),
        count => format!("  {count} open questions"),
    };
    let alive = snapshot.members.iter().filter(|member| member.alive).count();
    let tokens: u64 = snapshot.members.iter().map(|member| member.usage.tokens()).sum();
    let costs = snapshot.members.iter().filter_map(|member| member.usage.cost);
    let cost = costs.reduce(Money::plus).map(|cost| format!(" · cost ~${cost}"));
    let messages = snapshot.messages.iter().filter(|message| !message.is_protocol).count();
    let members: Vec<&MemberView> = snapshot.members.iter().collect();
    let walls = walls_in_words(&members).map(|walls| format!(" · walls: {walls}"));
    let parts = [
        format!("  {alive} of {} alive", snapshot.members.len()),
        format!(" · {messages} messages"),
        format!(" · {} tokens", short(tokens)),
    ];
    let mut text = String::new();
    for part in parts.into_iter().chain(cost).chain(walls) {
        if columns("team") + columns(&asked) + columns(&text) + columns(&part) > width.into() {
            break;
        }
        text.push_str(&part);
    }
    spans.extend([Span::styled(asked, view.style(WARN)), Span::styled(text, view.style(DIM))]);
    if let Some(trouble) = &snapshot.trouble {
        spans.push(Span::styled(format!("  {}", one_line(trouble, 200)), view.style(BAD)));
    }
    Line::from(spans)
}

/// Renders the row that names all panes with their keys, in the longest form that fits in `width` columns.
fn tabs(top: &Top, snapshot: &Snapshot, width: u16) -> Line<'static> {
    let asked = waiting(snapshot).count();
    let names = |form: usize| {
        PANES.map(|pane| {
            let name = pane.names().get(form).copied().unwrap_or_default();
            let gap = if form < 2 { " " } else { "" };
            let count = if form < 2 && asked > 0 && pane == super::Pane::Questions {
                format!(" ({asked})")
            } else {
                String::new()
            };
            let mark = if pane == top.focus { "▸" } else { " " };
            (pane, format!("{mark}{}{gap}{name}{count}{gap}", pane.number()))
        })
    };
    let fits = |form: &usize| {
        names(*form).iter().map(|(_, name)| columns(name)).sum::<usize>() <= width.into()
    };
    let form = (0..3).find(fits).unwrap_or(2);
    let spans = names(form).map(|(pane, name)| {
        let style = if pane == top.focus {
            BOLD
        } else if pane == super::Pane::Questions && asked > 0 {
            WARN
        } else {
            DIM
        };
        Span::styled(name, top.view.style(style))
    });
    Line::from(spans.to_vec())
}

/// Draws the title of a pane or of a text, with the text that is searched for if it has the keys.
fn title(buffer: &mut Buffer, place: Place, text: &str, has_keys: bool, top: &Top) {
    let (view, width) = (&top.view, usize::from(place.title.width));
    let mark = if has_keys { '▸' } else { '─' };
    let pattern = top.pattern.text();
    let pattern = if has_keys && !pattern.is_empty() {
        format!("/{} ", one_line(pattern, 20))
    } else {
        String::new()
    };
    let room = width.saturating_sub(columns(&pattern) + 3);
    let name = format!("{mark} {} ", one_line(text, room));
    let rule = "─".repeat(width.saturating_sub(columns(&name) + columns(&pattern)));
    let style = view.style(if has_keys { BOLD } else { DIM });
    let spans = vec![
        Span::styled(name, style),
        Span::styled(pattern, view.style(WARN)),
        Span::styled(rule, view.style(DIM)),
    ];
    line(buffer, place.title, &Line::from(spans));
}

fn draw_footer(
    top: &Top,
    snapshot: &Snapshot,
    buffer: &mut Buffer,
    foot: Rect,
) -> Option<Position> {
    let (view, width) = (&top.view, usize::from(foot.width));
    let notice = top.notice.as_ref().map(|notice| match notice {
        Notice::Fine(text) => (text, BOLD),
        Notice::Failed(text) => (text, BAD),
    });
    match &top.mode {
        Some(Mode::Search { .. }) => {
            let note = notice.map(|(text, _)| text.as_str()).unwrap_or_default();
            return Some(prompt(buffer, foot, "/", top.pattern.text(), note, view));
        }
        Some(Mode::Write { to, text }) => {
            let label = format!("To {}: ", one_line(to, 32));
            return Some(prompt(buffer, foot, &label, text, "", view));
        }
        Some(Mode::Reason { text }) => {
            return Some(prompt(buffer, foot, "No, because: ", text, "(enter: no)", view));
        }
        Some(Mode::Scope) => {
            let keys = SCOPE_KEYS.map(|(key, scope)| format!("{key} {}", scope.word()));
            let text = format!("Always, for: {}; any other key: no answer", keys.join(", "));
            line(buffer, foot, &Line::styled(text, view.style(WARN)));
        }
        Some(Mode::Confirm { what, .. }) => {
            let text = format!("{what}? y: yes, any other key: no");
            line(buffer, foot, &Line::styled(text, view.style(WARN)));
        }
        None => {
            let shown = match notice {
                Some((text, style)) => Line::styled(one_line(text, width), view.style(style)),
                None => keys_in_front(top, snapshot, width),
            };
            line(buffer, foot, &shown);
        }
    }
    None
}

/// Renders the keys that work in front, as many as fit; the one for all keys is always named.
fn keys_in_front(top: &Top, snapshot: &Snapshot, width: usize) -> Line<'static> {
    let front = top.front();
    let is_searching = !top.pattern.text().is_empty();
    let waits = waiting(snapshot).nth(usize::from(front == Front::Question)).is_some();
    let is_help = matches!(top.opened, Some(Opened::Help(_)));
    let can_go_back = is_searching || top.opened.is_some() || top.is_zoomed;
    // The row of tabs names the panes.
    let has_tabs = !top.frame(snapshot).tabs.is_empty();
    let is_useful = |row: &&Binding| {
        let useless = [
            (Command::NextMatch, !is_searching),
            (Command::PreviousMatch, !is_searching),
            (Command::GoTo, has_tabs),
            (Command::NextQuestion, !waits),
            (Command::Back, !can_go_back),
            (Command::Write, is_help),
            (Command::Stop, is_help),
        ];
        !useless.contains(&(row.command, true))
    };
    let named = BINDINGS.iter().filter(|row| !row.word.is_empty() && row.scope.includes(front));
    let (last, mut rows): (Vec<&Binding>, Vec<&Binding>) =
        named.filter(is_useful).partition(|row| row.command == Command::Help);
    let room = |rows: &[&Binding]| -> usize {
        rows.iter().map(|row| columns(key_of(row)) + columns(row.word) + 3).sum()
    };
    while room(&rows) + room(&last) > width + 2 && rows.pop().is_some() {}
    let view = &top.view;
    let spans = rows.into_iter().chain(last).flat_map(|row| {
        [
            Span::styled(key_of(row), view.style(BOLD)),
            Span::styled(format!(" {}  ", row.word), view.style(DIM)),
        ]
    });
    spans.collect()
}

fn key_of(row: &Binding) -> &'static str {
    row.names.split(", ").next().unwrap_or_default()
}

/// Draws the line being typed, or the end of a long one, and a note after it if there is room; returns the position of
/// the cursor.
fn prompt(
    buffer: &mut Buffer,
    foot: Rect,
    label: &str,
    text: &str,
    note: &str,
    view: &View,
) -> Position {
    let room = usize::from(foot.width).saturating_sub(columns(label) + 1);
    let mut shown = sanitize(text).replace(['\n', '\t'], " ");
    while columns(&shown) > room {
        shown.remove(0);
    }
    let end = columns(label) + columns(&shown);
    let spans = vec![
        Span::styled(label.to_owned(), view.style(BOLD)),
        Span::raw(shown),
        Span::styled(format!("  {note}"), view.style(DIM)),
    ];
    line(buffer, foot, &Line::from(spans));
    Position::new(foot.x.saturating_add(u16::try_from(end).unwrap_or(u16::MAX)), foot.y)
}

fn line(buffer: &mut Buffer, place: Rect, text: &Line<'_>) {
    if !place.is_empty() {
        buffer.set_line(place.x, place.y, text, place.width);
    }
}

fn fill(buffer: &mut Buffer, place: Rect, rows: Vec<Line<'static>>) {
    for (row, text) in place.rows().zip(rows) {
        line(buffer, row, &text);
        buffer.set_style(row, text.style);
    }
}
