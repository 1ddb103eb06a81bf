//! The mailbox of a member whose model runs in another program. Mail stays in the inbox until an answer has room for it.
//!
//! *Invariant:* mail that a drain has returned is in the mailbag or was handed out. A drain is never cancelled, and what
//! an earlier process has taken and not handed out is in the mailbag from the start.

use super::mailbag::Mailbag;
use super::status_task::{ServedStatus, StatusSender};
use crate::agent::mail_ingest::report_dead_letters;
use crate::bus::Bus;
use crate::os::failpoint::hit;
use crate::os::spawn::spawn_local;
use crate::os::{Clock, SystemClock};
use crate::store::asynchronous::{self, SharedMailbox, offload};
use crate::store::tail::Tail;
use crate::store::{Mail, StoreError};
use crate::tools::team_context::TeamContext;
use crate::tools::{Call, Handout, HandoutFuture, MailHandout, ToolError};
use crate::wire::AgentName;
use crate::wire::inbox_block::marked;
use crate::wire::message::{Body, Message};
use crate::wire::newest::Newest;
use crate::wire::transcript::{Entry, InterruptOutcome, Line};
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep_until};

/// The part of a program in the mail of its model.
pub(in crate::app) trait MailWatch {
    /// Meets each message that was taken in. Returns whether the program acts on it.
    fn on_mail(&self, message: &Message) -> bool;

    /// Whether the model gets a message of this kind.
    fn is_shown(&self, body: &Body) -> bool {
        !body.is_for_program()
    }

    /// Returns the kinds of messages that are taken in as soon as they arrive, without a call of the model.
    fn urgent(&self) -> &'static [&'static str] {
        &["shutdown_request", "interrupt_request"]
    }
}

/// The watch of a teammate, whose program only acts on requests to leave and to interrupt.
pub(super) struct NoMailWatch;

impl MailWatch for NoMailWatch {
    fn on_mail(&self, _: &Message) -> bool {
        false
    }
}

pub(in crate::app) struct ServedMail {
    pub(super) bus: Arc<Bus>,
    pub(super) me: AgentName,
    pub(super) incarnation: String,
    pub(super) team: Rc<TeamContext>,
    pub(super) mailbox: SharedMailbox,
    pub(super) status: StatusSender,
    pub(super) watch: Box<dyn MailWatch>,
    pub(super) bag: RefCell<Mailbag>,
    /// Notified when mail arrives, and when the member leaves.
    pub(super) arrived: Notify,
    /// Notified when the client has listed the tools.
    pub(super) listed: Notify,
    /// Notified when the member is to leave; the cell has the sentence that says why.
    pub(super) leaving: Notify,
    pub(super) leave_reason: RefCell<Option<String>>,
    /// Whether the member has left: the mailbox belongs to the next holder of the name.
    pub(super) has_left: Cell<bool>,
    /// One drain at a time, so that mail is in the mailbag in its order.
    pub(super) draining: Mutex<()>,
    pub(super) this: Weak<Self>,
}

impl ServedMail {
    /// Takes the waiting mail into the transcript and the mailbag. Dropping the future does not stop it.
    pub(in crate::app) async fn collect(&self) -> Result<(), StoreError> {
        let Some(this) = self.this.upgrade().filter(|it| !it.has_left.get()) else { return Ok(()) };
        let work = spawn_local(async move { this.drain().await });
        // The task is cancelled at the end of the process only.
        work.await.unwrap_or(Ok(()))
    }

    async fn drain(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.draining.lock().await;
        let has_mail = self.mailbox.try_lock().map_or(true, |mailbox| mailbox.has_unread());
        if self.has_left.get() || !has_mail {
            return Ok(());
        }
        let drained = asynchronous::drain(&self.mailbox).await?;
        hit("served.taken");
        report_dead_letters(&self.bus, &self.me, &drained).await;
        for mail in drained.mail {
            self.receive(&mail);
        }
        Ok(())
    }

    /// Acts on control mail, and puts mail for the model into the mailbag.
    fn receive(&self, mail: &Mail) {
        let Message { id, from, body, .. } = &*mail.message;
        let (verified, kind) = (mail.message.is_verified(), body.kind());
        tracing::info!(id, from, kind, verified, "mail taken in");
        let is_bound = self.binds(&mail.message);
        let request_id = mail.message.request_id.clone().unwrap_or_default();
        if let Body::ShutdownRequest { reason, .. } = body
            && is_bound
        {
            self.team.open_shutdown(request_id, from.clone());
            let reason = reason.clone().unwrap_or_else(|| mail.message.content.clone());
            self.leave(format!("{from} asked you to leave the team ({reason})"));
            // The sentence is for the model.
            let ids = mail.message.id.clone().into_iter().collect();
            return self.record([Entry::HandedOut { ids }]);
        }
        if matches!(body, Body::InterruptRequest { .. }) && is_bound {
            let (by, outcome) = (from.clone(), InterruptOutcome::NoTurn);
            self.record([Entry::Interrupt { request_id, by, outcome }]);
        } else if !self.watch.on_mail(&mail.message) && body.needs_seal() {
            tracing::warn!(
                from,
                kind,
                "control mail was not acted on: the program of the user decides"
            );
        }
        if self.watch.is_shown(body) {
            let wakes = body.wakes() || body.is_for_program();
            self.bag.borrow_mut().add(marked(&mail.object(), verified), wakes);
        }
    }

