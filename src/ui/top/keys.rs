//! The keys of the view.

use crate::ui::terminal_input::{KeyCode, KeyPress, TerminalInput};
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

impl Input {
    /// Returns the keys and pastes of the view for an input of the terminal. Alt is Esc and the key.
    pub(super) fn of(input: TerminalInput) -> Vec<Self> {
        match input {
            TerminalInput::Paste(text) => vec![Self::Paste(text)],
            TerminalInput::Focus(_) => Vec::new(),
            TerminalInput::Key(press) => {
                let alt = press.alt.then_some(Key::Esc);
                alt.into_iter().chain(Key::of(&press)).map(Self::Key).collect()
            }
        }
    }
}

impl Key {
    /// Returns the key of the view; `None` for a key that means nothing here.
    fn of(press: &KeyPress) -> Option<Self> {
        Some(match (press.key, press.ctrl) {
            (KeyCode::Char('c'), true) => Self::Interrupt,
            (KeyCode::Char('d'), true) => Self::EndOfInput,
            (KeyCode::Char('u'), true) => Self::EraseLine,
            (KeyCode::Char(c), false) => Self::Char(c),
            (KeyCode::Enter, false) => Self::Enter,
            (KeyCode::Esc, false) => Self::Esc,
            (KeyCode::Tab, false) if press.shift => Self::BackTab,
            (KeyCode::Tab, false) => Self::Tab,
            (KeyCode::Up, false) => Self::Up,
            (KeyCode::Down, false) => Self::Down,
            (KeyCode::Left, false) => Self::Left,
            (KeyCode::Right, false) => Self::Right,
            (KeyCode::PageUp, false) => Self::PageUp,
            (KeyCode::PageDown, false) => Self::PageDown,
            (KeyCode::Home, false) => Self::Home,
            (KeyCode::End, false) => Self::End,
            (KeyCode::Backspace, false) => Self::Backspace,
            (_, _) => return None,
        })
    }

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
    use crate::ui::terminal_input::Decoder;

    #[test]
    fn the_bytes_of_each_key_are_a_key_of_the_view() {
        let cases: [(&[u8], &[Key]); 9] = [
            (b"\x1b[A", &[Key::Up]),
            (b"\x1bOB", &[Key::Down]),
            (b"\x1b[6~", &[Key::PageDown]),
            (b"\x1b[Z", &[Key::BackTab]),
            (b"\x1b", &[Key::Esc]),
            (b"\x04\x15\x03", &[Key::EndOfInput, Key::EraseLine, Key::Interrupt]),
            ("é".as_bytes(), &[Key::Char('é')]),
            (b"\x1b[1;5D\x01\xff\x1b[I", &[]),
            (b"\x1bq\x1bn", &[Key::Esc, Key::Char('q'), Key::Esc, Key::Char('n')]),
        ];
        for (bytes, keys) in cases {
            let wanted: Vec<Input> = keys.iter().copied().map(Input::Key).collect();
            let inputs = Decoder::default().feed(bytes);
            let found: Vec<Input> = inputs.into_iter().flat_map(Input::of).collect();
            assert_eq!(found, wanted, "{bytes:?}");
        }
        let pasted = Decoder::default().feed(b"\x1b[200~q\ny\x1b[201~");
        let pasted: Vec<Input> = pasted.into_iter().flat_map(Input::of).collect();
        assert_eq!(pasted, [Input::Paste("q\ny".into())]);
    }
}
