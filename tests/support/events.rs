//! The numbered messages of a whole team as events, `KIND FROM TO N`, checked inbox by inbox.
//!
//! The events are read from the agents' own files: a call of `send_message` is `sent`, its result `told`, a
//! transcript line of kind "mail" is `took`, a dead letter is `lost`.

use crate::support::child_process::content;
use crate::support::harness::Team;
use crate::support::history::{Fault, Sent, Taken, check_history};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

/// The length of a numbered message in bytes.
const BYTES: usize = 60;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventKind {
    /// The send began.
    Sent,
    /// The send was acknowledged.
    Told,
    /// The recipient received the message.
    Took,
    /// The recipient received modified content.
    Torn,
    /// The message became a dead letter.
    Lost,
}

/// An event of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) what: EventKind,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) n: u64,
}

/// The events of a run. The events of one process are in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct History(pub(crate) Vec<Event>);

/// Returns the tool call that sends message number `n`.
pub(crate) fn send(from: &str, to: &str, n: u64) -> (&'static str, Value) {
    ("send_message", json!({ "to": to, "content": content(from, n, BYTES) }))
}

/// Parses sender and number from the content of a numbered message.
fn numbered(text: &str) -> Option<(String, u64)> {
    let (n, rest) = text.split_once(" of ")?;
    let (from, _) = rest.split_once(' ')?;
    Some((from.to_owned(), n.parse().ok()?))
}

impl History {
    /// Reads the events from the files of a team, archived conversations included.
    pub(crate) fn of(team: &Team, names: &[&str]) -> Self {
        let mut events = Vec::new();
        for name in names {
            let mut lines = Vec::new();
            let mut archived: Vec<_> = fs::read_dir(team.path("transcript/archive"))
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .filter(|file| file.starts_with(&format!("{name}-")))
                .collect();
            archived.sort();
            for file in archived {
                lines.extend(team.lines(&format!("transcript/archive/{file}")));
            }
            lines.extend(team.lines(&format!("transcript/{name}.jsonl")));
            as_sender(name, &lines, &mut events);
            as_reader(name, &lines, &mut events);
            for letter in team.lines(&format!("dead/{name}.jsonl")) {
                let raw: Option<Value> =
                    letter["raw"].as_str().and_then(|raw| serde_json::from_str(raw).ok());
                let text = raw.as_ref().and_then(|raw| raw["content"].as_str());
                if let Some((from, n)) = text.and_then(numbered) {
                    events.push(Event { what: EventKind::Lost, from, to: (*name).into(), n });
                }
            }
        }
        Self(events)
    }

    /// Returns every fault with the inbox that it concerns.
    pub(crate) fn check(&self) -> Vec<(String, Fault)> {
        let inboxes: BTreeSet<&str> = self.0.iter().map(|event| event.to.as_str()).collect();
        let faults = inboxes.into_iter().flat_map(|to| {
            let here = || self.0.iter().filter(move |event| event.to == to);
            let mut sent: BTreeMap<String, Sent> = BTreeMap::new();
            let mut told = BTreeSet::new();
            let mut taken = Vec::new();
            for Event { what, from, n, .. } in here() {
                let sent = sent.entry(from.clone()).or_default();
                let content = match what {
                    EventKind::Sent => {
                        sent.begun = sent.begun.max(n + 1);
                        continue;
                    }
                    EventKind::Told => {
                        sent.acked = sent.acked.max(n + 1);
                        told.insert((from.clone(), *n));
                        continue;
                    }
                    EventKind::Lost => continue,
                    EventKind::Took => content(from, *n, BYTES),
                    EventKind::Torn => String::new(),
                };
                taken.push(Taken { from: from.clone(), n: *n, content });
            }
            let buried = here().filter(|event| event.what == EventKind::Lost);
            let buried = buried.map(|event| Fault::Lost { from: event.from.clone(), n: event.n });
            let mut faults: Vec<Fault> = check_history(&sent, &taken)
                .into_iter()
                // A message that was not acknowledged may be missing.
                .filter(|fault| {
                    let Fault::Lost { from, n } = fault else { return true };
                    told.contains(&(from.clone(), *n))
                })
                .collect();
            faults.extend(buried);
            faults.into_iter().map(move |fault| (to.to_owned(), fault)).collect::<Vec<_>>()
        });
        faults.collect()
    }

    /// Returns the number of events of a kind.
    pub(crate) fn count(&self, what: EventKind) -> usize {
        self.0.iter().filter(|event| event.what == what).count()
    }

    /// Returns the events, one per line.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for Event { what, from, to, n } in &self.0 {
            let what = format!("{what:?}").to_lowercase();
            writeln!(text, "{what} {from} {to} {n}").unwrap();
        }
        text
    }
}

fn as_sender(name: &str, lines: &[Value], events: &mut Vec<Event>) {
    let mut open: BTreeMap<&str, Event> = BTreeMap::new();
    for line in lines {
        for block in line["blocks"].as_array().into_iter().flatten() {
            let (id, input) = (block["id"].as_str(), &block["input"]);
            let known = input["content"].as_str().and_then(numbered);
            if let (Some(id), "send_message", Some((from, n))) =
                (id, block["name"].as_str().unwrap_or_default(), known)
            {
                let to = input["to"].as_str().unwrap().to_owned();
                assert_eq!(from, name, "a script writes in its own name");
                let event = Event { what: EventKind::Sent, from, to, n };
                events.push(event.clone());
                open.insert(id, event);
            }
        }
        let answered = line["tool_use_id"].as_str().filter(|_| line["kind"] == "tool_result");
        if let Some(event) = answered.and_then(|id| open.remove(id))
            && line["is_error"] == false
        {
            events.push(Event { what: EventKind::Told, ..event });
        }
    }
}

fn as_reader(name: &str, lines: &[Value], events: &mut Vec<Event>) {
    for line in lines.iter().filter(|line| line["kind"] == "mail") {
        let text = line["message"]["content"].as_str().unwrap_or_default();
        let Some((from, n)) = numbered(text) else { continue };
        let whole = text == content(&from, n, BYTES) && line["message"]["from"] == from.as_str();
        let what = if whole { EventKind::Took } else { EventKind::Torn };
        events.push(Event { what, from, to: name.into(), n });
    }
}

#[test]
fn a_refused_message_may_be_missing_and_an_acknowledged_one_may_not() {
    let event = |what, n| Event { what, from: "a".into(), to: "b".into(), n };
    let history = |events: &[(EventKind, u64)]| {
        History(events.iter().map(|(what, n)| event(*what, *n)).collect())
    };
    let good = [
        (EventKind::Sent, 0),
        (EventKind::Told, 0),
        (EventKind::Sent, 1),
        (EventKind::Sent, 2),
        (EventKind::Told, 2),
        (EventKind::Took, 0),
        (EventKind::Took, 2),
    ];
    assert_eq!(history(&good).check(), []);
    let lost = |n| ("b".to_owned(), Fault::Lost { from: "a".into(), n });
    assert_eq!(history(&good[..6]).check(), [lost(2)]);
    let buried = [&good[..], &[(EventKind::Lost, 1)]].concat();
    assert_eq!(history(&buried).check(), [lost(1)]);
    let torn = [&good[..6], &[(EventKind::Torn, 2)]].concat();
    assert_eq!(history(&torn).check(), [("b".to_owned(), Fault::Torn { from: "a".into(), n: 2 })]);
    assert_eq!(history(&good[..2]).text(), "sent a b 0\ntold a b 0\n");
}
