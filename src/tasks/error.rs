//! The reasons for which a task cannot be read or changed, in words for people and models.

use crate::bus::host_orders::OrderFailure;
use crate::bus::{BusError, names};
use crate::protocol::tasks::TaskRefusal;
use crate::store::StoreError;
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use crate::wire::nearest::nearest;

/// The reason for which a task could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    #[error(transparent)]
    Refused(#[from] TaskRefusal),
    #[error("{0} is not running, and a claim lasts only while its owner is running")]
    NotRunning(AgentName),
    #[error("{owner} cannot own a task now: it is not reachable; reachable: {}", names(reachable))]
    NoSuchOwner { owner: AgentName, reachable: Vec<AgentName> },
    #[error("there is no task to take")]
    NothingToDo,
    /// The host that keeps the list was not reached, or has not answered.
    #[error("the task list is kept on {host}, {}", unreached(host, why))]
    Unreached { host: HostName, why: OrderFailure },
    /// The host that keeps the list has refused, in the words of a refusal here.
    #[error("{why}")]
    RefusedThere { why: String, hint: String },
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TaskError {
    pub(crate) fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Bus(why) => why.store_error(),
            Self::Store(why) | Self::Unreached { why: OrderFailure::Store(why), .. } => Some(why),
            Self::Refused(_)
            | Self::NotRunning(_)
            | Self::NoSuchOwner { .. }
            | Self::NothingToDo
            | Self::Unreached { .. }
            | Self::RefusedThere { .. } => None,
        }
    }

    /// Returns the reason without what changes from one attempt to the next: repeated attempts that fail for one reason are
    /// one line of a log.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Unreached { host, why: OrderFailure::Away { .. } } => {
                format!("the task list is kept on {host}, which is away")
            }
            Self::Refused(_)
            | Self::NotRunning(_)
            | Self::NoSuchOwner { .. }
            | Self::NothingToDo
            | Self::Unreached { .. }
            | Self::RefusedThere { .. }
            | Self::Bus(_)
            | Self::Store(_) => self.to_string(),
        }
    }

    /// Returns advice for the user about the error.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Refused(why) => why.hint(),
            Self::NotRunning(_) => "start it first, or claim the task as a running member".into(),
            Self::NoSuchOwner { owner, reachable } => {
                let near = nearest(owner.as_str(), reachable.iter().map(AgentName::as_str));
                let near = near.map(|name| format!("did you mean {name}? ")).unwrap_or_default();
                format!(
                    "{near}leave the owner out, so that a free member takes the task; or start that \
                     member first"
                )
            }
            Self::NothingToDo => "look again later".into(),
            Self::Unreached { host, why: OrderFailure::Unanswered { .. } } => format!(
                "look at the task list first: {host} may have made the change; if not, try again"
            ),
            Self::Unreached { host, .. } => format!(
                "nothing was changed; the list can be read here, and changed when {host} is heard"
            ),
            Self::RefusedThere { hint, .. } => hint.clone(),
            Self::Bus(why) => why.hint(),
            Self::Store(why) => why.hint().into(),
        }
    }
}

/// Returns the reason as the end of a sentence about the host that keeps the list.
fn unreached(host: &HostName, why: &OrderFailure) -> String {
    let words = why.to_string();
    match words.strip_prefix(&format!("{host} ")) {
        Some(rest) => format!("which {rest}"),
        None => format!("and {words}"),
    }
}
