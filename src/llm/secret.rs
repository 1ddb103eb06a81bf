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

    /// Redacts known secrets, text in the form of a key, and passwords in addresses; for logs, errors and exports.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let foreign = shapes(text).into_iter().chain(passwords(text));
        without(text, foreign.chain(self.known(text)).collect())
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

/// The characters of a key after its beginning.
#[derive(Debug, Clone, Copy)]
enum KeyChars {
    /// Letters, digits and the signs of encodings.
    Any,
    /// Letters and digits: a name of several words is no key.
    Alphanumeric,
    /// Capitals and digits, as many as given and no more.
    Capitals,
}

impl KeyChars {
    fn has(self, c: char) -> bool {
        match self {
            Self::Any => c.is_ascii_alphanumeric() || "-_.~+/=".contains(c),
            Self::Alphanumeric => c.is_ascii_alphanumeric(),
            Self::Capitals => c.is_ascii_uppercase() || c.is_ascii_digit(),
        }
    }

    /// Whether so many characters are a key, before this text.
    fn fits(self, length: usize, least: usize, after: &str) -> bool {
        match self {
            Self::Any | Self::Alphanumeric => length >= least,
            Self::Capitals => {
                length == least && !after.starts_with(|c: char| c.is_ascii_alphanumeric())
            }
        }
    }
}

/// The beginnings of keys, each with the least number of key characters after it, and these characters.
const SHAPES: [(&str, usize, KeyChars); 21] = [
    ("sk-", 16, KeyChars::Any),
    ("AIza", 35, KeyChars::Any),
    ("ghp_", 30, KeyChars::Any),
    ("gho_", 30, KeyChars::Any),
    ("ghu_", 30, KeyChars::Any),
    ("ghs_", 30, KeyChars::Any),
    ("ghr_", 30, KeyChars::Any),
    ("github_pat_", 30, KeyChars::Any),
    ("glpat-", 16, KeyChars::Any),
    ("xoxb-", 16, KeyChars::Any),
    ("xoxp-", 16, KeyChars::Any),
    ("gsk_", 30, KeyChars::Alphanumeric),
    ("xai-", 30, KeyChars::Alphanumeric),
    ("hf_", 30, KeyChars::Alphanumeric),
    ("npm_", 30, KeyChars::Alphanumeric),
    ("sk_live_", 16, KeyChars::Alphanumeric),
    ("rk_live_", 16, KeyChars::Alphanumeric),
    ("AKIA", 16, KeyChars::Capitals),
    ("ASIA", 16, KeyChars::Capitals),
    ("Bearer ", SHORTEST, KeyChars::Any),
    ("bearer ", SHORTEST, KeyChars::Any),
];

/// Returns the spans of text in the form of a key: one of [`SHAPES`], with a digit among the key characters; not in the
/// middle of a word, as in `task-force`.
fn shapes(text: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    for (prefix, least, chars) in SHAPES {
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
            let (run, after) = rest.split_at(rest.find(|c| !chars.has(c)).unwrap_or(rest.len()));
            done = start + run.len();
            let has_digit = run.contains(|c: char| c.is_ascii_digit());
            if has_digit && chars.fits(run.len(), least, after) {
                spans.push((if is_part { at } else { start }, done));
            }
        }
    }
    spans
}

