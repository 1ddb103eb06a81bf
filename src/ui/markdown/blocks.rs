//! The split of markdown into pieces that can be drawn one by one, as it arrives line by line.
//!
//! A piece ends where no later line can change it: a block at the top level, an item of a list there, a line of
//! fenced code. Its drawing needs no other piece, so nothing is parsed twice.

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// The markdown of a whole block or of one item of a list.
    Block {
        text: String,
        /// The number of an item of a numbered list.
        number: Option<u64>,
        /// The blanks before an item that stands below another one without being nested in it.
        indent: usize,
        has_gap: bool,
    },
    /// Fenced code begins; `info` is the text after the fence.
    CodeStart {
        info: String,
        has_gap: bool,
    },
    CodeLine(String),
}

/// The block to which the next line may belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Open {
    #[default]
    None,
    Paragraph,
    Quote,
    IndentedCode,
    Code(Fence),
    Item(Marker),
}

/// The opening line of fenced code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fence {
    mark: char,
    length: usize,
    indent: usize,
}

/// The mark of an item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marker {
    /// The bullet, or the character after the number.
    mark: char,
    number: Option<u64>,
    /// The column at which it stands.
    indent: usize,
    /// The column at which it is shown: the first of a list has none.
    shown_at: usize,
    /// The column at which the content begins.
    content: usize,
    is_empty: bool,
}

/// The state between two lines.
#[derive(Debug, Clone, Default)]
pub(super) struct Splitter {
    open: Open,
    /// The lines of the open block.
    text: String,
    /// The blank lines after them, which may belong to the open item.
    blanks: usize,
    /// Whether a blank line precedes the open block.
    has_gap: bool,
    has_pieces: bool,
    /// The list item before the open block, if nothing else is between.
    last_item: Option<Marker>,
}

impl Splitter {
    /// Returns the lines of the block that is not complete.
    pub(super) fn open_text(&self) -> &str {
        &self.text
    }

    /// Takes a line without its end, and adds the pieces that are complete now.
    pub(super) fn line(&mut self, line: &str, pieces: &mut Vec<Piece>) {
        if let Open::Code(fence) = self.open {
            if fence.is_closed_by(line) {
                self.open = Open::None;
            } else {
                pieces.push(Piece::CodeLine(without_indent(line, fence.indent).to_owned()));
            }
            return;
        }
        if line.trim().is_empty() {
            self.blank(pieces);
        } else if self.belongs(line) {
            self.text.extend(std::iter::repeat_n('\n', self.blanks + 1));
            self.blanks = 0;
            self.text.push_str(line);
            if self.open == Open::Paragraph && is_underline(line) {
                self.end(pieces);
            }
        } else {
            self.end(pieces);
            self.begin(line, pieces);
        }
    }

    /// Ends the text.
    pub(super) fn finish(&mut self, pieces: &mut Vec<Piece>) {
        self.end(pieces);
        *self = Self::default();
    }

    fn blank(&mut self, pieces: &mut Vec<Piece>) {
        if let Open::Item(_) = self.open {
            self.blanks += 1;
        } else {
            self.end(pieces);
            self.has_gap = self.has_pieces;
        }
    }

    /// Whether a line continues the open block.
    fn belongs(&self, line: &str) -> bool {
        match self.open {
            Open::None | Open::Code(_) => false,
            Open::Paragraph => is_underline(line) || !interrupts(line),
            Open::Quote => is_quote(line) || !interrupts(line),
            Open::IndentedCode => indent_of(line) >= 4,
            Open::Item(item) => {
                let starts = starts_block(line) || Marker::of(line).is_some();
                indent_of(line) >= item.content || (self.blanks == 0 && !starts)
            }
        }
    }

