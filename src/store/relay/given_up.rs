//! The hosts that a person on this one has given up: `run/.state/relay/given_up.json`.

use super::lists;
use crate::store::{StoreError, TeamDir};
use crate::wire::WallTime;
use crate::wire::carried::{HostName, ValueVersion};
use serde::{Deserialize, Serialize};

/// A host that is gone for good, as a person on this host has said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GivenUpHost {
    /// The host.
    pub host: HostName,
    /// The version of what it had told last; `None` if that was unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<ValueVersion>,
    /// The time at which it was given up.
    pub at: WallTime,
}

/// Returns the hosts that were given up on this one.
///
/// # Errors
/// The file exists and cannot be read.
pub fn given_up_hosts(dir: &TeamDir) -> Result<Vec<GivenUpHost>, StoreError> {
    lists::read(&dir.relay_given_up())
}

/// Changes the hosts that were given up on this one, under a lock; returns what the change returns.
///
/// # Errors
/// The file cannot be read or written.
pub fn change_given_up_hosts<R>(
    dir: &TeamDir,
    change: impl FnOnce(&mut Vec<GivenUpHost>) -> R,
) -> Result<R, StoreError> {
    lists::change(dir, &dir.relay_given_up(), dir.relay_given_up_lock(), change)
}
