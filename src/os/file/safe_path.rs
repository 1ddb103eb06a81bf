//! Resolves a path to a file below a folder, in spite of links, dots and races.
//!
//! A path is walked name by name. Each folder is held by its descriptor, and each link is read and walked in
//! turn, so no name is resolved twice. This does what `openat2` with `RESOLVE_BENEATH` does and more: it returns
//! the real name of a file, follows links that name the folder itself by an absolute path, and works on every
//! kernel. Links of `/proc` to objects are followed by their text only. Without a root folder ([`anywhere`]) no
//! link is followed at all.

use crate::os::event::event_loop::check_blocking;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{AccessFlags, Gid, Uid, UnlinkatFlags, faccessat, fchown, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// The number of links after which a path counts as a loop, as in the kernel.
const MOST_LINKS: usize = 40;

/// The maximum number of names in a path; each folder on the way takes a descriptor.
const MOST_NAMES: usize = 256;

/// The reason for which a path was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SafePathError {
    #[error("leads out of the folder")]
    Outside,
    /// The path contains a link, and no link is followed.
    #[error("leads through a link")]
    Link,
    #[error("is a folder")]
    Folder,
    #[error("is {0}, not a regular file")]
    Special(&'static str),
    /// The path leads upward from a folder that does not exist.
    #[error("leads through a folder that does not exist")]
    Nowhere,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for SafePathError {
    fn from(why: Errno) -> Self {
        Self::Io(why.into())
    }
}

/// A folder that no path resolved in it can leave.
#[derive(Debug)]
pub(crate) struct SafeRoot {
    folder: OwnedFd,
    /// The absolute paths of the folder: as given, and without links.
    names: [PathBuf; 2],
}

/// The place of a file that exists or can be created: a name in an open folder, or below folders that do not
/// exist yet.
#[derive(Debug)]
pub(crate) struct SafePath {
    folder: OwnedFd,
    below_root: PathBuf,
    missing: Vec<OsString>,
    name: OsString,
}

impl SafeRoot {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let real = path.canonicalize()?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = nix::fcntl::open(&real, flags, Mode::empty())?;
        Ok(Self { folder, names: [path.to_owned(), real] })
    }

    /// Returns the path of the folder without links.
    pub(crate) fn path(&self) -> &Path {
        let [_, real] = &self.names;
        real
    }

    /// Finds the place of a path that is relative to this folder, or absolute and inside it. Fails for a path
    /// that leads outside, names a folder, or cannot be reached.
    pub(crate) fn find(&self, path: &Path) -> Result<SafePath, SafePathError> {
        Walk::run(self, MOST_LINKS, path)
    }
}

/// Finds the place of an absolute path in which no name is a link. The path of the result is absolute, too. Fails
/// for a path that leads through a link, names a folder, or cannot be reached.
pub(crate) fn anywhere(path: &Path) -> Result<SafePath, SafePathError> {
    let top = SafeRoot::open(Path::new("/"))?;
    let spot = Walk::run(&top, 0, path)?;
    Ok(SafePath { below_root: Path::new("/").join(&spot.below_root), ..spot })
}

struct Walk<'a> {
    root: &'a SafeRoot,
    /// The entered folders with their names, outermost first.
    held: Vec<(OsString, OwnedFd)>,
    /// The names below them that do not exist.
    missing: Vec<OsString>,
    /// The remaining names, last first; `..` leads upward.
    ahead: Vec<OsString>,
    most_links: usize,
}

impl<'a> Walk<'a> {
    /// Prepends a path to the remaining names; an absolute path starts again at the root.
    fn plan(&mut self, path: &Path) -> Result<(), SafePathError> {
        let inside = if path.is_absolute() {
            self.held.clear();
            let inside = self.root.names.iter().find_map(|name| path.strip_prefix(name).ok());
            inside.ok_or(SafePathError::Outside)?
        } else {
            path
        };
        for component in inside.components().rev() {
            match component {
                Component::CurDir => {}
                Component::ParentDir | Component::Normal(_) => {
                    self.ahead.push(component.as_os_str().into());
                }
                Component::RootDir | Component::Prefix(_) => return Err(SafePathError::Outside),
            }
        }
        if self.ahead.len() > MOST_NAMES { Err(Errno::ENAMETOOLONG.into()) } else { Ok(()) }
    }

    fn run(root: &'a SafeRoot, most_links: usize, path: &Path) -> Result<SafePath, SafePathError> {
        let (held, missing, ahead) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = Self { root, held, missing, ahead, most_links };
        walk.plan(path)?;
        let mut links = 0;
        while let Some(name) = walk.ahead.pop() {
            match (name == "..", walk.missing.is_empty()) {
                (true, true) => drop(walk.held.pop().ok_or(SafePathError::Outside)?),
                (true, false) => return Err(SafePathError::Nowhere),
                (false, true) => walk.enter(name, &mut links)?,
                (false, false) => walk.missing.push(name),
            }
        }
        // The last name is a file or does not exist: a folder would be among the held ones.
        let name = walk.missing.pop().ok_or(SafePathError::Folder)?;
        let below_root = walk.held.iter().map(|(name, _)| name).collect();
        let folder = match walk.held.pop() {
            Some((_, folder)) => folder,
            None => root.folder.try_clone()?,
        };
        Ok(SafePath { folder, below_root, missing: walk.missing, name })
    }

