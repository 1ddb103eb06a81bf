//! Faults in the numbers that docs/machines.md promises: hours of machine time. Only with `TEAM_MACHINES_FULL=1`.

use crate::disk::KINDS;
use crate::failpoints::{Way, steps};
use crate::faults::{self, Outcome, torture};
use crate::machines::{Machines, variable};
use crate::power_cuts::Site;
use crate::rig::faults::{FaultKind, Plan};
use crate::rig::judge::Report;
use crate::rig::rng::Rng;
use crate::skips::skipped;
use crate::traffic::{Traffic, must_be_clean};
use crate::{failpoints, names, orders};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

const fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// The time of a round, after which the hosts begin anew: the judge keeps every message in memory.
const ROUND: Duration = Duration::from_secs(120);

/// The passes over all steps before the hosts begin anew.
const PASSES: usize = 10;

/// The sum of all rounds of a test.
#[derive(Debug, Default)]
struct Totals {
    accepted: usize,
    faults: BTreeMap<String, u64>,
}

impl Totals {
    /// Adds a round, which was without fault, and prints the sum.
    fn add(&mut self, report: &Report, faults: impl IntoIterator<Item = (String, u64)>) {
        self.accepted += report.accepted;
        for (kind, count) in faults {
            *self.faults.entry(kind).or_default() += count;
        }
        println!("{} accepted, 0 lost, 0 twice, 0 out of order: {:?}", self.accepted, self.faults);
    }

    fn count(&self, kinds: &[FaultKind]) -> u64 {
        kinds.iter().filter_map(|kind| self.faults.get(&format!("{kind:?}"))).sum()
    }
}

/// Whether the full lengths were asked for; if not, that is noted as a skip.
fn are_wanted() -> bool {
    let are_wanted = variable("TEAM_MACHINES_FULL").is_some();
    if !are_wanted {
        skipped("the full lengths are run by scripts/torture --machines --full");
    }
    are_wanted
}

/// Runs rounds of faults until there were so many of these kinds.
fn run_until(
    wanted: u64,
    totals: &mut Totals,
    (pause, length): ((Duration, Duration), (Duration, Duration)),
    kinds: &[FaultKind],
) {
    let end = totals.count(kinds) + wanted;
    while totals.count(kinds) < end {
        let Some(machines) = Machines::or_skip(&faults::HOSTS) else { return };
        let total = ROUND.max(length.1 + pause.1);
        let plan = Plan { kinds, hosts: &faults::HOSTS, total, pause, length };
        let Outcome { report, counts } = torture(machines, totals.count(kinds), plan);
        totals.add(&report, counts.into_iter().map(|(kind, count)| (format!("{kind:?}"), count)));
    }
}

#[test]
fn relays_are_killed_ten_thousand_times_at_every_step() {
    let (mut totals, mut kills) = (Totals::default(), 0);
    let wanted = if are_wanted() { 10_000 } else { 0 };
    while kills < wanted {
        let Some(mut machines) = Machines::or_skip(&failpoints::HOSTS) else { return };
        let traffic = Traffic::start(&machines, &failpoints::PLACES);
        let mut pass = || failpoints::kill_at_every_step(&mut machines, &traffic);
        let killed = (0..PASSES).map(|_| pass()).sum::<usize>() as u64;
        totals.add(&must_be_clean(&machines, traffic), [("kills at steps".into(), killed)]);
        kills += killed;
    }
}

#[test]
fn the_server_is_killed_a_thousand_times() {
    if are_wanted() {
        let times = ((ms(100), ms(500)), (ms(50), ms(300)));
        run_until(1000, &mut Totals::default(), times, &[FaultKind::KillServer]);
    }
}

#[test]
fn the_store_of_the_server_is_rolled_back_500_times_and_emptied_100_times() {
    if are_wanted() {
        let mut totals = Totals::default();
        let times = ((ms(200), ms(900)), (ms(100), ms(900)));
        run_until(500, &mut totals, times, &[FaultKind::RollBackServer]);
        run_until(100, &mut totals, times, &[FaultKind::ForgetServer]);
    }
}

const CUTS: [FaultKind; 3] = [FaultKind::Cut, FaultKind::CutOut, FaultKind::CutIn];

#[test]
fn hosts_are_cut_off_500_times_for_half_a_second_to_a_minute() {
    if are_wanted() {
        let mut totals = Totals::default();
        run_until(420, &mut totals, ((ms(50), ms(700)), (ms(500), ms(3000))), &CUTS);
        run_until(80, &mut totals, ((ms(50), ms(2000)), (ms(3000), ms(60_000))), &CUTS);
    }
}

#[test]
fn a_host_is_cut_off_for_ten_minutes() {
    if are_wanted() {
        let times = ((ms(50), ms(1000)), (ms(590_000), ms(600_000)));
        run_until(1, &mut Totals::default(), times, &CUTS);
    }
}

/// The default of `lead_away`.
#[test]
fn a_lead_is_not_heard_for_ten_minutes() {
    if are_wanted() {
        orders::unheard_lead(None);
    }
}

/// Four teams at once: most of the time is spent on missing a host.
#[test]
fn an_agent_is_placed_anew_200_times_during_a_partition() {
    if are_wanted() {
        let teams: Vec<_> =
            (0..4).map(|_| thread::spawn(|| names::replace_again_and_again(50))).collect();
        let mut ends: Vec<Duration> =
            teams.into_iter().flat_map(|team| team.join().unwrap()).collect();
        ends.sort();
        let (median, longest) = (ends[ends.len() / 2], ends.last().unwrap());
        println!("{}: ended {median:?} after healing, at most {longest:?}", ends.len());
    }
}

/// The passes over all steps of the relays of both hosts, on each file system.
const POWER_PASSES: usize = 5;

/// The rounds of power cuts at random moments, on each file system, and the cuts of one.
const RANDOM_ROUNDS: u64 = 4;
const CUTS_OF_A_ROUND: usize = 30;

#[test]
fn power_is_cut_at_every_step_and_at_random_on_three_file_systems() {
    if !are_wanted() {
        return;
    }
    let seed = variable("TEAM_MACHINES_SEED").map_or(1, |seed| seed.parse().unwrap());
    let [there, back] = [Way { from: "a", to: "b" }, Way { from: "b", to: "a" }];
    // For a part of it: the name of a file system.
    let wanted = variable("TEAM_MACHINES_DISK");
    for kind in KINDS.into_iter().filter(|it| wanted.as_ref().is_none_or(|name| name == it.name)) {
        let mut totals = Totals::default();
        let mut add = |site: &mut Site, how: &str, count: usize| {
            let report = site.must_be_clean();
            let all = ("hosts without power".to_owned(), site.cuts as u64);
            totals.add(&report, [(format!("{} {how}", kind.name), count as u64), all]);
        };
        for way in [there, back].repeat(POWER_PASSES) {
            let Some(mut site) = Site::or_skip(kind, |_| ()) else { return };
            let count = site.cut_at_steps(&steps(), way);
            add(&mut site, "at steps", count);
        }
        for round in 0..RANDOM_ROUNDS {
            let Some(mut site) = Site::or_skip(kind, |_| ()) else { return };
            site.cut_at_random(&mut Rng::new(seed + round), CUTS_OF_A_ROUND);
            add(&mut site, "at random", CUTS_OF_A_ROUND);
        }
    }
}
