//! A conversation: a model with tools, a memory and a transcript. It needs no mailbox, no roster entry
//! and no life lock. A member of a team is an owner that adds these.
//!
//! ```text
//!   WorkResult ──> TurnMachine::step ──> TurnEffect  ──> Conversation::perform ──> (later) WorkResult
//!                  pure                  HostAction  ──> the owner
//! ```
//!
//! The owner drives the [`TurnMachine`]: it performs the [`HostAction`]s itself and hands the [`TurnEffect`]s
//! to [`Conversation::perform`]. The result of each piece of work comes back with its [`WorkId`] through
//! the function given to [`Conversation::new`], and [`Conversation::end_work`] makes an event of it.
//!
//! *Invariant:* nothing in this folder knows of mail, the roster, tasks or budgets.

mod call_draft;
mod compact;
mod event;
mod images;
mod journal;
mod loop_detector;
mod memory;
mod model_caller;
mod redaction;
mod resume;
mod stale_results;
#[cfg(test)]
pub(crate) mod test_support;
mod turn;
mod turn_machine;
mod work_set;

pub(crate) use event::{CallVerdict, HostAction, TurnAction, TurnEffect, TurnEvent, WorkResult};
pub(crate) use journal::{
    DiskFullHandler, Journal, NextAttempt, Observer, RecordError, SyncFuture, TranscriptWriter,
};
pub(in crate::agent) use loop_detector::without_note;
pub(crate) use memory::{Memory, cut};
pub(crate) use model_caller::{ModelCaller, UsableModel};
pub(crate) use resume::{AfterRestart, CutOff};
pub(crate) use turn::{BreakCause, MAX_PLANS, TurnEnd, break_cause, denied};
pub(crate) use turn_machine::TurnMachine;
pub(crate) use work_set::{WorkId, WorkSet};

use crate::agent::progress::Progress;
use crate::llm::ModelError;
use crate::os::failpoint::hit;
use crate::store::instructions::FolderInstructions;
use crate::tools::{Call, Registry, ToolError, ToolOutput};
use crate::wire::transcript::Entry;
use compact::{CompactionReason, is_due, results_to_leave_out};
use futures_util::future::join_all;
use images::with_images;
use redaction::redact;
use std::rc::Rc;

pub(crate) struct Conversation {
    pub(crate) journal: Journal,
    pub(crate) model: ModelCaller,
    pub(crate) tools: Rc<Registry>,
    work: WorkSet<WorkResult>,
    awaited: Option<WorkId>,
    pub(crate) model_error: Option<ModelError>,
    /// Whether the person has asked for a summary before the next model call.
    compacts_next: bool,
    /// The size of the conversation, in tokens, whose summary failed and which goes on without one.
    summary_failed_at: Option<u64>,
}

impl Conversation {
    /// Creates a conversation with an empty memory. `report` is called when a piece of work ends; the
    /// owner passes its arguments to [`Conversation::end_work`].
    pub(crate) fn new(
        journal: Journal,
        model: ModelCaller,
        tools: Rc<Registry>,
        report: impl Fn(WorkId, WorkResult) + 'static,
    ) -> Self {
        let work = WorkSet::new(report);
        let (awaited, model_error, compacts_next) = (None, None, false);
        Self {
            journal,
            model,
            tools,
            work,
            awaited,
            model_error,
            compacts_next,
            summary_failed_at: None,
        }
    }

    /// Adds an entry, which is in the transcript already, to the memory and to the read log of the tools.
    pub(crate) fn remember(&mut self, entry: &Entry) {
        if let Entry::ToolResult { file, more_files, content, .. } = entry {
            for view in file.iter().map(Box::as_ref).chain(more_files) {
                self.tools.restore_view(view);
            }
            self.tools.restore_result(content);
        }
        self.tools.follow(entry);
        self.journal.remember(entry);
    }

    /// Performs an effect of the turn machine. Before a model call, the model is told which files that it has read were
    /// changed, and the instructions of the folders in which it has used files. Fails if the transcript cannot be written.
    pub(crate) async fn perform(
        &mut self,
        effect: TurnEffect,
        disk_full: &mut impl DiskFullHandler,
    ) -> Result<(), RecordError> {
        match effect {
            TurnEffect::Record(entry) => {
                self.tools.follow(&entry);
                self.journal.record(entry, disk_full).await?;
            }
            TurnEffect::Sync => self.journal.sync().await?,
            TurnEffect::CallModel => {
                if let Some(changes) = self.tools.file_changes().await {
                    let content = self.redact(&changes);
                    self.journal.record(Entry::Note { content }, disk_full).await?;
                }
                for FolderInstructions { file, text } in self.tools.new_instructions().await {
                    let (file, content) = (file.display().to_string(), self.redact(&text));
                    let entry = Entry::Instructions { file, content };
                    self.tools.follow(&entry);
                    self.journal.record(entry, disk_full).await?;
                }
                self.leave_out_stale_results(disk_full).await?;
                self.call_model();
            }
            TurnEffect::Compact => self.compact(CompactionReason::Refused),
            TurnEffect::RunTools(calls) => {
                let run = run_tools(Rc::clone(&self.tools), calls);
                self.awaited = Some(self.work.start(run));
            }
            TurnEffect::Cancel => {
                if let Some(awaited) = self.awaited.take() {
                    self.work.cancel(awaited);
                }
            }
            TurnEffect::Show(progress) => (self.model.show)(&progress),
            TurnEffect::Log(text) => tracing::warn!("{text}"),
        }
        Ok(())
    }

