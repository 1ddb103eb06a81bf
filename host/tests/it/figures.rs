//! The figures of docs/machines.md: latency beside that of one host, a backlog, and the cost of a relay. It measures, so it
//! asserts nothing, and runs only with `TEAM_MACHINES_FIGURES=1`, in a release build.

use crate::machines::{DEADLINE, Machine, Machines, variable};
use crate::rig::process::wait_until;
use agent_team::bus::{Bus, MailLimits, Outgoing};
use agent_team::store::{
    Fsync, Keyring, LifeLock, LifeRecord, MailPolicy, Mailbox, SystemClock, Transcript,
};
use agent_team::wire::AgentName;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const MESSAGES: u64 = 500;

const BACKLOG: u32 = 50_000;

/// The pause of an owner between two looks at its inbox: half of it is part of every latency.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// A member that only counts its mail.
struct Counter {
    count: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Counter {
    fn start(machine: &Machine, member: &str) -> Self {
        machine.add_member(member);
        let name = AgentName::member(member).unwrap();
        let dir = machine.dir.clone();
        let life = LifeLock::take(&dir, &name, LifeRecord::of_this_process()).unwrap();
        let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ended) = (Arc::clone(&count), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let keyring = Arc::new(Keyring::new(dir.clone()));
            keyring.own(&name, Fsync::Never).unwrap();
            let transcript = Transcript::open(&dir, &name).unwrap();
            let policy = MailPolicy { fsync: Fsync::Always, max_content: 100_000 };
            let clock = Arc::new(SystemClock);
            let mut mailbox =
                Mailbox::open(&dir, &life, transcript, policy, clock, keyring).unwrap();
            while !ended.load(Ordering::Relaxed) {
                mailbox.acknowledge_events().unwrap();
                if mailbox.has_unread() {
                    let drained = mailbox.drain().unwrap();
                    counted.fetch_add(drained.mail.len() as u64, Ordering::Relaxed);
                    mailbox.mark_taken().unwrap();
                }
                let _settled = mailbox.settle().unwrap();
                thread::park_timeout(LOOK_EVERY);
            }
        });
        Self { count, is_over, thread: Some(thread) }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.thread.take().unwrap().join());
    }
}

/// Returns the median and the 99th percentile of the time from a send, its sync included, to the transcript, in ms.
fn latency(bus: &Bus, to: &str, counter: &Counter) -> (f64, f64) {
    let from = AgentName::member("alice").unwrap();
    let mut times = Vec::new();
    for _ in 0..MESSAGES {
        let before = counter.count();
        let start = Instant::now();
        bus.send(&from, to, Outgoing::text("x".repeat(200))).unwrap();
        while counter.count() == before {
            std::hint::spin_loop();
            assert!(start.elapsed() < DEADLINE, "a message did not arrive");
            thread::park_timeout(Duration::from_micros(50));
        }
        times.push(start.elapsed());
    }
    times.sort();
    let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1000.0;
    (at(50), at(99))
}

/// Returns the resident memory in MiB, and the processor time so far in ms.
fn cost(pid: u32) -> (f64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: f64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = [11, 12].map(|at| fields[at].parse::<u64>().unwrap()).iter().sum();
    (kib / 1024.0, ticks * 10)
}

#[test]
fn latency_backlog_and_cost() {
    if variable("TEAM_MACHINES_FIGURES").is_none() {
        return;
    }
    let Some(mut machines) = Machines::or_skip(&["a", "b"]) else { return };
    let _alice = Counter::start(machines.get("a"), "alice");
    let amy = Counter::start(machines.get("a"), "amy");
    let bob = Counter::start(machines.get("b"), "bob");
    machines.wait_known("bob", true);
    let bus = machines.get("a").bus();
    for round in 1..=5 {
        let (local, local_99) = latency(&bus, "amy", &amy);
        let (remote, remote_99) = latency(&bus, "bob", &bob);
        println!(
            "round {round}: one host p50 {local:.2} ms, p99 {local_99:.2}; two hosts p50 {remote:.2} ms, \
             p99 {remote_99:.2}; more by {:.2} ms at p50",
            remote - local
        );
    }
    let pid = machines.get("b").relay_pid();
    let (_, before) = cost(pid);
    thread::park_timeout(Duration::from_secs(20));
    let (memory, after) = cost(pid);
    println!("a relay at rest: {memory:.1} MiB, {} ms of processor time in 20 s", after - before);

    machines.get_mut("b").kill_relay();
    let limits = MailLimits { fsync: Fsync::Never, inbox_bytes: 1 << 30, ..MailLimits::default() };
    let unsynced = Bus::new(machines.get("a").dir.clone(), limits, Arc::new(SystemClock));
    let from = AgentName::member("alice").unwrap();
    let before = bob.count();
    for _ in 0..BACKLOG {
        unsynced.send(&from, "bob", Outgoing::text("x".repeat(200))).unwrap();
    }
    let start = Instant::now();
    machines.get_mut("b").start_relay();
    assert!(wait_until(DEADLINE * 5, || bob.count() - before >= BACKLOG.into()), "{}", bob.count());
    let seconds = start.elapsed().as_secs_f64();
    let (memory, _) = cost(machines.get("a").relay_pid());
    println!(
        "a backlog of {BACKLOG} lines: {seconds:.2} s from the start of the other relay, {:.0} lines/s; \
         the relay of the senders has {memory:.1} MiB",
        f64::from(BACKLOG) / seconds
    );
}
