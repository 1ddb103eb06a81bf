//! Power cuts of hosts, in the midst of mail. Each host has its folder on a disk of its own.
//!
//! A cut stops every process that writes to the disk, copies its image, and kills the processes; then the copy takes the place of
//! the disk. So the host goes on from what was durable, and the other one from what it knows. A cut in the midst of a sync is
//! not possible this way.
//!
//! The judge reads the transcripts as they are on the disks at the end. What was on a disk before a cut, and was not durable,
//! does not count.

use crate::disk::{Disk, DiskKind, KINDS};
use crate::failpoints::{HOSTS, PLACES, Way, arm};
use crate::machines::{DEADLINE, Machine, Machines};
use crate::member_process::{MemberOrders, accepted_log, copies_log, enough, start};
use crate::rig::files::temporary_folder;
use crate::rig::judge::{Mail, Report, judge, parse_log};
use crate::rig::no_syncs::without_syncs;
use crate::rig::process::{stop, wait_until};
use crate::rig::rng::Rng;
use crate::skips::skipped;
use crate::traffic::{mail_of, torn_lines};
use agent_team::store::TeamDir;
use agent_team::store::relay::known_hosts;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::park_timeout;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const FROM_A_TO_B: Way = Way { from: "a", to: "b" };

/// The time for which members may have nothing new at the end, without a copy that is late.
const QUIET: Duration = Duration::from_millis(500);

/// Two hosts with members that are processes, each host with a disk of its own.
pub(crate) struct Site {
    /// By name. The drop kills them.
    members: BTreeMap<&'static str, Child>,
    /// By host, each with its image. Unmounted before the folders of the machines are removed.
    disks: BTreeMap<&'static str, (Disk, PathBuf)>,
    kind: DiskKind,
    machines: Machines,
    images: TempDir,
    logs: TempDir,
    /// The number of power cuts of hosts so far.
    pub(crate) cuts: usize,
}

impl Drop for Site {
    fn drop(&mut self) {
        for member in self.members.values_mut() {
            kill(member);
        }
        self.machines.all.iter_mut().for_each(Machine::kill_relay);
    }
}

fn kill(member: &mut Child) {
    member.kill().unwrap();
    member.wait().unwrap();
}

impl Site {
    /// Creates the hosts and starts the members. Returns `None` where this is not possible, which is noted as a skip.
    pub(crate) fn or_skip(kind: DiskKind, prepare: impl FnOnce(&mut Machines)) -> Option<Self> {
        let images = temporary_folder();
        let (mut folders, mut disks) = (Vec::new(), BTreeMap::new());
        for host in HOSTS {
            let folder = temporary_folder();
            let image = image(&images, host, 0);
            match Disk::make(kind, &image, folder.path()) {
                Ok(disk) => drop(disks.insert(host, (disk, image))),
                Err(why) => {
                    skipped(&format!("no power is cut on {}: {why}", kind.name));
                    return None;
                }
            }
            folders.push(folder);
        }
        let mut folders = folders.into_iter();
        let machines = Machines::in_folders_or_skip(&HOSTS, || folders.next().unwrap())?;
        let (members, logs, cuts) = (BTreeMap::new(), temporary_folder(), 0);
        let mut site = Self { members, disks, kind, machines, images, logs, cuts };
        prepare(&mut site.machines);
        for (member, host) in PLACES {
            site.machines.get(host).add_member(member);
        }
        for host in HOSTS {
            site.start_members(host);
        }
        for (member, _) in PLACES {
            site.machines.wait_known(member, true);
        }
        site.wait_for_mail();
        // The entries of members, which the test has made, must be durable.
        for machine in &site.machines.all {
            nix::unistd::syncfs(File::open(machine.folder()).unwrap()).unwrap();
        }
        Some(site)
    }

    /// Starts the members of a host, with numbers that were not used.
    fn start_members(&mut self, host: &str) {
        for (name, _) in PLACES.iter().filter(|(_, home)| *home == host) {
            let to = PLACES.iter().filter(|(_, home)| *home != host);
            // The next number may have been used without a word in the log.
            let last = logged(&accepted_log(self.logs.path(), name));
            let last = last.iter().map(|mail| mail.number).max().unwrap_or_default();
            let orders = MemberOrders {
                team: self.machines.get(host).folder().join(".team"),
                name: (*name).into(),
                to: to.map(|(to, _)| (*to).to_owned()).collect(),
                first: last + 2,
                logs: self.logs.path().into(),
            };
            drop(self.members.insert(name, start(&orders)));
        }
    }

    fn accepted(&self) -> Vec<Mail> {
        accepted_in(self.logs.path())
    }

    /// Returns what stands in the transcripts, in their order, and then the copies that were dropped.
    fn arrived(&self) -> Vec<Mail> {
        let mut arrived = Vec::new();
        for (name, host) in PLACES {
            let mail = self.machines.get(host).mail_of(name);
            arrived.extend(mail.iter().filter_map(|mail| mail_of(mail["id"].as_str()?)));
            arrived.extend(logged(&copies_log(self.logs.path(), name)));
        }
        arrived
    }

