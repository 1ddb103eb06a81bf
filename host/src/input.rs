//! The standard input of a relay that a lead or another host has started: the lead's keys of models, in a line, and its end, by which
//! the one that has started the relay is gone, or wants it to end.

use crate::orders::KeysToSend;
use std::io::{self, BufRead, BufReader, Read};
use std::thread;
use tokio::sync::oneshot;

/// The most bytes of a line.
const MOST_LINE: u64 = 1024 * 1024;

/// Reads standard input; returns what is ready once it has ended.
pub(crate) fn read(keys: KeysToSend) -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    // It waits as long as the process lives, and does not hold up its end.
    thread::spawn(move || {
        let mut input = BufReader::new(io::stdin());
        let mut line = Vec::new();
        let mut next = |line: &mut Vec<u8>| {
            line.clear();
            input.by_ref().take(MOST_LINE).read_until(b'\n', line).is_ok_and(|count| count > 0)
        };
        while next(&mut line) {
            // Other lines are for later versions.
            if let Ok(given) = serde_json::from_slice(&line) {
                keys.add(given);
            }
        }
        // The relay may have ended for another reason.
        let _gone = sender.send(());
    });
    receiver
}
