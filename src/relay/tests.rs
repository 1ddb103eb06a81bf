//! Two relays without a network between them: the test carries the frames, and loses, repeats and reorders them.

use super::*;
use crate::bus::{Bus, MailLimits, Outgoing};
use crate::os::SystemClock;
use crate::store::relay::{HostIdentity, RelayLock, Servers, name_host};
use crate::store::{
    Fsync, Keyring, LifeLock, LifeRecord, MailNotice, MailPolicy, Mailbox, SettleResult,
    SharedClock, TeamDir, Transcript, dead, list_claims, roster, test_team,
};
use crate::wire::AgentName;
use crate::wire::carried::{Acknowledgement, Frame, HostName, ProgressQuestion, RELAY_PROTOCOL};
use crate::wire::roster::{Member, Status};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

pub(super) fn name(text: &str) -> AgentName {
    AgentName::mailbox(text).unwrap()
}

pub(super) fn host(text: &str) -> HostName {
    HostName::parse(text).unwrap()
}

fn clock() -> SharedClock {
    Arc::new(SystemClock)
}

/// A host with its team folder.
pub(super) struct Host {
    _folder: tempfile::TempDir,
    _lock: RelayLock,
    pub(super) dir: TeamDir,
    pub(super) identity: HostIdentity,
    pub(super) bus: Arc<Bus>,
    /// The placements that its relay knows.
    pub(super) placements: KnownPlacements,
}

impl Host {
    /// Creates a host whose roster has members of this and of other hosts.
    pub(super) fn new(host_name: &str, members: &[(&str, Option<&str>)]) -> Self {
        let (folder, dir) = test_team();
        let lock = RelayLock::take(&dir).unwrap().unwrap();
        let identity = name_host(&dir, host(host_name), "t", Servers::default(), None).unwrap();
        roster::update(&dir, Fsync::Never, |roster| {
            for (member, of) in members {
                let entry = Member {
                    status: Status::Idle,
                    host: of.map(ToOwned::to_owned),
                    alive: of.map(|_| true),
                    ..(**roster.enter(member, 1.0)).clone()
                };
                **roster.enter(member, 1.0) = entry;
            }
        })
        .unwrap();
        let limits = MailLimits { fsync: Fsync::Never, ..MailLimits::default() };
        let bus = Arc::new(Bus::new(dir.clone(), limits, clock()));
        let placements = KnownPlacements::default();
        Self { _folder: folder, _lock: lock, dir, identity, bus, placements }
    }

    pub(super) fn move_home(&self, member: &str, to: Option<&str>) {
        roster::update(&self.dir, Fsync::Never, |roster| {
            let entry = roster.member_mut(member).unwrap();
            (entry.host, entry.alive) = (to.map(ToOwned::to_owned), to.map(|_| true));
        })
        .unwrap();
    }

    pub(super) fn send(&self, from: &str, to: &str, text: &str) {
        self.bus.send(&name(from), to, Outgoing::text(text)).unwrap();
    }

    /// Returns the outgoing side before it knows the members of other hosts.
    pub(super) fn closed_outbound(&self) -> Outbound {
        let (dir, identity) = (self.dir.clone(), self.identity.clone());
        Outbound::new(dir, identity, Arc::clone(&self.bus), clock(), self.placements.clone())
    }

    pub(super) fn outbound(&self) -> Outbound {
        let mut outbound = self.closed_outbound();
        outbound.set_recipients(self.recipients()).unwrap();
        outbound
    }

    /// Returns the members of other hosts.
    pub(super) fn recipients(&self) -> BTreeMap<AgentName, Recipient> {
        let known = roster::read(&self.dir).unwrap();
        let of = |member: &Member| {
            let host = HostName::parse(member.host.as_deref()?).ok()?;
            let recipient = Recipient { host, incarnation: String::new(), is_alive: true };
            Some((name(&member.name), recipient))
        };
        known.members.iter().filter_map(|member| of(member)).collect()
    }

    pub(super) fn inbound(&self) -> Inbound {
        let (dir, identity) = (self.dir.clone(), self.identity.clone());
        Inbound::open(dir, identity, Arc::clone(&self.bus), self.placements.clone()).unwrap()
    }
}

/// The process of a member, which takes in its mail.
pub(super) struct Owner {
    mailbox: Mailbox,
    _life: LifeLock,
}

