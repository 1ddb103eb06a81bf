//! The console on a terminal: one thread that reads keys, prints finished text and draws the pane below it.

use super::super::live::Live;
use super::super::question::is_edit;
use super::super::sanitize::{one_line, sanitize, wrap, wrap_styled};
use super::exchange::{ConsoleOptions, EditableText, FileList, Input, Update, write_out};
use super::input_line::{InputAction, InputLine};
use super::pane::{FRAME, Pane, QuestionPrompt};
use super::viewport::Viewport;
use crate::ui::terminal_input::{Decoder, KeyCode, KeyPress, TerminalInput};

use crate::agent::progress::Progress;
use crate::os::terminal::raw_mode::{RawMode, TerminalEvents, Waker, suspend};
use crate::os::terminal::typed;
use crate::os::terminal_size;
use crate::os::{Clock, SystemClock};
use std::io;
use std::panic;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// The columns and rows of a terminal that does not report its size.
const DEFAULT_SIZE: (u16, u16) = (80, 24);
/// The least time between two frames that no key has caused: 60 frames a second.
const FRAME_GAP: Duration = Duration::from_millis(16);
/// The wait for keys when nothing moves. Keys, updates and signals end it.
const AT_REST: Duration = Duration::from_secs(3600);

/// Bracketed paste and reports of the focus, on and off.
const BEGIN_INPUT: &str = "\x1b[?2004h\x1b[?1004h";
const END_INPUT: &str = "\x1b[?2004l\x1b[?1004l\x1b[?25h";

/// The state of the question whose answer is being typed.
#[derive(Debug)]
struct PutAside {
    /// The text that was being typed when the question came.
    draft: String,
}

pub(super) struct Screen {
    raw: RawMode,
    events: TerminalEvents,
    decoder: Decoder,
    viewport: Viewport,
    pane: Pane,
    input: InputLine,
    live: Live,
    options: ConsoleOptions,
    inputs: UnboundedSender<Input>,
    /// Finished rows that are not printed yet.
    above: String,
    offered_text: Option<EditableText>,
    put_aside: Option<PutAside>,
    width: usize,
    height: usize,
    drawn_at: Option<Instant>,
    has_focus: bool,
    /// Whether the terminal is gone, so that nothing is read or drawn any more.
    is_gone: bool,
}

