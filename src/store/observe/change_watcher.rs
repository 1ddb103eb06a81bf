//! Tells that something below `.team/` has changed; the listener finds out what.

use crate::os::file::{Access, open_or_create};
use crate::os::watch::{Watch, Written};
use crate::store::TeamDir;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// File events. Listening fails if the user has none left; poll instead.
#[derive(Debug)]
pub(crate) struct ChangeWatcher(Watch);

impl ChangeWatcher {
    /// Listens to the folders that a view shows.
    pub(crate) fn listen(dir: &TeamDir) -> io::Result<Self> {
        let watch = Watch::new()?;
        let root = dir.root().to_path_buf();
        for folder in [root, dir.inboxes(), dir.claims(), dir.conversations(), dir.tasks()] {
            watch.add_folder(&folder)?;
        }
        Ok(Self(watch))
    }

    /// Listens to changes of the task list by the programs of a team.
    pub(crate) fn of_tasks(dir: &TeamDir) -> io::Result<Self> {
        let path = dir.tasks_lock();
        open_or_create(&path, Access::Update).map_err(io::Error::other)?;
        let watch = Watch::new()?;
        watch.add(&path)?;
        Ok(Self(watch))
    }

    /// Consumes the pending events.
    pub(crate) fn acknowledge(&self) -> io::Result<()> {
        self.0.acknowledge(&mut Written::default())
    }
}

impl AsFd for ChangeWatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
