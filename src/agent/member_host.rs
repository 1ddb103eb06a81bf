//! Where a member's conversation runs: its events and its status. A full disk is waited out here.

use super::conversation::{DiskFullHandler, NextAttempt, RecordError};
use super::event::{Ending, Event};
use super::inbound::Inbound;
use super::member_status::{Due, MemberStatus, until};
use super::progress::Progress;
use crate::store::{StoreError, TeamDir};
use crate::wire::activity::Activity;
use crate::wire::roster::Status;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long to wait before a full disk is written to again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What is shown once a full disk has room again.
pub(super) const ROOM_AGAIN: &str = "there is room on the disk again: going on";

/// What is shown when a full disk is met.
pub(super) fn disk_full(why: &StoreError) -> String {
    format!("{}: {why}; waiting for room, nothing is lost", Activity::DiskFull)
}

/// The surroundings of a member's conversation.
pub(super) struct MemberHost {
    inbound: Inbound,
    member_status: MemberStatus,
    /// The team folder, which holds the reserve.
    dir: TeamDir,
    show: Rc<dyn Fn(&Progress)>,
}

/// What wakes the loop.
#[derive(Debug)]
pub(super) enum Wake {
    /// An event; `None` when the channel is closed.
    Event(Option<Event>),
    /// The given time has come.
    Timeout,
    /// Something about the status is due.
    Status(Due),
}

impl MemberHost {
    /// Combines them.
    pub(super) fn new(
        inbound: Inbound,
        member_status: MemberStatus,
        dir: TeamDir,
        show: Rc<dyn Fn(&Progress)>,
    ) -> Self {
        Self { inbound, member_status, dir, show }
    }

    /// Waits for the next event, the given time, or the status. Dropping the future loses nothing.
    pub(super) async fn next(&mut self, timeout: Option<Instant>) -> Wake {
        tokio::select! {
            event = self.inbound.next() => Wake::Event(event),
            () = until(timeout) => Wake::Timeout,
            due = self.member_status.due() => Wake::Status(due),
        }
    }

    /// What others see.
    pub(super) fn status(&mut self) -> &mut MemberStatus {
        &mut self.member_status
    }

    /// Returns the status, for the end of the life.
    pub(super) fn into_status(self) -> MemberStatus {
        self.member_status
    }

    /// Shows progress.
    pub(super) fn show(&self, progress: &Progress) {
        (self.show)(progress);
    }

    /// Waits for room on the disk. Events are put off; true if the member is to end.
    pub(super) async fn wait_for_room(&mut self) -> bool {
        // A member that waits is not hung.
        self.member_status.beat();
        self.inbound.wait_for_stop(RETRY_AFTER).await.is_some()
    }

    /// Shows and logs an error.
    pub(super) fn show_error(&self, text: &str) {
        tracing::error!("{text}");
        self.show(&Progress::Note(text.into()));
    }

    /// How the loop ends because an entry was not recorded.
    pub(super) fn ending(&self, why: RecordError) -> Ending {
        match (why, self.inbound.stop_wish()) {
            (RecordError::GivenUp, Some(cause)) => Ending::Stopped(cause),
            (RecordError::GivenUp, None) => Ending::Broken("the disk is full".into()),
            (RecordError::Broken(why), _) => Ending::Broken(why),
        }
    }
}

impl DiskFullHandler for MemberHost {
    /// Does nothing but listen for the wish to end; then the reserve makes room for the last entry.
    async fn wait(&mut self, why: &StoreError, is_first: bool) -> NextAttempt {
        if is_first {
            self.show_error(&disk_full(why));
            self.member_status.publish(Status::Waiting, Some(Activity::DiskFull)).await;
        }
        if !self.wait_for_room().await {
            return NextAttempt::Again;
        }
        if let Err(why) = self.dir.give_up_reserve() {
            tracing::error!(%why, "the reserve could not be given up");
        }
        NextAttempt::Last
    }

    fn has_room_again(&mut self) {
        self.show_error(ROOM_AGAIN);
    }
}
