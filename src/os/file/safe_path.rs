//! Finds a file below a folder, whatever links, dots or races are in the way.
//!
//! A path is walked name by name; each folder is held by descriptor and each link is read and walked in
//! turn, so no name is resolved twice. This does what `openat2` with `RESOLVE_BENEATH` does and more: it
//! returns the real name of a file, follows links that name the folder itself by an absolute path, and
//! works on every kernel. Links of `/proc` to objects are followed by their text only. Without a root
//! folder ([`anywhere`]) no link is followed at all.

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

/// The number of names in a path; each folder on the way takes a descriptor.
const MOST_NAMES: usize = 256;

/// Why a path was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SafePathError {
    /// The path leads out of the folder.
    #[error("leads out of the folder")]
    Outside,
    /// A name is a link where none is followed.
    #[error("leads through a link")]
    Link,
    /// The path names a folder instead of a file.
    #[error("is a folder")]
    Folder,
    /// The path names a pipe, a socket or a device.
    #[error("is {0}, not a regular file")]
    Special(&'static str),
    /// The path leads upward from a folder that does not exist.
    #[error("leads through a folder that does not exist")]
    Nowhere,
    /// A system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for SafePathError {
    fn from(why: Errno) -> Self {
        Self::Io(why.into())
    }
}

/// A folder that no path leaves.
#[derive(Debug)]
pub(crate) struct SafeRoot {
    folder: OwnedFd,
    /// Its absolute names: as given, and without links.
    names: Vec<PathBuf>,
}

/// The place of a file that exists or can be created: a name in a held folder, perhaps below missing
/// folders.
#[derive(Debug)]
pub(crate) struct Spot {
    folder: OwnedFd,
    below_root: PathBuf,
    missing: Vec<OsString>,
    name: OsString,
}

impl SafeRoot {
    /// Opens a folder.
    ///
    /// # Errors
    /// It does not exist or may not be entered.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let real = path.canonicalize()?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = nix::fcntl::open(&real, flags, Mode::empty())?;
        Ok(Self { folder, names: vec![path.to_owned(), real] })
    }

    /// Returns the name of the folder without links.
    pub(crate) fn path(&self) -> &Path {
        self.names.last().map_or(Path::new("/"), PathBuf::as_path)
    }

    /// Finds the place of a path that is relative to this folder, or absolute and inside it.
    ///
    /// # Errors
    /// The place is outside, is a folder, or cannot be reached.
    pub(crate) fn find(&self, path: &Path) -> Result<Spot, SafePathError> {
        Walk::of(self, MOST_LINKS).run(path)
    }
}

/// Finds the place of an absolute path in which no name is a link. The path of the result is absolute as
/// well.
///
/// # Errors
/// The path leads through a link, is a folder, or cannot be reached.
pub(crate) fn anywhere(path: &Path) -> Result<Spot, SafePathError> {
    let top = SafeRoot::open(Path::new("/"))?;
    let spot = Walk::of(&top, 0).run(path)?;
    Ok(Spot { below_root: Path::new("/").join(&spot.below_root), ..spot })
}

/// The walk along a path.
struct Walk<'a> {
    root: &'a SafeRoot,
    /// The entered folders with their names, outermost first.
    held: Vec<(OsString, OwnedFd)>,
    /// The names below them that do not exist.
    missing: Vec<OsString>,
    /// The remaining steps, last first.
    ahead: Vec<Step>,
    /// The number of links that may be followed.
    most_links: usize,
}

enum Step {
    Up,
    Down(OsString),
}

impl<'a> Walk<'a> {
    fn of(root: &'a SafeRoot, most_links: usize) -> Self {
        Self { root, held: Vec::new(), missing: Vec::new(), ahead: Vec::new(), most_links }
    }

