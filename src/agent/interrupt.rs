//! Interrupt requests: the check whether one binds this incarnation.

use super::event::InterruptRequest;
use super::identity::Identity;
use crate::wire::message::{Body, Message};

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
