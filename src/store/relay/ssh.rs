//! The hosts that this one has added over ssh, and the state of the connections to them.

use super::lists;
use crate::store::file::atomic::{Fsync, pretty_json, replace};
use crate::store::{StoreError, TeamDir};
use crate::wire::WallTime;
use crate::wire::carried::HostName;
use serde::{Deserialize, Serialize};

/// A host that this one has added over ssh: an entry of `run/.state/relay/ssh.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshHost {
    /// Its name in the team.
    pub host: HostName,
    /// Its name for `ssh`.
    pub destination: String,
    /// The folder on it in which the team works; its team folder is the `.team` in it.
    pub folder: String,
    /// The path of `team-host` on it.
    pub program: String,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// The connection to a host that was added over ssh, as the relay has recorded it last, for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SshLink {
    /// The name of the host.
    pub host: HostName,
    /// Whether its relay serves.
    pub is_up: bool,
    /// The reason for which it does not, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The time since which it is so.
    pub since: WallTime,
}

/// Returns the hosts that this one has added over ssh.
///
/// # Errors
/// The file exists and cannot be read.
pub fn ssh_hosts(dir: &TeamDir) -> Result<Vec<SshHost>, StoreError> {
    lists::read(&dir.relay_ssh())
}

/// Changes the hosts that this one adds over ssh, under a lock; returns what the change returns.
///
/// # Errors
/// The file cannot be read or written.
pub fn change_ssh_hosts<R>(
    dir: &TeamDir,
    change: impl FnOnce(&mut Vec<SshHost>) -> R,
) -> Result<R, StoreError> {
    lists::change(dir, &dir.relay_ssh(), dir.relay_ssh_lock(), change)
}

/// Records the connections to these hosts, for people, durably: on XFS, the file would be empty after a power cut. The caller holds the relay's lock.
///
/// # Errors
/// The file cannot be written.
pub fn write_ssh_links(dir: &TeamDir, links: &[SshLink]) -> Result<(), StoreError> {
    let path = dir.relay_ssh_links();
    Ok(replace(&path, &pretty_json(&links, &path)?, Fsync::Always)?)
}

/// Returns the connections to these hosts, as the relay has recorded them last.
///
/// # Errors
/// The file exists and cannot be read.
pub fn ssh_links(dir: &TeamDir) -> Result<Vec<SshLink>, StoreError> {
    lists::read(&dir.relay_ssh_links())
}
