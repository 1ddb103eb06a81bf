//! Reads and writes the files below `.team/`, which this page specifies.
//!
//! ```text
//! .team/                      0700, owned by the user; files 0600
//!   .gitignore                everything but settings.toml, roles/ and itself
//!   settings.toml, roles/     written by people, committed
//!   config.json (+ .bak)      the roster; replaced whole under run/.state/config.lock
//!   inbox/NAME.jsonl          one message a line; senders append, the owner claims the file
//!   inbox/.lock/NAME          side lock of the inbox; empty, never removed
//!   inbox/.claim/NAME.GEN     a batch taken from the inbox, on its way into the transcript
//!   inbox/.claim/NAME.GEN.taken   the same after its owner has acted; kept for late writers
//!   inbox/.claim/NAME.new     the empty file that becomes the inbox at the next claim
//!   inbox/.held/NAME.jsonl    mail of a team that plays a record, until its recipient is to get it
//!   dead/NAME.jsonl           {"gen","offset","reason","at","raw" | "raw_hex" | "file"}
//!   dead/.claim/NAME.GEN      a claim that could not be read, unchanged
//!   transcript/NAME.jsonl     {"kind","at",…}; a line of kind "mail" acknowledges its message
//!   transcript/archive/NAME-N.jsonl   earlier conversations; the highest N was archived last
//!   transcript/images/NAME-HASH   an image that NAME's model was shown
//!   transcript/sub/NAME-N.jsonl   the conversation of a subagent of NAME; a number is used once
//!   tasks/ID.json             one task; replaced whole under tasks/.lock/list, which is then touched
//!   tasks/ID.json.bad-N       a quarantined file that is not a task
//!   tasks/.archive/ID.json    a task that ended long ago
//!   leases/ID.json            paths that one agent alone changes; replaced whole under leases/.lock/list
//!   leases/ID.json.bad-N      a quarantined file that is not a lease
//!   timers/NAME.json          the timers of NAME; replaced whole under timers/.lock/NAME, which is then touched
//!   timers/NAME.json.bad-N    a quarantined file that is no list of timers
//!   run/NAME.lock             held (flock) by a live process; contains the life record of its holder
//!   run/.state/               config.lock (side lock of the roster), NAME.gen (counter of claims of an agent),
//!                             NAME.attempts (unfinished deliveries), NAME.bell (fifo that wakes an owner
//!                             without file events), NAME.beat (heartbeat), NAME.used (tokens and money
//!                             used so far, for a shared budget), NAME.looked (read cursor of a person),
//!                             NAME.hook (socket by which hooks of the program that runs NAME's model get mail),
//!                             NAME.key (mailbox key: seals mail to that process), NAME.outbox-RUN (mail that
//!                             commands of a killed process have left, for the next one to send),
//!                             NAME.commands (background commands),
//!                             tasks.last (last task id), ENDPOINT.hold (shared back-off of an endpoint),
//!                             takeover.json (the process that takes the place of a lead, for that lead's last
//!                             words), replay.json (the record that the team plays), reserve (disk space for the last writes)
//!   run/.state/relay/         host.json (this host's name and epoch), hosts.json, lock, log.jsonl, out/NAME.jsonl (mail for
//!                             a member of another host), in.log (the lines that have come from other hosts)
//!   run/.state/relay/copies/HOST/   copies of files of another host, in the shape of a team folder, for people who look
//!   run/.state/relay/copies/.wanted/ID.json   held (flock) by the process that looks; ID.state.json: how far the copies are
//!   tasks/.aside/ID.json      a task of a host whose list became that of another one
//!   run/.state/index/NAME-N   facts and ids of an earlier conversation, so that it need not be read whole
//!   run/.state/files/HASH     lock of a file of the workspace while it is written, with the last writes of it
//!   run/.state/kept/NAME-N    a version of a file that NAME wrote and another program replaced
//!   run/.state/mcp/SERVER-DIGEST.json  the tools of an MCP server, so that it need not run to list them
//!   run/.state/mcp/NAME.SERVER.state   an MCP server of NAME, for people
//!   undo/NAME.jsonl           the changes of files by NAME, turn by turn; appended under run/.state/undo.lock
//!   undo/objects/HASH         a version of a file before an agent changed it
//!   undo/pending.json         an undo that is under way, under run/.state/undo.apply.lock
//!   log/NAME.jsonl, log/.err/NAME     structured log; output of a spawned member
//!   log/.old/NAME-N.jsonl, log/.old/NAME.err     earlier ones of both, rotated by their size; 1 is the newest
//!   log/.err/NAME.SERVER      standard error of an MCP server of NAME
//!   log/.out/NAME-N.txt       a whole tool result that was too long for a model
//!   log/.out/NAME-cN.txt      the output of a background command
//! ```
//!
//! *GEN* is a 12-digit counter, `-`, and 8 random hexadecimal digits; it never repeats.
//!
//! **There are two ways to write.** *Append* ([`inbox`], [`transcript`], [`dead`]): the whole line in one
//! write, after a newline that seals a torn tail. *Replace* (`file::atomic`): a temporary file
//! beside it, synced and renamed. The claim of a mailbox ([`mailbox`]) is the exception: it renames the
//! inbox, so that no data is copied and the path is never missing.
//!
//! *Invariants:* the store persists data and makes no decisions. Every path comes from [`TeamDir`], and every name
//! in a path is an [`AgentName`](crate::wire::AgentName). Only `clean` removes lock files. No lock is broken by
//! its age, because the kernel releases a lock when its holder exits. The programs of a team open an inbox only
//! under its side lock.

