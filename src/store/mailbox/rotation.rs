//! The rotation of an inbox: the owner watches the file, and replaces it by an empty one when it has mail.
//!
//! *Invariant:* the replacement happens under the side lock. Afterwards the old file is a claim, the new one is
//! the inbox, and both are watched.

use super::claim::{BatchIds, Claim, ClaimFile, Stage, list, undo_half_claim};
use super::wake::Waker;
use crate::os::file::{
    Access, At, FileError, create_new, create_to_read, open_known, open_or_create,
};
use crate::os::watch::{WatchId, touch};
use crate::store::failpoint;
use crate::store::file::atomic::{Fsync, remove, sync_folder};
use crate::store::file::lock::{Held, SideLock};
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::limits::LOCK_TIMEOUT;
use std::fs::{self, File, Metadata};
use std::io::ErrorKind::{PermissionDenied, Unsupported};
use std::os::fd::{AsFd, BorrowedFd};
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
    /// Whether a claim has the name of one that was acted on from the beginning: its mail is passed on, and nobody acts on it here.
    marks_claims: bool,
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

/// A claim under way. The side lock is held until it is complete.
#[derive(Debug)]
pub(crate) struct BegunClaim {
    held: Held,
    claim: Claim,
    /// The next inbox, unless the file system has no hard links.
    fresh: Option<Inbox>,
}

impl BegunClaim {
    /// Whether the claim is a second name of the inbox so far; without links, it is the inbox.
    pub(crate) fn has_link(&self) -> bool {
        self.fresh.is_some()
    }

    /// Releases the lock, once both folders are synced.
    pub(crate) fn release(self) -> Claim {
        drop(self.held);
        failpoint::hit("drain.claimed");
        self.claim
    }
}

