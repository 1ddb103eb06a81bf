//! Files: watches them, resolves paths below a folder, and opens them safely: no link is followed, no open
//! blocks, and the result is a regular file of this user.

pub(crate) mod held_folder;
pub(crate) mod lease;
pub(crate) mod safe_path;
pub(crate) mod watch;

use held_folder::HeldFolder;
use nix::fcntl::OFlag;
use nix::libc;
use nix::unistd::{AccessFlags, access};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A system call on the path failed.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, #[source] io::Error),
    /// The object at the path is not a regular file but of this kind.
    #[error("{} is {}, not a regular file", .0.display(), .1)]
    NotRegular(PathBuf, &'static str),
    /// The file at the path belongs to the user with this id.
    #[error("{} belongs to user {}, not to you", .0.display(), .1)]
    ForeignOwner(PathBuf, u32),
}

impl FileError {
    /// Whether there is something else at the path already.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Io(_, source) if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io(_, source) if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Adds the path to an `io::Error`.
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T, FileError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError::Io(path.into(), source))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Reading, and writing anywhere.
    Update,
    /// Reading anywhere, and writing at the end.
    Append,
}

/// The flags of every open: no link is followed and no open blocks. `O_NOATIME`, because an update of the access
/// time would cost more than the read.
const OPEN_FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOATIME;

impl Access {
    fn options(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(self == Self::Update).append(self == Self::Append);
        options.mode(0o600).custom_flags(OPEN_FLAGS);
        options
    }

    /// The same as flags of the system.
    fn flags(self) -> OFlag {
        let mode = match self {
            Self::Read => OFlag::O_RDONLY,
            Self::Update => OFlag::O_RDWR,
            Self::Append => OFlag::O_RDWR | OFlag::O_APPEND,
        };
        mode | OFlag::O_CLOEXEC | OFlag::from_bits_retain(OPEN_FLAGS)
    }
}

pub(crate) fn open(path: &Path, access: Access) -> Result<File, FileError> {
    open_known(path, access).map(|(file, _)| file)
}

/// Opens an existing file and returns it with its metadata.
pub(crate) fn open_known(path: &Path, access: Access) -> Result<(File, Metadata), FileError> {
    open_with(path, &access.options())
}

/// Like [`open_known`], for a file of a folder that is held open. Errors name it by its `path`.
pub(crate) fn open_known_in(
    folder: &HeldFolder,
    path: &Path,
    access: Access,
) -> Result<(File, Metadata), FileError> {
    let name = path.file_name().unwrap_or_default();
    let file = folder.open_file(name, access.flags()).map_err(|source| explain(path, source))?;
    known(path, file)
}

pub(crate) fn open_or_create(path: &Path, access: Access) -> Result<File, FileError> {
    open_with(path, access.options().create(true)).map(|(file, _)| file)
}

pub(crate) fn create_new(path: &Path, access: Access) -> Result<File, FileError> {
    open_with(path, access.options().create_new(true)).map(|(file, _)| file)
}

/// Creates an empty file, and opens it for reading only: nobody has it open for writing. Returns it with its metadata.
pub(crate) fn create_to_read(path: &Path) -> Result<(File, Metadata), FileError> {
    // The standard library creates no file that it could not write to.
    let flags = OPEN_FLAGS | libc::O_CREAT | libc::O_EXCL;
    open_with(path, Access::Read.options().custom_flags(flags))
}

fn open_with(path: &Path, options: &OpenOptions) -> Result<(File, Metadata), FileError> {
    known(path, options.open(path).map_err(|source| explain(path, source))?)
}

/// Returns a file with its metadata, which are checked.
fn known(path: &Path, file: File) -> Result<(File, Metadata), FileError> {
    let known = file.metadata().at(path)?;
    check(path, &known)?;
    Ok((file, known))
}

/// Returns why nothing can be created in a folder; `None` for a writable folder, and for one that does not exist. A
/// folder that nobody may write counts for root as well, who could.
pub(crate) fn unwritable(folder: &Path) -> Option<String> {
    let mode = fs::metadata(folder).ok()?.mode() & 0o7777;
    if mode & 0o222 == 0 {
        return Some(format!("its mode is {mode:04o}"));
    }
    let wanted = AccessFlags::W_OK | AccessFlags::X_OK;
    access(folder, wanted).err().map(|why| why.desc().to_owned())
}

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
    Err(FileError::NotRegular(path.into(), kind))
}

pub(crate) fn check_owner(path: &Path, known: &Metadata) -> Result<(), FileError> {
    // These programs never change their effective user.
    static USER: LazyLock<u32> = LazyLock::new(|| nix::unistd::geteuid().as_raw());
    let owner = known.uid();
    if owner == *USER { Ok(()) } else { Err(FileError::ForeignOwner(path.into(), owner)) }
}

/// Replaces the error of the system by one that names the kind or the owner of the object, if the object is not a
/// regular file of this user.
fn explain(path: &Path, source: io::Error) -> FileError {
    if source.kind() == io::ErrorKind::NotFound {
        return FileError::Io(path.into(), source);
    }
    let odd = fs::symlink_metadata(path).ok().and_then(|known| check(path, &known).err());
    odd.unwrap_or_else(|| FileError::Io(path.into(), source))
}
