//! The ingest of a member's mail into the transcript and the memory. The conversation uses the transcript of the
//! mailbox, because a drain writes to it as well.

use super::conversation::{Journal, SyncFuture, TranscriptWriter};
use super::event::{Event, MachineEvent};
use super::identity::MemberContext;
use super::member_host::{RETRY_AFTER, ROOM_AGAIN, disk_full};
use super::progress::Progress;
use crate::bus::Bus;
use crate::os::spawn::{spawn_blocking, spawn_local};
use crate::store::asynchronous::{self, sync_transcript};
use crate::store::{Drained, MailNotice, StoreError};
use crate::wire::AgentName;
use crate::wire::inbox_block::marked;
use crate::wire::log_words;
use crate::wire::message::{Body, Message};
use crate::wire::transcript::{Entry, Line};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

pub(super) struct MailIngest {
    pub(super) context: Rc<MemberContext>,
    /// Whether mail that was acted on still counts as unread.
    pub(super) is_mark_due: bool,
}

impl MailIngest {
    /// Starts a drain beside the event loop. It tries again while the disk is full; its result is sent as an
    /// event.
    pub(super) fn drain(&mut self) {
        // The mail of this drain is marked together with the mail whose mark was due.
        self.is_mark_due = false;
        let context = Rc::clone(&self.context);
        spawn_local(async move {
            if let Some(stage) = &context.team_context.stage {
                stage.before_drain().await;
            }
            let event = match drain_with_retry(&context).await {
                Ok(drained) => {
                    report_dead_letters(&context.bus, &context.me.name, &drained).await;
                    if let Some(stage) = &context.team_context.stage {
                        stage.after_drain().await;
                    }
                    Event::Drained(drained)
                }
                Err(failed) => failed.into(),
            };
            let _ended = context.events.send(event);
        });
    }

    /// Adds drained mail, which is in the transcript already, to the memory. Returns the messages for the machine,
    /// which must not receive them earlier.
    pub(super) fn remember(&self, drained: Drained, journal: &mut Journal) -> Vec<Message> {
        let mut messages = Vec::with_capacity(drained.mail.len());
        for mail in drained.mail {
            let verified = mail.message.is_verified();
            let object = mail.object();
            if !mail.message.body.is_for_program() {
                self.context.team_context.take_note(marked(&object, verified));
            }
            let Message { id, from, body, .. } = &*mail.message;
            tracing::info!(id, from, kind = body.kind(), verified, "mail taken in");
            messages.push(*mail.message);
            let (claim, offset, message) = (mail.batch_id, mail.offset, object);
            journal.remember(&Entry::Mail { claim, offset, message, verified });
        }
        messages
    }

    /// Marks the mail of the last drain as acted on, so that it no longer counts as unread. The mark waits until
    /// the roster holds the current status: an observer must see either unread mail or a working member.
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

/// Logs the lines that became dead letters, and notifies the lead once for each drain.
pub(crate) async fn report_dead_letters(bus: &Arc<Bus>, me: &AgentName, drained: &Drained) {
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
    let bus = Arc::clone(bus);
    let tell = move || bus.notify_lead(Body::text(), content, id);
    match spawn_blocking(tell).await {
        Ok(Ok(_)) => {}
        failed => tracing::error!(
            why = log_words::work_done(&failed),
            "the lead could not be told of dead letters"
        ),
    }
}

/// Writes to the transcript of the member's mailbox.
impl TranscriptWriter for MemberContext {
    fn append(&self, line: &Line) -> Result<(), StoreError> {
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.transcript().append(line)
    }

    fn sync(&self) -> SyncFuture<'_> {
        Box::pin(sync_transcript(&self.mailbox, self.bus.fsync()))
    }
}
