//! A control group for one command. The kernel knows every member, even one that changes its environment, session
//! or parent, and kills all of them at once.
//!
//! Without a writable cgroup v2, commands have no group. A group is found again by its name, which contains the
//! `run_id`. This module sets no limits.

use crate::os::event::event_loop::check_blocking;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The time that killed members have to exit; a member that does not exit is stuck in the kernel.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A control group that this process may kill.
#[derive(Debug)]
pub(in crate::os) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Creates a group below that of this process, named after `run_id` and pid; `None` if that is not possible.
    pub(in crate::os) fn make(run_id: &str) -> Option<Self> {
        let group = Self { folder: folder(run_id, nix::unistd::getpid().as_raw())? };
        fs::create_dir(&group.folder).ok()?;
        // Kernels before 5.14 cannot kill a group at once.
        if group.folder.join("cgroup.kill").exists() {
            return Some(group);
        }
        fs::remove_dir(&group.folder).unwrap_or_default();
        None
    }

    /// Returns the group of a supervisor below this process, if it still exists.
    pub(in crate::os) fn of_supervisor(run_id: &str, supervisor: i32) -> Option<Self> {
        folder(run_id, supervisor).filter(|folder| folder.is_dir()).map(|folder| Self { folder })
    }

    /// Opens a control file for writing. A process that writes `0` to `cgroup.procs` joins with all that it starts.
    pub(in crate::os) fn open(&self, control: &str) -> io::Result<File> {
        File::options().write(true).open(self.folder.join(control))
    }

    pub(in crate::os) fn kill(&self) {
        let killed = self.open("cgroup.kill");
        killed.and_then(|mut file| io::Write::write_all(&mut file, b"1")).unwrap_or_default();
    }

    /// Kills all members and removes the group.
    pub(in crate::os) fn end(self) {
        check_blocking("sleep");
        self.kill();
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while remove(&self.folder).is_err_and(|why| why.kind() != io::ErrorKind::NotFound)
            && Instant::now() < deadline
        {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// Kills the members of all groups with this `run_id` on the machine, and removes the groups.
pub(in crate::os) fn end_run(run_id: &str) {
    let (Some(prefix), Some((_, mounted))) = (prefix(run_id), mount()) else { return };
    let mut open = vec![mounted];
    while let Some(folder) = open.pop() {
        for below in folders_in(&folder) {
            let name = below.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(&prefix) {
                Cgroup { folder: below }.end();
            } else {
                open.push(below);
            }
        }
    }
}

/// Removes a group after the groups that its members created in it.
fn remove(folder: &Path) -> io::Result<()> {
    for below in folders_in(folder) {
        remove(&below)?;
    }
    fs::remove_dir(folder)
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn folder(run_id: &str, supervisor: i32) -> Option<PathBuf> {
    Some(own()?.join(format!("{}{supervisor}", prefix(run_id)?)))
}

/// Returns the prefix of a group's name; `None` for a `run_id` that no program of a team makes.
fn prefix(run_id: &str) -> Option<String> {
    let is_ours = !run_id.is_empty() && run_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_ours.then(|| format!("team-{run_id}."))
}

/// Returns the folder of this process's group.
fn own() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, mounted) = mount()?;
    Some(mounted.join(Path::new(path).strip_prefix(root).ok()?))
}

/// Returns the mounted part of the tree of groups, and its mount point:
/// `41 31 0:38 ROOT WHERE rw,relatime - cgroup2 cgroup2 rw`.
fn mount() -> Option<(PathBuf, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, mounted) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup2 ").then(|| (root.into(), mounted.into()))
    })
}
