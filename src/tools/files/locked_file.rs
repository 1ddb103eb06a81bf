//! A file of the workspace under its lock: loads it, and replaces it by a version that was derived from what was
//! loaded.

use super::load::{load, path_error};
use super::own_versions::{Fate, OwnVersion};
use crate::leases;
use crate::os::safe_path::{DraftFile, Placement, SafePath, SafePathError};
use crate::store::file_writes::{FileLock, draft_name, key};
use crate::store::{StoreError, TeamDir, kept_versions};
use crate::tools::call::ToolError;
use crate::undo::recorder::{self, NewWrite, Recorder};
use crate::wire::AgentName;
use crate::wire::file_view::{ContentHash, FileRecord, FileWrite};
use crate::wire::limits::LOCK_TIMEOUT;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The time that a look at a file waits for its lock. Others that look or write hold it for milliseconds.
const SOON: Duration = Duration::from_secs(1);

/// The agent that writes, and its team folder.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    pub(super) dir: TeamDir,
    pub(super) me: AgentName,
    /// The folder in which the agent works.
    pub(super) folder: PathBuf,
    /// Whether the folder is a clone of its own, in which leases do not count.
    pub(super) is_in_clone: bool,
    pub(super) recorder: Arc<Recorder>,
}

#[derive(Debug)]
pub(super) struct LockedFile<'a> {
    writer: &'a Writer,
    /// The path as the model gave it, for errors.
    path: &'a str,
    spot: &'a SafePath,
    /// The absolute path without links.
    real: PathBuf,
    lock: FileLock,
    /// The permission bits of the loaded version.
    mode: Cell<u32>,
    /// Texts for the model about versions that were kept.
    pub(super) kept: Vec<String>,
}

impl Writer {
    /// Takes the lock of a file, and handles the draft of a process that was killed while it wrote the file. Fails if
    /// another process holds the lock for too long.
    pub(super) fn lock<'a>(
        &'a self,
        path: &'a str,
        spot: &'a SafePath,
    ) -> Result<LockedFile<'a>, ToolError> {
        let real = self.real(spot);
        let lock = FileLock::take(&self.dir, &real, LOCK_TIMEOUT);
        self.locked(path, spot, real, lock.map_err(|why| lock_error(path, &why))?)
    }

    /// Like [`Writer::lock`], but does not wait: `None` if the lock is held.
    pub(super) fn try_lock<'a>(
        &'a self,
        path: &'a str,
        spot: &'a SafePath,
    ) -> Result<Option<LockedFile<'a>>, ToolError> {
        let real = self.real(spot);
        let lock = FileLock::try_take(&self.dir, &real).map_err(|why| lock_error(path, &why))?;
        lock.map(|lock| self.locked(path, spot, real, lock)).transpose()
    }

    /// Like [`Writer::lock`], but waits only for [`SOON`]: `None` if the lock is held for longer.
    pub(super) fn lock_soon<'a>(
        &'a self,
        path: &'a str,
        spot: &'a SafePath,
    ) -> Result<Option<LockedFile<'a>>, ToolError> {
        let real = self.real(spot);
        match FileLock::take(&self.dir, &real, SOON) {
            Err(why) if why.is_lock_timeout() => Ok(None),
            lock => {
                let lock = lock.map_err(|why| lock_error(path, &why))?;
                self.locked(path, spot, real, lock).map(Some)
            }
        }
    }

    fn locked<'a>(
        &'a self,
        path: &'a str,
        spot: &'a SafePath,
        real: PathBuf,
        lock: FileLock,
    ) -> Result<LockedFile<'a>, ToolError> {
        let mut file = LockedFile {
            writer: self,
            path,
            spot,
            real,
            lock,
            mode: Cell::default(),
            kept: Vec::new(),
        };
        file.recover()?;
        Ok(file)
    }

    /// Whether the team has written this file, or is about to.
    pub(super) fn has_written(&self, spot: &SafePath) -> bool {
        self.dir.file_lock(key(&self.real(spot)).as_str()).exists()
    }

    fn real(&self, spot: &SafePath) -> PathBuf {
        let workspace = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        // An absolute path replaces the workspace.
        workspace.join(spot.path())
    }

    /// Keeps a version. Returns its path for the model.
    pub(super) fn keep(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let kept = kept_versions::keep(&self.dir, &self.me, bytes)?;
        let shown = kept.strip_prefix(&self.folder).unwrap_or(&kept);
        Ok(shown.display().to_string())
    }
}

/// Returns the reply to a call whose file was changed by another program or member.
pub(super) fn changed(path: &str) -> ToolError {
    ToolError::Reply(format!(
        "{path} has changed since you read it; read it again, then repeat what still applies"
    ))
}

