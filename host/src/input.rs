//! The standard input of a relay that a lead or another host has started: the lead's keys of models, in a line, and its end, by which
//! the one that has started the relay is gone, or wants it to end.

use crate::offload::offload;
use crate::orders::KeysToSend;
use agent_team::relay::runs_lead;
use agent_team::store::TeamDir;
use agent_team::wire::model_keys::END_LINE;
use std::io::{self, BufRead, BufReader, Read};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The most bytes of a line.
const MOST_LINE: u64 = 1024 * 1024;

/// The time in which a lead that was killed is gone after its end of the pipe has closed.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// The pause between two looks whether it is gone.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The reason for which the input has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputEnd {
    /// The lead has asked for the end.
    Asked,
    /// Its other end is closed without a word: a lead was killed, or a connection has ended.
    Closed,
}

impl InputEnd {
    /// Waits for the end of a lead that was killed. Then what is told last of this host tells of it.
    pub(crate) async fn settle(self, dir: &TeamDir) {
        let begin = Instant::now();
        while self == Self::Closed && begin.elapsed() < GONE_WITHIN {
            let dir = dir.clone();
            if !offload(move || runs_lead(&dir)).await {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Reads standard input; returns what is ready once it has ended.
pub(crate) fn read(keys: KeysToSend) -> oneshot::Receiver<InputEnd> {
    let (sender, receiver) = oneshot::channel();
    // It waits as long as the process lives, and does not hold up its end.
    thread::spawn(move || {
        let mut input = BufReader::new(io::stdin());
        let mut line = Vec::new();
        let mut next = |line: &mut Vec<u8>| {
            line.clear();
            input.by_ref().take(MOST_LINE).read_until(b'\n', line).is_ok_and(|count| count > 0)
        };
        let mut end = InputEnd::Closed;
        while next(&mut line) {
            if line == END_LINE.as_bytes() {
                end = InputEnd::Asked;
            }
            // Other lines are for later versions.
            if let Ok(given) = serde_json::from_slice(&line) {
                keys.add(given);
            }
        }
        // The relay may have ended for another reason.
        let _gone = sender.send(end);
    });
    receiver
}
