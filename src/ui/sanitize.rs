//! Sanitizing and measuring of untrusted text: no byte of it can move the cursor, change the terminal or reorder
//! the words.
//!
//! Only bytes without content are dropped. The payload of a string sequence (a window title, a link, a
//! clipboard write) stays as plain text: a sender must not be able to hide text that the model reads from
//! the person. Text is measured in columns of the terminal, after it is sanitized and before it is styled.

use crate::view::requests::takes_no_room;
use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;
use unicode_width::UnicodeWidthChar;

/// Returns the text without control characters (except `\n` and `\t`), escape sequences, bidi controls and
/// zero-width characters. Every kind of line end becomes `\n`.
pub(crate) fn sanitize(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => skip_escape(&mut rest),
            '\u{9b}' => skip_parameters(&mut rest),
            '\r' if rest.peek() == Some(&'\n') => {}
            // A lone carriage return would let one line overwrite another.
            '\r' | '\x0b' | '\x0c' | '\u{85}' | '\u{2028}' | '\u{2029}' => cleaned.push('\n'),
            c if is_harmless(c) => cleaned.push(c),
            _ => {}
        }
    }
    Cow::Owned(cleaned)
}

/// Returns the text on one line: whitespace is folded, and the text is truncated to `width` columns.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    // Truncate before folding, so that a long text costs no time.
    let ample = text.char_indices().nth(width.saturating_mul(8).saturating_add(1024));
    let text = ample.and_then(|(at, _)| text.get(..at)).unwrap_or(text);
    let folded = sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ");
    fit(&folded, width).into_owned()
}

fn is_harmless(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        '\u{2028}' | '\u{2029}' => false,
        c => !c.is_control() && !takes_no_room(c),
    }
}

/// Skips the bytes after ESC, up to the end of the sequence or the start of its payload.
fn skip_escape(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
    if rest.next_if_eq(&'[').is_some() {
        skip_parameters(rest);
    } else {
        rest.next_if(|c| matches!(c, '0'..='~'));
    }
}

/// Skips the parameters and the final byte of a control sequence. A sequence that is too long for any terminal
/// counts as text, so that it cannot hide any.
fn skip_parameters(rest: &mut Peekable<Chars<'_>>) {
    for _ in 0..64 {
        if rest.next_if(|c| matches!(c, ' '..='?')).is_none() {
            rest.next_if(|c| matches!(c, '@'..='~'));
            return;
        }
    }
}

/// Returns the width of the text on one row, in columns.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Returns the text truncated to `width` columns, with an ellipsis if anything is missing.
pub(super) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return Cow::Borrowed(text);
    }
    let (head, _) = split_at_column(text, width.saturating_sub(1));
    let ellipsis = if width == 0 { "" } else { "…" };
    Cow::Owned(format!("{}{ellipsis}", head.trim_end()))
}

/// Returns the text truncated or padded to exactly `width` columns.
pub(super) fn pad(text: &str, width: usize) -> String {
    let text = fit(text, width);
    let fill = width.saturating_sub(columns(&text));
    format!("{text}{:fill$}", "")
}

/// Wraps one line to rows of at most `width` columns, at blanks if possible; without a width the line stays whole.
/// Rows after the first have the indentation of the first.
pub(super) fn wrap(line: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![line.to_owned()] };
    // At least half of the width is left for text. A wide character fits into that, so every row makes progress.
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

/// Wraps one line with styles to rows of at most `width` columns, at blanks if possible; each row has its styles.
pub(super) fn wrap_styled(line: &str, width: usize) -> Vec<String> {
    let width = width.max(4);
    let mut rows = vec![String::new()];
    // The style that is on, the columns of the last row, and its last blank: bytes and columns before, and the style.
    let mut blank: Option<(usize, usize, String)> = None;
    let (mut style, mut used) = (String::new(), 0_usize);
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let Some(row) = rows.last_mut() else { break };
        if let Some(length) = style_length(rest) {
            let (code, after) = rest.split_at(length);
            row.push_str(code);
            if code == "\x1b[0m" {
                style.clear();
            } else {
                style.push_str(code);
            }
            rest = after;
            continue;
        }
        let columns = c.width().unwrap_or(0);
        if used + columns > width {
            let (tail, left, style_there) = match blank.take() {
                Some((at, column, there)) if c != ' ' => (row.split_off(at), used - column, there),
                _ => (String::new(), 0, style.clone()),
            };
            let end = if style_there.is_empty() { "" } else { "\x1b[0m" };
            let kept = row.trim_end().len();
            row.truncate(kept);
            row.push_str(end);
            let tail = tail.strip_prefix(' ').map_or(&*tail, |tail| tail);
            used = left.saturating_sub(usize::from(left > 0));
            rows.push(format!("{style_there}{tail}"));
            if c == ' ' {
                rest = rest.get(1..).unwrap_or_default();
            }
            continue;
        }
        if c == ' ' && used > 0 {
            blank = Some((row.len(), used, style.clone()));
        }
        row.push(c);
        used += columns;
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    rows
}

