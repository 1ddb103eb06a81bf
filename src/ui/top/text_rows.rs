//! The rows of the texts that a person opens: a message, a conversation, a task, a question, and the help.

use super::super::messages::{self, NAME_WIDTH};
use super::super::sanitize::{one_line, wrap};
use super::super::style::{BOLD, DIM, Palette, WARN};
use super::super::tables::{TaskRow, task};
use super::super::transcript;
use super::super::view::View;
use super::bindings::{BINDINGS, SCOPES};
use crate::view::change::PendingQuestion;
use crate::view::requests::content;
use crate::view::{MessageProgress, Snapshot, Stage};
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::task::{Task, TaskId};
use crate::wire::transcript::{Entry, Line as TranscriptLine};
use ratatui::text::{Line, Span};
use serde_json::{Map, Value};

type Rows = Vec<Line<'static>>;

/// Returns a view without colours that is `width` columns wide.
fn plain(view: &View, width: usize) -> View {
    View { palette: Palette::plain(), width: Some(width), ..view.clone() }
}

/// The width of the names of the keys in the help, in columns.
const KEYS_WIDTH: usize = 26;

/// The smallest width in which the help of a key is beside its names.
const BESIDE: usize = 78;

pub(super) fn help_rows(width: usize, view: &View) -> Rows {
    let bold = |text: String| Span::styled(text, view.style(BOLD));
    let mut rows = Vec::new();
    for scope in SCOPES {
        rows.push(Line::from(bold(scope.heading().into())));
        for row in BINDINGS.iter().filter(|row| row.scope == scope) {
            if width >= BESIDE {
                let keys = bold(format!("  {:<KEYS_WIDTH$}", row.names));
                rows.push(Line::from(vec![keys, Span::raw(row.help)]));
            } else {
                let wrapped = |text, indent: &str| plain(view, width).block(text, indent, None);
                rows.extend(wrapped(row.names, "  ").into_iter().map(bold).map(Line::from));
                rows.extend(wrapped(row.help, "    ").into_iter().map(Line::raw));
            }
        }
        rows.push(Line::default());
    }
    let note = "This view is read-only until you write, answer or stop: it reads the team's files.";
    rows.extend(wrap(note, Some(width)).into_iter().map(Line::raw));
    rows
}

/// The parts of a conversation that are shown, and their width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConversationForm {
    /// Whether long results are shown in full.
    pub(super) is_whole: bool,
    pub(super) shows_protocol: bool,
    pub(super) width: usize,
}

/// Renders one line of a conversation.
pub(super) fn conversation_rows(
    line: &TranscriptLine,
    form: ConversationForm,
    view: &View,
) -> Rows {
    let plain = plain(view, form.width);
    let is_hidden = !form.shows_protocol
        && matches!(&line.entry, Entry::Mail { message, .. } if is_protocol(message));
    let text = match form.is_whole {
        _ if is_hidden => return Vec::new(),
        true => whole_entry(line, &plain),
        false => transcript::line(line, &plain),
    };
    text.lines().map(|row| entry(row, view)).collect()
}

/// Renders one line of a conversation with all of its results and the arguments of its calls.
fn whole_entry(line: &TranscriptLine, view: &View) -> String {
    let rows = if let Entry::ToolResult { content, .. } = &line.entry {
        view.block(content, "    ", None)
    } else if let Entry::Assistant { blocks, .. } = &line.entry {
        // The head is rendered without blocks, and each block without the head.
        let head = reply_rows(line, Vec::new(), view);
        let rows = blocks.iter().flat_map(|block| {
            if let Block::ToolUse { name, input, .. } = block {
                call(name, input, view)
            } else {
                reply_rows(line, vec![block.clone()], view).split_off(head.len())
            }
        });
        let rows = rows.collect();
        [head, rows].concat()
    } else {
        return transcript::line(line, view);
    };
    rows.into_iter().map(|row| row + "\n").collect()
}

/// Renders a reply of a model with other blocks than its own.
fn reply_rows(line: &TranscriptLine, blocks: Vec<Block>, view: &View) -> Vec<String> {
    let mut reply = line.clone();
    if let Entry::Assistant { blocks: all, .. } = &mut reply.entry {
        *all = blocks;
    }
    transcript::line(&reply, view).lines().map(str::to_owned).collect()
}

