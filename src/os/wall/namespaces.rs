//! User, mount and IPC namespaces of a command: a read-only view of the machine with a writable workspace, private
//! temporary folders, and empty folders over hidden ones; perhaps a network with nothing but a loopback.

use super::mount_calls::{
    Extent, attach, clone_mounts, mount_memory, mount_terminals, open_place, set_read_only,
};
use super::named_error::named;
use super::own_loopback;
use super::policy::{WallPolicy, real_paths};
use crate::wire::sandbox::SandboxNetwork;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The folders that are private to a command and empty at its start.
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// The folder of pseudo terminals, which are private to a command.
const TERMINALS: &str = "/dev/pts";

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
    covered: Vec<Cover>,
    pinned: Vec<PathBuf>,
    protected: Vec<PathBuf>,
    /// The folder in which the command starts.
    folder: PathBuf,
}

/// A path with nothing to read: an empty folder, or an empty file.
#[derive(Debug)]
struct Cover {
    path: PathBuf,
    /// Paths in the folder that stay readable.
    readable: Vec<PathBuf>,
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
        let (writable, readable) = (real_paths(&policy.writable), real_paths(&policy.readable));
        let visible = within(&real_paths(&policy.visible), &private);
        if writable.iter().any(|path| path == Path::new("/")) {
            let why = "the root folder cannot be a writable path";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let is_below = |path: &Path, folder: &Path| path.starts_with(folder);
        // A hidden folder around a writable one stays; Landlock hides the rest of it.
        let is_covered = |path: &&PathBuf| {
            let is_around = writable.iter().any(|writable| is_below(writable, path));
            // Landlock grants all of a private folder.
            let is_hole = writable.iter().chain(&visible).any(|folder| is_below(path, folder));
            !is_around && (is_hole || path.is_dir() || policy.lacks_landlock)
        };
        // An outer cover hides inner paths as well, so it comes first.
        let mut hidden = hidden.to_vec();
        hidden.sort();
        let cover = |path: &PathBuf| {
            let readable = readable.iter().filter(|kept| is_below(kept, path));
            Cover { path: path.clone(), readable: readable.cloned().collect() }
        };
        Ok(Self {
            namespaces,
            covered: hidden.iter().filter(is_covered).map(cover).collect(),
            visible,
            private,
            terminals: Some(PathBuf::from(TERMINALS)).filter(|path| path.is_dir()),
            writable,
            pinned: policy.pinned.clone(),
            protected: policy.protected.clone(),
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
        let mut covers = Vec::new();
        for Cover { path, readable } in &self.covered {
            covers.push((path, trees(readable)?));
        }
        let all = open_place(Path::new("/"));
        step("a read-only view", all.and_then(|all| set_read_only(all, Extent::ThisAndBelow)))?;
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
        for (path, readable) in &covers {
            at(path, cover(path, readable))?;
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

/// Clones the mounts of each path; paths that are gone are left out.
fn trees(paths: &[PathBuf]) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
    let mut trees = Vec::new();
    for path in paths {
        match open_place(path).and_then(|place| clone_mounts(&place)) {
            Err(why) if is_absent(&why) => {}
            tree => trees.push((path.clone(), at(path, tree)?)),
        }
    }
    Ok(trees)
}

/// Mounts an empty, read-only folder or file over a path, with the readable parts of the folder in it.
fn cover(path: &Path, readable: &[(PathBuf, OwnedFd)]) -> io::Result<()> {
    let place = match open_place(path) {
        // A private folder or an outer cover hides it already.
        Err(why) if is_absent(&why) => return Ok(()),
        place => place?,
    };
    if !path.is_dir() {
        let nothing = clone_mounts(&open_place(Path::new("/dev/null"))?)?;
        return attach(&nothing, &place);
    }
    mount_memory(&place, c"mode=755,size=64k")?;
    for (kept, tree) in readable {
        make_place(kept, tree)?;
        set_read_only(tree, Extent::ThisAndBelow)?;
        attach(tree, &open_place(kept)?)?;
    }
    set_read_only(open_place(path)?, Extent::This)
}

/// Creates the empty folder or file at which a tree is attached.
fn make_place(path: &Path, tree: &OwnedFd) -> io::Result<()> {
    let is_folder = File::from(tree.try_clone()?).metadata()?.is_dir();
    let folder = if is_folder { Some(path) } else { path.parent() };
    if let Some(folder) = folder {
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    if !is_folder {
        File::create_new(path)?;
    }
    Ok(())
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

/// Whether a path does not exist or leads through a link.
fn is_absent(why: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&why.kind()) || why.raw_os_error() == Some(nix::libc::ELOOP)
}

fn at<T>(path: &Path, done: io::Result<T>) -> io::Result<T> {
    done.map_err(|why| named(path.display(), &why))
}

fn step<T>(name: &str, done: io::Result<T>) -> io::Result<T> {
    done.map_err(|why| named(name, &why))
}
