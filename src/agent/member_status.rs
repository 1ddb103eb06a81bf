//! What others see of a member: its roster entry and its heartbeat.

use super::heartbeat::HeartbeatWriter;
use super::status::{Doing, StatusReporter};
use crate::store::{Mailbox, StoreError};
use crate::wire::activity::Activity;
use crate::wire::chat::Usage;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::{Status, UsageCount};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A member's status and heartbeat.
pub(super) struct MemberStatus {
    reporter: StatusReporter,
    heartbeat: HeartbeatWriter,
    mailbox: Arc<Mutex<Mailbox>>,
    /// Time limit of the last tool call, in seconds.
    tool_limit_s: Option<u64>,
}

impl MemberStatus {
    /// Combines the two; `mailbox` tells whether an idle member has mail to read.
    pub(super) fn new(
        reporter: StatusReporter,
        heartbeat: HeartbeatWriter,
        mailbox: Arc<Mutex<Mailbox>>,
    ) -> Self {
        Self { reporter, heartbeat, mailbox, tool_limit_s: None }
    }

    /// Returns the reporter, for the last status of the life.
    pub(super) fn into_reporter(self) -> StatusReporter {
        self.reporter
    }

    /// Waits until the roster or the heartbeat is due. Dropping the future loses nothing.
    pub(super) async fn due(&self) -> Due {
        tokio::select! {
            () = until(self.reporter.due()) => Due::Status,
            () = until(self.heartbeat.due()) => Due::Heartbeat,
        }
    }

    /// Writes what has changed into the roster.
    pub(super) async fn write(&mut self) {
        log_error(self.reporter.write().await);
    }

    /// Sets status and activity.
    pub(super) async fn publish(&mut self, status: Status, activity: Option<Activity>) {
        log_error(self.reporter.publish(status, activity).await);
    }

    /// Sets why the member refuses to end.
    pub(super) async fn publish_refusal(&mut self, why: String) {
        log_error(self.reporter.refuse_to_end(why).await);
    }

    /// Sets the permission mode.
    pub(super) async fn set_mode(&mut self, mode: PermissionMode) {
        log_error(self.reporter.set_mode(mode).await);
    }

    /// Whether the roster holds the current status.
    pub(super) fn is_published(&self) -> bool {
        self.reporter.is_published()
    }

    /// Counts the tokens of a model call.
    pub(super) fn count(&mut self, usage: Usage) {
        self.reporter.count(usage);
    }

    /// Counts a turn.
    pub(super) fn count_turn(&mut self) {
        self.reporter.count_turn();
    }

    /// What the member has used until now.
    pub(super) fn used(&self) -> UsageCount {
        self.reporter.used()
    }

    /// Writes what the member has used where those who share its budget read it.
    pub(super) fn share_usage(&self) {
        log_error(self.reporter.share());
    }

    /// Something happened: the next heartbeat comes in time.
    pub(super) fn on_event(&mut self) {
        self.heartbeat.note_event();
    }

    /// A tool call with this time limit starts.
    pub(super) fn tool_starts(&mut self, limit_s: u64) {
        self.tool_limit_s = Some(limit_s);
        self.beat();
    }

    /// Writes a heartbeat, unless the member is idle without mail.
    pub(super) fn beat(&mut self) {
        let doing = self.reporter.doing();
        // A mailbox that is locked is being drained.
        let has_mail = self.mailbox.try_lock().map_or(true, |mailbox| mailbox.has_unread());
        if doing == Doing::Status(Status::Idle) && !has_mail {
            return self.heartbeat.rest();
        }
        let limit = self.tool_limit_s.filter(|_| matches!(doing, Doing::Tool(_)));
        self.heartbeat.beat(&doing.to_string(), limit);
    }
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// The roster entry.
    Status,
    /// The heartbeat.
    Heartbeat,
}

/// Waits until a point in time; for ever without one.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Logs that the status was not written: the member works on.
fn log_error(done: Result<(), StoreError>) {
    if let Err(why) = done {
        tracing::error!(%why, "the team folder could not be written");
    }
}
