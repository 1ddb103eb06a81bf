//! The messages of an inbox: those that were drained since the person's last look, then the unread ones.
//! [`InboxFollow`] returns every message once as it arrives, even if its owner drains it first.

use crate::error::Failure;
use crate::store::read_cursor::{self, NewlyRead};
use crate::store::{TeamDir, unread};
use crate::ui::messages::{self, Standing};
use crate::ui::view::View;
use crate::wire::{AgentName, message::Message};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type RawMessage = Map<String, Value>;

/// Reads the messages, and records the person's look.
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

/// Reads the unread messages. Leaves out lines that are no messages; their drain makes them dead letters.
fn read_unread(team: &TeamDir, name: &AgentName) -> Result<Vec<RawMessage>, Failure> {
    let waiting = unread::waiting(team, name)?;
    Ok(waiting.into_iter().filter_map(|waiting| waiting.object).collect())
}

pub(crate) fn render(name: &AgentName, items: Vec<(RawMessage, Standing)>, view: &View) -> String {
    let readable = |(raw, standing)| Some((Message::read(&raw).ok()?, standing));
    let items: Vec<(Message, Standing)> = items.into_iter().filter_map(readable).collect();
    messages::inbox(name.as_str(), &items, view)
}

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

/// Identifies a message before and after its drain. A line without an id gets one only when it is drained, so its
/// text identifies it.
fn identity(raw: &RawMessage) -> String {
    match raw.get("id").and_then(Value::as_str).filter(|id| !id.starts_with("raw-")) {
        Some(id) => id.to_owned(),
        None => {
            let mut raw = raw.clone();
            raw.shift_remove("id");
            Value::Object(raw).to_string()
        }
    }
}

pub(crate) struct InboxFollow {
    team: TeamDir,
    name: AgentName,
    drained: NewlyRead,
    /// The number of times that each identity was returned as unread and not yet found as drained.
    returned: BTreeMap<String, u32>,
    /// Identities that were found as drained, while their claim may still exist.
    just_drained: BTreeSet<String>,
}

impl InboxFollow {
    /// Starts with the messages that are unread now.
    pub(crate) fn new(team: &TeamDir, name: &AgentName) -> Result<Self, Failure> {
        let drained = read_cursor::mail_from_now_on(team, name)?;
        let (returned, just_drained) = (BTreeMap::new(), BTreeSet::new());
        Ok(Self { team: team.clone(), name: name.clone(), drained, returned, just_drained })
    }

    pub(crate) fn new_messages(&mut self) -> Result<Vec<RawMessage>, Failure> {
        let mut new = Vec::new();
        for raw in self.drained.read_new()? {
            let identity = identity(&raw);
            match self.returned.get_mut(&identity) {
                Some(count) if *count > 0 => *count -= 1,
                Some(_) | None => new.push(raw),
            }
            self.just_drained.insert(identity);
        }
        let unread = read_unread(&self.team, &self.name)?;
        let identities: BTreeSet<String> = unread.iter().map(identity).collect();
        let mut waiting: BTreeMap<String, u32> = BTreeMap::new();
        for raw in unread {
            let identity = identity(&raw);
            if self.just_drained.contains(&identity) {
                continue;
            }
            let count = waiting.entry(identity.clone()).or_default();
            *count += 1;
            let returned = self.returned.entry(identity).or_default();
            if *returned < *count {
                *returned += 1;
                new.push(raw);
            }
        }
        self.just_drained.retain(|identity| identities.contains(identity));
        self.returned.retain(|_, count| *count > 0);
        Ok(new)
    }
}
