//! A pseudo-terminal with a program in it: its screen, and keys for it.

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{Termios, tcgetattr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::harness::PATIENCE;

/// The rows and columns of a terminal.
pub(crate) type Size = (u16, u16);

/// The terminals in which everything that a person sees is tested: a small, a usual and a large one.
pub(crate) const SIZES: [Size; 3] = [(24, 80), (30, 100), (50, 160)];

/// The size of a terminal on which a test does not depend.
pub(crate) const ANY_SIZE: Size = (40, 120);

/// The time limit for the end of the output after the program has exited. It is reached only if a process that the
/// program started keeps the terminal open.
const LEFT_OPEN: Duration = Duration::from_secs(5);

/// The number of bytes that are read at once, and the pause before each: a screen is seen in its parts, as on a busy
/// machine, so that a test which takes half a frame for a whole one fails always and not sometimes.
const PIECE: usize = 32;
const PIECE_PAUSE: Duration = Duration::from_millis(3);

/// A running program and its screen.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    /// The settings of the terminal before the program was started.
    pub(crate) settings_before: Termios,
    keys: Option<File>,
    screen: Arc<Mutex<Screen>>,
    /// The thread that reads the output, and the pipe that ends the thread when it is closed.
    reader: Option<(JoinHandle<()>, OwnedFd)>,
}

struct Screen {
    parser: vt100::Parser,
    /// All output so far, without escape sequences.
    printed: String,
    /// All output so far.
    written: Vec<u8>,
}

impl Terminal {
    /// Starts a program with this terminal as its controlling terminal.
    pub(crate) fn start(command: Command) -> Self {
        Self::of_size(command, ANY_SIZE)
    }

    /// Starts a program in a terminal of this size.
    pub(crate) fn of_size(mut command: Command, (rows, columns): Size) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let (master, slave): (OwnedFd, OwnedFd) = (pty.master, pty.slave);
        for end in [&master, &slave] {
            let flags = nix::fcntl::FdFlag::FD_CLOEXEC;
            nix::fcntl::fcntl(end, nix::fcntl::FcntlArg::F_SETFD(flags)).unwrap();
        }
        command.stdin(Stdio::from(slave.try_clone().unwrap()));
        command.stdout(Stdio::from(slave.try_clone().unwrap()));
        command.stderr(Stdio::from(slave.try_clone().unwrap()));
        let terminal = slave.as_raw_fd();
        #[expect(unsafe_code, reason = "a controlling terminal can only be taken after the fork")]
        // SAFETY: setsid and ioctl are async-signal-safe, and nothing else is called.
        unsafe {
            command.pre_exec(move || {
                nix::unistd::setsid()?;
                nix::errno::Errno::result(nix::libc::ioctl(terminal, nix::libc::TIOCSCTTY, 0))?;
                Ok(())
            });
        }
        let settings_before = tcgetattr(&slave).unwrap();
        let child = command.spawn().unwrap();
        drop(slave);
        let keys = File::from(master.try_clone().unwrap());
        let screen = Arc::new(Mutex::new(Screen {
            parser: vt100::Parser::new(rows, columns, 0),
            printed: String::new(),
            written: Vec::new(),
        }));
        let shared = Arc::clone(&screen);
        let (over, closing) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        let thread = std::thread::spawn(move || read_screen(File::from(master), &over, &shared));
        let (keys, reader) = (Some(keys), Some((thread, closing)));
        Self { child, settings_before, keys, screen, reader }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line and presses Enter.
    pub(crate) fn type_line(&mut self, line: &str) {
        self.press(line);
        self.press("\r");
    }

    /// Returns the current content of the screen.
    pub(crate) fn screen(&self) -> String {
        self.screen.lock().unwrap().parser.screen().contents()
    }

    /// Waits until the screen contains the text.
    #[track_caller]
    pub(crate) fn expect_screen(&self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.screen().contains(text) {
            assert!(Instant::now() < until, "never showed {text:?}; screen:\n{}", self.screen());
            std::thread::park_timeout(Duration::from_millis(15));
        }
    }

