//! Wakes the owner of a mailbox when mail arrives.
//!
//! Watches follow files through renames: the next inbox is watched before it becomes the inbox, and a claim is
//! watched until it is removed. This module reads no mail.

use crate::os::watch::{Fifo, Watch, WatchId, Written, is_local, is_quiet, remove_fifo, touch};
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::limits::{MAIL_POLL, MAIL_POLL_WITH_TESTED_EVENTS, MAIL_POLL_WITHOUT_EVENTS};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The mechanism by which new mail wakes an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeMode {
    /// File events, which a plain `echo >>` causes as well.
    Events,
    /// A fifo to which the programs of the team write. Mail of other programs is found by the poll.
    Fifo,
}

/// The wake-up source of a mailbox's owner.
#[derive(Debug)]
pub(crate) struct Waker {
    fifo: PathBuf,
    source: Source,
    written: Written,
}

#[derive(Debug)]
enum Source {
    Events {
        watch: Watch,
        poll: Duration,
    },
    Fifo(Fifo),
    /// The owner watches the folder of all inboxes itself.
    Outside,
}

impl Waker {
    /// Opens file events, or a fifo if the user has no file events left.
    pub(crate) fn open(dir: &TeamDir, name: &AgentName) -> Result<Self, StoreError> {
        let fifo = dir.fifo(name);
        let source = match Watch::new() {
            Ok(watch) => {
                remove_fifo(&fifo);
                Source::Events { watch, poll: MAIL_POLL }
            }
            Err(_) => Source::Fifo(Fifo::open(&fifo)?),
        };
        Ok(Self { fifo, source, written: Written::default() })
    }

    /// Creates the waker of an owner that watches the folder of all inboxes itself: for thousands of mailboxes, a user has too
    /// few file events, and closing them takes long.
    pub(crate) fn outside(dir: &TeamDir, name: &AgentName) -> Self {
        Self { fifo: dir.fifo(name), source: Source::Outside, written: Written::default() }
    }

    /// Watches the file that is at `path` now.
    pub(crate) fn watch(&mut self, path: &Path) -> Result<Option<WatchId>, StoreError> {
        let Source::Events { watch, .. } = &self.source else { return Ok(None) };
        match watch.add(path) {
            Ok(watch_id) => Ok(Some(watch_id)),
            Err(_) => {
                self.source = Source::Fifo(Fifo::open(&self.fifo)?);
                Ok(None)
            }
        }
    }

    /// Lengthens the poll period if events of a watched file arrive and no other machine can write to the disk.
    pub(crate) fn test_events(&mut self, dir: &TeamDir, file: &File) -> Result<(), StoreError> {
        let Source::Events { watch, poll } = &mut self.source else { return Ok(()) };
        let is_tested = is_local(file)
            && watch.add_place(dir.root()).is_ok()
            && touch(file).is_ok()
            && !is_quiet(watch.as_fd());
        if is_tested {
            *poll = MAIL_POLL_WITH_TESTED_EVENTS;
        }
        self.acknowledge()
    }

    pub(crate) fn poll(&self) -> Duration {
        if let Source::Events { poll, .. } = self.source { poll } else { MAIL_POLL_WITHOUT_EVENTS }
    }

    pub(crate) fn acknowledge(&mut self) -> Result<(), StoreError> {
        let answer = match &self.source {
            Source::Events { watch, .. } => watch.acknowledge(&mut self.written),
            Source::Fifo(fifo) => fifo.acknowledge(),
            Source::Outside => Ok(()),
        };
        if answer.is_err() {
            self.source = Source::Fifo(Fifo::open(&self.fifo)?);
        }
        Ok(())
    }

    /// Whether events are pending, or file events are not in use.
    pub(crate) fn is_blind(&self) -> bool {
        let Source::Events { watch, .. } = &self.source else { return true };
        !is_quiet(watch.as_fd())
    }

    /// Whether a watched file may have been written to, as of the consumed events.
    pub(crate) fn may_be_written(&self, watch_id: Option<WatchId>) -> bool {
        self.written.may_have(watch_id)
    }

    pub(crate) fn forget_written(&mut self) {
        self.written = Written::default();
    }

    /// Returns the descriptor that is readable when something has happened; `None` if the owner watches itself.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Events { watch, .. } => Some(watch.as_fd()),
            Source::Fifo(fifo) => Some(fifo.as_fd()),
            Source::Outside => None,
        }
    }

    pub(crate) fn mode(&self) -> WakeMode {
        if let Source::Events { .. } = self.source { WakeMode::Events } else { WakeMode::Fifo }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::skips::skipped;

    #[test]
    fn tested_events_make_the_poll_rare_and_a_moved_team_folder_wakes() {
        let top = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&top.path().join(".team")).unwrap();
        let alice = AgentName::member("alice").unwrap();
        let file = File::create(dir.inbox(&alice)).unwrap();
        let mut waker = Waker::open(&dir, &alice).unwrap();
        if waker.mode() == WakeMode::Fifo {
            skipped("this user has no file events left");
            return;
        }
        assert_eq!(waker.poll(), MAIL_POLL);
        waker.test_events(&dir, &file).unwrap();
        assert_eq!(waker.poll(), MAIL_POLL, "no event of the file can come yet");
        waker.watch(&dir.inbox(&alice)).unwrap();
        waker.test_events(&dir, &file).unwrap();
        if is_local(&file) {
            assert_eq!(waker.poll(), MAIL_POLL_WITH_TESTED_EVENTS);
        } else {
            skipped("the folder of temporary files is not on a local disk");
            assert_eq!(waker.poll(), MAIL_POLL);
        }
        assert!(!waker.is_blind(), "the test itself does not wake the owner");
        std::fs::rename(dir.root(), top.path().join("moved")).unwrap();
        assert!(waker.is_blind() || !is_local(&file), "moving the folder wakes");
        waker.watch(&dir.inbox(&alice)).unwrap_err();
    }
}
