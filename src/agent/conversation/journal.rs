//! What a conversation remembers and what its transcript holds: one entry goes to both.
//!
//! *Invariant:* the memory is a function of the transcript's entries.

use super::memory::Memory;
use crate::os::Clock;
use crate::os::failpoint::hit;
use crate::store::StoreError;
use crate::wire::transcript::{Entry, Line};
use std::pin::Pin;
use std::rc::Rc;

/// A transcript file, open for writing.
pub(crate) trait TranscriptWriter {
    /// Appends one line, or nothing of it.
    fn append(&self, line: &Line) -> Result<(), StoreError>;

    /// Makes the lines survive power loss, as far as the settings ask for that, beside the event loop.
    fn sync(&self) -> SyncFuture<'_>;
}

/// The future of one sync.
pub(crate) type SyncFuture<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + 'a>>;

/// Waits while the disk is full, for a conversation that must record an entry.
pub(crate) trait DiskFullHandler {
    /// Waits for a while; `is_first` for the first attempt to write an entry.
    async fn wait(&mut self, why: &StoreError, is_first: bool) -> NextAttempt;

    /// The entry was written after all.
    fn has_room_again(&mut self);
}

/// How the next attempt to write is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextAttempt {
    /// As the one before.
    Again,
    /// As the last one: the conversation is to end.
    Last,
}

/// Why an entry was not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordError {
    /// The transcript cannot be written.
    Broken(String),
    /// The disk stayed full until the conversation had to end.
    GivenUp,
}

/// A conversation's memory and its transcript.
pub(crate) struct Journal {
    /// What the entries amount to.
    pub(super) memory: Memory,
    transcript: Rc<dyn TranscriptWriter>,
    clock: Rc<dyn Clock>,
}

impl Journal {
    /// Creates a journal with an empty memory.
    pub(crate) fn new(transcript: Rc<dyn TranscriptWriter>, clock: Rc<dyn Clock>) -> Self {
        Self { memory: Memory::default(), transcript, clock }
    }

    /// Takes an entry into the memory that stands in the transcript already.
    pub(crate) fn remember(&mut self, entry: &Entry) {
        self.memory.push(entry);
    }

    /// Takes an entry into the memory and appends it to the transcript, however long the disk is full.
    /// Fails if the transcript cannot be written.
    pub(crate) async fn record(
        &mut self,
        entry: Entry,
        disk_full: &mut impl DiskFullHandler,
    ) -> Result<(), RecordError> {
        let (before, after) = failpoints(&entry);
        self.memory.push(&entry);
        let line = Line { at: self.clock.now(), entry };
        before();
        let mut has_waited = false;
        loop {
            match self.transcript.append(&line) {
                Ok(()) => break,
                Err(why) if why.is_full() => {
                    let is_first = !std::mem::replace(&mut has_waited, true);
                    if disk_full.wait(&why, is_first).await == NextAttempt::Last {
                        return self.transcript.append(&line).map_err(|_| RecordError::GivenUp);
                    }
                }
                Err(why) => return Err(RecordError::Broken(why.to_string())),
            }
        }
        if has_waited {
            disk_full.has_room_again();
        }
        after();
        Ok(())
    }

    /// Makes the transcript durable. Fails if it may not survive power loss.
    pub(crate) async fn sync(&self) -> Result<(), RecordError> {
        self.transcript.sync().await.map_err(|why| RecordError::Broken(why.to_string()))
    }
}

/// The failpoints before and after an entry is written.
fn failpoints(entry: &Entry) -> (fn(), fn()) {
    match entry {
        Entry::Assistant { .. } => (|| hit("turn.replied"), || hit("turn.recorded")),
        Entry::ToolStart { .. } => (|| hit("tool.asked"), || hit("tool.intended")),
        Entry::ToolResult { .. } => (|| {}, || hit("tool.answered")),
        Entry::TurnEnd { .. } => (|| hit("turn.ending"), || {}),
        Entry::Session { .. }
        | Entry::User { .. }
        | Entry::Mail { .. }
        | Entry::Request { .. }
        | Entry::Decision(_)
        | Entry::Note { .. }
        | Entry::Compacted { .. }
        | Entry::Unknown => (|| {}, || {}),
    }
}