    /// Prepends a path to the remaining steps; an absolute path starts again at the root.
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
                Component::ParentDir => self.ahead.push(Step::Up),
                Component::Normal(name) => self.ahead.push(Step::Down(name.to_owned())),
                Component::RootDir | Component::Prefix(_) => return Err(SafePathError::Outside),
            }
        }
        if self.ahead.len() > MOST_NAMES { Err(Errno::ENAMETOOLONG.into()) } else { Ok(()) }
    }

    fn run(mut self, path: &Path) -> Result<Spot, SafePathError> {
        self.plan(path)?;
        let mut links = 0;
        while let Some(step) = self.ahead.pop() {
            match step {
                Step::Up if !self.missing.is_empty() => return Err(SafePathError::Nowhere),
                Step::Up => drop(self.held.pop().ok_or(SafePathError::Outside)?),
                Step::Down(name) if !self.missing.is_empty() => self.missing.push(name),
                Step::Down(name) => match self.look(&name)? {
                    Found::Nothing => self.missing.push(name),
                    Found::Folder(folder) => self.held.push((name, folder)),
                    Found::Link(_) if self.most_links == 0 => return Err(SafePathError::Link),
                    Found::Link(target) => {
                        links += 1;
                        if links > self.most_links {
                            return Err(Errno::ELOOP.into());
                        }
                        self.plan(&target)?;
                    }
                    Found::File if self.ahead.is_empty() => self.missing.push(name),
                    Found::File => return Err(Errno::ENOTDIR.into()),
                },
            }
        }
        // The last name is a file or missing: a folder would be among the held ones.
        let name = self.missing.pop().ok_or(SafePathError::Folder)?;
        let below_root = self.held.iter().map(|(name, _)| name).collect();
        let folder = match self.held.pop() {
            Some((_, folder)) => folder,
            None => self.root.folder.try_clone()?,
        };
        Ok(Spot { folder, below_root, missing: self.missing, name })
    }

    fn look(&self, name: &OsStr) -> Result<Found, SafePathError> {
        let here = self.held.last().map_or(self.root.folder.as_fd(), |(_, folder)| folder.as_fd());
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let object = match openat(here, name, flags, Mode::empty()) {
            Err(Errno::ENOENT) => return Ok(Found::Nothing),
            object => object?,
        };
        Ok(match kind(&fstat(&object)?) {
            SFlag::S_IFDIR => Found::Folder(object),
            SFlag::S_IFLNK => Found::Link(readlinkat(object.as_fd(), "")?.into()),
            _ => Found::File,
        })
    }
}

enum Found {
    Nothing,
    Folder(OwnedFd),
    Link(PathBuf),
    File,
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

impl Spot {
    /// Returns the path below the root, without links and dots.
    pub(crate) fn path(&self) -> PathBuf {
        self.missing.iter().chain([&self.name]).fold(self.below_root.clone(), |p, n| p.join(n))
    }

    /// Opens the regular file; `None` if there is none.
    ///
    /// # Errors
    /// The object is not a regular file, or may not be read.
    pub(crate) fn open(&self) -> Result<Option<File>, SafePathError> {
        if !self.missing.is_empty() {
            return Ok(None);
        }
        match self.stat_in(self.folder.as_fd()) {
            Err(Errno::ENOENT) => return Ok(None),
            stat => regular(&stat?)?,
        }
        // The object may have been replaced: a pipe must not block the open, and no link is followed.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let flags = flags | OFlag::O_CLOEXEC;
        let file = openat(&self.folder, self.name.as_os_str(), flags, Mode::empty())?;
        regular(&fstat(&file)?)?;
        Ok(Some(file.into()))
    }

