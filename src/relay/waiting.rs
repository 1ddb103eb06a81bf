//! The lines that wait for the hosts of their recipients, counted: with thousands of links, not all of them are asked each time.

use crate::wire::AgentName;
use crate::wire::carried::HostName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The numbers of lines that the hosts of their recipients have not acknowledged. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct WaitingLines(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// The host at which the lines of a recipient are counted.
    places: BTreeMap<AgentName, HostName>,
    hosts: BTreeMap<HostName, OfHost>,
}

#[derive(Debug, Default)]
struct OfHost {
    /// The recipients for whom lines wait, each with their number.
    counts: BTreeMap<AgentName, u64>,
    sum: u64,
    /// The recipients for whom there are lines that were not published yet.
    ready: BTreeSet<AgentName>,
}

impl WaitingLines {
    /// Returns the number of lines for each recipient on a host, for whom there are some.
    pub fn of(&self, host: &HostName) -> BTreeMap<String, u64> {
        let counts = self.lock();
        let Some(of_host) = counts.hosts.get(host) else { return BTreeMap::new() };
        of_host.counts.iter().map(|(name, count)| (name.to_string(), *count)).collect()
    }

    /// Returns the number of lines for each host for which there are some.
    pub fn sums(&self) -> BTreeMap<HostName, u64> {
        let counts = self.lock();
        counts.hosts.iter().map(|(host, of_host)| (host.clone(), of_host.sum)).collect()
    }

    /// Returns the number of lines for a host.
    pub fn sum(&self, host: &HostName) -> u64 {
        self.lock().hosts.get(host).map_or(0, |of_host| of_host.sum)
    }

    /// Returns the hosts for which there are lines that were not published yet.
    pub fn ready_hosts(&self) -> Vec<HostName> {
        let counts = self.lock();
        let ready = counts.hosts.iter().filter(|(_, of_host)| !of_host.ready.is_empty());
        ready.map(|(host, _)| host.clone()).collect()
    }

    /// Returns the hosts for which lines wait.
    pub(super) fn hosts(&self) -> Vec<HostName> {
        self.lock().hosts.keys().cloned().collect()
    }

    pub(super) fn waiting(&self, host: &HostName) -> Vec<AgentName> {
        let counts = self.lock();
        counts.hosts.get(host).map_or_else(Vec::new, |it| it.counts.keys().cloned().collect())
    }

    pub(super) fn ready(&self, host: &HostName) -> Vec<AgentName> {
        let counts = self.lock();
        counts.hosts.get(host).map_or_else(Vec::new, |it| it.ready.iter().cloned().collect())
    }

    /// Notes how many lines wait for a recipient on a host, and whether some of them were not published yet.
    pub(super) fn note(&self, name: &AgentName, host: &HostName, count: u64, is_ready: bool) {
        let mut counts = self.lock();
        let is_there = counts.places.get(name).is_some_and(|place| place == host);
        if !is_there {
            counts.forget(name);
        }
        if count == 0 {
            return counts.forget(name);
        }
        if !is_there {
            counts.places.insert(name.clone(), host.clone());
        }
        let of_host = counts.hosts.entry(host.clone()).or_default();
        let before = of_host.counts.insert(name.clone(), count).unwrap_or_default();
        of_host.sum = of_host.sum - before + count;
        if is_ready {
            of_host.ready.insert(name.clone());
        } else {
            of_host.ready.remove(name);
        }
    }

    /// Notes that a recipient is none any more.
    pub(super) fn forget(&self, name: &AgentName) {
        self.lock().forget(name);
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn forget(&mut self, name: &AgentName) {
        let Some(host) = self.places.remove(name) else { return };
        let Some(of_host) = self.hosts.get_mut(&host) else { return };
        of_host.sum -= of_host.counts.remove(name).unwrap_or_default();
        of_host.ready.remove(name);
        if of_host.counts.is_empty() {
            self.hosts.remove(&host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_at_the_host_of_their_recipient_until_none_waits() {
        let [b, c] = ["b", "c"].map(|text| HostName::parse(text).unwrap());
        let [carol, dave] = ["carol", "dave"].map(|text| AgentName::member(text).unwrap());
        let waiting = WaitingLines::default();
        waiting.note(&carol, &b, 2, true);
        waiting.note(&dave, &b, 3, false);
        assert_eq!((waiting.sum(&b), waiting.ready_hosts()), (5, vec![b.clone()]));
        waiting.note(&carol, &b, 1, false);
        assert_eq!((waiting.sum(&b), waiting.ready(&b)), (4, vec![]));
        waiting.note(&dave, &c, 3, true);
        assert_eq!(waiting.sums(), BTreeMap::from([(b.clone(), 1), (c.clone(), 3)]));
        assert_eq!(waiting.of(&c), BTreeMap::from([("dave".to_owned(), 3)]));
        waiting.forget(&dave);
        waiting.note(&carol, &b, 0, false);
        assert_eq!((waiting.hosts(), waiting.waiting(&b)), (vec![], vec![]));
    }
}
