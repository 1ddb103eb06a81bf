//! The progress of long work on stderr: the subject of the wait and its duration. A terminal gets one line that
//! is overwritten and finally removed; any other stderr gets plain lines at growing intervals.

use crate::os::{Clock, SystemClock, terminal_size};
use crate::ui::{roster::age, sanitize::one_line};
use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Delay before the first line on a terminal. Shorter work shows no line.
const FIRST_ON_TERMINAL: Duration = Duration::from_millis(400);

const MAX_PLAIN_COLUMNS: usize = 400;

const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// Delay of the first plain line; each further delay is twice as long as the one before.
const FIRST_PLAIN: Duration = Duration::from_secs(30);

/// The progress line of one piece of work. Dropping it removes the line.
pub(super) struct ProgressLine {
    what: &'static str,
    since: Instant,
    is_terminal: bool,
    /// Whether the terminal shows the line, so that it must be removed.
    is_visible: Cell<bool>,
    next: Cell<Instant>,
    /// Delay after the next plain line.
    pause: Cell<Duration>,
}

impl ProgressLine {
    /// Starts the line; `what` is its beginning, such as "waiting for".
    pub(super) fn begin(what: &'static str) -> Self {
        let (since, is_terminal) = (SystemClock.monotonic(), io::stderr().is_terminal());
        let next = since + if is_terminal { FIRST_ON_TERMINAL } else { FIRST_PLAIN };
        let (is_visible, next, pause) = (false.into(), next.into(), (FIRST_PLAIN * 2).into());
        Self { what, since, is_terminal, is_visible, next, pause }
    }

    /// Shows the current subject of the work and the time that the work has taken so far.
    pub(super) fn show_subject(&self, subject: &str) {
        if !subject.is_empty() {
            self.update(|| format!("{} ({})", subject.trim(), age(self.since.elapsed())));
        }
    }

    /// Shows the current subject of the work; `subject` is only called when an update is due.
    pub(super) fn update(&self, subject: impl FnOnce() -> String) {
        let now = SystemClock.monotonic();
        let due = (now >= self.next.get()).then(subject);
        let Some(subject) = due.filter(|subject| !subject.is_empty()) else { return };
        let text = format!("{} {subject}", self.what);
        if self.is_terminal {
            let width = terminal_size::columns().unwrap_or(80).saturating_sub(1);
            write(&format!("\r\u{1b}[K{}", one_line(&text, width)));
            self.is_visible.set(true);
            self.next.set(now + UPDATE_INTERVAL);
        } else {
            write(&format!("{}\n", one_line(&text, MAX_PLAIN_COLUMNS)));
            self.next.set(now + self.pause.get());
            self.pause.set(self.pause.get() * 2);
        }
    }

    pub(super) fn hide(&self) {
        if self.is_visible.take() {
            write("\r\u{1b}[K");
            self.next.set(SystemClock.monotonic() + FIRST_ON_TERMINAL);
        }
    }
}

/// Runs the work under a progress line that begins with `what`; `subject` is called for each update.
pub(super) async fn during<T>(
    what: &'static str,
    work: impl Future<Output = T>,
    subject: impl Fn() -> String,
) -> T {
    let line = ProgressLine::begin(what);
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(UPDATE_INTERVAL) => line.show_subject(&subject()),
        }
    }
}

fn write(text: &str) {
    let mut out = io::stderr().lock();
    // If stderr is closed, only the progress line is lost.
    let _lost = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.hide();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_between_plain_lines_doubles() {
        let now = SystemClock.monotonic();
        let mut line = ProgressLine::begin("waiting for");
        (line.is_terminal, line.next) = (false, now.into());
        let mut asked = Vec::new();
        for subject in ["alice", "", "bob"] {
            line.update(|| {
                asked.push(subject);
                subject.to_owned()
            });
        }
        assert_eq!(asked, ["alice"], "the second line is not due yet");
        assert!(line.next.get() >= now + FIRST_PLAIN * 2);
        assert_eq!(line.pause.get(), FIRST_PLAIN * 4);
    }
}