impl Owner {
    pub(super) fn of(host: &Host, member: &str) -> Self {
        let life = LifeLock::take(&host.dir, &name(member), LifeRecord::of_this_process()).unwrap();
        let keyring = Arc::new(Keyring::new(host.dir.clone()));
        keyring.own(&name(member), Fsync::Never).unwrap();
        let transcript = Transcript::open(&host.dir, &name(member)).unwrap();
        let policy = MailPolicy { fsync: Fsync::Never, max_content: 10_000 };
        let mailbox =
            Mailbox::open(&host.dir, &life, transcript, policy, clock(), keyring).unwrap();
        Self { mailbox, _life: life }
    }

    /// Returns the new mail as (sender, content, whether the seal was verified).
    pub(super) fn mail(&mut self) -> Vec<(String, String, bool)> {
        let drained = self.mailbox.drain().unwrap();
        // Only what a relay tells of a refusal may come twice.
        let is_expected = |notice: &MailNotice| matches!(notice, MailNotice::Repeated { id, .. } if id.starts_with("undelivered:"));
        assert!(drained.notices.iter().all(is_expected), "{:?}", drained.notices);
        self.mailbox.mark_taken().unwrap();
        let _settled = self.mailbox.settle().unwrap();
        let of = |mail: crate::store::Mail| {
            let is_verified = mail.message.is_verified();
            (mail.message.from, mail.message.content, is_verified)
        };
        drained.mail.into_iter().map(of).collect()
    }
}

pub(super) fn deliver(inbound: &mut Inbound, from: &HostName, bodies: &[Vec<u8>]) -> Arrived {
    let frames: Vec<_> = bodies.iter().map(|body| InboundFrame { from, body }).collect();
    inbound.deliver(&frames).unwrap()
}

pub(super) fn frames_for(outbound: &mut Outbound, to: &HostName) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| outbound.next_frame(to).unwrap().map(|frame| frame.body)).collect()
}

pub(super) fn acknowledge(outbound: &mut Outbound, by: &HostName, arrived: &Arrived) {
    for (_, acknowledgement) in &arrived.acknowledgements {
        outbound.acknowledged(by, acknowledgement).unwrap();
    }
}

/// Asks for the progress of all links, as a relay does that waits for acknowledgements.
fn synchronize(outbound: &mut Outbound, inbound: &Inbound, from: &Host, by: &Host) {
    let question = ProgressQuestion { v: RELAY_PROTOCOL, epoch: from.identity.epoch.clone() };
    let answer: Acknowledgement = inbound.answer(&from.identity.host, &question, Some(0));
    outbound.acknowledged(&by.identity.host, &answer).unwrap();
}

