//! Text -> tokens -> sentences. Knows quotes, paths and punctuation, but no word's meaning.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A run of characters: a word, a name, a path, a number.
    Word,
    /// Text between quotation marks or backticks; the marks are not part of it.
    Quoted,
    /// A comma, or a dash that stands alone.
    Comma,
    /// A colon that ends a word.
    Colon,
    /// An opening bracket.
    Open,
    /// A closing bracket.
    Close,
    /// The end of a sentence.
    Stop,
}

/// One token and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// What it is.
    pub(super) kind: Kind,
    /// What it says.
    pub(super) text: String,
    /// A word in lower case with straight apostrophes; empty for anything else.
    pub(super) low: String,
    /// First byte in the source.
    pub(super) start: usize,
    /// Byte after the last one.
    pub(super) end: usize,
}

/// Splits a text into tokens. Nothing makes it fail: an unclosed quote is skipped.
pub(super) fn tokens(source: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = char_at(source, at) {
        let token = next_token(source, at, c);
        at = token.as_ref().map_or(at + c.len_utf8(), |token| token.end);
        found.extend(token);
    }
    found
}

/// Cuts tokens into sentences, without the stops.
pub(super) fn sentences(tokens: &[Token]) -> Vec<&[Token]> {
    let stops = |token: &Token| token.kind == Kind::Stop;
    let mut found = Vec::new();
    for mut part in tokens.split(stops) {
        // A quotation may hold the full stop of the sentence around it.
        while let Some(at) = part.windows(2).position(ends_inside_quote) {
            let (sentence, rest) = part.split_at(at + 1);
            found.push(sentence);
            part = rest;
        }
        found.push(part);
    }
    found.retain(|sentence| !sentence.is_empty());
    found
}

fn ends_inside_quote(pair: &[Token]) -> bool {
    let [quote, next] = pair else { return false };
    quote.kind == Kind::Quoted
        && quote.text.ends_with(['.', '!', '?'])
        && next.kind == Kind::Word
        && next.text.starts_with(char::is_uppercase)
}

fn char_at(source: &str, at: usize) -> Option<char> {
    source.get(at..)?.chars().next()
}

fn next_token(source: &str, at: usize, c: char) -> Option<Token> {
    let mark = |kind| Some(token(source, kind, (at, at + c.len_utf8()), (at, at + c.len_utf8())));
    let after = char_at(source, at + c.len_utf8());
    match c {
        '\n' if !continues(source, at) => mark(Kind::Stop),
        c if c.is_whitespace() => None,
        '`' | '"' | '“' | '”' | '„' | '«' | '‘' => quoted(source, at, c),
        '\'' | '’' if !follows_word(source, at) => quoted(source, at, c),
        '\'' | '’' | '»' | '@' => None,
        ',' | '—' | '–' => mark(Kind::Comma),
        '-' if after.is_none_or(char::is_whitespace) => mark(Kind::Comma),
        '(' | '[' => mark(Kind::Open),
        ')' | ']' => mark(Kind::Close),
        ';' | '!' | '?' | '…' => mark(Kind::Stop),
        '.' if !begins_path(source, at) => mark(Kind::Stop),
        ':' if !after.is_some_and(char::is_alphanumeric) => mark(Kind::Colon),
        _ => Some(word(source, at)),
    }
}

/// ".env", "./a", "../a"
fn begins_path(source: &str, dot: usize) -> bool {
    let rest = source.get(dot..).unwrap_or_default().trim_start_matches('.');
    rest.starts_with(|c: char| c.is_alphanumeric() || c == '/')
}

fn token(source: &str, kind: Kind, inner: (usize, usize), outer: (usize, usize)) -> Token {
    let text = source.get(inner.0..inner.1).unwrap_or_default().to_owned();
    let low = match kind {
        Kind::Word => text.to_lowercase().replace('’', "'"),
        Kind::Quoted | Kind::Comma | Kind::Colon | Kind::Open | Kind::Close | Kind::Stop => {
            String::new()
        }
    };
    Token { kind, text, low, start: outer.0, end: outer.1 }
}

/// A line that goes on in lower case continues the sentence: mail and prose are often wrapped.
fn continues(source: &str, newline: usize) -> bool {
    let rest = source.get(newline + 1..).unwrap_or_default().trim_start_matches([' ', '\t']);
    rest.starts_with(char::is_lowercase)
}

fn follows_word(source: &str, at: usize) -> bool {
    source
        .get(..at)
        .and_then(|before| before.chars().next_back())
        .is_some_and(char::is_alphanumeric)
}

