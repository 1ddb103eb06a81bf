//! The reports to a client about a session, as the values of `session/update`.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// The speaker of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    User,
    Agent,
    /// The agent's reasoning, which a client may fold.
    Thought,
}

/// Returns a piece of a message.
pub(crate) fn chunk(speaker: Speaker, message_id: &str, text: &str) -> Value {
    let kind = match speaker {
        Speaker::User => "user_message_chunk",
        Speaker::Agent => "agent_message_chunk",
        Speaker::Thought => "agent_thought_chunk",
    };
    json!({ "sessionUpdate": kind, "messageId": message_id, "content": text_block(text) })
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// The kind of a tool call, by which a client chooses a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolKind {
    Read,
    Edit,
    Search,
    Execute,
    Think,
    Fetch,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallStatus {
    Pending,
    InProgress,
    Completed,
    Failed,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Location {
    /// An absolute path.
    pub(crate) path: String,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
}

/// A part of the content of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallContent {
    Text(String),
    Diff {
        /// An absolute path.
        path: String,
        /// The text before; `None` for a new file.
        old: Option<String>,
        new: String,
    },
}

impl Serialize for CallContent {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = match self {
            Self::Text(text) => json!({ "type": "content", "content": text_block(text) }),
            Self::Diff { path, old, new } => {
                json!({ "type": "diff", "path": path, "oldText": old, "newText": new })
            }
        };
        value.serialize(serializer)
    }
}

/// A tool call as a whole, or the fields of it that have changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallReport {
    #[serde(rename = "toolCallId")]
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<ToolKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<CallStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<Vec<CallContent>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) locations: Option<Vec<Location>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) raw_input: Option<Value>,
}

impl CallReport {
    /// Returns the call as part of a question.
    pub(crate) fn value(&self) -> Value {
        // All keys are texts, so that it can be serialized.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the report of a call: of a new one, or of a change to one that the client knows.
    pub(crate) fn update(&self, is_new: bool) -> Value {
        let kind = if is_new { "tool_call" } else { "tool_call_update" };
        let mut update = Map::from_iter([("sessionUpdate".to_owned(), kind.into())]);
        if let Value::Object(fields) = self.value() {
            update.extend(fields);
        }
        Value::Object(update)
    }
}

/// The status of an entry of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EntryStatus {
    Pending,
    InProgress,
    Completed,
}

/// Returns the report of a plan, from its entries.
pub(crate) fn plan(entries: &[(String, EntryStatus)]) -> Value {
    let entry = |(content, status): &(String, EntryStatus)| json!({ "content": content, "priority": "medium", "status": status });
    let entries: Vec<Value> = entries.iter().map(entry).collect();
    json!({ "sessionUpdate": "plan", "entries": entries })
}

/// Returns the report of the commands that a prompt may begin with, each with its name, its meaning and its arguments.
pub(crate) fn commands(list: &[(&str, &str, &str)]) -> Value {
    let command = |(name, about, usage): &(&str, &str, &str)| {
        let input = (!usage.is_empty()).then(|| json!({ "hint": usage }));
        json!({ "name": name, "description": about, "input": input })
    };
    let list: Vec<Value> = list.iter().map(command).collect();
    json!({ "sessionUpdate": "available_commands_update", "availableCommands": list })
}

/// Returns the report that the session is in another mode.
pub(crate) fn mode(id: &str) -> Value {
    json!({ "sessionUpdate": "current_mode_update", "currentModeId": id })
}

/// Returns the report of the tokens in the context, of those that it can hold.
pub(crate) fn usage(used: u64, size: u64) -> Value {
    json!({ "sessionUpdate": "usage_update", "used": used, "size": size })
}

/// Returns the report of the session's title.
pub(crate) fn title(title: &str) -> Value {
    json!({ "sessionUpdate": "session_info_update", "title": title })
}

/// The kind of an option of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
}

impl OptionKind {
    const ALL: [Self; 3] = [Self::AllowOnce, Self::AllowAlways, Self::RejectOnce];

    /// Returns the word of the protocol, which is also the id of the option.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowAlways => "allow_always",
            Self::RejectOnce => "reject_once",
        }
    }

    /// Reads the answer to a question: the option that was selected. `None` if the client was not asked to the end, or has
    /// selected something that was not offered.
    pub(crate) fn of_answer(answer: &Value, offered: &[Self]) -> Option<Self> {
        let outcome = answer.get("outcome")?;
        let id = outcome.get("optionId").filter(|_| outcome["outcome"] == "selected")?.as_str()?;
        Self::ALL.into_iter().find(|kind| kind.word() == id && offered.contains(kind))
    }
}

/// Returns the parameters of a question about a call.
pub(crate) fn question(
    session: &str,
    call: &CallReport,
    options: &[(OptionKind, String)],
) -> Value {
    let option = |(kind, name): &(OptionKind, String)| json!({ "optionId": kind.word(), "kind": kind.word(), "name": name });
    let options: Vec<Value> = options.iter().map(option).collect();
    json!({ "sessionId": session, "toolCall": call.value(), "options": options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_only_the_fields_that_have_changed() {
        let diff = CallContent::Diff { path: "/w/a".into(), old: None, new: "x".into() };
        let call = CallReport {
            id: "t".into(),
            status: Some(CallStatus::InProgress),
            content: Some(vec![CallContent::Text("out".into()), diff]),
            ..CallReport::default()
        };
        let wanted = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress",
            "content": [{ "type": "content", "content": { "type": "text", "text": "out" } },
                { "type": "diff", "path": "/w/a", "oldText": null, "newText": "x" }] });
        assert_eq!(call.update(false), wanted);
        assert_eq!(call.update(true)["sessionUpdate"], "tool_call");
    }

    #[test]
    fn only_an_option_that_was_offered_is_an_answer() {
        use OptionKind::{AllowAlways, AllowOnce, RejectOnce};
        let offered = [AllowOnce, RejectOnce];
        let selected = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
        assert_eq!(OptionKind::of_answer(&selected("allow_once"), &offered), Some(AllowOnce));
        assert_eq!(OptionKind::of_answer(&selected("reject_once"), &offered), Some(RejectOnce));
        assert_eq!(OptionKind::of_answer(&selected(AllowAlways.word()), &offered), None);
        for none in [
            selected("yes"),
            json!({ "outcome": { "outcome": "cancelled" } }),
            json!({ "outcome": { "outcome": "cancelled", "optionId": "allow_once" } }),
            json!({ "outcome": { "optionId": "allow_once" } }),
            json!({}),
            json!(null),
        ] {
            assert_eq!(OptionKind::of_answer(&none, &offered), None, "{none}");
        }
    }
}
