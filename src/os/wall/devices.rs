//! The devices of a command: few, since root could read and write the disks of the machine by the others.

use super::mount_calls::{Extent, attach, mount_memory, open_place, set_read_only};
use super::trees::{make_place, trees};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// The folder of devices.
pub(super) const FOLDER: &str = "/dev";

/// The devices that a command may read and write.
pub(super) const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", PTMX];

/// The folder among the devices that has files.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// The folder of pseudo terminals, which are private to a command.
pub(super) const TERMINALS: &str = "/dev/pts";

/// The device that makes pseudo terminals: of the instance that is mounted beside it.
const PTMX: &str = "/dev/ptmx";

/// Links with their targets.
const LINKS: [(&str, &str); 5] = [
    (PTMX, "pts/ptmx"),
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Covers the folder of devices with one that has those of a command, and places for the `writable` trees that are
/// attached in it afterwards.
pub(super) fn leave_few(writable: &[(PathBuf, OwnedFd)]) -> io::Result<()> {
    let folder = Path::new(FOLDER);
    let mut devices = trees(&DEVICES.map(PathBuf::from))?;
    devices.retain(|(path, _)| path != Path::new(PTMX));
    mount_memory(&open_place(folder)?, c"mode=755,size=64k")?;
    for (path, device) in &devices {
        make_place(path, device)?;
        attach(device, &open_place(path)?)?;
    }
    for path in [SHARED_MEMORY, TERMINALS] {
        DirBuilder::new().mode(0o755).create(path)?;
    }
    for (path, tree) in writable.iter().filter(|(path, _)| path.starts_with(folder)) {
        make_place(path, tree)?;
    }
    for (path, target) in LINKS {
        symlink(target, path)?;
    }
    set_read_only(open_place(folder)?, Extent::This)
}