/// Returns the length of the style at the begin of the text; `None` if it begins with another character.
fn style_length(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|c: char| !matches!(c, '0'..='9' | ';'))?;
    parameters.get(end..)?.starts_with('m').then_some(end + 3)
}

/// Splits the text after at most `width` columns.
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
    fn escape_sequences_are_removed_and_words_kept() {
        let cases = [
            ("plain\n\ttext é 日本", "plain\n\ttext é 日本"),
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b[2J\x1b[Hgone?", "gone?"),
            ("\u{9b}1;31mc1", "c1"),
            ("\x1b]0;title\x07text", "0;titletext"),
            ("\x1b]52;c;aGk=\x1b\\x", "52;c;aGk=x"),
            ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "8;;http://alink8;;"),
            ("\x1b(Bcharset\x1b7\x1b8", "charset"),
            ("unfinished\x1b[", "unfinished"),
            ("unfinished\x1b", "unfinished"),
            ("a\r\nb\rc\u{2028}d\u{85}e", "a\nb\nc\nd\ne"),
            ("nul\0bel\x07del\x7fbs\x08", "nulbeldelbs"),
            ("user\u{202e}txt.exe\u{202c}", "usertxt.exe"),
            ("a\u{200b}b\u{2060}c\u{feff}d\u{e0041}e\u{fe0f}", "abcde"),
        ];
        for (given, wanted) in cases {
            assert_eq!(sanitize(given), wanted, "for {given:?}");
        }
        assert!(matches!(sanitize("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn one_line_folds_and_truncates() {
        assert_eq!(one_line("  a\n\n b\tc ", 10), "a b c");
        assert_eq!(one_line("abcdefgh", 5), "abcd…");
        assert_eq!(one_line(&"x ".repeat(100_000), 4), "x x…");
    }

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
        let styled = wrap_styled("one \x1b[1mtwo three\x1b[0m four", 8);
        assert_eq!(styled, ["one \x1b[1mtwo\x1b[0m", "\x1b[1mthree\x1b[0m", "four"]);
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
        fn styled_rows_are_not_too_wide_and_keep_words_and_styles(
            parts in proptest::collection::vec(("[a-zé日]{1,9}", any::<bool>()), 0..12), width in 4usize..30,
        ) {
            let paint = |(word, is_bold): &(String, bool)| match is_bold {
                true => format!("\x1b[1m{word} and\x1b[0m"),
                false => word.clone(),
            };
            let line = parts.iter().map(paint).collect::<Vec<_>>().join(" ");
            let rows = wrap_styled(&line, width);
            let bare = |text: &str| sanitize(text).replace(' ', "");
            for row in &rows {
                prop_assert!(columns(&sanitize(row)) <= width, "{row:?} at {width}");
                let on = row.matches("\x1b[1m").count();
                prop_assert_eq!(on, row.matches("\x1b[0m").count(), "{:?}", row);
            }
            prop_assert_eq!(bare(&rows.concat()), bare(&line));
        }

        #[test]
        fn fit_returns_at_most_the_width(text in "\\PC{0,40}", width in 0usize..40) {
            prop_assert!(columns(&fit(&text, width)) <= width);
        }

        #[test]
        fn nothing_dangerous_is_left(parts in proptest::collection::vec(dangerous(), 0..20)) {
            let text = parts.concat();
            let cleaned = sanitize(&text);
            prop_assert!(cleaned.chars().all(is_harmless), "{cleaned:?}");
            prop_assert_eq!(sanitize(&cleaned), cleaned.as_ref());
            prop_assert!(!one_line(&text, 20).contains(['\n', '\t']));
        }

        #[test]
        fn harmless_text_is_left_alone(text in "[ -~\\n\\té日-語]{0,60}") {
            prop_assert_eq!(sanitize(&text), text.as_str());
        }
    }

    fn dangerous() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            any::<char>().prop_map(String::from),
            prop::sample::select(vec![
                "\x1b", "\x1b[", "\x1b]8;;", "\u{9b}", "\u{9d}", "\r", "\u{202e}"
            ])
            .prop_map(String::from),
            "[0-9;?]{0,4}[a-zA-Z]",
        ]
    }
}
