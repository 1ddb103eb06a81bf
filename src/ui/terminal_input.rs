//! The bytes that a terminal sends, decoded to keys, pastes and changes of focus.

use ratatui_textarea::Key;
pub(crate) use ratatui_textarea::{Input as KeyPress, Key as KeyCode};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TerminalInput {
    Key(KeyPress),
    Paste(String),
    /// Whether the terminal's window has the focus from now on.
    Focus(bool),
}

const PASTE: &[u8] = b"\x1b[200~";
const PASTED: &[u8] = b"\x1b[201~";

/// The keys that mean something with Alt, which sends Esc before them.
const WITH_ALT: &[u8] = b"ynabfdh<>\r\n\x7f\x08";

/// The maximum length of a paste without an end, in bytes.
const LONGEST_PASTE: usize = 1024 * 1024;

/// The decoder. The bytes may be split anywhere except after ESC: an ESC at the end is the key.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// Adds bytes and returns the inputs that are complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<TerminalInput> {
        self.pending.extend(bytes);
        let mut found = Vec::new();
        while let Some((input, length)) = first(&self.pending) {
            self.pending.drain(..length.min(self.pending.len()));
            found.extend(input);
        }
        found
    }
}

type Found = (Option<TerminalInput>, usize);

/// Returns the first input, if it is a known one, and its length in bytes; `None` until it is complete.
fn first(bytes: &[u8]) -> Option<Found> {
    if let Some(text) = bytes.strip_prefix(PASTE) {
        let end = text.windows(PASTED.len()).position(|end| end == PASTED);
        let end = end.or_else(|| (text.len() > LONGEST_PASTE).then_some(text.len()))?;
        let pasted = String::from_utf8_lossy(text.get(..end).unwrap_or_default());
        let pasted = pasted.replace("\r\n", "\n").replace('\r', "\n");
        return Some((Some(TerminalInput::Paste(pasted)), PASTE.len() + end + PASTED.len()));
    }
    match bytes {
        [] => None,
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
            Some((sequence(rest.get(..=end).unwrap_or_default()), end + 3))
        }
        [0x1b, b'O', rest @ ..] => {
            let letter = rest.first()?;
            Some((sequence(&[*letter]), 3))
        }
        // Esc and a key that were pressed one after the other: only these keys mean something with Alt.
        [0x1b, key, ..] if !WITH_ALT.contains(key) => Some((Some(plain(Key::Esc)), 1)),
        [0x1b] => Some((Some(plain(Key::Esc)), 1)),
        [0x1b, rest @ ..] => {
            let (input, length) = single(rest)?;
            let with_alt = |input| match input {
                TerminalInput::Key(key) => TerminalInput::Key(KeyPress { alt: true, ..key }),
                other @ (TerminalInput::Paste(_) | TerminalInput::Focus(_)) => other,
            };
            Some((input.map(with_alt), length + 1))
        }
        _ => single(bytes),
    }
}

fn plain(key: Key) -> TerminalInput {
    TerminalInput::Key(KeyPress { key, ..KeyPress::default() })
}

/// Returns the key of the first character.
fn single(bytes: &[u8]) -> Option<Found> {
    let ctrl = |byte: u8| {
        let key = Key::Char(char::from(byte));
        TerminalInput::Key(KeyPress { key, ctrl: true, ..KeyPress::default() })
    };
    let input = match bytes {
        [] => return None,
        [b'\r' | b'\n', ..] => plain(Key::Enter),
        [b'\t', ..] => plain(Key::Tab),
        [0x7f | 0x08, ..] => plain(Key::Backspace),
        [0, ..] => return Some((None, 1)),
        [byte @ 0x01..=0x1a, ..] => ctrl(byte + b'a' - 1),
        [byte @ 0x1c..=0x1f, ..] => ctrl(byte + b'@'),
        _ => return character(bytes),
    };
    Some((Some(input), 1))
}

