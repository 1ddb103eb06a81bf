//! The files of a relay below `run/.state/relay/`: who the host is, what waits for other hosts, what has arrived from them.
//!
//! *Invariant:* only the holder of the relay's lock writes them, but for `ssh.json`, `given_up.json`, `invited.json` and `trusted.json`, which have
//! locks of their own, and `printed`, which the lead that starts a relay empties.

mod arrivals;
mod bundles;
pub(crate) mod copies;
mod given_up;
mod host_supervisor;
mod invited;
mod lists;
mod orders;
mod outbox;
pub(in crate::store) mod positions;
mod search;
mod sent_keys;
mod server;
mod ssh;
mod terms;
#[cfg(test)]
mod tests;
mod trust;

pub use arrivals::{Arrivals, Link, LinkState, Range};
pub use bundles::{bundle_bytes, finish_part, part_bytes, read_bundle, remove_bundle, write_part};
pub use copies::{
    CopiedHost, HostCopy, MissingPart, WishState, copied_task, copy_part, copyable_files,
    live_wishes, make_copy_folders, put_wish_state, read_part as read_copy_part,
};
pub use given_up::{GivenUpHost, change_given_up_hosts, given_up_hosts};
pub use host_supervisor::{
    HostSupervisorLock, is_supervised, open_host_supervisor_log, open_host_supervisor_printed,
};
pub use invited::{InvitedHost, change_invited_hosts, invited_hosts};
pub use orders::{
    ORDER_HELD_FOR, make_order_folders, open_orders, order_id, put_answer, put_order, read_answer,
    read_order, remove_old_orders, remove_order,
};
pub use outbox::{Outbox, RefusedMessage};
pub(crate) use outbox::{acknowledged_in, lasting_claims, sync_names};
pub use search::highest_arrived;
pub use sent_keys::{sent_keys, set_sent_keys};
pub use server::{ServerFiles, new_secret};
pub use ssh::{SshHost, SshLink, change_ssh_hosts, ssh_hosts, ssh_links, write_ssh_links};
pub use terms::OwnTerms;
pub use trust::{
    HostKeys, Membership, SignInRefusal, SignedInHost, TrustedHosts, change_trusted_hosts,
    host_keys, trusted_hosts, write_host_keys,
};

use super::file::atomic::{Fsync, pretty_json, replace};
use super::file::lock::{is_named, try_exclusive, try_shared};
use super::file::read::{changed_at, known_if_there, names_in, open_if_there, read_json};
use super::teamdir::make_folder;
use super::{StoreError, TeamDir};
use crate::os::event_loop::check_blocking;
use crate::os::file::{Access, At, FileError, open_or_create};
use crate::wire::carried::{Epoch, HostName, RELAY_PROTOCOL, ValueVersion};
use crate::wire::limits::LOG_BYTES;
use crate::wire::{AgentName, WallTime};
use ring::rand::{SecureRandom, SystemRandom};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time for which a command holds the lock of a relay, where no host is asked meanwhile.
const COMMAND_LIMIT: Duration = Duration::from_secs(2);

/// The time after which a relay that starts looks again whether its lock is free.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// The most bytes of the file with the identity of the host.
const MOST_BYTES: u64 = 64 * 1024;

/// The most bytes of a file with the names of many members.
const MOST_NAME_BYTES: u64 = 16 * 1024 * 1024;

/// The identity of this host among the hosts of its team: `run/.state/relay/host.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    /// The name of this host.
    pub host: HostName,
    /// The id of the team, which all of its hosts have in common.
    pub team: String,
    /// The epoch of this relay's numbers.
    pub epoch: Epoch,
    /// The number of starts of the relay.
    #[serde(default)]
    pub starts: u64,
    /// The labels by which the host can be chosen for an agent, such as `gpu`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The servers that carry the mail.
    #[serde(flatten)]
    pub servers: Servers,
}

/// The servers that carry the mail of a host. A host that another one has added over ssh has none here: it is told them at
/// each start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Servers {
    /// The addresses of servers that others run.
    #[serde(rename = "servers")]
    pub addresses: Vec<String>,
    /// Whether the relay of this host runs the server.
    #[serde(default, rename = "own_server", skip_serializing_if = "std::ops::Not::not")]
    pub is_own: bool,
    /// The address and port at which the own server listens for other hosts; `None` for loopback and any port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The fingerprint of the certificate of the servers, if they have one that they have made themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// The file with what this host logs in with at servers that others run. The login itself is kept nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<PathBuf>,
    /// The file with the certificates of those who have signed the servers' ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

impl Servers {
    /// Whether a relay of this host can be started without further settings.
    pub fn are_known(&self) -> bool {
        self.is_own || !self.addresses.is_empty()
    }
}

