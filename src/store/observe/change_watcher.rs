//! Tells a viewer that something below `.team/` has changed; the viewer finds out what.

use crate::os::watch::{Watch, Written};
use crate::store::TeamDir;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// File events of the folders that a view shows.
#[derive(Debug)]
pub(crate) struct ChangeWatcher(Watch);

impl ChangeWatcher {
    /// Starts to watch. Fails if the user has no file events left.
    pub(crate) fn listen(dir: &TeamDir) -> io::Result<Self> {
        let watch = Watch::new()?;
        let root = dir.root().to_path_buf();
        for folder in [root, dir.inboxes(), dir.claims(), dir.conversations(), dir.tasks()] {
            watch.add_folder(&folder)?;
        }
        Ok(Self(watch))
    }

    /// Consumes the pending events. Fails if the events cannot be read.
    pub(crate) fn acknowledge(&self) -> io::Result<()> {
        self.0.acknowledge(&mut Written::default())
    }
}

impl AsFd for ChangeWatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