#[test]
fn mail_reaches_a_member_of_another_host_sealed_anew_and_says_whence() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    let b = Host::new("b", &[("alice", Some("a")), ("carol", None)]);
    let mut out = a.outbound();
    let mut carol = Owner::of(&b, "carol");
    a.send("alice", "carol", "one");
    let by_hand = "{\"from\":\"alice\",\"content\":\"two\",\"via\":\"command\"}\n";
    fs::OpenOptions::new()
        .append(true)
        .open(a.dir.inbox(&name("carol")))
        .and_then(|mut file| std::io::Write::write_all(&mut file, by_hand.as_bytes()))
        .unwrap();
    assert_eq!(out.take_in().unwrap().count, 2);
    let frames = frames_for(&mut out, &host("b"));
    assert_eq!((frames.len(), out.waiting_for(&host("b"))), (1, 2));
    let mut inbound = b.inbound();
    let arrived = deliver(&mut inbound, &host("a"), &frames);
    assert_eq!((arrived.appended, &*arrived.later), (2, &[false][..]));
    let mail = |from: &str, text: &str, verified| (from.to_owned(), text.to_owned(), verified);
    assert_eq!(carol.mail(), [mail("alice", "one", true), mail("alice", "two", false)]);
    let transcript = fs::read_to_string(b.dir.transcript(&name("carol"))).unwrap();
    let epoch = a.identity.epoch.as_str();
    for via in [
        format!(r#""message":{{"via":{{"host":"a","epoch":"{epoch}","seq":1}},"#),
        format!(r#""via":{{"host":"a","epoch":"{epoch}","seq":2,"via":"command"}},"#),
    ] {
        assert!(transcript.contains(&via), "{via} in {transcript}");
    }
    acknowledge(&mut out, &host("b"), &arrived);
    assert_eq!(out.waiting_for(&host("b")), 0);
    assert_eq!(deliver(&mut inbound, &host("a"), &frames).appended, 0, "copies");
    assert!(carol.mail().is_empty());
}

#[test]
fn a_line_that_is_refused_becomes_a_dead_letter_and_its_sender_is_told_once() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b")), ("dave", Some("b"))]);
    let b = Host::new("b", &[("alice", Some("a")), ("carol", None), ("erin", None)]);
    let mut alice = Owner::of(&a, "alice");
    let mut out = a.outbound();
    a.send("alice", "carol", "one");
    a.send("alice", "dave", "to nobody");
    // In the name of a member of the other host.
    a.send("erin", "carol", "forged");
    a.send("alice", "carol", "two");
    out.take_in().unwrap();
    let frames = frames_for(&mut out, &host("b"));
    let mut inbound = b.inbound();
    let arrived = deliver(&mut inbound, &host("a"), &frames);
    assert_eq!(arrived.appended, 2);
    let contents = |owner: &mut Owner| {
        owner.mail().into_iter().map(|(_, content, _)| content).collect::<Vec<_>>()
    };
    assert_eq!(contents(&mut Owner::of(&b, "carol")), ["one", "two"]);
    // The first acknowledgement is lost; the refusals come with every later one.
    drop((inbound, arrived));
    let mut inbound = b.inbound();
    synchronize(&mut out, &inbound, &a, &b);
    assert_eq!(out.waiting_for(&host("b")), 0);
    let told = contents(&mut alice);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("dave is not on the roster"), "{told:?}");
    let letters = |member: &str| dead::read_all(&a.dir, &name(member)).unwrap();
    assert_eq!((letters("dave").len(), letters("carol").len()), (1, 1));
    assert!(letters("carol")[0].reason.contains("gets mail of erin only from b"));
    // A relay that has forgotten what was acknowledged sends all of it again.
    drop(out);
    let mut out = a.outbound();
    let frames = frames_for(&mut out, &host("b"));
    let arrived = deliver(&mut inbound, &host("a"), &frames);
    assert_eq!(arrived.appended, 0);
    acknowledge(&mut out, &host("b"), &arrived);
    assert_eq!(out.waiting_for(&host("b")), 0);
    assert_eq!((letters("dave").len(), letters("carol").len()), (1, 1));
    assert_eq!(contents(&mut alice), [""; 0], "told once");
}

#[test]
fn a_relay_killed_in_the_midst_of_an_append_leaves_a_torn_line_and_brings_it_again() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    let b = Host::new("b", &[("alice", Some("a")), ("carol", None)]);
    let mut out = a.outbound();
    let mut carol = Owner::of(&b, "carol");
    for text in ["one", "two", "three"] {
        a.send("alice", "carol", text);
    }
    out.take_in().unwrap();
    let frames = frames_for(&mut out, &host("b"));
    let mut inbound = b.inbound();
    assert_eq!(deliver(&mut inbound, &host("a"), &frames).appended, 3);
    drop(inbound);
    forget_done(&b);
    let inbox = fs::OpenOptions::new().write(true).open(b.dir.inbox(&name("carol"))).unwrap();
    inbox.set_len(inbox.metadata().unwrap().len() - 20).unwrap();
    drop(inbox);
    let mut texts: Vec<_> = carol.mail().into_iter().map(|(_, text, _)| text).collect();
    assert_eq!(texts, ["one", "two"]);
    assert_eq!(deliver(&mut b.inbound(), &host("a"), &frames).appended, 1);
    texts.extend(carol.mail().into_iter().map(|(_, text, _)| text));
    assert_eq!(texts, ["one", "two", "three"]);
    while matches!(carol.mailbox.settle().unwrap(), SettleResult::Again { .. }) {
        std::thread::yield_now();
    }
    let letters = dead::read_all(&b.dir, &name("carol")).unwrap();
    assert_eq!(
        letters.iter().map(|it| it.reason.as_str()).collect::<Vec<_>>(),
        ["the line was never finished"]
    );
}

