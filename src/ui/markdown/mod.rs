//! Markdown as rows of the terminal, also while it arrives.
//!
//! The text of a model is data: escape sequences are removed before it is parsed and again from what the parser
//! decodes (`&#27;`). Raw HTML is shown as text, and an address is shown, not hidden behind its link. With a plain
//! palette the rows have neither escape sequences nor lines drawn with characters, which a screen reader spells out.

mod blocks;
mod code;
mod draw;
mod table;

use super::sanitize::sanitize;
use super::style::Palette;
use blocks::{Piece, Splitter};
use code::Lexer;
use draw::Place;

/// The maximum length of the text that a preview shows, in bytes.
const PREVIEW_BYTES: usize = 16 * 1024;

/// Renders a whole text. Each row ends with a line feed, and is at most `width` columns wide (from 4 on).
pub(crate) fn render(text: &str, palette: Palette, width: Option<usize>) -> String {
    let mut stream = MarkdownStream::new(palette);
    let rows = stream.push(text, width);
    rows + &stream.finish(width)
}

/// Markdown that arrives in pieces. The rows of all calls of [`MarkdownStream::push`] and of the last one,
/// [`MarkdownStream::finish`], are together those of [`render`], if the width does not change.
#[derive(Debug, Clone, Default)]
pub(crate) struct MarkdownStream {
    palette: Palette,
    /// The line that is not complete, as it came.
    line: String,
    splitter: Splitter,
    /// The state of fenced code at the top level.
    lexer: Lexer,
    has_text: bool,
    /// The number of bytes that were parsed so far.
    #[cfg(test)]
    parsed: usize,
}

impl MarkdownStream {
    pub(crate) fn new(palette: Palette) -> Self {
        Self { palette, ..Self::default() }
    }

    /// Takes a piece of the text. Returns the rows that no later piece can change.
    pub(crate) fn push(&mut self, piece: &str, width: Option<usize>) -> String {
        self.has_text |= !piece.is_empty();
        let mut rows = String::new();
        let mut rest = piece;
        while let Some((line, after)) = rest.split_once('\n') {
            self.line.push_str(line);
            rows.push_str(&self.end_line(width));
            rest = after;
        }
        self.line.push_str(rest);
        rows
    }

    /// Renders the text that [`MarkdownStream::push`] has not returned yet, as if it ended here. Of a very long text
    /// only the end is shown.
    pub(crate) fn preview(&self, width: Option<usize>) -> String {
        let open = self.splitter.open_text();
        if open.len() + self.line.len() <= PREVIEW_BYTES {
            return self.clone().finish(width);
        }
        let text = if self.line.len() < PREVIEW_BYTES { open } else { &self.line };
        let from = text.ceil_char_boundary(text.len().saturating_sub(PREVIEW_BYTES));
        let end = text.get(from..).unwrap_or_default();
        render(end, self.palette, width)
    }

    /// Ends the text. Returns its remaining rows; then another text can begin.
    pub(crate) fn finish(&mut self, width: Option<usize>) -> String {
        let mut rows = if self.line.is_empty() { String::new() } else { self.end_line(width) };
        let mut pieces = Vec::new();
        self.splitter.finish(&mut pieces);
        rows.extend(pieces.into_iter().map(|piece| self.draw(piece, width)));
        self.discard();
        rows
    }

    /// Drops the text that has not been returned, such as that of a failed attempt; then another text can begin.
    pub(crate) fn discard(&mut self) {
        *self = Self::new(self.palette);
    }

    /// Whether no text has come since the last one ended or was dropped.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_text
    }

    fn end_line(&mut self, width: Option<usize>) -> String {
        let line = std::mem::take(&mut self.line);
        // No escape sequence goes on behind the end of a line, so lines can be sanitized one by one.
        let line = sanitize(line.strip_suffix('\r').unwrap_or(&line)).into_owned();
        let mut pieces = Vec::new();
        for line in line.split('\n') {
            self.splitter.line(line, &mut pieces);
        }
        pieces.into_iter().map(|piece| self.draw(piece, width)).collect()
    }

    fn draw(&mut self, piece: Piece, width: Option<usize>) -> String {
        let gap = |has_gap: bool| if has_gap { "\n" } else { "" };
        match piece {
            Piece::Block { text, number, indent, has_gap } => {
                #[cfg(test)]
                {
                    self.parsed += text.len();
                }
                let rows = draw::block(&text, Place { number, indent }, self.palette, width);
                format!("{}{rows}", gap(has_gap))
            }
            Piece::CodeStart { info, has_gap } => {
                self.lexer = Lexer::new(&info);
                let label = draw::code_label(&info, self.palette, width);
                format!("{}{label}", gap(has_gap))
            }
            Piece::CodeLine(line) => draw::code_line(&mut self.lexer, &line, self.palette, width),
        }
    }
}

#[cfg(test)]
mod tests;
