//! The text that is being typed: its editing keys, the history, the search in it, and completion.
//!
//! The editing itself is that of `ratatui-textarea`; the keys are those of a shell.

use super::completion::{Menu, Vocabulary};
use super::history::History;
use crate::ui::terminal_input::{KeyCode, KeyPress};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;
use ratatui_textarea::{CursorMove, TextArea, WrapMode};

/// The effect of a key that does not only change the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputAction {
    /// The text is complete.
    Submit(String),
    /// Ctrl-C without text.
    Interrupt,
    /// Ctrl-D without text.
    EndOfInput,
    /// Esc without anything to close.
    Escape,
    /// A key that answers a question whatever the text is: `y`, `n` or `a` with Alt.
    Answer(char),
    Suspend,
    /// Draw all anew.
    Redraw,
}

/// The search for an earlier line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Search {
    text: String,
    /// The index of the entry that was found.
    found: Option<usize>,
    /// The text before the search.
    draft: String,
}

pub(super) struct InputLine {
    text: TextArea<'static>,
    history: History,
    vocabulary: Vocabulary,
    menu: Option<Menu>,
    search: Option<Search>,
}

/// The rows of the text and the position of the cursor in them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TypedRows {
    pub(super) rows: Vec<String>,
    pub(super) cursor: (usize, usize),
}

impl InputLine {
    pub(super) fn new(history: History, vocabulary: Vocabulary) -> Self {
        Self { text: area(""), history, vocabulary, menu: None, search: None }
    }

    pub(super) fn vocabulary(&mut self) -> &mut Vocabulary {
        &mut self.vocabulary
    }

    pub(super) fn menu(&self) -> Option<&Menu> {
        self.menu.as_ref()
    }

    /// Returns the text that is searched for; `None` unless a search is open.
    pub(super) fn searched(&self) -> Option<&str> {
        self.search.as_ref().map(|search| search.text.as_str())
    }