#[test]
fn a_frame_of_another_version_of_the_protocol_is_refused_with_words_and_its_lines_stay() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    let b = Host::new("b", &[("alice", Some("a")), ("carol", None)]);
    let (mut out, mut carol) = (a.outbound(), Owner::of(&b, "carol"));
    a.send("alice", "carol", "one");
    out.take_in().unwrap();
    let frames = frames_for(&mut out, &host("b"));
    let text = String::from_utf8(frames[0].clone()).unwrap();
    let mut inbound = b.inbound();
    for version in [RELAY_PROTOCOL - 1, RELAY_PROTOCOL + 1] {
        let head = format!(r#"{{"v":{version},"#);
        let other = text.replacen(&format!(r#"{{"v":{RELAY_PROTOCOL},"#), &head, 1);
        let said = Frame::parse(other.as_bytes()).unwrap_err().to_string();
        let words = format!("version {version} of the protocol between hosts");
        assert!(said.starts_with(&words), "{said}");
        let arrived = deliver(&mut inbound, &host("a"), &[other.into_bytes()]);
        assert_eq!((arrived.appended, arrived.acknowledgements.len()), (0, 0));
        acknowledge(&mut out, &host("b"), &arrived);
    }
    assert_eq!((carol.mail().len(), out.waiting_for(&host("b"))), (0, 1));
    // The program of that host was replaced.
    let arrived = deliver(&mut inbound, &host("a"), &frames);
    acknowledge(&mut out, &host("b"), &arrived);
    assert_eq!((carol.mail().len(), out.waiting_for(&host("b"))), (1, 0));
}

#[test]
fn a_member_of_another_host_is_reachable_while_its_host_says_that_it_lives() {
    let a = Host::new("a", &[("carol", Some("b"))]);
    let set = |status, alive| {
        roster::update(&a.dir, Fsync::Never, |roster| {
            let carol = roster.member_mut("carol").unwrap();
            (carol.status, carol.alive) = (status, Some(alive));
        })
        .unwrap();
    };
    a.send("lead", "carol", "no relay runs: it waits here");
    set(Status::Idle, false);
    let refused = a.bus.send(&AgentName::lead(), "carol", Outgoing::text("x")).unwrap_err();
    assert!(refused.to_string().contains("carol is dead"), "{refused}");
    set(Status::Starting, false);
    a.send("lead", "carol", "she is about to run");
    let mut out = a.outbound();
    assert_eq!(out.take_in().unwrap().count, 2);
    drop(out);
    set(Status::Idle, true);
    let held = a.outbound();
    assert!(LifeLock::take(&a.dir, &name("carol"), LifeRecord::of_this_process()).is_err());
    drop(held);
    drop(LifeLock::take(&a.dir, &name("carol"), LifeRecord::of_this_process()).unwrap());
}

#[test]
fn lines_that_an_earlier_relay_left_are_sent_although_their_outbox_was_in_use_at_first() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    let mut out = a.outbound();
    a.send("alice", "carol", "left");
    out.take_in().unwrap();
    drop(out);
    let held = LifeLock::take(&a.dir, &name("carol"), LifeRecord::of_this_process()).unwrap();
    let mut out = a.closed_outbound();
    let recipient = Recipient { host: host("b"), incarnation: String::new(), is_alive: false };
    let recipients = BTreeMap::from([(name("carol"), recipient)]);
    assert!(out.set_recipients(recipients).is_err(), "another process holds the name");
    drop(held);
    out.take_in().unwrap();
    assert_eq!(frames_for(&mut out, &host("b")).len(), 1);
}

#[test]
fn a_full_inbox_holds_up_its_own_link_only() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b")), ("dave", Some("b"))]);
    let mut b = Host::new("b", &[("alice", Some("a")), ("carol", None), ("dave", None)]);
    let limits = MailLimits { fsync: Fsync::Never, inbox_bytes: 2000, ..MailLimits::default() };
    b.bus = Arc::new(Bus::new(b.dir.clone(), limits, clock()));
    let mut out = a.outbound();
    for number in 0..3 {
        a.send("alice", "carol", &format!("{number} {}", "x".repeat(900)));
    }
    a.send("alice", "dave", "short");
    out.take_in().unwrap();
    let frames = frames_for(&mut out, &host("b"));
    let mut inbound = b.inbound();
    let first = deliver(&mut inbound, &host("a"), &frames);
    assert_eq!(
        (first.appended, &*first.later),
        (2, &[true][..]),
        "one of three, and the short one"
    );
    acknowledge(&mut out, &host("b"), &first);
    assert_eq!(out.waiting_for(&host("b")), 2);
    let limits = MailLimits { fsync: Fsync::Never, ..MailLimits::default() };
    b.bus = Arc::new(Bus::new(b.dir.clone(), limits, clock()));
    drop(inbound);
    let mut inbound = b.inbound();
    let second = deliver(&mut inbound, &host("a"), &frames);
    assert_eq!((second.appended, &*second.later), (2, &[false][..]));
    assert_eq!(Owner::of(&b, "carol").mail().len(), 3);
}