pub(crate) mod asynchronous;
pub mod attachments;
pub(crate) mod background;
mod bounded_text;
pub(crate) mod clean;
pub(crate) mod conversations;
mod error;
pub(crate) mod export;
mod file;
pub(crate) mod file_writes;
pub(crate) mod images;
pub(crate) mod instructions;
pub(crate) mod kept_versions;
pub mod keyring;
pub(crate) mod leases;
pub mod mailbox;
pub(crate) mod mcp;
mod observe;
pub(crate) mod outbox;
pub(crate) mod output_spill;
pub(crate) mod past;
mod process;
pub(crate) mod process_log;
pub mod relay;
pub(crate) mod replay;
pub(crate) mod retention;
mod roles;
pub mod roster;
pub(crate) mod skills;
pub(crate) mod subagents;
pub(crate) mod takeover;
pub mod tasks;
mod teamdir;
pub(crate) mod timers;
pub(crate) mod tool_pins;
pub mod transcript;
pub(crate) mod undo;
pub(crate) mod unsent_mail;

pub use crate::os::failpoint;
pub use crate::os::file::FileError;
pub use crate::os::identity::ProcessIdentity;
pub use crate::os::{Clock, SystemClock};
pub use error::StoreError;
pub use file::atomic::Fsync;
pub(crate) use file::fs_probe;
pub use file::together::each_at_once;
pub(crate) use file::together::each_on_processors;
pub use file::{lock, tail};
pub use keyring::Keyring;
pub(crate) use mailbox::{ClaimFile, KeptClaims, drain_together, list_claims};
pub use mailbox::{
    Drained, Mail, MailNotice, MailPolicy, Mailbox, MailboxSetup, SettleResult, WakeMode, dead,
    inbox,
};
pub use observe::unread;
pub(crate) use observe::{change_watcher, diagnose, mail_search, mail_tracker, read_cursor};
pub use process::liveness::{self, LifeLock, LifeRecord, Liveness};
pub(crate) use process::{agent_places, heartbeat, last_output, shared_backoff, usage};
pub(crate) use roles::{RoleFile, RoleFiles, RoleMatch, UnclearRole};
pub(crate) use teamdir::may_hold_team;
pub use teamdir::{TeamDir, locate};
pub use transcript::Transcript;

use std::sync::Arc;

/// A clock that several threads share.
pub type SharedClock = Arc<dyn Clock + Send + Sync>;

/// Creates a team folder, which is removed when the first value is dropped.
#[cfg(test)]
pub(crate) fn test_team() -> (tempfile::TempDir, TeamDir) {
    let folder = tempfile::tempdir().unwrap();
    let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
    (folder, dir)
}
