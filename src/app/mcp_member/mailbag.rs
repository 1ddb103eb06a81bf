//! The mail of a member whose model runs in another program, from the transcript to an answer that was written. Pure: it
//! reads no file and no clock.

use crate::tools::Handout;
use crate::wire::limits::OUTPUT_CHARS;
use crate::wire::newest::Newest;
use serde_json::{Map, Value};

type Object = Map<String, Value>;

#[derive(Debug, Clone, PartialEq)]
struct Letter {
    /// The place in the order of delivery.
    number: u64,
    bytes: usize,
    /// Whether it starts a turn of the model.
    wakes: bool,
    message: Object,
}

/// The mail of one process.
#[derive(Debug)]
pub(super) struct Mailbag {
    /// Not handed out, oldest first.
    unread: Vec<Letter>,
    /// Part of an answer that is not written yet, each with the id of its call.
    lent: Vec<(String, Letter)>,
    handed_out: Newest<Object>,
    count: u64,
    /// The newest message of which a notice has told.
    noticed: u64,
}

impl Mailbag {
    pub(super) fn new() -> Self {
        let handed_out = Newest::within(OUTPUT_CHARS);
        Self { unread: Vec::new(), lent: Vec::new(), handed_out, count: 0, noticed: 0 }
    }

    /// Adds unread mail; `wakes` says whether it starts a turn of the model.
    pub(super) fn add(&mut self, message: Object, wakes: bool) {
        let bytes = message.iter().map(|(name, value)| name.len() + value.to_string().len()).sum();
        self.count += 1;
        self.unread.push(Letter { number: self.count, bytes, wakes, message });
    }

    /// Takes the oldest unread mail for an answer, as much as fits into a result, at least one message.
    pub(super) fn lend(&mut self, call_id: &str) -> Handout {
        let count = self.count_within(OUTPUT_CHARS).max(1).min(self.unread.len());
        self.lend_first(count, call_id)
    }

    /// Takes the oldest unread mail for a text of at most so many bytes. If the oldest message is longer, the text tells
    /// once that there is mail.
    pub(super) fn lend_short(&mut self, call_id: &str, room: usize) -> Option<String> {
        let count = self.count_within(room);
        if count > 0 {
            return self.lend_first(count, call_id).block();
        }
        let newest = self.unread.last()?.number;
        let is_new = newest > std::mem::replace(&mut self.noticed, newest);
        let notice = format!("You have long mail ({} unread): use check_inbox", self.unread.len());
        is_new.then_some(notice)
    }

    /// Returns how many of the oldest unread messages fit into so many bytes.
    fn count_within(&self, mut room: usize) -> usize {
        let fits = |letter: &&Letter| {
            let left = room.checked_sub(letter.bytes);
            room = left.unwrap_or_default();
            left.is_some()
        };
        self.unread.iter().take_while(fits).count()
    }

    fn lend_first(&mut self, count: usize, call_id: &str) -> Handout {
        let letters: Vec<Letter> = self.unread.drain(..count).collect();
        let mail = letters.iter().map(|letter| letter.message.clone()).collect();
        self.lent.extend(letters.into_iter().map(|letter| (call_id.to_owned(), letter)));
        Handout { mail, more: self.unread.len() }
    }

    /// Notes that the answer to a call was written. Returns the ids of its mail.
    pub(super) fn deliver(&mut self, call_id: &str) -> Vec<String> {
        let mut ids = Vec::new();
        for letter in self.end(call_id) {
            ids.extend(letter.message.get("id").and_then(Value::as_str).map(ToOwned::to_owned));
            self.handed_out.push(letter.bytes, letter.message);
        }
        ids
    }

    /// Makes the mail of an answer that was not written unread again. Returns whether there is any.
    pub(super) fn return_from(&mut self, call_id: &str) -> bool {
        let letters = self.end(call_id);
        let has_any = !letters.is_empty();
        self.unread.extend(letters);
        self.unread.sort_by_key(|letter| letter.number);
        has_any
    }

    fn end(&mut self, call_id: &str) -> Vec<Letter> {
        let (ended, lent) =
            std::mem::take(&mut self.lent).into_iter().partition(|(id, _)| id == call_id);
        self.lent = lent;
        let ended: Vec<(String, Letter)> = ended;
        ended.into_iter().map(|(_, letter)| letter).collect()
    }

    /// Whether there is unread mail that starts a turn of the model.
    pub(super) fn wakes(&self) -> bool {
        self.unread.iter().any(|letter| letter.wakes)
    }

    /// Whether all mail was handed out.
    pub(super) fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.lent.is_empty()
    }

    /// Returns the newest mail that was handed out.
    pub(super) fn handed_out(&self) -> Newest<Object> {
        self.handed_out.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(id: &str, content: &str) -> Object {
        json!({ "id": id, "content": content }).as_object().unwrap().clone()
    }

    fn ids(handout: &Handout) -> Vec<&str> {
        handout.mail.iter().map(|message| message["id"].as_str().unwrap()).collect()
    }

    #[test]
    fn mail_of_an_answer_that_was_not_written_is_unread_again_in_its_order() {
        let mut bag = Mailbag::new();
        for id in ["a", "b"] {
            bag.add(message(id, "x"), true);
        }
        assert!(bag.wakes());
        assert_eq!(ids(&bag.lend("1")), ["a", "b"]);
        bag.add(message("c", "x"), false);
        assert!(!bag.wakes());
        assert_eq!(ids(&bag.lend("2")), ["c"]);
        assert!(bag.lend("none").mail.is_empty() && !bag.is_empty());
        assert_eq!(bag.deliver("2"), ["c"]);
        assert!(bag.return_from("1") && !bag.return_from("1"));
        bag.add(message("d", "x"), true);
        assert_eq!(ids(&bag.lend("3")), ["a", "b", "d"]);
        assert_eq!(bag.deliver("3"), ["a", "b", "d"]);
        assert!(bag.is_empty());
        assert_eq!(bag.handed_out().iter().count(), 4);
    }

    #[test]
    fn a_short_text_has_the_mail_that_fits_or_tells_once_that_there_is_some() {
        let mut bag = Mailbag::new();
        assert_eq!(bag.lend_short("1", 100), None);
        bag.add(message("a", "short"), true);
        bag.add(message("b", &"x".repeat(100)), true);
        let first = bag.lend_short("1", 100).unwrap();
        assert!(first.contains("short") && first.contains("1 more unread"), "{first}");
        let told = bag.lend_short("2", 100);
        assert_eq!(told.as_deref(), Some("You have long mail (1 unread): use check_inbox"));
        assert_eq!(bag.lend_short("3", 100), None);
        bag.add(message("c", "short"), true);
        assert!(bag.lend_short("4", 100).unwrap().contains("2 unread"));
        assert_eq!(ids(&bag.lend("5")), ["b", "c"]);
    }

    #[test]
    fn an_answer_has_as_much_mail_as_fits_and_at_least_one_message() {
        let mut bag = Mailbag::new();
        let long = "x".repeat(OUTPUT_CHARS);
        for (id, content) in [("a", &*long), ("b", "x"), ("c", &long), ("d", "x")] {
            bag.add(message(id, content), true);
        }
        let handouts: Vec<Handout> = ["1", "2", "3", "4"].map(|call| bag.lend(call)).into();
        let shown: Vec<_> = handouts.iter().map(|it| (ids(it), it.more)).collect();
        let expected = [(vec!["a"], 3), (vec!["b"], 2), (vec!["c"], 1), (vec!["d"], 0)];
        assert_eq!(shown, expected);
    }
}
