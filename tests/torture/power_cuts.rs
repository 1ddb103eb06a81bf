//! R3: power cuts. Senders write to a file system in an image. A copy of the image is the state of the disk
//! after a power cut: it lacks the data that the kernel has not written out.
//!
//! All writers are stopped for the copy. A cut in the middle of a sync is therefore not covered here, but in R4.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::disk::{Disk, DiskKind, KINDS};
use crate::rng::Rng;
use crate::support::child_process::{ChildProcess, Job, start};
use crate::support::history::{Fault, Sent, check_history, sent, taken_in};
use agent_team::store::{TeamDir, inbox};
use agent_team::wire::AgentName;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

const SENDERS: [&str; 3] = ["bob", "carl", "dora"];

const SYNCED: &str = "`fsync = always`: acknowledged messages lost";

const TARGET: &str = "0";

/// The number of cuts after which a new disk is used, because the writers fill it.
const CUTS_OF_A_DISK: u32 = 20;

pub(crate) fn measure(length: Run) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kind in KINDS {
        let what = format!("power cuts on {}, {SYNCED}", kind.name);
        let cuts = if kind.name == "ext4" { length.of(5, 30, 200) } else { length.of(2, 10, 50) };
        match NewDisk::make(kind) {
            Err(why) => findings.push(Finding::skipped(&what, TARGET, &why)),
            Ok(_) => {
                let mut rng = length.rng(3);
                let mut faults = Vec::new();
                let mut left = cuts;
                while left > 0 {
                    let disk = NewDisk::make(kind).unwrap();
                    let here = left.min(CUTS_OF_A_DISK);
                    faults.extend(storm(&disk, &mut rng, here, Fsync::Always));
                    left -= here;
                }
                let result = format!("{} faults in {cuts} cuts{}", faults.len(), first(&faults));
                findings.push(Finding::new(&what, TARGET, &result, Verdict::of(faults.is_empty())));
                findings.push(bite(length, kind));
            }
        }
    }
    findings
}

/// Cuts the power of writers that do not sync. Mail must be lost, or the other cuts prove nothing.
fn bite(length: Run, kind: DiskKind) -> Finding {
    let disk = NewDisk::make(kind).unwrap();
    let cuts = length.of(3, 5, 10);
    let faults = storm(&disk, &mut length.rng(4), cuts, Fsync::Never);
    let lost = faults.iter().filter(|fault| matches!(fault, Fault::Lost { .. })).count();
    let what = format!("the same on {}, `fsync = never`: it must lose", kind.name);
    Finding::new(&what, "> 0", &format!("{lost} lost in {cuts} cuts"), Verdict::of(lost > 0))
}

fn first(faults: &[Fault]) -> String {
    faults.first().map_or(String::new(), |first| format!(", first {first:?}"))
}

#[derive(Clone, Copy, PartialEq)]
enum Fsync {
    Always,
    Never,
}

/// Runs writers and cuts the power repeatedly.
fn storm(new: &NewDisk, rng: &mut Rng, cuts: u32, fsync: Fsync) -> Vec<Fault> {
    let NewDisk { disk, folder, kind } = new;
    let dir = TeamDir::create(&disk.at().join(".team")).unwrap();
    inbox::ensure(&dir, &AgentName::member("alice").unwrap()).unwrap();
    // The folders and files that exist before the writers start must be durable.
    nix::unistd::sync();
    let log = |from: &str| folder.path().join(format!("{from}.log"));
    let mut children: Vec<ChildProcess> = SENDERS
        .iter()
        .map(|from| {
            let (to, from, log) = ("alice".into(), (*from).into(), log(from));
            let fsync = fsync == Fsync::Always;
            start(&dir, Job::Send { to, from, log, count: u64::MAX, fsync })
        })
        .collect();
    if fsync == Fsync::Always {
        // An owner always syncs, so the run without syncs has no owner.
        children.push(start(&dir, Job::Read { name: "alice".into(), settle: false, fsync: true }));
    }
    let mut faults = Vec::new();
    for _ in 0..cuts {
        rng.pause(Duration::from_millis(150));
        let copy = folder.path().join("copy");
        let known = loop {
            children.iter().for_each(freeze);
            let known: BTreeMap<String, Sent> =
                SENDERS.iter().map(|from| ((*from).to_owned(), sent(&log(from)))).collect();
            let is_of_one_moment = disk.copy(&copy);
            for child in &children {
                kill(Pid::from_raw(child.pid()), Signal::SIGCONT).unwrap();
            }
            if is_of_one_moment {
                break known;
            }
            rng.pause(Duration::from_millis(50));
        };
        let after = Disk::mount(*kind, &copy, &folder.path().join("after")).unwrap();
        faults.extend(judge_copy(after.at(), &known));
    }
    children.iter_mut().for_each(ChildProcess::kill);
    faults
}

/// Stops a process and waits until it is stopped.
fn freeze(child: &ChildProcess) {
    kill(Pid::from_raw(child.pid()), Signal::SIGSTOP).unwrap();
    let stands = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('T'))
    };
    while !stands() {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Lets alice drain her inbox on the copy, and checks the history.
fn judge_copy(mount: &Path, known: &BTreeMap<String, Sent>) -> Vec<Fault> {
    let dir = TeamDir::open(&mount.join(".team")).unwrap();
    assert!(
        start(&dir, Job::Read { name: "alice".into(), settle: false, fsync: true })
            .wait()
            .success()
    );
    check_history(known, &taken_in(&dir, "alice"))
}

/// A new disk in a temporary folder.
struct NewDisk {
    // Declared before `folder`: the file system must be unmounted before the folder is removed.
    disk: Disk,
    folder: tempfile::TempDir,
    kind: DiskKind,
}

impl NewDisk {
    fn make(kind: DiskKind) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::make(kind, &folder.path().join("image"), &folder.path().join("mount"))?;
        Ok(Self { disk, folder, kind })
    }
}
