//! The line being typed: rustyline on a thread of its own, and a printer that writes above it.
//!
//! rustyline can print above a line only while it edits one. Text that is written between two lines would end
//! up beside the next prompt, so the printer waits for the prompt ([`EditorState`]).

use super::external_editor::ExternalEditor;
use super::question::is_edit;
use super::style::Palette;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event, EventContext,
    EventHandler, ExternalPrinter, Helper, KeyCode, KeyEvent, Modifiers, Movement, RepeatCount,
};
use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// The longest wait for a prompt. Only an editor that is stopped or ending takes so long; the text is then printed
/// at the cursor.
const PROMPT_LIMIT: Duration = Duration::from_secs(1);
/// The maximum number of history entries that are offered.
const OFFERED: usize = 1000;
/// The number of bytes that are read from the end of the history file: many times the usual size of its entries.
const READ_BYTES: u64 = 4 * 1024 * 1024;
/// The sequence of cursor up and a line feed: rows that change nothing.
const NOTHING: &str = "\x1b[A\n";
/// The sequence that ends the synchronized update which an unwound redraw leaves open.
const END_OF_UPDATE: &str = "\x1b[?2026l";

#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "EndOfInput is a standard term, not a kind of Input")]
pub(crate) enum Input {
    /// A line, or several pasted ones; it may be blank.
    Line(String),
    /// The key that answers a question, regardless of the typed text: `y`, `n` or `a` with Alt.
    Answer(char),
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

#[derive(Debug)]
pub(crate) struct ConsoleOptions {
    pub(crate) palette: Palette,
    /// The prompt, with the spaces at its end.
    pub(crate) prompt: String,
    /// The history file, which keeps typed lines between sessions.
    pub(crate) history_file: Option<PathBuf>,
    pub(crate) completions: Vec<String>,
    pub(crate) external_editor: ExternalEditor,
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

pub(super) type Words = Arc<Mutex<Vec<String>>>;

pub(super) type OfferedText = Arc<Mutex<Option<EditableText>>>;

/// A function that reads inputs until there are no more; it runs on its own thread.
pub(super) type LineReader = Box<dyn FnOnce() + Send>;

/// Takes over the terminal; the printer prints above the line that the reader reads. Fails without a terminal
/// that can move its cursor.
pub(super) fn open(
    options: ConsoleOptions,
    words: Words,
    offered_text: OfferedText,
    inputs: UnboundedSender<Input>,
) -> rustyline::Result<(LineReader, Printer)> {
    let config = Config::builder()
        .max_history_size(OFFERED)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        // The palette decides about colours; with `Forced`, rustyline always calls the highlighter.
        .color_mode(rustyline::ColorMode::Forced)
        .build();
    let offered = MemHistory::with_config(&config);
    let mut editor: Editor<LineHelper, MemHistory> = Editor::with_history(config, offered)?;
    let state = EditorState::default();
    let way = Box::new(editor.create_external_printer()?);
    let printer = Printer { way, state: state.clone() };

    let mut history = options.history_file;
    for entry in history.as_ref().and_then(|file| load(file).ok()).unwrap_or_default() {
        editor.add_history_entry(entry)?;
    }
    let key =
        |input: Input| EventHandler::Conditional(Box::new(OnKey { input, inputs: inputs.clone() }));
    editor.bind_sequence(KeyEvent::ctrl('c'), key(Input::Interrupt));
    editor.bind_sequence(KeyEvent::ctrl('d'), key(Input::EndOfInput));
    for answer in ['y', 'n', 'a'] {
        editor.bind_sequence(KeyEvent::alt(answer), key(Input::Answer(answer)));
    }
    // Between two lines the terminal is not raw: an Enter that is typed then arrives as a line feed.
    for enter in [KeyEvent(KeyCode::Enter, Modifiers::ALT), KeyEvent::alt('\n')] {
        editor.bind_sequence(enter, EventHandler::Simple(Cmd::Newline));
    }
    editor.set_helper(Some(LineHelper { palette: options.palette, words, state: state.clone() }));

    let external_editor = options.external_editor;
    let edit = {
        let state = state.clone();
        move |line: &str| {
            let text = offered_text.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let EditableText { id, name, text } = text.filter(|_| is_edit(line))?;
            state.change(&[EditorPhase::Away], EditorPhase::HandedOver);
            let text = external_editor.edit(&name, &text);
            state.change(&[EditorPhase::HandedOver], EditorPhase::Away);
            Some(Input::Edited { id, text })
        }
    };
    let reader = move || {
        let _end = EndGuard(state);
        read_lines(&mut editor, &options.prompt, &mut history, &edit, &inputs);
    };
    Ok((Box::new(reader), printer))
}

fn read_lines(
    editor: &mut Editor<LineHelper, MemHistory>,
    prompt: &str,
    history: &mut Option<PathBuf>,
    edit: &impl Fn(&str) -> Option<Input>,
    inputs: &UnboundedSender<Input>,
) {
    loop {
        let input = match editor.readline(prompt) {
            Ok(line) => {
                if matches!(editor.add_history_entry(line.as_str()), Ok(true)) {
                    keep(history, &line);
                }
                edit(&line).unwrap_or(Input::Line(line))
            }
            Err(ReadlineError::Interrupted) => Input::Interrupt,
            Err(ReadlineError::Eof) => Input::EndOfInput,
            // A key that is not UTF-8 discards the line, but the session goes on.
            Err(ReadlineError::Io(why)) if why.kind() == ErrorKind::InvalidData => continue,
            Err(_) => Input::Closed,
        };
        let last = matches!(input, Input::EndOfInput | Input::Closed);
        if inputs.send(input).is_err() || last {
            return;
        }
    }
}

/// The phase of the editor, shared with the printer.
#[derive(Debug, Clone, Default)]
struct EditorState(Arc<(Mutex<EditorPhase>, Condvar)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum EditorPhase {
    /// No line is being edited.
    #[default]
    Away,
    /// The prompt is on the screen, and the terminal is raw.
    Editing,
    /// The person's own editor has the terminal: nothing may be printed.
    HandedOver,
    /// The printer has asked the editor to end.
    Closing,
    /// The editor has ended, and the terminal is restored.
    Ended,
}

impl EditorState {
    fn lock(&self) -> MutexGuard<'_, EditorPhase> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the phase from one of `from` to `to`; returns the phase afterwards.
    fn change(&self, from: &[EditorPhase], to: EditorPhase) -> EditorPhase {
        let mut phase = self.lock();
        if from.contains(&phase) {
            *phase = to;
        }
        self.0.1.notify_all();
        *phase
    }

    /// Waits until the person's own editor has given the terminal back.
    fn wait_until_returned(&self) {
        let has_editor = |phase: &mut EditorPhase| *phase == EditorPhase::HandedOver;
        drop(self.0.1.wait_while(self.lock(), has_editor));
    }

    /// Waits while `condition` holds, at most [`PROMPT_LIMIT`]; returns the phase afterwards.
    fn wait_while(&self, condition: impl Fn(EditorPhase) -> bool) -> EditorPhase {
        let waits = |phase: &mut EditorPhase| condition(*phase);
        let phase = self.0.1.wait_timeout_while(self.lock(), PROMPT_LIMIT, waits);
        *phase.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Sets the phase to [`EditorPhase::Ended`] when the reader ends, also by unwinding.
struct EndGuard(EditorState);

impl Drop for EndGuard {
    fn drop(&mut self) {
        let all = [
            EditorPhase::Away,
            EditorPhase::Editing,
            EditorPhase::HandedOver,
            EditorPhase::Closing,
        ];
        self.0.change(&all, EditorPhase::Ended);
    }
}

/// The printer of rows above the line being typed.
pub(super) struct Printer {
    way: Box<dyn ExternalPrinter + Send>,
    state: EditorState,
}

impl Printer {
    /// Prints whole rows. A closed terminal is not an error here: the reader reports it.
    pub(super) fn print(&mut self, text: String) {
        self.state.wait_until_returned();
        if self.state.wait_while(|phase| phase == EditorPhase::Away) == EditorPhase::Ended {
            write_out(&text);
        } else {
            // Printing fails only while the editor ends together with its terminal.
            self.way.print(text).ok();
        }
    }

    /// Ends the editor: removes the prompt and restores the terminal.
    pub(super) fn finish(mut self) {
        // rustyline buffers one message: once this one is accepted, all earlier ones have been received. They are
        // printed before the next prompt, at which closing takes effect.
        self.print(NOTHING.into());
        if self.state.change(&[EditorPhase::Away, EditorPhase::Editing], EditorPhase::Closing)
            == EditorPhase::Closing
        {
            // Wakes the editor, which waits for input or a message.
            self.print(NOTHING.into());
            self.state.wait_while(|phase| phase != EditorPhase::Ended);
            write_out(END_OF_UPDATE);
        }
    }
}

/// Writes to stdout, which may be closed.
pub(super) fn write_out(text: &str) {
    let mut out = io::stdout().lock();
    // A closed terminal gives EIO, a closed pipe EPIPE; the error cannot be shown anywhere.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// The helper that rustyline calls while a line is typed.
struct LineHelper {
    palette: Palette,
    words: Words,
    state: EditorState,
}

/// The payload that unwinds the reader: rustyline has no other way to end a line, and unwinding restores the
/// terminal. `resume_unwind` reports no panic, and only the reader is on that stack.
struct Closed;

impl Highlighter for LineHelper {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        if self.state.change(&[EditorPhase::Away], EditorPhase::Editing) == EditorPhase::Closing {
            std::panic::resume_unwind(Box::new(Closed));
        }
        Cow::Owned(self.palette.bold(prompt))
    }
}

impl Validator for LineHelper {
    fn validate(&self, _: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        // `readline` is about to return the line.
        self.state.change(&[EditorPhase::Editing], EditorPhase::Away);
        Ok(ValidationResult::Valid(None))
    }
}

impl Completer for LineHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(complete(line.get(..pos).unwrap_or(line), &words))
    }
}

impl Hinter for LineHelper {
    type Hint = String;
}

impl Helper for LineHelper {}

/// Returns the start of the last word and its completions: a command at the start of the line, `@name` anywhere, a
/// bare name after a command.
fn complete(typed: &str, words: &[String]) -> (usize, Vec<String>) {
    let start = typed.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let word = typed.get(start..).unwrap_or_default();
    let candidates = words.iter().filter_map(|known| match word.chars().next() {
        Some('/') if start > 0 => None,
        Some('/' | '@') => Some(known.as_str()),
        _ if typed.starts_with('/') => known.strip_prefix('@'),
        _ => None,
    });
    let fits = candidates.filter(|candidate| candidate.starts_with(word));
    (start, fits.map(|candidate| format!("{candidate} ")).collect())
}

/// The handler of Ctrl-C and Ctrl-D, whose meaning depends on whether the line is empty, and of the keys that
/// do not edit the line.
struct OnKey {
    input: Input,
    inputs: UnboundedSender<Input>,
}

impl ConditionalEventHandler for OnKey {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, line: &EventContext<'_>) -> Option<Cmd> {
        if !line.line().is_empty() {
            match self.input {
                Input::Interrupt => return Some(Cmd::Kill(Movement::WholeBuffer)),
                Input::EndOfInput => return None,
                Input::Answer(_) | Input::Line(_) | Input::Edited { .. } | Input::Closed => {}
            }
        }
        // Without a receiver nothing is left to interrupt or end.
        self.inputs.send(self.input.clone()).ok();
        Some(Cmd::Noop)
    }
}

/// Loads the last typed lines of a history file, oldest first. Each line of the file is a JSON string, so that a
/// pasted paragraph is one entry. (rustyline's own file history would change the umask of the whole process.)
fn load(file: &PathBuf) -> io::Result<Vec<String>> {
    let mut file = OpenOptions::new().read(true).open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(READ_BYTES)))?;
    let mut text = Vec::new();
    file.take(READ_BYTES).read_to_end(&mut text)?;
    let lines = text.split(|byte| *byte == b'\n');
    let mut entries: Vec<_> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Ok(entries.split_off(entries.len().saturating_sub(OFFERED)))
}

