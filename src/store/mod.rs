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
//! line in one write, a torn tail sealed with a newline before it. *Replace* ([`atomic`](file::atomic)): a file beside
//! it, synced, renamed. The claim of a mailbox ([`mailbox`]) is the reasoned exception: it renames the
//! inbox away, so that nobody copies and the path is never missing.
//!
//! *Invariants:* the store persists and never decides. Every path comes from [`TeamDir`], every name in
//! one from [`AgentName`](crate::wire::AgentName). Lock files are removed by [`clean`] alone,
//! and no lock is ever broken by its age: the kernel releases it with its holder. An inbox is opened by our programs only under its side lock.

pub mod asynchronous;
pub mod clean;
mod error;
mod file;
pub mod mailbox;
mod observe;
pub mod output_spill;
mod process;
mod roles;
pub mod roster;
mod scaffold;
pub mod tasks;
mod teamdir;
pub mod transcript;

pub use crate::os::failpoint;
pub use crate::os::file::FileError;
pub use crate::os::identity::ProcessIdentity;
pub use crate::os::{Clock, SystemClock};
pub use error::StoreError;
pub use file::atomic::Fsync;
pub use file::{fs_probe, lock, tail};
pub use mailbox::{
    Drained, Mail, MailNotice, MailPolicy, Mailbox, SettleResult, WakeMode, dead, inbox,
};
pub(crate) use observe::{change_watcher, mail_tracker};
pub use observe::{diagnose, mail_search, read_cursor, unread};
pub use process::liveness::{LifeLock, LifeRecord, Liveness};
pub use process::{heartbeat, liveness, shared_backoff, usage};
pub use roles::{Instructions, RoleFile};
pub use teamdir::{TeamDir, locate};
pub use transcript::Transcript;

use std::sync::Arc;

/// A clock that several threads share.
pub type SharedClock = Arc<dyn Clock + Send + Sync>;