    /// Ends a piece of work that reported its result. Returns the redacted result, or `None` if the work was
    /// cancelled before.
    pub(crate) fn end_work(&mut self, id: WorkId, result: WorkResult) -> Option<WorkResult> {
        if !self.work.end(id) {
            tracing::info!("the result of cancelled work was dropped");
            return None;
        }
        self.awaited = self.awaited.filter(|awaited| *awaited != id);
        match &result {
            WorkResult::Replied(reply) => self.model_error = reply.as_ref().err().cloned(),
            WorkResult::Compacted(made) => {
                let failure = made.as_ref().err();
                self.model_error = failure.map(|failed| failed.why.clone());
                let goes_on = failure.is_some_and(|failed| failed.can_go_on);
                self.summary_failed_at = goes_on.then(|| self.journal.memory.tokens());
            }
            WorkResult::ToolsEnded(_) => {}
        }
        Some(redact(result, &self.model.secrets))
    }

    pub(crate) fn cancel_all(&mut self) {
        self.awaited = None;
        self.work.cancel_all();
    }

    /// Removes known secrets from a text that enters the conversation.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.model.secrets.hide(text).into_owned()
    }

    /// Leaves results out of a long conversation that later calls have made useless. They stay in the transcript.
    async fn leave_out_stale_results(
        &mut self,
        disk_full: &mut impl DiskFullHandler,
    ) -> Result<(), RecordError> {
        let tool_use_ids =
            results_to_leave_out(&self.journal.memory, self.model.model.facts.context_tokens);
        if tool_use_ids.is_empty() {
            return Ok(());
        }
        let count = tool_use_ids.len();
        tracing::info!(count, "results that later calls have replaced are left out");
        let note = format!(
            "the conversation is long: {count} results that later calls have replaced are left out of it"
        );
        (self.model.show)(&Progress::Note(note));
        self.journal.record(Entry::ResultsLeftOut { tool_use_ids }, disk_full).await
    }

    fn call_model(&mut self) {
        let memory = &self.journal.memory;
        let context_tokens = self.model.model.facts.context_tokens;
        if is_due(memory, context_tokens, self.summary_failed_at) {
            return self.compact(CompactionReason::NearlyFull);
        }
        if std::mem::take(&mut self.compacts_next) && memory.is_worth_compacting() {
            return self.compact(CompactionReason::Asked);
        }
        let limit = memory.context_shown.or(context_tokens);
        (self.model.show)(&Progress::ContextUsed { tokens: memory.tokens(), limit });
        let tools = Rc::clone(&self.tools);
        let messages = memory.messages();
        let call = self.model.call(async move {
            let definitions = tools.definitions().await;
            (definitions, with_images(messages, &tools).await)
        });
        self.awaited = Some(self.work.start(call));
    }

    /// Goes on with another model; a call under way ends with the one before.
    pub(crate) fn use_model(&mut self, model: UsableModel) {
        self.tools.set_model(model.facts.abilities());
        self.model.model = model;
        (self.journal.memory.context_shown, self.summary_failed_at) = (None, None);
    }

    /// Summarizes the conversation before the next model call. Returns whether there is enough to summarize.
    pub(crate) fn compact_next(&mut self) -> bool {
        self.compacts_next = self.journal.memory.is_worth_compacting();
        self.compacts_next
    }

    fn compact(&mut self, reason: CompactionReason) {
        let compaction = self.model.compact(&self.journal.memory, reason);
        self.awaited = Some(self.work.start(compaction));
    }
}

/// Runs calls at the same time. Returns their results in the order of the calls.
async fn run_tools(tools: Rc<Registry>, calls: Vec<Call>) -> WorkResult {
    let runs = calls.into_iter().map(|call| run_tool(Rc::clone(&tools), call));
    WorkResult::ToolsEnded(join_all(runs).await)
}

async fn run_tool(tools: Rc<Registry>, call: Call) -> Result<ToolOutput, ToolError> {
    tracing::info!(tool = call.name, id = call.id, "tool started");
    hit("tool.started");
    let result = tools.call(&call).await;
    hit("tool.ran");
    tracing::info!(tool = call.name, id = call.id, ok = result.is_ok(), "tool ended");
    result
}

#[cfg(test)]
mod past_tests;
#[cfg(test)]
mod tests;
