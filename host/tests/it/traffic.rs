//! Mail between the hosts of a test, which plays the agents: they send, take in their mail, and log both for the judge.
//!
//! The judge sees what stands in the inboxes: also a copy that the mailbox would drop by its id.

use crate::machines::{DEADLINE, Machine, Machines};
use crate::rig::judge::{Mail, Report, judge};
use crate::rig::process::wait_until;
use agent_team::bus::Outgoing;
use agent_team::store::{
    Fsync, Keyring, LifeLock, LifeRecord, MailNotice, MailPolicy, Mailbox, SystemClock, TeamDir,
    Transcript, dead,
};
use agent_team::wire::AgentName;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The pause of a sender between two messages.
const SEND_EVERY: Duration = Duration::from_millis(12);

/// The pause of an owner between two looks at its inbox.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// One member: its name and its host.
pub(crate) type Place = (&'static str, &'static str);

#[derive(Default)]
struct Record {
    accepted: Mutex<Vec<Mail>>,
    arrived: Mutex<Vec<Mail>>,
    refused: AtomicUsize,
    /// Whether the senders are to end.
    is_enough: AtomicBool,
    /// Whether the owners are to end.
    is_over: AtomicBool,
}

/// Running members.
pub(crate) struct Traffic {
    record: Arc<Record>,
    places: Vec<Place>,
    senders: Vec<JoinHandle<()>>,
    owners: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Starts members, of which each writes to all those of other hosts. Returns when all hosts know all of them.
    pub(crate) fn start(machines: &Machines, places: &[Place]) -> Self {
        let mut traffic = Self::quiet(machines, places);
        traffic.begin(machines);
        traffic
    }

    /// Starts members that write nothing yet.
    pub(crate) fn quiet(machines: &Machines, places: &[Place]) -> Self {
        let record = Arc::new(Record::default());
        let mut owners = Vec::new();
        for (member, host) in places {
            let machine = machines.get(host);
            machine.add_member(member);
            let (dir, record) = (machine.dir.clone(), Arc::clone(&record));
            let name = AgentName::member(member).unwrap();
            let life = LifeLock::take(&dir, &name, LifeRecord::of_this_process()).unwrap();
            owners.push(thread::spawn(move || own(&dir, &life, &record)));
        }
        for (member, _) in places {
            machines.wait_known(member, true);
        }
        Self { record, places: places.to_vec(), senders: Vec::new(), owners }
    }

    /// Has them write.
    pub(crate) fn begin(&mut self, machines: &Machines) {
        let (places, record) = (&self.places, &self.record);
        let send = |(member, host): &Place| {
            let others = places.iter().filter(|(_, other)| other != host);
            let others: Vec<_> = others.map(|(member, _)| *member).collect();
            let (bus, record) = (machines.get(host).bus(), Arc::clone(record));
            let member = AgentName::member(member).unwrap();
            thread::spawn(move || {
                for number in 1.. {
                    if record.is_enough.load(Ordering::Relaxed) {
                        return;
                    }
                    for to in &others {
                        let mail = Mail::new(member.as_str(), to, number);
                        let id = Some(id_of(&mail));
                        let outgoing = Outgoing { id, ..Outgoing::text(number.to_string()) };
                        match bus.send(&member, to, outgoing) {
                            Ok(_) => record.accepted.lock().unwrap().push(mail),
                            Err(_) => drop(record.refused.fetch_add(1, Ordering::Relaxed)),
                        }
                    }
                    thread::park_timeout(SEND_EVERY);
                }
            })
        };
        self.senders = places.iter().map(send).collect();
    }

