//! The interactive lead's terminal: typed lines become [`Input`] values, finished text goes into the scroll-back,
//! and a pane below it shows who works at what, the open question, the input and the status.
//!
//! One thread owns the terminal, so neither a pause at the prompt nor a slow terminal delays the agent. Where there
//! is no terminal that can move its cursor, or the person wants none, the same calls read and write plain lines.

mod completion;
mod exchange;
mod history;
mod input_line;
mod pane;
mod plain;
mod screen;
#[cfg(test)]
mod tests;
mod viewport;

pub(crate) use super::live::FoldedText;
pub(crate) use completion::{ArgumentKind, SlashCommand};
pub(crate) use exchange::{ConsoleOptions, EditableText, FileList, Input};
pub(crate) use pane::{MemberMark, QuestionPrompt, StatusLine, WorkOutput, WorkingRow};

use super::external_editor::ExternalEditor;
use super::messages::NAME_WIDTH;
use super::sanitize::one_line;
use super::style::Palette;
use crate::agent::progress::Progress;
use crate::os::terminal::raw_mode::Waker;
use crate::os::terminal_size;
use crate::wire::WithUnknownFields;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::Member;
use completion::Vocabulary;
use exchange::Update;
use history::History;
use input_line::InputLine;
use screen::Screen;
use std::io::{self, IsTerminal};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The longest time that closing may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// The interactive lead's terminal. Dropping it prints the pending rows, removes the pane and restores the terminal.
/// That takes a few milliseconds, and at most [`CLOSE_LIMIT`].
#[derive(Debug)]
pub(crate) struct Console {
    palette: Palette,
    is_screen: bool,
    /// Whether the output goes to a terminal, which has a width.
    has_width: bool,
    external_editor: ExternalEditor,
    /// The updates to show; `None` while the console closes.
    updates: Option<mpsc::Sender<Update>>,
    /// Wakes the thread of the screen; `None` with plain lines.
    waker: Option<Waker>,
    finished: mpsc::Receiver<()>,
}

impl Console {
    /// Starts the console on the terminal, or on plain stdin and stdout without one. Fails if a thread cannot be
    /// started.
    pub(crate) fn start(options: ConsoleOptions) -> io::Result<(Self, UnboundedReceiver<Input>)> {
        let (inputs, received) = unbounded_channel();
        let external_editor = options.external_editor.clone();
        let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        let vocabulary = Vocabulary {
            commands: options.commands,
            modes: PermissionMode::WORDS.into(),
            ..Vocabulary::default()
        };
        let (updates, to_show) = mpsc::channel();
        let (done, finished) = mpsc::channel();
        let files = options.files.clone();
        let palette = options.palette;
        let screen = (is_terminal && !options.is_plain)
            .then(|| {
                let history = History::open(options.history_file.clone());
                let input = InputLine::new(history, vocabulary);
                Screen::open(options, input, inputs.clone()).ok()
            })
            .flatten();
        let waker = screen.as_ref().map(|(_, waker)| waker.clone());
        let is_screen = screen.is_some();
        match screen {
            Some((screen, _)) => {
                thread::Builder::new().name("console".into()).spawn(move || {
                    screen.run(&to_show);
                    drop(done);
                })?;
            }
            None => {
                thread::Builder::new().name("console-out".into()).spawn(move || {
                    plain::print_lines(palette, &to_show, is_terminal);
                    drop(done);
                })?;
                let read = move || plain::read_lines(&inputs);
                thread::Builder::new().name("console-in".into()).spawn(read)?;
            }
        }
        let has_width = io::stdout().is_terminal();
        let console = Self {
            palette,
            is_screen,
            has_width,
            external_editor,
            updates: Some(updates),
            waker,
            finished,
        };
        if let (true, Some(files), Some(updates), Some(waker)) =
            (is_screen, files, console.updates.clone(), console.waker.clone())
        {
            let show = move |files| {
                // A console that is closed needs no files.
                if updates.send(Update::Files(files)).is_ok() {
                    waker.wake();
                }
            };
            screen::list_files(files, show)?;
        }
        Ok((console, received))
    }

    /// Whether there is a pane, so that what it shows need not be printed.
    pub(crate) fn has_pane(&self) -> bool {
        self.is_screen
    }

    pub(crate) fn show(&self, progress: Progress) {
        self.update(Update::Progress(Box::new(progress)));
    }

    /// Shows a change of a member, on one line.
    pub(crate) fn print_member(&self, name: &str, color: &str, text: &str) {
        let name = one_line(name, NAME_WIDTH);
        let room = self.width().map_or(200, |width| width.saturating_sub(name.len() + 3));
        let text = self.palette.dim(&one_line(text, room));
        self.print(&format!("{} {text}", self.palette.member(color, &format!("│ {name}"))));
    }

    /// Shows text that a view of this layer has rendered.
    pub(crate) fn print(&self, text: &str) {
        if !text.is_empty() {
            let end = if text.ends_with('\n') { "" } else { "\n" };
            self.update(Update::Print(format!("{text}{end}")));
        }
    }

    /// Shows a row of a member that stands for a longer text; without a pane only the row.
    pub(crate) fn print_folded(&self, folded: FoldedText) {
        self.update(Update::Folded(folded));
    }

    /// Shows a hint until the next key; without a pane it is printed.
    pub(crate) fn notice(&self, text: &str) {
        if self.is_screen {
            self.update(Update::Notice(text.to_owned()));
        } else {
            self.print(text);
        }
    }

    /// Sets the members: their names are completed, and their mail has their colour.
    pub(crate) fn set_members(&self, members: &[WithUnknownFields<Member>]) {
        let of = |member: &WithUnknownFields<Member>| (member.name.clone(), member.color.clone());
        self.update(Update::Members(members.iter().map(of).collect()));
    }

    /// Sets the question that owns the input; `None` gives the input back.
    pub(crate) fn set_question(&self, question: Option<QuestionPrompt>) {
        self.update(Update::Question(question));
    }

    pub(crate) fn set_working(&self, working: Vec<WorkingRow>) {
        self.update(Update::Working(working));
    }

    pub(crate) fn set_status(&self, status: StatusLine) {
        self.update(Update::Status(Box::new(status)));
    }

    /// Replaces the input by a text about the end of the session.
    pub(crate) fn set_closing(&self, text: &str) {
        self.update(Update::Closing(text.to_owned()));
    }

    /// Sets the text that the line `e` opens in the person's editor. The result is an [`Input::Edited`].
    pub(crate) fn offer_text(&self, text: Option<EditableText>) {
        self.update(Update::Offer(text));
    }

    /// Returns the width for text in columns; `None` without a terminal.
    pub(crate) fn width(&self) -> Option<usize> {
        terminal_size::columns().filter(|_| self.has_width)
    }

    fn update(&self, update: Update) {
        if let Some(updates) = &self.updates {
            // The thread of the console outlives this sender.
            updates.send(update).ok();
            self.waker.iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.external_editor.stop();
        // Other senders may still be open.
        self.update(Update::End);
        self.updates = None;
        self.waker.iter().for_each(Waker::wake);
        // The channel carries no value: the wait ends with the thread.
        self.finished.recv_timeout(CLOSE_LIMIT).ok();
    }
}
