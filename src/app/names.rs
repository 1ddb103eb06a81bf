//! Parses the names of agents that a person types, and makes failures that several commands share.

use crate::error::{Exit, Failure};
use crate::store::{StoreError, TeamDir};
use crate::wire::nearest::nearest;
use crate::wire::{AgentName, roster::Roster};

impl From<StoreError> for Failure {
    fn from(why: StoreError) -> Self {
        let exit = if why.is_lock_timeout() { Exit::InUse } else { Exit::Failure };
        Self::new(exit, "the team folder cannot be used", why.to_string(), why.hint())
    }
}

/// Makes the failure for a name that has nothing to show or to write to. Names the agent that was probably meant.
pub(crate) fn unknown_name(team: &TeamDir, name: &AgentName, what: String, why: &str) -> Failure {
    let agents = team.agents().unwrap_or_default();
    let hint = format!("{}`team ls` lists the members", did_you_mean(name, &agents));
    Failure::new(Exit::Failure, what, why, hint)
}

/// Returns the question for a mistyped name, or nothing.
pub(crate) fn did_you_mean(name: &AgentName, known: &[AgentName]) -> String {
    let others = known.iter().filter(|known| *known != name).map(AgentName::as_str);
    nearest(name.as_str(), others).map(|near| format!("did you mean {near}? ")).unwrap_or_default()
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
