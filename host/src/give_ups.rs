//! Tells the other hosts which hosts were given up on this one, and hears it of them.

use crate::carrier::{Carrier, StoredValue};
use crate::offload::offload;
use agent_team::relay::{
    GiveUp, GiveUpStep, GiveUps, HostState, KnownPlacements, give_up_key, parse_give_up_key,
};
use agent_team::store::TeamDir;
use agent_team::store::relay::{change_given_up_hosts, given_up_hosts};
use agent_team::wire::carried::HostName;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The states of the other hosts.
pub(crate) type HostStates = BTreeMap<HostName, HostState>;

/// The hosts that were given up.
pub(crate) struct HostGiveUps {
    host: HostName,
    authority: HostName,
    give_ups: GiveUps,
    dir: TeamDir,
    placements: KnownPlacements,
    /// The hosts that a person has given up here.
    own: BTreeSet<HostName>,
    /// Those of which the carrier says so, and nobody here.
    stale: BTreeSet<HostName>,
}

impl HostGiveUps {
    /// Creates the give-ups of a host that has heard nothing yet. Those in force are noted in `placements`.
    pub(crate) fn new(
        (host, authority): (HostName, HostName),
        dir: TeamDir,
        placements: KnownPlacements,
    ) -> Self {
        let give_ups = GiveUps::new(host.clone());
        let own = given_up_hosts(&dir).unwrap_or_default();
        let own = own.into_iter().map(|it| it.host).collect();
        Self { host, authority, give_ups, dir, placements, own, stale: BTreeSet::new() }
    }

    /// Notes a value of the carrier; returns the host of which it tells, if it is a give-up. Only the authority gives up hosts, and
    /// takes it back with an empty value.
    pub(crate) fn note(&mut self, key: &str, value: &StoredValue) -> Option<HostName> {
        let host = parse_give_up_key(key)?;
        let signed = value.of(&self.authority);
        let give_up = signed.and_then(|value| serde_json::from_slice::<GiveUp>(value).ok());
        if signed.is_none() && self.authority != self.host {
            return Some(host);
        }
        if self.authority == self.host {
            // Its own list alone counts. What the carrier has else was withdrawn, and put back by somebody.
            if give_up.is_some() && !self.own.contains(&host) {
                self.stale.insert(host.clone());
                return Some(host);
            }
        }
        if host == self.host && give_up.is_some() {
            tracing::warn!("this host was given up on another one; it is back");
        }
        self.give_ups.note(host.clone(), give_up);
        Some(host)
    }

    /// Notes that the carrier has forgotten all of them.
    pub(crate) fn forgotten(&mut self) {
        self.give_ups.forgotten();
    }

    /// Returns the hosts that are given up.
    pub(crate) fn in_force(&self) -> BTreeSet<HostName> {
        self.placements.given_up()
    }

    /// Brings the give-ups of this host and those at the carrier in agreement; returns whether other hosts are given up now
    /// than before. What fails is tried again by the next call.
    pub(crate) async fn settle(&mut self, carrier: &Carrier, states: &HostStates) -> bool {
        let dir = self.dir.clone();
        match offload(move || given_up_hosts(&dir)).await {
            Ok(hosts) => {
                self.own = hosts.iter().map(|it| it.host.clone()).collect();
                self.give_ups.set_own(hosts);
            }
            Err(why) => tracing::warn!(%why, "the hosts that were given up here are unknown"),
        }
        let state = |host: &HostName| states.get(host).cloned().unwrap_or_default();
        if carrier.is_connected() && self.authority == self.host {
            // A person may have given it up again meanwhile.
            let mut stale = std::mem::take(&mut self.stale);
            stale.retain(|host| !self.own.contains(host));
            for host in stale {
                self.withdraw(carrier, host).await;
            }
            for step in self.give_ups.steps(state) {
                match step {
                    GiveUpStep::Tell(host, give_up) => self.tell(carrier, host, give_up).await,
                    GiveUpStep::Withdraw(host) => self.withdraw(carrier, host).await,
                }
            }
        }
        let in_force = self.give_ups.in_force(state);
        let before = self.placements.set_given_up(in_force.clone());
        for host in in_force.difference(&before) {
            tracing::warn!(%host, "a host is given up: its names are free");
        }
        for host in before.difference(&in_force) {
            tracing::info!(%host, "a host that was given up is back");
        }
        before != in_force
    }

    async fn tell(&mut self, carrier: &Carrier, host: HostName, give_up: GiveUp) {
        let Ok(value) = serde_json::to_vec(&give_up) else { return };
        match carrier.put(&give_up_key(&host), value.into()).await {
            Ok(_) => self.give_ups.note(host, Some(give_up)),
            Err(why) => tracing::info!(%host, %why, "the others are not told of a give-up"),
        }
    }

    async fn withdraw(&mut self, carrier: &Carrier, host: HostName) {
        if let Err(why) = carrier.put(&give_up_key(&host), Bytes::new()).await {
            tracing::info!(%host, %why, "a give-up is not withdrawn");
            return;
        }
        self.give_ups.note(host.clone(), None);
        let dir = self.dir.clone();
        let forget =
            move || change_given_up_hosts(&dir, |hosts| hosts.retain(|it| it.host != host));
        if let Err(why) = offload(forget).await {
            tracing::warn!(%why, "a give-up is not forgotten");
        }
    }
}
