//! The folder of all inboxes, which a sender holds open: a file in it is found without the way to it.

use crate::os::file::held_folder::HeldFolder;
use crate::os::file::{Access, At, FileError, open_known_in};
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::limits::TRUSTED_FOR;
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The folder of all inboxes.
#[derive(Debug)]
pub(crate) struct InboxFolder {
    dir: TeamDir,
    path: PathBuf,
    held: Mutex<Option<FoundFolder>>,
}

impl InboxFolder {
    /// Returns the folder of the senders. In a team that plays a record, mail is held until its recipient is to get it.
    pub(crate) fn of_senders(dir: &TeamDir) -> Arc<Self> {
        Self::at(dir, if dir.holds_mail() { dir.held_mail() } else { dir.inboxes() })
    }

    /// Returns the folder of the inboxes themselves, also in a team that plays a record.
    pub(super) fn of_owners(dir: &TeamDir) -> Arc<Self> {
        Self::at(dir, dir.inboxes())
    }

    fn at(dir: &TeamDir, path: PathBuf) -> Arc<Self> {
        Arc::new(Self { dir: dir.clone(), path, held: Mutex::default() })
    }

    /// Returns the folder of the team.
    pub(super) fn dir(&self) -> &TeamDir {
        &self.dir
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of an inbox.
    pub(super) fn inbox(&self, name: &AgentName) -> PathBuf {
        self.path.join(self.dir.inbox(name).file_name().unwrap_or_default())
    }

    /// Returns the folder as found at its path a moment ago, or finds it now. Fails if the team folder was removed, or was replaced
    /// more than [`TRUSTED_FOR`] ago.
    pub(super) fn current(&self) -> Result<FoundFolder, StoreError> {
        let found = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match found {
            Some(found) if found.at.elapsed() < TRUSTED_FOR => Ok(found),
            Some(_) | None => self.find(),
        }
    }

    /// Finds the folder at its path.
    pub(super) fn find(&self) -> Result<FoundFolder, StoreError> {
        let at = Instant::now();
        self.dir.is_still_there()?;
        let folder = Arc::new(HeldFolder::open(&self.path).at(&self.path)?);
        let found = FoundFolder { folder, at };
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
        Ok(found)
    }
}

/// The open folder of all inboxes. Nothing is found in one that was removed, so no line is written there.
#[derive(Debug, Clone)]
pub(super) struct FoundFolder {
    folder: Arc<HeldFolder>,
    /// The time at which it was at its path.
    pub(super) at: Instant,
}

impl FoundFolder {
    /// Opens an existing inbox.
    pub(super) fn open(&self, inbox: &Path) -> Result<(File, Metadata), FileError> {
        open_known_in(&self.folder, inbox, Access::Append)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::fs;

    #[test]
    fn nothing_is_opened_in_a_removed_folder_and_a_replaced_one_is_noticed() {
        let (top, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let inbox = dir.inbox(&alice);
        drop(File::create(&inbox).unwrap());
        let folder = InboxFolder::of_senders(&dir);
        let found = folder.current().unwrap();
        found.open(&inbox).unwrap();
        let moved = top.path().join("moved");
        fs::rename(dir.root(), &moved).unwrap();
        // Another team, at the same path, with an inbox of the same name.
        let other = TeamDir::create(dir.root()).unwrap();
        drop(File::create(other.inbox(&alice)).unwrap());
        assert!(matches!(folder.find(), Err(StoreError::Gone(_))));
        fs::remove_dir_all(moved).unwrap();
        // However short ago it was found.
        assert!(found.open(&inbox).is_err_and(|why| why.is_missing()));
        let start = Instant::now();
        while start.elapsed() <= TRUSTED_FOR {
            std::thread::park_timeout(TRUSTED_FOR);
        }
        assert!(matches!(folder.current(), Err(StoreError::Gone(_))));
    }
}
