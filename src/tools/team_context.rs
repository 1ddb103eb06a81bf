//! The state that the team tools of one agent share: new mail, shutdown requests, the limit of sends.

use super::call::{Call, ToolError};
use super::hooks::Hooks;
use super::replay::Stage;
use crate::bus::{Bus, new_id};
use crate::os::{Clock, SystemClock};
use crate::protocol::rate_limiter::{RateLimiter, SendPermit};
use crate::protocol::request::{
    PendingRequest, RequestAnswer, RequestKind, RequestLedger, RequestVerdict,
};
use crate::store::asynchronous::offload;
use crate::wire::AgentName;
use crate::wire::limits::OUTPUT_CHARS;
use crate::wire::message::{Body, Correlation};
use crate::wire::newest::Newest;
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The shared state of one agent's team tools.
pub(crate) struct TeamContext {
    pub(in crate::tools) me: AgentName,
    incarnation: String,
    pub(in crate::tools) bus: Arc<Bus>,
    /// The newest mail that was delivered since the model last read its inbox.
    recent: RefCell<Newest<Map<String, Value>>>,
    shutdowns: RefCell<RequestLedger>,
    rate_limiter: RefCell<RateLimiter>,
    /// Whether a command of the current call has sent mail.
    has_command_mail: Cell<bool>,
    pub(crate) hooks: Hooks,
    /// The record that the agent plays again.
    pub(crate) stage: Option<Rc<dyn Stage>>,
}

impl TeamContext {
    /// Creates the context of an agent whose model may send at most `max_sends` messages per minute.
    pub(crate) fn new(
        me: AgentName,
        incarnation: String,
        bus: Arc<Bus>,
        max_sends: usize,
        hooks: Hooks,
    ) -> Self {
        let recent = RefCell::new(Newest::within(OUTPUT_CHARS));
        let shutdowns = RefCell::default();
        let rate_limiter = RefCell::new(RateLimiter::new(max_sends));
        let has_command_mail = Cell::new(false);
        Self {
            me,
            incarnation,
            bus,
            recent,
            shutdowns,
            rate_limiter,
            has_command_mail,
            hooks,
            stage: None,
        }
    }

    /// Makes the agent play a record again.
    pub(crate) fn with_stage(self, stage: Option<Rc<dyn Stage>>) -> Self {
        Self { stage, ..self }
    }

    /// Returns the id of the message that a call sends. A repeated call has the same id, so its message is
    /// delivered once.
    pub(in crate::tools) fn message_id(&self, call: &Call) -> String {
        format!("{}:{}", self.me, call.id)
    }

    /// Reserves `count` sends of the model. Fails if they are too many; the lead is notified of the first such
    /// failure.
    pub(in crate::tools) async fn reserve_sends(&self, count: usize) -> Result<(), ToolError> {
        if self.stage.is_some() {
            // A minute of the record may take a second.
            return Ok(());
        }
        let permit = self.rate_limiter.borrow_mut().ask(count, SystemClock.monotonic());
        let SendPermit::Wait { wait, first } = permit else { return Ok(()) };
        if first && !self.me.is_lead() {
            let me = &self.me;
            let content = format!("{me} sends too many messages (max_sends) and was slowed down");
            let (bus, id) = (Arc::clone(&self.bus), new_id(&AgentName::system()));
            offload(move || bus.notify_lead(Body::text(), content, id)).await?;
        }
        Err(ToolError::Reply(format!(
            "you send too many messages: nothing was sent. The next one can be sent in {} s; do \
             something else, or end your turn",
            wait.as_secs() + 1
        )))
    }

    /// Forgets whether a command has sent mail, before the next call.
    pub(in crate::tools) fn forget_command_mail(&self) {
        self.has_command_mail.set(false);
    }

    /// Whether a command of the current call has sent mail, which is then forgotten.
    pub(in crate::tools) fn take_command_mail(&self) -> bool {
        self.has_command_mail.take()
    }

    /// Notes that a command of the current call has sent mail.
    pub(in crate::tools) fn note_command_mail(&self) {
        self.has_command_mail.set(true);
    }

    /// Records a delivered message for [`TeamContext::take_recent`].
    pub(crate) fn take_note(&self, message: Map<String, Value>) {
        let fields = message.iter();
        let bytes = fields.map(|(name, value)| name.len() + value.to_string().len()).sum();
        self.recent.borrow_mut().push(bytes, message);
    }

    /// Returns the newest mail that was delivered since the last call.
    pub(in crate::tools) fn take_recent(&self) -> Newest<Map<String, Value>> {
        self.recent.borrow_mut().take()
    }

    /// Records a valid shutdown request of `owner`.
    pub(crate) fn open_shutdown(&self, id: String, owner: String) {
        let request = PendingRequest {
            id,
            kind: RequestKind::Shutdown,
            owner,
            decider: self.me.to_string(),
            incarnation: self.incarnation.clone(),
            deadline: None,
        };
        if let Err(why) = self.shutdowns.borrow_mut().open(request) {
            tracing::warn!(%why, "a shutdown request was not accepted");
        }
    }

    pub(in crate::tools) fn is_shutdown_open(&self, request_id: &str) -> bool {
        self.shutdowns.borrow().pending_of(request_id).is_some()
    }

    /// Answers every open shutdown request, each at most once. Fails if an answer could not be sent.
    pub(crate) async fn answer_shutdown(
        &self,
        approve: bool,
        reason: Option<String>,
    ) -> Result<(), ToolError> {
        let open: Vec<PendingRequest> = self.shutdowns.borrow().pending().cloned().collect();
        for PendingRequest { id, owner, incarnation, .. } in open {
            let answer = RequestAnswer {
                id: Some(&id),
                kind: RequestKind::Shutdown,
                from: self.me.as_str(),
                incarnation: Some(&incarnation),
                verdict: RequestVerdict::of(approve),
            };
            let answered = self.shutdowns.borrow_mut().answer(&answer, Instant::now());
            answered.map_err(ToolError::reply)?;
            let correlation = Correlation { request_id: id, incarnation };
            let (bus, me) = (Arc::clone(&self.bus), self.me.clone());
            let body = Body::ShutdownResponse { approve, reason: reason.clone() };
            let send = move || bus.control(&me, &AgentName::mailbox(&owner)?, body, correlation);
            offload(send).await?;
        }
        Ok(())
    }
}
