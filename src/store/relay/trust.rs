//! The keys of this host, and the certificates of hosts: `run/.state/relay/keys.json` and `trusted.json`.
//!
//! This module keeps the texts; the program `team-host` makes and checks them.

use super::lists;
use crate::store::file::atomic::{Fsync, pretty_json, replace};
use crate::store::file::read::read_json;
use crate::store::{StoreError, TeamDir};
use crate::wire::carried::HostName;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The secret keys of this host, and its membership in a team: `keys.json`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostKeys {
    /// The seed of the key that signs what the host tells others.
    pub signing: String,
    /// The seed of the key by which the host logs in at the server.
    pub connection: String,
    /// The membership; `None` before another host has signed this one in.
    #[serde(default, flatten)]
    pub membership: Option<Membership>,
}

impl fmt::Debug for HostKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HostKeys").field("membership", &self.membership).finish_non_exhaustive()
    }
}

/// The membership of a host in a team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The host that signs the others in.
    pub authority: HostName,
    /// Its public key.
    pub authority_key: String,
    /// The certificate of this host, by that key.
    pub certificate: String,
    /// Whether the server lets this host do only what it needs, so that stream and bucket are made by the authority.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_limited: bool,
    /// The least serial numbers of the hosts whose earlier certificates were withdrawn before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub least_serials: BTreeMap<HostName, u64>,
}

/// A host that this one has signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedInHost {
    /// Its name.
    pub host: HostName,
    /// The public key by which it signs.
    pub signing: String,
    /// The public key by which it logs in at the server.
    pub connection: String,
    /// The serial number of its certificate.
    pub serial: u64,
}

/// The certificates that count: `trusted.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedHosts {
    /// The hosts that this one has signed in, if it is the authority.
    #[serde(default)]
    pub signed_in: Vec<SignedInHost>,
    /// The least serial number of each host whose earlier certificates were withdrawn.
    #[serde(default)]
    pub least_serials: BTreeMap<HostName, u64>,
    /// The hosts that a person has removed. They are not signed in until a person adds or invites them again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub removed: BTreeSet<HostName>,
}

/// The reason for which a host is not signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignInRefusal {
    /// A person has removed it.
    #[error("it was removed from the team")]
    Removed,
    /// Another host has one of its keys.
    #[error("another host has one of its keys")]
    KeyInUse,
}

impl TrustedHosts {
    /// Returns the entry of a host with these public keys. New keys get the next serial number, which withdraws the
    /// certificate of the ones before.
    ///
    /// # Errors
    /// The host was removed, or another one has a key of it.
    pub fn sign_in(
        &mut self,
        host: &HostName,
        signing: &str,
        connection: &str,
    ) -> Result<SignedInHost, SignInRefusal> {
        if self.removed.contains(host) {
            return Err(SignInRefusal::Removed);
        }
        let mut others = self.signed_in.iter().filter(|known| known.host != *host);
        if others.any(|known| known.signing == signing || known.connection == connection) {
            return Err(SignInRefusal::KeyInUse);
        }
        let known = self.signed_in.iter().find(|known| known.host == *host);
        if let Some(known) =
            known.filter(|known| known.signing == signing && known.connection == connection)
        {
            return Ok(known.clone());
        }
        let after_known = known.map_or(1, |known| known.serial + 1);
        let serial = after_known.max(self.least_serials.get(host).copied().unwrap_or_default());
        self.withdraw_before(host, serial);
        let entry = SignedInHost {
            host: host.clone(),
            signing: signing.into(),
            connection: connection.into(),
            serial,
        };
        self.signed_in.push(entry.clone());
        Ok(entry)
    }

    /// Lets a host be signed in again that was removed.
    pub fn admit(&mut self, host: &HostName) {
        self.removed.remove(host);
    }

    /// Removes a host, and withdraws its certificate; returns whether it had one.
    pub fn remove(&mut self, host: &HostName) -> bool {
        self.removed.insert(host.clone());
        let known = self.signed_in.iter().find(|known| known.host == *host);
        let Some(serial) = known.map(|known| known.serial) else { return false };
        self.withdraw_before(host, serial + 1);
        true
    }

    fn withdraw_before(&mut self, host: &HostName, serial: u64) {
        self.signed_in.retain(|known| known.host != *host);
        if serial > 1 {
            self.least_serials.insert(host.clone(), serial);
        }
    }
}

/// Returns the keys of this host; `None` if it has none yet.
///
/// # Errors
/// The file exists and cannot be read.
pub fn host_keys(dir: &TeamDir) -> Result<Option<HostKeys>, StoreError> {
    Ok(read_json(&dir.relay_keys(), super::MOST_BYTES)?)
}

/// Writes the keys of this host. The caller holds the relay's lock.
///
/// # Errors
/// The file cannot be written.
pub fn write_host_keys(dir: &TeamDir, keys: &HostKeys) -> Result<(), StoreError> {
    let path = dir.relay_keys();
    Ok(replace(&path, &pretty_json(keys, &path)?, Fsync::Always)?)
}

/// Returns the certificates that count.
///
/// # Errors
/// The file exists and cannot be read.
pub fn trusted_hosts(dir: &TeamDir) -> Result<TrustedHosts, StoreError> {
    lists::read(&dir.relay_trusted())
}

/// Changes the certificates that count, under a lock; returns what the change returns.
///
/// # Errors
/// The file cannot be read or written.
pub fn change_trusted_hosts<R>(
    dir: &TeamDir,
    change: impl FnOnce(&mut TrustedHosts) -> R,
) -> Result<R, StoreError> {
    lists::change(dir, &dir.relay_trusted(), dir.relay_trusted_lock(), change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_serial_number_until_its_keys_change_or_are_withdrawn() {
        let mut trusted = TrustedHosts::default();
        let host = HostName::parse("gpu1").unwrap();
        let serial = |trusted: &mut TrustedHosts, key: &str| {
            trusted.sign_in(&host, key, "c").unwrap().serial
        };
        assert_eq!((serial(&mut trusted, "k"), serial(&mut trusted, "k")), (1, 1));
        assert_eq!(trusted.least_serials.len(), 0);
        assert_eq!((serial(&mut trusted, "l"), trusted.least_serials[&host]), (2, 2));
        assert!(trusted.remove(&host));
        assert!(!trusted.remove(&host), "it has none any more");
        assert_eq!((trusted.signed_in.len(), trusted.least_serials[&host]), (0, 3));
        // A connection that is made again brings it back in no race.
        assert_eq!(trusted.sign_in(&host, "l", "c"), Err(SignInRefusal::Removed));
        trusted.admit(&host);
        assert_eq!((serial(&mut trusted, "l"), trusted.least_serials[&host]), (3, 3));
        let other = HostName::parse("gpu2").unwrap();
        assert_eq!(trusted.sign_in(&other, "l", "d"), Err(SignInRefusal::KeyInUse));
        assert_eq!(trusted.sign_in(&other, "m", "c"), Err(SignInRefusal::KeyInUse));
    }
}
