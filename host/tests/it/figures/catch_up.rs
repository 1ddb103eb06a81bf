//! The time until a host has what was sent to it in a partition, and what the other hosts notice of it.

use super::{Counter, are_wanted, latency};
use crate::machines::Machines;
use agent_team::bus::Outgoing;
use agent_team::wire::AgentName;
use std::thread;
use std::time::{Duration, Instant};

/// The lines that wait for the host.
const LINES: u64 = 1000;

/// The time between the last line and the end of the partition.
const WAITED: Duration = Duration::from_secs(10);

#[test]
fn of_a_host_that_was_cut_off() {
    if !are_wanted() {
        return;
    }
    let Some(machines) = Machines::or_skip(&["a", "b", "c"]) else { return };
    let (a, alice) = (machines.get("a"), AgentName::member("alice").unwrap());
    let _alice = Counter::start(a, "alice");
    let [bob, carol] =
        [("b", "bob"), ("c", "carol")].map(|(host, name)| Counter::start(machines.get(host), name));
    machines.wait_known("bob", true);
    machines.wait_known("carol", true);
    let bus = a.bus();
    for round in 1..=5 {
        let (before, before_99) = latency(&bus, "carol", &carol);
        let had = bob.count();
        machines.network.cut("b");
        for _ in 0..LINES {
            bus.send(&alice, "bob", Outgoing::text("x".repeat(200))).unwrap();
        }
        let (during, during_99) = latency(&bus, "carol", &carol);
        thread::park_timeout(WAITED);
        assert_eq!(bob.count(), had, "the host was not cut off");
        let healed = Instant::now();
        machines.network.heal("b");
        machines.eventually("the host has caught up", || bob.count() == had + LINES);
        println!(
            "round {round}: caught up {:.2} s after the end of the partition; from the first to the third host p50 \
             {before:.2} ms, p99 {before_99:.2}; while the second one was cut off {during:.2} and {during_99:.2}",
            healed.elapsed().as_secs_f64()
        );
    }
}
