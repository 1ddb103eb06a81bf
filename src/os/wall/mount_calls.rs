//! The mount calls of the kernel that take descriptors, so that no path is resolved twice.

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::libc;
use nix::mount::{MsFlags, mount};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Opens a path as a place, without a link in any of its parts.
pub(super) fn open_place(path: &Path) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    Ok(openat2(nix::fcntl::AT_FDCWD, path, how)?)
}

/// Clones the mounts at and below a place. The clone is attached nowhere.
pub(super) fn clone_mounts(place: &OwnedFd) -> io::Result<OwnedFd> {
    let clone = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    let flags = clone | unsigned(libc::AT_EMPTY_PATH | libc::AT_RECURSIVE);
    let number = place.as_raw_fd();
    // SAFETY: an open descriptor, an empty path with its NUL, and flags.
    #[expect(unsafe_code, reason = "nix has no open_tree")]
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, number, c"".as_ptr(), flags) };
    let tree = RawFd::try_from(Errno::result(tree)?).map_err(io::Error::other)?;
    // SAFETY: the call has returned a new descriptor.
    #[expect(unsafe_code, reason = "a descriptor that comes as a number")]
    Ok(unsafe { OwnedFd::from_raw_fd(tree) })
}

/// Attaches cloned mounts at a place.
pub(super) fn attach(tree: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let (empty, flags) =
        (c"".as_ptr(), libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH);
    let (tree, place) = (tree.as_raw_fd(), place.as_raw_fd());
    // SAFETY: two open descriptors, each with an empty path with its NUL, and flags.
    #[expect(unsafe_code, reason = "nix has no move_mount")]
    let moved = unsafe { libc::syscall(libc::SYS_move_mount, tree, empty, place, empty, flags) };
    Ok(Errno::result(moved).map(drop)?)
}

/// The mounts that a call changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    This,
    ThisAndBelow,
}

/// Makes the mount of a place read-only.
pub(super) fn set_read_only(place: impl AsFd, extent: Extent) -> io::Result<()> {
    let below = if extent == Extent::ThisAndBelow { libc::AT_RECURSIVE } else { 0 };
    let mut attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let (place, flags) = (place.as_fd().as_raw_fd(), unsigned(libc::AT_EMPTY_PATH | below));
    let (pointer, size) = (&raw mut attributes, size_of::<libc::mount_attr>());
    // SAFETY: an open descriptor, an empty path with its NUL, flags, and attributes of this size.
    #[expect(unsafe_code, reason = "nix has no mount_setattr")]
    let set = unsafe {
        libc::syscall(libc::SYS_mount_setattr, place, c"".as_ptr(), flags, pointer, size)
    };
    Ok(Errno::result(set).map(drop)?)
}

/// Mounts an empty memory file system over a folder.
pub(super) fn mount_memory(place: &OwnedFd, options: &CStr) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some(c"tmpfs"), path.as_str(), Some(c"tmpfs"), flags, Some(options))?)
}

/// Mounts an instance of pseudo terminals over a folder, in which no terminal of another process is.
pub(super) fn mount_terminals(place: &OwnedFd) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    let (flags, options) = (MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, c"newinstance,ptmxmode=0666");
    Ok(mount(Some(c"devpts"), path.as_str(), Some(c"devpts"), flags, Some(options))?)
}

fn unsigned(flags: i32) -> u32 {
    flags.cast_unsigned()
}
