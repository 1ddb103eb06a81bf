//! The membership of this host in a team: made at the first start, or given by the host that signs it in.

use crate::failure::HostFailure;
use crate::invitation::{InvitedKeys, KeysLine};
use crate::trust::{KeyError, Trust, new_keys, public_keys};
use agent_team::store::relay::{
    HostIdentity, HostKeys, Membership, change_trusted_hosts, host_keys, write_host_keys,
};
use agent_team::store::{StoreError, TeamDir};
use std::io::{self, BufRead, Write};
use std::sync::Arc;

/// The keys of this host and its trust.
pub(crate) struct OwnTrust {
    pub(crate) keys: HostKeys,
    pub(crate) trust: Arc<Trust>,
}

/// Loads the keys of this host and its trust; makes what is missing. A host that nobody has signed in begins a team of which it
/// is the authority. To one that is `invited`, another host gives the membership. The caller holds the relay's lock.
pub(crate) fn load(
    dir: &TeamDir,
    identity: &HostIdentity,
    invited: Option<InvitedKeys>,
) -> Result<OwnTrust, HostFailure> {
    let at_folder = |why: StoreError| {
        let hint = "check the folder's permissions and free space";
        HostFailure::of("the keys of this host cannot be used", &why, hint)
    };
    let known = host_keys(dir).map_err(at_folder)?;
    let kept = known.clone().filter(|keys| {
        // Those that were withdrawn may be in other hands.
        invited != Some(InvitedKeys::New) || keys.membership.is_none()
    });
    let mut keys = match kept {
        Some(known) => known,
        None => new_keys().map_err(unusable)?,
    };
    if invited.is_some() {
        keys.membership = Some(ask(&keys)?);
    } else if keys.membership.is_none() {
        let own = Trust::found(&identity.team, &identity.host, &keys);
        keys.membership = Some(own.map_err(unusable)?);
    }
    if known.as_ref() != Some(&keys) {
        write_host_keys(dir, &keys).map_err(at_folder)?;
    }
    let told = keys.membership.as_ref().map(|it| it.least_serials.clone()).unwrap_or_default();
    let least = change_trusted_hosts(dir, |trusted| {
        for (host, serial) in told {
            let known = trusted.least_serials.entry(host).or_default();
            *known = serial.max(*known);
        }
        trusted.least_serials.clone()
    });
    let least = least.map_err(at_folder)?;
    let trust = Trust::new(&identity.team, &keys, least).map_err(unusable)?;
    Ok(OwnTrust { keys, trust: Arc::new(trust) })
}

pub(crate) fn unusable(why: KeyError) -> HostFailure {
    let hint = match why {
        KeyError::Withdrawn | KeyError::NoMember => {
            "on the host that signs the others in: team host add HOST, or team host invite HOST"
        }
        KeyError::Invalid | KeyError::NoRandomness => {
            "restore the file, or remove it and add this host to its team again"
        }
    };
    HostFailure::of("the keys of this host cannot be used", &why, hint)
}

/// Gives the public keys to the host that invites this one, and reads the membership.
fn ask(keys: &HostKeys) -> Result<Membership, HostFailure> {
    let failed = |why: &dyn std::error::Error| {
        let hint = "the host that adds this one says more: team host ls there";
        HostFailure::of("this host was not signed in", why, hint)
    };
    let keys = public_keys(keys).map_err(|why| failed(&why))?;
    let line = serde_json::to_string(&KeysLine { keys }).map_err(|why| failed(&why))?;
    writeln!(io::stdout(), "{line}").map_err(|why| failed(&why))?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(|why| failed(&why))?;
    serde_json::from_str(&answer).map_err(|why| failed(&why))
}
