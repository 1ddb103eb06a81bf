//! The connection of subagents with their caller: what they share, and the requests that wait for it.

use super::ending::EndReason;
use super::prompt::SubagentBriefing;
use super::request::SubagentRequest;
use crate::agent::event::{Event, Events};
use crate::agent::model_chain::AgentModels;
use crate::agent::progress::Progress;
use crate::bus::Bus;
use crate::llm::Redactor;
use crate::os::Clock;
use crate::wire::AgentName;
use crate::wire::chat::Thinking;
use crate::wire::subagent::SubagentStart;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The wait before the next attempt to deliver a result or to write a line while the disk is full.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The models that subagents can have.
pub(crate) trait ModelOpener {
    /// Opens a model, by default that of the caller, for the agent of this name, with those that go on if it fails: the list
    /// of a role, by default that of the caller. Fails with the reason, for the caller's model.
    fn open(
        &self,
        model: Option<&str>,
        fallbacks: Option<&[String]>,
        agent: &str,
    ) -> Result<OpenedModel, String>;
}

pub(crate) struct OpenedModel {
    /// The name by which it can be opened again, for a transcript.
    pub(crate) name: String,
    pub(crate) models: AgentModels,
}

/// The parts of all subagents of one agent.
pub(crate) struct SubagentParts {
    pub(crate) caller: AgentName,
    pub(crate) incarnation: String,
    pub(crate) bus: Arc<Bus>,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) models: Rc<dyn ModelOpener>,
    pub(crate) briefing: SubagentBriefing,
    pub(crate) secrets: Rc<Redactor>,
    pub(crate) show: Rc<dyn Fn(&Progress)>,
    /// The maximum number of model calls of a subagent.
    pub(crate) max_rounds: u32,
    pub(crate) max_answer_tokens: u32,
    pub(crate) thinking: Thinking,
    /// The time for which the model of a subagent rests after its first failure.
    pub(crate) fallback_pause: Duration,
    /// The maximum number of subagents that work at the same time.
    pub(crate) most: usize,
}

/// The connection with the caller.
pub(super) struct CallerLink {
    pub(super) parts: SubagentParts,
    /// The events of the caller, once its event loop runs.
    caller: OnceCell<Events>,
    /// The requests that the caller has not handled, oldest first. Each is announced by an event.
    requests: RefCell<VecDeque<SubagentRequest>>,
    places: Arc<Semaphore>,
    /// The reason for which the subagents that are cancelled now end.
    pub(super) end_reason: Cell<EndReason>,
}

impl CallerLink {
    pub(super) fn new(parts: SubagentParts) -> Self {
        let places = Arc::new(Semaphore::new(parts.most));
        let (caller, requests) = (OnceCell::new(), RefCell::default());
        Self { parts, caller, requests, places, end_reason: Cell::new(EndReason::Stopped) }
    }

    pub(super) fn connect(&self, caller: Events) {
        // Set once: an agent has one event loop.
        let _again = self.caller.set(caller);
    }

    /// Sends a request to the caller. A caller that has ended answers none.
    pub(super) fn send(&self, request: SubagentRequest) {
        if let Some(caller) = self.caller.get() {
            self.requests.borrow_mut().push_back(request);
            let _ended = caller.send(Event::Subagent);
        }
    }

    /// Returns the oldest request that was not handled.
    pub(super) fn next_request(&self) -> Option<SubagentRequest> {
        self.requests.borrow_mut().pop_front()
    }

    /// Asks the caller, and waits for its answer: forever if the caller has ended, which ends the subagent as well.
    pub(super) async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> SubagentRequest,
    ) -> T {
        let (reply, answer) = oneshot::channel();
        self.send(request(reply));
        match answer.await {
            Ok(answer) => answer,
            Err(_ended) => std::future::pending().await,
        }
    }

    /// Waits for a place among the subagents that work at the same time. The result is `None` only for a closed semaphore,
    /// and this one is never closed.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// Returns the beginning of the ids of all mail with results for the caller.
    pub(super) fn mail_prefix(&self) -> String {
        format!("system:subagent:{}:", self.parts.caller)
    }

    /// Returns the id of the mail with a result. It derives from the call, so that it is delivered once.
    pub(super) fn mail_id(&self, start: &SubagentStart) -> String {
        format!("{}{}", self.mail_prefix(), start.tool_use_id)
    }

    /// Shows what a subagent does; `None` when it has ended.
    pub(super) fn show(&self, id: String, doing: Option<String>) {
        (self.parts.show)(&Progress::Subagent { id, doing });
    }
}