fn word(source: &str, at: usize) -> Token {
    let mut end = at;
    while let Some(c) = char_at(source, end) {
        let after = char_at(source, end + c.len_utf8());
        let inside = match c {
            c if c.is_whitespace() => false,
            '`' | '"' | '“' | '”' | '„' | '«' | '»' | '‘' | ',' | ';' | '(' | ')' | '[' | ']' => {
                false
            }
            '\'' | '’' => after.is_some_and(char::is_alphanumeric),
            '.' | '!' | '?' | ':' => {
                after.is_some_and(|c| c.is_alphanumeric() || matches!(c, '/' | '_' | '*' | '.'))
            }
            _ => true,
        };
        // The first character is taken whatever it is, or the lexer would stand still.
        if !inside && end > at {
            break;
        }
        end += c.len_utf8();
    }
    token(source, Kind::Word, (at, end), (at, end))
}

fn quoted(source: &str, at: usize, open: char) -> Option<Token> {
    let fence = "```";
    if source.get(at..)?.starts_with(fence) {
        let inner = at + fence.len();
        let length = source.get(inner..)?.find(fence)?;
        let mut block = token(
            source,
            Kind::Quoted,
            (inner, inner + length),
            (at, inner + length + fence.len()),
        );
        block.text = without_language(&block.text).trim_matches('\n').to_owned();
        return Some(block);
    }
    let inner = at + open.len_utf8();
    let mut escaped = false;
    let mut depth = 0_usize;
    for (offset, c) in source.get(inner..)?.char_indices() {
        let here = inner + offset;
        let end = here + c.len_utf8();
        if escaped {
            escaped = false;
        } else if c == '\\' && open != '`' {
            escaped = true;
        } else if closes(open, c, char_at(source, end)) {
            if depth == 0 {
                let mut found = token(source, Kind::Quoted, (inner, here), (at, end));
                if open == '"' {
                    found.text = found.text.replace("\\\"", "\"");
                }
                return Some(found);
            }
            depth -= 1;
        } else if c == open && matches!(open, '“' | '«' | '‘') {
            depth += 1;
        }
    }
    None
}

fn closes(open: char, c: char, after: Option<char>) -> bool {
    match open {
        '“' | '”' => c == '”',
        '„' => matches!(c, '“' | '”'),
        '«' => c == '»',
        // An apostrophe inside a single-quoted text stands before a letter.
        '‘' | '’' => c == '’' && !after.is_some_and(char::is_alphanumeric),
        '\'' => c == '\'' && !after.is_some_and(char::is_alphanumeric),
        _ => c == open,
    }
}

/// A fenced block without the word behind its opening fence.
fn without_language(block: &str) -> &str {
    match block.split_once('\n') {
        Some((first, rest)) if !first.trim().contains(' ') => rest,
        Some(_) | None => block,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds(source: &str) -> Vec<(Kind, String)> {
        tokens(source).into_iter().map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn quotes_of_all_kinds_are_one_token() {
        for (source, text) in [
            (r#""it's fine, isn't it?""#, "it's fine, isn't it?"),
            ("'don't panic'", "don't panic"),
            ("“say “hi” twice”", "say “hi” twice"),
            ("„hallo“", "hallo"),
            ("«bon jour»", "bon jour"),
            ("‘it’s’", "it’s"),
            ("`ls -la; echo \"x\"`", "ls -la; echo \"x\""),
            (r#""a \"b\" c""#, "a \"b\" c"),
            ("```sh\nls\npwd\n```", "ls\npwd"),
        ] {
            assert_eq!(kinds(source), [(Kind::Quoted, text.to_owned())], "{source}");
        }
    }

    #[test]
    fn punctuation_ends_a_word_but_not_a_path() {
        let words: Vec<String> = tokens("see ./a.txt, .env: v1.2 (../b/c.rs)! it's http://x.y/z")
            .into_iter()
            .filter(|token| token.kind == Kind::Word)
            .map(|token| token.text)
            .collect();
        assert_eq!(words, ["see", "./a.txt", ".env", "v1.2", "../b/c.rs", "it's", "http://x.y/z"]);
    }

    #[test]
    fn sentences_end_at_stops_new_lines_and_closing_quotes() {
        let count = |source: &str| sentences(&tokens(source)).len();
        assert_eq!(count("One. Two! Three? four; five"), 5);
        assert_eq!(count("One\nTwo\nstill two"), 2);
        assert_eq!(count("Say \"Stop.\" Then go"), 2);
        assert_eq!(count("Say \"stop.\" to bob"), 1);
        assert_eq!(count("..."), 0);
    }

    proptest! {
        #[test]
        fn any_text_gives_tokens_in_order(source in any::<String>()) {
            let found = tokens(&source);
            for token in &found {
                prop_assert!(source.get(token.start..token.end).is_some());
            }
            prop_assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
    }
}
