//! Calls the model of a conversation, for replies and for summaries.

use super::call_draft::CallDraft;
use super::compact::{CompactionFailure, CompactionReason, compact};
use super::event::WorkResult;
use super::images::leave_out_images;
use super::memory::Memory;
use crate::agent::progress::Progress;
use crate::llm::{Delta, ModelError, Provider, Redactor, StreamRedactor};
use crate::wire::chat::{ChatMessage, Request, Thinking, ToolDefinition, Usage};
use crate::wire::model_facts::ModelFacts;
use std::fmt;
use std::rc::Rc;

pub(crate) struct ModelCaller {
    pub(crate) model: UsableModel,
    pub(crate) system: String,
    pub(crate) max_answer_tokens: u32,
    pub(crate) thinking: Thinking,
    pub(crate) secrets: Rc<Redactor>,
    /// Describes the agent's situation as the program knows it, for a summary.
    pub(crate) situation: Box<dyn Fn() -> String>,
    pub(crate) show: Rc<dyn Fn(&Progress)>,
}

/// A model that an agent can call, with what is known of it.
#[derive(Clone)]
pub(crate) struct UsableModel {
    pub(crate) provider: Rc<dyn Provider>,
    pub(crate) facts: ModelFacts,
}

impl fmt::Debug for UsableModel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("UsableModel").field(&self.provider.label()).finish()
    }
}

impl ModelCaller {
    /// Returns the most tokens of an answer: those of the settings, as far as the model can write them.
    fn max_tokens(&self) -> u32 {
        let most = self.model.facts.answer_tokens.unwrap_or(u32::MAX);
        self.max_answer_tokens.min(most)
    }

    /// Calls the model as a piece of work, with the tools and messages that `parts` returns.
    pub(super) fn call(
        &self,
        parts: impl Future<Output = (Vec<ToolDefinition>, Vec<ChatMessage>)> + 'static,
    ) -> impl Future<Output = WorkResult> + 'static {
        let system = self.system.clone();
        let (max_tokens, thinking) = (self.max_tokens(), self.thinking);
        let (provider, show) = (Rc::clone(&self.model.provider), Rc::clone(&self.show));
        let secrets = Rc::clone(&self.secrets);
        async move {
            let (tools, messages) = parts.await;
            let mut request = Request { system, messages, tools, max_tokens, thinking };
            let new_redactors = || [(); 2].map(|()| StreamRedactor::new(&secrets));
            let [mut redactor, mut thoughts] = new_redactors();
            let show_text = |text: String| {
                if !text.is_empty() {
                    show(&Progress::Text(text));
                }
            };
            let show_thought = |text: String| {
                if !text.is_empty() {
                    show(&Progress::Thought(text));
                }
            };
            let mut is_late = false;
            let mut draft = CallDraft::default();
            let mut sink = |delta| {
                if let Delta::Text(_) | Delta::Thought(_) | Delta::ToolInput { .. } = delta
                    && std::mem::take(&mut is_late)
                {
                    show(&Progress::Answers);
                }
                match delta {
                    Delta::Text(text) => {
                        show_thought(thoughts.finish());
                        show_text(redactor.push(&text));
                    }
                    Delta::Thought(text) => show_thought(thoughts.push(&text)),
                    Delta::ToolInput { tool, piece } => {
                        if let Some(words) = draft.push(&tool, &piece) {
                            show(&Progress::CallDraft(secrets.hide(&words).into_owned()));
                        }
                    }
                    Delta::Retry { .. } | Delta::Silent { .. } => {
                        [redactor, thoughts] = new_redactors();
                        end_draft(&*show, &mut draft);
                        is_late = true;
                        show_delay(&*show, delta);
                    }
                }
            };
            let mut reply = provider.turn(&request, &mut sink).await;
            // One image that an endpoint cannot read must not end the conversation.
            if let Err(ModelError::Rejected(why)) = &reply
                && leave_out_images(&mut request.messages)
            {
                tracing::warn!(why, "the call is repeated without its images");
                reply = provider.turn(&request, &mut sink).await;
            }
            if is_late && reply.is_ok() {
                show(&Progress::Answers);
            }
            show_thought(thoughts.finish());
            show_text(redactor.finish());
            end_draft(&*show, &mut draft);
            if let Err(why) = &reply {
                tracing::error!(%why, "the model call failed");
            }
            WorkResult::Replied(reply)
        }
    }

    /// Summarizes the conversation as a piece of work.
    pub(super) fn compact(
        &self,
        memory: &Memory,
        reason: CompactionReason,
    ) -> impl Future<Output = WorkResult> + 'static {
        let (provider, show) = (Rc::clone(&self.model.provider), Rc::clone(&self.show));
        let (memory, limit) = (memory.clone(), self.model.facts.context_tokens);
        let situation = memory.is_worth_compacting().then(|| (self.situation)());
        async move {
            let Some(situation) = situation else {
                let why = ModelError::ContextFull("there is nothing to summarize yet".into());
                let usage = Usage::default();
                return WorkResult::Compacted(Err(CompactionFailure {
                    why,
                    usage,
                    can_go_on: false,
                }));
            };
            tracing::info!(
                reason = reason.word(),
                tokens = memory.tokens(),
                "the conversation is summarized"
            );
            // The text of a summary is for the model only.
            let mut is_late = false;
            let mut sink = |delta| {
                let was_late = std::mem::replace(
                    &mut is_late,
                    matches!(delta, Delta::Retry { .. } | Delta::Silent { .. }),
                );
                if is_late {
                    show_delay(&*show, delta);
                } else if was_late {
                    show(&Progress::Answers);
                }
            };
            let made = compact(&*provider, memory, limit, reason, situation, &mut sink).await;
            if is_late && made.is_ok() {
                show(&Progress::Answers);
            }
            if let Err(CompactionFailure { why, .. }) = &made {
                tracing::error!(%why, "the conversation could not be summarized");
            }
            WorkResult::Compacted(made)
        }
    }
}

/// Shows that the model no longer writes a call.
fn end_draft(show: &dyn Fn(&Progress), draft: &mut CallDraft) {
    if std::mem::take(draft).is_shown() {
        show(&Progress::CallDraft(String::new()));
    }
}

/// Shows that a call is late or is tried again.
fn show_delay(show: &dyn Fn(&Progress), delta: Delta) {
    match delta {
        Delta::Text(_) | Delta::Thought(_) | Delta::ToolInput { .. } => {}
        Delta::Retry { wait, left, why } => {
            tracing::warn!(
                why,
                wait_ms = wait.as_millis(),
                left_s = left.as_secs(),
                "the model call is tried again"
            );
            show(&Progress::Retry { wait, left, why });
        }
        Delta::Silent { left, why } => {
            tracing::warn!(why, left_s = left.as_secs(), "the model's endpoint is silent");
            show(&Progress::Silent { left, why });
        }
    }
}
