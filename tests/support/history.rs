//! The history checker of the fault tests: it compares sent, acknowledged and received messages.
//!
//! A linear scan decides exactly, because there is one queue and one reader, and each sender numbers its messages.

use crate::support::child_process::{Job, content, start};
use agent_team::store::{TeamDir, dead, transcript, unread};
use agent_team::wire::AgentName;
use agent_team::wire::message::Message;
use agent_team::wire::transcript::Entry;
use std::collections::BTreeMap;

/// The messages of one sender, which are numbered from 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sent {
    /// The number of sends that began.
    pub(crate) begun: u64,
    /// The number of acknowledged sends: all but possibly the last.
    pub(crate) acked: u64,
}

/// One message in a transcript.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Taken {
    pub(crate) from: String,
    pub(crate) n: u64,
    pub(crate) content: String,
}

/// A violation of the delivery guarantees.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    Lost { from: String, n: u64 },
    Twice { from: String, n: u64 },
    OutOfOrder { from: String, n: u64, after: u64 },
    Ghost { from: String, n: u64 },
    Torn { from: String, n: u64 },
}

/// Returns every fault. There is none if each acknowledged message was received once, unmodified, and in the
/// order of its sender.
pub(crate) fn check_history(sent: &BTreeMap<String, Sent>, taken: &[Taken]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut seen: BTreeMap<&str, (Vec<bool>, Option<u64>)> = BTreeMap::new();
    for Taken { from, n, content: text } in taken {
        let (from, n) = (from.clone(), *n);
        let Some(Sent { begun, .. }) = sent.get(&from).filter(|sent| n < sent.begun) else {
            faults.push(Fault::Ghost { from, n });
            continue;
        };
        let key = sent.get_key_value(&from).unwrap().0.as_str();
        let (met, last) = seen
            .entry(key)
            .or_insert_with(|| (vec![false; usize::try_from(*begun).unwrap()], None));
        if *text != content(&from, n, text.len()) {
            faults.push(Fault::Torn { from: from.clone(), n });
        }
        let slot = &mut met[usize::try_from(n).unwrap()];
        if std::mem::replace(slot, true) {
            faults.push(Fault::Twice { from: from.clone(), n });
        } else if last.is_some_and(|last| n < last) {
            faults.push(Fault::OutOfOrder { from, n, after: last.unwrap() });
            continue;
        }
        *last = Some(last.map_or(n, |last| last.max(n)));
    }
    for (from, Sent { acked, .. }) in sent {
        let met = seen.get(from.as_str()).map(|(met, _)| met.as_slice()).unwrap_or_default();
        for n in 0..*acked {
            if !met.get(usize::try_from(n).unwrap()).copied().unwrap_or(false) {
                faults.push(Fault::Lost { from: from.clone(), n });
            }
        }
    }
    faults
}

/// Returns the numbered messages in a member's transcript, in order.
pub(crate) fn taken_in(dir: &TeamDir, name: &str) -> Vec<Taken> {
    let mut taken = Vec::new();
    each_message(dir, name, |message| taken.push(taken_of(message)));
    taken
}

fn taken_of(message: Message) -> Taken {
    let id = message.id.unwrap();
    let n = id.rsplit_once(':').and_then(|(_, n)| n.parse().ok()).unwrap_or(u64::MAX);
    Taken { from: message.from, n, content: message.content }
}

/// Returns the mail in a member's transcript, in order.
pub(crate) fn messages(dir: &TeamDir, name: &str) -> Vec<Message> {
    let mut messages = Vec::new();
    each_message(dir, name, |message| messages.push(message));
    messages
}

/// Passes the mail in a member's transcript to `meet`, in order: that of a long run does not fit into memory as a whole.
fn each_message(dir: &TeamDir, name: &str, mut meet: impl FnMut(Message)) {
    let name = AgentName::mailbox(name).unwrap();
    transcript::each(dir, &name, |line| {
        if let Entry::Mail { message, .. } = line.entry {
            meet(Message::read(&message).unwrap());
        }
    })
    .unwrap();
}

/// Drains alice's inbox, then asserts that no claim is left, and that none was quarantined.
pub(crate) fn finish(dir: &TeamDir) {
    assert_eq!(finish_kills(dir), [], "quarantined messages");
}

