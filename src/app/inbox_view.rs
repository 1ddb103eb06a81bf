//! The messages of an inbox: those that were drained since the person last looked, then the unread ones.

use crate::error::Failure;
use crate::store::{TeamDir, read_cursor, unread};
use crate::ui::messages::{self, Standing};
use crate::ui::view::View;
use crate::wire::AgentName;
use crate::wire::message::Message;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A message as it stands in its file.
pub(crate) type RawMessage = Map<String, Value>;

/// Reads the messages, and remembers that the person has looked.
pub(crate) fn read(
    team: &TeamDir,
    name: &AgentName,
) -> Result<Vec<(RawMessage, Standing)>, Failure> {
    // In this order, mail that is drained between the two reads is found twice rather than not at all.
    let unread = read_unread(team, name)?;
    let taken = read_cursor::since_last_look(team, name)?;
    let known: BTreeSet<String> = taken.iter().map(identity).collect();
    let unread = unread.into_iter().filter(|raw| !known.contains(&identity(raw)));
    let taken = taken.into_iter().map(|raw| (raw, Standing::TakenIn));
    Ok(taken.chain(unread.map(|raw| (raw, Standing::Unread))).collect())
}

/// Reads the unread messages. Lines that are no messages become dead letters later.
pub(super) fn read_unread(team: &TeamDir, name: &AgentName) -> Result<Vec<RawMessage>, Failure> {
    let waiting = unread::waiting(team, name)?;
    Ok(waiting.into_iter().filter_map(|waiting| waiting.object).collect())
}

/// Renders the messages as text.
pub(crate) fn render(name: &AgentName, items: Vec<(RawMessage, Standing)>, view: &View) -> String {
    let items: Vec<(Message, Standing)> = items
        .into_iter()
        .filter_map(|(raw, standing)| Some((Message::read(&raw).ok()?, standing)))
        .collect();
    messages::inbox(name.as_str(), &items, view)
}

/// Renders the messages as JSON.
pub(crate) fn json(name: &AgentName, items: Vec<(RawMessage, Standing)>) -> Value {
    let marked = items.into_iter().map(|(mut raw, standing)| {
        let state = match standing {
            Standing::Unread => "unread",
            Standing::TakenIn => "taken_in",
        };
        raw.insert("state".into(), state.into());
        Value::Object(raw)
    });
    json!({ "schema": 1, "owner": name.as_str(), "messages": marked.collect::<Vec<_>>() })
}

/// Identifies a message before and after it was drained. A line without an id gets one when it is drained,
/// so its text identifies it.
pub(super) fn identity(raw: &RawMessage) -> String {
    match raw.get("id").and_then(Value::as_str).filter(|id| !id.starts_with("raw-")) {
        Some(id) => id.to_owned(),
        None => {
            let mut raw = raw.clone();
            raw.shift_remove("id");
            Value::Object(raw).to_string()
        }
    }
}
