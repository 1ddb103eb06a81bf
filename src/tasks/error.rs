//! Errors of the task list.

use crate::bus::{BusError, names};
use crate::protocol::tasks::TaskRefusal;
use crate::store::StoreError;
use crate::wire::AgentName;

/// Why a task could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    #[error(transparent)]
    Refused(#[from] TaskRefusal),
    #[error("{0} is not running, and a claim lasts only as long as its owner lives")]
    NotRunning(AgentName),
    #[error("{owner} cannot own a task now: it is not reachable; reachable: {}", names(reachable))]
    NoSuchOwner { owner: AgentName, reachable: Vec<AgentName> },
    #[error("there is no task to take")]
    NothingToDo,
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TaskError {
    /// Whether another process held a lock for too long.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.store_error().is_some_and(StoreError::is_lock_timeout)
    }

    /// Whether the team folder is gone.
    pub(crate) fn is_without_team(&self) -> bool {
        self.store_error().is_some_and(StoreError::is_without_team)
    }

    fn store_error(&self) -> Option<&StoreError> {
        if let Self::Bus(why) = self {
            return why.store_error();
        }
        if let Self::Store(why) = self { Some(why) } else { None }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Refused(why) => why.hint(),
            Self::NotRunning(_) => "start it first, or claim the task as a running member".into(),
            Self::NoSuchOwner { .. } => {
                "leave the owner out, so that a free member takes the task; or start that member first"
                    .into()
            }
            Self::NothingToDo => "look again later".into(),
            Self::Bus(why) => why.hint(),
            Self::Store(why) => why.hint().into(),
        }
    }
}
