//! Keys of hosts that are the same in every process of a test, for carriers without relays.

use agent_team::store::relay::{HostKeys, SignedInHost};
use agent_team::wire::carried::HostName;
use std::collections::BTreeMap;
use std::sync::Arc;
use team_host::trust::{Trust, new_keys, public_keys};

/// The host that signs the others in.
pub(crate) const AUTHORITY: &str = "a";

/// A seed of 32 bytes, which ends in the digits of the hosts.
fn signing_seed(host: &str) -> String {
    let digit = |bits: u8| char::from_digit(u32::from(bits), 16).unwrap();
    let digits: String = host.bytes().flat_map(|it| [digit(it >> 4), digit(it & 15)]).collect();
    // 43 letters of base64url are 32 bytes, if the last one has no bits that are left over.
    format!("{digits:A>42}A")
}

/// The hosts that each host has heard of, so that it can encrypt for them.
const HEARD_OF: [&str; 4] = ["a", "b", "c", "nobody"];

/// Returns the trust of a host of a team whose authority is [`AUTHORITY`].
pub(crate) fn trust_of(team: &str, host: &str) -> Arc<Trust> {
    let own = new_trust(team, host);
    for other in HEARD_OF {
        own.open("hello", &new_trust(team, other).sign("hello", b"")).unwrap();
    }
    Arc::new(own)
}

fn new_trust(team: &str, host: &str) -> Trust {
    let name = |text: &str| HostName::parse(text).unwrap();
    let keys = |host: &str| HostKeys { signing: signing_seed(host), ..new_keys().unwrap() };
    let mut authority = keys(AUTHORITY);
    authority.membership = Some(Trust::found(team, &name(AUTHORITY), &authority).unwrap());
    let founder = Trust::new(team, &authority, BTreeMap::new()).unwrap();
    if host == AUTHORITY {
        return founder;
    }
    let mut own = keys(host);
    let public = public_keys(&own).unwrap();
    let (signing, connection) = (public.signing, public.connection);
    let entry = SignedInHost { host: name(host), signing, connection, serial: 1 };
    own.membership = Some(founder.sign_in(&entry, false));
    Trust::new(team, &own, BTreeMap::new()).unwrap()
}