/// The outcome of an attempt to begin a claim.
#[derive(Debug)]
pub(crate) enum Begun {
    Claim(Box<BegunClaim>),
    /// The inbox is empty.
    Empty,
    /// Another process holds the side lock.
    Busy,
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
        let left = list(&dir, &name)?;
        drop(held);
        let mut claims = inherit(left, |file| Claim::inherited(&dir, file));
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
        let mut rotation = Self { dir, name, side, waker, inbox, next: None, marks_claims: false };
        rotation.prepare_next();
        Ok((rotation, claims))
    }

    /// Opens the inbox for an owner that watches the folder of all inboxes itself, and passes its mail on. It knows the claims that
    /// are left: with many mailboxes, the folder of claims is not read for each of them. They are its own, so nobody else makes one.
    pub(crate) fn open_unwatched(
        dir: &TeamDir,
        name: &AgentName,
        fsync: Fsync,
        claims: Vec<ClaimFile>,
    ) -> Result<(Self, Vec<Claim>), StoreError> {
        let (dir, name) = (dir.clone(), name.clone());
        let mut side = SideLock::new(dir.inbox_lock(&name));
        let held = side.acquire(LOCK_TIMEOUT)?;
        let inbox = Inbox::new(find_inbox(&dir, &name, fsync)?, None);
        drop(held);
        let claims = inherit(claims, |file| Claim::inherited_unread(&dir, file));
        let waker = Waker::outside(&dir, &name);
        Ok((Self { dir, name, side, waker, inbox, next: None, marks_claims: true }, claims))
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

    /// Returns the descriptor that is readable when something has happened. For an owner that watches itself it is that of the
    /// inbox, of which nothing can be told.
    pub(crate) fn wake_descriptor(&self) -> BorrowedFd<'_> {
        self.waker.descriptor().unwrap_or_else(|| self.inbox.file.as_fd())
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
        let held = self.side.acquire(LOCK_TIMEOUT)?;
        let Some(mut begun) = self.begin_claim(held, batch_ids, fsync)? else { return Ok(None) };
        sync_folder(&self.dir.claims(), fsync)?;
        self.replace_inbox(&mut begun, fsync)?;
        sync_folder(&self.dir.inboxes(), fsync)?;
        Ok(Some(begun.release()))
    }

    /// Begins a claim unless another process holds the side lock, or the inbox is empty.
    pub(crate) fn try_begin_claim(
        &mut self,
        batch_ids: &mut BatchIds,
        fsync: Fsync,
    ) -> Result<Begun, StoreError> {
        let Some(held) = self.side.try_acquire()? else { return Ok(Begun::Busy) };
        let begun = self.begin_claim(held, batch_ids, fsync)?;
        Ok(begun.map_or(Begun::Empty, |begun| Begun::Claim(Box::new(begun))))
    }

    /// The first step of a claim: the inbox gets its second name. The folder of claims is synced next, and then comes
    /// [`Self::replace_inbox`].
    fn begin_claim(
        &mut self,
        held: Held,
        batch_ids: &mut BatchIds,
        fsync: Fsync,
    ) -> Result<Option<BegunClaim>, StoreError> {
        let Self { dir, name, waker, inbox, next: ready, .. } = self;
        let path = dir.inbox(name);
        let size = match fs::symlink_metadata(&path) {
            Ok(known) if known.ino() == inbox.inode && known.nlink() == 1 => known.len(),
            _ => {
                let (file, known) = find_inbox(dir, name, fsync)?;
                let size = known.len();
                if known.ino() != inbox.inode {
                    *inbox = Inbox::new((file, known), waker.watch(&path)?);
                }
                size
            }
        };
        if size == 0 {
            return Ok(None);
        }
        let next = dir.next_inbox(name);
        let fresh = match ready.take().filter(|ready| ready.stands_at(&next)) {
            Some(ready) => ready,
            None => prepare(&next, waker)?,
        };
        failpoint::hit("drain.prepared");
        let mut claim = Claim::new(dir, name, batch_ids.next()?, Stage::Fresh);
        (claim.watch_id, claim.is_marked) = (inbox.watch_id, self.marks_claims);
        let claimed = claim.path();
        failpoint::hit("drain.before_link");
        let fresh = match fs::hard_link(&path, &claimed) {
            Ok(()) => {
                failpoint::hit("drain.linked");
                Some(fresh)
            }
            // The file system has no hard links.
            Err(why) if matches!(why.kind(), PermissionDenied | Unsupported) => {
                fs::rename(&path, &claimed).at(&path)?;
                None
            }
            Err(source) => return Err(FileError::Io(claimed, source).into()),
        };
        Ok(Some(BegunClaim { held, claim, fresh }))
    }

    /// The second step of a claim: a new inbox takes the place of the old one. The folder of inboxes is synced next, and then
    /// the claim is released.
    pub(crate) fn replace_inbox(
        &mut self,
        begun: &mut BegunClaim,
        fsync: Fsync,
    ) -> Result<(), StoreError> {
        let path = self.dir.inbox(&self.name);
        match begun.fresh.take() {
            Some(fresh) => {
                fs::rename(self.dir.next_inbox(&self.name), &path).at(&path)?;
                let claimed = std::mem::replace(&mut self.inbox, fresh);
                begun.claim.unread = Some(claimed.file);
            }
            // The prepared file is not used: an outsider may have created an inbox with mail since.
            None => {
                let found = find_inbox(&self.dir, &self.name, fsync)?;
                self.inbox = Inbox::new(found, self.waker.watch(&path)?);
            }
        }
        failpoint::hit("drain.renamed");
        Ok(())
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

/// Makes claims of the files that earlier processes have left.
fn inherit(left: Vec<ClaimFile>, inherited: impl Fn(ClaimFile) -> Claim) -> Vec<Claim> {
    failpoint::hit("recover.listed");
    left.into_iter().map(inherited).collect()
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
    let found = match create_to_read(path) {
        Err(why) if why.is_taken() => left_at(path)?,
        created => created?,
    };
    Ok(Inbox::new(found, waker.watch(path)?))
}

/// Opens the next inbox that an earlier process has left. Anything that cannot become an inbox is replaced.
fn left_at(path: &Path) -> Result<(File, Metadata), FileError> {
    match open_known(path, Access::Read) {
        Err(why @ FileError::Io(..)) if !why.is_missing() => Err(why),
        Ok((file, known)) if known.nlink() == 1 => Ok((file, known)),
        found => {
            if !found.is_err_and(|why| why.is_missing()) {
                remove(path)?;
            }
            create_to_read(path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::watch::is_quiet;
    use crate::store::test_team;
    use crate::store::timers::change;

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
        let is_woken = |rotation: &InboxRotation| !is_quiet(rotation.wake_descriptor());
        change(&dir, &alice, Fsync::Never, |_| ()).unwrap();
        assert!(!is_woken(&rotation), "nothing has changed");
        change(&dir, &alice, Fsync::Never, |list| list.last = 1).unwrap();
        assert!(is_woken(&rotation) && !rotation.has_mail());
        rotation.catch_up().unwrap();
        assert!(!is_woken(&rotation));
    }
}
