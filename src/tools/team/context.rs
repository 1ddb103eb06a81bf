//! The state that an agent's team tools share with its loop.

use crate::bus::{Bus, new_id};
use crate::os::{Clock, SystemClock};
use crate::protocol::rate_limiter::{RateLimiter, SendPermit};
use crate::protocol::request::{
    PendingRequest, RequestAnswer, RequestKind, RequestLedger, RequestVerdict,
};
use crate::store::asynchronous::offload;
use crate::tools::call::{Call, ToolError};
use crate::tools::hooks::Hooks;
use crate::wire::AgentName;
use crate::wire::message::{Body, Correlation};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

/// The shared state of one agent's team tools.
pub(crate) struct TeamContext {
    pub(in crate::tools) me: AgentName,
    incarnation: String,
    pub(in crate::tools) bus: Arc<Bus>,
    /// Mail that was taken in since the model last read its inbox.
    recent: RefCell<Vec<Map<String, Value>>>,
    /// Requests to shut down.
    shutdowns: RefCell<RequestLedger>,
    rate_limiter: RefCell<RateLimiter>,
    /// The user's hooks.
    pub(crate) hooks: Hooks,
}

impl TeamContext {
    /// The context of an agent whose model may send at most `max_sends` messages per minute.
    pub(crate) fn new(
        me: AgentName,
        incarnation: String,
        bus: Arc<Bus>,
        max_sends: usize,
        hooks: Hooks,
    ) -> Self {
        let (recent, shutdowns) = (RefCell::default(), RefCell::default());
        let rate_limiter = RefCell::new(RateLimiter::new(max_sends));
        Self { me, incarnation, bus, recent, shutdowns, rate_limiter, hooks }
    }

    /// The id of the message that a call sends: a repeated call delivers it once.
    pub(in crate::tools) fn message_id(&self, call: &Call) -> String {
        format!("{}:{}", self.me, call.id)
    }

    /// Reserves `count` sends of the model, or fails because it sends too many messages. The lead is told once
    /// when a sender is slowed down.
    pub(in crate::tools) async fn reserve_sends(&self, count: usize) -> Result<(), ToolError> {
        let permit = self.rate_limiter.borrow_mut().ask(count, SystemClock.monotonic());
        let SendPermit::Wait { wait, first } = permit else { return Ok(()) };
        if first && !self.me.is_lead() {
            let me = &self.me;
            let content = format!("{me} sends too many messages (max_sends) and was slowed down");
            let (bus, id) = (Arc::clone(&self.bus), new_id(&AgentName::system()));
            offload(move || bus.notify_lead(Body::text(), content, id)).await?;
        }
        Err(ToolError::Reply(format!(
            "you send too many messages: nothing was sent, the next one can be sent in {} s; do \
             something else, or end your turn",
            wait.as_secs() + 1
        )))
    }

    /// Notes mail that was taken in.
    pub(crate) fn take_note(&self, message: &Map<String, Value>) {
        self.recent.borrow_mut().push(message.clone());
    }

    /// Mail that was taken in since the last call.
    pub(in crate::tools) fn take_recent(&self) -> Vec<Map<String, Value>> {
        self.recent.take()
    }

    /// Notes a valid shutdown request of `by`.
    pub(crate) fn open_shutdown(&self, request_id: String, by: String) {
        let request = PendingRequest {
            id: request_id,
            kind: RequestKind::Shutdown,
            owner: by,
            decider: self.me.to_string(),
            incarnation: self.incarnation.clone(),
            deadline: None,
        };
        if let Err(why) = self.shutdowns.borrow_mut().open(request) {
            tracing::warn!(%why, "a shutdown request was not accepted");
        }
    }

    /// Whether this shutdown request is open.
    pub(super) fn is_shutdown_open(&self, request_id: &str) -> bool {
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
