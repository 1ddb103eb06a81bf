//! The senders' end of a mailbox: append a line to an inbox (RELIABILITY 3.4).
//!
//! *Invariant:* an inbox is opened only under its side lock and closed before the lock is acquired again,
//! so no program of the team ever writes to a claimed file.

use super::claim::undo_half_claim;
use super::inbox_folder::FoundFolder;
pub(crate) use super::inbox_folder::InboxFolder;
use crate::os::file::{Access, At, FileError, create_new};
use crate::os::watch::notify;
use crate::store::file::atomic::{Fsync, sync_data, sync_folder};
use crate::store::file::jsonl::is_torn;
use crate::store::file::lock::{SideLock, release, try_for};
use crate::store::file::read::known_if_there;
use crate::store::{StoreError, TeamDir, failpoint};
use crate::wire::AgentName;
use crate::wire::limits::{
    COURTESY_LOCK_TIMEOUT, INBOX_RESERVE_BYTES, LOCK_TIMEOUT, MAX_LINE_BYTES,
};
use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The most locks that are held while new inboxes are made durable.
const LOCKS_AT_ONCE: usize = 256;

/// The rule for full inboxes that applies to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// A line that is refused if the inbox is full.
    Data,
    /// A line that may use the reserve of a full inbox.
    Control,
}

/// The process that reads an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MailboxOwner {
    /// An agent of this host. It may have no file events, and is woken by a fifo then.
    Agent,
    /// The relay of this host, for an agent of another one. It needs no fifo.
    Relay,
}

/// The policy by which a line is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendPolicy {
    /// The rule for full inboxes.
    pub priority: Priority,
    /// The failures that an acknowledged send survives.
    pub fsync: Fsync,
    /// The maximum size of the inbox in bytes.
    pub capacity: u64,
    /// The maximum wait for the lock.
    pub lock_limit: Duration,
}

/// The reason for which a line was not stored, or may not be durable.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The line was not stored: a lock or a file operation failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The line was not stored, because the inbox is full.
    #[error("the inbox of {name} is full ({size} of {capacity} bytes)")]
    Full {
        /// The owner of the inbox.
        name: AgentName,
        /// The size of the inbox in bytes.
        size: u64,
        /// Its limit in bytes.
        capacity: u64,
    },
    /// The line was not stored, because it is too long. The field is its length in bytes.
    #[error("the line has {0} bytes, more than {MAX_LINE_BYTES}")]
    TooLong(usize),
    /// The line was written and the sync failed. A repeated send with the same id is harmless.
    #[error("{path}: written, but it may not survive a power cut: {source}", path = path.display())]
    NotDurable {
        /// The path of the inbox.
        path: PathBuf,
        /// The error of the system.
        source: Box<FileError>,
    },
}

impl From<FileError> for SendError {
    fn from(why: FileError) -> Self {
        Self::Store(why.into())
    }
}

/// Creates an empty inbox for a new name. Fails if the file cannot be created.
pub fn ensure(dir: &TeamDir, name: &AgentName) -> Result<(), SendError> {
    let mut inbox = Inbox::of_owner(dir, name);
    let held = inbox.side.acquire(LOCK_TIMEOUT)?;
    inbox.open(&inbox.folder.current()?, Fsync::Always)?;
    drop(held);
    Ok(())
}

/// Creates the inboxes of many new names, whose folder is synced once for some of them. A sender that finds one syncs its
/// contents alone, so their locks are held until then.
pub(crate) fn ensure_all(dir: &TeamDir, names: &[&AgentName]) -> Result<(), SendError> {
    let all = InboxFolder::of_owners(dir);
    for some in names.chunks(LOCKS_AT_ONCE) {
        let folder = all.current()?;
        let (mut held, mut busy) = (Vec::new(), Vec::new());
        let mut make = |name: &AgentName| -> Result<(), SendError> {
            if known_if_there(&dir.inbox(name))?.is_none() {
                let mut inbox = Inbox::in_folder(Arc::clone(&all), name);
                let Some(lock) = inbox.side.try_acquire()? else {
                    busy.push(name.clone());
                    return Ok(());
                };
                held.push(lock);
                inbox.open(&folder, Fsync::Never)?;
            }
            Ok(())
        };
        let made = some.iter().try_for_each(|name| make(name));
        // Also those that were made before an error.
        if !held.is_empty() {
            sync_folder(&dir.inboxes(), Fsync::Always)?;
        }
        drop(held);
        made?;
        busy.iter().try_for_each(|name| ensure(dir, name))?;
    }
    Ok(())
}

/// Whether the inbox of a name has anything in it, claims aside. `true` if that is unknown.
pub(crate) fn has_lines(dir: &TeamDir, name: &AgentName) -> bool {
    known_if_there(&dir.inbox(name)).map_or(true, |known| known.is_none_or(|it| it.len() > 0))
}

