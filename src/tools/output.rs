//! Text of any length in bounded memory: its beginning, its end, and how much is missing between.

use std::collections::VecDeque;

/// Characters kept of the beginning.
const HEAD: usize = 25_000;
/// Characters kept of the end.
const TAIL: usize = 25_000;
/// What of them gives way to the note when something was cut, so that all stays within 50,000.
const NOTE: usize = 250;

/// Collects output; what a model is shown of it comes out of [`Capped::finish`].
#[derive(Debug, Default)]
pub(crate) struct Capped {
    head: String,
    in_head: usize,
    tail: VecDeque<char>,
    total: usize,
    /// The first bytes of a character whose others are still to come.
    torn: Vec<u8>,
}

impl Capped {
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
        self.head.push_str(head);
        let (head, rest_length) = (head.chars().count(), rest.chars().count());
        self.in_head += head;
        self.total += head + rest_length;
        if rest_length >= TAIL {
            self.tail.clear();
        }
        self.tail.extend(rest.chars().skip(rest_length.saturating_sub(TAIL)));
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
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
            let advice = "to see them, ask for less at a time";
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
        assert!(shown.contains("[... 251 characters cut here"), "{}", &shown[24_990..25_100]);
        assert!(shown.chars().count() <= 50_000);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(shown(&[b"a\xffb\xc3"]), "a\u{fffd}b\u{fffd}");
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
                let note = format!("[... {} characters cut here", total - 49_750);
                prop_assert!(shown.contains(&note));
            } else {
                prop_assert_eq!(shown.chars().count(), total);
            }
        }
    }
}
