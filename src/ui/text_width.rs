//! Columns of the terminal: measures, truncates, pads and wraps sanitized text.
//!
//! Text is measured before it is styled.

use std::borrow::Cow;
use unicode_width::UnicodeWidthChar;

/// The width of the text on one row, in columns.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The text truncated to `width` columns, with an ellipsis if anything is missing.
pub(super) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return Cow::Borrowed(text);
    }
    let (head, _) = split_at_column(text, width.saturating_sub(1));
    let ellipsis = if width == 0 { "" } else { "…" };
    Cow::Owned(format!("{}{ellipsis}", head.trim_end()))
}

/// The text truncated or padded to exactly `width` columns.
pub(super) fn pad(text: &str, width: usize) -> String {
    let text = fit(text, width);
    let fill = width.saturating_sub(columns(&text));
    format!("{text}{:fill$}", "")
}

/// One line wrapped to rows of at most `width` columns, at blanks if possible; whole without a width. Rows
/// after the first have the indentation of the first.
pub(super) fn wrap(line: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![line.to_owned()] };
    // At least half of the width is left for text, which fits a wide character: every row makes progress.
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

/// The start of at most `width` columns, and the rest.
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
    fn a_wide_character_takes_two_columns() {
        assert_eq!(columns("日本"), 4);
        for (text, width, wanted) in [("日本語", 5, "日本…"), ("日本", 2, "…"), ("abc", 0, "")]
        {
            assert_eq!(fit(text, width), wanted);
        }
        assert_eq!((pad("日本語", 5), pad("ab", 4)), ("日本…".into(), "ab  ".into()));
    }

    #[test]
    fn rows_are_wrapped_at_blanks_and_keep_the_indentation() {
        assert_eq!(wrap("  one two three", Some(9)), ["  one two", "  three"]);
        assert_eq!(wrap("abcdefgh", Some(3)), ["abcd", "efgh"]);
        assert_eq!(wrap("      x", Some(4)), ["  x"]);
        assert_eq!(wrap("", Some(10)), [""]);
    }

    proptest! {
        #[test]
        fn no_row_is_too_wide_and_no_word_is_lost(line in "[ a-zé日]{0,80}", width in 4usize..40) {
            let rows = wrap(&line, Some(width));
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
