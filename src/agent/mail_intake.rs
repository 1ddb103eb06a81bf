//! A member's mailbox: takes its mail into the transcript and the memory, and lends its transcript, to which
//! a drain writes, too, to the conversation.

use super::conversation::{Journal, SyncFuture, TranscriptWriter};
use super::event::{Event, MachineEvent};
use super::identity::MemberContext;
use super::member_host::{RETRY_AFTER, ROOM_AGAIN, disk_full};
use super::progress::Progress;
use crate::store::asynchronous::{self, sync_transcript};
use crate::store::{Drained, MailNotice, StoreError};
use crate::wire::message::{Body, Message};
use crate::wire::transcript::{Entry, Line};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

/// A member's incoming mail.
pub(super) struct MailIntake {
    pub(super) context: Rc<MemberContext>,
    /// Mail was acted on that still looks unread.
    pub(super) is_mark_due: bool,
}

impl MailIntake {
    /// Drains the mailbox beside the loop, however long the disk is full; the result is an event.
    pub(super) fn drain(&mut self) {
        // The mail that this brings is marked together with the mail that was due.
        self.is_mark_due = false;
        let context = Rc::clone(&self.context);
        tokio::task::spawn_local(async move {
            let event = match drain_with_retry(&context).await {
                Ok(drained) => {
                    report_dead_letters(&context, &drained).await;
                    Event::Drained(drained)
                }
                Err(failed) => failed.into(),
            };
            let _ended = context.events.send(event);
        });
    }

    /// Takes drained mail, which stands in the transcript, into the memory. Returns the messages for the
    /// machine, which must not hear of them before.
    pub(super) fn remember(&self, drained: Drained, journal: &mut Journal) -> Vec<Message> {
        let mut messages = Vec::with_capacity(drained.mail.len());
        for mail in drained.mail {
            let object = mail.object();
            if !mail.message.body.is_for_program() {
                self.context.team_context.take_note(&object);
            }
            let Message { id, from, body, .. } = &*mail.message;
            tracing::info!(id, from, kind = body.kind(), "mail taken in");
            messages.push(*mail.message);
            let (claim, offset, message) = (mail.batch_id, mail.offset, object);
            journal.remember(&Entry::Mail { claim, offset, message });
        }
        messages
    }

    /// Marks the mail of the last drain as acted on: it no longer looks unread. That waits until the
    /// roster shows the member at work, so that an observer never sees neither.
    pub(super) fn mark_taken(&mut self, is_status_published: bool) {
        self.is_mark_due = !is_status_published;
        if is_status_published {
            let mut mailbox = self.context.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(why) = mailbox.mark_taken() {
                tracing::error!(%why, "mail that was acted on still looks unread");
            }
        }
    }
}

async fn drain_with_retry(context: &MemberContext) -> Result<Drained, MachineEvent> {
    let MemberContext { mailbox, events, show, .. } = context;
    let mut has_waited = false;
    loop {
        match asynchronous::drain(mailbox).await {
            Ok(drained) => {
                if has_waited {
                    show(&Progress::Note(ROOM_AGAIN.into()));
                }
                return Ok(drained);
            }
            Err(why) if why.is_full() => {
                if !std::mem::replace(&mut has_waited, true) {
                    tracing::error!(%why, "the disk is full");
                    show(&Progress::Note(disk_full(&why)));
                    let _ended = events.send(MachineEvent::DiskFull.into());
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
            Err(why @ StoreError::Gone { .. }) => {
                return Err(MachineEvent::TeamGone(why.to_string()));
            }
            Err(why) => return Err(MachineEvent::DrainFailed(why.to_string())),
        }
    }
}

/// Logs the lines that became dead letters and tells the lead of them, once for each drain.
async fn report_dead_letters(context: &MemberContext, drained: &Drained) {
    let me = &context.me.name;
    let mut told: Option<(u32, &str, String)> = None;
    for notice in &drained.notices {
        match notice {
            MailNotice::Dead { reason, batch_id, offset } => {
                tracing::error!(reason, batch_id, offset, "a line became a dead letter");
                let first = (0, reason.as_str(), format!("system:dead:{me}:{batch_id}:{offset}"));
                told.get_or_insert(first).0 += 1;
            }
            MailNotice::Repeated { id, from } => {
                tracing::info!(id, from, "a message came again and was dropped");
            }
        }
    }
    let Some((count, reason, id)) = told else { return };
    let content = format!(
        "{count} line(s) in the inbox of {me} could not be delivered (the first: {reason}); they are \
         kept as dead letters of {me}"
    );
    let bus = Arc::clone(&context.bus);
    let tell = move || bus.notify_lead(Body::text(), content, id);
    match tokio::task::spawn_blocking(tell).await {
        Ok(Ok(_)) => {}
        failed => tracing::error!(?failed, "the lead could not be told of dead letters"),
    }
}

/// The transcript of the member's mailbox.
impl TranscriptWriter for MemberContext {
    fn append(&self, line: &Line) -> Result<(), StoreError> {
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.transcript().append(line)
    }

    fn sync(&self) -> SyncFuture<'_> {
        Box::pin(sync_transcript(&self.mailbox, self.bus.fsync()))
    }
}
