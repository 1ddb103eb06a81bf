//! The known placements of names, as the parts of a relay share them: one part hears of them, the others judge by them.

use crate::store::relay::OwnTerms;
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The place of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The host of the agent.
    pub host: HostName,
    /// The number of times that the name was placed on a host.
    pub term: u64,
    /// The host on which an agent of that name was ordered and did not start in time: one that starts there after all ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<HostName>,
    /// The hosts on which the name was placed before: they may bring mail that its agent has not read there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub earlier: BTreeSet<HostName>,
}

impl Placement {
    /// Makes the placement of a name on a host.
    pub fn new(host: HostName, term: u64) -> Self {
        Self { host, term, taken_from: None, earlier: BTreeSet::new() }
    }

    /// Makes the placement by which a host takes back a name whose agent has not started: that host is none that it had.
    #[must_use]
    pub fn taken_to(&self, host: HostName) -> Self {
        let from = self.host.clone();
        let mut next = self.moved_to(host);
        next.earlier.remove(&from);
        next.taken_from = Some(from);
        next
    }

    /// Makes the placement that follows this one, on a host.
    #[must_use]
    pub fn moved_to(&self, host: HostName) -> Self {
        let mut earlier = self.earlier.clone();
        earlier.insert(self.host.clone());
        earlier.remove(&host);
        Self { host, term: self.term.saturating_add(1), taken_from: None, earlier }
    }
}

/// The placements with the highest terms that this host has heard of. Clones share them. A carrier that forgets, or was put back
/// to an earlier state, lowers none.
#[derive(Debug, Clone, Default)]
pub struct KnownPlacements {
    own_terms: OwnTerms,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    places: BTreeMap<String, Placement>,
    given_up: BTreeSet<HostName>,
    /// The hosts that may have the lead; `None` for all.
    leads: Option<BTreeSet<HostName>>,
}

impl KnownPlacements {
    /// Returns the terms of the names of this host.
    pub fn own_terms(&self) -> &OwnTerms {
        &self.own_terms
    }

    /// Notes a placement, unless one with a higher term is known.
    pub fn note(&self, name: &AgentName, placement: &Placement) {
        let places = &mut self.lock().places;
        if places.get(name.as_str()).is_none_or(|known| known.term <= placement.term) {
            places.insert(name.to_string(), placement.clone());
        }
    }

    /// Returns the place of a name; `None` if nothing is known of it.
    pub fn place_of(&self, name: &str) -> Option<Placement> {
        self.lock().places.get(name).cloned()
    }

    /// Whether the name was placed on a host before.
    pub fn was_placed_on(&self, name: &str, host: &HostName) -> bool {
        self.lock().places.get(name).is_some_and(|place| place.earlier.contains(host))
    }

    /// Returns the newest term of the sender of a line, if the sender was placed on another host than `origin` after it had
    /// written the line there. A line without a term is of no placed agent.
    pub fn newer_term(&self, sender: &str, term: u64, origin: &HostName) -> Option<u64> {
        let place = self.place_of(sender)?;
        (term > 0 && term < place.term && place.host != *origin).then_some(place.term)
    }

    /// Sets the hosts that may have the lead, and so place names on others and give orders.
    pub fn set_leads(&self, hosts: BTreeSet<HostName>) {
        self.lock().leads = Some(hosts);
    }

    /// Whether a host may have the lead.
    pub fn may_lead(&self, host: &HostName) -> bool {
        self.lock().leads.as_ref().is_none_or(|leads| leads.contains(host))
    }

    /// Sets the hosts that are given up: their names are free. Returns those of before.
    pub fn set_given_up(&self, hosts: BTreeSet<HostName>) -> BTreeSet<HostName> {
        std::mem::replace(&mut self.lock().given_up, hosts)
    }

    /// Returns the hosts that are given up.
    pub fn given_up(&self) -> BTreeSet<HostName> {
        self.lock().given_up.clone()
    }

    /// Whether a host is given up.
    pub fn is_given_up(&self, host: &HostName) -> bool {
        self.lock().given_up.contains(host)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_of_an_earlier_placement_on_another_host_is_outdated() {
        let known = KnownPlacements::default();
        let [a, b, c] = ["a", "b", "c"].map(|text| HostName::parse(text).unwrap());
        let carol = AgentName::member("carol").unwrap();
        let at = |host: &HostName, term| Placement::new(host.clone(), term);
        assert_eq!(known.newer_term("carol", 1, &b), None, "nothing is known of her");
        known.note(&carol, &at(&b, 1));
        assert_eq!(known.newer_term("carol", 1, &b), None);
        known.note(&carol, &at(&c, 2));
        assert_eq!(known.newer_term("carol", 1, &b), Some(2));
        assert_eq!(known.newer_term("carol", 2, &c), None);
        assert_eq!(known.newer_term("carol", 1, &c), None, "her host is known for her");
        assert_eq!(known.newer_term("carol", 0, &b), None, "it is of no placed agent");
        assert_eq!(known.newer_term("user", 0, &b), None);
        // A server that was put back.
        known.note(&carol, &at(&b, 1));
        assert_eq!(known.newer_term("carol", 1, &b), Some(2));
        assert_eq!(known.newer_term("carol", 1, &a), Some(2));
    }
}
