//! The memory and the transcript of a conversation: each entry goes to both.
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
    /// Appends one line. On an error, nothing of it is appended.
    fn append(&self, line: &Line) -> Result<(), StoreError>;

    /// Makes the lines durable, if the settings require it, without blocking the event loop.
    fn sync(&self) -> SyncFuture<'_>;
}

pub(crate) type SyncFuture<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + 'a>>;

/// The handler of a full disk, for a conversation that must record an entry.
pub(crate) trait DiskFullHandler {
    /// Waits before the next attempt to write an entry. `is_first` is true after the first attempt.
    async fn wait(&mut self, why: &StoreError, is_first: bool) -> NextAttempt;

    /// Handles the success of a write that had to wait.
    fn has_room_again(&mut self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextAttempt {
    /// An attempt like the one before.
    Again,
    /// The last attempt, because the conversation is to end.
    Last,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordError {
    Broken(String),
    /// The disk stayed full until the conversation had to end.
    GivenUp,
}

pub(crate) type Observer = Box<dyn Fn(&Entry)>;

/// A conversation's memory and its transcript.
pub(crate) struct Journal {
    pub(super) memory: Memory,
    transcript: Rc<dyn TranscriptWriter>,
    clock: Rc<dyn Clock>,
    /// Called with each entry that is added to the memory.
    pub(crate) observer: Option<Observer>,
}

impl Journal {
    /// Creates a journal with an empty memory.
    pub(crate) fn new(transcript: Rc<dyn TranscriptWriter>, clock: Rc<dyn Clock>) -> Self {
        Self { memory: Memory::default(), transcript, clock, observer: None }
    }

    /// Adds an entry, which is in the transcript already, to the memory.
    pub(crate) fn remember(&mut self, entry: &Entry) {
        if let Some(observer) = &self.observer {
            observer(entry);
        }
        self.memory.push(entry);
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Forgets all but the newest part of the conversation, for an agent that keeps its own.
    pub(crate) fn forget_old(&mut self) {
        self.memory.forget_old();
    }

    /// Continues the last turn if a stop of the agent cut it off.
    pub(crate) fn reopen_turn(&mut self) {
        self.memory.reopen_turn();
    }

    /// Adds an entry to the memory and appends it to the transcript. While the disk is full, `disk_full` waits
    /// between the attempts. Fails if the transcript cannot be written.
    pub(crate) async fn record(
        &mut self,
        entry: Entry,
        disk_full: &mut impl DiskFullHandler,
    ) -> Result<(), RecordError> {
        let (before, after) = failpoints(&entry);
        self.remember(&entry);
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

/// Returns the failpoints before and after the write of an entry.
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
        | Entry::Subagent(_)
        | Entry::Interrupt { .. }
        | Entry::HandedOut { .. }
        | Entry::Note { .. }
        | Entry::Instructions { .. }
        | Entry::ResultsLeftOut { .. }
        | Entry::Model { .. }
        | Entry::Compacted { .. }
        | Entry::Unknown => (|| {}, || {}),
    }
}
