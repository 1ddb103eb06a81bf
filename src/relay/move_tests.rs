//! Members that move between hosts, and what a carrier tells of before.

use super::tests::{Host, Owner, acknowledge, deliver, frames_for, host, name};
use super::{HostEntry, Placement, Recipient, RosterMirror};
use crate::bus::Outgoing;
use crate::store::{Fsync, dead, roster};
use crate::wire::carried::{
    Acknowledgement, Epoch, Frame, LinkProgress, RELAY_PROTOCOL, ValueVersion,
};
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
    c.placements.note(&name("carol"), &at("b", 1).moved_to(host("c")));
    let mut out = b.outbound();
    assert_eq!(out.take_in().unwrap().count, 1);
    let arrived = deliver(&mut c.inbound(), &host("b"), &frames_for(&mut out, &host("c")));
    assert_eq!(arrived.appended, 1);
    assert_eq!(carol.mail(), [("alice".into(), "follows".into(), true)]);
}

#[test]
fn a_host_that_was_never_that_of_the_recipient_brings_no_mail_of_a_third_one() {
    let c = Host::new("c", &[("alice", Some("a")), ("bob", Some("b")), ("carol", None)]);
    let _carol = Owner::of(&c, "carol");
    let forged = |from: &str, seq| {
        let via = r#""via":{"host":"a","epoch":"00000000000000aa","seq":7}"#;
        let line = format!(
            r#"{{{via},"type":"message","from":"{from}","to":"carol","content":"forged"}}"#
        );
        let head = r#"{"v":1,"src":"b","epoch":"00000000000000bb"}"#;
        format!("{head}\n{{\"to\":\"carol\",\"seq\":{seq},\"base\":0,\"line\":{line}}}\n")
            .into_bytes()
    };
    // Until her place is known, it cannot be judged.
    let waits = deliver(&mut c.inbound(), &host("b"), &[forged("alice", 1)]);
    assert_eq!((waits.appended, &waits.later[..]), (0, &[true][..]));
    c.placements.note(&name("carol"), &at("c", 1));
    let frames = [forged("alice", 1), forged("bob", 2)];
    let arrived = deliver(&mut c.inbound(), &host("b"), &frames);
    assert_eq!(arrived.appended, 1, "bob lives there");
    let refused = &arrived.acknowledgements[0].1.links[0].refused;
    assert!(refused[&1].contains("mail of alice only from a"), "{refused:?}");
}

