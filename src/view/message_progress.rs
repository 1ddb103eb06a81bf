//! A message on its way, and how far it has come.

use crate::wire::WallTime;
use crate::wire::message::Message;
use serde::Serialize;
use serde_json::{Map, Value};

/// Characters of a content that a `MessageProgress` carries; the conversation has all of it.
const CONTENT_CHARS: usize = 2000;

/// The steps of a message, in order. Each one is a fact on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// The call that sends it stands in the sender's transcript.
    Sent,
    /// Its line stands in the inbox.
    Appended,
    /// The owner renamed the inbox to a claim.
    Claimed,
    /// Its line stands in the owner's transcript.
    Acknowledged,
    /// The owner's model has answered a request that contains it.
    Answered,
}

/// A message as a view shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MessageProgress {
    /// Its id.
    pub(crate) id: String,
    /// `type`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Who says it wrote it.
    pub(crate) from: String,
    /// Whose inbox it went to.
    pub(crate) to: String,
    /// The text, cut.
    pub(crate) content: String,
    /// When it was written.
    pub(crate) timestamp: Option<WallTime>,
    /// How far it has come.
    pub(crate) stage: Stage,
}

impl MessageProgress {
    /// A message in `owner`'s mail; `None` for what is no message or has no id yet.
    pub(crate) fn read(owner: &str, object: &Map<String, Value>, stage: Stage) -> Option<Self> {
        let message = Message::read(object).ok()?;
        let kind = message.body.kind().to_owned();
        let content = if message.content.is_empty() { said(object) } else { message.content };
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

/// What a message without text says, from the fields of its kind.
fn said(object: &Map<String, Value>) -> String {
    let field = |key: &str| object.get(key).and_then(Value::as_str);
    let told = ["description", "plan", "reason", "feedback", "subject", "mode", "exit"];
    told.into_iter().find_map(field).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_without_text_tells_its_reason() {
        let object = json!({"type":"shutdown_request","id":"u:1","from":"user","reason":"done"});
        let progress =
            MessageProgress::read("alice", object.as_object().unwrap(), Stage::Appended).unwrap();
        assert_eq!((progress.content.as_str(), progress.to.as_str()), ("done", "alice"));
    }

    #[test]
    fn a_line_without_an_id_is_no_letter_yet() {
        let object = json!({"from":"a","content":"x"});
        assert_eq!(MessageProgress::read("b", object.as_object().unwrap(), Stage::Appended), None);
    }
}
