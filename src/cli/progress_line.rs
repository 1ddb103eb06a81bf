//! Long work says who or what is awaited and since when: on a terminal in one line on stderr that is written
//! over, and gone when the work is done; elsewhere in a plain line, after a while and then ever more rarely.

use crate::os::{Clock, SystemClock, terminal_size};
use crate::store::{TeamDir, liveness};
use crate::ui::roster::age;
use crate::ui::sanitize::one_line;
use crate::wire::AgentName;
use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Work shorter than this says nothing.
const WORTH_SAYING: Duration = Duration::from_millis(400);

/// Columns of a plain line.
const LONGEST_PLAIN: usize = 400;

/// How often the line is written again.
const EVERY: Duration = Duration::from_millis(500);

/// After how long the first plain line comes; each further one takes twice as long as the last.
const FIRST_PLAIN: Duration = Duration::from_secs(30);

/// A piece of long work. Dropping it takes its line away.
pub(super) struct ProgressLine {
    what: &'static str,
    since: Instant,
    is_terminal: bool,
    shown: Cell<Shown>,
}

/// What has been said.
#[derive(Debug, Clone, Copy)]
struct Shown {
    /// There is a line to be taken away.
    is_there: bool,
    /// When it is time to say something.
    next: Instant,
    /// How long it is quiet afterwards, where the line cannot be written over.
    pause: Duration,
}

impl ProgressLine {
    /// Begins the work that is called `what`.
    pub(super) fn begin(what: &'static str) -> Self {
        let (since, is_terminal) = (SystemClock.monotonic(), io::stderr().is_terminal());
        let first = if is_terminal { WORTH_SAYING } else { FIRST_PLAIN };
        let shown = Shown { is_there: false, next: since + first, pause: FIRST_PLAIN * 2 };
        Self { what, since, is_terminal, shown: Cell::new(shown) }
    }

    /// Says what it is about at the moment, and since when it goes on.
    pub(super) fn about(&self, who: &str) {
        self.say(|| format!("{} ({})", who.trim(), age(self.since.elapsed())));
    }

    /// Says what it is about at the moment, in words that are only made when it is time for them.
    pub(super) fn say(&self, who: impl FnOnce() -> String) {
        let (now, shown) = (SystemClock.monotonic(), self.shown.get());
        if now < shown.next {
            return;
        }
        let who = who();
        if who.is_empty() {
            return;
        }
        let text = format!("{} {who}", self.what);
        if self.is_terminal {
            let width = terminal_size::columns().unwrap_or(80).saturating_sub(1);
            write(&format!("\r\u{1b}[K{}", one_line(&text, width)));
            self.shown.set(Shown { is_there: true, next: now + EVERY, ..shown });
        } else {
            write(&format!("{}\n", one_line(&text, LONGEST_PLAIN)));
            let (next, pause) = (now + shown.pause, shown.pause * 2);
            self.shown.set(Shown { is_there: false, next, pause });
        }
    }

    /// Takes the line away, for something else to be printed.
    pub(super) fn hide(&self) {
        let shown = self.shown.get();
        if shown.is_there {
            write("\r\u{1b}[K");
            let next = SystemClock.monotonic() + WORTH_SAYING;
            self.shown.set(Shown { is_there: false, next, ..shown });
        }
    }

    /// Does the work, asking `who` about it again and again.
    pub(super) async fn during<T>(
        self,
        work: impl Future<Output = T>,
        who: impl Fn() -> String,
    ) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(EVERY) => {
                    let who = who();
                    if !who.is_empty() {
                        self.about(&who);
                    }
                }
            }
        }
    }
}

fn write(text: &str) {
    let mut out = io::stderr().lock();
    // A line that cannot be shown is missed by nobody.
    let _unseen = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Which of them live.
pub(super) fn still_there(team: &TeamDir, names: &[AgentName]) -> String {
    let lives = |name: &&AgentName| liveness::probe(team, name).is_ok_and(|life| life.is_alive());
    names.iter().filter(lives).map(ToString::to_string).collect::<Vec<_>>().join(", ")
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
    fn where_lines_stay_they_come_ever_more_rarely() {
        let now = SystemClock.monotonic();
        let shown = Shown { is_there: false, next: now, pause: FIRST_PLAIN * 2 };
        let shown = Cell::new(shown);
        let waiting = ProgressLine { what: "waiting for", since: now, is_terminal: false, shown };
        let mut said = Vec::new();
        for who in ["nobody", "", "bob"] {
            waiting.say(|| {
                said.push(who);
                who.to_owned()
            });
        }
        assert_eq!(said, ["nobody"], "the next one has time");
        let Shown { next, pause, .. } = waiting.shown.get();
        assert!(next >= now + FIRST_PLAIN * 2 && pause == FIRST_PLAIN * 4);
    }
}
