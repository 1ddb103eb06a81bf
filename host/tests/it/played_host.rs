//! A host that a test plays: one of the team, by the real command, with a carrier instead of a relay.

use crate::machines::{Machine, TEAM};
use agent_team::relay::{HostEntry, Placement, member_key};
use agent_team::store::TeamDir;
use agent_team::store::relay::host_keys;
use agent_team::wire::AgentName;
use agent_team::wire::carried::{Epoch, HostName, RELAY_PROTOCOL};
use agent_team::wire::roster::{Member, Status};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use team_host::carrier::{Carrier, CarrierError};
use team_host::trust::Trust;

/// Makes a played host one of the team; returns its trust.
pub(crate) fn sign_in(first: &Machine, url: &str, name: &str) -> Arc<Trust> {
    let folder = tempfile::tempdir().unwrap();
    let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
    let mut join = first.command("team");
    join.current_dir(folder.path()).args(["host", "join", url, "--code", &first.invitation(name)]);
    let joined = join.output().unwrap();
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    let keys = host_keys(&dir).unwrap().unwrap();
    Arc::new(Trust::new(TEAM, &keys, BTreeMap::new()).unwrap())
}

/// Repeats a request until it succeeds: there may be no connection yet.
async fn until_done<T, F: Future<Output = Result<T, CarrierError>>>(request: impl Fn() -> F) {
    while request().await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Tells the other hosts of a member, as a relay does.
pub(crate) async fn tell_member(carrier: &Carrier, host: &HostName, name: &AgentName) {
    let member = Member { name: name.to_string(), status: Status::Idle, ..Member::default() };
    let entry = serde_json::to_value(member).unwrap();
    let entry = HostEntry { alive: true, entry, version: None };
    let value = serde_json::to_vec(&entry).unwrap();
    let key = member_key(host, name);
    until_done(|| carrier.put(&key, value.clone().into())).await;
}

/// Has the authority place names on the host, in one question, as a relay does.
pub(crate) async fn claim_names(carrier: &Carrier, host: &HostName, names: &[AgentName]) {
    let placement = Placement::new(host.clone(), 1);
    let wanted = |name: &AgentName| json!({"name": name.as_str(), "placement": placement});
    let names: Vec<_> = names.iter().map(wanted).collect();
    let claim = serde_json::to_vec(&json!({"v": RELAY_PROTOCOL, "names": names})).unwrap();
    until_done(|| carrier.request_claim(claim.clone().into())).await;
}

/// Tells the other hosts of the host and all its members.
pub(crate) async fn tell_host(
    carrier: &Carrier,
    host: &HostName,
    members: &[AgentName],
    protocol: u32,
) {
    let names: Vec<_> = members.iter().map(AgentName::as_str).collect();
    let value = json!({
        "epoch": Epoch::of(1), "version": "9.9.9", "protocol": protocol, "members": names,
    });
    let value = serde_json::to_vec(&value).unwrap();
    let key = format!("host.{host}");
    until_done(|| carrier.put(&key, value.clone().into())).await;
}

/// Shows that the host lives, with a sign of a greater number than before.
pub(crate) async fn beat(carrier: &Carrier, count: u64) {
    let beat = json!({"epoch": Epoch::of(1), "number": {"start": 1, "count": count}}).to_string();
    drop(carrier.publish_beat(beat.into()).await);
}
