//! Members that move between hosts, and what a carrier tells of before.

use super::tests::{Host, Owner, acknowledge, deliver, frames_for, host, name};
use super::{HostEntry, Recipient, RosterMirror};
use crate::store::{dead, roster};
use crate::wire::carried::{Epoch, ValueVersion};
use crate::wire::roster::{Member, Status};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn mail_that_one_owner_of_a_name_has_taken_in_is_not_taken_in_by_the_next_when_the_name_moves() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    a.send("alice", "carol", "one");
    let mut out = a.outbound();
    assert_eq!(out.take_in().unwrap().count, 1);
    // The claim is still there: late writers may append to it.
    drop(out);
    a.send("alice", "carol", "two");
    a.move_home("carol", None);
    let mut carol = Owner::of(&a, "carol");
    assert_eq!(carol.mail(), [("alice".to_owned(), "two".to_owned(), true)]);
    a.send("alice", "carol", "three");
    drop(carol);
    a.move_home("carol", Some("b"));
    let mut out = a.outbound();
    assert_eq!(out.take_in().unwrap().count, 1);
    let frames = frames_for(&mut out, &host("b"));
    let text = String::from_utf8_lossy(&frames.concat()).into_owned();
    assert!(text.contains("three") && !text.contains("two"), "{text}");
}

#[test]
fn lines_that_the_host_before_may_have_do_not_go_to_the_next_one_until_it_has_said_so() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    let b = Host::new("b", &[("alice", Some("a")), ("carol", None)]);
    let mut out = a.outbound();
    a.send("alice", "carol", "to b");
    out.take_in().unwrap();
    let frames = frames_for(&mut out, &host("b"));
    let mut inbound = b.inbound();
    assert_eq!(deliver(&mut inbound, &host("a"), &frames).appended, 1, "and its word is lost");
    a.send("alice", "carol", "to c");
    out.take_in().unwrap();
    let on_c = Recipient { host: host("c"), incarnation: String::new(), is_alive: true };
    let recipients = BTreeMap::from([(name("carol"), on_c)]);
    out.set_recipients(recipients.clone()).unwrap();
    out.send_again(&host("c"));
    assert!(frames_for(&mut out, &host("c")).is_empty(), "b may have them");
    assert_eq!(out.hosts(), BTreeSet::from([host("b")]));
    // She is not there any more for the second one.
    b.move_home("carol", Some("c"));
    out.send_again(&host("b"));
    let frames = frames_for(&mut out, &host("b"));
    let arrived = deliver(&mut inbound, &host("a"), &frames);
    assert_eq!(arrived.appended, 0);
    acknowledge(&mut out, &host("b"), &arrived);
    let letters = dead::read_all(&a.dir, &name("carol")).unwrap();
    assert_eq!(letters.len(), 1, "{letters:?}");
    a.send("alice", "carol", "later");
    out.take_in().unwrap();
    let frames = frames_for(&mut out, &host("c"));
    let text = String::from_utf8_lossy(&frames.concat()).into_owned();
    assert!(text.contains("later") && !text.contains("to b"), "{text}");
}

#[test]
fn mail_that_is_not_read_before_its_recipient_moves_follows_it() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    let b = Host::new("b", &[("alice", Some("a")), ("carol", None)]);
    let c = Host::new("c", &[("alice", Some("a")), ("carol", None)]);
    // She has lived there, so that she has a key.
    drop(Owner::of(&b, "carol"));
    let mut out = a.outbound();
    a.send("alice", "carol", "follows");
    out.take_in().unwrap();
    deliver(&mut b.inbound(), &host("a"), &frames_for(&mut out, &host("b")));
    let mut carol = Owner::of(&c, "carol");
    b.move_home("carol", Some("c"));
    let mut out = b.outbound();
    assert_eq!(out.take_in().unwrap().count, 1);
    let arrived = deliver(&mut c.inbound(), &host("b"), &frames_for(&mut out, &host("c")));
    assert_eq!(arrived.appended, 1);
    assert_eq!(carol.mail(), [("alice".into(), "follows".into(), true)]);
}

#[test]
fn an_earlier_state_of_the_carrier_takes_no_member_from_the_roster() {
    let b = Host::new("b", &[]);
    let mut mirror = RosterMirror::new(b.dir.clone(), &b.identity);
    let version = |start, number| ValueVersion { epoch: Epoch::of(7), start, number };
    let carol = || BTreeSet::from(["carol".to_owned()]);
    let entry = |alive, version| {
        let entry = serde_json::to_value(Member { status: Status::Idle, ..Member::default() });
        HostEntry { alive, entry: entry.unwrap(), version: Some(version) }
    };
    let home = |mirror: &RosterMirror| {
        mirror.write().unwrap();
        roster::read(&b.dir).unwrap().home_of("carol").map(|home| home.is_alive)
    };
    mirror.note(&host("a"), &name("carol"), entry(true, version(2, 3)));
    mirror.note_names(&host("a"), carol(), Some(version(2, 4)));
    assert_eq!(home(&mirror), Some(true));
    mirror.note(&host("a"), &name("carol"), entry(false, version(1, 9)));
    mirror.note_names(&host("a"), BTreeSet::new(), Some(version(2, 1)));
    assert_eq!(home(&mirror), Some(true), "these are of before");
    mirror.note(&host("a"), &name("carol"), entry(false, version(3, 1)));
    assert_eq!(home(&mirror), Some(false));
    // A new folder counts from the beginning.
    let anew = ValueVersion { epoch: Epoch::of(8), start: 1, number: 1 };
    mirror.note_names(&host("a"), BTreeSet::new(), Some(anew));
    assert_eq!(home(&mirror), None);
}