fn lock_error(path: &str, why: &StoreError) -> ToolError {
    if let StoreError::LockTimeout(_, limit, holder) = why {
        return ToolError::Reply(format!(
            "nothing was written: {path} has been locked for more than {} s by {holder}, which \
             writes it; try again",
            limit.as_secs()
        ));
    }
    if why.is_without_team() {
        return ToolError::Fatal(why.to_string());
    }
    ToolError::Reply(format!("nothing was written: {why}; {}", why.hint()))
}

impl LockedFile<'_> {
    pub(super) fn record(&self) -> &FileRecord {
        self.lock.record()
    }

    /// Fails if another agent has leased the file. The lock of the file, which is held here, keeps a lease that is
    /// claimed meanwhile from taking effect before the write has ended.
    pub(super) fn check_leases(&self) -> Result<(), ToolError> {
        let Writer { dir, me, is_in_clone, .. } = self.writer;
        let path = self.spot.path();
        if *is_in_clone || path.is_absolute() {
            return Ok(());
        }
        let found = leases::conflict(dir, me, &path.to_string_lossy());
        match found.map_err(|why| lock_error(self.path, &why))? {
            None => Ok(()),
            Some(conflict) => Err(ToolError::Reply(format!(
                "nothing was written: {}; {}",
                leases::in_words(&conflict),
                leases::way_out(&conflict.owner)
            ))),
        }
    }

    /// Returns the path as the model gave it.
    pub(super) fn name(&self) -> &str {
        self.path
    }

    /// Returns the permission bits of the loaded version.
    pub(super) fn mode(&self) -> u32 {
        self.mode.get()
    }

    pub(super) fn load(&self) -> Result<Option<Vec<u8>>, ToolError> {
        Ok(load(self.path, self.spot)?.map(|loaded| {
            self.mode.set(loaded.mode);
            loaded.bytes
        }))
    }

    /// Decides what has become of the version that this agent wrote last, and keeps it if another program has
    /// overwritten it. Returns the version if it is to be followed further.
    pub(super) fn settle(&mut self, own: OwnVersion, current: &[u8]) -> Option<OwnVersion> {
        match own.clone().fate(current, self.lock.record()) {
            Fate::Present(own) => Some(own),
            Fate::Continued => None,
            Fate::Overwritten(bytes) => match self.writer.keep(&bytes) {
                Ok(kept) => {
                    self.kept.push(format!(
                        "another program overwrote what you wrote to {}: your version is kept in \
                         {kept}",
                        self.path
                    ));
                    None
                }
                Err(why) => {
                    tracing::warn!(%why, "an overwritten version was not kept");
                    Some(own)
                }
            },
        }
    }

    /// Replaces the file, of which `old` was loaded. Fails if it has changed since; then it is left as it is. `mode` has the
    /// permission bits of a new file, if they are not the usual ones.
    pub(super) fn replace(
        &mut self,
        old: Option<&[u8]>,
        bytes: &[u8],
        mode: Option<u32>,
    ) -> Result<(), ToolError> {
        let failed = |why| path_error(self.path, &why);
        let draft = self.spot.draft(&draft_name(&self.real), bytes).map_err(failed)?;
        if let Some(Err(why)) = mode.map(|mode| draft.set_mode(mode)) {
            draft.discard();
            return Err(failed(why));
        }
        let write = FileWrite {
            by: self.writer.me.to_string(),
            hash: ContentHash::of(bytes),
            base: old.map(ContentHash::of),
        };
        if let Err(why) = self.lock.begin(write) {
            draft.discard();
            return Err(lock_error(self.path, &why));
        }
        let new = Some((bytes, draft.mode().unwrap_or_default()));
        let recorded = self.record_for_undo(old, new);
        let placed = draft.place(old);
        if recorded && !matches!(placed, Ok(Placement::Placed)) {
            self.withdraw_for_undo(Some(&ContentHash::of(bytes)));
        }
        self.end_write(placed)
    }

    /// Removes the file, of which `old` was loaded. Fails if it has changed since; then it is left as it is.
    pub(super) fn remove(&mut self, old: &[u8]) -> Result<(), ToolError> {
        let write = FileWrite {
            by: self.writer.me.to_string(),
            hash: ContentHash::of(b""),
            base: Some(ContentHash::of(old)),
        };
        self.lock.begin(write).map_err(|why| lock_error(self.path, &why))?;
        let recorded = self.record_for_undo(Some(old), None);
        let removed = self.spot.remove_exactly(&draft_name(&self.real), old);
        if recorded && !matches!(removed, Ok(Placement::Placed)) {
            self.withdraw_for_undo(None);
        }
        self.end_write(removed)
    }

    /// Keeps the versions that a write has displaced, and records its end.
    fn end_write(&mut self, placed: Result<Placement, SafePathError>) -> Result<(), ToolError> {
        let is_placed = matches!(placed, Ok(Placement::Placed));
        if let Ok(Placement::Restored { version, displaced }) = &placed {
            self.keep(version)?;
            if let Some(displaced) = displaced {
                self.keep_draft(displaced)?;
            }
        }
        // A record that looks unfinished is corrected by the next holder of the lock.
        if let Err(why) = self.lock.end(is_placed) {
            tracing::warn!(%why, path = %self.real.display(), "the record of a write was not stored");
        }
        match placed.map_err(|why| path_error(self.path, &why))? {
            Placement::Placed => Ok(()),
            Placement::Busy => Err(ToolError::Reply(format!(
                "nothing was written: another program has {} open for writing; try again, or end \
                 that program",
                self.path
            ))),
            Placement::Changed | Placement::Restored { .. } => Err(changed(self.path)),
        }
    }

    /// Records a write for undo. A write that cannot be recorded is made all the same: the undo then refuses the file,
    /// since its content is none that the journal names.
    fn record_for_undo(&self, old: Option<&[u8]>, new: Option<(&[u8], u32)>) -> bool {
        let old = old.map(|old| (old, self.mode.get()));
        let write = NewWrite { path: &self.real, old, new };
        let recorded = self.writer.recorder.record_write(&write);
        if let Err(why) = &recorded {
            tracing::warn!(%why, path = %self.real.display(), "a write was not recorded for undo");
        }
        recorded.is_ok()
    }

    fn withdraw_for_undo(&self, hash: Option<&ContentHash>) {
        if let Err(why) = self.writer.recorder.withdraw(&self.real, hash) {
            tracing::warn!(%why, path = %self.real.display(), "a write was not withdrawn for undo");
        }
    }

    /// Keeps a version that another program wrote in the middle of a write.
    fn keep(&mut self, version: &[u8]) -> Result<(), ToolError> {
        let path = self.path;
        if version.is_empty() {
            return Ok(());
        }
        let kept = self.writer.keep(version).map_err(|why| {
            ToolError::Reply(format!(
                "{path} was changed by another program while it was written, and no copy of that \
                 version could be kept: {why}; read the file again"
            ))
        })?;
        self.kept.push(format!(
            "{path} was changed by another program in the middle: its version is kept in {kept}"
        ));
        Ok(())
    }

    /// Moves a version that has only the name of the draft to the kept versions. If that fails, the version stays, and
    /// the next holder of the lock tries again.
    fn keep_draft(&mut self, version: &DraftFile) -> Result<(), ToolError> {
        let bytes = version.read().map_err(|why| path_error(self.path, &why))?;
        self.keep(&bytes)?;
        version.remove().map_err(|why| path_error(self.path, &why))
    }

    /// Removes the draft of a process that was killed, or keeps it if it is a version of another program.
    fn recover(&mut self) -> Result<(), ToolError> {
        let leftover = self.spot.leftover(&draft_name(&self.real));
        let leftover = leftover.map_err(|why| path_error(self.path, &why))?;
        let is_pending = self.record().pending;
        if let Some(version) = leftover {
            // Before the record is pending, the draft has not had the name of the file.
            if is_pending && !self.is_of_last_write(&version)? {
                self.keep_draft(&version)?;
            } else {
                version.remove().map_err(|why| path_error(self.path, &why))?;
            }
        }
        if is_pending {
            let current = self.load()?.map(|bytes| ContentHash::of(&bytes));
            let last = self.record().writes.last();
            let is_removed = current.is_none() && last.is_some_and(FileWrite::may_remove);
            let is_done = is_removed || current.as_ref() == last.map(|write| &write.hash);
            self.void_for_undo(is_done);
            self.lock.end(is_done).map_err(|why| lock_error(self.path, &why))?;
        }
        Ok(())
    }

    /// Corrects the journal of the agent whose last write was cut off.
    fn void_for_undo(&self, is_done: bool) {
        let Some(last) = self.record().writes.last().filter(|_| !is_done) else { return };
        // An undo of the person has a record of its own.
        let by = AgentName::mailbox(&last.by).ok().filter(|by| *by != AgentName::user());
        let Some(by) = by else { return };
        let hash = Some(&last.hash).filter(|_| !last.may_remove());
        if let Err(why) = recorder::void(&self.writer.dir, &by, &self.real, hash) {
            tracing::warn!(%why, path = %self.real.display(), "a write was not withdrawn for undo");
        }
    }

    /// Whether a file has the content that the last write put in place or replaced.
    fn is_of_last_write(&self, version: &DraftFile) -> Result<bool, ToolError> {
        let bytes = version.read().map_err(|why| path_error(self.path, &why))?;
        let hash = Some(ContentHash::of(&bytes));
        let last = self.record().writes.last();
        Ok(last.is_some_and(|last| hash == last.base || hash.as_ref() == Some(&last.hash)))
    }
}
