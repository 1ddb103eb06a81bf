//! A relay is killed at every step at which that could matter.

use crate::machines::{Machine, Machines};
use crate::traffic::{Place, Traffic, must_be_clean};
use agent_team::bus::Outgoing;
use agent_team::store::failpoint::{POINTS, VARIABLE};
use agent_team::wire::AgentName;
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

pub(crate) const HOSTS: [&str; 2] = ["a", "b"];

pub(crate) const PLACES: [Place; 4] = [("alice", "a"), ("amy", "a"), ("bob", "b"), ("ben", "b")];

/// The steps of a mailbox that its owner passes when mail comes. The others are passed after a kill, or need a file system
/// of another kind.
const OF_THE_MAILBOX: [&str; 14] = [
    "drain.prepared",
    "drain.before_link",
    "drain.linked",
    "drain.renamed",
    "drain.claimed",
    "drain.reading",
    "drain.buried",
    "drain.delivered",
    "drain.dead_synced",
    "drain.synced",
    "drain.marking",
    "drain.marked",
    "drain.before_unlink",
    "drain.unlinked",
];

/// A relay on its way to a failpoint.
pub(crate) struct Armed {
    token: PathBuf,
    /// The number of starts before.
    starts: usize,
}

impl Armed {
    /// Starts the relay again, so that it is killed at the point once. The token is a file that does not exist.
    fn at(machine: &mut Machine, point: &str, token: &Path) -> Self {
        drop(File::create(token).unwrap());
        machine.relay_environment = vec![(VARIABLE.into(), format!("{point}={}", token.display()))];
        machine.kill_relay();
        let starts = starts_of(machine);
        machine.start_relay();
        machine.relay_environment.clear();
        Self { token: token.into(), starts }
    }

    fn is_serving(&self, machine: &Machine) -> bool {
        starts_of(machine) > self.starts
    }

    pub(crate) fn is_killed(&self) -> bool {
        !self.token.exists()
    }
}

/// Returns how often a relay has begun to serve the folder.
fn starts_of(machine: &Machine) -> usize {
    let log = fs::read_to_string(machine.dir.relay_log()).unwrap_or_default();
    log.matches("the relay serves").count()
}

/// A host whose relay sends, and one whose relay gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

impl Way {
    /// Returns the host of the relay that passes a step.
    pub(crate) fn host_at(self, point: &str) -> &'static str {
        if point.starts_with("arrivals.") { self.to } else { self.from }
    }
}

/// Returns the steps of relays at which a kill could matter.
pub(crate) fn steps() -> Vec<&'static str> {
    let relay_points = POINTS
        .into_iter()
        .filter(|point| point.starts_with("outbox.") || point.starts_with("arrivals."));
    OF_THE_MAILBOX.into_iter().chain(relay_points).collect()
}

/// Starts the relay that passes a step again, so that it is killed there once, and has it come there. The traffic is that of
/// `PLACES`.
pub(crate) fn arm(
    point: &str,
    way: Way,
    machines: &mut Machines,
    token: &Path,
    accepted: &dyn Fn() -> usize,
) -> Armed {
    let host = way.host_at(point);
    if point == "arrivals.resolved" {
        // Before, an intent is left in doubt.
        let armed = Armed::at(machines.get_mut(host), "arrivals.appended", token);
        machines.eventually("the relay is killed with an intent", || armed.is_killed());
    }
    let armed = Armed::at(machines.get_mut(host), point, token);
    match point {
        // In the name of a member of the other host: it is refused there.
        "outbox.rejected" => {
            let members: Vec<_> = PLACES.iter().filter(|(_, host)| *host == way.to).collect();
            let [(to, _), (from, _)] = members[..] else { panic!("{members:?}") };
            let from = AgentName::member(from).unwrap();
            machines.get(host).bus().send(&from, to, Outgoing::text("forged")).unwrap();
        }
        // The files are compacted at the end.
        "outbox.compacting" | "outbox.compacted" => {
            // A signal that comes before the relay expects it ends it at once.
            machines.eventually("the relay serves", || armed.is_serving(machines.get(host)));
            let known = accepted();
            machines.eventually("mail is on its way", || accepted() > known + 50);
            machines.get(host).signal_relay(Signal::SIGTERM);
        }
        _ => {}
    }
    armed
}

/// Kills relays once at every step; returns the number of kills. The traffic is that of `PLACES`.
pub(crate) fn kill_at_every_step(machines: &mut Machines, traffic: &Traffic) -> usize {
    steps().into_iter().map(|point| kill_at(point, machines, traffic)).sum()
}

/// Kills a relay at a step; returns the number of kills at steps that this takes.
fn kill_at(point: &str, machines: &mut Machines, traffic: &Traffic) -> usize {
    let way = Way { from: "a", to: "b" };
    let host = way.host_at(point);
    let token = machines.get(host).folder().join("token");
    let armed = arm(point, way, machines, &token, &|| traffic.accepted());
    machines.eventually(&format!("the relay is killed at {point}"), || armed.is_killed());
    let machine = machines.get_mut(host);
    machine.kill_relay();
    machine.start_relay();
    1 + usize::from(point == "arrivals.resolved")
}

#[test]
fn a_relay_is_killed_at_every_step_and_no_mail_is_lost() {
    let Some(mut machines) = Machines::or_skip(&HOSTS) else { return };
    let traffic = Traffic::start(&machines, &PLACES);
    kill_at_every_step(&mut machines, &traffic);
    println!("{}", must_be_clean(&machines, traffic));
}