    fn begin(&mut self, line: &str, pieces: &mut Vec<Piece>) {
        if let Some((fence, info)) = Fence::of(line) {
            let has_gap = std::mem::take(&mut self.has_gap);
            pieces.push(Piece::CodeStart { info: info.to_owned(), has_gap });
            (self.open, self.has_pieces, self.last_item) = (Open::Code(fence), true, None);
            return;
        }
        line.clone_into(&mut self.text);
        let is_whole = is_heading(line) || is_rule(line);
        self.open = match Marker::of(line) {
            _ if is_whole => Open::Paragraph,
            _ if indent_of(line) >= 4 => Open::IndentedCode,
            _ if is_quote(line) => Open::Quote,
            Some(marker) => Open::Item(self.placed(marker)),
            None => Open::Paragraph,
        };
        if is_whole {
            self.end(pieces);
        }
    }

    /// Returns the marker with the number and the column that are shown: a repeated number counts on.
    fn placed(&self, marker: Marker) -> Marker {
        let Some(last) = self.last_item else { return marker };
        let before = last.number.filter(|_| last.mark == marker.mark);
        let number = match before {
            Some(before) if marker.number <= Some(before) => Some(before.saturating_add(1)),
            Some(_) | None => marker.number,
        };
        let shown_at = (last.shown_at + marker.indent).saturating_sub(last.indent);
        Marker { number, shown_at, ..marker }
    }

    fn end(&mut self, pieces: &mut Vec<Piece>) {
        let was_blank = std::mem::take(&mut self.blanks) > 0;
        let open = std::mem::take(&mut self.open);
        if matches!(open, Open::None | Open::Code(_)) {
            return;
        }
        self.last_item = if let Open::Item(marker) = open { Some(marker) } else { None };
        let number = self.last_item.and_then(|item| item.number);
        let indent = self.last_item.map_or(0, |item| item.shown_at);
        let text = std::mem::take(&mut self.text);
        pieces.push(Piece::Block { text, number, indent, has_gap: self.has_gap });
        self.has_pieces = true;
        self.has_gap = was_blank;
    }
}

impl Fence {
    /// Reads an opening line; returns also the text after the fence.
    fn of(line: &str) -> Option<(Self, &str)> {
        let indent = indent_of(line);
        let text = line.trim_start();
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~') && indent < 4)?;
        let info = text.trim_start_matches(mark);
        let length = text.len() - info.len();
        let is_fence = length >= 3 && (mark == '~' || !info.contains('`'));
        is_fence.then_some((Self { mark, length, indent }, info.trim()))
    }

    fn is_closed_by(self, line: &str) -> bool {
        let text = line.trim();
        let is_mark = text.chars().all(|c| c == self.mark);
        indent_of(line) < 4 && is_mark && text.len() >= self.length
    }
}

impl Marker {
    /// Reads the mark at the beginning of a line.
    fn of(line: &str) -> Option<Self> {
        let indent = indent_of(line);
        if indent >= 4 || is_rule(line) {
            return None;
        }
        let text = line.trim_start();
        let digits = text.chars().take_while(char::is_ascii_digit).count();
        let (number, after) = text.split_at(digits);
        let mark = after.chars().next()?;
        let is_mark = match digits {
            0 => matches!(mark, '-' | '*' | '+'),
            1..=9 => matches!(mark, '.' | ')'),
            _ => false,
        };
        let rest = after.get(1..).filter(|_| is_mark)?;
        if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
            return None;
        }
        let is_empty = rest.trim().is_empty();
        let blanks = if is_empty { 1 } else { indent_of(rest) };
        // More blanks than four are code inside of the item.
        let blanks = if blanks > 4 { 1 } else { blanks };
        let content = indent + digits + 1 + blanks;
        let number = number.parse().ok();
        Some(Self { mark, number, indent, shown_at: 0, content, is_empty })
    }
}

/// Whether a line ends a paragraph before it.
fn interrupts(line: &str) -> bool {
    let is_item = |marker: Marker| !marker.is_empty && marker.number.is_none_or(|it| it == 1);
    starts_block(line) || Marker::of(line).is_some_and(is_item)
}

/// Whether a line begins a block that is no paragraph, code by indentation or list.
fn starts_block(line: &str) -> bool {
    is_heading(line) || is_rule(line) || is_quote(line) || Fence::of(line).is_some()
}

