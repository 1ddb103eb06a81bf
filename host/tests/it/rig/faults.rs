//! Faults of a run, chosen by a seed.
//!
//! The sequence depends on the seed and the plan alone. The effects do not: the kernel decides what is in flight.

use super::namespaces::Network;
use super::nats_server::NatsServer;
use super::rng::Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    /// The relay of a host is killed, and started at the end.
    KillRelay,
    /// The relay of a host is stopped (SIGSTOP), and goes on at the end.
    StopRelay,
    /// The server is killed, and started at the end.
    KillServer,
    /// At the end, the server is killed and started with its store as it was at the beginning.
    RollBackServer,
    /// The server is killed, and started at the end with an empty store.
    ForgetServer,
    /// A host is cut off both ways.
    Cut,
    /// The network drops everything that a host sends.
    CutOut,
    /// The network drops everything that is sent to a host.
    CutIn,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 8] = [
        Self::KillRelay,
        Self::StopRelay,
        Self::KillServer,
        Self::RollBackServer,
        Self::ForgetServer,
        Self::Cut,
        Self::CutOut,
        Self::CutIn,
    ];

    /// Returns the part that the fault concerns, without a host.
    fn part(self) -> &'static str {
        match self {
            Self::KillRelay | Self::StopRelay => "relay",
            Self::KillServer | Self::RollBackServer | Self::ForgetServer => "server",
            Self::Cut | Self::CutOut | Self::CutIn => "network",
        }
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// The host that the fault concerns, empty for faults of the server.
    pub(crate) host: String,
}

impl Fault {
    /// Returns the part that the fault concerns. At any time, a part has one fault at most, so that the end of one does
    /// not end another.
    fn part(&self) -> (&'static str, &str) {
        (self.kind.part(), &self.host)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.host.is_empty() { "" } else { " " };
        write!(out, "{:?}{separator}{}", self.kind, self.host)
    }
}

/// A moment of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    Begin,
    End,
}

/// A step of a schedule: a fault begins or ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    /// The time since the beginning of the run.
    pub(crate) at: Duration,
    /// The position of the fault in the schedule.
    pub(crate) number: usize,
    pub(crate) moment: Moment,
    pub(crate) fault: Fault,
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = format!("{:?}", self.moment).to_lowercase();
        write!(out, "{} ms: {moment} {}", self.at.as_millis(), self.fault)
    }
}

/// The program of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// The kinds to choose from. A kind that is listed twice is chosen twice as often.
    pub(crate) kinds: &'a [FaultKind],
    pub(crate) hosts: &'a [&'a str],
    /// The time until the last fault has ended.
    pub(crate) total: Duration,
    /// The shortest and the longest time between the beginnings of two faults.
    pub(crate) pause: (Duration, Duration),
    /// The shortest and the longest duration of a fault.
    pub(crate) length: (Duration, Duration),
}

/// The receiver of a schedule's steps.
pub(crate) trait FaultTarget {
    fn begin(&mut self, fault: &Fault);
    fn end(&mut self, fault: &Fault);
}

/// A sequence of faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    steps: Vec<Step>,
}

