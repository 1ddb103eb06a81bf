//! A message: one line of JSON in an inbox (SPEC 3.1).
//!
//! Reading never fails for a field it does not know: an unknown `type`, or a known one whose fields do
//! not fit, becomes [`Body::Unknown`] and is delivered as data. Writing goes through [`OutgoingMessage`], whose
//! types leave nothing out.

use super::{AgentName, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Longest line of an inbox in bytes, its newline included.
pub const MAX_LINE_BYTES: usize = 2 * 1024 * 1024;

/// A message as a reader understands it.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Unique id; `None` when somebody wrote the line by hand.
    pub id: Option<String>,
    /// Who says it wrote it; `unknown` when nobody does.
    pub from: String,
    /// Whom it is addressed to.
    pub to: Option<String>,
    /// The text.
    pub content: String,
    /// When it was written, for people only: order is file order.
    pub timestamp: Option<Timestamp>,
    /// Correlates a request and its answer.
    pub request_id: Option<String>,
    /// Which life of the target a control message is meant for.
    pub incarnation: Option<String>,
    /// What kind of message it is, with the fields of that kind.
    pub body: Body,
}

/// The types of SPEC 3.1 with their own fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Body {
    /// Text.
    Message {
        /// A short form for views.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
    },
    /// The same text to everyone but the sender.
    Broadcast {},
    /// Last text of a finished turn.
    Result {
        /// How the turn ended.
        outcome: Outcome,
    },
    /// A change of state for the lead's program; never a turn by itself.
    IdleNotification {
        /// Why the member is idle.
        reason: IdleReason,
    },
    /// End gracefully.
    ShutdownRequest {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// When the next rung of the ladder is taken.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    },
    /// The answer to a shutdown request.
    ShutdownResponse {
        /// It agrees.
        #[serde(alias = "approved")]
        approve: bool,
        /// Why, or why not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// May I carry out this plan?
    PlanApprovalRequest {
        /// The plan.
        plan: String,
        /// Who decides: `user`, or the lead when it is absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decider: Option<String>,
    },
    /// The answer to a plan.
    PlanApprovalResponse {
        /// It may.
        #[serde(alias = "approved")]
        approve: bool,
        /// What to change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        feedback: Option<String>,
        /// The mode to go on in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
    },
    /// May I run this?
    PermissionRequest {
        /// The tool.
        tool: String,
        /// Its arguments.
        input: Value,
        /// What it would do, in words.
        description: String,
    },
    /// The answer to a permission request.
    PermissionResponse {
        /// It may.
        #[serde(alias = "approved")]
        approve: bool,
        /// For how long the answer holds.
        #[serde(default)]
        scope: Scope,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Arguments to use instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        updated_input: Option<Value>,
    },
    /// An "always" answer, fanned out.
    PermissionUpdate {
        /// The rules.
        rules: Value,
    },
    /// Change the permission mode.
    ModeSetRequest {
        /// The new mode.
        mode: String,
    },
    /// May I go outside the sandbox?
    SandboxPermissionRequest {
        /// The host to reach.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        /// The path to touch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// The tool that would.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        /// Its arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
    },
    /// The answer to a sandbox request.
    SandboxPermissionResponse {
        /// It may.
        #[serde(alias = "approved")]
        approve: bool,
        /// For how long the answer holds.
        #[serde(default)]
        scope: Scope,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A task is now yours.
    TaskAssignment {
        /// The task.
        task_id: String,
        /// Its title.
        subject: String,
        /// What to do.
        description: String,
        /// Who assigned it.
        assigned_by: String,
        /// What must be completed before it can begin.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocked_by: Vec<String>,
    },
    /// A teammate is gone.
    TeammateTerminated {
        /// Who.
        name: String,
        /// Why, a word of [`super::roster::ExitCause`].
        cause: String,
        /// How, for people: "exit 1", "signal 9".
        exit: String,
    },
    /// Something this version does not know; shown as data.
    #[serde(skip)]
    Unknown {
        /// The `type` that stood in the line.
        kind: String,
    },
}

/// Every `type` of this version.
pub const KINDS: [&str; 16] = [
    "message",
    "broadcast",
    "result",
    "idle_notification",
    "shutdown_request",
    "shutdown_response",
    "plan_approval_request",
    "plan_approval_response",
    "permission_request",
    "permission_response",
    "permission_update",
    "mode_set_request",
    "sandbox_permission_request",
    "sandbox_permission_response",
    "task_assignment",
    "teammate_terminated",
];

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The model finished.
    Done,
    /// An error ended it.
    Failed,
    /// Somebody ended it.
    Interrupted,
}

impl Outcome {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Why a member is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleReason {
    /// Its turn is over.
    Available,
    /// Its turn was interrupted.
    Interrupted,
    /// Its turn failed.
    Failed,
}

/// How long a permission holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This call.
    #[default]
    Once,
    /// Until the process ends.
    Session,
    /// From now on.
    Always,
}

impl Body {
    /// A plain message.
    pub fn text() -> Self {
        Self::Message { summary: None }
    }

    /// The word in `type`.
    pub fn kind(&self) -> &str {
        match self {
            Self::Message { .. } => "message",
            Self::Broadcast {} => "broadcast",
            Self::Result { .. } => "result",
            Self::IdleNotification { .. } => "idle_notification",
            Self::ShutdownRequest { .. } => "shutdown_request",
            Self::ShutdownResponse { .. } => "shutdown_response",
            Self::PlanApprovalRequest { .. } => "plan_approval_request",
            Self::PlanApprovalResponse { .. } => "plan_approval_response",
            Self::PermissionRequest { .. } => "permission_request",
            Self::PermissionResponse { .. } => "permission_response",
            Self::PermissionUpdate { .. } => "permission_update",
            Self::ModeSetRequest { .. } => "mode_set_request",
            Self::SandboxPermissionRequest { .. } => "sandbox_permission_request",
            Self::SandboxPermissionResponse { .. } => "sandbox_permission_response",
            Self::TaskAssignment { .. } => "task_assignment",
            Self::TeammateTerminated { .. } => "teammate_terminated",
            Self::Unknown { kind } => kind,
        }
    }

    /// Whether this version knows the type.
    pub fn is_known_kind(kind: &str) -> bool {
        KINDS.contains(&kind)
    }

    /// Whether it is a reason to begin a turn. State changes and control mail are for the program.
    pub fn wakes(&self) -> bool {
        // A plan is no reason for a turn of a model that may not decide about it.
        if let Self::PlanApprovalRequest { decider, .. } = self {
            return decider.as_deref() != Some("user");
        }
        matches!(self, Self::TeammateTerminated { .. }) || !self.is_control()
    }

    /// Whether the message steers a program, rather than telling a model something. Control mail has a
    /// reserve in a full inbox and reaches a member that is stopping.
    pub fn is_control(&self) -> bool {
        match self {
            Self::ShutdownRequest { .. }
            | Self::ShutdownResponse { .. }
            | Self::PlanApprovalRequest { .. }
            | Self::PlanApprovalResponse { .. }
            | Self::PermissionRequest { .. }
            | Self::PermissionResponse { .. }
            | Self::PermissionUpdate { .. }
            | Self::ModeSetRequest { .. }
            | Self::SandboxPermissionRequest { .. }
            | Self::SandboxPermissionResponse { .. }
            | Self::IdleNotification { .. }
            | Self::TeammateTerminated { .. } => true,
            Self::Message { .. }
            | Self::Broadcast {}
            | Self::Result { .. }
            | Self::TaskAssignment { .. }
            | Self::Unknown { .. } => false,
        }
    }
}

impl Body {
    /// Whether only a program has a use for it: a change of state, or the traffic of permissions, whose
    /// outcome the model learns from the call that waited.
    pub fn is_for_program(&self) -> bool {
        matches!(
            self,
            Self::IdleNotification { .. }
                | Self::PermissionRequest { .. }
                | Self::PermissionResponse { .. }
                | Self::PermissionUpdate { .. }
                | Self::ModeSetRequest { .. }
                | Self::SandboxPermissionRequest { .. }
                | Self::SandboxPermissionResponse { .. }
                | Self::PlanApprovalResponse { .. }
        )
    }
}

/// Why a JSON object is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A common field has a type it may not have.
    #[error("field {0:?} is not a string")]
    NotText(&'static str),
    /// There is nothing to deliver.
    #[error("no content")]
    NoContent,
}

impl Message {
    /// Understands a line of plain text as our own senders write it, which most mail is, in a fraction of the
    /// time; `None` when it may be anything else.
    pub(crate) fn read_plain(line: &str) -> Option<Self> {
        let Plain { kind, from, to, content, timestamp, id, request_id, incarnation } =
            serde_json::from_str(line).ok()?;
        let body = match &*kind {
            "message" => Body::text(),
            "broadcast" => Body::Broadcast {},
            _ => return None,
        };
        Some(Self {
            id: id.map(Cow::into_owned),
            from: from.into_owned(),
            to: to.map(Cow::into_owned),
            content: content.into_owned(),
            timestamp,
            request_id: request_id.map(Cow::into_owned),
            incarnation: incarnation.map(Cow::into_owned),
            body,
        })
    }

    /// Understands an object from an inbox line.
    ///
    /// # Errors
    /// A common field that must be text is something else, or a text message has no text.
    pub fn read(object: &Map<String, Value>) -> Result<Self, Malformed> {
        let kind = text(object, &["type"], "type")?;
        let body = read_body(kind.as_deref(), object);
        let content = match first(object, &["content", "text"]) {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) if needs_content(&body) => return Err(Malformed::NoContent),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        };
        Ok(Self {
            id: text(object, &["id"], "id")?,
            from: text(object, &["from"], "from")?.unwrap_or_else(|| "unknown".into()),
            to: text(object, &["to"], "to")?,
            content,
            timestamp: first(object, &["timestamp", "ts"]).and_then(Value::as_f64),
            request_id: text(object, &["request_id", "requestId"], "request_id")?,
            incarnation: text(object, &["incarnation"], "incarnation")?,
            body,
        })
    }
}

