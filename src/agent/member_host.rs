//! The host of a member's conversation: its queue of events, its roster entry and its heartbeat. The host also
//! waits while the disk is full.

use super::conversation::{DiskFullHandler, NextAttempt, RecordError};
use super::event::{Ending, Event, MachineEvent, StopCause};
use super::heartbeat::{HeartbeatWriter, until};
use super::identity::MemberContext;
use super::progress::Progress;
use super::status::StatusReporter;
use crate::store::StoreError;
use crate::wire::activity::Activity;
use crate::wire::roster::Status;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;

/// The wait before the next attempt to write to a full disk.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The message that is shown when a full disk has room again.
pub(super) const ROOM_AGAIN: &str = "the disk has room again: continuing";

/// Returns the message that is shown when a write finds the disk full.
pub(super) fn disk_full(why: &StoreError) -> String {
    format!("{}: {why}; waiting for free space, nothing is lost", Activity::DiskFull)
}

pub(super) struct MemberHost {
    pub(super) context: Rc<MemberContext>,
    pub(super) inbound: UnboundedReceiver<Event>,
    /// Events that arrived while the host waited for room on the disk, oldest first.
    pub(super) put_off: VecDeque<Event>,
    pub(super) reporter: StatusReporter,
    pub(super) heartbeat: HeartbeatWriter,
    pub(super) tool_limit_s: Option<u64>,
}

/// Causes that wake the event loop.
#[derive(Debug)]
pub(super) enum Wake {
    /// An event; `None` when the channel is closed.
    Event(Option<Event>),
    Timeout,
    StatusDue,
    /// The end of a write of the status that nobody has waited for.
    StatusWritten,
    HeartbeatDue,
}

impl MemberHost {
    /// Waits for the next event (deferred ones come first), `timeout`, or the time of the next status or
    /// heartbeat. Dropping the future loses nothing.
    pub(super) async fn next(&mut self, timeout: Option<Instant>) -> Wake {
        let (inbound, put_off) = (&mut self.inbound, &mut self.put_off);
        let event = async {
            match put_off.pop_front() {
                Some(event) => Some(event),
                None => inbound.recv().await,
            }
        };
        let status_due = self.reporter.due();
        tokio::select! {
            event = event => Wake::Event(event),
            () = until(timeout) => Wake::Timeout,
            () = until(status_due) => Wake::StatusDue,
            () = self.reporter.written() => Wake::StatusWritten,
            () = until(self.heartbeat.due) => Wake::HeartbeatDue,
        }
    }

    /// Notes the start of a tool call with this time limit, and writes a heartbeat.
    pub(super) fn tool_starts(&mut self, limit_s: u64) {
        self.tool_limit_s = Some(limit_s);
        self.write_heartbeat();
    }

    /// Writes a heartbeat, unless the member is idle without mail.
    pub(super) fn write_heartbeat(&mut self) {
        let (status, activity) = self.reporter.shown();
        // A mailbox that is locked is being drained.
        let has_mail = self.context.mailbox.try_lock().map_or(true, |mail| mail.has_unread());
        if status == Status::Idle && !has_mail {
            self.heartbeat.due = None;
            return;
        }
        let (state, limit) = match activity.filter(|_| status == Status::Working) {
            Some(Activity::Model | Activity::Retrying(_)) => ("llm".to_owned(), None),
            Some(activity) => (format!("tool:{activity}"), self.tool_limit_s),
            None => (status.word().to_owned(), None),
        };
        self.heartbeat.write(&state, limit);
    }

    /// Waits [`RETRY_AFTER`] for room on the disk and defers events. Returns true at once if the member is to end.
    pub(super) async fn wait_for_room(&mut self) -> bool {
        // A member that waits is not hung.
        self.write_heartbeat();
        let over = tokio::time::Instant::now() + RETRY_AFTER;
        loop {
            if self.stop_wish().is_some() {
                return true;
            }
            tokio::select! {
                () = tokio::time::sleep_until(over) => return false,
                Some(event) = self.inbound.recv() => self.put_off.push_back(event),
            }
        }
    }

    /// Returns the cause of a deferred stop, if there is one. The event stays in the queue.
    fn stop_wish(&self) -> Option<&StopCause> {
        self.put_off.iter().find_map(|event| {
            if let Event::Machine(MachineEvent::Stop(cause)) = event { Some(cause) } else { None }
        })
    }

    pub(super) fn show_error(&self, text: &str) {
        tracing::error!("{text}");
        (self.context.show)(&Progress::Warning(text.into()));
    }

    /// Returns the way in which the event loop ends because an entry was not recorded.
    pub(super) fn ending(&self, why: RecordError) -> Ending {
        match (why, self.stop_wish()) {
            (RecordError::GivenUp, Some(cause)) => Ending::Stopped(cause.clone()),
            (RecordError::GivenUp, None) => Ending::Broken("the disk is full".into()),
            (RecordError::Broken(why), _) => Ending::Broken(why),
        }
    }
}

impl DiskFullHandler for MemberHost {
    /// Waits, and handles only a stop. On a stop, the reserve is removed to make room for the last entry.
    async fn wait(&mut self, why: &StoreError, is_first: bool) -> NextAttempt {
        if is_first {
            self.show_error(&disk_full(why));
            self.reporter.publish(Status::Waiting, Some(Activity::DiskFull)).await;
        }
        if !self.wait_for_room().await {
            return NextAttempt::Again;
        }
        if let Err(why) = self.context.bus.dir().give_up_reserve() {
            tracing::error!(%why, "the reserve could not be released");
        }
        NextAttempt::Last
    }

    fn has_room_again(&mut self) {
        self.show_error(ROOM_AGAIN);
    }
}
