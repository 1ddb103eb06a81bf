//! Turns that agents give each other without anything being done (fault 32): two that thank each other
//! must not go on for ever.
//!
//! Counted are turns that nobody but colleagues caused and in which nothing was done but writing. Work,
//! a person, the lead's word and the program's news all begin the count anew, so only talk is bounded.

use crate::wire::AgentName;
use crate::wire::message::Message;
use crate::wire::tool::Purpose;
use std::collections::{BTreeMap, BTreeSet};

/// What mail that was taken in is reason for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A turn.
    Turn,
    /// Nothing.
    None,
    /// Nothing any more: these have used up what they may say. Named when nobody was told yet.
    Talk(Vec<String>),
}

/// Counts the turns that each colleague has caused.
#[derive(Debug)]
pub(super) struct ExchangeLimit {
    me: AgentName,
    most: u32,
    turns: BTreeMap<String, u32>,
    told: BTreeSet<String>,
}

impl ExchangeLimit {
    /// Nobody has said anything yet.
    pub(super) fn new(me: AgentName, most: u32) -> Self {
        Self { me, most, turns: BTreeMap::new(), told: BTreeSet::new() }
    }

    /// Something is done: talk was worth its turns.
    pub(super) fn progress(&mut self) {
        self.turns.clear();
        self.told.clear();
    }

    /// A tool is called.
    pub(super) fn call(&mut self, tool: &str) {
        let purpose = crate::tools::find(tool).map(|spec| spec.purpose);
        if purpose != Some(Purpose::Talk) {
            self.progress();
        }
    }

    /// Mail came while nothing was done.
    pub(super) fn weigh(&mut self, mail: &[Message]) -> Reason {
        let senders: BTreeSet<&str> = mail
            .iter()
            .filter(|message| message.body.wakes())
            .map(|message| message.from.as_str())
            .collect();
        if senders.is_empty() {
            return Reason::None;
        }
        if !senders.iter().all(|sender| self.is_colleague(sender)) {
            self.progress();
            return Reason::Turn;
        }
        let used_up =
            |sender: &&str| self.turns.get(*sender).is_some_and(|turns| *turns >= self.most);
        if senders.iter().all(used_up) {
            let untold = senders.iter().filter(|sender| self.told.insert((**sender).to_owned()));
            return Reason::Talk(untold.map(|sender| (*sender).to_owned()).collect());
        }
        for sender in senders {
            let turns = self.turns.entry(sender.to_owned()).or_default();
            *turns = turns.saturating_add(1);
        }
        Reason::Turn
    }

    fn is_colleague(&self, sender: &str) -> bool {
        AgentName::member(sender).is_ok() && sender != self.me.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn from(sender: &str) -> Message {
        let mail = json!({"type":"message","from":sender,"content":"thank you"});
        Message::read(mail.as_object().unwrap()).unwrap()
    }

    fn exchange_limit() -> ExchangeLimit {
        ExchangeLimit::new(AgentName::member("alice").unwrap(), 2)
    }

    #[test]
    fn talk_is_bounded_and_told_once() {
        let mut alice = exchange_limit();
        let mail = [from("bob")];
        assert_eq!(alice.weigh(&mail), Reason::Turn);
        alice.call("send_message");
        assert_eq!(alice.weigh(&mail), Reason::Turn);
        assert_eq!(alice.weigh(&mail), Reason::Talk(vec!["bob".into()]));
        assert_eq!(alice.weigh(&mail), Reason::Talk(Vec::new()));
        assert_eq!(alice.weigh(&[from("bob"), from("carol")]), Reason::Turn, "carol is new");
        assert_eq!(alice.weigh(&[]), Reason::None);
    }

    #[test]
    fn work_and_whoever_decides_begin_the_count_anew() {
        for sender in ["lead", "user", "system"] {
            let mut alice = exchange_limit();
            for _ in 0..9 {
                assert_eq!(alice.weigh(&[from("bob")]), Reason::Turn);
                assert_eq!(alice.weigh(&[from(sender)]), Reason::Turn, "{sender}");
            }
        }
        let mut alice = exchange_limit();
        for _ in 0..9 {
            assert_eq!(alice.weigh(&[from("bob")]), Reason::Turn);
            alice.call("bash");
        }
    }
}