/// Adds a line to the history; after an error the session goes on without a history file.
fn keep(history: &mut Option<PathBuf>, entry: &str) {
    if history.as_ref().is_some_and(|file| append(file, entry).is_err()) {
        *history = None;
    }
}

fn append(file: &PathBuf, entry: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(file)?;
    let line = serde_json::Value::from(entry).to_string() + "\n";
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn words_complete_by_their_position() {
        let words: Vec<String> = ["/log", "/quit", "@alice", "@bob"].map(String::from).into();
        let cases: [(&str, usize, &[&str]); 8] = [
            ("/", 0, &["/log ", "/quit "]),
            ("/lo", 0, &["/log "]),
            ("say /lo", 4, &[]),
            ("@a", 0, &["@alice "]),
            ("tell @b", 5, &["@bob "]),
            ("/log a", 5, &["alice "]),
            ("/log ", 5, &["alice ", "bob "]),
            ("al", 0, &[]),
        ];
        for (typed, start, wanted) in cases {
            let wanted = wanted.iter().map(ToString::to_string).collect();
            assert_eq!(complete(typed, &words), (start, wanted), "{typed}");
        }
    }
    #[test]
    fn the_history_keeps_line_ends_and_is_private_and_damage_is_tolerated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history");
        assert!(load(&file).is_err());
        let mut history = Some(file.clone());
        keep(&mut history, "one");
        keep(&mut history, "two\nlines");
        append(&file, "three").unwrap();
        assert_eq!(load(&file).unwrap(), ["one", "two\nlines", "three"]);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::File::create(&file).unwrap().write_all(b"\"a\"\n\"torn\n\xff\n\"b\"\n").unwrap();
        assert_eq!(load(&file).unwrap(), ["a", "b"]);
        let mut refused = Some(folder.path().join("no/such/folder"));
        keep(&mut refused, "x");
        assert_eq!(refused, None);
    }
}
