//! Why nothing was done to a task.

use crate::bus::BusError;
use crate::protocol::tasks::TaskRefusal;
use crate::store::StoreError;
use crate::wire::AgentName;

/// Why a task could not be looked at or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// The rules say no.
    #[error(transparent)]
    Refused(#[from] TaskRefusal),
    /// A claim is a lease on the life of its owner, which has none.
    #[error("{0} is not running, and a claim lasts only as long as its owner lives")]
    NotRunning(AgentName),
    /// The owner could not be told.
    #[error(
        "{owner} cannot own a task now: nobody of that name can be written to; who can: {}",
        names(reachable)
    )]
    NoSuchOwner {
        /// Who was to own it.
        owner: AgentName,
        /// Who could.
        reachable: Vec<AgentName>,
    },
    /// Nothing on the list suits.
    #[error("there is no task to take")]
    NothingToDo,
    /// Somebody could not be told.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The list could not be read or stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TaskError {
    /// Somebody held a lock for too long.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        match self {
            Self::Bus(why) => why.is_lock_timeout(),
            Self::Store(why) => why.is_lock_timeout(),
            Self::Refused(_)
            | Self::NotRunning(_)
            | Self::NoSuchOwner { .. }
            | Self::NothingToDo => false,
        }
    }

    /// The team folder is gone.
    pub(crate) fn is_without_team(&self) -> bool {
        match self {
            Self::Bus(why) => why.is_without_team(),
            Self::Store(why) => why.is_without_team(),
            Self::Refused(_)
            | Self::NotRunning(_)
            | Self::NoSuchOwner { .. }
            | Self::NothingToDo => false,
        }
    }

    /// What to do now.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Refused(why) => why.hint(),
            Self::NotRunning(_) => "start it first, or claim the task as somebody who lives".into(),
            Self::NoSuchOwner { .. } => {
                "leave the owner out: whoever is free takes the task; or start that member first"
                    .into()
            }
            Self::NothingToDo => "look again later".into(),
            Self::Bus(why) => why.hint(),
            Self::Store(why) => why.hint().into(),
        }
    }
}

fn names(names: &[AgentName]) -> String {
    names.iter().map(AgentName::as_str).collect::<Vec<_>>().join(", ")
}
