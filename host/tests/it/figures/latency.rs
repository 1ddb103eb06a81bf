//! The latency between hosts beside that of one host, a backlog, and the cost of a relay.

use super::{Counter, are_wanted, cost, latency};
use crate::machines::{DEADLINE, Machines};
use crate::rig::process::wait_until;
use crate::rig::proxy::Proxy;
use agent_team::bus::{Bus, MailLimits, Outgoing};
use agent_team::store::{Fsync, SystemClock};
use agent_team::wire::AgentName;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const BACKLOG: u32 = 50_000;

/// Two members of host a, and one of host b.
struct Members {
    _alice: Counter,
    amy: Counter,
    bob: Counter,
}

impl Members {
    fn start(machines: &Machines) -> Self {
        let (a, b) = (machines.get("a"), machines.get("b"));
        let [alice, amy] = ["alice", "amy"].map(|name| Counter::start(a, name));
        let bob = Counter::start(b, "bob");
        machines.wait_known("bob", true);
        Self { _alice: alice, amy, bob }
    }

    /// Prints what a message to another host takes beside one to the same host.
    fn compare(&self, machines: &Machines, rounds: u32) {
        let bus = machines.get("a").bus();
        for round in 1..=rounds {
            let (local, local_99) = latency(&bus, "amy", &self.amy);
            let (remote, remote_99) = latency(&bus, "bob", &self.bob);
            println!(
                "round {round}: one host p50 {local:.2} ms, p99 {local_99:.2}; two hosts p50 {remote:.2} ms, \
                 p99 {remote_99:.2}; more by {:.2} ms at p50",
                remote - local
            );
        }
    }
}

#[test]
fn of_one_server_with_a_backlog_and_the_cost_of_a_relay() {
    if !are_wanted() {
        return;
    }
    let Some(mut machines) = Machines::or_skip(&["a", "b"]) else { return };
    let members = Members::start(&machines);
    members.compare(&machines, 5);
    let pid = machines.get("b").relay_pid();
    let (_, before) = cost(pid);
    thread::park_timeout(Duration::from_secs(20));
    let (memory, after) = cost(pid);
    println!("a relay at rest: {memory:.1} MiB, {} ms of processor time in 20 s", after - before);

    machines.get_mut("b").kill_relay();
    let limits = MailLimits { fsync: Fsync::Never, inbox_bytes: 1 << 30, ..MailLimits::default() };
    let unsynced = Bus::new(machines.get("a").dir.clone(), limits, Arc::new(SystemClock));
    let from = AgentName::member("alice").unwrap();
    let before = members.bob.count();
    for _ in 0..BACKLOG {
        unsynced.send(&from, "bob", Outgoing::text("x".repeat(200))).unwrap();
    }
    let start = Instant::now();
    machines.get_mut("b").start_relay();
    assert!(
        wait_until(DEADLINE * 5, || members.bob.count() - before >= BACKLOG.into()),
        "{}",
        members.bob.count()
    );
    let seconds = start.elapsed().as_secs_f64();
    let (memory, _) = cost(machines.get("a").relay_pid());
    println!(
        "a backlog of {BACKLOG} lines: {seconds:.2} s from the start of the other relay, {:.0} lines/s; \
         the relay of the senders has {memory:.1} MiB",
        f64::from(BACKLOG) / seconds
    );
}

#[test]
fn of_a_cluster_of_three_servers() {
    if !are_wanted() {
        return;
    }
    let Some(machines) = Machines::at_cluster_or_skip(&["a", "b"]) else { return };
    Members::start(&machines).compare(&machines, 5);
}

/// The bytes of one host are held for a time each way.
#[test]
fn of_a_host_at_a_distance() {
    if !are_wanted() {
        return;
    }
    let Some(mut machines) = Machines::or_skip(&["a", "b"]) else { return };
    let (hub, server) = (machines.network.hub().clone(), machines.server.address());
    let listener = hub.enter(|| TcpListener::bind((hub.address(), 0)).unwrap());
    let proxy = Proxy::between(listener, move || hub.enter(|| TcpStream::connect(server)));
    let far = machines.get_mut("b");
    far.kill_relay();
    far.use_servers(vec![format!("nats://{}", proxy.address())]);
    far.start_relay();
    let members = Members::start(&machines);
    for each_way in [0, 10, 40] {
        println!("{each_way} ms each way:");
        proxy.set_delay(Duration::from_millis(each_way));
        members.compare(&machines, 2);
    }
}