    /// Whether a request is sealed, comes from who may make it, and is for this incarnation.
    fn binds(&self, message: &Message) -> bool {
        message.is_verified()
            && message.incarnation.as_deref() == Some(self.incarnation.as_str())
            && message.request_id.is_some()
            && matches!(message.from.as_str(), "lead" | "user")
    }

    /// Asks the member to leave the team, for the first reason that is given.
    pub(in crate::app) fn leave(&self, why: String) {
        self.leave_reason.borrow_mut().get_or_insert(why);
        self.leaving.notify_one();
    }

    /// Appends lines to the transcript. A failure costs only a record, or a repetition in the next process.
    pub(super) fn record(&self, entries: impl IntoIterator<Item = Entry>) {
        if self.has_left.get() {
            return;
        }
        let at = SystemClock.now();
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries {
            if let Err(why) = mailbox.transcript().append(&Line { at, entry }) {
                tracing::warn!(%why, "the transcript was not written");
            }
        }
    }

    /// Gives the model a note of the program, with the next result.
    pub(in crate::app) fn note(&self, text: &str) {
        self.record([Entry::Note { content: text.to_owned() }]);
        let system = AgentName::system().to_string();
        let note = json!({ "from": system, "content": text });
        self.bag.borrow_mut().add(note.as_object().cloned().unwrap_or_default(), true);
        self.arrived.notify_waiters();
    }

    /// Takes unread mail for an answer; waits for it until `until`.
    async fn take_until(&self, call_id: &str, until: Instant) -> Result<Handout, ToolError> {
        let lend = |bag: &mut Mailbag| {
            let handout = bag.lend(call_id);
            (!handout.mail.is_empty()).then_some(handout)
        };
        Ok(self.lend_until(until, lend).await?.unwrap_or_default())
    }

    /// Takes what `lend` finds in the mailbag; waits for mail until `until`.
    async fn lend_until<T>(
        &self,
        until: Instant,
        lend: impl Fn(&mut Mailbag) -> Option<T>,
    ) -> Result<Option<T>, ToolError> {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            self.collect().await.map_err(|why| self.failure(&why))?;
            let lent = lend(&mut self.bag.borrow_mut());
            if lent.is_some() || self.has_left.get() || Instant::now() >= until {
                return Ok(lent);
            }
            self.status.send(ServedStatus::Waits);
            tokio::select! {
                () = arrived => {}
                () = sleep_until(until) => {}
            }
        }
    }

    fn failure(&self, why: &StoreError) -> ToolError {
        if why.is_without_team() {
            self.leave(why.to_string());
            return ToolError::Fatal(why.to_string());
        }
        ToolError::Reply(format!("your mail cannot be taken: {why}; nothing is lost, try again"))
    }

    /// Takes the unread mail for the end of an answer.
    pub(super) async fn take_now(&self, call_id: &str) -> Option<String> {
        let taken = self.take_until(call_id, Instant::now()).await;
        let taken = taken.inspect_err(|why| tracing::warn!(%why, "an answer has no mail"));
        taken.ok()?.block()
    }

    /// Takes unread mail for a short text; waits for it until `until`.
    pub(super) async fn take_short(&self, id: &str, room: usize, until: Instant) -> Option<String> {
        let lend = |bag: &mut Mailbag| bag.lend_short(id, room);
        let taken = self.lend_until(until, lend).await;
        taken.inspect_err(|why| tracing::warn!(%why, "a hook has no mail")).ok()?
    }

    /// Notes whether an answer was written, with the mail that was taken for it.
    pub(super) fn answered(&self, call_id: &str, was_written: bool) {
        if !was_written {
            if self.bag.borrow_mut().return_from(call_id) {
                self.arrived.notify_waiters();
            }
            return;
        }
        let ids = self.bag.borrow_mut().deliver(call_id);
        if ids.is_empty() {
            return;
        }
        hit("served.written");
        tracing::info!(messages = ids.len(), "mail was handed out");
        self.record([Entry::HandedOut { ids }]);
        if self.bag.borrow().is_empty() && !self.has_left.get() {
            let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(why) = mailbox.mark_taken() {
                tracing::warn!(%why, "mail that was handed out still looks unread");
            }
        }
    }

    /// Searches new lines of the inbox for control mail, which is acted on without a call. Returns the search for the next
    /// lines.
    pub(super) async fn search_control(&self, mut search: Tail) -> Tail {
        let kinds = self.watch.urgent();
        let (found, search) = offload(move || (has_urgent(&mut search, kinds), search)).await;
        if found && let Err(why) = self.collect().await {
            tracing::warn!(%why, "control mail waits");
        }
        search
    }
}

/// Whether one of the lines that were appended since the last search may be of one of these kinds.
fn has_urgent(search: &mut Tail, kinds: &[&str]) -> bool {
    let mut found = false;
    let read = search.fresh().and_then(|mut fresh| {
        while let Some(line) = fresh.next_line()? {
            let text = String::from_utf8_lossy(line);
            found |= kinds.iter().any(|kind| text.contains(kind));
        }
        Ok(())
    });
    if let Err(why) = read {
        tracing::warn!(%why, "the inbox was not searched to its end");
    }
    found
}

impl MailHandout for ServedMail {
    fn take<'a>(&'a self, call: &'a Call, wait: Duration) -> HandoutFuture<'a> {
        Box::pin(async move {
            let handout = self.take_until(&call.id, Instant::now() + wait).await?;
            if !handout.mail.is_empty() {
                self.status.send(ServedStatus::Works(call.name.clone()));
            }
            Ok(handout)
        })
    }

    fn handed_out(&self) -> Newest<Map<String, Value>> {
        self.bag.borrow().handed_out()
    }
}
