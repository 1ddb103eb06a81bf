//! Long work says who or what is awaited and since when: one line on stderr that is written over, only on
//! a terminal, and gone when the work is done.

use crate::os::{Clock, SystemClock, window};
use crate::store::{TeamDir, life};
use crate::ui::clean::one_line;
use crate::ui::roster::age;
use crate::wire::AgentName;
use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Work shorter than this says nothing.
const WORTH_SAYING: Duration = Duration::from_millis(400);

/// How often the line is written again.
const EVERY: Duration = Duration::from_millis(500);

/// A piece of long work. Dropping it takes its line away.
pub(super) struct Waiting {
    what: &'static str,
    since: Instant,
    is_terminal: bool,
    is_shown: RefCell<bool>,
}

impl Waiting {
    /// Begins the work that is called `what`.
    pub(super) fn begin(what: &'static str) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { what, since: SystemClock.monotonic(), is_terminal, is_shown: RefCell::new(false) }
    }

    /// Says what it is about at the moment.
    pub(super) fn about(&self, who: &str) {
        let took = self.since.elapsed();
        if !self.is_terminal || took < WORTH_SAYING {
            return;
        }
        let width = window::columns().unwrap_or(80).saturating_sub(1);
        let text = format!("{} {} ({})", self.what, who.trim(), age(took));
        write(&format!("\r\u{1b}[K{}", one_line(&text, width)));
        self.is_shown.replace(true);
    }

    /// Does the work, asking `who` about it again and again.
    pub(super) async fn during<T>(
        self,
        work: impl Future<Output = T>,
        who: impl Fn() -> String,
    ) -> T {
        if !self.is_terminal {
            return work.await;
        }
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
    let lives = |name: &&AgentName| life::probe(team, name).is_ok_and(|life| life.is_alive());
    names.iter().filter(lives).map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_shown.take() {
            write("\r\u{1b}[K");
        }
    }
}
