//! The hosts that were given up: a person has said that they are gone for good, so that their names are free.
//!
//! A give-up names the version of what the host had told last. A host that comes back tells a later one, which makes the give-up
//! void on all hosts, also where the carrier was put back to an earlier state. Nothing here waits or does I/O.

use crate::store::relay::GivenUpHost;
use crate::wire::carried::{HostName, ValueVersion};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The word before a host in the key of its give-up.
const KEY: &str = "gone.";

/// Returns the key under which the hosts tell each other that a host was given up.
pub fn give_up_key(host: &HostName) -> String {
    format!("{KEY}{host}")
}

/// Returns the host of a key; `None` if it is not the key of a give-up.
pub fn parse_give_up_key(key: &str) -> Option<HostName> {
    HostName::parse(key.strip_prefix(KEY)?).ok()
}

/// A host was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GiveUp {
    /// The host on which a person has said so.
    pub by: HostName,
    /// The version of what the host had told last; `None` if that was unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<ValueVersion>,
}

impl GiveUp {
    /// Whether the host has told something since then.
    fn is_void(&self, told: Option<&ValueVersion>) -> bool {
        match (&self.told, told) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(now)) => before.epoch != now.epoch || before.is_before(now),
        }
    }
}

/// The state of a host that may have been given up.
#[derive(Debug, Clone, Default)]
pub struct HostState {
    /// The version of what it has told last.
    pub told: Option<ValueVersion>,
    /// Whether it is heard now.
    pub is_heard: bool,
}

/// A step that brings the give-ups of this host and those at the carrier in agreement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GiveUpStep {
    /// Tell the others.
    Tell(HostName, GiveUp),
    /// Forget it: the host is back.
    Withdraw(HostName),
}

/// The give-ups of all hosts, as far as they are known.
#[derive(Debug)]
pub struct GiveUps {
    host: HostName,
    /// Those of a person on this host.
    own: BTreeMap<HostName, GiveUp>,
    /// Those that the carrier has or had.
    told: BTreeMap<HostName, GiveUp>,
    /// The hosts whose give-ups the carrier has.
    at_carrier: BTreeSet<HostName>,
}

impl GiveUps {
    /// Creates the give-ups as a host knows them that has heard nothing yet.
    pub fn new(host: HostName) -> Self {
        let (own, told, at_carrier) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { host, own, told, at_carrier }
    }

    /// Sets the hosts that a person on this host has given up.
    pub fn set_own(&mut self, hosts: Vec<GivenUpHost>) {
        let by = &self.host;
        let own = |it: GivenUpHost| (it.host, GiveUp { by: by.clone(), told: it.told });
        self.own = hosts.into_iter().map(own).collect();
    }

    /// Notes the give-up of a host that the carrier has; `None` if it was withdrawn.
    pub fn note(&mut self, host: HostName, give_up: Option<GiveUp>) {
        match give_up {
            Some(give_up) => {
                self.at_carrier.insert(host.clone());
                self.told.insert(host, give_up);
            }
            None => {
                self.at_carrier.remove(&host);
                self.told.remove(&host);
            }
        }
    }

    /// Notes that the carrier has forgotten all of them. They hold, and their hosts tell them again.
    pub fn forgotten(&mut self) {
        self.at_carrier.clear();
    }

    /// Returns what is to be done next.
    pub fn steps(&self, state: impl Fn(&HostName) -> HostState) -> Vec<GiveUpStep> {
        let mut steps = Vec::new();
        if self.told.contains_key(&self.host) {
            steps.push(GiveUpStep::Withdraw(self.host.clone()));
        }
        for (host, give_up) in &self.own {
            let HostState { told, is_heard } = state(host);
            let is_void = give_up.is_void(told.as_ref());
            // Persons on two hosts may have said so.
            let known = self.told.get(host).filter(|_| self.at_carrier.contains(host));
            let is_told = known.is_some_and(|known| !known.is_void(told.as_ref()));
            if is_void || is_heard {
                steps.push(GiveUpStep::Withdraw(host.clone()));
            } else if !is_told {
                steps.push(GiveUpStep::Tell(host.clone(), give_up.clone()));
            }
        }
        steps
    }

