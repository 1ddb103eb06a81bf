//! Opens files safely: no link is followed, no open blocks, and the result is a regular file of this user.

use nix::libc;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system call failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error("{} is {kind}, not a regular file", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
        /// The kind of object at the path.
        kind: &'static str,
    },
    /// The file belongs to another user.
    #[error("{} belongs to user {owner}, not to you", path.display())]
    ForeignOwner {
        /// The path of the file.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
    },
}

impl FileError {
    /// Whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Adds the path to an `io::Error`.
pub(crate) trait At<T> {
    /// Returns the same result with the path in its error.
    fn at(self, path: &Path) -> Result<T, FileError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError::Io { path: path.into(), source })
    }
}

/// The access that a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Reading, and writing anywhere.
    Update,
    /// Reading anywhere, and writing at the end.
    Append,
}

/// No link is followed and no open blocks. The access time is not updated, since that would cost more than
/// the read.
const OPEN_FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOATIME;

impl Access {
    fn options(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(self == Self::Update).append(self == Self::Append);
        options.mode(0o600).custom_flags(OPEN_FLAGS);
        options
    }
}

/// Opens an existing file.
pub(crate) fn open(path: &Path, access: Access) -> Result<File, FileError> {
    open_known(path, access).map(|(file, _)| file)
}

/// As [`open`], with the metadata of the file.
pub(crate) fn open_known(path: &Path, access: Access) -> Result<(File, Metadata), FileError> {
    open_with(path, &access.options())
}

/// Opens a file, or creates it.
pub(crate) fn open_or_create(path: &Path, access: Access) -> Result<File, FileError> {
    open_with(path, access.options().create(true)).map(|(file, _)| file)
}

/// Creates a file that must not exist.
pub(crate) fn create_new(path: &Path, access: Access) -> Result<File, FileError> {
    open_with(path, access.options().create_new(true)).map(|(file, _)| file)
}

fn open_with(path: &Path, options: &OpenOptions) -> Result<(File, Metadata), FileError> {
    let file = options.open(path).map_err(|source| explain(path, source))?;
    let known = file.metadata().at(path)?;
    check(path, &known)?;
    Ok((file, known))
}

/// Allocates disk space for a file.
pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let length = i64::try_from(bytes).map_err(io::Error::other)?;
    Ok(nix::fcntl::posix_fallocate(file, 0, length)?)
}

/// Refuses a file that is not regular or belongs to another user.
fn check(path: &Path, known: &Metadata) -> Result<(), FileError> {
    let kind = match known.mode() & libc::S_IFMT {
        libc::S_IFREG => return check_owner(path, known),
        libc::S_IFLNK => "a symbolic link",
        libc::S_IFDIR => "a folder",
        libc::S_IFIFO => "a pipe",
        libc::S_IFSOCK => "a socket",
        _ => "a device",
    };
    Err(FileError::NotRegular { path: path.into(), kind })
}

/// Refuses a file of another user.
pub(crate) fn check_owner(path: &Path, known: &Metadata) -> Result<(), FileError> {
    // These programs never change their effective user.
    static USER: LazyLock<u32> = LazyLock::new(|| nix::unistd::geteuid().as_raw());
    let owner = known.uid();
    if owner == *USER { Ok(()) } else { Err(FileError::ForeignOwner { path: path.into(), owner }) }
}

/// Replaces the system's error for an object that is no file of this user by one that names it.
fn explain(path: &Path, source: io::Error) -> FileError {
    let odd = fs::symlink_metadata(path).ok().and_then(|known| check(path, &known).err());
    odd.unwrap_or_else(|| FileError::Io { path: path.into(), source })
}
