//! Words of a command line for a shell.

/// Quotes a word, so that a shell takes each of its characters as it is.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes a word for a person who reads the command line: only if a shell would not take it as it is.
pub(crate) fn quoted_if_needed(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.into() } else { quoted(word) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted() {
        assert_eq!(quoted("a"), "'a'");
        assert_eq!(quoted("/a b/$c"), "'/a b/$c'");
        assert_eq!(quoted("/it's"), r"'/it'\''s'");
    }

    #[test]
    fn a_plain_word_needs_no_quotes() {
        for plain in ["/home/me/a-b_1.x", "--color=auto", "a@b:c,d%e+f"] {
            assert_eq!(quoted_if_needed(plain), plain);
        }
        for (word, expected) in
            [("", "''"), ("~", "'~'"), ("*", "'*'"), ("ä", "'ä'"), ("it's a", r"'it'\''s a'")]
        {
            assert_eq!(quoted_if_needed(word), expected);
        }
    }
}