    /// Replaces or creates the file in one step: readers see the old contents or the new. An existing file
    /// keeps its mode; missing folders are created.
    ///
    /// # Errors
    /// The file cannot be written, and stays as it was.
    pub(crate) fn replace(&self, bytes: &[u8]) -> Result<(), SafePathError> {
        let folder = self.make_folders()?;
        let old = match self.stat_in(folder.as_fd()) {
            Err(Errno::ENOENT) => None,
            stat => {
                let stat = stat?;
                regular(&stat)?;
                // A rename ignores the mode of the file, so check that it is writable.
                faccessat(&folder, self.name.as_os_str(), AccessFlags::W_OK, AtFlags::AT_EACCESS)?;
                Some(stat)
            }
        };
        let draft = OsString::from(format!(".{}.draft", uuid::Uuid::now_v7().simple()));
        let written = self.write(folder.as_fd(), &draft, old.as_ref(), bytes);
        if written.is_err() {
            // The first error is the one to report.
            unlinkat(&folder, draft.as_os_str(), UnlinkatFlags::NoRemoveDir).unwrap_or_default();
        }
        written
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

    fn stat_in(&self, folder: BorrowedFd<'_>) -> Result<FileStat, Errno> {
        fstatat(folder, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    fn write(
        &self,
        folder: BorrowedFd<'_>,
        draft: &OsStr,
        old: Option<&FileStat>,
        bytes: &[u8],
    ) -> Result<(), SafePathError> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let file = openat(folder, draft, flags, Mode::from_bits_truncate(0o666))?;
        let mut file = File::from(file);
        file.write_all(bytes)?;
        if let Some(old) = old {
            // Only root may change the owner; otherwise the file changes owner, as with an editor.
            let (user, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            fchown(&file, Some(user), Some(group)).unwrap_or_default();
            fchmod(&file, Mode::from_bits_truncate(old.st_mode))?;
        }
        check_blocking("fsync");
        file.sync_data()?;
        renameat(folder, draft, folder, self.name.as_os_str())?;
        Ok(())
    }
}

fn regular(stat: &FileStat) -> Result<(), SafePathError> {
    Err(match kind(stat) {
        SFlag::S_IFREG => return Ok(()),
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
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn read(root: &SafeRoot, path: &str) -> Result<Option<String>, SafePathError> {
        let Some(mut file) = root.find(path.as_ref())?.open()? else { return Ok(None) };
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(Some(text))
    }

    fn write(root: &SafeRoot, path: &str, text: &str) -> Result<(), SafePathError> {
        root.find(path.as_ref())?.replace(text.as_bytes())
    }

    #[test]
    fn a_file_is_replaced_in_one_step_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let root = SafeRoot::open(folder.path()).unwrap();
        assert_eq!(read(&root, "a/b/script").unwrap(), None);
        write(&root, "a/b/script", "one").unwrap();
        let script = folder.path().join("a/b/script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o751)).unwrap();
        symlink("a/b/script", folder.path().join("link")).unwrap();
        let mut reader = fs::File::open(&script).unwrap();
        write(&root, "link", "two").unwrap();

        let mut old = String::new();
        reader.read_to_string(&mut old).unwrap();
        assert_eq!(old, "one");
        assert_eq!(read(&root, "a/b/script").unwrap().unwrap(), "two");
        assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o7777, 0o751);
        assert!(folder.path().join("link").is_symlink());
        assert_eq!(fs::read_dir(folder.path().join("a/b")).unwrap().count(), 1);
    }

    #[test]
    fn without_a_folder_to_stay_in_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::create_dir(real.join("sub")).unwrap();
        symlink("sub", real.join("link")).unwrap();
        symlink("sub/a", real.join("last")).unwrap();
        anywhere(&real.join("sub/a")).unwrap().replace(b"one").unwrap();
        let spot = anywhere(&real.join("sub/../sub/a")).unwrap();
        assert_eq!(spot.path(), real.join("sub/a"));
        let mut text = String::new();
        spot.open().unwrap().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "one");
        for path in ["link/a", "last", "link/../sub/a", "link/new"] {
            let found = anywhere(&real.join(path));
            assert!(matches!(found, Err(SafePathError::Link)), "{path}: {found:?}");
        }
    }

    #[test]
    fn a_hard_link_to_elsewhere_is_cut_not_written_through() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = SafeRoot::open(elsewhere.path()).unwrap();
        write(&root, "precious", "old").unwrap();
        fs::hard_link(elsewhere.path().join("precious"), folder.path().join("mine")).unwrap();
        write(&SafeRoot::open(folder.path()).unwrap(), "mine", "new").unwrap();
        assert_eq!(read(&root, "precious").unwrap().unwrap(), "old");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let root = SafeRoot::open(folder.path()).unwrap();
        nix::unistd::mkfifo(&folder.path().join("pipe"), Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        for (path, says) in
            [("pipe", "a named pipe"), ("socket", "a socket"), ("folder", "a folder")]
        {
            let why = read(&root, path).unwrap_err().to_string();
            assert!(why.contains(says), "{path}: {why}");
            let why = write(&root, path, "x").unwrap_err().to_string();
            assert!(why.contains(says), "{path}: {why}");
        }
        let devices = SafeRoot::open(Path::new("/dev")).unwrap();
        assert!(read(&devices, "zero").unwrap_err().to_string().contains("a device"));
        assert!(write(&devices, "null", "x").unwrap_err().to_string().contains("a device"));
    }

    #[test]
    fn what_may_not_be_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let root = SafeRoot::open(folder.path()).unwrap();
        write(&root, "file", "old").unwrap();
        let read_only = fs::Permissions::from_mode(0o444);
        fs::set_permissions(folder.path().join("file"), read_only).unwrap();
        // SafeRoot may write everything.
        if !Uid::effective().is_root() {
            assert!(write(&root, "file", "new").is_err());
            assert_eq!(read(&root, "file").unwrap().unwrap(), "old");
        }
    }

    /// A thread swaps a folder for a link to the outside and back while files are read and written through
    /// its name. A check before the open would be led outside.
    #[test]
    fn a_race_cannot_be_won() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(folder.path().join("door")).unwrap();
        symlink(outside.path(), folder.path().join("trap")).unwrap();
        let root = SafeRoot::open(outside.path()).unwrap();
        write(&root, "file", "secret").unwrap();
        let root = SafeRoot::open(folder.path()).unwrap();
        write(&root, "door/file", "ours").unwrap();

        let done = AtomicBool::new(false);
        let tries: Vec<_> = std::thread::scope(|threads| {
            threads.spawn(|| {
                let (door, trap) = (folder.path().join("door"), folder.path().join("trap"));
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
        let root = SafeRoot::open(outside.path()).unwrap();
        assert_eq!(read(&root, "file").unwrap().unwrap(), "secret");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}
