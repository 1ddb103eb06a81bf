//! A roster of thousands of members on dozens of hosts: `TEAM_MACHINES_HOSTS`, and `TEAM_MACHINES_MEMBERS` on each.

use super::{are_wanted, cost};
use crate::machines::{DEADLINE, Machine, Machines, variable};
use crate::rig::process::wait_until;
use agent_team::store::{Fsync, roster};
use agent_team::wire::AgentName;
use agent_team::wire::roster::Status;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// The host that joins when all the others are there.
const LATE: &str = "late";

/// The duration of the status changes, and the pause between two of them.
const CHANGES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(10));

pub(super) fn number(name: &str, default: usize) -> usize {
    variable(name).map_or(default, |text| text.parse().unwrap())
}

/// Returns the number of members on the roster of a host. The file is not parsed: a host with ten thousand would do little else.
pub(super) fn known(machine: &Machine) -> usize {
    let text = fs::read_to_string(machine.dir.config()).unwrap_or_default();
    text.matches("\"name\":").count()
}

/// Returns an item for which a condition does not hold yet. Those for which it holds are not asked again.
pub(super) fn first_fails<T>(left: &mut Vec<T>, holds: impl Fn(&T) -> bool) -> Option<&T> {
    while left.last().is_some_and(&holds) {
        left.pop();
    }
    left.last()
}

/// The median of five runs of `team` with these arguments, in ms.
pub(super) fn time_of(machine: &Machine, args: &[&str]) -> f64 {
    let mut times: Vec<_> = (0..5)
        .map(|_| {
            let start = Instant::now();
            machine.team_ok(args);
            start.elapsed()
        })
        .collect();
    times.sort();
    times[2].as_secs_f64() * 1000.0
}

pub(super) fn has_broadcast(machine: &Machine, name: &AgentName, text: &str) -> bool {
    fs::read_to_string(machine.dir.inbox(name)).is_ok_and(|mail| mail.contains(text))
}

#[test]
fn of_a_large_roster() {
    if !are_wanted() {
        return;
    }
    let (hosts, each) = (number("TEAM_MACHINES_HOSTS", 10), number("TEAM_MACHINES_MEMBERS", 100));
    let names: Vec<_> = (1..=hosts).map(|at| format!("h{at}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).chain([LATE]).collect();
    let Some(mut machines) = Machines::or_skip(&names) else { return };
    machines.get_mut(LATE).kill_relay();
    println!("{hosts} hosts with {each} members each");

    let start = Instant::now();
    let lives: Vec<_> = machines.all[..hosts].iter().map(|it| it.play_members(each)).collect();
    println!("members entered: {:.2} s", start.elapsed().as_secs_f64());
    let all = hosts * each;
    let mut left: Vec<_> = machines.all[..hosts].iter().collect();
    let is_known = || first_fails(&mut left, |machine| known(machine) == all).is_none();
    if !wait_until(DEADLINE * 10, is_known) {
        let counts: Vec<_> = machines.all.iter().map(known).collect();
        panic!("members known on each host: {counts:?}\n{}", machines.all[0].describe());
    }
    println!("all known on all hosts: {:.2} s", start.elapsed().as_secs_f64());

    let start = Instant::now();
    machines.get_mut(LATE).start_relay();
    machines.eventually("the late host knows all", || known(machines.get(LATE)) == all);
    println!("a host that joins knows all: {:.2} s", start.elapsed().as_secs_f64());

    let first = &machines.all[0];
    let size = fs::metadata(first.dir.config()).unwrap().len();
    println!("config.json: {} kB", size / 1000);
    println!("team ls: {:.0} ms", time_of(first, &["ls"]));
    println!("team send: {:.0} ms to another host", time_of(first, &["send", "h2-m0", "x"]));
    println!("team send: {:.0} ms to the same host", time_of(first, &["send", "h1-m0", "x"]));

    let start = Instant::now();
    first.team_ok(&["broadcast", "hello"]);
    println!("team broadcast: {:.2} s", start.elapsed().as_secs_f64());
    let owners = machines.all.iter().zip(&lives);
    let mut left: Vec<_> =
        owners.flat_map(|(machine, lives)| lives.iter().map(move |life| (machine, life))).collect();
    machines.eventually("all have the broadcast", || {
        first_fails(&mut left, |(machine, life)| has_broadcast(machine, life.name(), "hello"))
            .is_none()
    });
    println!("the broadcast is in all inboxes: {:.2} s", start.elapsed().as_secs_f64());

    let (watched, begin) = (&machines.all[1], Instant::now());
    let (_, busy) = cost(watched.relay_pid());
    let (mut changes, mut files) = (0, std::collections::BTreeSet::new());
    while begin.elapsed() < CHANGES.0 {
        let status = if changes % 2 == 0 { Status::Working } else { Status::Idle };
        roster::update(&first.dir, Fsync::Never, |roster| {
            roster.enter("h1-m0", 1.0).status = status;
        })
        .unwrap();
        changes += 1;
        files.insert(fs::metadata(watched.dir.config()).unwrap().ino());
        thread::park_timeout(CHANGES.1);
    }
    let (memory, busy_after) = cost(watched.relay_pid());
    println!(
        "{changes} changes of a status in {:.1} s: another host wrote its config.json {} times; its relay took {} ms of \
         processor time, and has {memory:.1} MiB",
        begin.elapsed().as_secs_f64(),
        files.len(),
        busy_after - busy
    );
}
