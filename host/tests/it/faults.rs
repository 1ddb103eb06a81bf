//! Kills, partitions, and a server that forgets, in the midst of mail: nothing is lost, nothing comes twice or out of order.

use crate::machines::{DEADLINE, Machines, SERVERS, variable};
use crate::rig::faults::{self, Fault, FaultKind, FaultTarget, Moment, Plan, Schedule};
use crate::rig::judge::Report;
use crate::skips::skipped;
use crate::traffic::{Place, Traffic, must_be_clean_within};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::time::Duration;

const PLACES: [Place; 6] =
    [("alice", "a"), ("amy", "a"), ("bob", "b"), ("ben", "b"), ("carol", "c"), ("cleo", "c")];

pub(crate) const HOSTS: [&str; 3] = ["a", "b", "c"];

/// The machines while faults act on them.
struct Victims {
    machines: Machines,
    counts: BTreeMap<FaultKind, u64>,
    /// The number of faults of servers so far. Those of a cluster take turns.
    turn: usize,
}

impl Victims {
    fn new(machines: Machines) -> Self {
        Self { machines, counts: BTreeMap::new(), turn: 0 }
    }

    /// Applies a fault of a server or the network; returns whether it is one.
    fn apply(&mut self, fault: &Fault, moment: Moment) -> bool {
        let Machines { network, server, further_servers, .. } = &mut self.machines;
        if further_servers.is_empty() || !fault.host.is_empty() {
            return faults::apply(fault, moment, network, server);
        }
        self.turn += usize::from(moment == Moment::Begin);
        let mut servers: Vec<_> = std::iter::once(server).chain(further_servers).collect();
        let count = servers.len();
        // Without two of three, the third one stores nothing.
        for victim in 0..=usize::from(self.turn.is_multiple_of(2)) {
            faults::apply(fault, moment, network, servers[(self.turn + victim) % count]);
        }
        true
    }
}

impl FaultTarget for Victims {
    fn begin(&mut self, fault: &Fault) {
        *self.counts.entry(fault.kind).or_default() += 1;
        if self.apply(fault, Moment::Begin) {
            return;
        }
        let machine = self.machines.get_mut(&fault.host);
        if fault.kind == FaultKind::StopRelay {
            machine.signal_relay(Signal::SIGSTOP);
        } else {
            machine.kill_relay();
        }
    }

    fn end(&mut self, fault: &Fault) {
        if self.apply(fault, Moment::End) {
            return;
        }
        let machine = self.machines.get_mut(&fault.host);
        if fault.kind == FaultKind::StopRelay {
            machine.signal_relay(Signal::SIGCONT);
        } else {
            machine.start_relay();
        }
    }
}

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    pub(crate) counts: BTreeMap<FaultKind, u64>,
}

/// Runs the faults of a plan, in the midst of mail, after a change of the machines. A kind that this kernel cannot make is left out.
fn act(
    mut machines: Machines,
    change: impl FnOnce(&mut Machines),
    seed: u64,
    plan: Plan<'_>,
) -> (Victims, Traffic) {
    let is_possible = |kind: &FaultKind| {
        !matches!(kind, FaultKind::CutIn | FaultKind::CutOut)
            || machines.network.one_way_missing().is_none()
    };
    let kinds: Vec<_> = plan.kinds.iter().copied().filter(is_possible).collect();
    let schedule = Schedule::new(seed, &Plan { kinds: &kinds, ..plan });
    let mut traffic = Traffic::quiet(&machines, &PLACES);
    change(&mut machines);
    traffic.begin(&machines);
    // A disk that is busy may take longer than all of the faults.
    machines.eventually("mail is accepted", || traffic.accepted() > 0);
    let mut victims = Victims::new(machines);
    schedule.run(&mut victims);
    (victims, traffic)
}

/// Runs the faults of a plan on changed machines, by which mail may be lost; waits so long for what is on its way.
pub(crate) fn try_out(
    machines: Machines,
    change: impl FnOnce(&mut Machines),
    plan: Plan<'_>,
    within: Duration,
) -> Report {
    let (_victims, traffic) = act(machines, change, 7, plan);
    traffic.finish(within)
}

/// Runs the faults of a plan, in the midst of mail of which nothing may be lost.
pub(crate) fn torture(machines: Machines, seed: u64, plan: Plan<'_>) -> Outcome {
    let (victims, traffic) = act(machines, |_| (), seed, plan);
    let (accepted, refused) = (traffic.accepted(), traffic.refused());
    // Mail that has waited for ten minutes is not caught up with in one.
    let within = DEADLINE.max(plan.length.1 / 2);
    let report = must_be_clean_within(&victims.machines, traffic, within);
    assert_eq!(refused, 0, "a send to a member of another host was refused");
    assert!(report.accepted >= accepted, "{accepted} accepted: {report}");
    Outcome { report, counts: victims.counts }
}

/// Runs faults of some kinds, for a short time in the suite, as told for a long run.
fn run(machines: Machines, kinds: &[FaultKind], hosts: &[&str]) {
    let number = |name: &str| variable(name).map(|text| text.parse().unwrap());
    let seed = number("TEAM_MACHINES_SEED").unwrap_or(7);
    let plan = Plan {
        kinds,
        hosts,
        total: Duration::from_secs(number("TEAM_MACHINES_SECONDS").unwrap_or(8)),
        pause: (Duration::from_millis(50), Duration::from_millis(700)),
        length: (Duration::from_millis(100), Duration::from_millis(2500)),
    };
    let Outcome { report, counts } = torture(machines, seed, plan);
    println!("seed {seed}: {report}; faults: {counts:?}");
}

fn check(kinds: &[FaultKind]) {
    let Some(machines) = Machines::or_skip(&HOSTS) else { return };
    run(machines, kinds, &HOSTS);
}

#[test]
fn no_mail_is_lost_by_kills_and_stops_of_relays() {
    check(&[FaultKind::KillRelay, FaultKind::KillRelay, FaultKind::StopRelay]);
}

#[test]
fn no_mail_is_lost_by_a_server_that_is_killed_rolled_back_or_emptied() {
    check(&[FaultKind::KillServer, FaultKind::RollBackServer, FaultKind::ForgetServer]);
}

#[test]
fn no_mail_is_lost_by_partitions_both_ways_and_one_way() {
    check(&[FaultKind::Cut, FaultKind::CutOut, FaultKind::CutIn]);
}

#[test]
fn no_mail_is_lost_by_all_faults_at_once() {
    check(&FaultKind::ALL);
}

/// The same for a cluster, only with `TEAM_MACHINES_CLUSTER=1`: after a fault, it may be without a leader for long.
fn check_cluster(kinds: &[FaultKind]) {
    if variable("TEAM_MACHINES_CLUSTER").is_none() {
        skipped("faults of a cluster are tried by scripts/torture --machines --cluster");
        return;
    }
    let Some(machines) = Machines::at_cluster_or_skip(&HOSTS) else { return };
    run(machines, kinds, &[&HOSTS[..], &SERVERS].concat());
}

#[test]
fn no_mail_is_lost_by_a_cluster_whose_servers_are_killed_or_cut_off() {
    check_cluster(&[
        FaultKind::KillServer,
        FaultKind::KillServer,
        FaultKind::Cut,
        FaultKind::CutOut,
        FaultKind::CutIn,
    ]);
}

#[test]
fn no_mail_is_lost_by_a_cluster_whose_servers_are_put_back_or_emptied() {
    check_cluster(&[
        FaultKind::KillServer,
        FaultKind::RollBackServer,
        FaultKind::ForgetServer,
        FaultKind::Cut,
    ]);
}
