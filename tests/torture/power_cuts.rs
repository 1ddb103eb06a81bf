//! R3: power cuts. Senders write to a file system in an image. A copy of the image is the state of the disk
//! after a power cut: it lacks the data that the kernel has not written out.
//!
//! The copy must be consistent, so all writers are stopped and the device must not be written to meanwhile. A
//! cut in the middle of a sync is therefore not covered here, but in R4.

use crate::Run;
use crate::card::{Finding, Verdict};
use crate::mount::{Mounted, run};
use crate::rng::Rng;
use crate::support::child_process::{ChildProcess, Job, start};
use crate::support::history::{Fault, Sent, check_history, sent, taken_in};
use agent_team::store::{TeamDir, inbox};
use agent_team::wire::AgentName;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SENDERS: [&str; 3] = ["bob", "carl", "dora"];

const SYNCED: &str = "`fsync = always`: acknowledged messages lost";

const TARGET: &str = "0";

/// The size of the image of a file system, in MiB. The image is sparse.
const MEGABYTES: u64 = 512;

/// The number of cuts after which a new disk is used, because the writers fill it.
const CUTS_OF_A_DISK: u32 = 20;

/// The file systems, with the options of their `mkfs` programs.
const KINDS: [(&str, &[&str]); 3] = [("ext4", &["-q", "-F"]), ("xfs", &["-q"]), ("btrfs", &["-q"])];

/// The options for mounting the copy beside the original. XFS refuses a second mount of the same UUID otherwise.
fn beside(kind: &str) -> &'static str {
    if kind == "xfs" { "loop,nouuid" } else { "loop" }
}

pub(crate) fn measure(length: Run) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (kind, options) in KINDS {
        let what = format!("power cuts on {kind}, {SYNCED}");
        let cuts = if kind == "ext4" { length.of(5, 30, 200) } else { length.of(2, 10, 50) };
        match Disk::new(kind, options) {
            Err(why) => findings.push(Finding::skipped(&what, TARGET, &why)),
            Ok(_) => {
                let mut rng = length.rng(3);
                let mut faults = Vec::new();
                let mut left = cuts;
                while left > 0 {
                    let disk = Disk::new(kind, options).unwrap();
                    let here = left.min(CUTS_OF_A_DISK);
                    faults.extend(storm(&disk, &mut rng, here, Fsync::Always));
                    left -= here;
                }
                let result = format!("{} faults in {cuts} cuts{}", faults.len(), first(&faults));
                findings.push(Finding::new(&what, TARGET, &result, Verdict::of(faults.is_empty())));
                findings.push(bite(length, kind, options));
            }
        }
    }
    findings
}

/// Cuts the power of writers that do not sync. Mail must be lost, or the other cuts prove nothing.
fn bite(length: Run, kind: &'static str, options: &[&str]) -> Finding {
    let disk = Disk::new(kind, options).unwrap();
    let cuts = length.of(3, 5, 10);
    let faults = storm(&disk, &mut length.rng(4), cuts, Fsync::Never);
    let lost = faults.iter().filter(|fault| matches!(fault, Fault::Lost { .. })).count();
    let what = format!("the same on {kind}, `fsync = never`: it must lose");
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
fn storm(disk: &Disk, rng: &mut Rng, cuts: u32, fsync: Fsync) -> Vec<Fault> {
    let dir = TeamDir::create(&disk.mount.join(".team")).unwrap();
    inbox::ensure(&dir, &AgentName::member("alice").unwrap()).unwrap();
    // The folders and files that exist before the writers start must be durable.
    nix::unistd::sync();
    let log = |from: &str| disk.folder.path().join(format!("{from}.log"));
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
        children.push(start(&dir, Job::Read { name: "alice".into(), settle: false }));
    }
    let mut faults = Vec::new();
    for _ in 0..cuts {
        rng.pause(Duration::from_millis(150));
        let copy = disk.folder.path().join("copy");
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
        let after =
            Mounted::image(&copy, &disk.folder.path().join("after"), beside(disk.kind)).unwrap();
        faults.extend(judge_copy(&after.at, &known));
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
    assert!(start(&dir, Job::Read { name: "alice".into(), settle: false }).wait().success());
    check_history(known, &taken_in(&dir, "alice"))
}

/// A file system in a file, mounted.
struct Disk {
    image: PathBuf,
    /// The path of `/sys/block/…/stat` of its device.
    counters: PathBuf,
    mount: PathBuf,
    kind: &'static str,
    // Declared before `folder`: the file system must be unmounted before the folder is removed.
    _mounted: Mounted,
    folder: tempfile::TempDir,
}

impl Disk {
    fn new(kind: &'static str, options: &[&str]) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        fs::File::create(&image).unwrap().set_len(MEGABYTES << 20).unwrap();
        let make = format!("mkfs.{kind}");
        run(Command::new(make).args(options).arg(&image))?;
        let mount = folder.path().join("mount");
        let mounted = Mounted::image(&image, &mount, "loop")?;
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let at = format!(" {} ", fs::canonicalize(&mount).unwrap().display());
        let device = mounts.lines().find(|line| line.contains(&at)).unwrap();
        let device = device.split(' ').next().unwrap().trim_start_matches("/dev/");
        let counters = PathBuf::from(format!("/sys/block/{device}/stat"));
        Ok(Self { kind, image, counters, mount, _mounted: mounted, folder })
    }

    /// Copies the image. Returns `false` if the device was written to meanwhile.
    fn copy(&self, to: &Path) -> bool {
        let before = self.written();
        run(Command::new("cp").arg("--sparse=always").args([&self.image, &to.to_path_buf()]))
            .unwrap();
        before.is_some() && before == self.written()
    }

    /// The counts of completed writes and of written sectors, or `None` while a request is in progress.
    fn written(&self) -> Option<[u64; 2]> {
        let text = fs::read_to_string(&self.counters).unwrap();
        let counts: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        (counts[8] == 0).then_some([counts[4], counts[6]])
    }
}
