//! Text of any length in bounded memory: its beginning, its end, and how much is missing between. Where the
//! whole of it goes is known to [`StoredOutput`].

use super::output_store::{OutputStore, StoredOutput};
use std::collections::VecDeque;

/// Characters kept of the beginning.
const HEAD: usize = crate::wire::limits::OUTPUT_CHARS / 2;
/// Characters kept of the end.
const TAIL: usize = crate::wire::limits::OUTPUT_CHARS / 2;
/// What of them gives way to the note when something was cut, so that all stays within 50,000.
const NOTE: usize = 600;

/// Collects output; what a model is shown of it comes out of [`Capped::finish`].
#[derive(Debug, Default)]
pub(crate) struct Capped {
    head: String,
    in_head: usize,
    tail: VecDeque<char>,
    total: usize,
    /// The first bytes of a character whose others are still to come.
    torn: Vec<u8>,
    /// Keeps the whole.
    keeping: Option<StoredOutput>,
}

impl Capped {
    /// What is too long to be shown is kept.
    pub(super) fn kept_by(output_store: &OutputStore) -> Self {
        Self { keeping: Some(output_store.keeping()), ..Self::default() }
    }

    /// Takes in bytes, cut anywhere; what is not UTF-8 is replaced.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut torn = std::mem::take(&mut self.torn);
        torn.extend_from_slice(bytes);
        let mut rest = torn.as_slice();
        while let Err(why) = std::str::from_utf8(rest) {
            let (good, bad) = rest.split_at(why.valid_up_to());
            self.push_text(&String::from_utf8_lossy(good));
            let Some(length) = why.error_len() else {
                self.torn = bad.to_vec();
                return;
            };
            self.push_text("\u{fffd}");
            rest = bad.split_at(length).1;
        }
        self.push_text(&String::from_utf8_lossy(rest));
    }

    /// Takes in text.
    pub(crate) fn push_text(&mut self, text: &str) {
        let room = HEAD - self.in_head;
        let split = text.char_indices().nth(room).map_or(text.len(), |(at, _)| at);
        let (head, rest) = text.split_at(split);
        let (head_length, rest_length) = (head.chars().count(), rest.chars().count());
        self.keep(text, head_length + rest_length);
        self.head.push_str(head);
        self.in_head += head_length;
        self.total += head_length + rest_length;
        if rest_length >= TAIL {
            self.tail.clear();
        }
        self.tail.extend(rest.chars().skip(rest_length.saturating_sub(TAIL)));
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }

    /// Keeps more text, of so many characters; at first all that came before it.
    fn keep(&mut self, text: &str, length: usize) {
        let Some(keeping) = &mut self.keeping else { return };
        if self.total + length <= HEAD + TAIL {
            return;
        }
        if self.total <= HEAD + TAIL {
            // Nothing of it is missing yet.
            keeping.push(&self.head);
            keeping.push(&self.tail.iter().collect::<String>());
        }
        keeping.push(text);
    }

    /// What is shown; 50,000 characters at most, and room for a line below it when something was cut.
    pub(crate) fn finish(mut self) -> String {
        if !self.torn.is_empty() {
            self.torn.clear();
            self.push_text("\u{fffd}");
        }
        let mut shown = self.head;
        if self.total > HEAD + TAIL {
            let cut = self.total - HEAD - (TAIL - NOTE);
            let usual = || "ask for less at a time".to_owned();
            let advice = self.keeping.take().map_or_else(usual, StoredOutput::finish);
            let note = format!("\n[... {cut} characters cut here; {advice} ...]\n");
            shown.push_str(&note);
            self.tail.drain(..NOTE);
        }
        shown.extend(self.tail);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::TeamDir;
    use crate::wire::AgentName;
    use proptest::prelude::*;

    fn shown(pieces: &[&[u8]]) -> String {
        let mut capped = Capped::default();
        for piece in pieces {
            capped.push(piece);
        }
        capped.finish()
    }

    #[test]
    fn what_fits_is_shown_whole() {
        let text = "ä".repeat(50_000);
        assert_eq!(shown(&[text.as_bytes()]), text);
    }

    #[test]
    fn one_character_more_and_the_middle_goes() {
        let text = format!("BEGIN{}END", "x".repeat(49_993));
        let shown = shown(&[text.as_bytes()]);
        assert!(shown.starts_with("BEGIN") && shown.ends_with("END"));
        assert!(shown.contains("[... 601 characters cut here"), "{}", &shown[24_990..25_100]);
        assert!(shown.chars().count() <= 50_000);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(shown(&[b"a\xffb\xc3"]), "a\u{fffd}b\u{fffd}");
    }

    fn output_store(dir: &TeamDir) -> OutputStore {
        let secret = "canary";
        OutputStore::new(dir.clone(), AgentName::member("alice").unwrap(), move |text| {
            let clean = text.replace(secret, "[redacted]");
            let begun = (1..secret.len()).rev().find(|length| clean.ends_with(&secret[..*length]));
            let held = clean.len() - begun.unwrap_or_default();
            (clean[..held].to_owned(), clean[held..].to_owned())
        })
    }

    #[test]
    fn the_whole_is_kept_without_secrets_and_said_where() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        let keep = |pieces: &[&str]| {
            let mut capped = Capped::kept_by(&output_store(&dir));
            for piece in pieces {
                capped.push(piece.as_bytes());
            }
            capped.finish()
        };
        let long = "xä".repeat(24_999);
        assert_eq!(keep(&[&long, "ab"]), format!("{long}ab"));
        let path = folder.path().join(".team/log/.out/alice-1.txt");
        assert!(!path.exists(), "what fits is not kept");
        let shown = keep(&[&long, "1 cana", "ry 2", &long, "3 cana"]);
        assert!(shown.chars().count() <= 50_000);
        assert!(shown.contains(" in .team/log/.out/alice-1.txt (until 16 later ones)"), "{shown}");
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept, format!("{long}1 [redacted] 2{long}3 cana"));
        let shown = keep(&[&long.repeat(300)]);
        assert!(shown.contains("its first 8 MiB are in .team/log/.out/alice-2.txt"));
    }

    #[test]
    fn what_cannot_be_kept_is_shown_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
        std::fs::remove_dir(folder.path().join(".team/log/.out")).unwrap();
        let mut capped = Capped::kept_by(&output_store(&dir));
        capped.push("x".repeat(60_000).as_bytes());
        let shown = capped.finish();
        assert!(shown.contains("the whole could not be kept; ask for less"), "{shown}");
        assert!(shown.chars().count() <= 50_000);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..200usize) {
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            let whole = String::from_utf8_lossy(&bytes).into_owned();
            prop_assert_eq!(shown(&[one, two]), whole);
        }

        #[test]
        fn any_length_is_counted_right(lengths in proptest::collection::vec(0..40_000usize, 0..6)) {
            let mut capped = Capped::default();
            for (i, length) in lengths.iter().enumerate() {
                capped.push(["a", "ö", "€"][i % 3].repeat(*length).as_bytes());
            }
            let total: usize = lengths.iter().sum();
            let shown = capped.finish();
            prop_assert!(shown.chars().count() <= 50_000);
            if total > 50_000 {
                let note = format!("[... {} characters cut here", total - 49_400);
                prop_assert!(shown.contains(&note));
            } else {
                prop_assert_eq!(shown.chars().count(), total);
            }
        }
    }
}
