//! The line being typed: rustyline on a thread of its own, and a printer that writes above it.
//!
//! rustyline can print above a line only while it edits one. Between two lines the terminal is
//! nobody's, and text written there would end up beside the next prompt; so the printer waits for the
//! prompt ([`Stage`]). Knows nothing of what lines mean.

use super::history::{History, OFFERED};
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
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Longest wait for a prompt. Only a stopped or dying editor takes so long; then text matters more
/// than its place.
const PATIENCE: Duration = Duration::from_secs(1);
/// Up and down again: rows that change nothing.
const NOTHING: &str = "\x1b[A\n";
/// Ends the synchronized update that an unwound paint leaves open.
const END_OF_UPDATE: &str = "\x1b[?2026l";

/// An input of the person at the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "EndOfInput is a standard term, not a kind of Input")]
pub(crate) enum Input {
    /// A line, or several pasted ones; it may be blank.
    Line(String),
    /// The key that answers a question, whatever is being typed: `y`, `n` or `a` with Alt.
    Answer(char),
    /// Ctrl-C on an empty line.
    Interrupt,
    /// Ctrl-D on an empty line, or the end of a piped stdin.
    EndOfInput,
    /// The terminal is gone. It is the last input.
    Closed,
}

/// The words that complete.
pub(super) type Words = Arc<Mutex<Vec<String>>>;

/// The parts of an interactive terminal.
pub(super) struct Parts {
    /// Reads lines until the terminal is gone; runs on its own thread.
    pub(super) reader: Box<dyn FnOnce() + Send>,
    /// Prints above the line.
    pub(super) printer: Printer,
}

/// What the editor is made of.
pub(super) struct Setup {
    pub(super) palette: Palette,
    pub(super) prompt: String,
    pub(super) history_file: Option<PathBuf>,
    pub(super) words: Words,
}

/// Takes the terminal.
///
/// # Errors
/// There is no terminal, or none that can move its cursor.
pub(super) fn open(setup: Setup, inputs: UnboundedSender<Input>) -> rustyline::Result<Parts> {
    let config = Config::builder()
        .max_history_size(OFFERED)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        // The palette decides about colours; rustyline calls the helper that paints only when it
        // believes in them.
        .color_mode(rustyline::ColorMode::Forced)
        .build();
    let history = MemHistory::with_config(&config);
    let mut editor: Editor<Typing, MemHistory> = Editor::with_history(config, history)?;
    let stage = Stage::default();
    let printer =
        Printer { way: Box::new(editor.create_external_printer()?), stage: stage.clone() };

    let mut kept = History::new(setup.history_file);
    for entry in kept.load() {
        editor.add_history_entry(entry)?;
    }
    let key = |key: Key| EventHandler::Conditional(Box::new(OnKey { key, inputs: inputs.clone() }));
    editor.bind_sequence(KeyEvent::ctrl('c'), key(Key::Interrupt));
    editor.bind_sequence(KeyEvent::ctrl('d'), key(Key::End));
    for answer in ['y', 'n', 'a'] {
        editor.bind_sequence(KeyEvent::alt(answer), key(Key::Answer(answer)));
    }
    // Enter arrives as a line feed when it was typed between two lines.
    for enter in [KeyEvent(KeyCode::Enter, Modifiers::ALT), KeyEvent::alt('\n')] {
        editor.bind_sequence(enter, EventHandler::Simple(Cmd::Newline));
    }
    editor.set_helper(Some(Typing {
        palette: setup.palette,
        words: setup.words,
        stage: stage.clone(),
    }));

    let prompt = setup.prompt;
    let reader = move || {
        let _gone = Gone(stage);
        read_lines(&mut editor, &prompt, &mut kept, &inputs);
    };
    Ok(Parts { reader: Box::new(reader), printer })
}

fn read_lines(
    editor: &mut Editor<Typing, MemHistory>,
    prompt: &str,
    history: &mut History,
    inputs: &UnboundedSender<Input>,
) {
    loop {
        let input = match editor.readline(prompt) {
            Ok(line) => {
                if matches!(editor.add_history_entry(line.as_str()), Ok(true)) {
                    history.keep(&line);
                }
                Input::Line(line)
            }
            Err(ReadlineError::Interrupted) => Input::Interrupt,
            Err(ReadlineError::Eof) => Input::EndOfInput,
            // A key that is no UTF-8: the line is lost, the terminal is not.
            Err(ReadlineError::Io(why)) if why.kind() == ErrorKind::InvalidData => continue,
            Err(_) => Input::Closed,
        };
        let last = matches!(input, Input::EndOfInput | Input::Closed);
        if inputs.send(input).is_err() || last {
            return;
        }
    }
}