    pub(super) fn text(&self) -> String {
        self.text.lines().join("\n")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Replaces the text and puts the cursor at its end.
    pub(super) fn set(&mut self, text: &str) {
        self.text = area(text);
        (self.menu, self.search) = (None, None);
    }

    /// Removes the text and returns it.
    pub(super) fn take(&mut self) -> String {
        let text = self.text();
        self.set("");
        text
    }

    pub(super) fn remember(&mut self, line: &str) {
        self.history.add(line);
    }

    /// Inserts pasted text.
    pub(super) fn paste(&mut self, text: &str) {
        self.search = None;
        let cleaned: String =
            text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect();
        self.text.insert_str(cleaned);
        self.history.forget_place();
        self.menu = None;
    }

    /// Handles a key. `can_complete` is false under a question, where commands and files are not typed.
    pub(super) fn press(&mut self, key: &KeyPress, can_complete: bool) -> Option<InputAction> {
        if self.press_in_search(key) || self.press_in_menu(key) {
            return None;
        }
        let KeyPress { key: code, ctrl, alt, .. } = *key;
        match (code, ctrl, alt) {
            (KeyCode::Char('c'), true, _) if self.is_empty() => {
                return Some(InputAction::Interrupt);
            }
            (KeyCode::Char('c'), true, _) => {
                self.take();
                self.history.forget_place();
            }
            (KeyCode::Char('d'), true, _) if self.is_empty() => {
                return Some(InputAction::EndOfInput);
            }
            (KeyCode::Char('z'), true, _) => return Some(InputAction::Suspend),
            (KeyCode::Char('l'), true, _) => return Some(InputAction::Redraw),
            (KeyCode::Char('r'), true, _) => self.begin_search(),
            (KeyCode::Char(answer @ ('y' | 'n' | 'a')), false, true) => {
                return Some(InputAction::Answer(answer));
            }
            (KeyCode::Esc, ..) => return Some(InputAction::Escape),
            (KeyCode::Enter, ..) => return self.enter(key),
            (KeyCode::Up, ..) | (KeyCode::Char('p'), true, _) if self.is_on_first_row() => {
                self.recall(true);
            }
            (KeyCode::Down, ..) | (KeyCode::Char('n'), true, _) if self.is_on_last_row() => {
                self.recall(false);
            }
            (KeyCode::Tab, ..) => self.open_menu(can_complete),
            _ => {
                if self.edit(key) {
                    self.history.forget_place();
                    self.open_menu(can_complete);
                } else {
                    self.menu = None;
                }
            }
        }
        None
    }

    /// Changes the text or moves the cursor by the keys of a shell; returns whether the text has changed.
    fn edit(&mut self, key: &KeyPress) -> bool {
        match (key.key, key.ctrl, key.alt) {
            (KeyCode::Char('u'), true, _) => self.text.delete_line_by_head(),
            (KeyCode::Char('y'), true, _) => self.text.paste(),
            (KeyCode::Char('_'), true, _) => self.text.undo(),
            (KeyCode::Left, true, _) => {
                self.text.move_cursor(CursorMove::WordBack);
                false
            }
            (KeyCode::Right, true, _) => {
                self.text.move_cursor(CursorMove::WordForward);
                false
            }
            // No selection: its keys are those that a terminal itself uses.
            _ => self.text.input(KeyPress { shift: false, ..key.clone() }),
        }
    }

    /// Ends the line, or begins a new one after a backslash or with a modifier.
    fn enter(&mut self, key: &KeyPress) -> Option<InputAction> {
        let (row, column) = self.cursor();
        let line = self.text.lines().get(row).map(String::as_str).unwrap_or_default();
        let is_continued = line.ends_with('\\') && line.chars().count() == column;
        if key.alt || key.shift || is_continued {
            if is_continued {
                self.text.delete_char();
            }
            self.text.insert_newline();
            return None;
        }
        Some(InputAction::Submit(self.take()))
    }

    fn cursor(&self) -> (usize, usize) {
        let ratatui_textarea::DataCursor(row, column) = self.text.cursor();
        (row, column)
    }

    fn is_on_first_row(&self) -> bool {
        self.cursor().0 == 0
    }

    fn is_on_last_row(&self) -> bool {
        self.cursor().0 + 1 >= self.text.lines().len()
    }

    fn recall(&mut self, is_older: bool) {
        let entry = if is_older { self.history.older(&self.text()) } else { self.history.newer() };
        if let Some(entry) = entry {
            self.set(&entry);
        }
    }

    fn open_menu(&mut self, can_complete: bool) {
        let (row, column) = self.cursor();
        let line = self.text.lines().get(row).map(String::as_str).unwrap_or_default();
        let typed: String = line.chars().take(column).collect();
        self.menu = can_complete.then(|| Menu::of(&typed, row == 0, &self.vocabulary)).flatten();
    }

    /// Handles a key for the open menu; returns `false` if it is for the text.
    fn press_in_menu(&mut self, key: &KeyPress) -> bool {
        let Some(menu) = self.menu.as_mut() else { return false };
        if key.key == KeyCode::Up || (key.key == KeyCode::Tab && key.shift) {
            menu.select(false);
        } else if key.key == KeyCode::Down {
            menu.select(true);
        } else if key.key == KeyCode::Tab {
            if menu.selected.is_none() {
                menu.select(true);
            }
            self.accept();
        } else if key.key == KeyCode::Enter && menu.selected.is_some() {
            self.accept();
        } else if key.key == KeyCode::Esc {
            self.menu = None;
        } else {
            return false;
        }
        true
    }

    /// Replaces the word before the cursor by the selected candidate.
    fn accept(&mut self) {
        let Some(menu) = self.menu.take() else { return };
        let Some(chosen) = menu.selected() else { return };
        for _ in 0..menu.typed {
            self.text.delete_char();
        }
        self.text.insert_str(format!("{} ", chosen.word));
    }

    fn begin_search(&mut self) {
        let draft = self.take();
        self.search = Some(Search { text: String::new(), found: None, draft });
    }

    /// Handles a key for the open search; returns `false` without one, or if it is over and the key is for the text that
    /// was found.
    fn press_in_search(&mut self, key: &KeyPress) -> bool {
        let Some(search) = self.search.as_mut() else { return false };
        let mut before = None;
        match (key.key, key.ctrl) {
            (KeyCode::Char('r'), true) => before = search.found,
            (KeyCode::Char('c' | 'g'), true) | (KeyCode::Esc, _) => {
                let draft = std::mem::take(&mut search.draft);
                self.set(&draft);
                return true;
            }
            (KeyCode::Backspace, _) => {
                search.text.pop();
            }
            (KeyCode::Char(c), false) if !key.alt => search.text.push(c),
            _ => {
                self.search = None;
                return false;
            }
        }
        if let Some((at, entry)) = self.history.find(&search.text, before) {
            search.found = Some(at);
            self.text = area(entry);
        }
        true
    }

    /// Draws the text at this width, at most `most` rows of it around the cursor.
    pub(super) fn draw(&self, width: usize, most: usize) -> TypedRows {
        let width = u16::try_from(width.max(2)).unwrap_or(u16::MAX);
        let most = u16::try_from(most.max(1)).unwrap_or(u16::MAX);
        let height = u16::try_from(screen_height(&self.text(), width)).unwrap_or(u16::MAX);
        let height = height.clamp(1, most);
        // A fresh widget: the place to which an earlier one has scrolled does not matter.
        let (row, column) = self.cursor();
        let jump = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        let mut shown = area(&self.text());
        shown.move_cursor(CursorMove::Jump(jump(row), jump(column)));
        let buffer = render(&shown, width, height);
        let (top, _) = shown.scroll_offset();
        let cursor = shown.screen_cursor();
        let row = cursor.row.saturating_sub(top.into()).min(usize::from(height) - 1);
        let column = cursor.col.min(usize::from(width) - 1);
        let row_text = |y| {
            let mut text = String::new();
            let mut skip = 0;
            for x in 0..width {
                if skip > 0 {
                    skip -= 1;
                } else if let Some(cell) = buffer.cell((x, y)) {
                    text.push_str(cell.symbol());
                    skip = super::super::sanitize::columns(cell.symbol()).saturating_sub(1);
                }
            }
            text.trim_end().to_owned()
        };
        TypedRows { rows: (0..height).map(row_text).collect(), cursor: (row, column) }
    }
}

fn render(text: &TextArea<'static>, width: u16, height: u16) -> Buffer {
    let place = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(place);
    text.render(place, &mut buffer);
    buffer
}

/// Returns the number of rows that a text takes at this width.
fn screen_height(text: &str, width: u16) -> usize {
    let mut probe = area(text);
    // The widget computes its rows while it is drawn.
    render(&probe, width, 1);
    probe.move_cursor(CursorMove::Bottom);
    probe.move_cursor(CursorMove::End);
    probe.screen_cursor().row + 1
}

/// Returns an editor of a text, with the cursor at its end.
fn area(text: &str) -> TextArea<'static> {
    let mut area = TextArea::new(text.split('\n').map(ToOwned::to_owned).collect());
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    // The cursor is that of the terminal.
    area.set_cursor_style(ratatui::style::Style::default());
    area.set_cursor_line_style(ratatui::style::Style::default());
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::terminal_input::{Decoder, TerminalInput};

