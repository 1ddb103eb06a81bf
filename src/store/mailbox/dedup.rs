//! Remembers recently delivered messages, to recognize a send that was repeated after a crash.

use crate::wire::limits::DEDUP_MESSAGES;
use crate::wire::message::Message;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownId {
    /// The id was unknown, and is now remembered.
    New,
    /// The id is known with the same content.
    Same,
    /// The id is known with other content.
    Other,
}

#[expect(
    clippy::disallowed_types,
    reason = "measured: a BTreeMap took a tenth of the drain's time, and the order is never visible"
)]
type Contents = std::collections::HashMap<u64, u64>;

/// The ids and fingerprints of messages. Both are hashes with keys of this process, so that no sender can cause a
/// collision.
#[derive(Debug, Default)]
pub(crate) struct SeenMessages {
    keys: RandomState,
    contents: Contents,
    order: VecDeque<u64>,
    kept: usize,
}

impl SeenMessages {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Looks up a message and remembers it. The entry is permanent only after [`SeenMessages::keep`].
    pub(crate) fn look_up(&mut self, id: &str, message: &Message) -> KnownId {
        let id = self.keys.hash_one(id);
        let content = self.fingerprint(message);
        match self.contents.get(&id) {
            Some(known) if *known == content => KnownId::Same,
            Some(_) => KnownId::Other,
            None => {
                self.contents.insert(id, content);
                self.order.push_back(id);
                KnownId::New
            }
        }
    }

    /// Makes the new entries permanent, because their messages are in the transcript. Drops the oldest entries.
    pub(crate) fn keep(&mut self) {
        while self.order.len() > DEDUP_MESSAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.contents.remove(&oldest);
        }
        self.kept = self.order.len();
    }

    /// Forgets the entries since the last [`SeenMessages::keep`], because their messages are not in the
    /// transcript.
    pub(crate) fn forget(&mut self) {
        for id in self.order.drain(self.kept..) {
            self.contents.remove(&id);
        }
    }

    /// Hashes all fields but the id and the timestamp; a repeated send has another timestamp.
    fn fingerprint(&self, message: &Message) -> u64 {
        let Message {
            id: _, timestamp: _, from, to, content, request_id, incarnation, body, ..
        } = message;
        // A body that cannot be serialized has no further content.
        let body = (body.kind(), serde_json::to_vec(body).ok());
        self.keys.hash_one((from, to, content, request_id, incarnation, body))
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
    fn a_message_that_was_not_written_is_new_again() {
        let mut seen = SeenMessages::default();
        seen.look_up("kept", &message("x", 1.0));
        seen.keep();
        seen.look_up("lost", &message("x", 1.0));
        seen.forget();
        assert_eq!(seen.look_up("lost", &message("x", 1.0)), KnownId::New);
        assert_eq!(seen.look_up("kept", &message("x", 1.0)), KnownId::Same);
    }

    #[test]
    fn the_oldest_messages_are_forgotten_first() {
        let mut seen = SeenMessages::default();
        for n in 0..=DEDUP_MESSAGES {
            seen.look_up(&n.to_string(), &message("x", 1.0));
            seen.keep();
        }
        assert_eq!(seen.look_up("1", &message("x", 1.0)), KnownId::Same);
        assert_eq!(seen.look_up("0", &message("x", 1.0)), KnownId::New);
    }
}
