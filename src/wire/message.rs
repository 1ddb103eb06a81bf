//! A message: one line of JSON in an inbox (SPEC 3.1).
//!
//! Readers are tolerant: an unknown `type`, or a known one whose fields do not fit, becomes
//! [`Body::Unknown`] and is delivered as data. Writers are strict: a line is written only from an
//! [`OutgoingMessage`], which has every required field.

mod body;
#[cfg(test)]
mod tests;

use super::attachment::Attachment;
use super::seal::Verification;
use super::{AgentName, WallTime, object_of};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;

pub use body::{Body, Handling, IdleReason, KINDS, Outcome, Scope};

/// A parsed message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The unique id; `None` in a line written by hand.
    pub id: Option<String>,
    /// The sender that the line names; `unknown` when it names none.
    pub from: String,
    /// The recipient.
    pub to: Option<String>,
    /// The text.
    pub content: String,
    /// The time of writing, for display only: the order of messages is their order in the file.
    pub timestamp: Option<WallTime>,
    /// The id that correlates a request and its answer.
    pub request_id: Option<String>,
    /// The incarnation of the recipient that a control message addresses.
    pub incarnation: Option<String>,
    /// The kind of message, with the fields of that kind.
    pub body: Body,
    /// The files that come with it.
    pub attachments: Vec<Attachment>,
    /// The evidence for the sender, which a reader with the keys adds.
    pub verification: Verification,
}

/// The reason that a JSON object is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A common field that must be text has another type.
    #[error("field {0:?} is not a string")]
    NotText(&'static str),
    /// A text message has no text.
    #[error("no content")]
    NoContent,
}

/// The field of a message that says by which way its sender has written it.
pub const VIA: &str = "via";

/// The value of [`VIA`] for a message that a walled command of the sender has written, and the agent has sent.
pub const VIA_COMMAND: &str = "command";

impl Message {
    /// Parses a plain text message as this program writes it, as most mail is, without an intermediate [`Value`].
    /// Returns `None` for any other line.
    pub fn read_plain(line: &str) -> Option<Self> {
        let plain: Plain<'_> = serde_json::from_str(line).ok()?;
        let Plain { kind, from, to, content, timestamp, id, request_id, incarnation, .. } = plain;
        let body = match &*kind {
            "message" => Body::text(),
            "broadcast" => Body::Broadcast {},
            _ => return None,
        };
        let (attachments, verification) = (Vec::new(), Verification::None);
        Some(Self {
            id,
            from,
            to,
            content,
            timestamp,
            request_id,
            incarnation,
            body,
            attachments,
            verification,
        })
    }

    /// Whether there is evidence that the message comes from the sender that it names.
    pub fn is_verified(&self) -> bool {
        self.verification != Verification::None
    }

    /// Parses the object of an inbox line.
    ///
    /// # Errors
    /// A common field that must be text has another type, or a text message has no text.
    pub fn read(object: &Map<String, Value>) -> Result<Self, Malformed> {
        let body = read_body(text(object, &["type"])?.as_deref().unwrap_or("message"), object);
        let is_text = matches!(body, Body::Message { .. } | Body::Broadcast {});
        let content = match first(object, &["content", "text"]) {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) if is_text => return Err(Malformed::NoContent),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        };
        let timestamp = first(object, &["timestamp", "ts"]).and_then(Value::as_f64);
        Ok(Self {
            id: text(object, &["id"])?,
            from: text(object, &["from"])?.unwrap_or_else(|| "unknown".into()),
            to: text(object, &["to"])?,
            content,
            timestamp: timestamp.map(WallTime::from_secs),
            request_id: text(object, &["request_id", "requestId"])?,
            incarnation: text(object, &["incarnation"])?,
            body,
            attachments: Attachment::all_of(object),
            verification: Verification::None,
        })
    }
}

/// The name of a `permission_update` in another program.
const OTHER_PERMISSION_UPDATE: &str = "team_permission_update";

