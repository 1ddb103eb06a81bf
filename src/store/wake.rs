//! What an owner waits on until mail comes.
//!
//! Watches follow files through renames: the next inbox is watched before it becomes the inbox, and a
//! claim stays watched until it is gone. Nothing here reads mail.

use super::{StoreError, TeamDir};
use crate::os::watch::{Bell, Watch, take_down};
use crate::wire::AgentName;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How an owner learns of new mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeMode {
    /// File events: also those of a plain `echo >>`.
    Events,
    /// Our own senders ring a bell; everybody else's mail is found by the poll.
    Bell,
}

impl WakeMode {
    /// How often to ask [`Mailbox::has_unread`](super::Mailbox::has_unread) all the same.
    pub fn poll(self) -> Duration {
        match self {
            Self::Events => Duration::from_secs(1),
            Self::Bell => Duration::from_millis(250),
        }
    }
}

/// The waiting end of one mailbox.
#[derive(Debug)]
pub(crate) struct Waker {
    bell: PathBuf,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Events(Watch),
    Bell(Bell),
}

impl Waker {
    /// File events, or the bell when the user has none left.
    pub(crate) fn open(dir: &TeamDir, name: &AgentName) -> Result<Self, StoreError> {
        let bell = dir.bell(name);
        let source = match Watch::new() {
            Ok(watch) => {
                take_down(&bell);
                Source::Events(watch)
            }
            Err(_) => Source::Bell(Bell::hang(&bell)?),
        };
        Ok(Self { bell, source })
    }

    /// Watches the file that stands at `path` now.
    pub(crate) fn watch(&mut self, path: &Path) -> Result<(), StoreError> {
        let is_watched = match &self.source {
            Source::Events(watch) => watch.add(path).is_ok(),
            Source::Bell(_) => true,
        };
        if !is_watched {
            self.source = Source::Bell(Bell::hang(&self.bell)?);
        }
        Ok(())
    }

    /// Takes what has come; the descriptor is quiet afterwards.
    pub(crate) fn acknowledge(&mut self) -> Result<(), StoreError> {
        let answer = match &self.source {
            Source::Events(watch) => watch.acknowledge(),
            Source::Bell(bell) => bell.acknowledge(),
        };
        if answer.is_err() {
            self.source = Source::Bell(Bell::hang(&self.bell)?);
        }
        Ok(())
    }

    pub(crate) fn mode(&self) -> WakeMode {
        match &self.source {
            Source::Events(_) => WakeMode::Events,
            Source::Bell(_) => WakeMode::Bell,
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Events(watch) => watch.as_fd(),
            Source::Bell(bell) => bell.as_fd(),
        }
    }
}
