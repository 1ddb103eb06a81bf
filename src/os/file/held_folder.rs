//! A folder that is held open: it does not matter what becomes of its path, and no link below it is followed.

use super::lease::{OpenWriters, writers};
use crate::wire::file_view::ContentHash;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, open, openat, readlinkat, renameat, renameat2};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const FOLDER: OFlag =
    OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// An open folder.
#[derive(Debug)]
pub(crate) struct HeldFolder(OwnedFd);

/// The mode and the content of a file, or the target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileVersion {
    mode: u32,
    content: ContentHash,
}

impl FileVersion {
    fn kind(&self) -> SFlag {
        SFlag::from_bits_truncate(self.mode) & SFlag::S_IFMT
    }
}

impl HeldFolder {
    /// Opens a folder by its path, which may contain links.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, FOLDER.difference(OFlag::O_NOFOLLOW), Mode::empty())?))
    }

    /// Opens a folder below this one; an empty path is this folder.
    pub(crate) fn enter(&self, path: &Path) -> io::Result<Self> {
        let mut folder = Self(self.0.try_clone()?);
        for name in path {
            folder = Self(openat(&folder.0, name, FOLDER, Mode::empty())?);
        }
        Ok(folder)
    }

    /// Makes a folder. Returns whether there was none.
    pub(crate) fn make_folder(&self, name: &OsStr) -> io::Result<bool> {
        match mkdirat(&self.0, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(why) => Err(why.into()),
        }
    }

    /// Removes an empty folder.
    pub(crate) fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::RemoveDir)?)
    }

    /// Removes a file or a link.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Returns the version of a file or a link; `None` if there is nothing. Anything else has no content.
    pub(crate) fn version(&self, name: &OsStr) -> io::Result<Option<FileVersion>> {
        let mode = match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => return Ok(None),
            found => found?.st_mode,
        };
        let mut version = FileVersion { mode, content: ContentHash::of(b"") };
        if version.kind() == SFlag::S_IFREG {
            let mut bytes = Vec::new();
            self.file(name)?.read_to_end(&mut bytes)?;
            version.content = ContentHash::of(&bytes);
        } else if version.kind() == SFlag::S_IFLNK {
            version.content = ContentHash::of(readlinkat(&self.0, name)?.as_bytes());
        }
        Ok(Some(version))
    }

    /// Whether a program has a file open for writing, as far as the file system tells.
    pub(crate) fn has_writer(&self, name: &OsStr) -> bool {
        self.file(name).is_ok_and(|file| writers(&file) == OpenWriters::Present)
    }

    /// Opens a file for reading. A pipe does not block this.
    fn file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        self.open_file(name, flags)
    }

    /// Opens an existing file.
    pub(super) fn open_file(&self, name: &OsStr, flags: OFlag) -> io::Result<File> {
        Ok(openat(&self.0, name, flags, Mode::empty())?.into())
    }

    /// Gives a file the permissions of a version. Does nothing if one of the two is a link.
    pub(crate) fn set_mode_of(&self, name: &OsStr, version: &FileVersion) -> io::Result<()> {
        let own = fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW)?.st_mode;
        let is_file = |mode: u32| SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == SFlag::S_IFREG;
        if is_file(own) && is_file(version.mode) {
            let mode = Mode::from_bits_truncate(version.mode & 0o7777);
            fchmodat(&self.0, name, mode, FchmodatFlags::FollowSymlink)?;
        }
        Ok(())
    }

    /// Exchanges a file for one of another folder, in one step where the file system can do that. Elsewhere there is nothing
    /// under the first name for a moment, and a file that another program creates then is lost.
    pub(crate) fn exchange(&self, name: &OsStr, other: &Self, at: &OsStr) -> io::Result<()> {
        let exchange = RenameFlags::RENAME_EXCHANGE;
        match renameat2(&self.0, name, &other.0, at, exchange) {
            Err(Errno::EINVAL | Errno::ENOSYS) => {
                let mut aside = OsString::from(at);
                aside.push(".aside");
                renameat(&self.0, name, &other.0, aside.as_os_str())?;
                renameat(&other.0, at, &self.0, name).inspect_err(|_| {
                    renameat(&other.0, aside.as_os_str(), &self.0, name).unwrap_or_default();
                })?;
                Ok(renameat(&other.0, aside.as_os_str(), &other.0, at)?)
            }
            done => Ok(done?),
        }
    }

    /// Moves a file or a link into another folder. Fails with `AlreadyExists` if something has the name.
    pub(crate) fn move_to(&self, name: &OsStr, other: &Self, at: &OsStr) -> io::Result<()> {
        match renameat2(&self.0, name, &other.0, at, RenameFlags::RENAME_NOREPLACE) {
            Err(Errno::EINVAL | Errno::ENOSYS) => {
                match fstatat(&other.0, at, AtFlags::AT_SYMLINK_NOFOLLOW) {
                    Err(Errno::ENOENT) => Ok(renameat(&self.0, name, &other.0, at)?),
                    Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                    Err(why) => Err(why.into()),
                }
            }
            done => Ok(done?),
        }
    }

    /// Copies a file or a link into another folder. Fails if something has the name.
    pub(crate) fn copy_to(&self, name: &OsStr, other: &Self, at: &OsStr) -> io::Result<()> {
        let mode = fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW)?.st_mode;
        if SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == SFlag::S_IFLNK {
            let target = readlinkat(&self.0, name)?;
            return Ok(symlinkat(target.as_os_str(), other.0.as_fd(), at)?);
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(mode & 0o7777);
        let mut copy = File::from(openat(&other.0, at, flags, mode)?);
        let copied = io::copy(&mut self.file(name)?, &mut copy).map(drop);
        copied.inspect_err(|_| other.remove(at).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn no_link_below_the_folder_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("real/inner")).unwrap();
        symlink("real", folder.path().join("way")).unwrap();
        let held = HeldFolder::open(folder.path()).unwrap();
        held.enter(Path::new("real/inner")).unwrap();
        assert!(held.enter(Path::new("way/inner")).is_err());
        assert!(held.enter(Path::new("way")).is_err());
        let moved = folder.path().with_extension("moved");
        fs::rename(folder.path(), &moved).unwrap();
        assert!(held.make_folder(name("new")).unwrap() && !held.make_folder(name("new")).unwrap());
        assert!(moved.join("new").is_dir());
        fs::rename(moved, folder.path()).unwrap();
    }

    #[test]
    fn files_are_exchanged_moved_and_copied_but_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("sub")).unwrap();
        File::create(path("a")).unwrap().write_all(b"a").unwrap();
        File::create(path("sub/b")).unwrap().write_all(b"b").unwrap();
        fs::set_permissions(path("sub/b"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("nowhere", path("link")).unwrap();
        let held = HeldFolder::open(folder.path()).unwrap();
        let sub = held.enter(Path::new("sub")).unwrap();
        let (a, b) = (held.version(name("a")).unwrap(), sub.version(name("b")).unwrap());
        assert!(a.is_some() && a != b && held.version(name("none")).unwrap().is_none());
        held.exchange(name("a"), &sub, name("b")).unwrap();
        assert_eq!((held.version(name("a")).unwrap(), sub.version(name("b")).unwrap()), (b, a));
        let taken = held.move_to(name("a"), &sub, name("b")).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        held.move_to(name("link"), &sub, name("link")).unwrap();
        sub.copy_to(name("link"), &held, name("copy")).unwrap();
        assert_eq!(fs::read_link(path("copy")).unwrap(), Path::new("nowhere"));
        held.copy_to(name("a"), &sub, name("a")).unwrap();
        assert_eq!(sub.version(name("a")).unwrap(), held.version(name("a")).unwrap());
        assert!(held.copy_to(name("a"), &sub, name("b")).is_err());
        sub.set_mode_of(name("b"), &held.version(name("a")).unwrap().unwrap()).unwrap();
        assert_eq!(fs::metadata(path("sub/b")).unwrap().permissions().mode() & 0o777, 0o750);
        let writer = File::options().append(true).open(path("a")).unwrap();
        assert!(held.has_writer(name("a")));
        drop(writer);
        assert!(!held.has_writer(name("copy")));
    }
}
