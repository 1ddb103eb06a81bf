//! A recorded message beside a new one.

use crate::tools::approval_decision::ApprovalDecision;
use crate::wire::WallTime;
use crate::wire::message::{Body, Message};
use serde_json::{Map, Value};

/// Returns the id of a message; empty if it has none.
pub(super) fn id_of(message: &Map<String, Value>) -> &str {
    message.get("id").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a message was sent before this time.
pub(super) fn was_sent_before(message: &Map<String, Value>, time: WallTime) -> bool {
    let sent = message.get("timestamp").and_then(Value::as_f64);
    sent.is_some_and(|sent| WallTime::from_secs(sent) < time)
}

/// Whether a new message is the recorded one: the same one by its id, or one of the same sender, kind and text. Texts
/// of the program may name processes, so they do not count.
pub(super) fn is_same(recorded: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let same = |key: &str| recorded.get(key) == new.get(key);
    let body = Message::read(recorded).map(|message| message.body);
    let is_text = matches!(
        body,
        Ok(Body::Message { .. }
            | Body::Broadcast {}
            | Body::Result { .. }
            | Body::TaskAssignment { .. })
    );
    let is_answer = body.as_ref().is_ok_and(|body| ApprovalDecision::of_body(body).is_some());
    let has_id = recorded.get("id").is_some_and(Value::is_string);
    (has_id && same("id"))
        || (same("from")
            && same("type")
            && (!is_text || same("content"))
            && (!is_answer || same("request_id")))
}
