//! Tests with a simulated person at a pseudo-terminal, on which a second copy of the test program runs.

use super::*;
use crate::os::terminal::pty::{self, Pty};
use crate::wire::roster::Status;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const BOUND: Duration = Duration::from_secs(20);
/// The environment variable that is set in the child.
const CHILD: &str = "CONSOLE_TEST_CHILD";

const COMMANDS: &[SlashCommand] = &[
    SlashCommand { name: "/team", usage: "", about: "who is there", argument: ArgumentKind::None },
    SlashCommand { name: "/quit", usage: "", about: "leave", argument: ArgumentKind::None },
];

/// Runs in the child: prints each input on stderr, and handles a few commands.
#[test]
fn child() {
    #[expect(clippy::disallowed_methods, reason = "this is not the program but its stand-in")]
    let Some(kind) = std::env::var_os(CHILD) else { return };
    let (console, mut inputs) = Console::start(ConsoleOptions {
        palette: Palette::plain(),
        prompt: "> ".into(),
        history_file: None,
        commands: COMMANDS,
        files: Some(Arc::new(|| vec!["src/main.rs".into()])),
        external_editor: ExternalEditor::new(None, Vec::new(), "/nonexistent".into()),
        is_plain: kind == "plain",
        notifies: true,
    })
    .unwrap();
    console.set_members(&[alice().into()]);
    console.set_status(StatusLine {
        mode: Some(PermissionMode::Default),
        model: "test".into(),
        members: vec![MemberMark {
            name: "alice".into(),
            color: "blue".into(),
            status: Status::Idle,
        }],
        ..StatusLine::default()
    });
    console.print("ready");
    while let Some(input) = inputs.blocking_recv() {
        eprintln!("{input:?}");
        match &input {
            Input::Interrupt => flood(&console),
            Input::Line(line) if line == "quit" => break,
            Input::Line(line) if line == "ask" => console.set_question(Some(question("one"))),
            Input::Line(line) if line == "panic" => panic!("as asked"),
            Input::Line(line) => console.print(&format!("echo {line}")),
            Input::Reply { text, .. } if text == "next" => {
                console.set_question(Some(question("two")));
            }
            Input::Reply { .. } | Input::PutOff(_) => console.set_question(None),
            Input::Escape => console.set_question(Some(question("one"))),
            Input::EndOfInput | Input::Answer { .. } | Input::Edited { .. } => {}
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

fn question(id: &str) -> QuestionPrompt {
    QuestionPrompt {
        id: id.into(),
        name: "alice".into(),
        color: "blue".into(),
        what: format!("run: {id}"),
        choices: vec![("y", "yes".into()), ("Esc", "later".into())],
        position: (1, 1),
    }
}

fn flood(console: &Console) {
    let (_open, never) = mpsc::channel::<()>();
    for number in 0..100 {
        console.print(&format!("line {number} of the flood"));
        // About the speed of a fast model.
        never.recv_timeout(Duration::from_millis(3)).ok();
    }
    console.show(Progress::Text("a last word".into()));
    console.print_member("alice", "blue", "bash ls");
    console.show(Progress::Note("the end of the flood".into()));
}

/// Returns the command of the child, which ignores the SIGHUP of its terminal.
fn command(kind: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "ui::console::tests::child", "--nocapture"]);
    command.env_clear().env("TERM", "xterm").env(CHILD, kind).stderr(Stdio::piped());
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
    written: Vec<u8>,
}

const STATUS: &str = "default · test · ○ alice";

impl Person {
    fn sit_down() -> Self {
        let (mut child, outer) = Pty::open(160, 80).unwrap().spawn(&mut command("screen")).unwrap();
        let told = listen(&mut child);
        let screen = vt100::Parser::new(160, 80, 0);
        let mut person = Self { child, outer, screen, told, written: Vec::new() };
        person.see("the prompt", |rows| rows.contains("ready") && rows.ends_with(&input_row("")));
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
    #[track_caller]
    fn see(&mut self, what: &str, looks: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + BOUND;
        while !looks(&self.rows()) {
            let left = deadline.saturating_duration_since(Instant::now());
            match pty::read(&mut self.outer, left) {
                Ok(Some(bytes)) => {
                    self.screen.process(&bytes);
                    self.written.extend(bytes);
                }
                other => panic!("never saw {what} ({other:?}):\n{}", self.rows()),
            }
        }
    }

    #[track_caller]
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
            self.written.extend(bytes);
        }
        let rows = self.rows();
        let after = rows.split("bye\n").nth(1).unwrap_or_default();
        assert!(!after.contains('>') && !rows.contains(STATUS), "the pane is still there:\n{rows}");
        self.has_restored_modes();
        assert!(self.child.wait().unwrap().success());
    }

    /// Asserts that bracketed paste and reports of the focus are off, and the cursor is visible.
    #[track_caller]
    fn has_restored_modes(&self) {
        let written = String::from_utf8_lossy(&self.written);
        for (on, off) in [("?2004h", "?2004l"), ("?1004h", "?1004l"), ("?25l", "?25h")] {
            assert!(written.rfind(off) > written.rfind(on), "{on} is left on");
        }
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns the last two rows: the input with this text, and the status.
fn input_row(text: &str) -> String {
    format!("\n{}\n{STATUS}", format!("> {text}").trim_end())
}

#[test]
fn a_typed_line_stays_whole_while_rows_are_printed_above_it() {
    let mut person = Person::sit_down();
    person.types("\x03");
    person.hears("Interrupt");
    let mut typed = String::new();
    for key in "the quick brown fox jumps".chars() {
        typed.push(key);
        person.types(&key.to_string());
        person.see("the key", |rows| rows.ends_with(&input_row(&typed)));
    }
    person.see("the end", |rows| rows.contains("the end of the flood"));
    person.see("the typed line", |rows| rows.ends_with(&input_row("the quick brown fox jumps")));
    let rows = person.rows();
    let mut wanted: Vec<String> = (0..100).map(|n| format!("line {n} of the flood")).collect();
    wanted.extend(["a last word", "│ alice bash ls", "the end of the flood"].map(String::from));
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
        ("with a line feed\n", &["with a line feed"]),
    ] {
        person.types(keys);
        for line in lines {
            person.hears(&format!("Line({line:?})"));
        }
    }
    person.quits();
}

#[test]
fn a_question_owns_the_input_and_binds_its_answer() {
    let mut person = Person::sit_down();
    person.types("ask\r");
    person.hears("Line(\"ask\")");
    person.see("the question", |rows| rows.contains("? alice asks to run: one"));
    person.types("half a thought");
    person.see("the answer", |rows| rows.contains("answer> half a thought"));
    person.types("\x15next\r");
    person.hears("Reply { question: \"one\", text: \"next\" }");
    person.see("the next question", |rows| rows.contains("? alice asks to run: two"));
    person.types("\x1by");
    person.hears("Answer { key: 'y', question: Some(\"two\") }");
    person.types("\x1b");
    person.hears("PutOff(\"two\")");
    person.see("the prompt", |rows| rows.ends_with(&input_row("")));
    person.quits();
}

#[test]
fn a_question_leaves_the_draft_alone_and_rings_without_focus() {
    let mut person = Person::sit_down();
    person.types("my draft");
    person.see("the draft", |rows| rows.ends_with(&input_row("my draft")));
    person.types("\x1b");
    person.hears("Escape");
    person.see("the question", |rows| rows.contains("answer>\n"));
    person.types("\x1b");
    person.hears("PutOff(\"one\")");
    person.see("the draft again", |rows| rows.ends_with(&input_row("my draft")));
    assert!(!person.written.contains(&7), "the bell rang although the window has the focus");
    // The window loses the focus before the question comes.
    person.types("\x1b[O");
    person.types("\x15ask\r\x1b[O");
    person.hears("Line(\"ask\")");
    person.see("the question", |rows| rows.contains("answer>"));
    let written = String::from_utf8_lossy(&person.written).into_owned();
    assert!(written.contains("\x07\x1b]9;team: alice asks to run: one\x07"), "{written:?}");
    person.types("\x1b[I\x1b");
    person.hears("PutOff(\"one\")");
    person.see("the prompt", |rows| rows.ends_with(&input_row("")));
    person.quits();
}

#[test]
fn a_panic_restores_the_terminal() {
    let mut person = Person::sit_down();
    person.types("panic\r");
    person.hears("Line(\"panic\")");
    while let Ok(Some(bytes)) = pty::read(&mut person.outer, BOUND) {
        person.written.extend(bytes);
    }
    assert!(pty::is_cooked(&person.outer).unwrap());
    person.has_restored_modes();
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
fn a_narrower_terminal_keeps_the_input_visible() {
    let mut person = Person::sit_down();
    person.types("a text");
    person.see("the text", |rows| rows.ends_with(&input_row("a text")));
    pty::resize(&person.outer, 20, 18).unwrap();
    person.screen.screen_mut().set_size(20, 18);
    person.see("the narrow status", |rows| rows.contains("> a text\ndefault · test"));
    pty::resize(&person.outer, 160, 80).unwrap();
    person.screen.screen_mut().set_size(160, 80);
    person.see("the wide status", |rows| rows.ends_with(&input_row("a text")));
    person.types("\x15");
    person.quits();
}

#[test]
fn without_a_terminal_plain_lines_are_read() {
    let mut child = command("screen").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let told = listen(&mut child);
    child.stdin.take().unwrap().write_all(b"one\r\ntw\xff\nquit\n").unwrap();
    let told: Vec<String> = told.iter().collect();
    assert_eq!(told, ["Line(\"one\")", "Line(\"tw\u{fffd}\")", "Line(\"quit\")", "closed"]);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ready\necho one\n") && text.contains("bye\n"), "{text}");
    assert!(!text.contains('\x1b') && !text.contains("> "), "{text}");
}

#[test]
fn plain_lines_can_be_chosen_on_a_terminal() {
    let (mut child, mut outer) = Pty::open(24, 80).unwrap().spawn(&mut command("plain")).unwrap();
    let told = listen(&mut child);
    outer.write_all(b"one\nquit\n").unwrap();
    assert_eq!(told.recv_timeout(BOUND).unwrap(), "Line(\"one\")");
    let mut written = Vec::new();
    while let Ok(Some(bytes)) = pty::read(&mut outer, BOUND) {
        written.extend(bytes);
    }
    assert!(!written.contains(&0x1b), "{}", String::from_utf8_lossy(&written));
    child.wait().unwrap();
}
