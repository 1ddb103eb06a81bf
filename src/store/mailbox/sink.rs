//! The place to which a mailbox delivers its mail: the transcript of an agent, or the outbox of a relay.
//!
//! *Invariant:* a sink tells after a crash which mail it has, and what the sink of an earlier owner has had of the claims that
//! are still there: an agent may move to another host and back. The mailbox delivers every other line again, so a sink needs no
//! other record.

use crate::os::file::FileError;
use crate::store::relay::positions::each_position;
use crate::store::transcript::{TakenIn, Transcript, each_late_mail, each_mail, latest_archives};
use crate::store::{Fsync, StoreError, TeamDir};
use crate::wire::limits::DEDUP_MESSAGES;
use crate::wire::seal::Verification;
use crate::wire::{AgentName, WallTime};
use serde_json::{Map, Value};
use std::io::Write;
use std::path::Path;

/// The end of the transcript line of a message without a valid seal.
const UNVERIFIED_END: &str = ",\"verified\":false}\n";

/// A message on its way into a sink.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// The time of the delivery.
    pub at: WallTime,
    /// The batch id of its claim.
    pub batch_id: &'a str,
    /// The offset in the claim.
    pub offset: u64,
    /// The line as it was received, with its id: one JSON object.
    pub text: &'a str,
    /// The evidence for its sender.
    pub verification: Verification,
}

/// A message that an earlier process has delivered.
#[derive(Debug, Clone, Copy)]
pub struct Delivered<'a> {
    /// The batch id of its claim.
    pub batch_id: &'a str,
    /// The offset in the claim.
    pub offset: u64,
    /// The message; `None` if the sink has only the position of it.
    pub message: Option<&'a Map<String, Value>>,
}

/// The part of the delivered mail that a mailbox asks its sink for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownPart<'a> {
    /// That which is read fast.
    Current,
    /// That by which repeated mail is recognized, and all that may be in the claim of this batch id or a later one.
    All(Option<&'a str>),
}

/// A place to which a mailbox delivers. Mail is acknowledged when it is there and synced.
pub trait MailSink {
    /// Whether the mailbox watches its own files. Otherwise its owner watches the folder of all inboxes, and looks for late
    /// writers by [`settle`](super::Mailbox::settle) alone.
    const IS_WATCHED: bool = true;

    /// Whether [`KnownPart::Current`] is all of its mail, with the newest batch that it ever had: then no file has the counter of
    /// batches.
    const IS_WHOLE: bool = false;

    /// Passes the mail that the sink has to `meet`, oldest first.
    ///
    /// # Errors
    /// A file exists and cannot be read.
    fn each_delivered(
        &self,
        dir: &TeamDir,
        name: &AgentName,
        part: KnownPart<'_>,
        meet: &mut dyn FnMut(&Delivered<'_>),
    ) -> Result<(), StoreError>;

    /// Forgets the composed lines that were not written: an error came in between, and their messages are delivered again.
    fn forget_composed(&mut self) {}

    /// Appends the line of a message to `lines`, which [`MailSink::append_mail`] writes.
    fn compose(&mut self, mail: &Delivery<'_>, lines: &mut Vec<u8>);

    /// Writes composed lines: all of them, or none on an error. Then the messages were not delivered.
    ///
    /// # Errors
    /// The lines were not written.
    fn append_mail(&mut self, lines: &[u8]) -> Result<(), StoreError>;

    /// Makes the written lines durable. After an error every later call fails as well.
    ///
    /// # Errors
    /// The lines may not be durable.
    fn sync_mail(&mut self, fsync: Fsync) -> Result<(), StoreError>;
}

impl MailSink for Transcript {
    fn each_delivered(
        &self,
        dir: &TeamDir,
        name: &AgentName,
        part: KnownPart<'_>,
        meet: &mut dyn FnMut(&Delivered<'_>),
    ) -> Result<(), StoreError> {
        let archived = match part {
            KnownPart::Current => Vec::new(),
            KnownPart::All(oldest) => latest_archives(dir, name, oldest)?,
        };
        for conversation in archived {
            each_delivered_in(&conversation, meet)?;
        }
        let current = dir.transcript(name);
        if let KnownPart::All(Some(_)) = part {
            each_delivered_in(&current, meet)?;
        } else {
            // There is no claim, and no more messages are remembered.
            each_late_mail(&current, DEDUP_MESSAGES, |mail| meet(&delivered(&mail)))?;
        }
        if let KnownPart::All(Some(_)) = part {
            // The agent may have been on another host before: then the relay has taken in lines of these claims.
            each_position(dir, name, |batch_id, offset| {
                meet(&Delivered { batch_id, offset, message: None });
            })?;
        }
        Ok(())
    }

    fn compose(&mut self, mail: &Delivery<'_>, lines: &mut Vec<u8>) {
        let Delivery { at, batch_id, offset, text, verification } = mail;
        let end = match verification {
            Verification::None => UNVERIFIED_END,
            Verification::Mailbox | Verification::Control => "}\n",
        };
        // Writing to a buffer in memory does not fail.
        drop(write!(
            lines,
            r#"{{"kind":"mail","at":{at},"gen":"{batch_id}","offset":{offset},"message":{text}{end}"#
        ));
    }

    fn append_mail(&mut self, lines: &[u8]) -> Result<(), StoreError> {
        self.append_raw(lines)
    }

    fn sync_mail(&mut self, fsync: Fsync) -> Result<(), StoreError> {
        self.sync(fsync)
    }
}

/// Passes the mail of one conversation to `meet`.
pub(crate) fn each_delivered_in(
    conversation: &Path,
    meet: &mut dyn FnMut(&Delivered<'_>),
) -> Result<(), FileError> {
    each_mail(conversation, |mail| meet(&delivered(&mail)))
}

fn delivered(mail: &TakenIn) -> Delivered<'_> {
    Delivered { batch_id: &mail.batch_id, offset: mail.offset, message: Some(&mail.message) }
}
