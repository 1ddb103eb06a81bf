//! A place in a sentence: a copyable view of the tokens that are still to be read.

use super::lexer::{Kind, Token};

/// The tokens ahead, and the text they came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    source: &'a str,
    tokens: &'a [Token],
}

impl<'a> Cursor<'a> {
    /// At the begin of a sentence.
    pub(super) fn new(source: &'a str, tokens: &'a [Token]) -> Self {
        Self { source, tokens }
    }

    /// The tokens ahead.
    pub(super) fn tokens(self) -> &'a [Token] {
        self.tokens
    }

    /// How many tokens are ahead.
    pub(super) fn len(self) -> usize {
        self.tokens.len()
    }

    /// Whether the next token is the first of its line.
    pub(super) fn begins_line(self) -> bool {
        let start = self.first().map_or(0, |token| token.start);
        self.between(0, start).trim_end_matches([' ', '\t']).ends_with('\n')
    }

    /// Whether nothing is ahead.
    pub(super) fn is_empty(self) -> bool {
        self.tokens.is_empty()
    }

    /// The next token.
    pub(super) fn first(self) -> Option<&'a Token> {
        self.tokens.first()
    }

    /// The next token if it is a word, in lower case; else empty.
    pub(super) fn word(self) -> &'a str {
        self.first().map_or("", |token| token.low.as_str())
    }

    /// Whether the next token is of this kind.
    pub(super) fn is(self, kind: Kind) -> bool {
        self.first().is_some_and(|token| token.kind == kind)
    }

    /// Past the next `count` tokens.
    pub(super) fn skip(self, count: usize) -> Self {
        Self { tokens: self.tokens.get(count..).unwrap_or_default(), ..self }
    }

    /// Only the next `count` tokens.
    pub(super) fn take(self, count: usize) -> Self {
        Self { tokens: self.tokens.get(..count).unwrap_or(self.tokens), ..self }
    }

    /// What stands between this place and a later one of the same sentence.
    pub(super) fn up_to(self, later: Self) -> Self {
        let start = later.first().map_or(usize::MAX, |token| token.start);
        self.take(self.tokens.iter().take_while(|token| token.start < start).count())
    }

    /// What is ahead, exactly as it was written.
    pub(super) fn text(self) -> &'a str {
        match (self.tokens.first(), self.tokens.last()) {
            (Some(first), Some(last)) => self.source.get(first.start..last.end).unwrap_or_default(),
            (None, _) | (_, None) => "",
        }
    }

    /// The last token ahead.
    pub(super) fn last(self) -> Option<&'a Token> {
        self.tokens.last()
    }

    /// The source between two byte positions.
    pub(super) fn between(self, start: usize, end: usize) -> &'a str {
        self.source.get(start..end).unwrap_or_default()
    }

    /// Past one phrase of the list: words separated by spaces, `,` and `:` for themselves.
    pub(super) fn after(self, phrases: &[&str]) -> Option<Self> {
        let longest = phrases.iter().filter_map(|phrase| self.after_phrase(phrase));
        longest.min_by_key(|rest| rest.len())
    }

    /// Past all phrases of the list that stand here, in whatever order.
    pub(super) fn past(self, phrases: &[&str]) -> Self {
        let mut rest = self;
        while let Some(after) = rest.after(phrases) {
            rest = after;
        }
        rest
    }

    /// Whether one of these words stands anywhere ahead.
    pub(super) fn has(self, words: &[&str]) -> bool {
        self.tokens.iter().any(|token| words.contains(&token.low.as_str()))
    }

    /// Each place ahead, this one included, the end not.
    pub(super) fn places(self) -> impl DoubleEndedIterator<Item = Self> {
        (0..self.len()).map(move |count| self.skip(count))
    }

    fn after_phrase(self, phrase: &str) -> Option<Self> {
        let mut rest = self;
        for part in phrase.split(' ') {
            let token = rest.first()?;
            let fits = match token.kind {
                Kind::Word => token.low == part,
                Kind::Comma => part == ",",
                Kind::Colon => part == ":",
                Kind::Quoted | Kind::Open | Kind::Close | Kind::Stop => false,
            };
            if !fits {
                return None;
            }
            rest = rest.skip(1);
        }
        Some(rest)
    }
}