/// Returns the name of the owner of an inbox with this file name; `None` if no inbox has it.
pub(crate) fn inbox_owner(file: &str) -> Option<&str> {
    file.strip_suffix(".jsonl")
}

/// Whether a name has an inbox with mail in it.
pub(crate) fn has_mail(dir: &TeamDir, name: &AgentName) -> bool {
    known_if_there(&dir.inbox(name)).is_ok_and(|known| known.is_some_and(|it| it.len() > 0))
}

/// Removes the inbox of a name that never started, unless it holds mail.
pub fn forget(dir: &TeamDir, name: &AgentName) -> Result<(), SendError> {
    let mut inbox = Inbox::of(dir, name);
    let held = inbox.side.acquire(LOCK_TIMEOUT)?;
    let path = dir.inbox(name);
    if known_if_there(&path)?.is_some_and(|known| known.len() == 0) {
        std::fs::remove_file(&path).at(&path)?;
    }
    drop(held);
    Ok(())
}

/// Appends a line and syncs it by policy. The line must end with its only newline.
pub fn append(
    dir: &TeamDir,
    name: &AgentName,
    line: &[u8],
    policy: &SendPolicy,
) -> Result<(), SendError> {
    let permit = || Ok::<_, SendError>(MailboxOwner::Agent);
    Inbox::of(dir, name).append(line, policy, permit)?.sync()
}

/// An inbox to which a process sends often.
#[derive(Debug)]
pub(crate) struct Inbox {
    folder: Arc<InboxFolder>,
    name: AgentName,
    path: PathBuf,
    fifo: PathBuf,
    side: SideLock,
    /// The file and its size after our last line: nobody has written since if both are as they were.
    written: Option<(u64, u64)>,
}

/// A line that was written and may need a sync.
#[derive(Debug)]
#[must_use = "written is not yet durable: sync it"]
pub(crate) struct Stored {
    /// The file to sync, if the policy asks for it.
    unsynced: Option<(File, PathBuf)>,
}

impl Stored {
    /// Makes the line durable. A failed sync is not repeated, since a second result would prove nothing.
    pub(crate) fn sync(self) -> Result<(), SendError> {
        let Some((file, path)) = self.unsynced else { return Ok(()) };
        sync_data(&file, &path, Fsync::Always)
            .map_err(|source| SendError::NotDurable { path, source: Box::new(source) })?;
        failpoint::hit("send.synced");
        Ok(())
    }
}

impl Inbox {
    /// Opens the sender's end.
    pub(crate) fn of(dir: &TeamDir, name: &AgentName) -> Self {
        Self::in_folder(InboxFolder::of_senders(dir), name)
    }

    /// Opens the inbox itself, also in a team that plays a record.
    pub(crate) fn of_owner(dir: &TeamDir, name: &AgentName) -> Self {
        Self::in_folder(InboxFolder::of_owners(dir), name)
    }

    /// Opens an inbox of a folder, which those of many recipients share.
    pub(crate) fn in_folder(folder: Arc<InboxFolder>, name: &AgentName) -> Self {
        let dir = folder.dir();
        let side = SideLock::new(dir.inbox_lock(name));
        let (path, fifo) = (folder.inbox(name), dir.fifo(name));
        Self { folder, name: name.clone(), path, fifo, side, written: None }
    }

    /// Writes a line. `permit` is called under the lock, before any file is touched, and tells who reads it.
    ///
    /// The caller syncs without the lock, so that the syncs of concurrent senders overlap. The sync is correct
    /// even if the file is claimed meanwhile: a claim is removed only after the transcript with its mail is
    /// synced.
    pub(crate) fn append<E: From<SendError>>(
        &mut self,
        line: &[u8],
        policy: &SendPolicy,
        permit: impl FnOnce() -> Result<MailboxOwner, E>,
    ) -> Result<Stored, E> {
        // Not even a lock file is made for a team that was removed.
        let folder = self.folder.current().map_err(SendError::from)?;
        let held = self.side.acquire_at(folder.at, policy.lock_limit).map_err(SendError::from)?;
        let owner = permit()?;
        failpoint::hit("send.locked");
        let (stored, size) = self.write(&folder, line, policy)?;
        failpoint::hit("send.written");
        drop(held);
        failpoint::hit("send.unlocked");
        // For an inbox with lines, an earlier sender has notified the owner.
        if size == 0 && owner == MailboxOwner::Agent {
            notify(&self.fifo);
            failpoint::hit("send.notified");
        }
        Ok(stored)
    }