fn needs_content(body: &Body) -> bool {
    matches!(body, Body::Message { .. } | Body::Broadcast {})
}

fn read_body(kind: Option<&str>, object: &Map<String, Value>) -> Body {
    let kind = kind.unwrap_or("message");
    // Most mail is plain text, and needs no copy to be understood.
    match (kind, object.get("summary")) {
        ("message", None | Some(Value::Null)) => return Body::text(),
        ("broadcast", _) => return Body::Broadcast {},
        _ => {}
    }
    let (canonical, approve) = match kind {
        "shutdown_approved" => ("shutdown_response", Some(true)),
        "shutdown_rejected" => ("shutdown_response", Some(false)),
        other => (other, None),
    };
    let mut fields = object.clone();
    fields.insert("type".into(), canonical.into());
    if let Some(approve) = approve {
        fields.shift_remove("approved");
        fields.insert("approve".into(), approve.into());
    }
    serde_json::from_value(Value::Object(fields))
        .unwrap_or_else(|_| Body::Unknown { kind: kind.into() })
}

fn first<'a>(object: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().find_map(|key| object.get(*key))
}

/// A text field; numbers are taken as their text, since hand-written ids often are numbers.
fn text(
    object: &Map<String, Value>,
    keys: &[&str],
    label: &'static str,
) -> Result<Option<String>, Malformed> {
    match first(object, keys) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => Err(Malformed::NotText(label)),
    }
}

