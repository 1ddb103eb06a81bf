//! The inline viewport: a few rows at the end of the output that are drawn anew in place, while finished text goes
//! above them into the scroll-back of the terminal.
//!
//! All movements are relative to the cursor. So the terminal is never asked for its position, an answer that some
//! terminals do not give and that would come between the typed keys. Pure: it returns the bytes to write.

use super::super::sanitize::{columns, sanitize};
use std::fmt::Write;

/// Begins and ends a piece of output that a terminal shows at once.
const BEGIN: &str = "\x1b[?2026h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?2026l";

/// The rows of a pane and the position of the cursor in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PaneRows {
    /// Each row is styled, and narrower than the terminal.
    pub(super) rows: Vec<String>,
    /// The row and the column of the cursor, from 0.
    pub(super) cursor: (usize, usize),
}

/// The pane as it is on the terminal.
#[derive(Debug, Default)]
pub(super) struct Viewport {
    shown: PaneRows,
}

impl Viewport {
    /// Returns the bytes that print whole rows of text above the pane and draw the pane; empty if nothing changes.
    pub(super) fn update(&mut self, above: &str, pane: PaneRows) -> String {
        if above.is_empty() && pane == self.shown {
            return String::new();
        }
        let mut out = String::from(BEGIN);
        if above.is_empty() && pane.rows.len() == self.shown.rows.len() {
            let mut at = self.shown.cursor.0;
            for (row, (text, before)) in pane.rows.iter().zip(&self.shown.rows).enumerate() {
                if text != before {
                    move_rows(&mut out, at, row);
                    at = row;
                    out.push_str("\r\x1b[2K");
                    out.push_str(text);
                }
            }
            move_rows(&mut out, at, pane.cursor.0);
        } else {
            self.go_to_start(&mut out);
            out.push_str("\x1b[J");
            out.push_str(&above.replace('\n', "\r\n"));
            out.push_str(&pane.rows.join("\r\n"));
            move_rows(&mut out, pane.rows.len().saturating_sub(1), pane.cursor.0);
        }
        move_to_column(&mut out, pane.cursor.1);
        out.push_str(END);
        self.shown = pane;
        out
    }

    /// Returns the bytes that remove the pane; the cursor is then at the begin of its first row.
    pub(super) fn remove(&mut self) -> String {
        let mut out = String::new();
        self.go_to_start(&mut out);
        out.push_str("\x1b[J\x1b[?25h");
        self.shown = PaneRows::default();
        out
    }

    /// Adapts to another width. A terminal that became narrower has wrapped the rows that no longer fit.
    pub(super) fn resize(&mut self, width: usize) {
        let width = width.max(1);
        let wrapped = |length: usize| length.saturating_sub(1) / width;
        let (row, column) = self.shown.cursor;
        let above = self.shown.rows.iter().take(row);
        let more: usize = above.map(|text| wrapped(columns(&sanitize(text)))).sum();
        self.shown.cursor = (row + more + column / width, column % width);
        // A row that no text is equal to: all are drawn anew.
        self.shown.rows.push(String::new());
    }

    fn go_to_start(&self, out: &mut String) {
        move_rows(out, self.shown.cursor.0, 0);
        out.push('\r');
    }
}

fn move_rows(out: &mut String, from: usize, to: usize) {
    // Writing to a string does not fail.
    let _written = match (from.checked_sub(to), to.checked_sub(from)) {
        (Some(up @ 1..), _) => write!(out, "\x1b[{up}A"),
        (_, Some(down @ 1..)) => write!(out, "\x1b[{down}B"),
        _ => Ok(()),
    };
}

fn move_to_column(out: &mut String, column: usize) {
    out.push('\r');
    if column > 0 {
        let _written = write!(out, "\x1b[{column}C");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pane(rows: &[&str], cursor: (usize, usize)) -> PaneRows {
        PaneRows { rows: rows.iter().map(ToString::to_string).collect(), cursor }
    }

    fn screen(parser: &vt100::Parser) -> String {
        parser.screen().contents()
    }

    #[test]
    fn text_goes_above_and_the_pane_stays_last() {
        let mut parser = vt100::Parser::new(6, 20, 0);
        let mut viewport = Viewport::default();
        parser.process(b"$ team lead\r\n");
        let mut show = |above: &str, pane: PaneRows| {
            parser.process(viewport.update(above, pane).as_bytes());
            (screen(&parser), parser.screen().cursor_position())
        };
        let (shown, cursor) = show("", pane(&["> ab", "idle"], (0, 4)));
        assert_eq!((&*shown, cursor), ("$ team lead\n> ab\nidle", (1, 4)));
        let (shown, cursor) = show("one\ntwo\n", pane(&["working", "> abc", "idle"], (1, 5)));
        assert_eq!((&*shown, cursor), ("$ team lead\none\ntwo\nworking\n> abc\nidle", (4, 5)));
        // The screen is full: the text scrolls.
        let (shown, _) = show("three\n", pane(&["> abc", "idle"], (0, 5)));
        assert_eq!(shown, "$ team lead\none\ntwo\nthree\n> abc\nidle");
        let (shown, _) = show("four\nfive\n", pane(&["> abc", "idle"], (0, 5)));
        assert_eq!(shown, "two\nthree\nfour\nfive\n> abc\nidle");
        parser.process(viewport.remove().as_bytes());
        assert_eq!(screen(&parser), "two\nthree\nfour\nfive");
    }

    #[test]
    fn an_unchanged_pane_writes_nothing_and_a_key_only_its_row() {
        let mut viewport = Viewport::default();
        viewport.update("", pane(&["working 1s", "> a", "idle"], (1, 3)));
        assert_eq!(viewport.update("", pane(&["working 1s", "> a", "idle"], (1, 3))), "");
        let key = viewport.update("", pane(&["working 1s", "> ab", "idle"], (1, 4)));
        assert!(
            key.contains("> ab") && !key.contains("working") && !key.contains("idle"),
            "{key:?}"
        );
    }

    #[test]
    fn a_narrower_terminal_has_wrapped_the_pane() {
        let mut viewport = Viewport::default();
        viewport.update("", pane(&["twelve chars", "> ab", "idle"], (1, 4)));
        viewport.resize(6);
        // The first row takes two rows now, so the start is two rows above the cursor.
        assert!(viewport.update("", pane(&["x"], (0, 1))).contains("\x1b[2A\r\x1b[J"));
    }

    proptest! {
        #[test]
        fn any_order_of_updates_shows_the_text_and_then_the_pane(
            updates in proptest::collection::vec(
                (proptest::collection::vec("[a-z]{1,9}", 0..4),
                 proptest::collection::vec("[a-z]{1,9}", 1..4)), 1..12),
        ) {
            let mut parser = vt100::Parser::new(90, 10, 0);
            let mut viewport = Viewport::default();
            let mut text: Vec<String> = Vec::new();
            for (above, rows) in updates {
                let printed = above.iter().fold(String::new(), |text, row| text + row + "\n");
                text.extend(above);
                let cursor = (rows.len() - 1, rows[rows.len() - 1].len());
                let wanted = [text.clone(), rows.clone()].concat().join("\n");
                parser.process(viewport.update(&printed, PaneRows { rows, cursor }).as_bytes());
                prop_assert_eq!(screen(&parser), wanted);
            }
        }
    }
}
