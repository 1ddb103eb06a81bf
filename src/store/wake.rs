//! What an owner waits on until mail comes.
//!
//! Watches follow files through renames: the next inbox is watched before it becomes the inbox, and a
//! claim stays watched until it is gone. Nothing here reads mail.

use super::{StoreError, TeamDir};
use crate::os::watch::{Bell, Mark, Watch, Written, is_quiet, take_down};
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
    written: Written,
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
        Ok(Self { bell, source, written: Written::default() })
    }

    /// Watches the file that stands at `path` now.
    pub(crate) fn watch(&mut self, path: &Path) -> Result<Option<Mark>, StoreError> {
        let Source::Events(watch) = &self.source else { return Ok(None) };
        match watch.add(path) {
            Ok(mark) => Ok(Some(mark)),
            Err(_) => {
                self.source = Source::Bell(Bell::hang(&self.bell)?);
                Ok(None)
            }
        }
    }

    /// Takes what has come; the descriptor is quiet afterwards.
    pub(crate) fn acknowledge(&mut self) -> Result<(), StoreError> {
        let answer = match &self.source {
            Source::Events(watch) => watch.acknowledge(&mut self.written),
            Source::Bell(bell) => bell.acknowledge(),
        };
        if answer.is_err() {
            self.source = Source::Bell(Bell::hang(&self.bell)?);
        }
        Ok(())
    }

    /// Whether events are still to be acknowledged, or there are none to go by.
    pub(crate) fn is_blind(&self) -> bool {
        match &self.source {
            Source::Events(watch) => !is_quiet(watch.as_fd()),
            Source::Bell(_) => true,
        }
    }

    /// Whether a watched file may have been written to, as far as events were acknowledged.
    pub(crate) fn may_be_written(&self, mark: Option<Mark>) -> bool {
        self.written.may_have(mark)
    }

    /// Everything that was written is known now.
    pub(crate) fn forget_written(&mut self) {
        self.written = Written::default();
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