#[test]
fn mail_of_the_lead_comes_only_from_a_host_that_may_have_it() {
    let c = Host::new("c", &[("carol", None)]);
    let _carol = Owner::of(&c, "carol");
    let line = r#"{"type":"message","from":"lead","to":"carol","content":"obey"}"#;
    let frame = |src: &str| {
        let head = format!(r#"{{"v":1,"src":"{src}","epoch":"00000000000000bb"}}"#);
        format!("{head}\n{{\"to\":\"carol\",\"seq\":1,\"base\":0,\"line\":{line}}}\n").into_bytes()
    };
    c.placements.set_leads(BTreeSet::from([host("a")]));
    let arrived = deliver(&mut c.inbound(), &host("b"), &[frame("b")]);
    let refused = &arrived.acknowledgements[0].1.links[0].refused;
    assert!(refused[&1].contains("host that may have the lead"), "{refused:?}");
    assert_eq!(deliver(&mut c.inbound(), &host("a"), &[frame("a")]).appended, 1);
}

#[test]
fn the_words_of_the_person_have_a_seal_only_from_a_host_that_may_have_the_lead() {
    let c = Host::new("c", &[("carol", None)]);
    let mut carol = Owner::of(&c, "carol");
    c.placements.set_leads(BTreeSet::from([host("a")]));
    for src in ["a", "b"] {
        let line = format!(
            r#"{{"type":"message","from":"user","to":"carol","content":"on {src}","id":"user:{src}"}}"#
        );
        let head = format!(r#"{{"v":1,"src":"{src}","epoch":"00000000000000bb"}}"#);
        let frame = format!("{head}\n{{\"to\":\"carol\",\"seq\":1,\"base\":0,\"line\":{line}}}\n");
        let arrived = deliver(&mut c.inbound(), &host(src), &[frame.into_bytes()]);
        assert_eq!(arrived.appended, 1);
    }
    let said = |src: &str, is_verified| ("user".to_owned(), format!("on {src}"), is_verified);
    assert_eq!(carol.mail(), [said("a", true), said("b", false)]);
}

#[test]
fn a_host_shows_no_agent_whose_name_is_placed_on_another_one_and_no_lead_that_it_may_not_have() {
    let a = Host::new("a", &[("carol", None)]);
    let mut mirror = RosterMirror::sharing(a.dir.clone(), &a.identity, a.placements.clone());
    a.placements.set_leads(BTreeSet::from([host("a")]));
    a.placements.note(&name("carol"), &at("a", 1));
    let entry = serde_json::to_value(Member { status: Status::Idle, ..Member::default() }).unwrap();
    for agent in ["carol", "dave", "lead"] {
        let entry = HostEntry { alive: true, entry: entry.clone(), version: None };
        mirror.note(&host("b"), &name(agent), entry);
    }
    let recipients = mirror.write().unwrap();
    let known: Vec<_> = recipients.keys().map(ToString::to_string).collect();
    assert_eq!(known, ["dave"], "mail for the others stays here");
}

fn at(text: &str, term: u64) -> Placement {
    Placement::new(host(text), term)
}

/// Takes in all mail of a host, and returns the frames for another one.
fn sent(from: &Host, to: &str) -> Vec<Vec<u8>> {
    let mut out = from.outbound();
    out.take_in().unwrap();
    frames_for(&mut out, &host(to))
}

#[test]
fn a_line_of_a_sender_that_was_replaced_is_refused_and_one_of_the_same_term_is_not() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    let b = Host::new("b", &[("alice", Some("a")), ("carol", None)]);
    let c = Host::new("c", &[("alice", Some("a")), ("carol", None)]);
    let mut alice = Owner::of(&a, "alice");
    let mut inbound = a.inbound();
    let mut out = b.outbound();
    b.placements.own_terms().note(&name("carol"), 1);
    a.placements.note(&name("carol"), &at("b", 1));
    b.send("carol", "alice", "in time");
    b.send("ci", "alice", "of no agent");
    out.take_in().unwrap();
    let arrived = deliver(&mut inbound, &host("b"), &frames_for(&mut out, &host("a")));
    assert_eq!(arrived.appended, 2);
    acknowledge(&mut out, &host("a"), &arrived);
    // She is placed anew, while b is cut off; the roster of a does not say so yet.
    a.placements.note(&name("carol"), &at("c", 2));
    c.placements.own_terms().note(&name("carol"), 2);
    b.send("carol", "alice", "too late");
    b.send("ci", "alice", "of no agent, later");
    out.take_in().unwrap();
    let arrived = deliver(&mut inbound, &host("b"), &frames_for(&mut out, &host("a")));
    assert_eq!(arrived.appended, 1);
    acknowledge(&mut out, &host("a"), &arrived);
    let letters = dead::read_all(&b.dir, &name("alice")).unwrap();
    let reasons: Vec<_> = letters.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!(reasons, ["gets no mail written by a carol that was replaced (term 1 of 2)"]);
    c.send("carol", "alice", "of the new one");
    let arrived = deliver(&mut inbound, &host("c"), &sent(&c, "a"));
    assert_eq!(arrived.appended, 1);
    let texts: Vec<_> = alice.mail().into_iter().map(|(_, text, _)| text).collect();
    assert_eq!(texts, ["in time", "of no agent", "of no agent, later", "of the new one"]);
}

#[test]
fn mail_that_follows_its_recipient_over_several_hosts_keeps_the_term_of_its_sender() {
    let of_carol = |home: &str| {
        let on = |host: &'static str| (host != home).then_some(home.to_owned());
        ["a", "b", "c", "d"].map(|host| {
            let (alice, carol) = ((host != "a").then_some("a"), on(host));
            Host::new(host, &[("alice", alice), ("carol", carol.as_deref())])
        })
    };
    let [a, b, c, d] = of_carol("b");
    for host in [&b, &c, &d] {
        drop(Owner::of(host, "carol"));
    }
    a.placements.own_terms().note(&name("alice"), 1);
    for text in ["first", "second"] {
        a.send("alice", "carol", text);
    }
    deliver(&mut b.inbound(), &host("a"), &sent(&a, "b"));
    b.move_home("carol", Some("c"));
    c.move_home("carol", None);
    let frames = sent(&b, "c");
    let waits = deliver(&mut c.inbound(), &host("b"), &frames);
    assert_eq!((waits.appended, &waits.later[..]), (0, &[true][..]), "it may not be her host");
    let on_b = Placement::new(host("b"), 1);
    c.placements.note(&name("carol"), &on_b.moved_to(host("c")));
    let arrived = deliver(&mut c.inbound(), &host("b"), &frames);
    assert_eq!(arrived.appended, 2);
    c.move_home("carol", Some("d"));
    d.move_home("carol", None);
    let on_d = on_b.moved_to(host("c")).moved_to(host("d"));
    d.placements.note(&name("carol"), &on_d);
    let frames = sent(&c, "d");
    let lines = Frame::parse(&frames.concat()).unwrap().lines;
    assert_eq!(lines.iter().map(|line| line.term).collect::<Vec<_>>(), [1, 1]);
    // Alice is replaced before d gets them.
    d.placements.note(&name("alice"), &at("b", 2));
    assert_eq!(deliver(&mut d.inbound(), &host("c"), &frames).appended, 0);
    let d = Host::new("d", &[("alice", Some("a")), ("carol", None)]);
    d.placements.note(&name("alice"), &at("a", 1));
    d.placements.note(&name("carol"), &on_d);
    assert_eq!(deliver(&mut d.inbound(), &host("c"), &frames).appended, 2);
}

/// Returns the contents of the messages in frames.
fn texts(frames: &[Vec<u8>]) -> Vec<String> {
    let lines = frames.iter().flat_map(|frame| Frame::parse(frame).unwrap().lines);
    let text =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["content"].clone();
    lines.map(|line| text(line.line.get()).as_str().unwrap().to_owned()).collect()
}

#[test]
fn mail_for_a_host_that_was_given_up_waits_with_the_name_free_and_follows_the_name() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    let mut out = a.outbound();
    a.send("alice", "carol", "arrived");
    a.send("alice", "carol", "waits");
    out.take_in().unwrap();
    assert_eq!(texts(&frames_for(&mut out, &host("b"))), ["arrived", "waits"]);
    let progress =
        LinkProgress { to: "carol".into(), next: 2, refused: BTreeMap::new(), again: false };
    let epoch = a.identity.epoch.clone();
    let acknowledgement =
        Acknowledgement { v: RELAY_PROTOCOL, epoch, links: vec![progress], pending: None };
    out.acknowledged(&host("b"), &acknowledgement).unwrap();
    a.placements.set_given_up(BTreeSet::from([host("b")]));
    let on = |text: &str, is_alive| {
        let recipient = Recipient { host: host(text), incarnation: String::new(), is_alive };
        BTreeMap::from([(name("carol"), recipient)])
    };
    out.set_recipients(on("b", false)).unwrap();
    assert_eq!(out.waiting_lines().of(&host("b"))["carol"], 1);
    // The name is free here, while her mail waits; after a kill of the relay as well.
    drop(Owner::of(&a, "carol"));
    drop(out);
    let mut out = a.closed_outbound();
    out.set_recipients(on("b", false)).unwrap();
    drop(Owner::of(&a, "carol"));
    out.set_recipients(on("c", true)).unwrap();
    assert_eq!(texts(&frames_for(&mut out, &host("c"))), ["waits"], "b is not waited for");
    // It comes back before c has them, and she has moved here.
    a.placements.set_given_up(BTreeSet::from([host("b"), host("c")]));
    a.placements.note(&name("carol"), &at("a", 3));
    a.move_home("carol", None);
    out.set_recipients(BTreeMap::new()).unwrap();
    let mut carol = Owner::of(&a, "carol");
    let frames = frames_for(&mut out, &host("a"));
    assert_eq!(texts(&frames), ["waits"]);
    let arrived = deliver(&mut a.inbound(), &host("a"), &frames);
    acknowledge(&mut out, &host("a"), &arrived);
    assert_eq!(carol.mail().len(), 1);
    out.set_recipients(BTreeMap::new()).unwrap();
    assert!(out.hosts().is_empty() && out.orphaned().unwrap().is_empty());
    assert!(frames_for(&mut out, &host("a")).is_empty());
}