    /// Waits until more messages were accepted.
    fn wait_for_mail(&self) {
        let known = self.accepted().len();
        self.machines.eventually("mail is accepted", || self.accepted().len() > known + 5);
    }

    /// Returns what is known of a host and of the members, for a failure.
    fn describe(&self, host: &str) -> String {
        let said = PLACES.iter().map(|(name, _)| {
            fs::read_to_string(self.logs.path().join(format!("{name}.err"))).unwrap_or_default()
        });
        format!("{}\n{}", self.machines.get(host).describe(), said.collect::<String>())
    }

    fn stop_members(&mut self, host: &str) {
        for (name, _) in PLACES.iter().filter(|(_, home)| *home == host) {
            let stands = stop(&self.members[name], DEADLINE);
            let ended = self.members.get_mut(name).unwrap().try_wait().unwrap();
            let is_fine = stands && ended.is_none();
            assert!(is_fine, "{name} does not stop, {ended:?}\n{}", self.describe(host));
        }
    }

    /// Cuts the power of hosts, at one moment, and has them go on from what is on their disks.
    pub(crate) fn cut(&mut self, hosts: &[&'static str]) {
        for host in hosts {
            self.machines.get(host).stop_relay();
            self.stop_members(host);
        }
        self.cuts += hosts.len();
        let copies: Vec<_> =
            hosts.iter().map(|host| image(&self.images, host, self.cuts)).collect();
        for (host, copy) in hosts.iter().zip(&copies) {
            // The kernel may just be writing.
            let is_copied = wait_until(DEADLINE, || self.disks[host].0.copy(copy));
            assert!(is_copied, "the disk of {host} does not come to rest");
        }
        for (host, copy) in hosts.iter().zip(&copies) {
            for (name, _) in PLACES.iter().filter(|(_, home)| home == host) {
                kill(self.members.get_mut(name).unwrap());
            }
            let machine = self.machines.get_mut(host);
            machine.kill_relay();
            let (disk, old) = self.disks.remove(host).unwrap();
            drop(disk);
            fs::remove_file(old).unwrap();
            let disk = Disk::mount(self.kind, copy, machine.folder()).unwrap();
            machine.dir = TeamDir::open(&disk.at().join(".team")).unwrap();
            self.disks.insert(host, (disk, copy.clone()));
        }
        for host in hosts {
            self.check_files(self.machines.get(host));
        }
        for host in hosts {
            self.start_members(host);
            self.machines.get_mut(host).start_relay();
        }
    }

    /// Checks that a power cut has left no file of a relay that cannot be read, unless the relay syncs nothing.
    fn check_files(&self, machine: &Machine) {
        if machine.prepare_relay.is_none() {
            let (kind, host, known) = (self.kind.name, &machine.name, known_hosts(&machine.dir));
            let is_known = known.as_ref().is_ok_and(|known| !known.is_empty());
            assert!(is_known, "{host}, with a disk of {kind}, knows {known:?}");
        }
    }

    /// Cuts the power of a host at the moment at which its relay passes a step.
    fn cut_at(&mut self, point: &str, way: Way) {
        let token = self.logs.path().join("token");
        let accepted = || accepted_in(self.logs.path()).len();
        let armed = arm(point, way, &mut self.machines, &token, &accepted);
        let host = way.host_at(point);
        let begin = Instant::now();
        while !armed.is_killed() {
            let is_late = begin.elapsed() > DEADLINE;
            assert!(!is_late, "the relay is not killed at {point}\n{}", self.describe(host));
            park_timeout(Duration::from_micros(200));
        }
        // Before what others write and sync makes durable what the relay has written.
        self.stop_members(host);
        self.machines.get_mut(host).kill_relay();
        self.cut(&[host]);
    }

    /// Cuts the power at each of these steps; returns the number of them.
    pub(crate) fn cut_at_steps(&mut self, points: &[&str], way: Way) -> usize {
        for point in points {
            self.cut_at(point, way);
        }
        points.len()
    }

    /// Cuts the power of one host or of both, at a random moment so many times. In between, relays are killed.
    pub(crate) fn cut_at_random(&mut self, rng: &mut Rng, times: usize) {
        for _ in 0..times {
            park_timeout(rng.between(Duration::from_millis(20), Duration::from_millis(1500)));
            let host = HOSTS[rng.index(HOSTS.len())];
            if rng.below(4) == 0 {
                let machine = self.machines.get_mut(host);
                machine.kill_relay();
                machine.start_relay();
                park_timeout(rng.between(Duration::ZERO, Duration::from_millis(600)));
            }
            if rng.below(5) == 0 { self.cut(&HOSTS) } else { self.cut(&[host]) }
        }
    }

    /// Ends the senders and cuts the power of all hosts once more. Then waits until all that was accepted has arrived or the
    /// time is over, and judges.
    pub(crate) fn finish(&mut self, within: Duration) -> Report {
        drop(File::create(enough(self.logs.path())).unwrap());
        self.cut(&HOSTS);
        let accepted = self.accepted();
        let begin = Instant::now();
        loop {
            let arrived: BTreeSet<_> = self.arrived().into_iter().collect();
            if accepted.iter().all(|mail| arrived.contains(mail)) || begin.elapsed() > within {
                break;
            }
            park_timeout(Duration::from_millis(100));
        }
        park_timeout(QUIET);
        judge(&accepted, &self.arrived())
    }

    /// The same, for a run that must be without fault.
    pub(crate) fn must_be_clean(&mut self) -> Report {
        let report = self.finish(DEADLINE);
        let logs = || HOSTS.map(|host| self.describe(host)).join("\n");
        assert!(report.is_clean(), "{report}\n{}", logs());
        for (member, host) in PLACES {
            let machine = self.machines.get(host);
            let (torn, kills) = (torn_lines(machine, member), machine.relay_kills);
            assert!(torn <= kills, "{torn} torn lines by {kills} kills\n{}", logs());
        }
        report
    }
}

/// Returns the messages that were accepted so far.
fn accepted_in(logs: &Path) -> Vec<Mail> {
    PLACES.iter().flat_map(|(name, _)| logged(&accepted_log(logs, name))).collect()
}

/// Whether the relay of a host has recorded that it hears the others.
fn hears_others(dir: &TeamDir) -> bool {
    known_hosts(dir).is_ok_and(|known| known.iter().any(|host| host.is_heard))
}

fn logged(log: &Path) -> Vec<Mail> {
    parse_log(&fs::read_to_string(log).unwrap_or_default())
}

fn image(images: &TempDir, host: &str, number: usize) -> PathBuf {
    images.path().join(format!("{host}.{number}"))
}

/// The steps of the short run: those at which one more or one less sync would count.
const SOME_STEPS: [&str; 7] = [
    "drain.claimed",
    "outbox.written",
    "drain.synced",
    "drain.unlinked",
    "arrivals.synced",
    "arrivals.appended",
    "arrivals.done",
];

#[test]
fn the_power_of_a_host_is_cut_at_steps_of_its_relay_and_no_mail_is_lost() {
    let Some(mut site) = Site::or_skip(KINDS[0], |_| ()) else { return };
    site.cut_at_steps(&SOME_STEPS, FROM_A_TO_B);
    let report = site.must_be_clean();
    println!("{} power cuts: {report}", site.cuts);
}

/// On btrfs, a sync of one file says nothing about others: a claim that was removed is there again after a power cut, unless its
/// folder was synced since. An outbox that was compacted meanwhile must know it still.
#[test]
fn a_claim_that_comes_back_after_a_power_cut_is_known_to_a_compacted_outbox() {
    let Some(mut site) = Site::or_skip(KINDS[2], |_| ()) else { return };
    site.cut_at_steps(&["outbox.compacted"; 12], FROM_A_TO_B);
    let report = site.must_be_clean();
    println!("{} power cuts: {report}", site.cuts);
}

/// On XFS, a file that was replaced without a sync is empty after a power cut.
#[test]
fn a_host_knows_the_others_after_a_power_cut() {
    let Some(mut site) = Site::or_skip(KINDS[1], |_| ()) else { return };
    for machine in &mut site.machines.all {
        machine.kill_relay();
        fs::remove_file(machine.folder().join(".team/run/.state/relay/hosts.json")).unwrap();
        machine.start_relay();
    }
    for machine in &site.machines.all {
        site.machines.eventually("the others are heard", || hears_others(&machine.dir));
    }
    site.must_be_clean();
}

/// The most trials until a relay that syncs nothing has lost mail: what the kernel has written by itself is not lost.
const MOST_TRIALS: usize = 6;

/// The rig can tell: mail is lost by power cuts of a host whose relay syncs nothing.
fn mail_is_lost_without_syncs(host: &'static str) {
    for _ in 0..MOST_TRIALS {
        let Some(report) = cut_without_syncs(host) else { return };
        println!("{host} syncs nothing: {report}");
        if report.lost.count + report.twice.count + report.out_of_order.count > 0 {
            return;
        }
    }
    panic!("{host} syncs nothing, and nothing was lost in {MOST_TRIALS} trials");
}

/// Cuts the power of a host whose relay syncs nothing. Returns `None` where this is not possible.
fn cut_without_syncs(host: &'static str) -> Option<Report> {
    let prepare = |machines: &mut Machines| {
        let machine = machines.get_mut(host);
        machine.prepare_relay = Some(without_syncs);
        machine.kill_relay();
        machine.start_relay();
    };
    let mut site = Site::or_skip(KINDS[0], prepare)?;
    let mut rng = Rng::new(1);
    for _ in 0..4 {
        site.wait_for_mail();
        // Longer than claims are kept for late writers.
        park_timeout(rng.between(Duration::from_millis(1200), Duration::from_millis(1800)));
        site.cut(&[host]);
    }
    Some(site.finish(Duration::from_secs(3)))
}

#[test]
fn a_relay_of_senders_whose_syncs_do_nothing_loses_mail_in_power_cuts() {
    mail_is_lost_without_syncs("a");
}

#[test]
fn a_relay_of_recipients_whose_syncs_do_nothing_loses_mail_in_power_cuts() {
    mail_is_lost_without_syncs("b");
}
