//! Why the store could not read or write something, and the advice that goes with it.

use super::file::lock::LockError;
use crate::os::file::FileError;
use std::io;
use std::path::PathBuf;

/// Why something could not be stored or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// A lock could not be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// There is no team folder.
    #[error("there is no team folder at {}", path.display())]
    NoTeam {
        /// Where one was looked for.
        path: PathBuf,
    },
    /// The inbox has names it should not have.
    #[error("{} has {links} names (hard links): it cannot be told whose mail it is", path.display())]
    Linked {
        /// The inbox.
        path: PathBuf,
        /// Its link count.
        links: u64,
    },
    /// The file was written by a later version of this program.
    #[error("{} has format version {found}, this program writes {known}: it is left as it is", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// Ours.
        known: u32,
    },
    /// A sync failed earlier. What was written since may not be on the disk, and asking again would
    /// not tell (the system reports it once).
    #[error("{}: an earlier sync failed, so nothing more is acknowledged", path.display())]
    Degraded {
        /// The file.
        path: PathBuf,
    },
    /// Somebody removed or replaced what this process works in. What it writes would reach nobody.
    #[error("{} was removed or replaced while it was in use", path.display())]
    Gone {
        /// The folder or file.
        path: PathBuf,
    },
    /// The file system lacks something the store is built on.
    #[error("{} cannot hold a team: {why}", path.display())]
    Unfit {
        /// The folder.
        path: PathBuf,
        /// What it lacks.
        why: String,
    },
}

impl StoreError {
    /// Somebody held a lock for too long.
    pub fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Lock(LockError::TimedOut { .. }))
    }

    /// The folder itself is gone, not only a file in it.
    pub fn is_without_team(&self) -> bool {
        match self {
            Self::NoTeam { .. } | Self::Gone { .. } => true,
            Self::File(why) | Self::Lock(LockError::File(why)) => why.is_missing(),
            Self::Lock(_)
            | Self::Linked { .. }
            | Self::Newer { .. }
            | Self::Degraded { .. }
            | Self::Unfit { .. } => false,
        }
    }

    /// There is no room, or nothing may be written for now: trying again later may help.
    pub fn is_full(&self) -> bool {
        let (Self::File(FileError::Io { source, .. })
        | Self::Lock(LockError::File(FileError::Io { source, .. }))) = self
        else {
            return false;
        };
        matches!(
            source.kind(),
            io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge
                | io::ErrorKind::ReadOnlyFilesystem
        )
    }

    /// What to do now.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File(FileError::ForeignOwner { .. }) => {
                "work as the user it belongs to, or in a folder of your own"
            }
            Self::File(FileError::NotRegular { .. }) => "remove what stands there, and try again",
            Self::File(FileError::Io { .. }) => "check permissions and free space, and try again",
            Self::Lock(_) => "end or continue the process that holds the lock, and try again",
            Self::NoTeam { .. } => "start one with `team lead`, or name it with --dir or -C",
            Self::Linked { .. } => "remove the extra name of the file, and try again",
            Self::Newer { .. } => "use the newer version of the program",
            Self::Gone { .. } => "put the folder back if you can, then start the team again",
            Self::Degraded { .. } => "check the disk, then start the agent again",
            Self::Unfit { .. } => "keep the team folder on a local file system",
        }
    }
}
