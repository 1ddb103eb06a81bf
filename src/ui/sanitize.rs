//! Sanitizing of untrusted text: no byte of it can move the cursor, change the terminal or reorder the words.
//!
//! Only bytes without content are dropped. The payload of a string sequence (a window title, a link, a
//! clipboard write) stays as plain text: a sender must not be able to hide from the person what the model
//! reads.

use super::text_width;
use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// The text without control characters (except `\n` and `\t`), escape sequences, bidi controls and zero-width
/// characters. Every kind of line end becomes `\n`.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
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

/// The text on one line: whitespace folded, truncated to `width` columns.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    // Truncate before folding, so that a long text costs no time.
    let ample = text.char_indices().nth(width.saturating_mul(8).saturating_add(1024));
    let text = ample.and_then(|(at, _)| text.get(..at)).unwrap_or(text);
    let folded = clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
    text_width::fit(&folded, width).into_owned()
}

fn is_harmless(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        '\u{2028}' | '\u{2029}' => false,
        c => !c.is_control() && !takes_no_room(c),
    }
}

/// Bidi controls, zero-width characters, variation selectors and tags, which can reorder or hide text.
fn takes_no_room(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
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

/// Skips the parameters and the final byte of a control sequence. A sequence that is too long for any
/// terminal is text: it must not hide some.
fn skip_parameters(rest: &mut Peekable<Chars<'_>>) {
    for _ in 0..64 {
        if rest.next_if(|c| matches!(c, ' '..='?')).is_none() {
            rest.next_if(|c| matches!(c, '@'..='~'));
            return;
        }
    }
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
            assert_eq!(clean(given), wanted, "for {given:?}");
        }
        assert!(matches!(clean("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn one_line_folds_and_truncates() {
        assert_eq!(one_line("  a\n\n b\tc ", 10), "a b c");
        assert_eq!(one_line("abcdefgh", 5), "abcd…");
        assert_eq!(one_line(&"x ".repeat(100_000), 4), "x x…");
    }

    proptest! {
        #[test]
        fn nothing_dangerous_is_left(parts in proptest::collection::vec(dangerous(), 0..20)) {
            let text = parts.concat();
            let cleaned = clean(&text);
            prop_assert!(cleaned.chars().all(is_harmless), "{cleaned:?}");
            prop_assert_eq!(clean(&cleaned), cleaned.as_ref());
            prop_assert!(!one_line(&text, 20).contains(['\n', '\t']));
        }

        #[test]
        fn harmless_text_is_left_alone(text in "[ -~\\n\\té日-語]{0,60}") {
            prop_assert_eq!(clean(&text), text.as_str());
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