    /// Walks one step, to a name in the folder that was reached last.
    fn enter(&mut self, name: OsString, links: &mut usize) -> Result<(), SafePathError> {
        let here = self.held.last().map_or(self.root.folder.as_fd(), |(_, folder)| folder.as_fd());
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let object = match openat(here, name.as_os_str(), flags, Mode::empty()) {
            Err(Errno::ENOENT) => {
                self.missing.push(name);
                return Ok(());
            }
            object => object?,
        };
        match kind(&fstat(&object)?) {
            SFlag::S_IFDIR => self.held.push((name, object)),
            SFlag::S_IFLNK if self.most_links == 0 => return Err(SafePathError::Link),
            SFlag::S_IFLNK if *links == self.most_links => return Err(Errno::ELOOP.into()),
            SFlag::S_IFLNK => {
                *links += 1;
                self.plan(readlinkat(object.as_fd(), "")?.as_ref())?;
            }
            _ if self.ahead.is_empty() => self.missing.push(name),
            _ => return Err(Errno::ENOTDIR.into()),
        }
        Ok(())
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

impl SafePath {
    /// Returns the path below the root, without links and dots.
    pub(crate) fn path(&self) -> PathBuf {
        self.missing.iter().chain([&self.name]).fold(self.below_root.clone(), |p, n| p.join(n))
    }

    /// Opens the regular file; `None` if there is none. Fails for any other object.
    pub(crate) fn open(&self) -> Result<Option<File>, SafePathError> {
        if !self.missing.is_empty() || self.known(self.folder.as_fd())?.is_none() {
            return Ok(None);
        }
        // The object may have been replaced: a pipe must not block the open, and no link is followed.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let flags = flags | OFlag::O_CLOEXEC;
        let file = openat(&self.folder, self.name.as_os_str(), flags, Mode::empty())?;
        regular(fstat(&file)?)?;
        Ok(Some(file.into()))
    }

    /// Replaces or creates the file in one step: readers see the old contents or the new. An existing file
    /// keeps its mode; missing folders are created. A file that cannot be written stays as it was.
    pub(crate) fn replace(&self, bytes: &[u8]) -> Result<(), SafePathError> {
        let folder = self.make_folders()?;
        let old = self.known(folder.as_fd())?;
        if old.is_some() {
            // A rename ignores the mode of the file, so check that it is writable.
            faccessat(&folder, self.name.as_os_str(), AccessFlags::W_OK, AtFlags::AT_EACCESS)?;
        }
        let draft = OsString::from(format!(".{}.draft", uuid::Uuid::now_v7().simple()));
        let written = self.write(folder.as_fd(), &draft, old.as_ref(), bytes);
        if written.is_err() {
            // The first error is the one to report.
            unlinkat(&folder, draft.as_os_str(), UnlinkatFlags::NoRemoveDir).unwrap_or_default();
        }
        written
    }

    /// Returns the metadata of the regular file; `None` if there is none.
    fn known(&self, folder: BorrowedFd<'_>) -> Result<Option<FileStat>, SafePathError> {
        match fstatat(folder, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(None),
            stat => regular(stat?).map(Some),
        }
    }

    fn make_folders(&self) -> Result<OwnedFd, SafePathError> {
        let mut folder = self.folder.try_clone()?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for name in &self.missing {
            match mkdirat(&folder, name.as_os_str(), Mode::from_bits_truncate(0o777)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(why) => return Err(why.into()),
            }
            folder = openat(&folder, name.as_os_str(), flags, Mode::empty())?;
        }
        Ok(folder)
    }

    fn write(
        &self,
        folder: BorrowedFd<'_>,
        draft: &OsStr,
        old: Option<&FileStat>,
        bytes: &[u8],
    ) -> Result<(), SafePathError> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(folder, draft, flags, Mode::from_bits_truncate(0o666))?);
        file.write_all(bytes)?;
        if let Some(old) = old {
            // Only root may set the owner; otherwise the file becomes this user's, as with an editor.
            let (user, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            fchown(&file, Some(user), Some(group)).unwrap_or_default();
            fchmod(&file, Mode::from_bits_truncate(old.st_mode))?;
        }
        check_blocking("fsync");
        file.sync_data()?;
        Ok(renameat(folder, draft, folder, self.name.as_os_str())?)
    }
}

fn regular(stat: FileStat) -> Result<FileStat, SafePathError> {
    Err(match kind(&stat) {
        SFlag::S_IFREG => return Ok(stat),
        SFlag::S_IFDIR => SafePathError::Folder,
        SFlag::S_IFIFO => SafePathError::Special("a named pipe"),
        SFlag::S_IFSOCK => SafePathError::Special("a socket"),
        SFlag::S_IFLNK => SafePathError::Special("a link put there just now"),
        _ => SafePathError::Special("a device"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tempfile::{TempDir, tempdir};

    fn root() -> (TempDir, SafeRoot) {
        let folder = tempdir().unwrap();
        let root = SafeRoot::open(folder.path()).unwrap();
        (folder, root)
    }

    fn read(root: &SafeRoot, path: &str) -> Result<Option<String>, SafePathError> {
        let file = root.find(path.as_ref())?.open()?;
        Ok(file.map(io::read_to_string).transpose()?)
    }

    fn write(root: &SafeRoot, path: &str, text: &str) -> Result<(), SafePathError> {
        root.find(path.as_ref())?.replace(text.as_bytes())
    }

    #[test]
    fn a_file_is_replaced_in_one_step_and_keeps_its_mode() {
        let (folder, root) = root();
        assert_eq!(read(&root, "a/b/script").unwrap(), None);
        write(&root, "a/b/script", "one").unwrap();
        let script = folder.path().join("a/b/script");
        fs::set_permissions(&script, Permissions::from_mode(0o751)).unwrap();
        symlink("a/b/script", folder.path().join("link")).unwrap();
        fs::hard_link(&script, folder.path().join("hard_link")).unwrap();
        let reader = File::open(&script).unwrap();
        write(&root, "link", "two").unwrap();

        assert_eq!(io::read_to_string(reader).unwrap(), "one");
        assert_eq!(read(&root, "hard_link").unwrap().unwrap(), "one", "it is cut");
        assert_eq!(read(&root, "a/b/script").unwrap().unwrap(), "two");
        assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o7777, 0o751);
        assert!(folder.path().join("link").is_symlink());
        assert_eq!(fs::read_dir(folder.path().join("a/b")).unwrap().count(), 1);
    }

    #[test]
    fn without_a_folder_to_stay_in_no_link_is_followed() {
        let (_folder, root) = root();
        let real = root.path();
        fs::create_dir(real.join("sub")).unwrap();
        symlink("sub", real.join("link")).unwrap();
        symlink("sub/a", real.join("last")).unwrap();
        anywhere(&real.join("sub/a")).unwrap().replace(b"one").unwrap();
        let spot = anywhere(&real.join("sub/../sub/a")).unwrap();
        assert_eq!(spot.path(), real.join("sub/a"));
        assert_eq!(io::read_to_string(spot.open().unwrap().unwrap()).unwrap(), "one");
        for path in ["link/a", "last", "link/../sub/a", "link/new"] {
            let found = anywhere(&real.join(path));
            assert!(matches!(found, Err(SafePathError::Link)), "{path}: {found:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_regular_is_refused_without_waiting() {
        let (folder, root) = root();
        nix::unistd::mkfifo(&folder.path().join("pipe"), Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        let devices = SafeRoot::open(Path::new("/dev")).unwrap();
        for (root, path, says) in [
            (&root, "pipe", "a named pipe"),
            (&root, "socket", "a socket"),
            (&root, "folder", "a folder"),
            (&devices, "zero", "a device"),
            (&devices, "null", "a device"),
        ] {
            for refused in [read(root, path).map(drop), write(root, path, "x")] {
                let why = refused.unwrap_err().to_string();
                assert!(why.contains(says), "{path}: {why}");
            }
        }
    }

    #[test]
    fn a_read_only_file_is_not_changed() {
        let (folder, root) = root();
        write(&root, "file", "old").unwrap();
        fs::set_permissions(folder.path().join("file"), Permissions::from_mode(0o444)).unwrap();
        // Root may write everything.
        if !Uid::effective().is_root() {
            assert!(write(&root, "file", "new").is_err());
            assert_eq!(read(&root, "file").unwrap().unwrap(), "old");
        }
    }

    /// A thread swaps a folder for a link to the outside and back while files are read and written through
    /// its name. A check before the open would be led outside.
    #[test]
    fn a_folder_swapped_for_a_link_is_not_followed() {
        let ((folder, root), (outside, outside_root)) = (root(), root());
        let [door, trap] = ["door", "trap"].map(|name| folder.path().join(name));
        fs::create_dir(&door).unwrap();
        symlink(outside.path(), &trap).unwrap();
        write(&outside_root, "file", "secret").unwrap();
        write(&root, "door/file", "ours").unwrap();

        let done = AtomicBool::new(false);
        let tries: Vec<_> = std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let exchange = RenameFlags::RENAME_EXCHANGE;
                    renameat2(AT_FDCWD, &door, AT_FDCWD, &trap, exchange).unwrap();
                }
            });
            let both = |_| (read(&root, "door/file"), write(&root, "door/file", "ours"));
            let tries = (0..2000).map(both).collect();
            done.store(true, Ordering::Relaxed);
            tries
        });
        let mut led_away = 0;
        for (read, written) in tries {
            match read {
                Ok(text) => assert_eq!(text.as_deref(), Some("ours")),
                Err(SafePathError::Outside) => led_away += 1,
                Err(why) => panic!("{why}"),
            }
            assert!(matches!(written, Ok(()) | Err(SafePathError::Outside)), "{written:?}");
        }
        assert!(led_away > 0, "the swapper never won, so nothing was tried");
        assert_eq!(read(&outside_root, "file").unwrap().unwrap(), "secret");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}