/// Returns the input for the bytes after ESC and `[` or `O`: parameters and a final byte.
fn sequence(text: &[u8]) -> Option<TerminalInput> {
    let (last, parameters) = text.split_last()?;
    let mut numbers = parameters
        .split(|byte| *byte == b';')
        .map(|number| std::str::from_utf8(number).ok()?.parse::<u32>().ok());
    let (number, modifiers) = (numbers.next().flatten(), numbers.next().flatten());
    let modifiers = modifiers.unwrap_or(1).saturating_sub(1);
    let (mut shift, alt, ctrl) = (modifiers & 1 != 0, modifiers & 2 != 0, modifiers & 4 != 0);
    let key = match (last, number) {
        (b'I', None) => return Some(TerminalInput::Focus(true)),
        (b'O', None) => return Some(TerminalInput::Focus(false)),
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', Some(1 | 7)) => Key::Home,
        (b'F', _) | (b'~', Some(4 | 8)) => Key::End,
        (b'Z', _) => {
            shift = true;
            Key::Tab
        }
        (b'~', Some(3)) => Key::Delete,
        (b'~', Some(5)) => Key::PageUp,
        (b'~', Some(6)) => Key::PageDown,
        // Keys as a terminal with the Kitty protocol reports them.
        (b'M', None) | (b'u', Some(13)) => Key::Enter,
        (b'u', Some(9)) => Key::Tab,
        (b'u', Some(27)) => Key::Esc,
        (b'u', Some(127)) => Key::Backspace,
        (b'u', Some(code)) => Key::Char(char::from_u32(code)?),
        _ => return None,
    };
    Some(TerminalInput::Key(KeyPress { key, ctrl, alt, shift }))
}

fn character(bytes: &[u8]) -> Option<Found> {
    let head = bytes.get(..bytes.len().min(4)).unwrap_or_default();
    let chunk = head.utf8_chunks().next()?;
    if let Some(c) = chunk.valid().chars().next() {
        return Some((Some(plain(Key::Char(c))), c.len_utf8()));
    }
    // The start of an incomplete character waits for its other bytes.
    let length = std::str::from_utf8(head).err()?.error_len()?;
    Some((None, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn press(key: Key, modifiers: &str) -> TerminalInput {
        let has = |what| modifiers.contains(what);
        TerminalInput::Key(KeyPress { key, ctrl: has('c'), alt: has('a'), shift: has('s') })
    }

    #[test]
    fn the_bytes_of_each_key_are_decoded() {
        let cases: [(&[u8], &[TerminalInput]); 17] = [
            (b"\x1b[A", &[press(Key::Up, "")]),
            (b"\x1bOB", &[press(Key::Down, "")]),
            (b"\x1b[1;5D", &[press(Key::Left, "c")]),
            (b"\x1b[3~", &[press(Key::Delete, "")]),
            (b"\x1b[Z", &[press(Key::Tab, "s")]),
            (b"\x1b[13;2u", &[press(Key::Enter, "s")]),
            (b"\x1b", &[press(Key::Esc, "")]),
            (b"\x1b\x1b[A", &[press(Key::Esc, ""), press(Key::Up, "")]),
            (b"\x1by", &[press(Key::Char('y'), "a")]),
            (b"\x1b/", &[press(Key::Esc, ""), press(Key::Char('/'), "")]),
            (b"\x1b\r\n", &[press(Key::Enter, "a"), press(Key::Enter, "")]),
            (
                b"\x03\x1a\x1f",
                &[
                    press(Key::Char('c'), "c"),
                    press(Key::Char('z'), "c"),
                    press(Key::Char('_'), "c"),
                ],
            ),
            ("é".as_bytes(), &[press(Key::Char('é'), "")]),
            (b"\x1b[I\x1b[O", &[TerminalInput::Focus(true), TerminalInput::Focus(false)]),
            (b"\x1b[200~a\r\nb\rc\x1b[201~", &[TerminalInput::Paste("a\nb\nc".into())]),
            (b"\x7f\x08", &[press(Key::Backspace, ""), press(Key::Backspace, "")]),
            (b"\x1b[99~\0\xff", &[]),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(Decoder::default().feed(bytes), wanted, "{bytes:?}");
        }
    }

    #[test]
    fn split_input_is_reassembled() {
        let mut decoder = Decoder::default();
        for (piece, count) in [(&b"\xc3"[..], 0), (b"\xa9", 1), (b"\x1b[", 0), (b"B", 1)] {
            assert_eq!(decoder.feed(piece).len(), count, "{piece:?}");
        }
        assert_eq!(decoder.feed(b"\x1b[200~one"), []);
        assert_eq!(decoder.feed(b" two\x1b[201~"), [TerminalInput::Paste("one two".into())]);
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
            let wanted: Vec<_> = text.chars().map(|c| press(Key::Char(c), "")).collect();
            prop_assert_eq!(typed, wanted);
        }
    }
}