    /// Returns the number of messages that were accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.record.accepted.lock().unwrap().len()
    }

    /// Returns the number of sends that were refused so far.
    pub(crate) fn refused(&self) -> usize {
        self.record.refused.load(Ordering::Relaxed)
    }

    /// Ends the senders, waits until all that was accepted has arrived or the time is over, and judges.
    pub(crate) fn finish(self, within: Duration) -> Report {
        self.record.is_enough.store(true, Ordering::Relaxed);
        for sender in self.senders {
            sender.join().unwrap();
        }
        let accepted = self.record.accepted.lock().unwrap().clone();
        let record = &self.record;
        wait_until(within, || {
            let arrived: BTreeSet<Mail> = record.arrived.lock().unwrap().iter().cloned().collect();
            accepted.iter().all(|mail| arrived.contains(mail))
        });
        self.record.is_over.store(true, Ordering::Relaxed);
        for owner in self.owners {
            owner.join().unwrap();
        }
        judge(&accepted, &self.record.arrived.lock().unwrap())
    }
}

/// Judges a run that must be without fault; says what the relays have logged if it is not.
pub(crate) fn must_be_clean(machines: &Machines, traffic: Traffic) -> Report {
    must_be_clean_within(machines, traffic, DEADLINE)
}

/// The same, where more mail may have to be caught up with than in the usual time.
pub(crate) fn must_be_clean_within(
    machines: &Machines,
    traffic: Traffic,
    within: Duration,
) -> Report {
    let places = traffic.places.clone();
    let report = traffic.finish(within);
    let describe = || machines.all.iter().map(Machine::describe).collect::<Vec<_>>().join("\n");
    assert!(report.is_clean(), "{report}\n{}", describe());
    for machine in &machines.all {
        let members = places.iter().filter(|(_, host)| machine.name == *host);
        let torn: usize = members.map(|(member, _)| torn_lines(machine, member)).sum();
        let kills = machine.relay_kills;
        assert!(torn <= kills, "{torn} torn lines by {kills} kills\n{}", describe());
    }
    report
}

/// Returns the number of torn lines among the dead letters of a member. No line may be dead for another reason.
pub(crate) fn torn_lines(machine: &Machine, member: &str) -> usize {
    let letters = dead::read_all(&machine.dir, &AgentName::member(member).unwrap()).unwrap();
    for letter in &letters {
        let is_whole = letter
            .raw
            .as_deref()
            .is_none_or(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
        assert!(!is_whole, "a whole line is a dead letter of {member}: {letter:?}");
    }
    letters.len()
}

/// Returns the id of a message, by which it is known again.
pub(crate) fn id_of(mail: &Mail) -> String {
    format!("{}:{}:{}", mail.from, mail.to, mail.number)
}

pub(crate) fn mail_of(id: &str) -> Option<Mail> {
    let mut words = id.split(':');
    let (from, to) = (words.next()?, words.next()?);
    Some(Mail::new(from, to, words.next()?.parse().ok()?))
}

/// Takes in the mail of a member until the end.
fn own(dir: &TeamDir, life: &LifeLock, record: &Record) {
    let keyring = Arc::new(Keyring::new(dir.clone()));
    keyring.own(life.name(), Fsync::Never).unwrap();
    let transcript = Transcript::open(dir, life.name()).unwrap();
    let policy = MailPolicy { fsync: Fsync::Never, max_content: 10_000 };
    let clock = Arc::new(SystemClock);
    let mut mailbox = Mailbox::open(dir, life, transcript, policy, clock, keyring).unwrap();
    while !record.is_over.load(Ordering::Relaxed) {
        if mailbox.acknowledge_events().is_ok() && mailbox.has_unread() {
            let drained = mailbox.drain().unwrap();
            let repeated = drained.notices.iter().filter_map(|notice| match notice {
                MailNotice::Repeated { id, .. } => mail_of(id),
                // They are counted at the end.
                MailNotice::Dead { .. } => None,
            });
            let new = drained.mail.iter().filter_map(|mail| mail_of(mail.message.id.as_ref()?));
            record.arrived.lock().unwrap().extend(new.chain(repeated));
            mailbox.mark_taken().unwrap();
        }
        let _settled = mailbox.settle().unwrap();
        thread::park_timeout(LOOK_EVERY);
    }
}
