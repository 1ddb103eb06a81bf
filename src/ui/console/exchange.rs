//! The values that the session, the console and its threads exchange.

use super::completion::SlashCommand;
use super::pane::{QuestionPrompt, StatusLine, WorkingRow};
use crate::agent::progress::Progress;
use crate::ui::external_editor::ExternalEditor;
use crate::ui::live::FoldedText;
use crate::ui::style::Palette;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "EndOfInput is a standard term, not a kind of Input")]
pub(crate) enum Input {
    /// A line, or several pasted ones; it may be blank.
    Line(String),
    /// A line that was typed under the question with this id.
    Reply { question: String, text: String },
    /// The key that answers a question, whatever the typed text is: `y`, `n` or `a` with Alt. The question is the one
    /// on the screen.
    Answer { key: char, question: Option<String> },
    /// The person puts the question with this id off.
    PutOff(String),
    /// Esc, without a question.
    Escape,
    /// The end of the person's editor on the text of the question with this id: the new text, or the reason for
    /// which nothing has changed.
    Edited { id: String, text: Result<String, String> },
    /// Ctrl-C on an empty line.
    Interrupt,
    /// Ctrl-D on an empty line, or the end of a piped stdin.
    EndOfInput,
    /// The terminal is gone. It is the last input.
    Closed,
}

/// A function that lists the files of the workspace as relative paths.
pub(crate) type FileList = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct ConsoleOptions {
    pub(crate) palette: Palette,
    /// The prompt, with the spaces at its end.
    pub(crate) prompt: String,
    /// The history file, which keeps typed lines between sessions.
    pub(crate) history_file: Option<PathBuf>,
    pub(crate) commands: &'static [SlashCommand],
    /// The files that are completed after `@`.
    pub(crate) files: Option<FileList>,
    pub(crate) external_editor: ExternalEditor,
    /// Whether plain lines are read and written even on a terminal.
    pub(crate) is_plain: bool,
    /// Whether a question that comes while the window has no focus rings the bell and notifies the desktop.
    pub(crate) notifies: bool,
}

impl fmt::Debug for ConsoleOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ConsoleOptions").field("prompt", &self.prompt).finish_non_exhaustive()
    }
}

/// The text of a question that the line `e` opens in the person's editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EditableText {
    /// The id of the question.
    pub(crate) id: String,
    /// A name whose end tells the editor the language.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A change of what the console shows.
#[derive(Debug)]
pub(super) enum Update {
    Progress(Box<Progress>),
    /// Finished text: whole rows.
    Print(String),
    /// A row that stands for a longer text.
    Folded(FoldedText),
    /// The names and the colour words of the members.
    Members(Vec<(String, String)>),
    Files(Vec<String>),
    Question(Option<QuestionPrompt>),
    Working(Vec<WorkingRow>),
    Status(Box<StatusLine>),
    Notice(String),
    Closing(String),
    Offer(Option<EditableText>),
    /// The end of the session.
    End,
}

/// Writes to stdout, which may be closed.
pub(super) fn write_out(text: &str) {
    let mut out = io::stdout().lock();
    // A closed terminal gives EIO, a closed pipe EPIPE; the error cannot be shown anywhere.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}
