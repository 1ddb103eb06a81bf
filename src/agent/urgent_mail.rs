//! The search of a busy member for mail that cannot wait until the next drain: a model call or a tool call delays the drain. An
//! interrupt request ends the call, and an answer to a question of a subagent is waited for by the call.

use super::approval::answer_in;
use super::event::{Event, Events, InterruptRequest, MachineEvent};
use super::identity::{Identity, MemberContext};
use super::interrupt::request_in;
use crate::os::spawn::spawn_local;
use crate::store::Keyring;
use crate::store::asynchronous::offload;
use crate::store::tail::Tail;
use crate::wire::message::Message;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Mail that is acted on before its drain.
enum UrgentMail {
    Interrupt(InterruptRequest),
    Answer(Box<Message>),
}

/// Searches the inbox of a busy member.
pub(super) struct UrgentMailSearch {
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

impl UrgentMailSearch {
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
    /// [`MachineEvent::InterruptAsked`], each answer as [`Event::Answered`].
    pub(super) fn search(&self) {
        let Some(tail) = self.position.borrow_mut().tail.take() else {
            self.position.borrow_mut().again = true;
            return;
        };
        let (context, position) = (Rc::clone(&self.context), Rc::clone(&self.position));
        spawn_local(search_on(context, position, tail));
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
        (found, tail) = offload(move || (urgent_in(&mut tail, &me, &keyring), tail)).await;
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

fn send(events: &Events, found: Vec<UrgentMail>) {
    for urgent in found {
        // A member that has ended acts on nothing.
        let _ended = events.send(match urgent {
            UrgentMail::Interrupt(asked) => MachineEvent::InterruptAsked(asked).into(),
            UrgentMail::Answer(message) => Event::Answered(message),
        });
    }
}

/// Returns the urgent mail in the lines that were appended since the last read.
fn urgent_in(tail: &mut Tail, me: &Identity, keyring: &Keyring) -> Vec<UrgentMail> {
    let mut found = Vec::new();
    let read = tail.fresh().and_then(|mut fresh| {
        while let Some(line) = fresh.next_line()? {
            found.extend(urgent_in_line(line, me, keyring));
        }
        Ok(())
    });
    if let Err(why) = read {
        tracing::warn!(%why, "the inbox was not searched to its end for urgent mail");
    }
    found
}

fn urgent_in_line(line: &[u8], me: &Identity, keyring: &Keyring) -> Option<UrgentMail> {
    let text = str::from_utf8(line).ok()?.trim();
    // Most mail is neither, and is not parsed.
    if !text.contains("interrupt_request") && !text.contains("_response") {
        return None;
    }
    let object: Map<String, Value> = serde_json::from_str(text).ok()?;
    let mut message = Message::read(&object).ok()?;
    message.verification = keyring.verify(&message, text);
    if answer_in(&message).is_some() {
        return Some(UrgentMail::Answer(Box::new(message)));
    }
    Some(UrgentMail::Interrupt(request_in(me, &message)?.ok()?))
}
