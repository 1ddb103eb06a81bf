//! Interrupt requests: the check whether one binds this incarnation, and the search for one in mail that is not drained
//! yet. A model call or a tool call delays the drain, and an interrupt ends it.

use super::event::{Events, InterruptRequest, MachineEvent};
use super::identity::{Identity, MemberContext};
use crate::store::Keyring;
use crate::store::asynchronous::offload;
use crate::store::tail::Tail;
use crate::wire::message::{Body, Message};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Returns the interrupt request in a message, or the reason for which it is not acted on. `None` for other messages.
pub(super) fn request_in(
    me: &Identity,
    message: &Message,
) -> Option<Result<InterruptRequest, String>> {
    let Body::InterruptRequest { reason } = &message.body else { return None };
    let by = message.from.clone();
    let is_bound = message.is_verified()
        && message.incarnation.as_deref() == Some(me.incarnation.as_str())
        && matches!(by.as_str(), "lead" | "user")
        && !me.name.is_lead();
    let Some(request_id) = message.request_id.clone().filter(|_| is_bound) else {
        return Some(Err(format!(
            "an interrupt_request from {by} that is not verified or does not bind this incarnation was not acted on"
        )));
    };
    let reason = reason.clone().filter(|reason| !reason.trim().is_empty());
    Some(Ok(InterruptRequest { request_id, by, reason }))
}

/// Searches the inbox of a busy member for interrupt requests.
pub(super) struct InterruptSearch {
    context: Rc<MemberContext>,
    position: Rc<RefCell<Position>>,
}

/// The part of the inbox that was searched.
struct Position {
    /// The tail of the inbox; `None` while a search is under way.
    tail: Option<Tail>,
    /// Whether mail was announced during the search.
    again: bool,
    /// The number of drains so far. A drain replaces the inbox.
    drains: u64,
}

impl InterruptSearch {
    pub(super) fn new(context: Rc<MemberContext>) -> Self {
        let position = Position { tail: Some(inbox(&context)), again: false, drains: 0 };
        Self { context, position: Rc::new(RefCell::new(position)) }
    }

    /// Forgets the position, because a drain has replaced the inbox.
    pub(super) fn on_drained(&self) {
        let mut position = self.position.borrow_mut();
        position.drains += 1;
        if position.tail.is_some() {
            position.tail = Some(inbox(&self.context));
        }
    }

    /// Searches the lines that were appended since the last search. Each request is sent as
    /// [`MachineEvent::InterruptAsked`].
    pub(super) fn search(&self) {
        let Some(tail) = self.position.borrow_mut().tail.take() else {
            self.position.borrow_mut().again = true;
            return;
        };
        let (context, position) = (Rc::clone(&self.context), Rc::clone(&self.position));
        tokio::task::spawn_local(search_on(context, position, tail));
    }
}

fn inbox(context: &MemberContext) -> Tail {
    Tail::new(context.bus.dir().inbox(&context.me.name))
}

async fn search_on(context: Rc<MemberContext>, position: Rc<RefCell<Position>>, mut tail: Tail) {
    loop {
        let drains = position.borrow().drains;
        let (me, keyring) = (context.me.clone(), Arc::clone(context.bus.keyring()));
        let found;
        (found, tail) = offload(move || (requests_in(&mut tail, &me, &keyring), tail)).await;
        send(&context.events, found);
        let mut position = position.borrow_mut();
        if position.drains != drains {
            tail = inbox(&context);
        }
        if !std::mem::take(&mut position.again) {
            position.tail = Some(tail);
            return;
        }
    }
}

fn send(events: &Events, found: Vec<InterruptRequest>) {
    for asked in found {
        // A member that has ended has no turn to interrupt.
        let _ended = events.send(MachineEvent::InterruptAsked(asked).into());
    }
}

/// Returns the requests in the lines that were appended since the last read.
fn requests_in(tail: &mut Tail, me: &Identity, keyring: &Keyring) -> Vec<InterruptRequest> {
    let mut found = Vec::new();
    let read = tail.fresh().and_then(|mut fresh| {
        while let Some(line) = fresh.next_line()? {
            found.extend(request_in_line(line, me, keyring));
        }
        Ok(())
    });
    if let Err(why) = read {
        tracing::warn!(%why, "the inbox was not searched to its end for an interrupt request");
    }
    found
}

fn request_in_line(line: &[u8], me: &Identity, keyring: &Keyring) -> Option<InterruptRequest> {
    let text = str::from_utf8(line).ok()?.trim();
    if !text.contains("interrupt_request") {
        return None;
    }
    let object: Map<String, Value> = serde_json::from_str(text).ok()?;
    let mut message = Message::read(&object).ok()?;
    message.verification = keyring.verify(&message, text);
    request_in(me, &message)?.ok()
}
