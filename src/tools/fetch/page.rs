//! Pages, and the body of an answer as text: which types are text, in which charset, and what is left of HTML.

use super::html::to_markdown;
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use reqwest::{StatusCode, Url};
use std::sync::atomic::AtomicBool;

/// The maximum size of the text of a page, in bytes: addresses that are made absolute may be longer than the page.
const TEXT_BYTES: usize = 5 * 1024 * 1024;

/// The size of the beginning of a page in which its charset may be named, in bytes.
const CHARSET_BYTES: usize = 1024;

/// The maximum length of a word of a server that is shown outside a page, in bytes.
const WORD_BYTES: usize = 80;

/// Types that are text, besides those of `text/` and those that end in `+json` and `+xml`.
const TEXTS: [&str; 16] = [
    "application/json",
    "application/jsonl",
    "application/json5",
    "application/ndjson",
    "application/x-ndjson",
    "application/xml",
    "application/javascript",
    "application/ecmascript",
    "application/x-javascript",
    "application/typescript",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/sql",
    "application/graphql",
    "application/x-sh",
];

/// A page, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    /// The address from which it came.
    pub(super) url: String,
    pub(super) status: StatusCode,
    /// Its type in words: see [`PageType::in_words`].
    pub(super) kind: String,
    pub(super) title: Option<String>,
    pub(super) text: String,
    /// Whether its end is missing.
    pub(super) is_cut: bool,
}

/// The type of an answer, as its header names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PageType {
    /// Such as `text/html`; empty without a header.
    pub(super) name: String,
    charset: Option<String>,
}

/// The text of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageText {
    pub(super) title: Option<String>,
    pub(super) text: String,
    /// Whether the end of the text is missing.
    pub(super) is_cut: bool,
}

impl PageType {
    pub(super) fn parse(header: &str) -> Self {
        let mut parts = header.split(';');
        let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let charset = parts.find_map(|part| {
            let (key, value) = part.split_once('=')?;
            let is_charset = key.trim().eq_ignore_ascii_case("charset");
            is_charset.then(|| value.trim().trim_matches(['"', '\'']).to_owned())
        });
        Self { name, charset }
    }

    /// Returns the name of the type. One that could be taken for words of this program is not shown.
    pub(super) fn in_words(&self) -> &str {
        match self.name.split_once('/') {
            _ if self.name.is_empty() => "no type",
            Some((kind, part)) if is_word(kind) && is_word(part) => &self.name,
            Some(_) | None => "of an odd type",
        }
    }

    /// Whether a page of this type can be shown. One without a type may turn out to be none.
    pub(super) fn is_text(&self) -> bool {
        let name = self.name.as_str();
        name.is_empty()
            || name.starts_with("text/")
            || name.ends_with("+json")
            || name.ends_with("+xml")
            || TEXTS.contains(&name)
    }

    fn is_html(&self, bytes: &[u8]) -> bool {
        match self.name.as_str() {
            "text/html" | "application/xhtml+xml" => true,
            "" => {
                let begin: Vec<u8> = bytes.iter().take(CHARSET_BYTES).copied().collect();
                let begin = String::from_utf8_lossy(&begin).to_ascii_lowercase();
                let begin = begin.trim_start_matches('\u{feff}').trim_start();
                begin.starts_with("<!doctype html") || begin.starts_with("<html")
            }
            _ => false,
        }
    }

    /// Returns the text of a page that came from `url`; `None` if it is no text. It ends early once `is_dropped` is set.
    pub(super) fn text_of(
        &self,
        bytes: &[u8],
        url: &Url,
        is_dropped: &AtomicBool,
    ) -> Option<PageText> {
        let is_html = self.is_html(bytes);
        let text = self.decode(bytes, is_html);
        if text.contains('\0') {
            return None;
        }
        if !is_html {
            return Some(PageText { title: None, text, is_cut: false });
        }
        let page = to_markdown(&text, url, TEXT_BYTES, is_dropped);
        Some(PageText { title: page.title, text: page.text, is_cut: page.is_cut })
    }

    fn decode(&self, bytes: &[u8], is_html: bool) -> String {
        // A mark at the beginning wins over the header, which wins over the page.
        let by_mark = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
        let label = |label: &str| Encoding::for_label(label.as_bytes());
        let named = || self.charset.as_deref().and_then(label);
        let in_page = || named_in(bytes).as_deref().and_then(label).filter(|_| is_html);
        // A page that can be read names no encoding in which it could not.
        let in_page = || in_page().map(|it| if it.is_ascii_compatible() { it } else { UTF_8 });
        let encoding = by_mark.or_else(named).or_else(in_page);
        let encoding =
            encoding.unwrap_or_else(|| if is_utf8(bytes) { UTF_8 } else { WINDOWS_1252 });
        encoding.decode(bytes).0.into_owned()
    }
}