#[test]
fn a_line_that_never_fits_into_the_inbox_is_refused_and_holds_up_no_other() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    let mut b = Host::new("b", &[("alice", Some("a")), ("carol", None)]);
    let limits = MailLimits { fsync: Fsync::Never, inbox_bytes: 2000, ..MailLimits::default() };
    b.bus = Arc::new(Bus::new(b.dir.clone(), limits, clock()));
    let mut out = a.outbound();
    a.send("alice", "carol", &"x".repeat(3000));
    a.send("alice", "carol", "short");
    out.take_in().unwrap();
    let frames = frames_for(&mut out, &host("b"));
    let arrived = deliver(&mut b.inbound(), &host("a"), &frames);
    assert_eq!((arrived.appended, &*arrived.later), (1, &[false][..]));
    acknowledge(&mut out, &host("b"), &arrived);
    let letters = dead::read_all(&a.dir, &name("carol")).unwrap();
    assert!(letters[0].reason.contains("cannot get a line of"), "{letters:?}");
    assert_eq!(Owner::of(&b, "carol").mail().len(), 1);
}

/// An event on the way of mail between two hosts.
#[derive(Debug, Clone)]
enum Step {
    Send {
        from: usize,
        to: usize,
    },
    TakeIn,
    Publish,
    /// Delivers the frames of these positions among all that were ever published.
    Deliver(Vec<prop::sample::Index>),
    /// The next acknowledgement is lost.
    LoseAcknowledgement,
    Again,
    OwnerReads(usize),
    /// The relay of the senders is killed.
    KillOutbound,
    /// The relay of the recipients is killed; `true`: before it noted that its last lines were appended.
    KillInbound(bool),
    Compact,
    /// The record of arrived lines is lost, when all is acknowledged.
    ForgetArrivals,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2_usize, 0..2_usize).prop_map(|(from, to)| Step::Send { from, to }),
        2 => Just(Step::TakeIn),
        3 => Just(Step::Publish),
        4 => proptest::collection::vec(any::<prop::sample::Index>(), 1..4).prop_map(Step::Deliver),
        1 => Just(Step::LoseAcknowledgement),
        1 => Just(Step::Again),
        2 => (0..2_usize).prop_map(Step::OwnerReads),
        1 => Just(Step::KillOutbound),
        2 => any::<bool>().prop_map(Step::KillInbound),
        1 => Just(Step::Compact),
        1 => Just(Step::ForgetArrivals),
    ]
}

/// Removes the last line of the record of arrived lines if it says that lines were appended.
fn forget_done(host: &Host) {
    let path = host.dir.relay_arrivals();
    let text = fs::read_to_string(&path).unwrap();
    let Some(end) = text.trim_end().rfind('\n') else { return };
    if text[end..].trim().starts_with("{\"d\"") {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(end as u64 + 1).unwrap();
    }
}

struct Network {
    a: Host,
    b: Host,
    out: Option<Outbound>,
    inbound: Option<Inbound>,
    owners: Vec<Owner>,
    published: Vec<Vec<u8>>,
    loses: bool,
    sent: BTreeMap<(usize, usize), u64>,
    got: BTreeMap<(usize, usize), Vec<u64>>,
}

const SENDERS: [&str; 2] = ["alice", "bob"];
const RECIPIENTS: [&str; 2] = ["carol", "dave"];

impl Network {
    fn new() -> Self {
        let [here, there] = [None, Some("b")];
        let a =
            Host::new("a", &[("alice", here), ("bob", here), ("carol", there), ("dave", there)]);
        let from_a = Some("a");
        let b =
            Host::new("b", &[("alice", from_a), ("bob", from_a), ("carol", None), ("dave", None)]);
        let (out, inbound) = (Some(a.outbound()), Some(b.inbound()));
        let owners = RECIPIENTS.iter().map(|member| Owner::of(&b, member)).collect();
        let (published, sent, got) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { a, b, out, inbound, owners, published, loses: false, sent, got }
    }

