//! The errors of the store, with advice for each.

use crate::os::file::FileError;
use crate::wire::FORMAT_VERSION;
use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
use std::path::PathBuf;
use std::time::Duration;

/// The reason for which a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process held the lock of this file until the timeout. The last field names that process.
    #[error("{path} has been locked for more than {ms} ms by {holder}", path = .0.display(), ms = .1.as_millis(), holder = .2)]
    LockTimeout(PathBuf, Duration, String),
    /// The team folder does not exist at this path.
    #[error("there is no team folder at {}", .0.display())]
    NoTeam(PathBuf),
    /// This inbox has more than one hard link. The second field is their number.
    #[error("{path} has {links} names (hard links), so the owner of its mail is unclear", path = .0.display(), links = .1)]
    Linked(PathBuf, u64),
    /// The file was written by a later version of this program.
    #[error("{} has format version {found}, but this program writes {FORMAT_VERSION}: it is not \
             changed", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u64,
    },
    /// An earlier sync of the file failed. The kernel reports a failure only once, so no later sync can be
    /// trusted.
    #[error("{}: an earlier sync failed, so nothing more is acknowledged", .0.display())]
    Degraded(PathBuf),
    /// The folder or file that this process uses was removed or replaced.
    #[error("{} was removed or replaced while it was in use", .0.display())]
    Gone(PathBuf),
    /// The file system of this folder lacks a feature that the store needs.
    #[error("{path} cannot be a team folder: {why}", path = .0.display(), why = .1)]
    Unfit(PathBuf, String),
}

impl StoreError {
    /// Whether a lock was not acquired before its timeout.
    pub fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::LockTimeout(..))
    }

    /// Whether the team folder itself is missing, not only a file in it.
    pub fn is_without_team(&self) -> bool {
        matches!(self, Self::NoTeam(_) | Self::Gone(_))
            || matches!(self, Self::File(why) if why.is_missing())
    }

    /// Whether the disk is full or read-only at present, so that a later attempt may succeed.
    pub fn is_full(&self) -> bool {
        let Self::File(FileError::Io(_, source)) = self else { return false };
        matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge | ReadOnlyFilesystem)
    }

    /// Returns the advice that is shown with the error.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File(FileError::ForeignOwner { .. }) => {
                "work as the user it belongs to, or in a folder of your own"
            }
            Self::File(FileError::NotRegular { .. }) => "remove what is there, and try again",
            Self::File(FileError::Io { .. }) => "check permissions and free space, and try again",
            Self::LockTimeout(..) => {
                "end or continue the process that holds the lock, and try again"
            }
            Self::NoTeam(_) => "start one with `team lead`, or name it with --dir or -C",
            Self::Linked(..) => "remove the extra name of the file, and try again",
            Self::Newer { .. } => "use the newer version of the program",
            Self::Gone(_) => "put the folder back if you can, then start the team again",
            Self::Degraded(_) => "check the disk, then start the agent again",
            Self::Unfit(..) => "keep the team folder on a local file system",
        }
    }
}