impl Screen {
    /// Takes over the terminal. Fails without one.
    pub(super) fn open(
        options: ConsoleOptions,
        input: InputLine,
        inputs: UnboundedSender<Input>,
    ) -> io::Result<(Self, Waker)> {
        let events = TerminalEvents::listen()?;
        let raw = RawMode::enter()?;
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            write_out(END_INPUT);
            report(info);
        }));
        let waker = events.waker();
        write_out(BEGIN_INPUT);
        let pane =
            Pane { palette: options.palette, prompt: options.prompt.clone(), ..Pane::default() };
        let mut screen = Self {
            raw,
            events,
            decoder: Decoder::default(),
            viewport: Viewport::default(),
            pane,
            input,
            live: Live::new(options.palette),
            options,
            inputs,
            above: String::new(),
            offered_text: None,
            put_aside: None,
            width: 0,
            height: 0,
            drawn_at: None,
            has_focus: true,
            is_gone: false,
        };
        screen.measure();
        Ok((screen, waker))
    }

    /// Runs until the sender of updates is dropped; then removes the pane and restores the terminal.
    pub(super) fn run(mut self, updates: &Receiver<Update>) {
        while self.take_updates(updates) {
            let patience = self.draw_if_due();
            self.wait(patience);
        }
        let rest = self.live.finish_text(Some(self.width));
        self.above.push_str(&rest);
        if !self.is_gone {
            let pane = self.viewport.remove();
            write_out(&(pane + &std::mem::take(&mut self.above).replace('\n', "\r\n") + END_INPUT));
        }
        // Dropping the raw mode restores the settings.
    }

    /// Takes the updates that have arrived; a terminal that is gone waits for them. Returns whether there can be more.
    fn take_updates(&mut self, updates: &Receiver<Update>) -> bool {
        if self.is_gone {
            return updates.recv().is_ok_and(|update| self.update(update));
        }
        loop {
            match updates.try_recv() {
                Ok(update) => {
                    if !self.update(update) {
                        return false;
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Draws unless the last frame is too recent; returns the time until the next look.
    fn draw_if_due(&mut self) -> Duration {
        let now = SystemClock.monotonic();
        let since = self.drawn_at.map(|at| now.saturating_duration_since(at));
        let early = since.and_then(|since| FRAME_GAP.checked_sub(since));
        if let Some(early) = early.filter(|early| !early.is_zero()) {
            return early;
        }
        self.draw(now);
        if self.pane.is_moving() { FRAME } else { AT_REST }
    }

    fn draw(&mut self, now: Instant) {
        if self.is_gone {
            self.above.clear();
            return;
        }
        let preview = self.live.preview(Some(self.width.saturating_sub(1)));
        self.pane.preview = preview.lines().map(ToOwned::to_owned).collect();
        let rows = self.pane.rows(&mut self.input, now, self.width, self.height);
        let out = self.viewport.update(&std::mem::take(&mut self.above), rows);
        if !out.is_empty() {
            write_out(&out);
            self.drawn_at = Some(now);
        }
    }

    /// Waits for keys, updates and signals, and handles keys and signals.
    fn wait(&mut self, patience: Duration) {
        if self.is_gone {
            return;
        }
        match typed(&self.events, patience) {
            Ok(bytes) => {
                let happened = self.events.take();
                if happened.suspend {
                    self.suspend();
                }
                if happened.resized {
                    // A program that was continued finds the settings of its shell.
                    self.raw.resume().unwrap_or_default();
                    self.measure();
                }
                for input in self.decoder.feed(&bytes) {
                    self.on_terminal_input(input);
                }
                if !bytes.is_empty() {
                    // A key is shown at once.
                    self.drawn_at = None;
                }
            }
            Err(_) => {
                self.is_gone = true;
                self.send(Input::Closed);
            }
        }
    }

    fn send(&self, input: Input) {
        // Without a receiver the session is over.
        self.inputs.send(input).ok();
    }

    fn measure(&mut self) {
        let (columns, rows) = terminal_size::size().unwrap_or(DEFAULT_SIZE);
        (self.width, self.height) = (usize::from(columns), usize::from(rows).max(2));
        self.viewport.resize(self.width);
        self.drawn_at = None;
    }

    /// Returns whether more updates can follow.
    fn update(&mut self, update: Update) -> bool {
        let width = Some(self.width);
        match update {
            Update::Progress(progress) => {
                if let Progress::ToolOutput(line) | Progress::CallDraft(line) = &*progress {
                    self.pane.output.clone_from(line);
                } else if let Progress::ToolStarted { .. } | Progress::ToolEnded(_) = &*progress {
                    self.pane.output.clear();
                } else if let Progress::PromptsTaken(_) = &*progress {
                    self.pane.queued.clear();
                }
                let rows = self.live.rows_above_pane(&progress, width, SystemClock.monotonic());
                self.above.push_str(&rows);
            }
            Update::Print(text) => {
                let rest = self.live.finish_text(width);
                self.above.push_str(&rest);
                self.above.push_str(&wrap_all(&text, self.width));
            }
            Update::Folded(folded) => {
                let rows = self.live.folded_rows(folded, width, true);
                self.above.push_str(&rows);
            }
            Update::Members(members) => {
                self.live.colors = members.iter().cloned().collect();
                self.input.vocabulary().members =
                    members.into_iter().map(|(name, _)| name).collect();
            }
            Update::Files(files) => self.input.vocabulary().files = files,
            Update::Question(question) => self.set_question(question),
            Update::Working(working) => self.pane.working = working,
            Update::Status(status) => self.pane.status_line = *status,
            Update::Notice(text) => self.pane.notice = text,
            Update::Closing(text) => self.pane.closing = Some(text),
            Update::Offer(text) => self.offered_text = text,
            Update::End => return false,
        }
        true
    }

    /// Gives the input to a question, or back to the text that was being typed.
    fn set_question(&mut self, question: Option<QuestionPrompt>) {
        let id = |question: &Option<QuestionPrompt>| question.as_ref().map(|it| it.id.clone());
        let (before, now) = (id(&self.pane.question), id(&question));
        if before != now {
            if before.is_some() {
                // An answer that was being typed is for that question alone.
                self.input.take();
            }
            match (&now, self.put_aside.take()) {
                (Some(_), None) => {
                    self.put_aside = Some(PutAside { draft: self.input.take() });
                }
                (Some(_), aside @ Some(_)) => self.put_aside = aside,
                (None, Some(PutAside { draft })) => self.input.set(&draft),
                (None, None) => {}
            }
            if now.is_some() && !self.has_focus && self.options.notifies {
                question.as_ref().iter().for_each(|question| notify(question));
            }
        }
        self.pane.question = question;
    }

    fn on_terminal_input(&mut self, input: TerminalInput) {
        match input {
            TerminalInput::Focus(has_focus) => self.has_focus = has_focus,
            TerminalInput::Paste(text) => {
                self.pane.notice.clear();
                self.input.paste(&text);
            }
            TerminalInput::Key(key) => {
                self.has_focus = true;
                self.on_key(&key);
            }
        }
    }

    fn on_key(&mut self, key: &KeyPress) {
        self.pane.notice.clear();
        if self.pane.closing.is_some() {
            if key.ctrl && key.key == KeyCode::Char('c') {
                self.send(Input::Interrupt);
            }
            return;
        }
        if key.ctrl && key.key == KeyCode::Char('o') {
            return self.open_folded();
        }
        let question = self.pane.question.as_ref().map(|question| question.id.clone());
        let Some(action) = self.input.press(key, question.is_none()) else { return };
        match action {
            InputAction::Submit(text) => self.submit(text, question),
            InputAction::Interrupt => self.send(Input::Interrupt),
            InputAction::EndOfInput => self.send(Input::EndOfInput),
            InputAction::Escape => self.send(question.map_or(Input::Escape, Input::PutOff)),
            InputAction::Answer(key) => self.send(Input::Answer { key, question }),
            InputAction::Suspend => self.suspend(),
            InputAction::Redraw => {
                write_out("\x1b[2J\x1b[H");
                self.viewport = Viewport::default();
            }
        }
    }

    fn submit(&mut self, text: String, question: Option<String>) {
        let Some(question) = question else {
            if !text.trim().is_empty() {
                self.input.remember(&text);
                self.print_typed(&text);
            }
            return self.send(Input::Line(text));
        };
        if is_edit(&text)
            && let Some(offered) = self.offered_text.clone().filter(|it| it.id == question)
        {
            return self.edit(offered);
        }
        if text.trim_start().starts_with('/') {
            self.input.remember(&text);
            self.print_typed(&text);
            return self.send(Input::Line(text));
        }
        self.send(Input::Reply { question, text });
    }

    /// Prints what the person has typed, as a part of the conversation.
    fn print_typed(&mut self, text: &str) {
        let rest = self.live.finish_text(Some(self.width));
        self.above.push_str(&rest);
        let prompt = self.options.prompt.clone();
        let indent = " ".repeat(prompt.chars().count());
        let room = self.width.saturating_sub(indent.len());
        let text = sanitize(text);
        let rows: Vec<String> = text.split('\n').flat_map(|line| wrap(line, Some(room))).collect();
        let text = rows.join(&format!("\n{indent}"));
        let palette = self.options.palette;
        self.above.push_str(&palette.bold(&prompt));
        self.above.push_str(&text);
        self.above.push('\n');
        if self.is_lead_at_work() && !text.trim_start().starts_with(['/', '@', '!']) {
            self.pane.queued.push(one_line(&text, 200));
        }
    }

    fn is_lead_at_work(&self) -> bool {
        self.pane.working.iter().any(|work| work.name == "lead")
    }

    /// Prints the newest folded part of the conversation in full.
    fn open_folded(&mut self) {
        match self.live.open_folded(Some(self.width)) {
            Some(rows) => self.above.push_str(&rows),
            None => self.pane.notice = "nothing to open".into(),
        }
    }

    /// Lets the person's editor change the text of a question.
    fn edit(&mut self, offered: EditableText) {
        self.leave();
        let text = self.options.external_editor.edit(&offered.name, &offered.text);
        self.come_back();
        self.send(Input::Edited { id: offered.id, text });
    }

    fn suspend(&mut self) {
        self.leave();
        // Without a shell that could continue it, the program goes on.
        suspend().unwrap_or_default();
        self.come_back();
    }

    /// Gives the terminal to another program.
    fn leave(&mut self) {
        self.drawn_at = None;
        self.draw(SystemClock.monotonic());
        let pane = self.viewport.remove();
        write_out(&(pane + END_INPUT));
        self.raw.pause();
    }

    fn come_back(&mut self) {
        if self.raw.resume().is_err() {
            // The next read reports that the terminal is gone.
            return;
        }
        write_out(BEGIN_INPUT);
        self.measure();
    }
}

/// Rings the bell and sends a notification of the desktop, because a question waits and the window has no focus.
fn notify(question: &QuestionPrompt) {
    let text = format!("{} asks to {}", question.name, question.what);
    let text: String = text.chars().filter(|c| !c.is_control() && *c != ';').take(120).collect();
    write_out(&format!("\x07\x1b]9;team: {text}\x07\x1b]777;notify;team;{text}\x07"));
}

/// Returns text without rows that are too wide.
fn wrap_all(text: &str, width: usize) -> String {
    let rows = text.split_inclusive('\n').map(|row| {
        let line = row.strip_suffix('\n').unwrap_or(row);
        let rows =
            if line.contains('\x1b') { wrap_styled(line, width) } else { wrap(line, Some(width)) };
        rows.join("\n") + "\n"
    });
    rows.collect()
}

/// Lists the files for completion on a thread of its own, once.
pub(super) fn list_files(
    files: FileList,
    done: impl FnOnce(Vec<String>) + Send + 'static,
) -> io::Result<()> {
    let list = move || done(files());
    std::thread::Builder::new().name("file-list".into()).spawn(list).map(drop)
}
