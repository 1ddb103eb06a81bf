//! A message and the stage that it has reached.

use crate::wire::WallTime;
use crate::wire::message::Message;
use serde::Serialize;
use serde_json::{Map, Value};

/// The longest content of a `MessageProgress`, in characters; the conversation has all of it.
const CONTENT_CHARS: usize = 2000;

/// The stages of a message, in order. Each one shows in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// The call that sends it is in the sender's transcript.
    Sent,
    /// Its line is in the recipient's inbox.
    Appended,
    /// The recipient has renamed the inbox to a claim.
    Claimed,
    /// Its line is in the recipient's transcript.
    Acknowledged,
    /// The recipient's model has answered a request that contains it.
    Answered,
}

/// A message as a view shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MessageProgress {
    /// The message id.
    pub(crate) id: String,
    /// The word of its kind.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The sender, as the message says.
    pub(crate) from: String,
    /// The owner of the inbox.
    pub(crate) to: String,
    /// The content, truncated.
    pub(crate) content: String,
    /// The time at which it was sent.
    pub(crate) timestamp: Option<WallTime>,
    /// The furthest stage so far.
    pub(crate) stage: Stage,
}

impl MessageProgress {
    /// A message in the mail of `owner`; `None` if the object is not a message or has no id yet.
    pub(crate) fn read(owner: &str, object: &Map<String, Value>, stage: Stage) -> Option<Self> {
        let message = Message::read(object).ok()?;
        let kind = message.body.kind().to_owned();
        let content =
            if message.content.is_empty() { text_of_kind(object) } else { message.content };
        Some(Self {
            id: message.id?,
            kind,
            from: message.from,
            to: owner.to_owned(),
            content: content.chars().take(CONTENT_CHARS).collect(),
            timestamp: message.timestamp,
            stage,
        })
    }
}

/// The text of a message without content, from the fields of its kind.
fn text_of_kind(object: &Map<String, Value>) -> String {
    let field = |key: &str| object.get(key).and_then(Value::as_str);
    let fields = ["description", "plan", "reason", "feedback", "subject", "mode", "exit"];
    fields.into_iter().find_map(field).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_without_content_shows_its_reason() {
        let object = json!({"type":"shutdown_request","id":"u:1","from":"user","reason":"done"});
        let progress =
            MessageProgress::read("alice", object.as_object().unwrap(), Stage::Appended).unwrap();
        assert_eq!((progress.content.as_str(), progress.to.as_str()), ("done", "alice"));
    }

    #[test]
    fn a_message_without_an_id_is_not_listed() {
        let object = json!({"from":"a","content":"x"});
        assert_eq!(MessageProgress::read("b", object.as_object().unwrap(), Stage::Appended), None);
    }
}
