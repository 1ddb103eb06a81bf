//! Text with styles, measured in columns and wrapped to rows before it is painted.

use super::sanitize::{columns, sanitize};
use super::style::Palette;
use anstyle::Style;
use unicode_width::UnicodeWidthChar;

/// The number of columns to the next tab stop is at most this.
const TAB: usize = 4;

/// The smallest width that is kept: a wide character and a prefix fit into it.
pub(super) const MIN_WIDTH: usize = 4;

type StyledChar = (Style, char);

/// One line of text, in pieces that each have one style. It has no control character.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StyledLine {
    spans: Vec<(Style, String)>,
}

impl StyledLine {
    pub(super) fn new(style: Style, text: &str) -> Self {
        let mut line = Self::default();
        line.push(style, text);
        line
    }

    /// Adds text with its blanks. Line ends become blanks, and a tab fills up to its stop.
    pub(super) fn push(&mut self, style: Style, text: &str) {
        // Only a tab depends on what is before it.
        let mut used = if text.contains('\t') { self.columns() } else { 0 };
        let mut clean = String::with_capacity(text.len());
        for c in sanitize(text).chars() {
            match c {
                '\t' => {
                    let fill = TAB - used % TAB;
                    clean.extend(std::iter::repeat_n(' ', fill));
                    used += fill;
                }
                c => {
                    clean.push(if c == '\n' { ' ' } else { c });
                    used += c.width().unwrap_or(0);
                }
            }
        }
        self.append(style, &clean);
    }

    /// Adds running text: each run of blanks and line ends becomes one blank, and none begins the line.
    pub(super) fn push_folded(&mut self, style: Style, text: &str) {
        let mut folded = String::with_capacity(text.len());
        let mut is_after_blank = self.spans.last().is_none_or(|(_, text)| text.ends_with(' '));
        for c in sanitize(text).chars() {
            let is_blank = matches!(c, ' ' | '\t' | '\n');
            if !is_blank || !is_after_blank {
                folded.push(if is_blank { ' ' } else { c });
            }
            is_after_blank = is_blank;
        }
        self.append(style, &folded);
    }

    /// Adds the pieces of another line.
    pub(super) fn extend(&mut self, line: Self) {
        for (style, text) in line.spans {
            self.append(style, &text);
        }
    }

