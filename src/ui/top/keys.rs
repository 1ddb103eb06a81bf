//! Keys, and the bytes that a terminal sends for them.

use ratatui::layout::Rect;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Enter,
    Esc,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Backspace,
    /// Ctrl-U.
    EraseLine,
    /// Ctrl-D.
    EndOfInput,
    /// Ctrl-C.
    Interrupt,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    Key(Key),
    Paste(String),
    /// The terminal has this size from now on.
    Resize(Rect),
}

const PASTE: &[u8] = b"\x1b[200~";
const PASTED: &[u8] = b"\x1b[201~";

/// The maximum length of a paste without an end, in bytes.
const LONGEST_PASTE: usize = 1024 * 1024;

/// The decoder of bytes to keys. The bytes may be split anywhere except after ESC: an ESC at the end is the key.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// Adds bytes and returns the inputs that are complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Input> {
        self.pending.extend(bytes);
        let mut found = Vec::new();
        while let Some((input, length)) = first(&self.pending) {
            self.pending.drain(..length.min(self.pending.len()));
            found.extend(input);
        }
        found
    }
}

/// Returns the first input, if it is a known key, and its length in bytes; `None` until it is complete.
fn first(bytes: &[u8]) -> Option<(Option<Input>, usize)> {
    if let Some(text) = bytes.strip_prefix(PASTE) {
        let end = text.windows(PASTED.len()).position(|end| end == PASTED);
        let end = end.or_else(|| (text.len() > LONGEST_PASTE).then_some(text.len()))?;
        let pasted = String::from_utf8_lossy(text.get(..end).unwrap_or_default());
        return Some((Some(Input::Paste(pasted.into())), PASTE.len() + end + PASTED.len()));
    }
    let key = match bytes {
        [] => return None,
        [0x1b, b'[' | b'O', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
            let key = sequence(rest.get(..=end).unwrap_or_default());
            return Some((key.map(Input::Key), end + 3));
        }
        [0x1b, ..] => Key::Esc,
        [b'\r' | b'\n', ..] => Key::Enter,
        [b'\t', ..] => Key::Tab,
        [0x7f | 0x08, ..] => Key::Backspace,
        [0x03, ..] => Key::Interrupt,
        [0x04, ..] => Key::EndOfInput,
        [0x15, ..] => Key::EraseLine,
        [0x00..=0x1f, ..] => return Some((None, 1)),
        _ => return character(bytes),
    };
    Some((Some(Input::Key(key)), 1))
}

/// Returns the key for the bytes after ESC and `[` or `O`.
fn sequence(text: &[u8]) -> Option<Key> {
    Some(match text {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"C" => Key::Right,
        b"D" => Key::Left,
        b"H" | b"1~" | b"7~" => Key::Home,
        b"F" | b"4~" | b"8~" => Key::End,
        b"Z" => Key::BackTab,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        _ => return None,
    })
}

fn character(bytes: &[u8]) -> Option<(Option<Input>, usize)> {
    let head = bytes.get(..bytes.len().min(4)).unwrap_or_default();
    let chunk = head.utf8_chunks().next()?;
    if let Some(c) = chunk.valid().chars().next() {
        return Some((Some(Input::Key(Key::Char(c))), c.len_utf8()));
    }
    // The start of an incomplete character waits for its other bytes.
    let length = std::str::from_utf8(head).err()?.error_len()?;
    Some((None, length))
}

impl Key {
    pub(super) fn edit(self, line: &mut String) {
        if let Self::Char(c) = self {
            line.push(c);
        } else if self == Self::Backspace {
            line.pop();
        } else if self == Self::EraseLine {
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_of_each_key_are_decoded() {
        let cases: [(&[u8], &[Key]); 9] = [
            (b"\x1b[A", &[Key::Up]),
            (b"\x1bOB", &[Key::Down]),
            (b"\x1b[6~", &[Key::PageDown]),
            (b"\x1b[Z", &[Key::BackTab]),
            (b"\x1b", &[Key::Esc]),
            (b"\x04\x15", &[Key::EndOfInput, Key::EraseLine]),
            ("é".as_bytes(), &[Key::Char('é')]),
            (b"\x1b[1;5D\x01\xff", &[]),
            (b"\x1bq", &[Key::Esc, Key::Char('q')]),
        ];
        for (bytes, keys) in cases {
            let wanted: Vec<Input> = keys.iter().copied().map(Input::Key).collect();
            assert_eq!(Decoder::default().feed(bytes), wanted, "{bytes:?}");
        }
        let pasted = Decoder::default().feed(b"\x1b[200~q\ny\x1b[201~\x03");
        assert_eq!(pasted.first(), Some(&Input::Paste("q\ny".into())));
    }

    #[test]
    fn split_input_is_reassembled() {
        let mut decoder = Decoder::default();
        for (piece, count) in [(&b"\xc3"[..], 0), (b"\xa9", 1), (b"\x1b[", 0), (b"B", 1)] {
            assert_eq!(decoder.feed(piece).len(), count, "{piece:?}");
        }
        assert_eq!(decoder.feed(b"\x1b[200~one"), []);
        assert_eq!(decoder.feed(b" two\x1b[201~"), [Input::Paste("one two".into())]);
    }

    proptest! {
        #[test]
        fn typed_text_comes_through_whatever_came_before(
            noise in proptest::collection::vec(any::<u8>(), 0..20), text in "[a-zé日]{1,9}",
        ) {
            let mut decoder = Decoder::default();
            decoder.feed(&noise);
            // Ends a paste, then a sequence, that the random bytes may have started.
            decoder.feed(PASTED);
            decoder.feed(b"~~");
            let typed = decoder.feed(text.as_bytes());
            let wanted: Vec<Input> = text.chars().map(|c| Input::Key(Key::Char(c))).collect();
            prop_assert_eq!(typed, wanted);
        }
    }
}
