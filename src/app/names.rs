//! Names of agents from the command line and from the roster.

use crate::error::{Exit, Failure};
use crate::wire::AgentName;
use crate::wire::roster::Roster;

/// Reads a name from the command line that must have a mailbox.
pub(crate) fn mailbox_name(given: &str) -> Result<AgentName, Failure> {
    AgentName::mailbox(given)
        .map_err(|why| Failure::new(Exit::Failure, why.what(), why.why(), why.hint()))
}

/// Reads a name from the command line that must be a member's.
pub(crate) fn member_name(given: &str) -> Result<AgentName, Failure> {
    AgentName::member(given)
        .map_err(|why| Failure::new(Exit::Usage, why.what(), why.why(), why.hint()))
}

/// Lists the members of a roster in its order.
pub(crate) fn member_names(roster: &Roster) -> Vec<AgentName> {
    roster.members.iter().filter_map(|member| AgentName::member(&member.name).ok()).collect()
}
