//! The interactive lead's terminal: typed lines become [`Input`] values, output appears above the line being
//! typed.
//!
//! One thread reads and one prints, so that neither a pause at the prompt nor a slow terminal delays the
//! agent. Without a terminal on both sides the same calls read plain lines and write plain text.

pub(crate) use super::editor::{ConsoleOptions, EditableText, Input};

use super::editor::{self, LineReader, OfferedText, Printer, Words, write_out};
use super::external_editor::ExternalEditor;
use super::live::Live;
use super::messages::NAME_WIDTH;
use super::sanitize::one_line;
use super::style::Palette;
use crate::agent::progress::Progress;
use crate::os::terminal_size;
use crate::wire::WithUnknownFields;
use crate::wire::roster::Member;
use std::io::{self, BufRead, IsTerminal};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The longest time that closing may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// The interactive lead's terminal. Dropping it prints the pending rows, removes the prompt and restores the
/// terminal. That takes a few milliseconds, and at most [`CLOSE_LIMIT`].
#[derive(Debug)]
pub(crate) struct Console {
    palette: Palette,
    is_terminal: bool,
    commands: Vec<String>,
    words: Words,
    offered_text: OfferedText,
    external_editor: ExternalEditor,
    live: Live,
    /// The rows to print; `None` while the console closes.
    rows: Option<mpsc::Sender<String>>,
    printed: mpsc::Receiver<()>,
}

impl Console {
    /// Starts the console on the terminal, or on plain stdin and stdout without one. Fails if a thread cannot be
    /// started.
    pub(crate) fn start(options: ConsoleOptions) -> io::Result<(Self, UnboundedReceiver<Input>)> {
        let (inputs, received) = unbounded_channel();
        let (palette, commands) = (options.palette, options.completions.clone());
        let words: Words = Arc::new(Mutex::new(commands.clone()));
        let offered_text = OfferedText::default();
        let external_editor = options.external_editor.clone();
        let on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        let open = || {
            let (words, text) = (Arc::clone(&words), Arc::clone(&offered_text));
            editor::open(options, words, text, inputs.clone()).ok()
        };
        // A terminal that cannot move its cursor is read like a pipe.
        let (reader, printer): (LineReader, _) = match on_terminal.then(open).flatten() {
            Some((reader, printer)) => (reader, Some(printer)),
            None => (Box::new(move || read_lines(&inputs)), None),
        };
        let is_terminal = printer.is_some();
        let (rows, to_print) = mpsc::channel();
        let (finished, printed) = mpsc::channel();
        thread::Builder::new().name("console-out".into()).spawn(move || {
            print_rows(&to_print, printer);
            drop(finished);
        })?;
        thread::Builder::new().name("console-in".into()).spawn(reader)?;
        let (live, rows) = (Live::new(palette), Some(rows));
        let console = Self {
            palette,
            is_terminal,
            commands,
            words,
            offered_text,
            external_editor,
            live,
            rows,
            printed,
        };
        Ok((console, received))
    }

    pub(crate) fn show(&mut self, progress: &Progress) {
        let rows = self.live.rows(progress, self.width());
        self.put(rows);
    }

    /// Shows the activity of a teammate, on one line.
    pub(crate) fn member(&self, member: &Member, text: &str) {
        let name = one_line(&member.name, NAME_WIDTH);
        let room = self.width().map_or(200, |width| width.saturating_sub(name.len() + 3));
        let text = self.palette.dim(&one_line(text, room));
        self.put(format!("{} {text}\n", self.palette.member(&member.color, &format!("│ {name}"))));
    }

    /// Shows text that a view of this layer has rendered.
    pub(crate) fn print(&self, text: &str) {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        self.put(format!("{text}{end}"));
    }

    /// Sets the members: their names are completed, and their mail has their colour.
    pub(crate) fn set_members(&mut self, members: &[WithUnknownFields<Member>]) {
        let names = members.iter().map(|member| format!("@{}", member.name));
        let words = self.commands.iter().cloned().chain(names).collect();
        *self.words.lock().unwrap_or_else(PoisonError::into_inner) = words;
        let colors = members.iter().map(|member| (member.name.clone(), member.color.clone()));
        self.live.colors = colors.collect();
    }

