//! The rotation of an inbox: the owner watches the file, and replaces it by an empty one when it has mail.
//!
//! *Invariant:* the replacement happens under the side lock. Afterwards the old file is a claim, the new one is
//! the inbox, and both are watched.

use super::claim::{BatchIds, Claim, Stage, list, undo_half_claim};
use super::wake::Waker;
use crate::os::file::{Access, At, FileError, create_new, open_known, open_or_create};
use crate::os::watch::{WatchId, touch};
use crate::store::failpoint;
use crate::store::file::atomic::{Fsync, remove, sync_folder};
use crate::store::file::lock::SideLock;
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::limits::LOCK_TIMEOUT;
use std::fs::{self, File, Metadata};
use std::io::ErrorKind::{PermissionDenied, Unsupported};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// An inbox as its owner holds it.
#[derive(Debug)]
pub(crate) struct InboxRotation {
    dir: TeamDir,
    name: AgentName,
    side: SideLock,
    pub(crate) waker: Waker,
    inbox: Inbox,
    /// The next inbox, once it is prepared.
    next: Option<Inbox>,
}

/// The file last seen as the inbox. It stays open, so that its inode is not reused if an outsider removes it.
#[derive(Debug)]
struct Inbox {
    file: File,
    inode: u64,
    watch_id: Option<WatchId>,
}

impl Inbox {
    fn new((file, known): (File, Metadata), watch_id: Option<WatchId>) -> Self {
        Self { file, inode: known.ino(), watch_id }
    }

    /// Whether the file is at `path` and has no other link.
    fn stands_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path)
            .is_ok_and(|known| known.ino() == self.inode && known.nlink() == 1)
    }
}

impl InboxRotation {
    /// Opens the inbox, which is created if missing, and lists the claims of earlier processes.
    pub(crate) fn open(
        dir: &TeamDir,
        name: &AgentName,
        fsync: Fsync,
    ) -> Result<(Self, Vec<Claim>), StoreError> {
        let (dir, name) = (dir.clone(), name.clone());
        let mut side = SideLock::new(dir.inbox_lock(&name));
        let held = side.acquire(LOCK_TIMEOUT)?;
        let mut inbox = Inbox::new(find_inbox(&dir, &name, fsync)?, None);
        let left = list(&dir, &name)?.into_iter();
        let mut claims: Vec<_> = left.map(|file| Claim::inherited(&dir, file)).collect();
        drop(held);
        failpoint::hit("recover.listed");
        let mut waker = Waker::open(&dir, &name)?;
        inbox.watch_id = waker.watch(&dir.inbox(&name))?;
        waker.test_events(&dir, &inbox.file)?;
        if !name.is_user() {
            // A change of the timers of this member wakes it as mail does.
            let timers = dir.timers_lock(&name);
            drop(open_or_create(&timers, Access::Update)?);
            waker.watch(&timers)?;
        }
        for claim in &mut claims {
            claim.watch_id = waker.watch(&claim.path())?;
        }
        let mut rotation = Self { dir, name, side, waker, inbox, next: None };
        rotation.prepare_next();
        Ok((rotation, claims))
    }

    /// Consumes the pending events. Mail that arrived in the inbox meanwhile wakes the owner once more.
    pub(crate) fn catch_up(&mut self) -> Result<(), StoreError> {
        let was_known = self.waker.may_be_written(self.inbox.watch_id);
        self.waker.acknowledge()?;
        if !was_known && self.waker.may_be_written(self.inbox.watch_id) {
            // If this fails, the poll finds the mail.
            drop(touch(&self.inbox.file));
        }
        Ok(())
    }

    /// Whether the inbox has mail, or is another file than before.
    pub(crate) fn has_mail(&self) -> bool {
        fs::symlink_metadata(self.dir.inbox(&self.name))
            .map_or(true, |known| known.len() > 0 || known.ino() != self.inbox.inode)
    }

