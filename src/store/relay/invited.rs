//! The hosts that a person on this one has invited to join the team: `run/.state/relay/invited.json`.

use super::lists;
use crate::store::{StoreError, TeamDir};
use crate::wire::WallTime;
use crate::wire::carried::HostName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A host that may join with a code.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct InvitedHost {
    /// Its name.
    pub host: HostName,
    /// The secret in the code: 32 hexadecimal digits.
    pub secret: String,
    /// The time until which it may join.
    pub until: WallTime,
    /// The public key by which the host that has joined signs: no other one joins with the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<String>,
}

impl fmt::Debug for InvitedHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("InvitedHost").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Returns the invited hosts, also those whose time is over.
///
/// # Errors
/// The file exists and cannot be read.
pub fn invited_hosts(dir: &TeamDir) -> Result<Vec<InvitedHost>, StoreError> {
    lists::read(&dir.relay_invited())
}

/// Changes the invited hosts, under a lock; returns what the change returns.
///
/// # Errors
/// The file cannot be read or written.
pub fn change_invited_hosts<R>(
    dir: &TeamDir,
    change: impl FnOnce(&mut Vec<InvitedHost>) -> R,
) -> Result<R, StoreError> {
    lists::change(dir, &dir.relay_invited(), dir.relay_invited_lock(), change)
}
