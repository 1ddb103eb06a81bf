//! The jobs of child processes that only the comparison with other queues has.

use crate::bench_team::text;
use crate::bulk::queue;
use crate::child_process::{Way, hear, say};
use crate::writers::writer;
use agent_team::store::{Clock, SystemClock, TeamDir};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

/// The pause before a message, so that its recipient waits again.
const PAUSE: Duration = Duration::from_millis(3);

/// Sends a message, with the time of the send, each time the parent says so.
pub(crate) fn notify(way: &Way) {
    let mut send = writer(way, 0);
    say(&"ready");
    while let Some::<String>(_now) = hear() {
        std::thread::park_timeout(PAUSE);
        send(&text(&SystemClock.now().to_string()));
    }
}

/// Reports the duration of each of some sends, in microseconds.
pub(crate) fn time(way: &Way, times: usize) {
    let mut send = writer(way, 0);
    say(&"ready");
    let Some::<String>(_go) = hear() else { return };
    let one = |number| {
        let text = text(&format!("0 {number}"));
        let start = Instant::now();
        send(&text);
        start.elapsed().as_secs_f64() * 1e6
    };
    say(&(0..times).map(one).collect::<Vec<f64>>());
}

/// Stores unread messages.
pub(crate) fn fill(way: &Way, count: usize) {
    match way {
        Way::Team { dir, .. } => queue(&TeamDir::open(dir).unwrap(), count),
        Way::Raw { file } | Way::RawSynced { file } => {
            let mut file = OpenOptions::new().append(true).open(file).unwrap();
            file.write_all((text("0 0") + "\n").repeat(count).as_bytes()).unwrap();
        }
        Way::Peer(peer) => peer.fill(&text("0 0"), count),
    }
    say(&"ready");
}
