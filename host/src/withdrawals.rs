//! Tells the other hosts whose certificates were withdrawn, and hears it of the authority.

use crate::carrier::{Carrier, StoredValue};
use crate::offload::offload;
use crate::trust::Trust;
use agent_team::store::relay::{change_trusted_hosts, trusted_hosts};
use agent_team::store::{StoreError, TeamDir};
use agent_team::wire::carried::HostName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The word before a host in the key of its least serial number.
const KEY: &str = "least.";

/// The serial number from which on the certificates of a host count.
#[derive(Debug, Serialize, Deserialize)]
struct LeastSerial {
    serial: u64,
}

/// The withdrawn certificates.
pub(crate) struct Withdrawals {
    host: HostName,
    dir: TeamDir,
    trust: Arc<Trust>,
    /// Those that the carrier has, as far as it is trusted.
    at_carrier: BTreeMap<HostName, u64>,
}

impl Withdrawals {
    pub(crate) fn new(host: HostName, dir: TeamDir, trust: Arc<Trust>) -> Self {
        Self { host, dir, trust, at_carrier: BTreeMap::new() }
    }

    /// The host that signs the others in.
    pub(crate) fn authority(&self) -> &HostName {
        self.trust.authority()
    }

    /// Notes that the carrier has forgotten all of them.
    pub(crate) fn forgotten(&mut self) {
        self.at_carrier.clear();
    }

    /// Whether this host is an authority with no other host.
    pub(crate) async fn has_signed_nobody_in(&self) -> bool {
        let dir = self.dir.clone();
        let trusted = offload(move || trusted_hosts(&dir)).await;
        *self.trust.authority() == self.host
            && trusted.is_ok_and(|it| it.signed_in.is_empty() && it.least_serials.is_empty())
    }

    /// Notes a value of the carrier, and keeps it: a carrier that forgets it brings no certificate back. Returns whether the
    /// certificate of this host was withdrawn.
    pub(crate) async fn note(&mut self, key: &str, value: &StoredValue) -> bool {
        let Some(Ok(host)) = key.strip_prefix(KEY).map(HostName::parse) else { return false };
        let signed = value.of(self.trust.authority());
        let Some(LeastSerial { serial }) = signed.and_then(|it| serde_json::from_slice(it).ok())
        else {
            self.at_carrier.remove(&host);
            return false;
        };
        self.at_carrier.insert(host.clone(), serial);
        let is_own = host == self.host && self.trust.own_serial() < serial;
        if self.trust.least_serial(&host) >= serial {
            return is_own;
        }
        tracing::warn!(%host, serial, "earlier certificates of a host were withdrawn");
        self.trust.raise_least_serials(&BTreeMap::from([(host.clone(), serial)]));
        let dir = self.dir.clone();
        let keep = move || {
            change_trusted_hosts(&dir, |trusted| {
                let known = trusted.least_serials.entry(host).or_default();
                *known = serial.max(*known);
            })
        };
        if let Err(why) = offload(keep).await {
            tracing::warn!(%why, "a withdrawn certificate is not noted");
        }
        is_own
    }

    /// Tells the other hosts, as the authority, what it has withdrawn since the last call. A command may have done so.
    pub(crate) async fn settle(&mut self, carrier: &Carrier) {
        if *self.trust.authority() != self.host {
            return;
        }
        if let Err(why) = self.tell(carrier).await {
            tracing::warn!(%why, "the withdrawn certificates are unknown");
        }
    }

    async fn tell(&mut self, carrier: &Carrier) -> Result<(), StoreError> {
        let dir = self.dir.clone();
        let least = offload(move || trusted_hosts(&dir)).await?.least_serials;
        self.trust.raise_least_serials(&least);
        if !carrier.is_connected() {
            return Ok(());
        }
        for (host, serial) in least {
            if self.at_carrier.get(&host) == Some(&serial) {
                continue;
            }
            let Ok(value) = serde_json::to_vec(&LeastSerial { serial }) else { continue };
            match carrier.put(&format!("{KEY}{host}"), value.into()).await {
                Ok(_) => drop(self.at_carrier.insert(host, serial)),
                Err(why) => tracing::info!(%host, %why, "a withdrawn certificate is not told yet"),
            }
        }
        Ok(())
    }
}
