//! A member's transcript: that of its mailbox, to which a drain writes, too.

use super::conversation::{SyncFuture, TranscriptWriter};
use crate::store::asynchronous::{SharedMailbox, sync_transcript};
use crate::store::{Fsync, StoreError};
use crate::wire::transcript::Line;
use std::sync::PoisonError;

/// The transcript of a mailbox.
pub(super) struct MailboxTranscript {
    mailbox: SharedMailbox,
    fsync: Fsync,
}

impl MailboxTranscript {
    /// Wraps the mailbox; `fsync` says what a sync does.
    pub(super) fn new(mailbox: SharedMailbox, fsync: Fsync) -> Self {
        Self { mailbox, fsync }
    }
}

impl TranscriptWriter for MailboxTranscript {
    fn append(&self, line: &Line) -> Result<(), StoreError> {
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.transcript().append(line)
    }

    fn sync(&self) -> SyncFuture<'_> {
        Box::pin(sync_transcript(&self.mailbox, self.fsync))
    }
}