/// A message about to be written. Everything a strict writer must say is a field here.
#[derive(Debug, Clone, PartialEq)]
pub struct OutgoingMessage {
    /// Unique id: `FROM:TOOL_USE_ID`, or `FROM:` and a UUID v7.
    pub id: String,
    /// The sender, set by the program.
    pub from: AgentName,
    /// The receiver.
    pub to: AgentName,
    /// The text.
    pub content: String,
    /// Now.
    pub timestamp: Timestamp,
    /// Required on requests and answers.
    pub correlation: Option<Correlation>,
    /// The kind of message.
    pub body: Body,
    /// Further fields a person asked for (`team send --field`); never overrides another field.
    pub extra: Map<String, Value>,
}

/// Binds a request, its answer, and the life of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correlation {
    /// Unique id of the request.
    pub request_id: String,
    /// The life of the target that is meant.
    pub incarnation: String,
}

impl OutgoingMessage {
    /// The message as an object, fields in the order of SPEC 3.1.
    pub fn object(&self) -> Map<String, Value> {
        let mut object = match serde_json::to_value(self.common()) {
            Ok(Value::Object(object)) => object,
            Ok(_) | Err(_) => Map::new(),
        };
        if let Ok(Value::Object(fields)) = serde_json::to_value(&self.body) {
            for (key, value) in fields {
                object.entry(key).or_insert(value);
            }
        }
        for (key, value) in &self.extra {
            object.entry(key.clone()).or_insert_with(|| value.clone());
        }
        object
    }

    /// The line to append, with its newline.
    pub fn line(&self) -> String {
        let is_plain = matches!(self.body, Body::Message { summary: None } | Body::Broadcast {});
        // What is sent most is written without an object in between.
        let direct =
            (is_plain && self.extra.is_empty()).then(|| serde_json::to_string(&self.common()));
        let mut line = match direct {
            Some(Ok(line)) => line,
            Some(Err(_)) | None => Value::Object(self.object()).to_string(),
        };
        line.push('\n');
        line
    }

    fn common(&self) -> Common<'_> {
        let correlation = self.correlation.as_ref();
        Common {
            kind: self.body.kind(),
            from: self.from.as_str(),
            to: self.to.as_str(),
            content: &self.content,
            timestamp: self.timestamp,
            id: &self.id,
            request_id: correlation.map(|correlation| correlation.request_id.as_str()),
            incarnation: correlation.map(|correlation| correlation.incarnation.as_str()),
        }
    }
}

/// The fields that messages of every kind have.
#[derive(Serialize)]
struct Common<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    from: &'a str,
    to: &'a str,
    content: &'a str,
    timestamp: Timestamp,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<&'a str>,
}

/// The same fields, read. Whatever has others, or one of another type or twice, is no plain text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    from: Cow<'a, str>,
    #[serde(borrow)]
    to: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Cow<'a, str>,
    timestamp: Option<Timestamp>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    request_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    incarnation: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests;
