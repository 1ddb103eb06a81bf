//! Opens files safely: no link is followed, no open blocks, and the result is a regular file of this user.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

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
    /// Reading.
    Read,
    /// Reading, and writing anywhere.
    Update,
    /// Reading anywhere, and writing at the end.
    Append,
}

/// Whether the file must exist, may exist, or must not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existence {
    Required,
    Optional,
    Forbidden,
}

/// Opens an existing file.
pub(crate) fn open(path: &Path, access: Access) -> Result<File, FileError> {
    open_with(path, access, Existence::Required).map(|(file, _)| file)
}

/// As [`open`], with the metadata of the file.
pub(crate) fn open_known(path: &Path, access: Access) -> Result<(File, Metadata), FileError> {
    open_with(path, access, Existence::Required)
}

/// Opens a file, or creates it.
pub(crate) fn open_or_create(path: &Path, access: Access) -> Result<File, FileError> {
    open_with(path, access, Existence::Optional).map(|(file, _)| file)
}

/// Creates a file that must not exist.
pub(crate) fn create_new(path: &Path, access: Access) -> Result<File, FileError> {
    open_with(path, access, Existence::Forbidden).map(|(file, _)| file)
}

/// No link is followed and no open blocks. The access time is not updated, since that would cost more than
/// the read.
const OPEN_FLAGS: i32 = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_NOATIME;

fn open_with(
    path: &Path,
    access: Access,
    existence: Existence,
) -> Result<(File, Metadata), FileError> {
    let opened = OpenOptions::new()
        .read(true)
        .write(access == Access::Update)
        .append(access == Access::Append)
        .create(existence == Existence::Optional)
        .create_new(existence == Existence::Forbidden)
        .mode(0o600)
        .custom_flags(OPEN_FLAGS)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(source) => return Err(explain(path, source)),
    };
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
pub(crate) fn check(path: &Path, known: &Metadata) -> Result<(), FileError> {
    if let Some(kind) = odd_kind(known) {
        return Err(FileError::NotRegular { path: path.into(), kind });
    }
    check_owner(path, known)
}

/// Refuses a file of another user.
pub(crate) fn check_owner(path: &Path, known: &Metadata) -> Result<(), FileError> {
    let owner = known.uid();
    if owner != user() {
        return Err(FileError::ForeignOwner { path: path.into(), owner });
    }
    Ok(())
}

/// Returns the effective user id, which these programs never change.
fn user() -> u32 {
    static USER: OnceLock<u32> = OnceLock::new();
    *USER.get_or_init(|| nix::unistd::geteuid().as_raw())
}

/// Replaces the system's error for an object that is no file of this user by one that names it.
fn explain(path: &Path, source: io::Error) -> FileError {
    let odd = fs::symlink_metadata(path).ok().and_then(|known| check(path, &known).err());
    odd.unwrap_or_else(|| FileError::Io { path: path.into(), source })
}

fn odd_kind(known: &Metadata) -> Option<&'static str> {
    let kind = known.file_type();
    if kind.is_file() {
        None
    } else if kind.is_symlink() {
        Some("a symbolic link")
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}