fn is_quote(line: &str) -> bool {
    indent_of(line) < 4 && line.trim_start().starts_with('>')
}

fn is_heading(line: &str) -> bool {
    let text = line.trim_start();
    let after = text.trim_start_matches('#');
    let level = text.len() - after.len();
    let is_end = after.is_empty() || after.starts_with([' ', '\t']);
    indent_of(line) < 4 && (1..=6).contains(&level) && is_end
}

fn is_rule(line: &str) -> bool {
    let mut marks = line.chars().filter(|c| !matches!(c, ' ' | '\t'));
    let Some(first) = marks.next().filter(|c| matches!(c, '-' | '*' | '_')) else { return false };
    let count = marks.clone().count() + 1;
    indent_of(line) < 4 && count >= 3 && marks.all(|c| c == first)
}

/// Whether a line makes a heading of the paragraph before it.
fn is_underline(line: &str) -> bool {
    let text = line.trim();
    let is_of = |mark: char| text.chars().all(|c| c == mark);
    indent_of(line) < 4 && !text.is_empty() && (is_of('=') || is_of('-'))
}

/// Returns the indentation in columns.
fn indent_of(line: &str) -> usize {
    let mut used = 0;
    for c in line.chars() {
        match c {
            ' ' => used += 1,
            '\t' => used += 4 - used % 4,
            _ => break,
        }
    }
    used
}

/// Returns a line without at most `indent` blanks at its beginning.
fn without_indent(line: &str, indent: usize) -> &str {
    let blanks = line.chars().take(indent).take_while(|c| *c == ' ').count();
    line.get(blanks..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a text; each piece is its text, with `|` before it if a blank line precedes it.
    fn split(text: &str) -> Vec<String> {
        let (mut splitter, mut pieces) = (Splitter::default(), Vec::new());
        for line in text.lines() {
            splitter.line(line, &mut pieces);
        }
        splitter.finish(&mut pieces);
        let gap = |has_gap: bool| if has_gap { "|" } else { "" };
        let shown = pieces.into_iter().map(|piece| match piece {
            Piece::Block { text, number: Some(number), has_gap, .. } => {
                format!("{}{number}: {text}", gap(has_gap))
            }
            Piece::Block { text, number: None, has_gap, .. } => format!("{}{text}", gap(has_gap)),
            Piece::CodeStart { info, has_gap } => format!("{}code {info}", gap(has_gap)),
            Piece::CodeLine(line) => format!("> {line}"),
        });
        shown.collect()
    }

    #[test]
    fn each_kind_of_block_is_a_piece() {
        for (text, wanted) in [
            ("a\nb\n\nc", &["a\nb", "|c"][..]),
            ("# a\nb\n---\n***\nc", &["# a", "b\n---", "***", "c"]),
            ("a\n> b\nc\n# d", &["a", "> b\nc", "# d"]),
            ("a\n```rust\n  x\n\n~~~\n```\nb", &["a", "code rust", ">   x", "> ", "> ~~~", "b"]),
            ("  ```\n  x\n y\n", &["code ", "> x", "> y"]),
            ("- a\n  b\n\n  c\nd\n- e\n\nf", &["- a\n  b\n\n  c\nd", "- e", "|f"]),
            ("1. a\n1. b\n\n1. c\n5. d\n\ne", &["1: 1. a", "2: 1. b", "|3: 1. c", "5: 5. d", "|e"]),
            ("1. a\n   - b\n   - c\n2. d", &["1: 1. a\n   - b\n   - c", "2: 2. d"]),
            ("a\n2. b\n+ \nc\n- d", &["a\n2. b\n+ \nc", "- d"]),
            ("| a | b |\n|---|--:|\n| c | d |\n\ne", &["| a | b |\n|---|--:|\n| c | d |", "|e"]),
            ("a\n\n    b\n    c\nd", &["a", "|    b\n    c", "d"]),
            ("\n\n- ```\n  x\n  ```\n", &["- ```\n  x\n  ```"]),
            ("", &[]),
        ] {
            assert_eq!(split(text), wanted, "{text:?}");
        }
    }
}
