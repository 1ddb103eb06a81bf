//! Splits a text into tokens, and matches them with a template of the command table.
//!
//! The parts of a template are separated by one space. `a|b` matches either word, `a?` is optional, and `{slot}`
//! takes the tokens that [`ends`] returns for its name. A template matches all tokens or none.

use crate::wire::AgentName;

/// Words that make a command depend on something or forbid it.
pub(super) const GUARDS: [&str; 11] =
    ["not", "don't", "don’t", "never", "if", "unless", "until", "when", "whenever", "once", "wait"];

const NO_NAMES: [&str; 27] = [
    "a", "an", "the", "and", "or", "to", "of", "in", "it", "its", "that", "this", "my", "your",
    "you", "us", "not", "file", "files", "task", "tasks", "mail", "message", "inbox", "if", "when",
    "what",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Word,
    /// Text in quotes or backticks, which are not part of the token's text.
    Quoted,
    Mark,
    SentenceEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) kind: TokenKind,
    /// The start of its bytes in the source, which include the quotes.
    start: usize,
    end: usize,
}

impl Token<'_> {
    /// Whether this is one of these words or marks, in any case of letters; quoted text never is.
    pub(super) fn is(&self, words: &[&str]) -> bool {
        self.kind != TokenKind::Quoted && words.iter().any(|it| it.eq_ignore_ascii_case(self.text))
    }

    pub(super) fn is_path(&self) -> bool {
        let capitals = self.text.len() > 3 && self.text.chars().all(|c| c.is_ascii_uppercase());
        self.kind == TokenKind::Word && (capitals || self.text.contains(['.', '/']))
    }

    /// Returns the token in lower case if it can be the name of an agent.
    pub(super) fn name(&self) -> Option<String> {
        let low = self.text.to_ascii_lowercase();
        let is_name = self.kind == TokenKind::Word && AgentName::mailbox(&low).is_ok();
        (is_name && !self.is(&NO_NAMES)).then_some(low)
    }
}

/// The agents, files and plans to which words of a conversation can refer.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    pub(super) me: String,
    /// The sender of the current order: "me".
    pub(super) giver: Option<String>,
    /// Spawned teammates that were not shut down.
    pub(super) members: Vec<String>,
    /// The agents named last: "her", "him", "them".
    pub(super) last: Vec<String>,
    /// The file named last: "it".
    pub(super) file: Option<String>,
    /// Submitted plans: the owner and the id of the request.
    pub(super) plans: Vec<(String, String)>,
}

impl Scope {
    /// Returns the agents to which a token refers; `None` if it refers to none.
    pub(super) fn agents(&self, token: &Token<'_>) -> Option<Vec<String>> {
        let one = if token.is(&["her", "him"]) { self.last.last() } else { self.giver.as_ref() };
        let found: Vec<String> = if token.is(&["everyone", "everybody", "all"]) {
            self.members.clone()
        } else if token.is(&["them", "both"]) {
            self.last.clone()
        } else {
            let is_pronoun = token.is(&["her", "him", "me"]);
            if is_pronoun { one.cloned() } else { token.name() }.into_iter().collect()
        };
        (!found.is_empty()).then_some(found)
    }

    /// Returns this scope with a placeholder for every pronoun.
    pub(super) fn with_pronouns(&self) -> Self {
        let (name, file) = ("somebody".to_owned(), Some("something".into()));
        let (members, last) = (vec![name.clone()], vec![name.clone()]);
        Self { giver: Some(name), members, last, file, ..self.clone() }
    }
}

/// Splits a text into tokens. A quote that is never closed belongs to its word.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut found, mut start) = (Vec::new(), 0);
    while let Some(first) = text.get(start..).and_then(|rest| rest.chars().next()) {
        let rest = text.get(start..).unwrap_or_default();
        let letter = first.len_utf8();
        let (kind, quote, length) = if first.is_whitespace() && first != '\n' {
            start += letter;
            continue;
        } else if let Some(length) = quoted_length(rest) {
            (TokenKind::Quoted, letter, length)
        } else if matches!(first, '(' | ')' | ',' | ':') {
            (TokenKind::Mark, 0, letter)
        } else {
            let chunk = rest.split(char::is_whitespace).next().unwrap_or_default();
            let bare = chunk.trim_end_matches(['.', ',', ';', ':', '!', '?', ')']);
            match bare.strip_suffix("'s").or_else(|| bare.strip_suffix("’s")) {
                Some("") => (TokenKind::Mark, 0, bare.len()),
                None if bare.is_empty() => (TokenKind::SentenceEnd, 0, chunk.len().max(letter)),
                owner => (TokenKind::Word, 0, owner.unwrap_or(bare).len()),
            }
        };
        let text = rest.get(quote..quote + length).unwrap_or_default();
        let end = start + length + 2 * quote;
        found.push(Token { text, kind, start, end });
        start = end;
    }
    found
}

