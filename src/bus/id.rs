//! Ids of messages and requests: the sender's name and a UUID v7, which sorts by time.
//!
//! *Invariant:* only the first id reads randomness from the system: a read costs as much as writing a
//! message.

use crate::wire::AgentName;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::{Builder, NoContext, Timestamp, Uuid};

/// Makes a unique id for a message or a request.
pub fn new_id(from: &AgentName) -> String {
    format!("{from}:{}", unique())
}

/// Makes a UUID from a counter, hashed with keys that only this process has.
fn unique() -> Uuid {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let [one, two] = [0, 1].map(|half| u128::from(KEYS.hash_one((count, half))));
    let [random @ .., _, _, _, _, _, _] = (one << 64 | two).to_be_bytes();
    let (seconds, nanos) = Timestamp::now(NoContext).to_unix();
    let millis = seconds.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000));
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_uuids_of_the_current_time() {
        let ids: BTreeSet<Uuid> = (0..10_000).map(|_| unique()).collect();
        assert_eq!(ids.len(), 10_000);
        let now = Timestamp::now(NoContext).to_unix().0;
        for id in ids {
            assert_eq!(id.get_version_num(), 7);
            assert!(id.get_timestamp().unwrap().to_unix().0.abs_diff(now) < 60);
        }
        assert!(new_id(&AgentName::lead()).starts_with("lead:0"));
    }
}