/// Drains alice's inbox, then asserts that no claim is left. Returns the messages of the claims that were quarantined, because five
/// readers in a row were killed during their delivery. A part of them may have been delivered before.
pub(crate) fn finish_kills(dir: &TeamDir) -> Vec<Taken> {
    let job = Job::Read { name: "alice".into(), settle: true, fsync: true };
    assert!(start(dir, job).wait().success());
    let alice = AgentName::member("alice").unwrap();
    assert!(!unread::is_unread(dir, &alice).unwrap());
    let mut quarantined = Vec::new();
    for letter in dead::read_all(dir, &alice).unwrap() {
        if letter.reason.starts_with("poison") {
            let claim = std::fs::read(letter.file.unwrap()).unwrap();
            // A killed sender leaves parts of lines.
            let lines = claim.split(|byte| *byte == b'\n');
            let lines = lines.filter_map(|line| serde_json::from_slice(line).ok());
            let messages = lines.filter_map(|line| Message::read(&line).ok());
            quarantined.extend(messages.map(taken_of));
            continue;
        }
        // A sender that is killed during a write leaves part of a line, possibly part of a character, and
        // sends the message again.
        let is_torn = ["EOF while parsing", "incomplete utf-8", "never finished"]
            .map(|why| letter.reason.contains(why));
        assert!(is_torn.contains(&true), "{}", letter.reason);
    }
    let claims = std::fs::read_dir(dir.claims()).unwrap();
    let left: Vec<_> = claims.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["alice.new"], "settled claims are gone");
    quarantined
}

/// Reads a sender's log (see `child_process::send`).
pub(crate) fn sent(log: &std::path::Path) -> Sent {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let count = |word| u64::try_from(text.lines().filter(|l| l.starts_with(word)).count()).unwrap();
    Sent { begun: count("sent "), acked: count("told ") }
}

/// A good history with one kind of fault injected: the name of the fault, the findings of the checker, and
/// whether they are exactly the injected fault.
#[derive(Debug)]
pub(crate) struct InjectedFault {
    pub(crate) name: &'static str,
    pub(crate) found: Vec<Fault>,
    pub(crate) is_right: bool,
}

/// Runs the checker on eight kinds of injected faults.
pub(crate) fn injected_faults() -> Vec<InjectedFault> {
    let message = |from: &str, n| Taken { from: from.into(), n, content: content(from, n, 30) };
    let sent = BTreeMap::from([
        ("a".to_owned(), Sent { begun: 4, acked: 4 }),
        ("b".to_owned(), Sent { begun: 3, acked: 2 }),
    ]);
    let good: Vec<_> = [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1), ("a", 3)]
        .map(|(f, n)| message(f, n))
        .into();
    assert_eq!(check_history(&sent, &good), []);
    let in_flight = [good.clone(), vec![message("b", 2)]].concat();
    assert_eq!(check_history(&sent, &in_flight), [], "what was not acknowledged may arrive");

    let plant = |name, change: &dyn Fn(&mut Vec<Taken>), right: &[Fault]| {
        let mut bad = good.clone();
        change(&mut bad);
        let found = check_history(&sent, &bad);
        InjectedFault { name, is_right: found == right, found }
    };
    let a = || "a".to_owned();
    let late = |n, after| Fault::OutOfOrder { from: a(), n, after };
    let by_clock = [
        late(2, 3),
        late(1, 3),
        late(0, 3),
        Fault::OutOfOrder { from: "b".into(), n: 0, after: 1 },
    ];
    vec![
        plant("drop", &|h| drop(h.remove(2)), &[Fault::Lost { from: a(), n: 1 }]),
        plant("duplicate", &|h| h.push(h[0].clone()), &[Fault::Twice { from: a(), n: 0 }]),
        plant("swap", &|h| h.swap(2, 3), &[late(1, 2)]),
        plant("late acknowledgement", &|h| h.truncate(5), &[Fault::Lost { from: a(), n: 3 }]),
        plant(
            "wrong inbox",
            &|h| h.push(message("c", 0)),
            &[Fault::Ghost { from: "c".into(), n: 0 }],
        ),
        plant("torn line", &|h| h[0].content.truncate(3), &[Fault::Torn { from: a(), n: 0 }]),
        plant("ghost id", &|h| h.push(message("a", 9)), &[Fault::Ghost { from: a(), n: 9 }]),
        plant(
            "reordered by clock",
            &|h| h.sort_by_key(|taken| std::cmp::Reverse(taken.n)),
            &by_clock,
        ),
    ]
}

#[test]
fn the_checker_finds_every_injected_fault() {
    let planted = injected_faults();
    assert_eq!(planted.len(), 8);
    for InjectedFault { name, found, is_right } in planted {
        assert!(is_right, "{name}: {found:?}");
    }
}
