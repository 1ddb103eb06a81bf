//! The search in the part of the view that is in front: typing the text, and moving to its matches.

use super::items::items;
use super::keys::Key;
use super::search::{self, Pattern};
use super::text::Scroll;
use super::{Before, Mode, Notice, Top};
use crate::view::Snapshot;

impl Top {
    pub(super) fn begin_search(&mut self, snapshot: &Snapshot) {
        let rows = items(self.focus, snapshot, self.shows_protocol);
        let scroll = self.scrolled_text().scroll.clone();
        let row = if self.is_list() {
            self.at(self.focus, &rows)
        } else {
            scroll.found.unwrap_or(scroll.first)
        };
        let pattern = std::mem::take(&mut self.pattern);
        self.mode = Some(Mode::Search { before: Box::new(Before { pattern, row, scroll }) });
    }

    pub(super) fn type_pattern(&mut self, key: Key, before: Box<Before>, snapshot: &Snapshot) {
        if key == Key::Enter {
            if self.pattern.text().is_empty() {
                self.pattern = before.pattern;
                self.jump(true, snapshot);
            } else {
                self.jump_from(before.row, snapshot);
            }
            return;
        }
        if self.is_list() {
            let rows = items(self.focus, snapshot, self.shows_protocol);
            self.choose(self.focus, &rows, before.row);
        } else {
            self.scrolled_text().scroll = before.scroll.clone();
        }
        if key == Key::Esc {
            self.pattern = before.pattern;
            return;
        }
        let mut text = self.pattern.text().to_owned();
        key.edit(&mut text);
        self.pattern = Pattern::of(&text);
        if !text.is_empty() {
            self.jump_from(before.row, snapshot);
        }
        self.mode = Some(Mode::Search { before });
    }

    /// Returns the rows in front that match.
    fn matches(&mut self, snapshot: &Snapshot) -> Vec<usize> {
        let pattern = self.pattern.clone();
        if self.is_list() {
            let rows = items(self.focus, snapshot, self.shows_protocol).into_iter().enumerate();
            return rows.filter(|(_, row)| pattern.is_in(&row.words())).map(|(at, _)| at).collect();
        }
        let is_match = |row: &ratatui::text::Line<'_>| {
            pattern.is_in(&row.spans.iter().map(|span| &*span.content).collect::<String>())
        };
        let rows = self.scrolled_text().rows().enumerate();
        rows.filter(|(_, row)| is_match(row)).map(|(at, _)| at).collect()
    }

    /// Goes to the first match at or after a row.
    pub(super) fn jump_from(&mut self, row: usize, snapshot: &Snapshot) {
        let found = self.matches(snapshot);
        let next = found.iter().position(|at| *at >= row).or(found.first().map(|_| 0));
        self.go_to_match(&found, next, snapshot);
    }

    /// Goes to the next match, or to the previous one.
    pub(super) fn jump(&mut self, is_forward: bool, snapshot: &Snapshot) {
        if self.pattern.text().is_empty() {
            self.fail("No search yet: type / and a text");
            return;
        }
        let found = self.matches(snapshot);
        let next = if self.is_list() {
            let rows = items(self.focus, snapshot, self.shows_protocol);
            search::next(&found, self.at(self.focus, &rows), is_forward)
        } else {
            match self.scrolled_text().scroll.clone() {
                Scroll { found: Some(at), .. } => search::next(&found, at, is_forward),
                Scroll { first, .. } if is_forward => {
                    found.iter().position(|at| *at >= first).or(found.first().map(|_| 0))
                }
                Scroll { first, .. } => search::next(&found, first, false),
            }
        };
        self.go_to_match(&found, next, snapshot);
    }

    fn go_to_match(&mut self, found: &[usize], next: Option<usize>, snapshot: &Snapshot) {
        let Some((next, row)) = next.and_then(|next| Some((next, *found.get(next)?))) else {
            self.fail("No match");
            return;
        };
        self.notify(Notice::Fine(format!("Match {} of {}", next + 1, found.len())));
        if self.is_list() {
            let rows = items(self.focus, snapshot, self.shows_protocol);
            self.choose(self.focus, &rows, row);
        } else {
            let height = self.height(snapshot);
            self.scrolled_text().find(row, height);
        }
    }
}