    /// Sets the text that the line `e` opens in the person's editor. The result is an [`Input::Edited`].
    pub(crate) fn offer_text(&self, text: Option<EditableText>) {
        *self.offered_text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// Returns the width for text in columns; `None` without a terminal.
    pub(crate) fn width(&self) -> Option<usize> {
        terminal_size::columns().filter(|_| self.is_terminal)
    }

    fn put(&self, rows: String) {
        if let Some(to_print) = self.rows.as_ref().filter(|_| !rows.is_empty()) {
            // The printing thread outlives this sender.
            to_print.send(rows).ok();
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.offer_text(None);
        self.external_editor.stop();
        self.rows = None;
        // The channel carries no value: the wait ends with the thread.
        self.printed.recv_timeout(CLOSE_LIMIT).ok();
    }
}

/// Prints rows until the sender is dropped: above the line being typed, or directly. Rows that have accumulated
/// are printed as one piece.
fn print_rows(rows: &mpsc::Receiver<String>, mut printer: Option<Printer>) {
    while let Ok(mut text) = rows.recv() {
        text.extend(rows.try_iter());
        match &mut printer {
            Some(printer) => printer.print(text),
            None => write_out(&text),
        }
    }
    if let Some(printer) = printer {
        printer.finish();
    }
}

fn read_lines(inputs: &UnboundedSender<Input>) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let input = match stdin.read_until(b'\n', &mut line) {
            Ok(0) => Input::EndOfInput,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                Input::Line(text.trim_end_matches(['\n', '\r']).to_owned())
            }
            Err(_) => Input::Closed,
        };
        let last = !matches!(input, Input::Line(_));
        if inputs.send(input).is_err() || last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests with a simulated person at a pseudo-terminal, on which a second copy of the test program runs.

    use super::*;
    use crate::os::terminal::pty::{self, Pty};
    use std::fs::File;
    use std::io::{BufReader, Write};
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    const BOUND: Duration = Duration::from_secs(20);
    /// The environment variable that is set in the child; its value is the path of the history file.
    const CHILD: &str = "CONSOLE_TEST_HISTORY";

    /// Runs in the child: prints each input on stderr, and handles a few commands.
    #[test]
    fn child() {
        #[expect(clippy::disallowed_methods, reason = "this is not the program but its stand-in")]
        let Some(history) = std::env::var_os(CHILD) else { return };
        let (mut console, mut inputs) = Console::start(ConsoleOptions {
            palette: Palette::plain(),
            prompt: "> ".into(),
            history_file: Some(history.into()),
            completions: vec!["/team".into(), "/quit".into()],
            external_editor: ExternalEditor::new(None, Vec::new(), "/nonexistent".into()),
        })
        .unwrap();
        console.set_members(&[alice().into()]);
        console.print("ready");
        while let Some(input) = inputs.blocking_recv() {
            eprintln!("{input:?}");
            match &input {
                Input::Interrupt => flood(&mut console),
                Input::Line(line) if line == "quit" => break,
                Input::Line(line) => console.print(&format!("echo {line}")),
                Input::EndOfInput | Input::Answer(_) | Input::Edited { .. } => {}
                Input::Closed => break,
            }
        }
        console.print("bye");
        drop(console);
        eprintln!("closed");
    }

    fn alice() -> Member {
        Member { name: "alice".into(), color: "blue".into(), ..Member::default() }
    }

    fn flood(console: &mut Console) {
        let (_open, never) = mpsc::channel::<()>();
        for number in 0..100 {
            console.show(&Progress::Text(format!("line {number} of the flood\n")));
            // About the speed of a fast model.
            never.recv_timeout(Duration::from_millis(3)).ok();
        }
        console.show(&Progress::Text("a last word".into()));
        console.member(&alice(), "bash ls");
        console.show(&Progress::Note("the end of the flood".into()));
    }

