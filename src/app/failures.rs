//! Failures that several commands share: of the team folder, of an unknown name, of a life lock.

use crate::error::{Exit, Failure};
use crate::store::liveness::LifeError;
use crate::store::{LifeRecord, StoreError};
use crate::ui;

impl From<StoreError> for Failure {
    fn from(why: StoreError) -> Self {
        let exit = if why.is_lock_timeout() { Exit::InUse } else { Exit::Failure };
        Self::new(exit, "the team folder is not usable", why.to_string(), why.hint())
    }
}

/// Fails because a name has nothing to show or to write to.
pub(crate) fn unknown_name(what: String, why: &str) -> Failure {
    Failure::new(Exit::Failure, what, why, "`team ls` shows who is there")
}

/// Fails because a life lock cannot be taken.
pub(super) fn life_failure(why: &LifeError) -> Failure {
    match why {
        LifeError::InUse { name, record } if name.is_lead() => Failure::new(
            Exit::InUse,
            "a lead is already running in this folder",
            holder(why, record.as_deref()),
            "talk to that one, take its place with `team lead --takeover`, or work in another folder",
        ),
        LifeError::InUse { name, record } => Failure::new(
            Exit::InUse,
            format!("{name} is already running"),
            holder(why, record.as_deref()),
            format!("choose another name, or stop it with `team stop {name}`"),
        ),
        LifeError::File(_) => Failure::new(
            Exit::Failure,
            "the life lock cannot be taken",
            why.to_string(),
            "check the team folder's permissions and free space",
        ),
    }
}

fn holder(why: &LifeError, record: Option<&LifeRecord>) -> String {
    match record {
        None => why.to_string(),
        Some(record) => {
            format!("pid {}, since {}", record.pid, ui::view::date(record.started_at))
        }
    }
}