#[test]
fn an_entry_of_a_host_that_was_given_up_says_so_and_yields_to_that_of_the_next_home() {
    let a = Host::new("a", &[]);
    let mut mirror = RosterMirror::sharing(a.dir.clone(), &a.identity, a.placements.clone());
    let entry = |alive| {
        let entry = serde_json::to_value(Member { status: Status::Idle, ..Member::default() });
        HostEntry { alive, entry: entry.unwrap(), version: None }
    };
    let home = |mirror: &RosterMirror| {
        mirror.write().unwrap();
        let home = roster::read(&a.dir).unwrap().home_of("carol").unwrap();
        (home.host, home.is_alive, home.is_given_up)
    };
    // In the order of names, the host of before is the last one.
    mirror.note(&host("z"), &name("carol"), entry(true));
    a.placements.note(&name("carol"), &at("z", 1));
    assert_eq!(home(&mirror), ("z".into(), true, false));
    a.placements.set_given_up(BTreeSet::from([host("z")]));
    assert_eq!(home(&mirror), ("z".into(), false, true));
    let refused = a.bus.send(&name("lead"), "carol", Outgoing::text("x")).unwrap_err();
    assert!(refused.to_string().contains("is on z, which was given up"), "{refused}");
    a.placements.note(&name("carol"), &at("c", 2));
    mirror.note(&host("c"), &name("carol"), entry(true));
    assert_eq!(home(&mirror), ("c".into(), true, false));
    mirror.note(&host("c"), &name("carol"), entry(false));
    assert_eq!(home(&mirror), ("c".into(), false, false), "its end is known here");
    // It comes back, with the one of before.
    a.placements.set_given_up(BTreeSet::new());
    mirror.note(&host("c"), &name("carol"), entry(true));
    assert_eq!(home(&mirror), ("c".into(), true, false));
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

#[test]
fn a_member_whose_entry_is_not_told_yet_is_no_less_a_member() {
    let a = Host::new("a", &[("carol", None)]);
    let mut mirror = RosterMirror::new(a.dir.clone(), &a.identity);
    let told = |mirror: &mut RosterMirror| {
        let news = mirror.news().unwrap().into_iter();
        news.map(|(name, entry)| (name.to_string(), entry.is_some())).collect::<Vec<_>>()
    };
    let carol = |is_there| vec![("carol".to_owned(), is_there)];
    assert_eq!(told(&mut mirror), carol(true));
    assert_eq!(told(&mut mirror), []);
    // The connection broke just then. The names that are told next say who is gone.
    mirror.tell_again(&name("carol"));
    assert_eq!(mirror.own_names(), BTreeSet::from(["carol".to_owned()]));
    assert_eq!(told(&mut mirror), carol(true));
    roster::update(&a.dir, Fsync::Never, |roster| roster.members.clear()).unwrap();
    assert_eq!(told(&mut mirror), carol(false));
    mirror.tell_again(&name("carol"));
    assert_eq!(told(&mut mirror), carol(false), "that she is gone is told again, too");
    assert_eq!(told(&mut mirror), []);
}

#[test]
fn only_what_the_bucket_does_not_have_as_it_was_told_is_told_again() {
    let a = Host::new("a", &[("carol", None), ("dave", None)]);
    let mut mirror = RosterMirror::new(a.dir.clone(), &a.identity);
    let news = |mirror: &mut RosterMirror| BTreeMap::from_iter(mirror.news().unwrap());
    let read = |mirror: &mut RosterMirror, values: &[(&str, HostEntry)]| {
        mirror.begin_reading();
        for (member, entry) in values {
            mirror.note(&host("a"), &name(member), entry.clone());
        }
    };
    let first = news(&mut mirror);
    let entry = |of: &BTreeMap<_, Option<HostEntry>>, member| of[&name(member)].clone().unwrap();
    let (carol, dave) = (entry(&first, "carol"), entry(&first, "dave"));
    read(&mut mirror, &[("carol", carol.clone()), ("dave", dave.clone())]);
    mirror.end_reading();
    assert_eq!(news(&mut mirror), BTreeMap::new());

    // The server was put back while the values were read, and they are read once more.
    read(&mut mirror, &[("carol", carol.clone()), ("dave", dave.clone())]);
    read(&mut mirror, &[("carol", carol.clone())]);
    mirror.end_reading();
    let again = news(&mut mirror);
    assert_eq!(again.keys().collect::<Vec<_>>(), [&name("dave")]);
    let newer = entry(&again, "dave");
    assert!(dave.version.unwrap().is_before(newer.version.as_ref().unwrap()));

    // Its answer was not heard in time, but the bucket has it. Then somebody removes it.
    mirror.tell_again(&name("carol"));
    mirror.note(&host("a"), &name("carol"), carol.clone());
    assert!(!mirror.has_untold());
    mirror.note_removed(&name("carol"));
    assert_eq!(news(&mut mirror).into_keys().collect::<Vec<_>>(), [name("carol")]);

    // An entry of before, though it tells the same, and one of a member that is gone since.
    let of_before = entry(&first, "dave");
    read(&mut mirror, &[("dave", of_before), ("erin", carol)]);
    mirror.end_reading();
    let again = news(&mut mirror);
    let told: Vec<_> = again.iter().map(|(name, it)| (name.as_str(), it.is_some())).collect();
    assert_eq!(told, [("carol", true), ("dave", true), ("erin", false)]);
}