    fn line() -> InputLine {
        let vocabulary = Vocabulary { members: vec!["alice".into()], ..Vocabulary::default() };
        InputLine::new(History::default(), vocabulary)
    }

    /// Presses the keys of these bytes, and returns the submitted texts.
    fn press(line: &mut InputLine, bytes: &str) -> Vec<String> {
        let mut submitted = Vec::new();
        for input in Decoder::default().feed(bytes.as_bytes()) {
            match input {
                TerminalInput::Key(key) => {
                    if let Some(InputAction::Submit(text)) = line.press(&key, true) {
                        line.remember(&text);
                        submitted.push(text);
                    }
                }
                TerminalInput::Paste(text) => line.paste(&text),
                TerminalInput::Focus(_) => {}
            }
        }
        submitted
    }

    #[test]
    fn the_keys_of_a_shell_edit_the_text() {
        for (keys, wanted) in [
            ("one two\x17three\r", "one three"),
            ("wrong\x15right\r", "right"),
            ("end\x01be\x05.\r", "beend."),
            ("ab\x02\x02x\x0b\r", "x"),
            ("one two\x1bb\x1bdthree\r", "one three"),
            ("one\x1b\rtwo\r", "one\ntwo"),
            ("one\\\rtwo\r", "one\ntwo"),
            ("\x1b[200~first\rsecond\x1b[201~ and\x1b\rthird\r", "first\nsecond and\nthird"),
            ("héllo\x7f\x7fp\r", "hélp"),
            ("gone\x17\x1f\r", "gone"),
            ("a\x1b[Db\x1b[Fc\r", "bac"),
            ("say @al\tx\r", "say @alice x"),
        ] {
            assert_eq!(press(&mut line(), keys), [wanted], "{keys:?}");
        }
    }

    #[test]
    fn earlier_lines_are_recalled_and_found() {
        let mut line = line();
        press(&mut line, "cargo test\rgit log\rcargo doc\r");
        assert_eq!(press(&mut line, "dra\x1b[A\x1b[A\r"), ["git log"]);
        assert_eq!(press(&mut line, "dra\x1b[A\x1b[Bft\r"), ["draft"]);
        assert_eq!(press(&mut line, "\x12cargo\x12\r"), ["cargo test"]);
        assert_eq!(press(&mut line, "mine\x12log\x07!\r"), ["mine!"]);
        // Within a text of several lines the keys move between them first.
        assert_eq!(press(&mut line, "a\x1b\rb\x1b[Ax\r"), ["ax\nb"]);
    }

    #[test]
    fn long_text_is_wrapped_at_words_and_the_cursor_is_visible() {
        let mut line = line();
        press(&mut line, "the quick brown fox");
        let drawn = line.draw(10, 9);
        assert_eq!(
            drawn,
            TypedRows { rows: vec!["the quick".into(), "brown fox".into()], cursor: (1, 9) }
        );
        press(&mut line, "\x1b\r1\x1b\r2\x1b\r3");
        let drawn = line.draw(10, 2);
        assert_eq!(drawn, TypedRows { rows: vec!["2".into(), "3".into()], cursor: (1, 1) });
        press(&mut line, "\x15日本語");
        assert_eq!(line.draw(10, 1), TypedRows { rows: vec!["日本語".into()], cursor: (0, 6) });
    }

    #[test]
    fn keys_without_text_act() {
        let mut line = line();
        let key = |c, ctrl, alt| KeyPress { key: KeyCode::Char(c), ctrl, alt, shift: false };
        assert_eq!(line.press(&key('c', true, false), true), Some(InputAction::Interrupt));
        assert_eq!(line.press(&key('d', true, false), true), Some(InputAction::EndOfInput));
        press(&mut line, "text");
        assert_eq!(line.press(&key('y', false, true), true), Some(InputAction::Answer('y')));
        assert_eq!(line.text(), "text");
        assert_eq!(line.press(&key('c', true, false), true), None);
        assert!(line.is_empty());
    }
}
