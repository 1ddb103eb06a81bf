//! Secrets and their redaction: a value that is never printed, and a filter for foreign text (error bodies, logs,
//! transcripts).
//!
//! *Invariant:* only [`Secret::reveal`] returns the text of a [`Secret`]. This file does not know the origin of
//! keys.

use std::borrow::Cow;
use std::fmt;

pub(crate) const REDACTED: &str = "[redacted]";

/// The length of the shortest secret that the [`Redactor`] replaces, in characters. Shorter secrets may be words
/// of ordinary text (`none`, `ollama`).
const SHORTEST: usize = 8;

/// A key or token, valid as a header value. `Debug` prints `[redacted]`, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The error for a text that cannot be a header value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it must be visible ASCII on one line, without a newline at its end")]
pub struct NotOneLine;

impl Secret {
    /// Creates a secret. Control characters and those that are not ASCII are refused: no header can carry them.
    pub fn new(text: impl Into<String>) -> Result<Self, NotOneLine> {
        let text = text.into();
        let fits = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if text.bytes().all(fits) { Ok(Self(text)) } else { Err(NotOneLine) }
    }

    /// Returns the text, for the header that carries it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(REDACTED)
    }
}

/// Replaces known secrets, and text in the form of a key, by `[redacted]`, in time linear in the length of the text.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    secrets: Vec<Secret>,
}

impl Redactor {
    /// Creates a filter for these secrets, except for those under eight characters.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let long = secrets.into_iter().filter(|secret| secret.reveal().len() >= SHORTEST);
        Self { secrets: long.collect() }
    }

    /// Redacts known secrets and text in the form of a key; for logs and errors.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        without(text, shapes(text).into_iter().chain(self.known(text)).collect())
    }

    /// Redacts known secrets only; for the agent's work, which may legitimately contain a foreign key.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        without(text, self.known(text).collect())
    }

    /// Redacts the known secrets of a text, and splits off the end if that may be the beginning of a secret. The
    /// caller holds the end back until more text arrives.
    pub fn part(&self, text: &str) -> (String, String) {
        let mut clean = self.hide(text).into_owned();
        let held = clean.split_off(clean.len() - self.begun(&clean));
        (clean, held)
    }

    fn known(&self, text: &str) -> impl Iterator<Item = (usize, usize)> {
        self.secrets.iter().flat_map(move |secret| {
            let found = text.match_indices(secret.reveal());
            found.map(|(at, secret)| (at, at + secret.len()))
        })
    }

    /// Returns the number of bytes at the end of the text that may be the beginning of a known secret.
    fn begun(&self, text: &str) -> usize {
        let begun = self.secrets.iter().filter_map(|secret| {
            let secret = secret.reveal();
            let ends = |length: &usize| secret.get(..*length).is_some_and(|it| text.ends_with(it));
            (1..secret.len()).rev().find(ends)
        });
        begun.max().unwrap_or_default()
    }
}

/// Redacts known secrets in a stream of chunks, across chunk boundaries.
#[derive(Debug)]
pub struct StreamRedactor<'a> {
    redactor: &'a Redactor,
    /// The text that may be the beginning of a secret.
    held: String,
}

impl<'a> StreamRedactor<'a> {
    /// Creates a redactor for a stream.
    pub fn new(redactor: &'a Redactor) -> Self {
        Self { redactor, held: String::new() }
    }

    /// Adds a chunk and returns the text that may be shown, possibly none.
    pub fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let (clean, held) = self.redactor.part(&self.held);
        self.held = held;
        clean
    }

    /// Returns the held-back text at the end of the stream; it contains no complete secret.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

fn without(text: &str, mut spans: Vec<(usize, usize)>) -> Cow<'_, str> {
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    spans.sort_unstable();
    let mut clean = String::with_capacity(text.len());
    let mut done = 0;
    for (start, end) in spans {
        if start >= done {
            clean.push_str(text.get(done..start).unwrap_or_default());
            clean.push_str(REDACTED);
        }
        done = done.max(end);
    }
    clean.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(clean)
}