/// Where the editor is, for the printer.
#[derive(Debug, Clone, Default)]
struct Stage {
    shared: Arc<(Mutex<Place>, Condvar)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// Between two lines.
    #[default]
    Away,
    /// The prompt is on the screen, the terminal is raw.
    Editing,
    /// It shall paint no more.
    Closing,
    /// It reads no more, and the terminal is as it was before.
    Gone,
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, Place> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes from one place to another, unless somebody has gone further. Tells where it is now.
    fn go(&self, from: &[Place], to: Place) -> Place {
        let mut place = self.lock();
        if from.contains(&place) {
            *place = to;
        }
        self.shared.1.notify_all();
        *place
    }

    /// Waits while `on_the_way`, but not for ever. Tells where it is then.
    fn wait(&self, on_the_way: impl Fn(Place) -> bool) -> Place {
        let arrived =
            self.shared.1.wait_timeout_while(self.lock(), PATIENCE, |place| on_the_way(*place));
        *arrived.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Tells that the reader has ended, however it did.
struct Gone(Stage);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.go(&[Place::Away, Place::Editing, Place::Closing], Place::Gone);
    }
}

/// Prints above the line being typed.
pub(super) struct Printer {
    way: Box<dyn ExternalPrinter + Send>,
    stage: Stage,
}

impl Printer {
    /// Prints whole rows. A terminal that is gone takes them without complaint: the reader tells.
    pub(super) fn print(&mut self, text: String) {
        if self.stage.wait(|place| place == Place::Away) == Place::Gone {
            write_out(&text);
        } else {
            // Fails when the editor ends at this moment, together with its terminal.
            self.way.print(text).ok();
        }
    }

    /// Ends the editor: takes the prompt off the screen and gives the terminal back as it was.
    pub(super) fn finish(mut self) {
        // rustyline has room for one message: when this one finds it, all others have been taken, and
        // what is taken is printed before the next prompt, where closing takes effect.
        self.print(NOTHING.into());
        if self.stage.go(&[Place::Away, Place::Editing], Place::Closing) == Place::Closing {
            // The editor sleeps until something is to be read or printed.
            self.print(NOTHING.into());
            self.stage.wait(|place| place != Place::Gone);
            write_out(END_OF_UPDATE);
        }
    }
}

/// Writes to stdout, which may be closed.
pub(super) fn write_out(text: &str) {
    let mut out = io::stdout().lock();
    // A closed terminal gives EIO, a closed pipe EPIPE; nobody is left who could be told.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// What rustyline asks while a line is typed.
struct Typing {
    palette: Palette,
    words: Words,
    stage: Stage,
}

/// Unwinds the reader: rustyline offers no other way out of a line, and unwinding restores the
/// terminal. No panic: nothing is reported, and nobody else's work is on that stack.
struct Closed;

impl Highlighter for Typing {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        if self.stage.go(&[Place::Away], Place::Editing) == Place::Closing {
            std::panic::resume_unwind(Box::new(Closed));
        }
        Cow::Owned(self.palette.bold(prompt))
    }
}

impl Validator for Typing {
    fn validate(&self, _: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        // The line is about to be given out.
        self.stage.go(&[Place::Editing], Place::Away);
        Ok(ValidationResult::Valid(None))
    }
}

impl Completer for Typing {
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

impl Hinter for Typing {
    type Hint = String;
}

impl Helper for Typing {}

/// Where the last word begins, and what it may become: a command at the begin of the line, `@name`
/// anywhere, a bare name behind a command.
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

/// Ctrl-C and Ctrl-D, which mean one thing with text on the line and another without, and the keys that
/// leave the line alone.
struct OnKey {
    key: Key,
    inputs: UnboundedSender<Input>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Interrupt,
    End,
    Answer(char),
}

impl ConditionalEventHandler for OnKey {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, line: &EventContext<'_>) -> Option<Cmd> {
        let input = match (self.key, line.line().is_empty()) {
            (Key::Interrupt, false) => return Some(Cmd::Kill(Movement::WholeBuffer)),
            (Key::Interrupt, true) => Input::Interrupt,
            (Key::End, false) => return None,
            (Key::End, true) => Input::EndOfInput,
            (Key::Answer(answer), _) => Input::Answer(answer),
        };
        // Without a receiver there is nothing to interrupt or to end.
        self.inputs.send(input).ok();
        Some(Cmd::Noop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_complete_where_they_make_sense() {
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
            let (at, found) = complete(typed, &words);
            assert_eq!(
                (at, found.iter().map(String::as_str).collect::<Vec<_>>()),
                (start, wanted.to_vec())
            );
        }
    }
}
