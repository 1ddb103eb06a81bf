//! The owner's hold on its inbox file: watched, and swapped for a fresh one when it has mail.
//!
//! It does not read mail. *Invariant:* the swap happens under the side lock, and at its end the old file
//! is a claim, the new one is the inbox, and both are watched.

use super::batch_id::BatchIds;
use super::claim::{Claim, Stage, list, undo_half_claim};
use super::wake::Waker;
use crate::os::file::{Access, At, FileError, create_new, open_known};
use crate::os::watch::{WatchId, touch};
use crate::store::failpoint;
use crate::store::file::atomic::{Fsync, remove, sync_folder};
use crate::store::file::lock::SideLock;
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::limits::LOCK_TIMEOUT;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// One inbox, in its owner's hands.
#[derive(Debug)]
pub(crate) struct InboxRotation {
    dir: TeamDir,
    name: AgentName,
    side: SideLock,
    pub(crate) waker: Waker,
    inbox: Inbox,
    /// The next inbox, once it is there.
    next: Option<Inbox>,
}

/// The file that is the inbox, as far as we know; watched. Kept open, for reading only, so that its
/// number is not given to another file when somebody removes it.
#[derive(Debug)]
struct Inbox {
    file: File,
    inode: u64,
    mark: Option<WatchId>,
}

impl Inbox {
    fn new((file, known): (File, Metadata), mark: Option<WatchId>) -> Self {
        Self { file, inode: known.ino(), mark }
    }

    /// It stands at `path` and nowhere else.
    fn stands_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path)
            .is_ok_and(|known| known.ino() == self.inode && known.nlink() == 1)
    }
}

impl InboxRotation {
    /// Takes hold of the inbox, which is made when missing, and lists the claims that earlier lives left.
    pub(crate) fn open(
        dir: &TeamDir,
        name: &AgentName,
        fsync: Fsync,
    ) -> Result<(Self, Vec<Claim>), StoreError> {
        let (dir, name) = (dir.clone(), name.clone());
        let mut side = SideLock::new(dir.inbox_lock(&name));
        let held = side.acquire(LOCK_TIMEOUT)?;
        let mut inbox = Inbox::new(find_inbox(&dir, &name, fsync)?, None);
        let mut claims: Vec<_> = list(&dir, &name)?.into_iter().map(Claim::inherited).collect();
        drop(held);
        failpoint::hit("recover.listed");
        let mut waker = Waker::open(&dir, &name)?;
        inbox.mark = waker.watch(&dir.inbox(&name))?;
        waker.prove(&dir, &inbox.file)?;
        for claim in &mut claims {
            claim.mark = waker.watch(&claim.path(&dir, &name))?;
        }
        let mut inlet = Self { dir, name, side, waker, inbox, next: None };
        inlet.get_ready();
        Ok((inlet, claims))
    }

    /// Takes the events that have come until now, without anybody missing a wake: mail that came into
    /// the inbox meanwhile wakes once more.
    pub(crate) fn catch_up(&mut self) -> Result<(), StoreError> {
        let was_known = self.waker.may_be_written(self.inbox.mark);
        self.waker.acknowledge()?;
        if !was_known && self.waker.may_be_written(self.inbox.mark) {
            // Not stirred, the mail is found by the poll.
            drop(touch(&self.inbox.file));
        }
        Ok(())
    }

    /// Whether the inbox has mail, or is no longer the file it was.
    pub(crate) fn has_mail(&self) -> bool {
        fs::symlink_metadata(self.dir.inbox(&self.name))
            .map_or(true, |known| known.len() > 0 || known.ino() != self.inbox.inode)
    }

