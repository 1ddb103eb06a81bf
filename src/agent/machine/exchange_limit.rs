//! Limits the turns that agents cause each other without any work being done (fault 32): two agents that thank
//! each other must not do so forever.
//!
//! A turn counts if only colleagues caused it and if it called only tools of [`Purpose::Talk`]. Work, prompts, and
//! mail from the user, the lead or the program reset the counts, so only talk is limited. A turn that results alone
//! caused counts only if it sent something: a lead that merely reads what its teammates have done continues no
//! exchange.

use crate::wire::AgentName;
use crate::wire::message::{Body, Message};
use crate::wire::tool::{Effect, Purpose};
use std::collections::{BTreeMap, BTreeSet};

/// The verdict on mail that came between two turns.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Turn,
    /// The mail does not begin a turn.
    None,
    /// The mail does not begin a turn, because its senders have reached the limit. Holds a note for each sender
    /// that has none yet.
    Talk(Vec<String>),
}

/// The number of turns that each colleague has caused.
#[derive(Debug)]
pub(super) struct ExchangeLimit {
    me: AgentName,
    most: u32,
    turns: BTreeMap<String, u32>,
    /// The colleagues whose results caused this turn. It counts as soon as it sends something.
    reported: BTreeSet<String>,
    told: BTreeSet<String>,
}

impl ExchangeLimit {
    /// Creates the counts of an agent; each colleague may cause `most` turns.
    pub(super) fn new(me: AgentName, most: u32) -> Self {
        let (turns, reported, told) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { me, most, turns, reported, told }
    }

    /// Resets the counts, because work was done.
    pub(super) fn progress(&mut self) {
        self.turns.clear();
        self.reported.clear();
        self.told.clear();
    }

    /// Notes a tool call that has ended. Every tool resets the counts, except those of [`Purpose::Talk`], and a command
    /// that has sent mail.
    pub(super) fn call(&mut self, tool: &str, has_sent_mail: bool) {
        match crate::tools::find(tool).map(|spec| (spec.purpose, spec.effect)) {
            _ if has_sent_mail => self.talk(),
            Some((Purpose::Talk, Effect::Talks)) => self.talk(),
            Some((Purpose::Talk, _)) => {}
            _ => self.progress(),
        }
    }

    fn talk(&mut self) {
        for sender in std::mem::take(&mut self.reported) {
            self.count(sender);
        }
    }

    fn count(&mut self, sender: String) {
        let turns = self.turns.entry(sender).or_default();
        *turns = turns.saturating_add(1);
    }

    /// Decides whether mail that came between two turns begins one.
    pub(super) fn weigh(&mut self, mail: &[Message]) -> Reason {
        let senders = senders_of(mail.iter());
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
            return Reason::Talk(untold.map(|sender| note(sender, &self.me, self.most)).collect());
        }
        let is_result = |message: &&Message| matches!(message.body, Body::Result { .. });
        let wrote = senders_of(mail.iter().filter(|message| !is_result(message)));
        self.reported = senders.difference(&wrote).map(|name| (*name).to_owned()).collect();
        for sender in wrote {
            self.count(sender.to_owned());
        }
        Reason::Turn
    }

    fn is_colleague(&self, sender: &str) -> bool {
        AgentName::member(sender).is_ok() && sender != self.me.as_str()
    }
}

/// Returns the senders of the mail that wakes its recipient.
fn senders_of<'a>(mail: impl Iterator<Item = &'a Message>) -> BTreeSet<&'a str> {
    mail.filter(|message| message.body.wakes()).map(|message| message.from.as_str()).collect()
}

fn note(peer: &str, me: &AgentName, most: u32) -> String {
    format!(
        "{peer} and {me} have exchanged messages for {most} turns without any other work \
         (max_exchanges); mail from {peer} no longer wakes {me} until there is work, or the lead \
         or the user writes"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn from(sender: &str) -> Message {
        let mail = json!({"type":"message","from":sender,"content":"thank you"});
        Message::read(mail.as_object().unwrap()).unwrap()
    }

    fn result_of(sender: &str) -> Message {
        let mail = json!({"type":"result","from":sender,"content":"done","outcome":"done"});
        Message::read(mail.as_object().unwrap()).unwrap()
    }

    fn exchange_limit() -> ExchangeLimit {
        ExchangeLimit::new(AgentName::member("alice").unwrap(), 2)
    }

    #[test]
    fn exchanges_are_bounded_and_the_limit_is_reported_once() {
        let mut alice = exchange_limit();
        let mail = [from("bob")];
        assert_eq!(alice.weigh(&mail), Reason::Turn);
        alice.call("send_message", false);
        assert_eq!(alice.weigh(&mail), Reason::Turn);
        assert!(
            matches!(&alice.weigh(&mail), Reason::Talk(told) if told[0].starts_with("bob and "))
        );
        assert_eq!(alice.weigh(&mail), Reason::Talk(Vec::new()));
        assert_eq!(alice.weigh(&[from("bob"), from("carol")]), Reason::Turn, "carol is new");
        assert_eq!(alice.weigh(&[]), Reason::None);
    }

    #[test]
    fn results_count_only_if_they_are_answered() {
        let mut lead = exchange_limit();
        let mail = [result_of("bob")];
        for _ in 0..9 {
            assert_eq!(lead.weigh(&mail), Reason::Turn);
            lead.call("list_teammates", false);
        }
        for _ in 0..2 {
            assert_eq!(lead.weigh(&mail), Reason::Turn);
            lead.call("broadcast", false);
            lead.call("send_message", false);
        }
        assert!(matches!(lead.weigh(&mail), Reason::Talk(_)));
        lead.call("bash", false);
        assert_eq!(lead.weigh(&[result_of("bob"), from("bob")]), Reason::Turn);
        assert_eq!(lead.weigh(&[from("bob")]), Reason::Turn, "a message counts by itself");
        assert!(matches!(lead.weigh(&mail), Reason::Talk(_)));
    }

    #[test]
    fn work_and_mail_of_lead_user_or_program_reset_the_count() {
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
            alice.call("bash", false);
        }
        for _ in 0..2 {
            assert_eq!(alice.weigh(&[from("bob")]), Reason::Turn);
            alice.call("bash", true);
        }
        assert!(
            matches!(alice.weigh(&[from("bob")]), Reason::Talk(_)),
            "a command that sends is talk"
        );
    }
}
