//! Parses the names of agents that a person types, and makes failures that several commands share.

use crate::error::{Exit, Failure};
use crate::store::StoreError;
use crate::wire::{AgentName, roster::Roster};

impl From<StoreError> for Failure {
    fn from(why: StoreError) -> Self {
        let exit = if why.is_lock_timeout() { Exit::InUse } else { Exit::Failure };
        Self::new(exit, "the team folder is not usable", why.to_string(), why.hint())
    }
}

/// Makes the failure for a name that has nothing to show or to write to.
pub(crate) fn unknown_name(what: String, why: &str) -> Failure {
    Failure::new(Exit::Failure, what, why, "`team ls` shows who is there")
}

pub(crate) fn mailbox_name(given: &str) -> Result<AgentName, Failure> {
    AgentName::mailbox(given)
        .map_err(|why| Failure::new(Exit::Failure, why.what(), why.why(), why.hint()))
}

pub(crate) fn member_name(given: &str) -> Result<AgentName, Failure> {
    AgentName::member(given)
        .map_err(|why| Failure::new(Exit::Usage, why.what(), why.why(), why.hint()))
}

pub(crate) fn member_names(roster: &Roster) -> Vec<AgentName> {
    roster.members.iter().filter_map(|member| AgentName::member(&member.name).ok()).collect()
}
