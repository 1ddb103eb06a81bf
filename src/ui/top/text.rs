//! A text that scrolls: its rendered rows, and the part of them that is shown.

use super::super::view::View;
use super::text_rows::{ConversationForm, conversation_rows};
use crate::view::Snapshot;
use ratatui::text::Line;
use std::collections::VecDeque;

/// The source of the rows: they are rendered again when it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// The name of the text. Another text is shown from its start.
    pub(super) name: String,
    /// The state of the text, for example its width: another one keeps the place, as well as possible.
    pub(super) state: (usize, usize),
}

/// The part of a text that is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scroll {
    /// The first row that is shown.
    pub(super) first: usize,
    /// Whether the end stays shown while the text grows.
    pub(super) follows: bool,
    /// The row of the last match of the search.
    pub(super) found: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Text {
    source: Option<Source>,
    /// The rows, each with the number of the line that it was made from.
    rows: VecDeque<(usize, Line<'static>)>,
    /// The number of the first line of a conversation that is not rendered yet.
    next: usize,
    /// Whether the text grows at its end, and its end is shown first.
    grows: bool,
    pub(super) scroll: Scroll,
}

impl Text {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Line<'static>> {
        self.rows.iter().map(|(_, row)| row)
    }

    /// Returns the rows of which `height` are shown.
    pub(super) fn visible(&self, height: usize) -> Vec<Line<'static>> {
        self.rows().skip(self.scroll.first).take(height).cloned().collect()
    }

    /// Shows the rows that `render` returns, unless the same ones are shown already.
    pub(super) fn show(&mut self, source: Source, render: impl FnOnce() -> Vec<Line<'static>>) {
        if self.source.as_ref() != Some(&source) {
            self.grows = false;
            let rows = render().into_iter().map(|row| (0, row)).collect();
            self.replace(source, rows);
        }
    }

    /// Shows the conversation that the snapshot follows. Only lines that are new are rendered.
    pub(super) fn follow(&mut self, snapshot: &Snapshot, form: ConversationForm, view: &View) {
        let conversation = &snapshot.conversation;
        let dropped = conversation.dropped;
        let state = usize::from(form.is_whole) * 2 + usize::from(form.shows_protocol);
        let source = Source { name: conversation.name.clone(), state: (form.width, state) };
        let all = dropped..dropped + conversation.lines.len();
        let render = |number: usize| {
            let line = conversation.lines.get(number - dropped);
            let rows = line.into_iter().flat_map(|line| conversation_rows(line, form, view));
            rows.map(move |row| (number, row))
        };
        // The numbers begin again when a conversation is followed again.
        if self.source.as_ref() != Some(&source) || self.next > all.end {
            self.grows = true;
            self.replace(source, all.clone().flat_map(render).collect());
        } else {
            let gone = self.rows.iter().take_while(|(number, _)| *number < dropped).count();
            self.rows.drain(..gone);
            self.scroll.first = self.scroll.first.saturating_sub(gone);
            self.scroll.found = self.scroll.found.and_then(|at| at.checked_sub(gone));
            self.rows.extend((self.next.max(dropped)..all.end).flat_map(render));
        }
        self.next = all.end;
    }

    fn replace(&mut self, source: Source, rows: VecDeque<(usize, Line<'static>)>) {
        let before = self.source.replace(source);
        let is_same = before.map(|it| it.name) == self.source.as_ref().map(|it| it.name.clone());
        if !is_same {
            self.scroll = Scroll { follows: self.grows, ..Scroll::default() };
        } else if rows.len() != self.rows.len() {
            self.scroll.found = None;
            self.scroll.first = self.scroll.first * rows.len() / self.rows.len().max(1);
        }
        self.rows = rows;
    }

    /// Limits the place to the rows, of which `height` are shown.
    pub(super) fn fit(&mut self, height: usize) {
        let last = self.len().saturating_sub(height);
        self.scroll.first = if self.scroll.follows { last } else { self.scroll.first.min(last) };
    }

    /// Moves by `rows`, downwards if positive.
    pub(super) fn go(&mut self, rows: isize, height: usize) {
        let last = self.len().saturating_sub(height);
        self.scroll.first = self.scroll.first.saturating_add_signed(rows).min(last);
        self.scroll.follows = self.grows && self.scroll.first == last;
        self.scroll.found = None;
    }

    /// Moves to the row of a match, and shows rows around it.
    pub(super) fn find(&mut self, row: usize, height: usize) {
        if !(self.scroll.first..self.scroll.first + height).contains(&row) {
            self.scroll.first = row.saturating_sub(height / 3);
            self.scroll.follows = false;
            self.fit(height);
        }
        self.scroll.found = Some(row);
    }

    /// Returns the words for the place in a text of which not all rows are shown.
    pub(super) fn place(&self, height: usize) -> Option<String> {
        let (first, all) = (self.scroll.first, self.len());
        (all > height).then(|| format!("{}-{} of {all}", first + 1, (first + height).min(all)))
    }
}
