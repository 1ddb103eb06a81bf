//! Opening files so that nothing planted under their name can do harm: no link is followed, nothing
//! blocks, and what was opened is a regular file of this user.
//!
//! *Invariant:* it knows no path of its own; who opens what is decided elsewhere.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What went wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else stands where a file should be.
    #[error("{} is {kind}, not a regular file", path.display())]
    NotRegular {
        /// Where.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The file is somebody else's.
    #[error("{} belongs to user {owner}, not to you", path.display())]
    ForeignOwner {
        /// The file.
        path: PathBuf,
        /// The user id it belongs to.
        owner: u32,
    },
}

impl FileError {
    /// The file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Names the file an `io::Error` is about.
pub(crate) trait At<T> {
    /// The same result, its error knowing `path`.
    fn at(self, path: &Path) -> Result<T, FileError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError::Io { path: path.into(), source })
    }
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading.
    Read,
    /// Reading, and writing anywhere.
    Update,
    /// Reading anywhere, and writing at the end.
    Append,
}

/// What happens when the file is missing or there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existence {
    Required,
    Optional,
    Forbidden,
}

/// Opens a file that exists.
pub(crate) fn open(path: &Path, access: Access) -> Result<File, FileError> {
    open_with(path, access, Existence::Required).map(|(file, _)| file)
}

/// Like [`open`], with what is known about the file at that moment.
pub(crate) fn open_known(path: &Path, access: Access) -> Result<(File, Metadata), FileError> {
    open_with(path, access, Existence::Required)
}

/// Opens a file, making it when it is missing.
pub(crate) fn open_or_create(path: &Path, access: Access) -> Result<File, FileError> {
    open_with(path, access, Existence::Optional).map(|(file, _)| file)
}

/// Makes a file that must not exist yet.
pub(crate) fn create_new(path: &Path, access: Access) -> Result<File, FileError> {
    open_with(path, access, Existence::Forbidden).map(|(file, _)| file)
}

/// No link is followed, nothing blocks; and a look at the end of a file does not dirty its inode (access
/// times), which would cost more than the look.
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

/// Gives a file that much room on the disk.
pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let length = i64::try_from(bytes).map_err(io::Error::other)?;
    Ok(nix::fcntl::posix_fallocate(file, 0, length)?)
}

/// Refuses what is no regular file of this user.
pub(crate) fn check(path: &Path, known: &Metadata) -> Result<(), FileError> {
    if let Some(kind) = odd_kind(known) {
        return Err(FileError::NotRegular { path: path.into(), kind });
    }
    check_owner(path, known)
}

/// Refuses what belongs to another user.
pub(crate) fn check_owner(path: &Path, known: &Metadata) -> Result<(), FileError> {
    let owner = known.uid();
    if owner != user() {
        return Err(FileError::ForeignOwner { path: path.into(), owner });
    }
    Ok(())
}

/// Who we are. Asked once: these programs never change it.
fn user() -> u32 {
    static USER: OnceLock<u32> = OnceLock::new();
    *USER.get_or_init(|| nix::unistd::geteuid().as_raw())
}

/// Opening what is no file of ours fails with codes that explain nothing: say what stands there.
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
