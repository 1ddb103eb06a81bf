//! Resolves a path to a file below a folder, in spite of links, dots and races.
//!
//! A path is walked name by name. Each folder is held by its descriptor, and each link is read and walked in
//! turn, so no name is resolved twice. This does what `openat2` with `RESOLVE_BENEATH` does and more: it returns
//! the real name of a file, follows links that name the folder itself by an absolute path, and works on every
//! kernel. Links of `/proc` to objects are followed by their text only. Without a root folder ([`anywhere`]) no
//! link is followed at all.

mod draft;
#[cfg(test)]
mod tests;

pub(crate) use draft::{DraftFile, Placement};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
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

    /// Opens the regular file at a path below this folder, in which no name is a link; `None` if there is none. One call
    /// of the kernel where it has `openat2`.
    pub(crate) fn open_without_links(&self, path: &Path) -> Result<Option<File>, SafePathError> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let file = match openat2(&self.folder, path, OpenHow::new().flags(flags).resolve(resolve)) {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ENOSYS | Errno::EPERM) => return Walk::run(self, 0, path)?.open(),
            Err(Errno::ELOOP) => return Err(SafePathError::Link),
            Err(why) => return Err(why.into()),
        };
        regular(fstat(&file)?)?;
        Ok(Some(file))
    }

    /// Resolves a path like [`SafeRoot::find`], but also that of a folder. Returns it relative to this folder, without
    /// links and dots; empty for this folder itself.
    pub(crate) fn resolve(&self, path: &Path) -> Result<PathBuf, SafePathError> {
        let walk = Walk::to_end(self, MOST_LINKS, path)?;
        let held = walk.held.iter().map(|(name, _)| name);
        Ok(held.chain(&walk.missing).collect())
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
        let mut walk = Self::to_end(root, most_links, path)?;
        // The last name is a file or does not exist: a folder would be among the held ones.
        let name = walk.missing.pop().ok_or(SafePathError::Folder)?;
        let below_root = walk.held.iter().map(|(name, _)| name).collect();
        let folder = match walk.held.pop() {
            Some((_, folder)) => folder,
            None => root.folder.try_clone()?,
        };
        Ok(SafePath { folder, below_root, missing: walk.missing, name })
    }

    fn to_end(root: &'a SafeRoot, most_links: usize, path: &Path) -> Result<Self, SafePathError> {
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
        Ok(walk)
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
        // The object may have been replaced.
        let file = open_in(&self.folder, &self.name)?;
        regular(fstat(&file)?)?;
        Ok(Some(file))
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
}

/// Opens a file of a folder for reading. A pipe does not block the open, and no link is followed.
fn open_in(folder: &OwnedFd, name: &OsStr) -> nix::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    Ok(openat(folder, name, flags | OFlag::O_CLOEXEC, Mode::empty())?.into())
}

fn regular(stat: FileStat) -> Result<FileStat, SafePathError> {
    Err(match kind(&stat) {
        SFlag::S_IFREG => return Ok(stat),
        SFlag::S_IFDIR => SafePathError::Folder,
        SFlag::S_IFIFO => SafePathError::Special("a named pipe"),
        SFlag::S_IFSOCK => SafePathError::Special("a socket"),
        SFlag::S_IFLNK => SafePathError::Special("a link created just now"),
        _ => SafePathError::Special("a device"),
    })
}
