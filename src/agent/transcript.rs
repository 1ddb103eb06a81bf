//! A member's transcript: that of its mailbox, to which a drain writes, too.

use super::conversation::TranscriptWriter;
use crate::store::{Fsync, Mailbox, StoreError};
use crate::wire::transcript::Line;
use std::sync::{Arc, Mutex, PoisonError};

/// The transcript of a mailbox.
pub(super) struct MailboxTranscript {
    mailbox: Arc<Mutex<Mailbox>>,
    fsync: Fsync,
}

impl MailboxTranscript {
    /// Wraps the mailbox; `fsync` says what a sync does.
    pub(super) fn new(mailbox: Arc<Mutex<Mailbox>>, fsync: Fsync) -> Self {
        Self { mailbox, fsync }
    }
}

impl TranscriptWriter for MailboxTranscript {
    fn append(&self, line: &Line) -> Result<(), StoreError> {
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.transcript().append(line)
    }

    fn sync(&self) -> Result<(), StoreError> {
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.transcript().sync(self.fsync)
    }
}
