//! A control group for one command: the kernel knows everybody in it, whatever they did to their
//! environment, their session or their parents, and ends them all at once.
//!
//! Where the machine lends us none (no cgroup v2, or not ours to write), commands do without. A group is
//! found again by its name, which holds the run_id; limits are not set here.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long the members of a group may take to die; those that do not are stuck in the kernel.
const PATIENCE: Duration = Duration::from_secs(1);

/// A group, for whoever may end it.
#[derive(Debug)]
pub(in crate::os) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Makes one below our own, named after the run_id and this guard's pid; `None` where that is not
    /// possible.
    pub(in crate::os) fn make(run_id: &str, guard: u32) -> Option<Self> {
        let group = Self { folder: folder(run_id, guard)? };
        fs::create_dir(&group.folder).ok()?;
        // Kernels before 5.14 cannot end a group at once.
        if group.folder.join("cgroup.kill").exists() {
            return Some(group);
        }
        fs::remove_dir(&group.folder).unwrap_or_default();
        None
    }

    /// The group that a guard below us made, if it has not removed it.
    pub(in crate::os) fn of_guard(run_id: &str, guard: u32) -> Option<Self> {
        let folder = folder(run_id, guard)?;
        folder.is_dir().then_some(Self { folder })
    }

    /// Who writes `0` into this file is a member, with all that it starts.
    pub(in crate::os) fn entrance(&self) -> io::Result<File> {
        File::options().write(true).open(self.folder.join("cgroup.procs"))
    }

    /// Kills all members.
    pub(in crate::os) fn kill(&self) {
        let killed = File::options().write(true).open(self.folder.join("cgroup.kill"));
        killed.and_then(|mut file| io::Write::write_all(&mut file, b"1")).unwrap_or_default();
    }

    /// Kills all members and removes the group.
    pub(in crate::os) fn end(self) {
        self.kill();
        let deadline = Instant::now() + PATIENCE;
        while remove(&self.folder).is_err_and(|why| why.kind() != io::ErrorKind::NotFound)
            && Instant::now() < deadline
        {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// Ends all groups with this run_id, wherever on this machine they are.
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

/// A group goes when the groups that its members made in it have gone.
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

fn folder(run_id: &str, guard: u32) -> Option<PathBuf> {
    Some(own()?.join(format!("{}{guard}", prefix(run_id)?)))
}

/// The beginning of a group's name; only marks that our programs give themselves have groups.
fn prefix(run_id: &str) -> Option<String> {
    let is_ours = !run_id.is_empty() && run_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_ours.then(|| format!("team-{run_id}."))
}

/// The folder of the group that this process is in.
fn own() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, mounted) = mount()?;
    let inside = Path::new(path).strip_prefix(root).ok()?;
    Some(mounted.join(inside))
}

/// What of the tree of groups is mounted, and where.
fn mount() -> Option<(PathBuf, PathBuf)> {
    mount_in(&fs::read_to_string("/proc/self/mountinfo").ok()?)
}

/// `41 31 0:38 ROOT WHERE rw,relatime - cgroup2 cgroup2 rw`
fn mount_in(mounts: &str) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, mounted) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup2 ").then(|| (root.into(), mounted.into()))
    })
}