    /// Makes what is in the inbox a claim; `None` when it is empty.
    ///
    /// The rename is the claim: the path is never missing, nothing is copied, and senders go on in the
    /// fresh file. All syncs come before the unlock, or a sender would be told "stored" of a file that
    /// power loss takes back.
    pub(crate) fn claim(
        &mut self,
        batch_ids: &mut BatchIds,
        fsync: Fsync,
    ) -> Result<Option<Claim>, StoreError> {
        let Self { dir, name, side, waker, inbox, next: ready } = self;
        let path = dir.inbox(name);
        let held = side.acquire(LOCK_TIMEOUT)?;
        let (file, known) = find_inbox(dir, name, fsync)?;
        if known.ino() != inbox.inode {
            let mark = waker.watch(&path)?;
            *inbox = Inbox::new((file, known.clone()), mark);
        }
        if known.len() == 0 {
            return Ok(None);
        }
        let next = dir.next_inbox(name);
        let fresh = match ready.take().filter(|ready| ready.stands_at(&next)) {
            Some(ready) => ready,
            None => prepare(&next, waker)?,
        };
        failpoint::hit("drain.prepared");
        let mut claim = Claim::new(batch_ids.next()?, Stage::Fresh);
        claim.mark = inbox.mark;
        let claimed = claim.path(dir, name);
        failpoint::hit("drain.before_link");
        match fs::hard_link(&path, &claimed) {
            Ok(()) => {
                failpoint::hit("drain.linked");
                sync_folder(&dir.claims(), fsync)?;
                fs::rename(&next, &path).at(&path)?;
                *inbox = fresh;
            }
            Err(why) if has_no_links(&why) => {
                fs::rename(&path, &claimed).at(&path)?;
                sync_folder(&dir.claims(), fsync)?;
                // Not the prepared file: somebody may have made one since, which must not be lost.
                let found = find_inbox(dir, name, fsync)?;
                *inbox = Inbox::new(found, waker.watch(&path)?);
            }
            Err(source) => return Err(FileError::Io { path: claimed, source }.into()),
        }
        failpoint::hit("drain.renamed");
        sync_folder(&dir.inboxes(), fsync)?;
        drop(held);
        failpoint::hit("drain.claimed");
        Ok(Some(claim))
    }

    /// Keeps the next inbox ready: making it takes longer than all else about a claim, and a full disk may
    /// have no room for it when it is needed. Where it cannot be made now, the claim tries again.
    pub(crate) fn get_ready(&mut self) {
        if self.next.is_none() {
            let next = self.dir.next_inbox(&self.name);
            self.next = prepare(&next, &mut self.waker).ok();
        }
    }
}

/// Finds the inbox fit to be claimed, or makes it when somebody removed it. The caller holds the lock, and
/// a new name is synced before it goes: senders that find the file sync what it holds, not its name.
fn find_inbox(
    dir: &TeamDir,
    name: &AgentName,
    fsync: Fsync,
) -> Result<(File, Metadata), StoreError> {
    let path = dir.inbox(name);
    let (file, mut known) = match open_known(&path, Access::Read) {
        Err(why) if why.is_missing() => {
            drop(create_new(&path, Access::Append)?);
            sync_folder(&dir.inboxes(), fsync)?;
            open_known(&path, Access::Read)?
        }
        other => other?,
    };
    if known.nlink() > 1 {
        undo_half_claim(dir, name, known.ino())?;
        known = file.metadata().at(&path)?;
    }
    if known.nlink() > 1 {
        return Err(StoreError::Linked { path, links: known.nlink() });
    }
    Ok((file, known))
}

/// The file that becomes the inbox, watched before it does. One that is there already is used, whatever
/// it contains: that is delivered with the next claim.
fn prepare(path: &Path, waker: &mut Waker) -> Result<Inbox, StoreError> {
    let found = match open_known(path, Access::Read) {
        Ok((_, known)) if known.nlink() > 1 => None,
        Ok(found) => Some(found),
        Err(FileError::NotRegular { .. } | FileError::ForeignOwner { .. }) => None,
        Err(why) if why.is_missing() => None,
        Err(why) => return Err(why.into()),
    };
    let found = if let Some(found) = found {
        found
    } else {
        remove(path)?;
        drop(create_new(path, Access::Append)?);
        open_known(path, Access::Read)?
    };
    Ok(Inbox::new(found, waker.watch(path)?))
}

/// This file system knows no second names.
fn has_no_links(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}