    /// Writes a line; returns the previous size of the inbox. The caller holds the side lock.
    fn write(
        &mut self,
        folder: &FoundFolder,
        line: &[u8],
        policy: &SendPolicy,
    ) -> Result<(Stored, u64), SendError> {
        if line.len() > MAX_LINE_BYTES {
            return Err(SendError::TooLong(line.len()));
        }
        let (file, known) = self.open(folder, policy.fsync)?;
        let (inode, size) = (known.ino(), known.len());
        // After the timeout the line is appended anyway: an append is correct without this lock.
        try_for(&file, COURTESY_LOCK_TIMEOUT).at(&self.path)?;
        let capacity = match policy.priority {
            Priority::Data => policy.capacity,
            Priority::Control => policy.capacity.saturating_add(INBOX_RESERVE_BYTES),
        };
        if size.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX)) > capacity {
            return Err(SendError::Full { name: self.name.clone(), size, capacity });
        }
        failpoint::hit("send.opened");
        let is_ours = self.written.take() == Some((inode, size));
        let end = append_line(&file, size, line, is_ours).at(&self.path)?;
        self.written = Some((inode, end));
        let unsynced = match policy.fsync {
            Fsync::Always => {
                release(&file);
                Some((file, self.path.clone()))
            }
            // Closing the file releases the lock.
            Fsync::Never => None,
        };
        Ok((Stored { unsynced }, size))
    }

    /// Opens or creates the inbox. The caller holds the side lock.
    fn open(&self, found: &FoundFolder, fsync: Fsync) -> Result<(File, Metadata), SendError> {
        let Self { folder, name, path, .. } = self;
        let there = match found.open(path) {
            // The folder may have been removed since it was found.
            Err(why) if why.is_missing() => folder.find()?.open(path),
            other => other,
        };
        let (file, known) = match there {
            Err(why) if why.is_missing() => {
                let file = create_new(path, Access::Append)?;
                sync_folder(folder.path(), fsync)?;
                let known = file.metadata().at(path)?;
                return Ok((file, known));
            }
            other => other?,
        };
        undo_half_claim(folder.dir(), name, &file, &known)?;
        Ok((file, known))
    }
}

/// Writes a line so that it is whole, even if outsiders write at the same time; returns its end. `is_ours` says that the
/// file ends with a whole line. On an error the file is restored, or, if an outsider wrote meanwhile, the written part is sealed.
fn append_line(file: &File, size: u64, line: &[u8], is_ours: bool) -> io::Result<u64> {
    let sealed = || Cow::Owned([b"\n", line].concat());
    let first = if !is_ours && is_torn(file, size)? { sealed() } else { Cow::Borrowed(line) };
    let written = put(file, &first).and_then(|mut written| {
        while !stands_alone(file, &written, size)? {
            written = put(file, &sealed())?;
        }
        Ok(written.start + written.length)
    });
    written.inspect_err(|_| drop(roll_back(file, size, &first)))
}

struct WrittenLine {
    start: u64,
    length: u64,
    is_whole: bool,
    is_sealed: bool,
}

fn put(file: &File, bytes: &[u8]) -> io::Result<WrittenLine> {
    let mut file = file;
    let first = loop {
        match file.write(bytes) {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    let start = file.stream_position()?.saturating_sub(u64::try_from(first).unwrap_or(0));
    let rest = bytes.get(first..).unwrap_or_default();
    let mut is_whole = rest.is_empty();
    if !is_whole {
        file.write_all(rest)?;
        is_whole = file.stream_position()? == start + bytes.len() as u64;
    }
    let length = bytes.len() as u64;
    Ok(WrittenLine { start, length, is_whole, is_sealed: bytes.starts_with(b"\n") })
}

/// Whether the written line is whole and begins at a line start. An outsider may have written between the check
/// and the write.
fn stands_alone(file: &File, written: &WrittenLine, size: u64) -> io::Result<bool> {
    let slipped_in = written.start != size && !written.is_sealed;
    Ok(written.is_whole && !(slipped_in && is_torn(file, written.start)?))
}

fn roll_back(file: &File, size: u64, ours: &[u8]) -> io::Result<()> {
    let mut file = file;
    let end = file.metadata()?.len();
    let mut tail = vec![0; usize::try_from(end.saturating_sub(size)).unwrap_or(0)];
    file.read_exact_at(&mut tail, size)?;
    if ours.starts_with(&tail) { file.set_len(size) } else { file.write_all(b"\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_again_unless_it_is_whole_and_begins_a_line() {
        const WHOLE: &[u8] = b"theirs\n";
        const TORN: &[u8] = b"thei";
        // The text before the line, whether it was written after the size was read, whether the line is whole, and
        // whether it begins with a newline of its own.
        for (before, slipped_in, is_whole, is_sealed, is_good) in [
            (WHOLE, false, true, false, true),
            (WHOLE, false, false, false, false),
            (WHOLE, true, true, false, true),
            (TORN, true, true, false, false),
            (TORN, true, true, true, true),
            (TORN, true, false, true, false),
            (TORN, false, true, false, true),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(before).unwrap();
            let start = before.len() as u64;
            file.write_all(b"ours\n").unwrap();
            let written = WrittenLine { start, length: 5, is_whole, is_sealed };
            let size = if slipped_in { 0 } else { start };
            let stands = stands_alone(&file, &written, size).unwrap();
            assert_eq!(stands, is_good, "{before:?} {slipped_in} {is_whole} {is_sealed}");
        }
    }
}
