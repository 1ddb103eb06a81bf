//! The messages between members, each once, from the inbox it waits in to the transcript it ends in.
//!
//! Knows nothing of files: it is told what lies where, in any order, as often as the teller likes.

use crate::wire::message::Message;
use crate::wire::{AgentName, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// How many are kept.
const MOST: usize = 10_000;

/// Characters of a text that are kept.
const LONGEST: usize = 2_000;

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Letter {
    /// Whose inbox it went to.
    pub(crate) to: AgentName,
    /// What it says; a long text is cut.
    pub(crate) message: Message,
    /// How far it has come.
    pub(crate) standing: Standing,
    /// When it was taken in, else when it says it was sent.
    pub(crate) at: Timestamp,
}

/// How far a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It waits in the inbox.
    Waiting,
    /// It stands in the receiver's transcript.
    TakenIn,
}

/// The latest messages, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    kept: VecDeque<Letter>,
    /// The number of the first one that is kept.
    first: u64,
    by_id: BTreeMap<(AgentName, String), u64>,
    /// Waiting ones that carry no id: they get one when they are taken in.
    nameless: Vec<u64>,
}

impl Letters {
    /// The messages, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Letter> {
        self.kept.iter()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// A message was seen somewhere; `false` when that is no news.
    pub(crate) fn meet(&mut self, mut letter: Letter) -> bool {
        let known = match &letter.message.id {
            Some(id) => self.by_id.get(&(letter.to.clone(), id.clone())).copied(),
            None => None,
        };
        let known = known.or_else(|| self.raw(&letter));
        if let Some(number) = known {
            return self.advance(number, letter);
        }
        cut(&mut letter.message);
        let number = self.first + u64::try_from(self.kept.len()).unwrap_or(u64::MAX);
        match &letter.message.id {
            Some(id) => drop(self.by_id.insert((letter.to.clone(), id.clone()), number)),
            None if letter.standing == Standing::Waiting => self.nameless.push(number),
            None => {}
        }
        self.kept.push_back(letter);
        self.forget_oldest();
        true
    }

    /// Puts what came in one look into the order of its times: each file was read by itself.
    pub(super) fn arrange(&mut self) {
        let mut all: Vec<Letter> = std::mem::take(&mut self.kept).into();
        all.sort_by(|a, b| a.at.total_cmp(&b.at));
        *self = Self::default();
        for letter in all {
            self.meet(letter);
        }
    }

    fn numbered(&self, number: u64) -> Option<&Letter> {
        let at = number.checked_sub(self.first)?;
        self.kept.get(usize::try_from(at).ok()?)
    }

    /// A message that was written by hand and has got its id by now.
    fn raw(&self, letter: &Letter) -> Option<u64> {
        if letter.standing == Standing::Waiting {
            return None;
        }
        let (from, mut text) = (&letter.message.from, letter.message.content.clone());
        shorten(&mut text);
        self.nameless.iter().copied().find(|number| {
            self.numbered(*number).is_some_and(|it| {
                it.to == letter.to && it.message.from == *from && it.message.content == text
            })
        })
    }

    fn advance(&mut self, number: u64, seen: Letter) -> bool {
        let place = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(letter) = place.and_then(|at| self.kept.get_mut(at)) else { return false };
        if letter.standing == Standing::TakenIn || seen.standing == Standing::Waiting {
            return false;
        }
        letter.standing = Standing::TakenIn;
        if let (None, Some(id)) = (&letter.message.id, seen.message.id) {
            letter.message.id = Some(id.clone());
            self.by_id.insert((seen.to, id), number);
            self.nameless.retain(|waiting| *waiting != number);
        }
        true
    }

    fn forget_oldest(&mut self) {
        while self.kept.len() > MOST {
            if let Some(old) = self.kept.pop_front()
                && let Some(id) = old.message.id
            {
                self.by_id.remove(&(old.to, id));
            }
            self.first += 1;
            let first = self.first;
            self.nameless.retain(|number| *number >= first);
        }
    }
}

fn cut(message: &mut Message) {
    shorten(&mut message.content);
}

fn shorten(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn letter(to: &str, standing: Standing, at: f64, message: &Value) -> Letter {
        let message = Message::read(message.as_object().unwrap()).unwrap();
        Letter { to: AgentName::mailbox(to).unwrap(), message, standing, at }
    }

    fn said(id: &str, text: &str) -> Value {
        json!({"from": "bob", "content": text, "id": id})
    }

    fn texts(letters: &Letters) -> Vec<&str> {
        letters.iter().map(|letter| letter.message.content.as_str()).collect()
    }

    #[test]
    fn a_message_is_one_letter_on_its_whole_way() {
        let mut letters = Letters::default();
        assert!(letters.meet(letter("alice", Standing::Waiting, 1.0, &said("a", "hi"))));
        assert!(!letters.meet(letter("alice", Standing::Waiting, 1.0, &said("a", "hi"))));
        assert!(letters.meet(letter("alice", Standing::TakenIn, 2.0, &said("a", "hi"))));
        assert!(!letters.meet(letter("alice", Standing::TakenIn, 2.0, &said("a", "hi"))));
        // The inbox is read late: what stands in the transcript does not go back.
        assert!(!letters.meet(letter("alice", Standing::Waiting, 1.0, &said("a", "hi"))));
        assert!(letters.meet(letter("carol", Standing::Waiting, 3.0, &said("a", "to another"))));
        assert_eq!(texts(&letters), ["hi", "to another"]);
        assert_eq!(letters.iter().next().unwrap().standing, Standing::TakenIn);
    }

    #[test]
    fn a_line_written_by_hand_gets_its_id_on_the_way() {
        let mut letters = Letters::default();
        let by_hand = json!({"from": "bob", "content": "hi"});
        assert!(letters.meet(letter("alice", Standing::Waiting, 1.0, &by_hand)));
        assert!(letters.meet(letter("alice", Standing::TakenIn, 2.0, &said("raw-1-0", "hi"))));
        assert!(letters.meet(letter("alice", Standing::TakenIn, 3.0, &said("raw-1-9", "hi"))));
        assert_eq!(texts(&letters), ["hi", "hi"]);
    }

    #[test]
    fn only_the_latest_are_kept_and_long_texts_are_cut() {
        let mut letters = Letters::default();
        for number in 0..MOST + 10 {
            let text = said(&number.to_string(), &number.to_string());
            letters.meet(letter("alice", Standing::Waiting, 0.0, &text));
        }
        assert_eq!(letters.len(), MOST);
        assert_eq!(letters.iter().next().unwrap().message.content, "10");
        assert!(letters.meet(letter("alice", Standing::TakenIn, 0.0, &said("10", ""))));
        let long = "é".repeat(3 * LONGEST);
        letters.meet(letter("alice", Standing::Waiting, 0.0, &said("long", &long)));
        assert_eq!(letters.iter().next_back().unwrap().message.content.chars().count(), LONGEST);
    }

    #[test]
    fn what_was_found_file_by_file_is_put_into_order() {
        let mut letters = Letters::default();
        for (id, at) in [("a", 5.0), ("b", 1.0), ("c", 3.0)] {
            letters.meet(letter("alice", Standing::TakenIn, at, &said(id, id)));
        }
        letters.arrange();
        assert_eq!(texts(&letters), ["b", "c", "a"]);
    }
}