fn read_body(kind: &str, object: &Map<String, Value>) -> Body {
    // Most mail is plain text and needs no copy of the object.
    match (kind, object.get("summary")) {
        ("message", None | Some(Value::Null)) => return Body::text(),
        ("broadcast", _) => return Body::Broadcast {},
        _ => {}
    }
    let mut fields = object.clone();
    let own = if kind == OTHER_PERMISSION_UPDATE { "permission_update" } else { kind };
    fields.insert("type".into(), own.into());
    if let "shutdown_approved" | "shutdown_rejected" = kind {
        fields.insert("type".into(), "shutdown_response".into());
        fields.shift_remove("approved");
        fields.insert("approve".into(), (kind == "shutdown_approved").into());
    }
    serde_json::from_value(Value::Object(fields))
        .unwrap_or_else(|_| Body::Unknown { kind: kind.into() })
}

fn first<'a>(object: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().find_map(|key| object.get(*key))
}

/// Returns a text field; errors name its first key. Ids written by hand are often numbers: these become text.
fn text(object: &Map<String, Value>, keys: &[&'static str]) -> Result<Option<String>, Malformed> {
    match first(object, keys) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            Err(Malformed::NotText(keys.first().copied().unwrap_or_default()))
        }
    }
}

/// A message to be written, with every field that a strict writer must set. It serializes to the fields that every
/// kind has, in the order of SPEC 3.1; [`OutgoingMessage::line`] adds the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutgoingMessage {
    /// The kind of message.
    #[serde(rename = "type", serialize_with = "kind_of")]
    pub body: Body,
    /// The sender; set by the program, never by a model.
    pub from: AgentName,
    /// The recipient.
    pub to: AgentName,
    /// The text.
    pub content: String,
    /// The time of writing.
    pub timestamp: WallTime,
    /// The unique id: `FROM:TOOL_USE_ID`, or `FROM:` and a UUID v7.
    pub id: String,
    /// The correlation of a request or an answer; required on both.
    #[serde(flatten)]
    pub correlation: Option<Correlation>,
    /// Fields of `team send --field`; they never override another field.
    #[serde(skip)]
    pub extra: Map<String, Value>,
}

/// Binds a request to its answer and to the incarnation of the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Correlation {
    /// The unique id of the request.
    pub request_id: String,
    /// The incarnation of the target.
    pub incarnation: String,
}

fn kind_of<S: Serializer>(body: &Body, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(body.kind())
}

impl OutgoingMessage {
    /// Returns the line to append, including its newline.
    ///
    /// # Errors
    /// A field cannot be serialized.
    pub fn line(&self) -> serde_json::Result<String> {
        let is_plain = matches!(self.body, Body::Message { summary: None } | Body::Broadcast {});
        if is_plain && self.extra.is_empty() {
            return self.plain_line();
        }
        let mut line = Value::Object(self.object()?).to_string();
        line.push('\n');
        Ok(line)
    }

    /// Writes the most frequent kinds, which have only the fields that every kind has. As the serializer writes them, in a third of
    /// its time.
    fn plain_line(&self) -> serde_json::Result<String> {
        let Self { body, from, to, content, timestamp, id, correlation, extra: _ } = self;
        let json = |text: &str| serde_json::to_string(text);
        let mut line = [
            r#"{"type":""#,
            body.kind(),
            r#"","from":""#,
            from.as_str(),
            r#"","to":""#,
            to.as_str(),
            r#"","content":"#,
            &json(content)?,
            r#","timestamp":"#,
            &serde_json::to_string(timestamp)?,
            r#","id":"#,
            &json(id)?,
        ]
        .concat();
        if let Some(Correlation { request_id, incarnation }) = correlation {
            let (request_id, incarnation) = (json(request_id)?, json(incarnation)?);
            line +=
                &[r#","request_id":"#, &request_id, r#","incarnation":"#, &incarnation].concat();
        }
        line.push_str("}\n");
        Ok(line)
    }

    fn object(&self) -> serde_json::Result<Map<String, Value>> {
        let mut object = object_of(self)?;
        // An unknown kind has no fields of its own, only those in `extra`.
        let is_unknown = matches!(self.body, Body::Unknown { .. });
        let own = if is_unknown { Map::new() } else { object_of(&self.body)? };
        for (key, value) in own.into_iter().chain(self.extra.clone()) {
            object.entry(key).or_insert(value);
        }
        Ok(object)
    }
}

/// The fields of a plain text message: a line with another, a repeated or a mistyped field does not parse.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    from: String,
    to: Option<String>,
    content: String,
    timestamp: Option<WallTime>,
    id: Option<String>,
    request_id: Option<String>,
    incarnation: Option<String>,
    #[serde(rename = "seal")]
    _seal: Option<IgnoredAny>,
}