/// The beginnings of keys, each with the least number of key characters after it.
const SHAPES: [(&str, usize); 13] = [
    ("sk-", 16),
    ("AIza", 35),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("github_pat_", 30),
    ("glpat-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("AKIA", 16),
    ("Bearer ", SHORTEST),
    ("bearer ", SHORTEST),
];

/// Returns the spans of text in the form of a key: one of [`SHAPES`], with a digit among the key characters; not in the
/// middle of a word, as in `task-force`.
fn shapes(text: &str) -> Vec<(usize, usize)> {
    let is_key = |c: char| c.is_ascii_alphanumeric() || "-_.~+/=".contains(c);
    let mut spans = Vec::new();
    for (prefix, least) in SHAPES {
        // Each run of key characters is scanned once, even with many prefixes in it.
        let mut done = 0;
        for (at, _) in text.match_indices(prefix) {
            let start = at + prefix.len();
            let ((before, _), (_, rest)) = (text.split_at(at), text.split_at(start));
            let is_part = !prefix.ends_with(' ');
            let in_word = is_part
                && before.ends_with(|c: char| c.is_ascii_alphanumeric())
                && !rest.starts_with("ant-");
            if at < done || in_word {
                continue;
            }
            let (run, _) = rest.split_at(rest.find(|c| !is_key(c)).unwrap_or(rest.len()));
            done = start + run.len();
            if run.len() >= least && run.contains(|c: char| c.is_ascii_digit()) {
                spans.push((if is_part { at } else { start }, done));
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::processor_time;

    const CANARY: &str = "canary-0123456789";

    fn redactor() -> Redactor {
        Redactor::new([Secret::new(CANARY).unwrap(), Secret::new("none").unwrap()])
    }

    #[test]
    fn a_secret_is_one_line_of_ascii_and_never_prints_itself() {
        for bad in ["a\nb", "a\r\nx-evil: 1", "key\n", "a\0", "ä", "a\tb"] {
            assert_eq!(Secret::new(bad), Err(NotOneLine), "{bad:?}");
        }
        let secret = Secret::new(CANARY).unwrap();
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "[redacted] Some([redacted])");
        assert!(!format!("{:?}", redactor()).contains(CANARY));
    }

    #[test]
    fn known_secrets_and_key_shapes_are_replaced() {
        let table = [
            ("invalid key canary-0123456789!", "invalid key [redacted]!"),
            ("canary-0123456789canary-0123456789", "[redacted][redacted]"),
            ("x sk-ant-api03-AAAA_bbbb-CCCC y", "x [redacted] y"),
            ("Authorization: Bearer abc.DEF/123=", "Authorization: Bearer [redacted]"),
            ("'api_key:AIzaSyA0123456789-abcdefghijklmnopqrst_u'", "'api_key:[redacted]'"),
            ("AIzawa and AIzaSyA0123456789", "AIzawa and AIzaSyA0123456789"),
            ("ghp_0123456789abcdefABCDEF0123456789abcd, xoxb-1", "[redacted], xoxb-1"),
            ("a bearer token is needed", "a bearer token is needed"),
            ("sk-canary-0123456789", "[redacted]"),
            ("task-0-orchestration-service", "task-0-orchestration-service"),
            ("ask-me-anything-2026-11-22", "ask-me-anything-2026-11-22"),
            ("sk-learn and none, Bearer of news", "sk-learn and none, Bearer of news"),
            ("grüße sk-ant-0123456789abcdef™", "grüße [redacted]™"),
        ];
        for (text, clean) in table {
            assert_eq!(redactor().redact(text), clean, "{text}");
        }
        let foreign = format!("{CANARY}, sk-ant-0123456789abcdef");
        assert_eq!(redactor().hide(&foreign), "[redacted], sk-ant-0123456789abcdef");
    }

    #[test]
    fn a_stream_redactor_hides_secrets_across_chunks() {
        let redactor = redactor();
        let text = format!("cana{CANARY}{CANARY} grüße, canary-01234567 no, {CANARY}");
        for size in 1..text.chars().count() {
            let letters: Vec<char> = text.chars().collect();
            let mut stream = StreamRedactor::new(&redactor);
            let pieces = letters.chunks(size).map(|part| part.iter().collect::<String>());
            let mut shown: String = pieces.map(|piece| stream.push(&piece)).collect();
            shown.push_str(&stream.finish());
            assert_eq!(shown, redactor.hide(&text), "pieces of {size}");
        }
        let mut stream = StreamRedactor::new(&redactor);
        assert_eq!(stream.push("nothing to hide"), "nothing to hide", "nothing is held back");
    }

    #[test]
    fn hostile_text_takes_linear_time() {
        let redactor = redactor();
        let longest = redactor.redact(&("sk-".repeat(2_000_000) + "1")).len();
        assert_eq!(longest, REDACTED.len());
        let seconds = |text: &str, times: usize| {
            let (start, text) = (processor_time(), text.repeat(times));
            drop(redactor.redact(&text));
            processor_time().since(start).as_secs_f64()
        };
        for text in ["sk-", "AIza", "Bearer ", "canary-012345678"] {
            let growth = seconds(text, 400_000) / seconds(text, 20_000);
            assert!(growth < 100.0, "20 times the text, {growth:.0} times the time: {text}");
        }
    }
}