/// Renders a call with one argument after the other; texts of several lines are on rows of their own.
fn call(name: &str, input: &Value, view: &View) -> Vec<String> {
    let mut rows = view.block(&format!("⏺ {name}"), "  ", None);
    for (argument, value) in input.as_object().into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if text.contains('\n') {
            rows.extend(view.block(&format!("{argument}:"), "    ", None));
            rows.extend(view.block(&text, "      ", None));
        } else {
            rows.extend(view.block(&format!("{argument}: {text}"), "    ", None));
        }
    }
    rows
}

fn is_protocol(message: &Map<String, Value>) -> bool {
    Message::read(message).is_ok_and(|message| message.body.is_protocol())
}

fn entry(row: &str, view: &View) -> Line<'static> {
    let row = row.to_owned();
    if row.starts_with("    ") {
        Line::styled(row, view.style(DIM))
    } else if row.starts_with(' ') || row.is_empty() {
        Line::raw(row)
    } else {
        Line::styled(row, view.style(BOLD))
    }
}

/// Renders a message: its way, then all of its text, or the beginning if no file has all of it.
pub(super) fn message_rows(
    message: &MessageProgress,
    snapshot: &Snapshot,
    width: usize,
    view: &View,
) -> Rows {
    let name = |name: &str| one_line(name, NAME_WIDTH);
    let whole = whole(message, snapshot);
    let stage = match message.stage {
        Stage::Sent => "sent",
        Stage::Appended => "unread",
        Stage::Claimed => "being delivered",
        Stage::Acknowledged => "delivered",
        Stage::Answered => "delivered, and the model has replied",
    };
    let way = format!("{} → {}", name(&message.from), name(&message.to));
    let time = view.clock(message.timestamp);
    let about = format!("{time}, {}, {stage}", name(&message.kind));
    let id = format!("id {}", message.id);
    let mut rows = vec![
        Line::styled(way, view.style(BOLD)),
        Line::styled(one_line(&about, width), view.style(DIM)),
        Line::styled(one_line(&id, width), view.style(DIM)),
        Line::default(),
    ];
    let text = whole.unwrap_or_else(|| message.content.clone());
    let text = plain(view, width).block(&text, "", None);
    rows.extend(text.into_iter().map(Line::raw));
    if message.may_be_cut() && is_lost(message, snapshot) {
        rows.push(Line::styled("(The rest is no longer stored.)", view.style(WARN)));
    }
    rows
}

/// Returns the text of an opened message, once it was read from the files.
fn whole(message: &MessageProgress, snapshot: &Snapshot) -> Option<String> {
    let opened = snapshot.opened.as_ref();
    let opened = opened.filter(|it| it.to == message.to && it.id == message.id)?;
    opened.message.as_ref().map(messages::in_words)
}

/// Whether the files were searched for the message, and none has it.
fn is_lost(message: &MessageProgress, snapshot: &Snapshot) -> bool {
    let opened = snapshot.opened.as_ref();
    opened.is_some_and(|it| it.id == message.id && it.to == message.to && it.message.is_none())
}

pub(super) fn task_rows(row: &Task, waits_for: &[TaskId], width: usize, view: &View) -> Rows {
    let row = TaskRow { task: row, waits_for: waits_for.to_vec() };
    let text = task(&row, &plain(view, width));
    // A long title or note is on one row there.
    let rows = text.lines().flat_map(|line| wrap(line, Some(width)));
    let mut rows: Rows = rows.map(Line::raw).collect();
    if let Some(title) = rows.first_mut() {
        title.style = view.style(BOLD);
    }
    rows
}

/// Renders all that a question asks for.
pub(super) fn question_rows(asked: &PendingQuestion, width: usize, view: &View) -> Rows {
    let (from, tool) =
        (one_line(&asked.from, NAME_WIDTH), one_line(&asked.question.tool, NAME_WIDTH));
    let head = wrap(&format!("{from} asks for {tool}:"), Some(width));
    let head = head.into_iter().map(|row| Line::styled(row, view.style(BOLD)));
    let room = Some(width.saturating_sub(2));
    let rows = content(&asked.question).into_iter().flat_map(|line| wrap(line.trim_end(), room));
    head.chain(rows.map(|row| Line::raw(format!("  {row}")))).collect()
}
