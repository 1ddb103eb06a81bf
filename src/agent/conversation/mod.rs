//! A conversation: a model with tools, a memory and a transcript. It needs no mailbox, no roster entry
//! and no life lock. A member of a team is an owner that adds these.
//!
//! ```text
//!   WorkResult ──> TurnMachine::step ──> Effect      ──> Conversation::perform ──> (later) WorkResult
//!                  pure                  HostAction  ──> the owner
//! ```
//!
//! The owner drives the [`TurnMachine`]: it performs the [`HostAction`]s itself and hands the [`Effect`]s
//! to [`Conversation::perform`]. The result of each piece of work comes back with its [`WorkId`] through
//! the function given to [`Conversation::new`], and [`Conversation::end_work`] makes an event of it.
//!
//! *Invariant:* nothing in this folder knows of mail, the roster, tasks or budgets.

mod compact;
mod event;
mod journal;
mod loop_detector;
mod memory;
mod model_caller;
mod redaction;
mod resume;
mod text;
mod tool_runner;
mod turn;
mod turn_machine;
mod turn_transitions;
mod work_set;

pub(crate) use event::{CallVerdict, Effect, HostAction, TurnAction, TurnEvent, WorkResult};
pub(crate) use journal::{
    DiskFullHandler, Journal, NextAttempt, RecordError, SyncFuture, TranscriptWriter,
};
pub(crate) use memory::Memory;
pub(crate) use model_caller::ModelCaller;
pub(crate) use resume::CutOff;
pub(crate) use text::cut;
pub(crate) use tool_runner::{ToolRunner, time_limit_s};
pub(crate) use turn_machine::{TurnMachine, TurnStep};
pub(crate) use turn_transitions::TurnEnd;
pub(crate) use work_set::{WorkId, WorkSet};

use crate::llm::ModelError;
use crate::wire::transcript::Entry;
use compact::CompactionReason;
use redaction::redact;
use resume::answer_open_calls;
use std::collections::BTreeSet;

/// A conversation. Its parts are its own: the owner sees the memory and the tools through methods.
pub(crate) struct Conversation {
    journal: Journal,
    model: ModelCaller,
    tools: ToolRunner,
    work: WorkSet<WorkResult>,
    /// The work that the turn waits for.
    awaited: Option<WorkId>,
    /// Why the last model call gave no reply.
    model_error: Option<ModelError>,
}

impl Conversation {
    /// Creates a conversation with an empty memory. `report` is called when a piece of work ends; the
    /// owner passes its arguments to [`Conversation::end_work`].
    pub(crate) fn new(
        journal: Journal,
        model: ModelCaller,
        tools: ToolRunner,
        report: impl Fn(WorkId, WorkResult) + 'static,
    ) -> Self {
        let work = WorkSet::new(report);
        Self { journal, model, tools, work, awaited: None, model_error: None }
    }

    /// Performs an effect of the turn machine.
    ///
    /// # Errors
    /// The transcript could not be written.
    pub(crate) async fn perform(
        &mut self,
        effect: Effect,
        disk_full: &mut impl DiskFullHandler,
    ) -> Result<(), RecordError> {
        match effect {
            Effect::Record(entry) => self.record(entry, disk_full).await?,
            Effect::Sync => self.sync().await?,
            Effect::CallModel => self.call_model(),
            Effect::Compact => self.compact(CompactionReason::Refused),
            Effect::RunTool(call) => {
                let run = self.tools.clone().run(call);
                self.awaited = Some(self.work.start(run));
            }
            Effect::Cancel => {
                if let Some(awaited) = self.awaited.take() {
                    self.work.cancel(awaited);
                }
            }
            Effect::Show(progress) => (self.model.show)(&progress),
            Effect::Log(text) => tracing::warn!("{text}"),
        }
        Ok(())
    }

    /// Ends a piece of work that reported its result. `None` if the work was cancelled before.
    pub(crate) fn end_work(&mut self, id: WorkId, result: WorkResult) -> Option<WorkResult> {
        if !self.work.end(id) {
            tracing::info!(?id, "the result of cancelled work was dropped");
            return None;
        }
        self.awaited = self.awaited.filter(|awaited| *awaited != id);
        match &result {
            WorkResult::Replied(reply) => self.model_error = reply.as_ref().err().cloned(),
            WorkResult::Compacted(made) => self.model_error = made.as_ref().err().cloned(),
            WorkResult::ToolEnded(_) => {}
        }
        Some(redact(result, &self.model.secrets))
    }

    /// Cancels all work.
    pub(crate) fn cancel_all(&mut self) {
        self.awaited = None;
        self.work.cancel_all();
    }

    /// Takes an entry into the memory and appends it to the transcript.
    ///
    /// # Errors
    /// The transcript could not be written.
    pub(crate) async fn record(
        &mut self,
        entry: Entry,
        disk_full: &mut impl DiskFullHandler,
    ) -> Result<(), RecordError> {
        self.journal.record(entry, disk_full).await
    }

    /// Takes an entry into the memory that stands in the transcript already.
    pub(crate) fn remember(&mut self, entry: &Entry) {
        self.journal.remember(entry);
    }

    /// Answers the calls that the transcript leaves open: what an earlier process did not finish. If the
    /// user was being asked about one of them (`asked` holds its id), the calls that had not started are
    /// returned, to be judged and asked about again.
    ///
    /// # Errors
    /// An answer could not be recorded.
    pub(crate) async fn answer_open_calls(
        &mut self,
        asked: &BTreeSet<String>,
        disk_full: &mut impl DiskFullHandler,
    ) -> Result<CutOff, RecordError> {
        answer_open_calls(&mut self.journal, &self.tools, asked, disk_full).await
    }

    /// Makes the transcript durable.
    ///
    /// # Errors
    /// The transcript may not survive power loss.
    pub(crate) async fn sync(&self) -> Result<(), RecordError> {
        self.journal.sync().await
    }

    /// Removes known secrets from a text that enters the conversation.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.model.secrets.hide(text).into_owned()
    }

    /// The tools.
    pub(crate) fn tools(&self) -> &ToolRunner {
        &self.tools
    }

    /// `provider/name` of the model.
    pub(crate) fn model_label(&self) -> String {
        self.model.label()
    }

    /// Returns why the last model call gave no reply, if it gave none.
    pub(crate) fn take_model_error(&mut self) -> Option<ModelError> {
        self.model_error.take()
    }

    fn call_model(&mut self) {
        if self.model.needs_room(self.journal.memory()) {
            return self.compact(CompactionReason::NearlyFull);
        }
        let call = self.model.call(self.journal.memory(), self.tools.definitions());
        self.awaited = Some(self.work.start(call));
    }

    fn compact(&mut self, reason: CompactionReason) {
        let compaction = self.model.compact(self.journal.memory(), reason);
        self.awaited = Some(self.work.start(compaction));
    }
}

#[cfg(test)]
mod tests;
