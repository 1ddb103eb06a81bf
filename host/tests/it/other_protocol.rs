//! A host whose program speaks another version of the protocol between relays.

use crate::machines::{Machines, TEAM};
use crate::played_host::{beat, claim_names, sign_in, tell_host, tell_member};
use agent_team::wire::AgentName;
use agent_team::wire::carried::{HostName, RELAY_PROTOCOL};
use std::thread;
use std::time::Duration;
use team_host::carrier::{Carrier, CarrierConfig};
use tokio::sync::oneshot::{Receiver, channel};

/// Plays a host with one member until it is over.
async fn play(config: CarrierConfig, host: HostName, mut is_over: Receiver<()>) {
    let carol = AgentName::member("carol").unwrap();
    let carrier = Carrier::start(config).await.unwrap();
    tell_member(&carrier, &host, &carol).await;
    claim_names(&carrier, &host, std::slice::from_ref(&carol)).await;
    tell_host(&carrier, &host, &[carol], RELAY_PROTOCOL + 1).await;
    for count in 1.. {
        if is_over.try_recv().is_ok() {
            break;
        }
        beat(&carrier, count).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn a_host_with_another_version_of_the_protocol_is_named_and_its_mail_waits() {
    let Some(machines) = Machines::or_skip(&["ann"]) else { return };
    let (ann, url) = (machines.get("ann"), machines.server.url());
    let (trust, host) = (sign_in(ann, &url, "new"), HostName::parse("new").unwrap());
    let config = CarrierConfig::new(vec![url], TEAM, host.as_str(), trust);
    let (end, is_over) = channel();
    let hub = machines.network.hub().clone();
    let playing = thread::spawn(move || {
        hub.enter(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(play(config, host, is_over));
        });
    });
    machines.wait_known("carol", true);
    let listed = || ann.team_ok(&["host", "ls"]);
    let said = "new speaks another version of the protocol between hosts (team-host 9.9.9 there";
    machines.eventually("its program is known", || listed().contains(said));
    let sent = ann.team(&["send", "carol", "x"]);
    let warned = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(sent.status.success() && warned.contains(said), "{warned}");
    machines.eventually("the line waits", || ann.waiting_for("new") == Some(1));
    // Orders are refused at once: by mail, she is asked all the same.
    let stopped = ann.team(&["stop", "carol"]);
    let why = [&stopped.stdout, &stopped.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(!stopped.status.success() && why[0].contains(said), "{why:?}");
    machines.eventually("both wait", || ann.waiting_for("new") == Some(2));
    end.send(()).unwrap();
    playing.join().unwrap();
}
