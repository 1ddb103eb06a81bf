//! The keys that other hosts get with the orders of this one: `run/.state/relay/sent_keys.json` has the names of their variables,
//! and never a key.

use super::lists;
use crate::store::{StoreError, TeamDir};
use crate::wire::carried::HostName;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the names of the variables whose keys each host gets.
///
/// # Errors
/// The file exists and cannot be read.
pub fn sent_keys(dir: &TeamDir) -> Result<BTreeMap<HostName, BTreeSet<String>>, StoreError> {
    lists::read(&dir.relay_sent_keys())
}

/// Sets the names of the variables whose keys a host gets.
///
/// # Errors
/// The file cannot be read or written.
pub fn set_sent_keys(
    dir: &TeamDir,
    host: &HostName,
    names: BTreeSet<String>,
) -> Result<(), StoreError> {
    let change = |sent: &mut BTreeMap<HostName, BTreeSet<String>>| {
        if names.is_empty() {
            sent.remove(host);
        } else {
            sent.insert(host.clone(), names);
        }
    };
    lists::change(dir, &dir.relay_sent_keys(), dir.relay_sent_keys_lock(), change)
}