impl Schedule {
    /// Chooses the faults of a plan.
    pub(crate) fn new(seed: u64, plan: &Plan<'_>) -> Self {
        let mut rng = Rng::new(seed);
        let mut steps = Vec::new();
        let mut busy: BTreeMap<(&'static str, String), Duration> = BTreeMap::new();
        let mut at = Duration::ZERO;
        for number in 0.. {
            at += rng.between(plan.pause.0, plan.pause.1);
            let length = rng.between(plan.length.0, plan.length.1);
            let kind = *plan.kinds.get(rng.index(plan.kinds.len())).unwrap();
            let host = *plan.hosts.get(rng.index(plan.hosts.len())).unwrap();
            let host = if kind.part() == "server" { "" } else { host };
            let fault = Fault { kind, host: host.to_owned() };
            let (part, host) = fault.part();
            let free = busy.entry((part, host.to_owned())).or_default();
            let begin = at.max(*free);
            let end = begin + length;
            if end > plan.total {
                break;
            }
            *free = end + Duration::from_millis(1);
            let step = |at, moment| Step { at, number, moment, fault: fault.clone() };
            steps.extend([step(begin, Moment::Begin), step(end, Moment::End)]);
        }
        steps.sort();
        Self { steps }
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Applies the steps at their times. A step that takes longer than planned delays the next ones; none is left out.
    pub(crate) fn run(&self, target: &mut impl FaultTarget) {
        let start = Instant::now();
        for step in &self.steps {
            while let Some(rest) = step.at.checked_sub(start.elapsed()).filter(|it| !it.is_zero()) {
                std::thread::park_timeout(rest);
            }
            match step.moment {
                Moment::Begin => target.begin(&step.fault),
                Moment::End => target.end(&step.fault),
            }
        }
    }

    /// Returns the steps, one per line.
    pub(crate) fn text(&self) -> String {
        self.steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

/// Applies a fault of the network or of the server, for targets with both. Returns `false` for faults of relays, which
/// belong to the caller.
pub(crate) fn apply(
    fault: &Fault,
    moment: Moment,
    network: &Network,
    server: &mut NatsServer,
) -> bool {
    use FaultKind::{
        Cut, CutIn, CutOut, ForgetServer, KillRelay, KillServer, RollBackServer, StopRelay,
    };
    match (fault.kind, moment) {
        (KillRelay | StopRelay, _) => return false,
        (KillServer | ForgetServer, Moment::Begin) => server.kill(),
        (KillServer, Moment::End) => server.restart(),
        (ForgetServer, Moment::End) => server.forget_everything(),
        (RollBackServer, Moment::Begin) => server.snapshot(),
        (RollBackServer, Moment::End) => server.roll_back(),
        (Cut, Moment::Begin) => network.cut(&fault.host),
        (CutOut, Moment::Begin) => network.cut_out(&fault.host),
        (CutIn, Moment::Begin) => network.cut_in(&fault.host),
        (Cut | CutOut | CutIn, Moment::End) => network.heal(&fault.host),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const MS: Duration = Duration::from_millis(1);

    fn plan(kinds: &[FaultKind], total_ms: u32) -> Plan<'_> {
        let (pause, length) = ((MS * 10, MS * 60), (MS * 5, MS * 200));
        Plan { kinds, hosts: &["a", "b", "c"], total: MS * total_ms, pause, length }
    }

    #[derive(Default)]
    struct Recorder(Vec<(Moment, Fault)>);

    impl FaultTarget for Recorder {
        fn begin(&mut self, fault: &Fault) {
            self.0.push((Moment::Begin, fault.clone()));
        }

        fn end(&mut self, fault: &Fault) {
            self.0.push((Moment::End, fault.clone()));
        }
    }

    #[test]
    fn a_seed_has_one_sequence() {
        let plan = plan(&FaultKind::ALL, 10_000);
        let first = Schedule::new(7, &plan);
        assert_eq!(first, Schedule::new(7, &plan));
        assert_ne!(first, Schedule::new(8, &plan));
        let kinds: BTreeSet<_> = first.steps().iter().map(|step| step.fault.kind).collect();
        assert_eq!(kinds, BTreeSet::from(FaultKind::ALL), "{}", first.text());
        let hosts: BTreeSet<_> = first.steps().iter().map(|it| it.fault.host.as_str()).collect();
        assert_eq!(hosts, BTreeSet::from(["", "a", "b", "c"]));
        assert!(first.steps().iter().all(|step| step.at <= plan.total));
    }

    #[test]
    fn a_part_has_one_fault_at_a_time_and_each_fault_ends() {
        for seed in 0..200 {
            let schedule = Schedule::new(seed, &plan(&FaultKind::ALL, 3000));
            let mut open = BTreeSet::new();
            assert!(schedule.steps().len() > 20);
            for step in schedule.steps() {
                let changed = match step.moment {
                    Moment::Begin => open.insert(step.fault.part()),
                    Moment::End => open.remove(&step.fault.part()),
                };
                assert!(changed, "seed {seed}: {step}\n{}", schedule.text());
            }
            assert!(open.is_empty(), "seed {seed}: {open:?}");
        }
    }

    #[test]
    fn a_run_applies_all_steps_in_their_order_and_at_their_times() {
        let schedule = Schedule::new(3, &plan(&[FaultKind::Cut, FaultKind::KillRelay], 500));
        let mut recorder = Recorder::default();
        let start = Instant::now();
        schedule.run(&mut recorder);
        assert!(start.elapsed() >= schedule.steps().last().unwrap().at);
        let planned: Vec<_> =
            schedule.steps().iter().map(|step| (step.moment, step.fault.clone())).collect();
        assert_eq!(recorder.0, planned);
        assert!(!planned.is_empty());
    }

    #[test]
    fn a_step_is_readable() {
        let fault = Fault { kind: FaultKind::CutOut, host: "a".into() };
        let step = Step { at: MS * 12, number: 0, moment: Moment::Begin, fault };
        assert_eq!(step.to_string(), "12 ms: begin CutOut a");
    }
}
