//! User, mount and IPC namespaces of a command: a read-only view of the machine with a writable workspace, private
//! temporary folders, and empty folders over hidden ones; perhaps a network with nothing but a loopback.

use super::devices::{self, SHARED_MEMORY, TERMINALS};
use super::mount_calls::{
    Extent, attach, clone_mounts, mount_memory, mount_terminals, open_place, set_read_only,
};
use super::named_error::named;
use super::own_loopback;
use super::policy::{WallPolicy, real_paths};
use super::trees::{Cover, at, is_absent, make_place, trees, with_trees};
use crate::os::git_folders::{RUN_CODE, Submodules};
use crate::wire::sandbox::SandboxNetwork;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The folders that are private to a command and empty at its start.
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", SHARED_MEMORY];

/// The number of the capability that mounting needs: `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// The mounts of one command, planned before its process exists.
#[derive(Debug)]
pub(super) struct MountPlan {
    namespaces: CloneFlags,
    private: Vec<PathBuf>,
    terminals: Option<PathBuf>,
    writable: Vec<PathBuf>,
    visible: Vec<PathBuf>,
    /// Whether `/dev` has nothing but the devices of commands: Landlock does not close the others.
    hides_devices: bool,
    /// Hidden folders around writable ones: of these alone something is left in them.
    around: Vec<Cover>,
    covered: Vec<Cover>,
    pinned: Vec<PathBuf>,
    protected: Vec<PathBuf>,
    /// The folder in which the command starts.
    folder: PathBuf,
}

