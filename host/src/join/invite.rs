//! `team host invite`: prints the code by which one host may join.

use super::code::JoinCode;
use crate::failure::HostFailure;
use crate::membership;
use crate::own_server::own_pin;
use crate::settings::{known_identity, name_of_machine, parse_host};
use agent_team::store::relay::{
    InvitedHost, RelayLock, Servers, change_invited_hosts, change_trusted_hosts, host_keys,
    is_served, new_secret, set_sent_keys,
};
use agent_team::store::{Clock, StoreError, SystemClock, TeamDir};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// The time for which a code may be used.
const VALID_FOR: Duration = Duration::from_secs(3600);

/// The settings of an invitation.
pub(crate) struct InviteOptions {
    pub(crate) root: PathBuf,
    /// The name of the host that is to join.
    pub(crate) host: String,
    /// The address by which that host reaches this one.
    pub(crate) address: Option<String>,
}

/// Invites a host; prints what is to be run there.
///
/// # Errors
/// This host is not the authority of a team with a server that others reach, or a file cannot be written.
pub(crate) fn invite(options: &InviteOptions) -> Result<(), HostFailure> {
    let host = parse_host(&options.host)?;
    let what = format!("{host} cannot be invited");
    let at_folder = |why: StoreError| {
        HostFailure::of(&*what, &why, "check the folder's permissions and free space")
    };
    let Some(identity) = known_identity(&options.root)? else {
        let hint = "start the relay here first: team-host run --name HOST --team ID --listen 0.0.0.0:4222 (or --nats \
                    nats://SERVER:4222); a host that ssh reaches is added by: team host add HOST";
        return Err(HostFailure::usage(what, "this team has one host", hint));
    };
    if identity.host == host {
        let hint = "give the new one another name";
        return Err(HostFailure::usage(what, "it is the name of this host", hint));
    }
    let dir = TeamDir::look(&options.root).map_err(at_folder)?;
    if identity.servers.addresses.is_empty() && identity.servers.listen.is_none() {
        let why = if identity.servers.is_own {
            "the server of this team is on loopback of this host"
        } else {
            "another host has added this one, and runs its relay"
        };
        let hint = format!(
            "add it over ssh: team host add {host}; or let the server listen for others: team-host run --listen 0.0.0.0:4222"
        );
        return Err(HostFailure::usage(what, why, hint));
    }
    // The keys of a relay that has not run yet.
    if let Some(_lock) = RelayLock::take(&dir).map_err(at_folder)? {
        membership::load(&dir, &identity, None)?;
    }
    let keys = host_keys(&dir).map_err(at_folder)?;
    let Some(membership) = keys.and_then(|keys| keys.membership) else {
        let why = "the relay here is starting just now";
        return Err(HostFailure::usage(what, why, "try again"));
    };
    if membership.authority != identity.host {
        let hint = format!("on {}: team host invite {host}", membership.authority);
        let why = format!("{} signs the hosts of this team in", membership.authority);
        return Err(HostFailure::usage(what, why, hint));
    }
    let secret = new_secret().map_err(|why| HostFailure::of(&*what, &why, "try again"))?;
    let now = SystemClock.now();
    let invited = InvitedHost {
        host: host.clone(),
        secret: secret.clone(),
        until: now + VALID_FOR,
        joined: None,
    };
    change_trusted_hosts(&dir, |trusted| trusted.admit(&host)).map_err(at_folder)?;
    // Another machine may join by that name.
    set_sent_keys(&dir, &host, BTreeSet::new()).map_err(at_folder)?;
    change_invited_hosts(&dir, |hosts| {
        hosts.retain(|known| known.host != host && known.until > now);
        hosts.push(invited);
    })
    .map_err(at_folder)?;
    let of_file = |option: &str, file: &Option<PathBuf>| {
        file.as_ref().map_or_else(String::new, |_| format!(" {option} FILE"))
    };
    let Servers { login, ca, .. } = &identity.servers;
    let files = of_file("--creds", login) + &of_file("--ca", ca);
    let (servers, pin) = match identity.servers.listen {
        None => (identity.servers.addresses.join(" "), identity.servers.pin),
        Some(listen) => {
            let Some(pin) = own_pin(&dir).map_err(at_folder)? else {
                let why = "its server has not run yet";
                return Err(HostFailure::usage(what, why, "start the relay first: team-host run"));
            };
            let address = options.address.clone().unwrap_or_else(name_of_machine);
            (format!("nats://{address}:{}", listen.port()), Some(pin))
        }
    };
    let code = JoinCode {
        team: identity.team,
        host: host.clone(),
        authority: identity.host,
        key: membership.authority_key,
        secret,
        pin,
    };
    let mut text = format!(
        "In the folder of the team on {host}, within an hour:\n\n  team host join {servers}{files} --code {}\n",
        code.text()
    );
    if !is_served(&dir).map_err(at_folder)? {
        text.push_str("\nThe relay here must run meanwhile: team lead, or team-host run\n");
    }
    drop(io::stdout().write_all(text.as_bytes()));
    Ok(())
}
