//! The figures of docs/machines.md. They measure, so they assert nothing, and run only with `TEAM_MACHINES_FIGURES=1`, in a
//! release build.

mod catch_up;
mod fleet;
mod latency;
mod roster;

use crate::machines::{DEADLINE, Machine, variable};
use agent_team::bus::{Bus, Outgoing};
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

/// The pause of an owner between two looks at its inbox: half of it is part of every latency.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// Whether the figures were asked for.
fn are_wanted() -> bool {
    variable("TEAM_MACHINES_FIGURES").is_some()
}

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
