//! The terminal while the live view has it: a screen of its own, raw keys, and everything as it was
//! before, however the view ends.

use super::keys::{Decoder, Input};
use crate::os::signals::Signals;
use crate::os::terminal::{TerminalGuard, typed};
use crate::os::terminal_size;
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

/// What a terminal has that does not know its size.
const USUAL: (u16, u16) = (80, 24);

/// The screen; dropped, it is given back.
pub(crate) struct Screen {
    // Not the library's own terminal: dropped where there is none any more, it panics.
    backend: CrosstermBackend<Stdout>,
    /// What stands on the screen.
    shown: Buffer,
    decoder: Decoder,
    _given_back: GiveBack,
}

/// Leaves the screen, then puts the settings of the terminal back.
struct GiveBack {
    _settings: Option<TerminalGuard>,
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        leave();
    }
}

impl Screen {
    /// Takes the screen.
    ///
    /// # Errors
    /// The terminal refused; it is as it was.
    pub(crate) fn open() -> io::Result<Self> {
        let given_back = GiveBack { _settings: TerminalGuard::save() };
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Before the report: on the view's own screen nobody would ever read it.
            leave();
            report(info);
        }));
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
        let backend = CrosstermBackend::new(stdout());
        let (shown, decoder) = (Buffer::empty(area()), Decoder::default());
        Ok(Self { backend, shown, decoder, _given_back: given_back })
    }

    /// Draws a frame; what `draw` gives is where the cursor stands.
    ///
    /// # Errors
    /// The terminal is gone.
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

    /// What the person did, waited for at most `patience`; a signal ends the waiting.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn next(&mut self, signals: &Signals, patience: Duration) -> io::Result<Vec<Input>> {
        // The library's own reader goes round in circles when the terminal is gone.
        let bytes = typed(signals, patience)?;
        let mut inputs = self.decoder.feed(&bytes);
        let area = area();
        if area != self.shown.area {
            queue!(stdout(), Clear(ClearType::All))?;
            self.shown = Buffer::empty(area);
            inputs.push(Input::Resize);
        }
        Ok(inputs)
    }
}

fn area() -> Rect {
    let (columns, rows) = terminal_size::size().unwrap_or(USUAL);
    Rect::new(0, 0, columns, rows)
}

/// A terminal that is gone has nothing to be left.
fn leave() {
    execute!(stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::pty::{Pty, is_cooked, read};
    use std::process::{Command, Stdio};

    /// What the second copy of this test binary does with the terminal it is given.
    const TASK: &str = "TEAM_TEST_SCREEN";

    #[test]
    fn be_on_a_screen() {
        let Some((_, task)) = std::env::vars().find(|(name, _)| name == TASK) else { return };
        let mut screen = Screen::open().unwrap();
        screen.draw(|_| None).unwrap();
        if task == "panic" {
            let panics = || -> () { panic!("the screen is left before this") };
            assert!(std::thread::spawn(panics).join().is_err());
            // No destructor: what the hook did must stand alone.
            std::mem::forget(screen);
        }
    }

    fn printed(task: &str) -> String {
        let pty = Pty::open(24, 80).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", "ui::top::screen::tests::be_on_a_screen"]);
        command.env(TASK, task).stderr(Stdio::piped());
        let (mut child, mut outer) = pty.spawn(&mut command).unwrap();
        let mut printed = Vec::new();
        while let Ok(bytes) = read(&mut outer, Duration::from_secs(30)) {
            printed.extend(bytes.unwrap());
        }
        assert!(child.wait().unwrap().success(), "{task}");
        assert!(is_cooked(&outer).unwrap(), "{task}");
        String::from_utf8_lossy(&printed).into_owned()
    }

    #[test]
    fn the_screen_is_given_back_at_the_end_and_at_a_panic() {
        for task in ["end", "panic"] {
            let printed = printed(task);
            let (_, view) = printed.split_once("\x1b[?1049h").expect(task);
            let (_, after) = view.split_once("\x1b[?1049l").expect(task);
            assert!(after.contains("\x1b[?25h"), "{task}: {after:?}");
        }
    }
}
