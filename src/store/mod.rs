//! The disk: everything below `.team/`. This page is the specification of what lies there.
//!
//! ```text
//! .team/                      0700, owned by the user; files 0600
//!   .gitignore                everything but settings.toml, roles/ and itself
//!   settings.toml, roles/     written by people, committed
//!   config.json (+ .bak)      the roster; replaced whole under run/.state/config.lock
//!   inbox/NAME.jsonl          one message a line; anybody appends, the owner takes the file away
//!   inbox/.lock/NAME          side lock of the inbox; its content means nothing, it is never removed
//!   inbox/.claim/NAME.GEN     a batch taken from the inbox, on its way into the transcript
//!   inbox/.claim/NAME.GEN.taken   the same, when its owner has acted; kept for late writers only
//!   inbox/.claim/NAME.new     the empty file that becomes the inbox at the next claim
//!   dead/NAME.jsonl           {"gen","offset","reason","at","raw" | "raw_hex" | "file"}
//!   dead/.claim/NAME.GEN      a claim that could not be taken in at all, as it was
//!   transcript/NAME.jsonl     {"kind","at",…}; a line of kind "mail" acknowledges its message
//!   transcript/archive/NAME-N.jsonl   earlier conversations, N counts up
//!   tasks/ID.json             one task; replaced whole under tasks/.lock/list, which is stirred after it
//!   tasks/ID.json.bad-N       one that could not be read, put aside
//!   run/NAME.lock             held (flock) for life; content: who holds it, for information
//!   run/.state/               config.lock (side lock of the roster), NAME.gen (counter of claims),
//!                             NAME.attempts (deliveries that did not end), NAME.fifo (pipe, where
//!                             file events are not to be had), NAME.beat (signs of life),
//!                             NAME.used (tokens and money until now, where a budget is shared),
//!                             NAME.looked (how far a person has read), tasks.last (last task id),
//!                             ENDPOINT.hold (until when nobody should call it), reserve (room for the
//!                             end)
//!   log/NAME.jsonl, log/.err/NAME     structured log; what a spawned member printed
//!   log/.out/NAME-N.txt       the whole of what a tool has said, where it was too long to be shown
//! ```
//!
//! *GEN* is a 12-digit counter, `-`, 8 random hexadecimal digits, and never comes twice.
//!
//! **Two ways to write, no third.** *Append* ([`inbox`], [`transcript`], [`dead`]): the whole
//! line in one write, a torn tail sealed with a newline before it. *Replace* ([`atomic`]): a file beside
//! it, synced, renamed. The claim of a mailbox ([`mailbox`]) is the reasoned exception: it renames the
//! inbox away, so that nobody copies and the path is never missing.
//!
//! *Invariants:* the store persists and never decides. Every path comes from [`TeamDir`], every name in
//! one from [`AgentName`](crate::wire::AgentName). Lock files are removed by [`clean`] alone,
//! and no lock is ever broken by its age: the kernel releases it with its holder. An inbox is opened by our programs only under its side lock.

pub mod atomic;
mod attempts;
mod batch_id;
pub(crate) mod change_watcher;
mod claim;
pub mod clean;
pub mod dead;
mod dedup;
pub mod diagnose;
pub mod fs_probe;
pub mod heartbeat;
pub mod inbox;
mod ingest;
mod jsonl;
mod late_writers;
pub mod liveness;
pub mod lock;
pub mod mail_search;
pub(crate) mod mail_tracker;
pub mod mailbox;
pub mod output_spill;
mod parse_line;
pub mod read_cursor;
mod reserve;
mod roles;
pub mod roster;
mod rotation;
mod scaffold;
pub mod shared_backoff;
pub mod tail;
pub mod tasks;
mod teamdir;
pub mod transcript;
pub mod unread;
pub mod usage;
mod wake;

pub use crate::os::failpoint;
pub use crate::os::file::FileError;
pub use crate::os::identity::ProcessIdentity;
pub use crate::os::{Clock, SystemClock};
pub use atomic::Fsync;
pub use liveness::{LifeLock, LifeRecord, Liveness};
pub use mailbox::{Drained, Mail, MailNotice, MailPolicy, Mailbox, SettleResult};
pub use roles::{Instructions, RoleFile};
pub use teamdir::{TeamDir, locate};
pub use transcript::Transcript;
pub use wake::WakeMode;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A clock that several threads share.
pub type SharedClock = Arc<dyn Clock + Send + Sync>;

/// Why something could not be stored or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// A lock could not be had.
    #[error(transparent)]
    Lock(#[from] lock::LockError),
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
        matches!(self, Self::Lock(lock::LockError::TimedOut { .. }))
    }

    /// The folder itself is gone, not only a file in it.
    pub fn is_without_team(&self) -> bool {
        match self {
            Self::NoTeam { .. } | Self::Gone { .. } => true,
            Self::File(why) | Self::Lock(lock::LockError::File(why)) => why.is_missing(),
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
        | Self::Lock(lock::LockError::File(FileError::Io { source, .. }))) = self
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