    /// Resizes the terminal.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().parser.screen_mut().set_size(rows, columns);
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = self.keys.as_ref().unwrap().as_raw_fd();
        #[expect(unsafe_code, reason = "neither std nor nix has a safe call for the window size")]
        // SAFETY: the request reads one `winsize`.
        let answer = unsafe { nix::libc::ioctl(terminal, nix::libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(answer, 0);
    }

    /// Whether the program uses the alternate screen.
    pub(crate) fn is_on_another_screen(&self) -> bool {
        self.screen.lock().unwrap().parser.screen().alternate_screen()
    }

    /// Whether the program has asked for brackets around pasted text.
    pub(crate) fn has_paste_brackets(&self) -> bool {
        self.screen.lock().unwrap().parser.screen().bracketed_paste()
    }

    /// Whether any cell of the screen has a colour.
    pub(crate) fn has_colors(&self) -> bool {
        let screen = self.screen.lock().unwrap();
        let screen = screen.parser.screen();
        let (rows, columns) = screen.size();
        let mut cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        cells.any(|(row, column)| {
            let cell = screen.cell(row, column);
            cell.is_some_and(|cell| cell.fgcolor() != vt100::Color::Default)
        })
    }

    /// Returns the text of the cells with a background, in their order.
    pub(crate) fn marked_text(&self) -> String {
        let screen = self.screen.lock().unwrap();
        let screen = screen.parser.screen();
        let (rows, columns) = screen.size();
        let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let cells = cells.filter_map(|(row, column)| screen.cell(row, column));
        let marked = cells.filter(|cell| cell.bgcolor() != vt100::Color::Default);
        marked.map(|cell| if cell.has_contents() { cell.contents() } else { " " }).collect()
    }

    /// Returns all output so far, without escape sequences.
    pub(crate) fn printed(&self) -> String {
        self.screen.lock().unwrap().printed.clone()
    }

    /// Waits until the output contains the text.
    #[track_caller]
    pub(crate) fn expect(&self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.printed().contains(text) {
            assert!(Instant::now() < until, "never printed {text:?}; screen:\n{}", self.screen());
            std::thread::park_timeout(Duration::from_millis(15));
        }
    }

    /// Returns the current settings of the terminal.
    pub(crate) fn settings(&self) -> Termios {
        self.settings_if_open().unwrap()
    }

    /// Returns the current settings, or `None` if the terminal was closed.
    pub(crate) fn settings_if_open(&self) -> Option<Termios> {
        self.keys.as_ref().map(|keys| tcgetattr(keys).unwrap())
    }

    /// Asserts that the terminal is as it was before the program: its settings, no paste brackets, no reports of the
    /// focus, a visible cursor, the first screen.
    #[track_caller]
    pub(crate) fn assert_restored(&self) {
        assert_eq!(self.settings(), self.settings_before, "the settings are not restored");
        let screen = self.screen.lock().unwrap();
        let written = String::from_utf8_lossy(&screen.written);
        for (on, off) in
            [("?2004h", "?2004l"), ("?1004h", "?1004l"), ("?25l", "?25h"), ("?1049h", "?1049l")]
        {
            assert!(written.rfind(off) >= written.rfind(on), "{on} is left on");
        }
    }

    /// Closes the terminal as closing its window does: the kernel sends SIGHUP to the session.
    pub(crate) fn hang_up(&mut self) {
        self.keys = None;
        let (thread, closing) = self.reader.take().unwrap();
        drop(closing);
        thread.join().unwrap();
    }

    /// Waits until the program has exited and all its output is on the screen.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.wait_for_output();
                return status;
            }
            assert!(Instant::now() < until, "does not end; screen:\n{}", self.screen());
            std::thread::park_timeout(Duration::from_millis(15));
        }
    }

    /// Waits until the reader thread has reached the end of the output.
    fn wait_for_output(&self) {
        let until = Instant::now() + LEFT_OPEN;
        let reads = || self.reader.as_ref().is_some_and(|(thread, _)| !thread.is_finished());
        while reads() && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// Reads the output until the program's side is closed, or until the other end of `over` is closed.
fn read_screen(mut output: File, over: &OwnedFd, screen: &Mutex<Screen>) {
    let mut bytes = [0; PIECE];
    let mut unfinished = Vec::new();
    loop {
        let mut ready = [output.as_fd(), over.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut ready, PollTimeout::NONE).unwrap();
        if ready[1].any() == Some(true) {
            return;
        }
        std::thread::park_timeout(PIECE_PAUSE);
        let Ok(count @ 1..) = output.read(&mut bytes) else { return };
        let mut screen = screen.lock().unwrap();
        screen.parser.process(&bytes[..count]);
        screen.written.extend_from_slice(&bytes[..count]);
        unfinished.extend_from_slice(&bytes[..count]);
        let rest = unfinished.split_off(finished(&unfinished));
        let text = std::mem::replace(&mut unfinished, rest);
        screen.printed.push_str(&strip_escapes(&String::from_utf8_lossy(&text)));
    }
}

/// Returns the length without a character or an escape sequence whose end has not been read yet.
fn finished(bytes: &[u8]) -> usize {
    let length = match std::str::from_utf8(bytes) {
        Err(why) if why.error_len().is_none() => why.valid_up_to(),
        _ => bytes.len(),
    };
    let is_open = |escape: &[u8]| match escape {
        [_] => true,
        [_, b'[', rest @ ..] => !rest.iter().any(|byte| (b'@'..=b'~').contains(byte)),
        _ => false,
    };
    let last = bytes[..length].iter().rposition(|byte| *byte == 0x1b);
    last.filter(|at| is_open(&bytes[*at..length])).unwrap_or(length)
}

#[test]
fn an_incomplete_sequence_waits_for_the_next_read() {
    for (bytes, length) in [
        (&b"text"[..], 4),
        (b"text\x1b", 4),
        (b"text\x1b[3", 4),
        (b"text\x1b[31m", 9),
        (b"text\x1b7", 6),
        (b"text\xe2\x9c", 4),
        (b"\x1b[31m\xe2\x9c\x89", 8),
        (b"\xff text", 6),
    ] {
        assert_eq!(finished(bytes), length, "{bytes:?}");
    }
}

fn strip_escapes(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'[').is_some() {
            for c in chars.by_ref() {
                if ('@'..='~').contains(&c) {
                    break;
                }
            }
        } else {
            chars.next();
        }
    }
    out
}
