//! Following an inbox: every message once, also if its owner drains it before it is seen here.

use super::inbox_view::{RawMessage, identity, read_unread};
use crate::error::Failure;
use crate::store::TeamDir;
use crate::store::read_cursor::{self, NewlyRead};
use crate::wire::AgentName;
use std::collections::{BTreeMap, BTreeSet};

/// An inbox that is followed.
pub(crate) struct InboxFollow {
    team: TeamDir,
    name: AgentName,
    drained: NewlyRead,
    /// How often each identity was returned as unread and not yet seen as drained.
    returned: BTreeMap<String, u32>,
    /// Seen as drained, while the claim may still be there.
    just_drained: BTreeSet<String>,
}

impl InboxFollow {
    /// Starts with the messages that are unread now.
    pub(crate) fn new(team: &TeamDir, name: &AgentName) -> Result<Self, Failure> {
        Ok(Self {
            team: team.clone(),
            name: name.clone(),
            drained: read_cursor::mail_from_now_on(team, name)?,
            returned: BTreeMap::new(),
            just_drained: BTreeSet::new(),
        })
    }

    /// Returns the messages that arrived since the last call.
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