    /// Returns the command of the child, which ignores the SIGHUP of its terminal.
    fn command() -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "ui::console::tests::child", "--nocapture"]);
        command.env_clear().env("TERM", "xterm").env(CHILD, "").stderr(Stdio::piped());
        command
    }

    /// Returns the lines of the child's stderr as they arrive.
    fn listen(child: &mut Child) -> mpsc::Receiver<String> {
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (told, listener) = mpsc::channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|l| told.send(l)));
        listener
    }

    struct Person {
        child: Child,
        outer: File,
        screen: vt100::Parser,
        told: mpsc::Receiver<String>,
    }

    impl Person {
        fn sit_down() -> Self {
            let (mut child, outer) = Pty::open(160, 80).unwrap().spawn(&mut command()).unwrap();
            let told = listen(&mut child);
            let mut person = Self { child, outer, screen: vt100::Parser::new(160, 80, 0), told };
            person.see("the prompt", |rows| rows.contains("ready") && rows.ends_with("\n>"));
            person
        }

        fn types(&mut self, keys: &str) {
            self.outer.write_all(keys.as_bytes()).unwrap();
        }

        fn rows(&self) -> String {
            let rows = self.screen.screen().rows(0, 80).map(|row| row.trim_end().to_owned());
            rows.collect::<Vec<_>>().join("\n").trim_end().to_owned()
        }

        /// Waits until `looks` accepts the screen.
        fn see(&mut self, what: &str, looks: impl Fn(&str) -> bool) {
            let deadline = Instant::now() + BOUND;
            while !looks(&self.rows()) {
                let left = deadline.saturating_duration_since(Instant::now());
                match pty::read(&mut self.outer, left) {
                    Ok(Some(bytes)) => self.screen.process(&bytes),
                    other => panic!("never saw {what} ({other:?}):\n{}", self.rows()),
                }
            }
        }

        fn hears(&self, wanted: &str) {
            assert_eq!(self.told.recv_timeout(BOUND).unwrap(), wanted);
        }

        /// Types `quit` and waits for the end of the program.
        fn quits(mut self) {
            self.types("quit\r");
            self.see("the farewell", |rows| rows.contains("bye"));
            self.hears("Line(\"quit\")");
            self.hears("closed");
            assert!(pty::is_cooked(&self.outer).unwrap());
            while let Ok(Some(bytes)) = pty::read(&mut self.outer, BOUND) {
                self.screen.process(&bytes);
            }
            let rows = self.rows();
            let after = rows.split("bye\n").nth(1).unwrap_or_default();
            assert!(!after.contains('>'), "the prompt is still there:\n{rows}");
            assert!(self.child.wait().unwrap().success());
        }
    }

    impl Drop for Person {
        fn drop(&mut self) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }

    #[test]
    fn a_typed_line_stays_whole_while_rows_are_printed_above_it() {
        let mut person = Person::sit_down();
        person.types("\x03");
        person.hears("Interrupt");
        for key in "the quick brown fox jumps".chars() {
            person.types(&key.to_string());
            person.see("the key", |rows| rows.ends_with(key.to_string().trim()));
        }
        person.see("the end", |rows| rows.contains("the end of the flood"));
        person.see("the typed line", |rows| rows.ends_with("\n> the quick brown fox jumps"));
        let rows = person.rows();
        let mut wanted: Vec<String> = (0..100).map(|n| format!("line {n} of the flood")).collect();
        wanted.extend(["│ alice bash ls", "a last word", "the end of the flood"].map(String::from));
        let start = rows.find("line 0 of").unwrap();
        let shown: Vec<&str> = rows[start..].lines().collect();
        assert_eq!(shown[..wanted.len()], wanted);
        person.types("\r");
        person.hears("Line(\"the quick brown fox jumps\")");
        person.quits();
    }

    #[test]
    fn lines_arrive_typed_ahead_pasted_completed_and_recalled() {
        let mut person = Person::sit_down();
        for (keys, lines) in [
            ("one\rtwo\rthr", &["one", "two"][..]),
            ("ee\r", &["three"]),
            ("\x1b[200~first\rsecond\x1b[201~ and\x1b\rthird\r", &["first\nsecond and\nthird"]),
            ("/te\t@al\tx\r", &["/team @alice x"]),
            ("\x1b[A\r", &["/team @alice x"]),
        ] {
            person.types(keys);
            for line in lines {
                person.hears(&format!("Line({line:?})"));
            }
        }
        person.quits();
    }

    #[test]
    fn a_closed_terminal_is_reported_without_a_panic() {
        let mut person = Person::sit_down();
        person.outer = File::open("/dev/null").unwrap();
        // A panic would be printed before "closed". (The test harness itself panics later.)
        person.hears("Closed");
        person.hears("closed");
    }

    #[test]
    fn without_a_terminal_plain_lines_are_read() {
        let mut child = command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let told = listen(&mut child);
        child.stdin.take().unwrap().write_all(b"one\r\ntw\xff\nquit\n").unwrap();
        let told: Vec<String> = told.iter().collect();
        assert_eq!(told, ["Line(\"one\")", "Line(\"tw\u{fffd}\")", "Line(\"quit\")", "closed"]);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("ready\necho one\n") && text.contains("bye\n"), "{text}");
        assert!(!text.contains('\x1b') && !text.contains("> "), "{text}");
    }
}