impl MountPlan {
    pub(super) fn of(policy: &WallPolicy, hidden: &[PathBuf]) -> io::Result<Self> {
        let mut namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
        if matches!(policy.network, SandboxNetwork::Own | SandboxNetwork::Hosts) {
            namespaces |= CloneFlags::CLONE_NEWNET;
        }
        // Root needs no user namespace, and keeps the owners of files without one.
        if !may_mount() {
            namespaces |= CloneFlags::CLONE_NEWUSER;
        }
        let mut private = real_paths(PRIVATE);
        private.retain(|path| path.is_dir());
        let (writable, readable) = (policy.writable_paths(), policy.readable_paths());
        let visible = within(&real_paths(&policy.visible), &private);
        if writable.iter().any(|path| path == Path::new("/")) {
            let why = "the root folder cannot be a writable path";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let is_below = |path: &Path, folder: &Path| path.starts_with(folder);
        let is_around = |path: &PathBuf| writable.iter().any(|writable| is_below(writable, path));
        let is_covered = |path: &&PathBuf| {
            // Landlock grants all of a private folder.
            let is_hole = writable.iter().chain(&visible).any(|folder| is_below(path, folder));
            is_hole || path.is_dir() || policy.lacks_landlock
        };
        let cover = |path: &PathBuf| {
            let within = |paths: &[PathBuf]| {
                paths.iter().filter(|kept| is_below(kept, path)).cloned().collect()
            };
            Cover { path: path.clone(), readable: within(&readable), writable: within(&writable) }
        };
        // An outer cover hides inner paths as well, so it comes first.
        let mut hidden = hidden.to_vec();
        hidden.sort();
        let (mut around, inside): (Vec<_>, Vec<_>) = hidden.into_iter().partition(is_around);
        // Landlock hides what else is in a hidden folder around a writable one.
        around.retain(|_| policy.lacks_landlock);
        let (mut pinned, mut protected) = (policy.pinned.clone(), policy.protected.clone());
        for git in &policy.pinned {
            let Submodules { ways, git_folders } = Submodules::of(git);
            let run_code = |folder: &PathBuf| RUN_CODE.map(|name| folder.join(name));
            protected.extend(git_folders.iter().flat_map(run_code));
            // A folder becomes a mount point before those in it do.
            pinned.extend(ways);
        }
        Ok(Self {
            namespaces,
            hides_devices: policy.lacks_landlock,
            around: around.iter().map(cover).collect(),
            covered: inside.iter().filter(is_covered).map(cover).collect(),
            visible,
            private,
            terminals: Some(PathBuf::from(TERMINALS)).filter(|path| path.is_dir()),
            writable,
            pinned,
            protected,
            folder: std::env::current_dir()?,
        })
    }

    /// Returns the folders that are private to the command.
    pub(super) fn private(&self) -> impl Iterator<Item = &PathBuf> {
        self.private.iter().chain(&self.terminals)
    }

    /// Moves this process into namespaces of its own, with these mounts. Runs in a process with a single thread.
    pub(super) fn enter(&self) -> io::Result<()> {
        let (user, group) = (geteuid(), getegid());
        step("unshare", unshare(self.namespaces).map_err(io::Error::from))?;
        if self.namespaces.contains(CloneFlags::CLONE_NEWUSER) {
            step("its users", map_user(user.as_raw(), group.as_raw()))?;
        }
        if self.namespaces.contains(CloneFlags::CLONE_NEWNET) {
            step("its loopback", own_loopback::set_up())?;
        }
        let none = None::<&Path>;
        let slave = mount(none, "/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none);
        step("the mounts of the machine", slave.map_err(io::Error::from))?;
        let (writable, visible) = (trees(&self.writable)?, trees(&self.visible)?);
        let (around, covered) = (with_trees(&self.around)?, with_trees(&self.covered)?);
        let all = open_place(Path::new("/"));
        step("a read-only view", all.and_then(|all| set_read_only(all, Extent::ThisAndBelow)))?;
        if self.hides_devices {
            step("its devices", devices::leave_few(&writable))?;
        }
        for (cover, readable) in &around {
            at(&cover.path, cover.put_over(readable, &writable))?;
        }
        for path in &self.private {
            let place = open_place(path);
            at(path, place.and_then(|place| mount_memory(&place, c"mode=1777")))?;
        }
        if let Some(path) = &self.terminals {
            at(path, open_place(path).and_then(|place| mount_terminals(&place)))?;
        }
        for (path, tree) in &visible {
            at(path, set_read_only(tree, Extent::ThisAndBelow))?;
            at(path, self.attach_at(path, tree))?;
        }
        for (path, tree) in &writable {
            at(path, self.attach_at(path, tree))?;
        }
        for (cover, readable) in &covered {
            at(&cover.path, cover.put_over(readable, &[]))?;
        }
        for path in self.pinned.iter().chain(&self.protected) {
            at(path, self.attach_to_itself(path))?;
        }
        // The folder in which this process started is a read-only mount now.
        at(&self.folder, nix::unistd::chdir(&self.folder).map_err(io::Error::from))
    }

    /// Attaches a tree at its path, which a private folder may have covered.
    fn attach_at(&self, path: &Path, tree: &OwnedFd) -> io::Result<()> {
        let is_private = self.private.iter().any(|folder| path.starts_with(folder));
        if is_private && !path.exists() {
            make_place(path, tree)?;
        }
        attach(tree, &open_place(path)?)
    }

    /// Makes a path a mount point, which cannot be renamed; a protected one is read-only.
    fn attach_to_itself(&self, path: &Path) -> io::Result<()> {
        let place = match open_place(path) {
            Err(why) if is_absent(&why) => return Ok(()),
            place => place?,
        };
        let tree = clone_mounts(&place)?;
        if self.protected.iter().any(|protected| protected == path) {
            set_read_only(&tree, Extent::ThisAndBelow)?;
        }
        attach(&tree, &place)
    }
}

/// Returns the paths below these folders.
fn within(paths: &[PathBuf], folders: &[PathBuf]) -> Vec<PathBuf> {
    let is_below = |path: &&PathBuf| folders.iter().any(|folder| path.starts_with(folder));
    paths.iter().filter(is_below).cloned().collect()
}

/// Maps the user and the group to themselves, which needs no privileges.
fn map_user(user: u32, group: u32) -> io::Result<()> {
    let write = |file: &str, text: &str| {
        let mut file = File::options().write(true).open(Path::new("/proc/self").join(file))?;
        file.write_all(text.as_bytes())
    };
    write("setgroups", "deny")?;
    write("uid_map", &format!("{user} {user} 1"))?;
    write("gid_map", &format!("{group} {group} 1"))
}

/// Whether this process may mount without a user namespace.
fn may_mount() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.unwrap_or_default() & 1 << SYS_ADMIN != 0
}

fn step<T>(name: &str, done: io::Result<T>) -> io::Result<T> {
    done.map_err(|why| named(name, &why))
}