/// Returns the number of bytes between the quote at the start and the closing quote, which has the same length.
fn quoted_length(rest: &str) -> Option<usize> {
    let close = match rest.chars().next()? {
        '“' => '”',
        quote @ ('"' | '`') => quote,
        _ => return None,
    };
    rest.get(close.len_utf8()..)?.find(close)
}

/// Returns the source of some tokens, with quotes and spaces as they were written.
pub(super) fn source<'a>(text: &'a str, tokens: &[Token<'_>]) -> &'a str {
    let (first, last) = (tokens.first(), tokens.last());
    first.zip(last).and_then(|(from, to)| text.get(from.start..to.end)).unwrap_or_default()
}

/// A match of a template with a clause: the tokens of each slot.
#[derive(Debug)]
pub(super) struct Match<'a> {
    pub(super) scope: &'a Scope,
    source: &'a str,
    pub(super) slots: Vec<(&'static str, &'a [Token<'a>])>,
}

impl<'a> Match<'a> {
    /// Matches a template with all `tokens`, which come from `source`.
    pub(super) fn find(
        template: &'static str,
        source: &'a str,
        tokens: &'a [Token<'a>],
        scope: &'a Scope,
    ) -> Option<Self> {
        let mut found = Self { scope, source, slots: Vec::new() };
        found.matches(template, tokens).then_some(found)
    }

    fn matches(&mut self, template: &'static str, tokens: &'a [Token<'a>]) -> bool {
        if template.is_empty() {
            return tokens.is_empty();
        }
        let (part, rest) = template.split_once(' ').unwrap_or((template, ""));
        if let Some(slot) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            let taken_before = self.slots.len();
            return ends(slot, tokens, self.scope).into_iter().any(|end| {
                let (taken, ahead) = tokens.split_at(end);
                self.slots.truncate(taken_before);
                self.slots.push((slot, taken));
                self.matches(rest, ahead)
            });
        }
        let (words, is_optional) = part.strip_suffix('?').map_or((part, false), |it| (it, true));
        let taken = tokens.split_first().filter(|(it, _)| words.split('|').any(|w| it.is(&[w])));
        taken.is_some_and(|(_, ahead)| self.matches(rest, ahead))
            || is_optional && self.matches(rest, tokens)
    }

    /// Returns the tokens of a slot; none if the template has no such slot.
    pub(super) fn tokens(&self, slot: &str) -> &'a [Token<'a>] {
        self.slots.iter().find(|(name, _)| *name == slot).map_or(&[], |(_, tokens)| tokens)
    }

    pub(super) fn has(&self, slot: &str) -> bool {
        !self.tokens(slot).is_empty()
    }

    /// Returns the text of a slot: the text of its only token, without quotes, or the source of several tokens.
    pub(super) fn text(&self, slot: &str) -> String {
        match self.tokens(slot) {
            [only] => only.text.into(),
            tokens => source(self.source, tokens).into(),
        }
    }

    /// Returns the text of a slot that has tokens.
    pub(super) fn optional(&self, slot: &str) -> Option<String> {
        self.has(slot).then(|| self.text(slot))
    }

    /// Returns the file that the clause names, or to which "it" refers.
    pub(super) fn path(&self) -> String {
        let is_it = self.tokens("path").iter().any(|token| token.is(&["it", "its"]));
        self.scope.file.clone().filter(|_| is_it).unwrap_or_else(|| self.text("path"))
    }

    /// Returns the agents that the clause names, each once.
    pub(super) fn names(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let tokens = ["names", "name", "leaving"].map(|slot| self.tokens(slot)).concat();
        for name in tokens.iter().filter_map(|token| self.scope.agents(token)).flatten() {
            if !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }

    /// Returns the name and the role of each new teammate.
    pub(super) fn members(&self) -> Vec<(String, String)> {
        let (mut found, mut rest) = (Vec::new(), self.tokens("members"));
        while let Some((first, behind)) = rest.split_first() {
            let (length, role) = role(behind);
            found.extend(first.name().map(|name| (name, source(self.source, role).to_owned())));
            rest = behind.get(length..).unwrap_or_default();
        }
        found
    }

    pub(super) fn remembered(&self) -> Scope {
        let mut after = self.scope.clone();
        let spawned = self.members().into_iter().map(|(name, _)| name);
        let named: Vec<String> = spawned.clone().chain(self.names()).collect();
        after.members.extend(spawned.filter(|name| !self.scope.members.contains(name)));
        after.members.retain(|name| !self.has("leaving") || !named.contains(name));
        if !named.is_empty() {
            after.last = named;
        }
        let paths = self.tokens("path").iter().filter(|path| !path.is(&["it", "its"]));
        let file = paths.chain(self.tokens("order").iter().filter(|it| it.is_path())).next_back();
        after.file = file.map(|file| file.text.to_owned()).or(after.file);
        after
    }
}

/// Returns the numbers of tokens that a slot may take, in the order in which they are tried.
fn ends(slot: &str, tokens: &[Token<'_>], scope: &Scope) -> Vec<usize> {
    let Some(first) = tokens.first() else { return Vec::new() };
    let one = |is_meant: bool| if is_meant { vec![1] } else { Vec::new() };
    let all = |is_meant: bool| if is_meant { vec![tokens.len()] } else { Vec::new() };
    let is_quoted = first.kind == TokenKind::Quoted;
    match slot {
        "name" => one(scope.agents(first).is_some_and(|names| names.len() == 1)),
        "names" | "leaving" => listed(tokens, |item| scope.agents(item.first()?).map(|_| 1)),
        "members" => listed(tokens, |item| {
            let (first, behind) = item.split_first()?;
            first.name().map(|_| 1 + role(behind).0)
        }),
        "path" => {
            one(is_quoted || first.is_path() || first.is(&["it", "its"]) && scope.file.is_some())
        }
        "quoted" => one(is_quoted),
        "task_id" => one(first.text.parse::<u32>().is_ok()),
        "host" => one(first.kind == TokenKind::Word),
        "mode" => one(first.is(&["plan", "default", "accept_edits", "bypass"])),
        "order" if first.is(&GUARDS) => Vec::new(),
        // A quoted text fills the slot alone.
        "command" | "content" | "text" if is_quoted => one(true),
        "command" => all(!tokens.iter().any(|it| it.is(&GUARDS) || it.is(&["then", "and"]))),
        "content" => all(!tokens.iter().any(|it| it.is(&GUARDS))),
        _ => (1..=tokens.len()).collect(),
    }
}

/// Returns the lengths of lists such as `a, b and c`, longest first; `item` returns that of the first item.
fn listed(tokens: &[Token<'_>], item: impl Fn(&[Token<'_>]) -> Option<usize>) -> Vec<usize> {
    let (mut found, mut at) = (Vec::new(), 0);
    let mut ties = 1;
    while let Some(length) = tokens.get(at..).filter(|_| ties > 0).and_then(&item) {
        found.insert(0, at + length);
        let behind = tokens.iter().skip(at + length).take(2);
        ties = behind.take_while(|token| token.is(&[",", "and"])).count();
        at += length + ties;
    }
    found
}

/// Returns the role after a name, such as `(tester)` or `as a tester`: its number of tokens, and its words.
fn role<'a>(behind: &'a [Token<'a>]) -> (usize, &'a [Token<'a>]) {
    let (start, ends, closing): (_, &[&str], _) = match behind {
        [open, ..] if open.is(&["("]) => (1, &[")"], 1),
        [first, second, ..] if first.is(&["as"]) && second.is(&["a", "an"]) => {
            (2, &["and", ",", "in", "on"], 0)
        }
        _ => return (0, &[]),
    };
    let words = behind.get(start..).unwrap_or_default();
    let length = words.iter().position(|token| token.is(ends)).unwrap_or(words.len());
    (behind.len().min(start + length + closing), words.split_at(length).0)
}