    fn out(&mut self) -> &mut Outbound {
        self.out.as_mut().unwrap()
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Send { from, to } => {
                let count = self.sent.entry((from, to)).or_default();
                *count += 1;
                self.a.send(SENDERS[from], RECIPIENTS[to], &count.to_string());
            }
            Step::TakeIn => drop(self.out().take_in().unwrap()),
            Step::Publish => {
                let frames = self.out().next_frame(&host("b")).unwrap();
                self.published.extend(frames.map(|frame| frame.body));
            }
            Step::Deliver(positions) if !self.published.is_empty() => {
                let bodies: Vec<_> =
                    positions.iter().map(|at| at.get(&self.published).clone()).collect();
                let arrived = deliver(self.inbound.as_mut().unwrap(), &host("a"), &bodies);
                if !std::mem::take(&mut self.loses) {
                    acknowledge(self.out(), &host("b"), &arrived);
                }
            }
            Step::Deliver(_) => {}
            Step::LoseAcknowledgement => self.loses = true,
            Step::Again => self.out().send_again(&host("b")),
            Step::OwnerReads(to) => self.read(to),
            Step::KillOutbound => {
                self.out = None;
                self.out = Some(self.a.outbound());
            }
            Step::KillInbound(is_in_doubt) => {
                self.inbound = None;
                if is_in_doubt {
                    forget_done(&self.b);
                }
                self.inbound = Some(self.b.inbound());
            }
            Step::Compact => self.out().compact_all().unwrap(),
            Step::ForgetArrivals => {
                self.finish();
                self.inbound = None;
                fs::remove_file(self.b.dir.relay_arrivals()).unwrap();
                self.inbound = Some(self.b.inbound());
                // The carrier does not have any more of what was acknowledged before.
                self.published.clear();
            }
        }
    }

    fn read(&mut self, to: usize) {
        for (from, text, is_verified) in self.owners[to].mail() {
            assert!(is_verified);
            let from = SENDERS.iter().position(|sender| *sender == from).unwrap();
            self.got.entry((from, to)).or_default().push(text.parse().unwrap());
        }
    }

    /// Carries all that waits.
    fn finish(&mut self) {
        self.out().take_in().unwrap();
        for _ in 0..3 {
            let Self { out, inbound, a, b, .. } = self;
            let (out, inbound) = (out.as_mut().unwrap(), inbound.as_mut().unwrap());
            synchronize(out, inbound, a, b);
            out.send_again(&host("b"));
            let frames = frames_for(out, &host("b"));
            let arrived = deliver(inbound, &host("a"), &frames);
            acknowledge(out, &host("b"), &arrived);
            out.compact_all().unwrap();
        }
        assert_eq!(self.out().waiting_for(&host("b")), 0);
        for to in 0..RECIPIENTS.len() {
            self.read(to);
        }
        for (link, count) in &self.sent {
            let expected: Vec<u64> = (1..=*count).collect();
            assert_eq!(self.got.get(link), Some(&expected), "{link:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn every_line_arrives_once_and_in_order_whatever_happens_on_the_way(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut network = Network::new();
        for step in steps {
            network.perform(step);
        }
        network.finish();
    }
}

#[test]
fn the_claims_of_the_next_relay_are_newer_though_the_outbox_alone_knows_the_last_one() {
    let a = Host::new("a", &[("alice", None), ("carol", Some("b"))]);
    let b = Host::new("b", &[("alice", Some("a")), ("carol", None)]);
    let mut inbound = b.inbound();
    let mut counters = Vec::new();
    for text in ["one", "two", "three"] {
        let mut out = a.outbound();
        a.send("alice", "carol", text);
        assert_eq!(out.take_in().unwrap().count, 1);
        let claims = list_claims(&a.dir).unwrap();
        counters.extend(claims.iter().map(|claim| claim.batch_id[..12].to_owned()));
        let arrived = deliver(&mut inbound, &host("a"), &frames_for(&mut out, &host("b")));
        acknowledge(&mut out, &host("b"), &arrived);
        out.compact_all().unwrap();
        drop(out);
        // All late writers had their time.
        for claim in &claims {
            fs::remove_file(&claim.path).unwrap();
        }
    }
    assert_eq!(counters, ["000000000001", "000000000002", "000000000003"]);
    assert!(!a.dir.state("carol.gen").exists());
}
