//! Signs other hosts in, on the authority of the team.

use crate::offload::offload;
use crate::trust::{PublicKeys, Trust};
use agent_team::store::relay::{Membership, SignInRefusal, change_trusted_hosts, trusted_hosts};
use agent_team::store::{StoreError, TeamDir};
use agent_team::wire::carried::HostName;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The part of a relay that signs hosts in.
#[derive(Clone)]
pub(crate) struct SignIn {
    pub(crate) host: HostName,
    pub(crate) team: String,
    pub(crate) dir: TeamDir,
    pub(crate) trust: Arc<Trust>,
    /// The own server, which lets the hosts log in that are signed in.
    pub(crate) server: Option<Arc<Notify>>,
}

/// The reason for which a host was not signed in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSignedIn {
    /// This host is not the one that signs hosts in.
    #[error("{0} signs the hosts of this team in: add it there")]
    NoAuthority(HostName),
    /// These are no keys, or those of this host.
    #[error("its keys cannot be used")]
    Keys,
    /// It is not to be signed in.
    #[error(transparent)]
    Refused(#[from] SignInRefusal),
    /// The list of hosts cannot be changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SignIn {
    /// Whether a host is signed in now. What cannot be read is not.
    pub(crate) async fn is_signed_in(&self, host: &HostName) -> bool {
        let (dir, name) = (self.dir.clone(), host.clone());
        let known = offload(move || trusted_hosts(&dir)).await;
        known.is_ok_and(|known| known.signed_in.iter().any(|it| it.host == name))
    }

    /// Signs a host in with its keys; those that it had before count no more.
    pub(crate) async fn sign_in(
        &self,
        host: &HostName,
        keys: PublicKeys,
    ) -> Result<Membership, NotSignedIn> {
        if *self.trust.authority() != self.host {
            return Err(NotSignedIn::NoAuthority(self.trust.authority().clone()));
        }
        if !keys.are_valid() || keys.signing == self.trust.authority_key() || *host == self.host {
            return Err(NotSignedIn::Keys);
        }
        let (dir, name) = (self.dir.clone(), host.clone());
        let sign = move || {
            change_trusted_hosts(&dir, |trusted| {
                trusted.sign_in(&name, &keys.signing, &keys.connection)
            })
        };
        let entry = offload(sign).await??;
        self.trust.raise_least_serials(&BTreeMap::from([(host.clone(), entry.serial)]));
        if let Some(server) = &self.server {
            server.notify_one();
        }
        tracing::info!(%host, serial = entry.serial, "a host is signed in");
        Ok(self.trust.sign_in(&entry, self.server.is_some()))
    }
}