    fn append(&mut self, style: Style, text: &str) {
        match self.spans.last_mut() {
            _ if text.is_empty() => {}
            Some((last, before)) if *last == style => before.push_str(text),
            _ => self.spans.push((style, text.to_owned())),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the width in columns.
    pub(super) fn columns(&self) -> usize {
        self.spans.iter().map(|(_, text)| columns(text)).sum()
    }

    /// Returns the width of the widest word in columns.
    pub(super) fn widest_word(&self) -> usize {
        let text: String = self.spans.iter().map(|(_, text)| text.as_str()).collect();
        text.split(' ').map(columns).max().unwrap_or_default()
    }

    /// Wraps the line to rows of at most `width` columns: at blanks, and within a word only if the word alone is too
    /// wide. Rows after the first begin with `hang` blanks, which take at most half of the width.
    pub(super) fn wrap(&self, width: Option<usize>, hang: usize) -> Vec<Self> {
        let Some(width) = width.map(|width| width.max(2)) else { return vec![self.trimmed()] };
        if self.columns() <= width {
            return vec![self.trimmed()];
        }
        let hang = hang.min(width / 2).min(width - 2);
        let cells: Vec<StyledChar> = self.cells().collect();
        let mut rows = Vec::new();
        let mut rest = cells.as_slice();
        while !rest.is_empty() {
            let indent = if rows.is_empty() { 0 } else { hang };
            let (row, after) = split_row(rest, width - indent);
            let mut line = Self::new(Style::new(), &" ".repeat(indent));
            for (style, c) in trim_end(row) {
                line.append(*style, c.encode_utf8(&mut [0; 4]));
            }
            rows.push(line);
            let blanks = after.iter().take_while(|(_, c)| *c == ' ').count();
            rest = after.get(blanks..).unwrap_or_default();
        }
        rows
    }

    /// Returns at most the first `width` columns.
    pub(super) fn cut(&self, width: usize) -> Self {
        let mut line = Self::default();
        let mut used = 0;
        for (style, c) in self.cells() {
            used += c.width().unwrap_or(0);
            if used > width {
                break;
            }
            line.append(style, c.encode_utf8(&mut [0; 4]));
        }
        line
    }

    fn cells(&self) -> impl Iterator<Item = StyledChar> {
        self.spans.iter().flat_map(|(style, text)| text.chars().map(|c| (*style, c)))
    }

    /// Returns the line without blanks at its end.
    pub(super) fn trimmed(&self) -> Self {
        let mut line = self.clone();
        while let Some((_, text)) = line.spans.last_mut() {
            text.truncate(text.trim_end_matches(' ').len());
            if !text.is_empty() {
                break;
            }
            line.spans.pop();
        }
        line
    }

    /// Returns the line with escape sequences for its styles; a plain palette adds none.
    pub(super) fn paint(&self, palette: Palette) -> String {
        self.spans.iter().map(|(style, text)| palette.paint(*style, text)).collect()
    }
}

/// Returns the style `upper` with what it leaves open taken from `lower`.
pub(super) fn over(lower: Style, upper: Style) -> Style {
    Style::new()
        .fg_color(upper.get_fg_color().or(lower.get_fg_color()))
        .bg_color(upper.get_bg_color().or(lower.get_bg_color()))
        .effects(lower.get_effects() | upper.get_effects())
}

/// Splits off a row of at most `width` columns; at least one character, so that every row makes progress.
fn split_row(cells: &[StyledChar], width: usize) -> (&[StyledChar], &[StyledChar]) {
    let mut used = 0;
    let fits = cells.iter().take_while(|(_, c)| {
        used += c.width().unwrap_or(0);
        used <= width
    });
    let end = fits.count().max(1);
    let is_blank = |at: usize| cells.get(at).is_none_or(|(_, c)| *c == ' ');
    if is_blank(end) {
        return cells.split_at(end);
    }
    // A break inside the indentation would leave an empty row.
    let indent = cells.iter().take_while(|(_, c)| *c == ' ').count();
    let blank = (indent..end).rev().find(|at| is_blank(*at));
    cells.split_at(blank.unwrap_or(end))
}

fn trim_end(row: &[StyledChar]) -> &[StyledChar] {
    let blanks = row.iter().rev().take_while(|(_, c)| *c == ' ').count();
    row.get(..row.len() - blanks).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::style::{BOLD, ColorChoice};
    use proptest::prelude::*;

    fn rows(line: &StyledLine, width: usize, hang: usize) -> Vec<String> {
        let rows = line.wrap(Some(width), hang);
        rows.iter().map(|row| row.paint(Palette::plain())).collect()
    }

    #[test]
    fn rows_keep_their_styles_and_hang_below_the_first() {
        let mut line = StyledLine::new(Style::new(), "one ");
        line.push(BOLD, "two three");
        assert_eq!(rows(&line, 8, 2), ["one two", "  three"]);
        let painted: Vec<_> = line.wrap(Some(8), 2);
        let palette = Palette::new(ColorChoice::Always, true);
        assert_eq!(painted[0].paint(palette), "one \u{1b}[1mtwo\u{1b}[0m");
        assert_eq!(painted[1].paint(palette), "  \u{1b}[1mthree\u{1b}[0m");
    }

    #[test]
    fn blanks_are_folded_and_tabs_fill_to_their_stop() {
        let mut line = StyledLine::default();
        line.push_folded(Style::new(), " a  b\n\tc ");
        line.push_folded(BOLD, " d\u{1b}[2J");
        assert_eq!(line.paint(Palette::plain()), "a b c d");
        assert_eq!(StyledLine::new(BOLD, "a\tb\tc").paint(Palette::plain()), "a   b   c");
    }

    proptest! {
        #[test]
        fn no_row_is_too_wide_and_no_character_is_lost(
            text in "[ a-zé日]{0,80}", width in 2usize..40, hang in 0usize..8,
        ) {
            let rows = rows(&StyledLine::new(BOLD, &text), width, hang);
            prop_assert!(rows.iter().all(|row| columns(row) <= width), "{:?}", rows);
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(letters(&rows.concat()), letters(&text));
        }

        #[test]
        fn a_word_that_fits_is_never_broken(
            words in proptest::collection::vec("[a-z]{1,8}", 0..20), width in 10usize..30,
        ) {
            let rows = rows(&StyledLine::new(BOLD, &words.join(" ")), width, 2);
            let shown: Vec<_> = rows.iter().flat_map(|row| row.split_whitespace()).collect();
            prop_assert_eq!(shown, words);
        }
    }
}