/// Another host, as the relay of this one knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownHost {
    /// Its name.
    pub host: HostName,
    /// The version of its program.
    pub version: String,
    /// The version of the protocol between relays that it speaks. Hosts with different ones refuse each other's mail and orders.
    #[serde(default = "own_protocol")]
    pub protocol: u32,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The time since which it is not heard; `None` while it is.
    pub away_since: Option<WallTime>,
    /// Whether it was heard since the start of the relay.
    #[serde(default)]
    pub is_heard: bool,
    /// The number of messages for its members in the outboxes, at the last sign of life.
    #[serde(default)]
    pub waiting: u64,
    /// The members for which messages wait among them, each with their number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waiting_for: BTreeMap<String, u64>,
    /// Whether it was given up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_given_up: bool,
    /// The version of what it has told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<ValueVersion>,
}

impl KnownHost {
    /// Says that the host speaks another version of the protocol between relays than this one, if it does.
    pub fn other_protocol(&self) -> Option<String> {
        let Self { host, version, protocol, .. } = self;
        let own = env!("CARGO_PKG_VERSION");
        (*protocol != RELAY_PROTOCOL).then(|| {
            format!(
                "{host} speaks another version of the protocol between hosts (team-host {version} there, {own} here): install \
                 one version on both"
            )
        })
    }
}

fn own_protocol() -> u32 {
    RELAY_PROTOCOL
}

/// The lock of a relay. While it is held, no other relay serves the team folder.
#[derive(Debug)]
pub struct RelayLock {
    _file: File,
}

impl RelayLock {
    /// Acquires the lock; `None` if another relay holds it.
    ///
    /// # Errors
    /// The file cannot be opened or locked.
    pub fn take(dir: &TeamDir) -> Result<Option<Self>, StoreError> {
        make_folders(dir)?;
        Ok(take_lock(&dir.relay_lock())?.map(|file| Self { _file: file }))
    }

    /// Acquires the lock for a relay that starts: commands hold it for a moment, and are waited for. `None` if it is held for
    /// two seconds, by another relay.
    ///
    /// # Errors
    /// The file cannot be opened or locked.
    pub fn take_to_serve(dir: &TeamDir) -> Result<Option<Self>, StoreError> {
        Self::take_within(dir, COMMAND_LIMIT)
    }

    fn take_within(dir: &TeamDir, limit: Duration) -> Result<Option<Self>, StoreError> {
        check_blocking("lock");
        let start = Instant::now();
        loop {
            let taken = Self::take(dir)?;
            if taken.is_some() || start.elapsed() >= limit {
                return Ok(taken);
            }
            thread::park_timeout(LOOK_AGAIN_AFTER);
        }
    }
}

/// Takes a lock for the life of a process; `None` if another one holds it.
fn take_lock(path: &Path) -> Result<Option<File>, StoreError> {
    let file = open_or_create(path, Access::Update)?;
    let is_ours = try_exclusive(&file).at(path)? && is_named(&file);
    Ok(is_ours.then_some(file))
}

/// Whether a process holds the lock.
fn is_held(path: &Path) -> Result<bool, StoreError> {
    let Some((file, _)) = open_if_there(path)? else { return Ok(false) };
    Ok(!try_shared(&file).at(path)?)
}

fn make_folders(dir: &TeamDir) -> Result<(), FileError> {
    make_folder(&dir.relay())?;
    make_folder(&dir.relay_outboxes())
}

/// Returns the identity of this host; `None` if the team has no other hosts.
///
/// # Errors
/// The file exists and cannot be read.
pub fn identity(dir: &TeamDir) -> Result<Option<HostIdentity>, StoreError> {
    Ok(read_json(&dir.relay_host(), MOST_BYTES)?)
}

/// Makes this host one of a team, under a name, and counts the start of its relay. The caller holds the relay's lock. A host
/// keeps its epoch, and without new labels its labels.
///
/// # Errors
/// The file cannot be read or written, or the system has no randomness.
pub fn name_host(
    dir: &TeamDir,
    host: HostName,
    team: &str,
    servers: Servers,
    labels: Option<Vec<String>>,
) -> Result<HostIdentity, StoreError> {
    let path = dir.relay_host();
    let known = identity(dir)?;
    let epoch = match &known {
        Some(known) => known.epoch.clone(),
        None => new_epoch().at(&path)?,
    };
    let (starts, known_labels) = known.map_or((0, Vec::new()), |it| (it.starts, it.labels));
    let labels = labels.unwrap_or(known_labels);
    let identity =
        HostIdentity { host, team: team.into(), epoch, starts: starts + 1, labels, servers };
    replace(&path, &pretty_json(&identity, &path)?, Fsync::Always)?;
    Ok(identity)
}

/// Records the other hosts of the team, for people and for the next relay. It is durable: on XFS, a file that was replaced
/// without a sync is empty after a power cut. The caller holds the relay's lock.
///
/// # Errors
/// The file cannot be written.
pub fn write_hosts(dir: &TeamDir, hosts: &[KnownHost]) -> Result<(), StoreError> {
    let path = dir.relay_hosts();
    Ok(replace(&path, &pretty_json(&hosts, &path)?, Fsync::Always)?)
}

