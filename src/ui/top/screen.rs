//! The terminal during the live view: alternate screen and raw mode. Both are restored however the view ends.

use super::keys::Input;
use crate::os::signals::Signals;
use crate::os::terminal::{TerminalGuard, typed};
use crate::os::terminal_size;
use crate::ui::terminal_input::Decoder;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use ratatui::layout::{Position, Rect};
use std::io::{self, Stdout, stdout};
use std::panic;
use std::time::Duration;

/// The columns and rows of a terminal that does not report its size.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// The screen. Dropping it restores the terminal.
pub(crate) struct Screen {
    // Not ratatui's `Terminal`, which panics if it is dropped after the terminal is gone.
    backend: CrosstermBackend<Stdout>,
    shown: Buffer,
    decoder: Decoder,
    /// The guard that restores the settings of the terminal, after the alternate screen is left.
    _settings: Option<TerminalGuard>,
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

impl Screen {
    /// Switches to the alternate screen and to raw mode; after an error the terminal is restored.
    pub(crate) fn open() -> io::Result<Self> {
        let screen = Self {
            backend: CrosstermBackend::new(stdout()),
            shown: Buffer::empty(area()),
            decoder: Decoder::default(),
            _settings: TerminalGuard::save(),
        };
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // The screen is left before the report, because the alternate screen would hide it.
            leave();
            report(info);
        }));
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
        Ok(screen)
    }

    /// Draws a frame; `draw` returns the position of the cursor. An error means that the terminal is gone.
    pub(crate) fn draw(
        &mut self,
        draw: impl FnOnce(&mut Buffer) -> Option<Position>,
    ) -> io::Result<()> {
        let mut frame = Buffer::empty(self.shown.area);
        let cursor = draw(&mut frame);
        self.backend.draw(self.shown.diff(&frame).into_iter())?;
        match cursor {
            Some(place) => {
                self.backend.set_cursor_position(place)?;
                self.backend.show_cursor()?;
            }
            None => self.backend.hide_cursor()?,
        }
        self.shown = frame;
        Backend::flush(&mut self.backend)
    }

    /// Waits for inputs, at most `limit`; a signal ends the wait. An error means that the terminal is gone.
    pub(crate) fn next(&mut self, signals: &Signals, limit: Duration) -> io::Result<Vec<Input>> {
        // The reader of crossterm loops without end after the terminal is gone.
        let bytes = typed(signals, limit)?;
        let mut inputs: Vec<Input> =
            self.decoder.feed(&bytes).into_iter().flat_map(Input::of).collect();
        let area = area();
        if area != self.shown.area {
            queue!(stdout(), Clear(ClearType::All))?;
            self.shown = Buffer::empty(area);
            inputs.insert(0, Input::Resize(area));
        }
        Ok(inputs)
    }
}

fn area() -> Rect {
    let (columns, rows) = terminal_size::size().unwrap_or(DEFAULT_SIZE);
    Rect::new(0, 0, columns, rows)
}

/// Leaves the alternate screen. Errors are ignored: they mean that the terminal is gone.
fn leave() {
    execute!(stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::program::test_process;
    use crate::os::terminal::pty::{Pty, is_cooked, read};
    use std::process::Stdio;

    /// The environment variable that is set in the second copy of this test binary.
    const TASK: &str = "TEAM_TEST_SCREEN";

    #[test]
    fn panic_on_a_screen() {
        if std::env::vars().all(|(name, _)| name != TASK) {
            return;
        }
        let mut screen = Screen::open().unwrap();
        screen.draw(|_| None).unwrap();
        let panics = || -> () { panic!("the screen is left before this") };
        assert!(std::thread::spawn(panics).join().is_err());
        // The destructor does not run: the hook alone must restore the screen.
        std::mem::forget(screen);
    }

    #[test]
    fn a_panic_leaves_the_screen() {
        let mut command = test_process("ui::top::screen::tests::panic_on_a_screen");
        command.env(TASK, "").stderr(Stdio::piped());
        let (mut child, mut outer) = Pty::open(24, 80).unwrap().spawn(&mut command).unwrap();
        let mut printed = Vec::new();
        while let Ok(bytes) = read(&mut outer, Duration::from_secs(30)) {
            printed.extend(bytes.unwrap());
        }
        assert!(child.wait().unwrap().success());
        assert!(is_cooked(&outer).unwrap());
        let printed = String::from_utf8_lossy(&printed);
        let (_, view) = printed.split_once("\x1b[?1049h").unwrap();
        let (_, after) = view.split_once("\x1b[?1049l").unwrap();
        assert!(after.contains("\x1b[?25h"), "{after:?}");
    }
}
