//! Which messages were taken in lately: catches a send that was repeated after a crash.

use crate::wire::limits::DEDUP_MESSAGES;
use crate::wire::message::Message;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::io;

/// What is known about a message's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Never seen: it is now remembered.
    New,
    /// Seen with the same content.
    Same,
    /// Seen with other content.
    Other,
}

#[expect(
    clippy::disallowed_types,
    reason = "measured: a tenth of taking in mail was spent in the tree, and the order reaches nobody"
)]
type Contents = std::collections::HashMap<u64, u64>;

/// Ids with fingerprints of what they stood for. Only hashes are kept, with keys of this process, so
/// that nobody can make two ids that look alike.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    keys: RandomState,
    contents: Contents,
    order: VecDeque<u64>,
    kept: usize,
}

impl Seen {
    /// Looks the message up and remembers it, for good only after [`Seen::keep`].
    pub(crate) fn meet(&mut self, id: &str, message: &Message) -> Known {
        let id = self.keys.hash_one(id);
        let content = self.fingerprint(message);
        match self.contents.get(&id) {
            Some(known) if *known == content => Known::Same,
            Some(_) => Known::Other,
            None => {
                self.contents.insert(id, content);
                self.order.push_back(id);
                Known::New
            }
        }
    }

    /// What was met stays remembered: it is in the transcript.
    pub(crate) fn keep(&mut self) {
        while self.order.len() > DEDUP_MESSAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.contents.remove(&oldest);
        }
        self.kept = self.order.len();
    }

    /// What was met since the last [`Seen::keep`] is forgotten: it did not reach the transcript.
    pub(crate) fn forget(&mut self) {
        for id in self.order.drain(self.kept..) {
            self.contents.remove(&id);
        }
    }

    /// Everything but the timestamp: a repeated send has another one.
    fn fingerprint(&self, message: &Message) -> u64 {
        let mut hasher = self.keys.build_hasher();
        let Message { id: _, timestamp: _, from, to, content, request_id, incarnation, body } =
            message;
        (from, to, content, request_id, incarnation, body.kind()).hash(&mut hasher);
        let mut sink = Sink(hasher);
        // Writing into a hasher does not fail, and a body that cannot be written has no more to say.
        drop(serde_json::to_writer(&mut sink, body));
        sink.0.finish()
    }
}

struct Sink<H>(H);

impl<H: Hasher> io::Write for Sink<H> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(content: &str, timestamp: f64) -> Message {
        let line = serde_json::json!({"from": "a", "content": content, "timestamp": timestamp});
        Message::read(line.as_object().unwrap()).unwrap()
    }

    #[test]
    fn a_repeated_send_is_the_same_at_another_time_and_other_with_other_content() {
        let mut seen = Seen::default();
        assert_eq!(seen.meet("1", &message("x", 1.0)), Known::New);
        assert_eq!(seen.meet("1", &message("x", 2.0)), Known::Same);
        assert_eq!(seen.meet("1", &message("y", 1.0)), Known::Other);
        assert_eq!(seen.meet("2", &message("x", 1.0)), Known::New);
    }

    #[test]
    fn what_was_not_written_is_met_anew() {
        let mut seen = Seen::default();
        seen.meet("kept", &message("x", 1.0));
        seen.keep();
        seen.meet("lost", &message("x", 1.0));
        seen.forget();
        assert_eq!(seen.meet("lost", &message("x", 1.0)), Known::New);
        assert_eq!(seen.meet("kept", &message("x", 1.0)), Known::Same);
    }

    #[test]
    fn the_oldest_are_forgotten_first() {
        let mut seen = Seen::default();
        for n in 0..=DEDUP_MESSAGES {
            seen.meet(&n.to_string(), &message("x", 1.0));
            seen.keep();
        }
        assert_eq!(seen.meet("1", &message("x", 1.0)), Known::Same);
        assert_eq!(seen.meet("0", &message("x", 1.0)), Known::New);
    }
}
