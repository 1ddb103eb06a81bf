//! Columns of the terminal: measuring, cutting, padding and wrapping clean text.
//!
//! Knows nothing of colours: text is measured first and painted afterwards.

use std::borrow::Cow;
use unicode_width::UnicodeWidthChar;

/// Columns the text takes on one row.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The text cut to `width` columns, with an ellipsis where something is missing.
pub(super) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return Cow::Borrowed(text);
    }
    let (head, _) = split_at_column(text, width.saturating_sub(1));
    let ellipsis = if width == 0 { "" } else { "…" };
    Cow::Owned(format!("{}{ellipsis}", head.trim_end()))
}

/// The text cut or filled with blanks to exactly `width` columns.
pub(super) fn pad(text: &str, width: usize) -> String {
    let text = fit(text, width);
    let fill = width.saturating_sub(columns(&text));
    format!("{text}{:fill$}", "")
}

/// One line broken into rows of at most `width` columns, at blanks where there are any. Rows after
/// the first keep the indentation of the first.
pub(super) fn wrap(line: &str, width: usize) -> Vec<String> {
    // Half of the narrowest row still holds a wide character: every row makes progress.
    let width = width.max(4);
    let line = line.replace('\t', "    ");
    let words = line.trim_start_matches(' ');
    let indent = " ".repeat((line.len() - words.len()).min(width / 2));
    let mut rows = Vec::new();
    let mut rest = format!("{indent}{words}");
    while columns(&rest) > width {
        let (head, _) = split_at_column(&rest, width);
        let next_is_blank = rest.get(head.len()..).is_some_and(|tail| tail.starts_with(' '));
        let blank = if next_is_blank { Some(head.len()) } else { head.rfind(' ') };
        // A break inside the indentation would leave an empty row.
        let cut = blank.filter(|at| *at > indent.len()).unwrap_or(head.len());
        let (row, tail) = rest.split_at(cut);
        let tail = format!("{indent}{}", tail.trim_start_matches(' '));
        rows.push(row.trim_end().to_owned());
        rest = tail;
    }
    rows.push(rest);
    rows
}

/// Head of at most `width` columns, and the rest.
fn split_at_column(text: &str, width: usize) -> (&str, &str) {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > width {
            return text.split_at(at);
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(columns("日本"), 4);
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(pad("日本語", 5), "日本…");
        assert_eq!(pad("ab", 4), "ab  ");
        assert_eq!(fit("日本", 2), "…");
        assert_eq!(fit("abc", 0), "");
    }

    #[test]
    fn rows_break_at_blanks_and_keep_the_indentation() {
        assert_eq!(wrap("  one two three", 9), ["  one two", "  three"]);
        assert_eq!(wrap("abcdefgh", 3), ["abcd", "efgh"]);
        assert_eq!(wrap("      x", 4), ["  x"]);
        assert_eq!(wrap("", 10), [""]);
    }

    proptest! {
        #[test]
        fn no_row_is_too_wide_and_no_word_is_lost(line in "[ a-zé日]{0,80}", width in 4usize..40) {
            let rows = wrap(&line, width);
            for row in &rows {
                prop_assert!(columns(row) <= width, "{row:?} at {width}");
            }
            let messages = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(messages(&rows.concat()), messages(&line));
        }

        #[test]
        fn fit_fits(text in "\\PC{0,40}", width in 0usize..40) {
            prop_assert!(columns(&fit(&text, width)) <= width);
        }
    }
}