    /// Returns the hosts that are given up: they have not come back since then, and are not heard.
    pub fn in_force(&self, state: impl Fn(&HostName) -> HostState) -> BTreeSet<HostName> {
        let holds = |(host, give_up): &(&HostName, &GiveUp)| {
            let HostState { told, is_heard } = state(host);
            **host != self.host && !is_heard && !give_up.is_void(told.as_ref())
        };
        let all = self.own.iter().chain(&self.told).filter(holds);
        all.map(|(host, _)| host.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::carried::Epoch;

    fn host(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    fn version(start: u64, number: u64) -> ValueVersion {
        ValueVersion { epoch: Epoch::of(7), start, number }
    }

    fn state(
        told: impl Into<Option<ValueVersion>>,
        is_heard: bool,
    ) -> impl Fn(&HostName) -> HostState {
        let told = told.into();
        move |_| HostState { told: told.clone(), is_heard }
    }

    fn of_person(text: &str, told: ValueVersion) -> Vec<GivenUpHost> {
        vec![GivenUpHost { host: host(text), told: Some(told), at: 1.0.into() }]
    }

    #[test]
    fn a_host_is_given_up_on_all_hosts_until_it_tells_something() {
        let (mut a, mut c) = (GiveUps::new(host("a")), GiveUps::new(host("c")));
        a.set_own(of_person("b", version(2, 5)));
        let away = || state(version(2, 5), false);
        let give_up = GiveUp { by: host("a"), told: Some(version(2, 5)) };
        assert_eq!(a.steps(away()), [GiveUpStep::Tell(host("b"), give_up.clone())]);
        assert_eq!(a.in_force(away()), BTreeSet::from([host("b")]), "also without a carrier");
        for hosts in [&mut a, &mut c] {
            hosts.note(host("b"), Some(give_up.clone()));
            assert_eq!(hosts.in_force(away()), BTreeSet::from([host("b")]));
            assert_eq!(hosts.steps(away()), []);
            hosts.forgotten();
            assert_eq!(hosts.in_force(away()), BTreeSet::from([host("b")]));
        }
        assert_eq!(a.steps(away()), [GiveUpStep::Tell(host("b"), give_up)]);
        assert_eq!(c.steps(away()), []);
        // It is heard, and has told nothing yet; and the other way round.
        for back in [|| state(version(2, 5), true), || state(version(2, 6), true)] {
            assert!(a.in_force(back()).is_empty() && c.in_force(back()).is_empty());
            assert_eq!(a.steps(back()), [GiveUpStep::Withdraw(host("b"))]);
        }
        let back = || state(version(3, 1), false);
        assert!(a.in_force(back()).is_empty() && c.in_force(back()).is_empty());
        a.set_own(Vec::new());
        a.note(host("b"), None);
        assert_eq!(a.steps(back()), []);
    }

    #[test]
    fn a_host_withdraws_its_own_give_up_and_one_in_a_new_folder_is_another_host() {
        let mut b = GiveUps::new(host("b"));
        let give_up = GiveUp { by: host("a"), told: Some(version(2, 5)) };
        b.note(host("b"), Some(give_up.clone()));
        assert!(b.in_force(state(None, false)).is_empty());
        assert_eq!(b.steps(state(None, false)), [GiveUpStep::Withdraw(host("b"))]);
        let anew = ValueVersion { epoch: Epoch::of(8), start: 1, number: 1 };
        assert!(give_up.is_void(Some(&anew)));
        let unknown = GiveUp { told: None, ..give_up };
        assert!(!unknown.is_void(None) && unknown.is_void(Some(&anew)));
        assert_eq!(parse_give_up_key(&give_up_key(&host("b"))), Some(host("b")));
        assert_eq!(parse_give_up_key("host.b"), None);
    }
}