/// Returns the spans of passwords in addresses: `scheme://user:PASSWORD@host`.
fn passwords(text: &str) -> Vec<(usize, usize)> {
    let is_end = |c: char| c.is_whitespace() || "/?#\"'`<>\\".contains(c);
    let password = |(at, mark): (usize, &str)| {
        let (scheme, start) = (text.get(..at)?, at + mark.len());
        let rest = text.get(start..)?;
        let authority = rest.get(..rest.find(is_end).unwrap_or(rest.len()))?;
        let (user, _) = authority.rsplit_once('@')?;
        let (name, password) = user.split_once(':')?;
        let is_address = scheme.ends_with(|c: char| c.is_ascii_alphanumeric());
        let begin = start + name.len() + 1;
        (is_address && !password.is_empty()).then(|| (begin, begin + password.len()))
    };
    text.match_indices("://").filter_map(password).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::processor_time;
    use proptest::prelude::*;

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
            ("key=AKIA0123456789ABCDEF;", "key=[redacted];"),
            (
                "ASIA0123456789ABCDEF0 AKIA-2026-11-ORDERS-01",
                "ASIA0123456789ABCDEF0 AKIA-2026-11-ORDERS-01",
            ),
            ("hf_model_name_of_many_words_version_2", "hf_model_name_of_many_words_version_2"),
            ("postgres://ann:p@ss:1@db:5432/x", "postgres://ann:[redacted]@db:5432/x"),
            ("\"https://:t0ken@host\"", "\"https://:[redacted]@host\""),
            (
                "http://host:8080/@ann and ssh://git@host:22",
                "http://host:8080/@ann and ssh://git@host:22",
            ),
            ("http://a:1 b@c, ://a:b@c, ann:b@c", "http://a:1 b@c, ://a:b@c, ann:b@c"),
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

    /// Words of which names and paths are made; some are the beginnings of keys.
    const WORDS: [&str; 12] = [
        "src", "disk", "task", "hf", "npm", "gsk", "xai", "live", "ASIA", "AKIA", "glpat", "model",
    ];

    proptest! {
        /// Hashes, ids, versions, names, paths and addresses are no keys.
        #[test]
        fn normal_text_is_not_touched(
            words in proptest::collection::vec(
                (proptest::sample::select(&WORDS[..]), "[0-9a-f]{0,8}", "[/_.:]"), 1..12),
            hash in "[0-9a-f]{7,64}",
            id in "(toolu_|call_|msg_|user:|req-)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{12}",
            digest in "sha256-[0-9A-Fa-f]{43}=",
            port in 1_u16..,
        ) {
            let names: String = words.iter().flat_map(|(word, hex, mark)| [*word, hex.as_str(), mark.as_str()]).collect();
            let text = format!("{names} {hash} {id} {digest} http://ann@host:{port}/{names}@{hash}");
            prop_assert_eq!(redactor().redact(&text), text.as_str());
        }

        /// A key is found at any place where a word may begin.
        #[test]
        fn a_key_is_redacted_wherever_it_stands(
            key in "(gsk_|hf_|npm_)[A-Za-z0-9]{29}[0-9]|(sk|rk)_live_[A-Za-z0-9]{23}[0-9]|xai-[A-Za-z0-9]{79}[0-9]\
                    |(AKIA|ASIA)[A-Z0-9]{15}[0-9]|glpat-[A-Za-z0-9_-]{19}[0-9]|(ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{35}[0-9]\
                    |github_pat_[A-Za-z0-9_]{81}[0-9]",
            before in "|[ \"'=/(,:\n-]|KEY=|ü",
            after in "|[ \"'),;\n]",
        ) {
            let text = format!("{before}{key}{after}");
            prop_assert_eq!(redactor().redact(&text), format!("{before}{REDACTED}{after}"));
        }

        #[test]
        fn a_password_in_an_address_is_redacted(
            user in "[a-z0-9._%-]{0,12}",
            password in "[A-Za-z0-9!$%&()*+,.:;=@~_-]{1,30}",
            host in "[a-z0-9.-]{1,20}(:[0-9]{1,5})?",
        ) {
            let text = format!("see <https://{user}:{password}@{host}/x>");
            prop_assert_eq!(redactor().redact(&text), format!("see <https://{user}:[redacted]@{host}/x>"));
        }
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
        for text in ["sk-", "AIza", "Bearer ", "canary-012345678", "hf_0", "a://b:", "://@"] {
            let growth = seconds(text, 400_000) / seconds(text, 20_000);
            assert!(growth < 100.0, "20 times the text, {growth:.0} times the time: {text}");
        }
    }
}
