//! A message that a person has opened: all of it, read from the files of its recipient.

use crate::store::conversations::index::Sought;
use crate::store::mail_search::{NextLine, SearchLocation, carried, each_line};
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::message::Message;
use crate::wire::transcript::{Entry, Line};
use serde_json::{Map, Value};
use std::cell::Cell;

/// A message that was opened.
#[derive(Debug)]
pub(crate) struct OpenedMessage {
    pub(crate) to: String,
    pub(crate) id: String,
    /// The message; `None` if no file has it, or not any longer.
    pub(crate) message: Option<Message>,
}

/// Finds the message with this id in the inbox, the claims or the conversations of `to`.
///
/// # Errors
/// A file cannot be read.
pub(super) fn find(team: &TeamDir, to: &str, id: &str) -> Result<Option<Message>, StoreError> {
    let Ok(owner) = AgentName::mailbox(to) else { return Ok(None) };
    let mut found = None;
    each_line(team, &owner, &[Sought::Part(id)], &Cell::default(), |spot, line| {
        if found.is_some() {
            return NextLine::Matching;
        }
        let object: Option<Map<String, Value>> = match spot.place {
            SearchLocation::Inbox | SearchLocation::Claim | SearchLocation::TakenClaim => {
                serde_json::from_slice(line).ok()
            }
            SearchLocation::Transcript => match Line::read(line).map(|line| line.entry) {
                Some(Entry::Mail { message, .. }) => Some(message),
                _ => None,
            },
            SearchLocation::Outbox | SearchLocation::Acknowledged => carried(line),
            SearchLocation::Dead | SearchLocation::Log => None,
        };
        let message = object.and_then(|object| Message::read(&object).ok());
        found = message.filter(|message| message.id.as_deref() == Some(id));
        NextLine::Matching
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::{record, team_folder};
    use serde_json::json;

    #[test]
    fn a_message_is_found_whole_in_the_inbox_and_in_the_conversation() {
        let (_folder, team) = team_folder();
        let user = AgentName::user();
        let long = "word ".repeat(1000);
        let message = |id: &str| json!({"from": "lead", "content": long, "id": id});
        record(&team.inbox(&user), &message("lead:1"));
        let taken =
            json!({"kind":"mail","at":9,"gen":"1-a","offset":0,"message":message("lead:2")});
        record(&team.transcript(&user), &taken);
        record(&team.inbox(&user), &message("a\"\u{1b}b"));
        for id in ["lead:1", "lead:2", "a\"\u{1b}b"] {
            let found = find(&team, "user", id).unwrap().unwrap();
            assert_eq!(found.content, long, "{id}");
        }
        assert!(find(&team, "user", "lead:").unwrap().is_none());
        assert!(find(&team, "../user", "lead:1").unwrap().is_none());
    }
}