/// Returns the other hosts of the team, as the relay has recorded them last.
///
/// # Errors
/// The file exists and cannot be read.
pub fn known_hosts(dir: &TeamDir) -> Result<Vec<KnownHost>, StoreError> {
    Ok(read_json(&dir.relay_hosts(), MOST_NAME_BYTES)?.unwrap_or_default())
}

/// Records the names that this host has or had, each with the term of its last placement here. The caller holds the relay's
/// lock.
///
/// # Errors
/// The file cannot be written.
pub fn write_own_names(dir: &TeamDir, terms: &BTreeMap<AgentName, u64>) -> Result<(), StoreError> {
    let path = dir.relay_names();
    let terms: BTreeMap<_, _> = terms.iter().map(|(name, term)| (name.as_str(), term)).collect();
    Ok(replace(&path, &pretty_json(&terms, &path)?, Fsync::Always)?)
}

/// Returns the names that this host has or had, each with the term of its last placement here.
///
/// # Errors
/// The file exists and cannot be read.
pub fn own_names(dir: &TeamDir) -> Result<BTreeMap<AgentName, u64>, StoreError> {
    let terms: Option<BTreeMap<String, u64>> = read_json(&dir.relay_names(), MOST_NAME_BYTES)?;
    let name = |(name, term): (String, u64)| Some((AgentName::mailbox(&name).ok()?, term));
    Ok(terms.unwrap_or_default().into_iter().filter_map(name).collect())
}

/// Records the places of all names, of which this host is the authority. The caller holds the relay's lock.
///
/// # Errors
/// The file cannot be written.
pub fn write_placements(dir: &TeamDir, placements: &impl Serialize) -> Result<(), StoreError> {
    let path = dir.relay_placements();
    Ok(replace(&path, &pretty_json(placements, &path)?, Fsync::Always)?)
}

/// Returns the recorded places of all names; `None` if there are none.
///
/// # Errors
/// The file exists and cannot be read.
pub fn placements<T: DeserializeOwned>(dir: &TeamDir) -> Result<Option<T>, StoreError> {
    Ok(read_json(&dir.relay_placements(), MOST_NAME_BYTES)?)
}

/// Returns the time at which the roster, the list of hosts or an outbox changed last, in whole seconds.
///
/// # Errors
/// A file cannot be looked at.
pub(crate) fn last_change(dir: &TeamDir) -> Result<WallTime, StoreError> {
    let outboxes = outboxes(dir)?;
    let outboxes = outboxes.iter().map(|name| dir.relay_outbox(name));
    let mut last = WallTime::default();
    for path in outboxes.chain([dir.config(), dir.relay_hosts()]) {
        if let Some(known) = known_if_there(&path)? {
            let changed = changed_at(&known);
            if changed > last {
                last = changed;
            }
        }
    }
    Ok(last)
}

/// Whether a relay serves the team folder now.
///
/// # Errors
/// The lock exists and cannot be opened.
pub fn is_served(dir: &TeamDir) -> Result<bool, StoreError> {
    is_held(&dir.relay_lock())
}

/// Opens the log of the relay for appending. One that is too large becomes `log.old.jsonl`.
///
/// # Errors
/// The file cannot be opened.
pub fn open_log(dir: &TeamDir) -> Result<File, StoreError> {
    make_folders(dir)?;
    open_rotated(&dir.relay_log(), &dir.old_relay_log())
}

/// Opens a log for appending. One that is too large is renamed first.
fn open_rotated(path: &Path, old: &Path) -> Result<File, StoreError> {
    if known_if_there(path)?.is_some_and(|known| known.len() >= LOG_BYTES) {
        std::fs::rename(path, old).at(path)?;
    }
    Ok(open_or_create(path, Access::Append)?)
}

/// Creates the file for what a relay prints that a lead starts. What an earlier one has printed is gone.
///
/// # Errors
/// The file cannot be created.
pub(crate) fn open_printed(dir: &TeamDir) -> Result<File, StoreError> {
    open_emptied(&dir.relay_printed())
}

/// Opens a file for appending, without what it had.
fn open_emptied(path: &Path) -> Result<File, StoreError> {
    let file = open_or_create(path, Access::Append)?;
    file.set_len(0).at(path)?;
    Ok(file)
}

fn new_epoch() -> io::Result<Epoch> {
    let mut bytes = [0; 8];
    let none = |_| io::Error::other("the system gives no random bytes");
    SystemRandom::new().fill(&mut bytes).map_err(none)?;
    Ok(Epoch::of(u64::from_ne_bytes(bytes)))
}

/// Returns the names that have an outbox.
///
/// # Errors
/// The folder cannot be read.
pub fn outboxes(dir: &TeamDir) -> Result<Vec<AgentName>, StoreError> {
    let files = names_in(&dir.relay_outboxes())?;
    let name = |file: &String| AgentName::mailbox(file.strip_suffix(outbox::ENDING)?).ok();
    Ok(files.iter().filter_map(name).collect())
}