    /// Makes the inbox a claim; returns `None` if it is empty.
    ///
    /// The rename is the claim: the path is never missing, no data is copied, and senders continue in the new
    /// file. All syncs come before the unlock; otherwise a sender could be acknowledged for a line in a file that
    /// is lost in a power cut.
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
            let watch_id = waker.watch(&path)?;
            *inbox = Inbox::new((file, known.clone()), watch_id);
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
        let mut claim = Claim::new(dir, name, batch_ids.next()?, Stage::Fresh);
        claim.watch_id = inbox.watch_id;
        let claimed = claim.path();
        failpoint::hit("drain.before_link");
        match fs::hard_link(&path, &claimed) {
            Ok(()) => {
                failpoint::hit("drain.linked");
                sync_folder(&dir.claims(), fsync)?;
                fs::rename(&next, &path).at(&path)?;
                *inbox = fresh;
            }
            // The file system has no hard links.
            Err(why) if matches!(why.kind(), PermissionDenied | Unsupported) => {
                fs::rename(&path, &claimed).at(&path)?;
                sync_folder(&dir.claims(), fsync)?;
                // The prepared file is not used: an outsider may have created an inbox with mail since.
                let found = find_inbox(dir, name, fsync)?;
                *inbox = Inbox::new(found, waker.watch(&path)?);
            }
            Err(source) => return Err(FileError::Io(claimed, source).into()),
        }
        failpoint::hit("drain.renamed");
        sync_folder(&dir.inboxes(), fsync)?;
        drop(held);
        failpoint::hit("drain.claimed");
        Ok(Some(claim))
    }

    /// Prepares the next inbox: creating it takes longer than the rest of a claim, and a full disk may have
    /// no room later. If this fails, the claim tries again.
    pub(crate) fn prepare_next(&mut self) {
        if self.next.is_none() {
            let next = self.dir.next_inbox(&self.name);
            self.next = prepare(&next, &mut self.waker).ok();
        }
    }
}

/// Finds or creates an inbox that can be claimed. The caller holds the lock; a new name is synced before
/// the lock is released, because senders sync only the contents.
fn find_inbox(
    dir: &TeamDir,
    name: &AgentName,
    fsync: Fsync,
) -> Result<(File, Metadata), StoreError> {
    let path = dir.inbox(name);
    let (file, known) = match open_known(&path, Access::Read) {
        Err(why) if why.is_missing() => {
            drop(create_new(&path, Access::Append)?);
            sync_folder(&dir.inboxes(), fsync)?;
            open_known(&path, Access::Read)?
        }
        other => other?,
    };
    undo_half_claim(dir, name, &file, &known)?;
    Ok((file, known))
}

/// Prepares and watches the next inbox. An existing file is reused; its contents are delivered with the next
/// claim.
fn prepare(path: &Path, waker: &mut Waker) -> Result<Inbox, StoreError> {
    let found = match open_known(path, Access::Read) {
        Err(why @ FileError::Io { .. }) if !why.is_missing() => return Err(why.into()),
        Ok((file, known)) if known.nlink() == 1 => (file, known),
        // There is no file, or one that cannot become an inbox.
        Ok(_) | Err(_) => {
            remove(path)?;
            drop(create_new(path, Access::Append)?);
            open_known(path, Access::Read)?
        }
    };
    Ok(Inbox::new(found, waker.watch(path)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::watch::is_quiet;
    use crate::store::test_team;
    use crate::store::timers::change;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_stands_only_where_it_is_alone() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let (path, other) = (dir.inbox(&alice), dir.next_inbox(&alice));
        let inbox = Inbox::new(find_inbox(&dir, &alice, Fsync::Never).unwrap(), None);
        assert!(inbox.stands_at(&path) && !inbox.stands_at(&other));
        fs::hard_link(&path, &other).unwrap();
        assert!(!inbox.stands_at(&path), "it has a second link");
        fs::remove_file(&path).unwrap();
        assert!(inbox.stands_at(&other) && !inbox.stands_at(&path));
        drop(File::create(&path).unwrap());
        assert!(!inbox.stands_at(&path), "another file");
    }

    #[test]
    fn a_change_of_the_timers_wakes_the_owner_and_is_no_mail() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let (mut rotation, _) = InboxRotation::open(&dir, &alice, Fsync::Never).unwrap();
        rotation.waker.acknowledge().unwrap();
        let is_woken = |rotation: &InboxRotation| !is_quiet(rotation.waker.as_fd());
        change(&dir, &alice, Fsync::Never, |_| ()).unwrap();
        assert!(!is_woken(&rotation), "nothing has changed");
        change(&dir, &alice, Fsync::Never, |list| list.last = 1).unwrap();
        assert!(is_woken(&rotation) && !rotation.has_mail());
        rotation.catch_up().unwrap();
        assert!(!is_woken(&rotation));
    }
}
