//! Watches for changes below `.team/`. An event does not say what has changed.

use crate::os::file::{Access, open_or_create};
use crate::os::watch::{Watch, Written};
use crate::store::TeamDir;
use crate::wire::host_order::OrderSide;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A source of file events. Creating one fails if the user has no file events left; the caller then polls.
#[derive(Debug)]
pub(crate) struct ChangeWatcher(Watch);

impl ChangeWatcher {
    /// Watches the folders that a view shows.
    pub(crate) fn listen(dir: &TeamDir) -> io::Result<Self> {
        let watch = Watch::new()?;
        let root = dir.root().to_path_buf();
        for folder in [root, dir.inboxes(), dir.claims(), dir.conversations(), dir.tasks()] {
            watch.add_folder(&folder)?;
        }
        Ok(Self(watch))
    }

    /// Watches for changes of the task list by the programs of a team.
    pub(crate) fn of_tasks(dir: &TeamDir) -> io::Result<Self> {
        let path = dir.tasks_lock();
        open_or_create(&path, Access::Update).map_err(io::Error::other)?;
        let watch = Watch::new()?;
        watch.add(&path)?;
        Ok(Self(watch))
    }

    /// Watches for orders of other hosts. Their folder exists.
    pub(crate) fn of_orders(dir: &TeamDir) -> io::Result<Self> {
        let watch = Watch::new()?;
        watch.add_folder(&dir.relay_orders(OrderSide::In))?;
        Ok(Self(watch))
    }

    /// Consumes the pending events; whether a file has come or was written to.
    pub(crate) fn has_changed(&self) -> io::Result<bool> {
        Ok(self.0.changed_names()?.is_none_or(|names| !names.is_empty()))
    }

    pub(crate) fn acknowledge(&self) -> io::Result<()> {
        self.0.acknowledge(&mut Written::default())
    }
}

impl AsFd for ChangeWatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