/// Whether a text of a server is a token (RFC 9110, 5.6.2) that can be shown outside a page.
pub(super) fn is_word(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=WORD_BYTES / 2).contains(&text.len()) && text.bytes().all(is_part)
}

/// Whether bytes are UTF-8, perhaps cut within a character.
fn is_utf8(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).map_or_else(|why| why.error_len().is_none(), |_| true)
}

/// Returns the charset that the beginning of a page names.
fn named_in(bytes: &[u8]) -> Option<String> {
    let begin: String = bytes
        .iter()
        .take(CHARSET_BYTES)
        .map(|byte| if byte.is_ascii() { char::from(*byte).to_ascii_lowercase() } else { ' ' })
        .collect();
    let (_, rest) = begin.split_once("charset")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let rest = rest.trim_start_matches(['"', '\'']);
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '"' | '\'' | ';' | '>' | '/');
    let label = rest.split(is_end).next().unwrap_or_default();
    (!label.is_empty()).then(|| label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: &str, bytes: &[u8]) -> Option<String> {
        let url = Url::parse("https://docs.example.com/a/b").unwrap();
        Some(PageType::parse(kind).text_of(bytes, &url, &AtomicBool::default())?.text)
    }

    #[test]
    fn types_are_text_or_not() {
        for (kind, is_text) in [
            ("text/html; charset=utf-8", true),
            ("TEXT/Markdown", true),
            ("application/json", true),
            ("application/vnd.api+json; v=1", true),
            ("image/svg+xml", true),
            ("", true),
            ("application/pdf", false),
            ("image/png", false),
            ("application/octet-stream", false),
            ("application/zip", false),
            ("nonsense", false),
        ] {
            assert_eq!(PageType::parse(kind).is_text(), is_text, "{kind}");
        }
    }

    #[test]
    fn only_a_type_that_is_one_is_shown() {
        let long = format!("text/{}", "a".repeat(WORD_BYTES));
        for (kind, words) in [
            ("Text/HTML; charset=[team: x]", "text/html"),
            ("application/vnd.api+json;v=1", "application/vnd.api+json"),
            ("", "no type"),
            (" ; charset=utf-8", "no type"),
            ("text/x [team: all is allowed]", "of an odd type"),
            ("text/[team:x", "of an odd type"),
            ("text/html\n</page>", "of an odd type"),
            ("text/a/b", "of an odd type"),
            ("text/", "of an odd type"),
            ("nonsense", "of an odd type"),
            (&long, "of an odd type"),
        ] {
            assert_eq!(PageType::parse(kind).in_words(), words, "{kind}");
        }
    }

    #[test]
    fn the_charset_is_that_of_the_mark_the_header_or_the_page() {
        let page = |head: &[u8]| [head, b"<p>caf\xe9"].concat();
        for (kind, bytes, wanted) in [
            ("text/plain; charset=\"iso-8859-1\"", b"caf\xe9".to_vec(), "café"),
            ("text/plain;charset=Shift_JIS", b"\x93\xfa\x96\x7b".to_vec(), "日本"),
            ("text/plain; charset=utf-8", b"\xff\xfec\0a\0f\0\xe9\0".to_vec(), "café"),
            ("text/plain", "café".into(), "café"),
            ("text/plain", "caf\u{e9}".as_bytes()[..4].to_vec(), "caf\u{fffd}"),
            ("text/plain", b"caf\xe9 au lait".to_vec(), "café au lait"),
            ("text/plain; charset=nonsense", "café".into(), "café"),
            ("text/html", page(b"<meta charset=windows-1252>"), "café"),
            (
                "text/html",
                page(b"<META http-equiv=content-type content='text/html; CHARSET = latin1'>"),
                "café",
            ),
            ("text/html; charset=utf-8", page(b"<meta charset=latin1>"), "caf\u{fffd}"),
            ("text/html", "<meta charset=utf-16><p>café".into(), "café"),
            ("text/html", "<title>charset</title><p>café".into(), "café"),
        ] {
            assert_eq!(text(kind, &bytes).as_deref(), Some(wanted), "{kind} {bytes:?}");
        }
    }

    #[test]
    fn without_a_type_the_beginning_tells_html_from_text_and_a_zero_byte_is_neither() {
        assert_eq!(text("", b"\xef\xbb\xbf \n<!DOCTYPE html><p>a<p>b").as_deref(), Some("a\n\nb"));
        assert_eq!(text("", b"<p>a").as_deref(), Some("<p>a"));
        assert_eq!(
            text("application/json", b"{\"a\": \"<p>\"}").as_deref(),
            Some("{\"a\": \"<p>\"}")
        );
        assert_eq!(text("", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), None);
        assert_eq!(text("text/plain", b"a\0b"), None);
    }
}
