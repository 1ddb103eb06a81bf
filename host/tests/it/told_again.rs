//! Relays whose server was away store what it does not have, and no more.

use crate::machines::{Machine, Machines, TEAM};
use std::collections::BTreeMap;
use std::fs;
use tokio::runtime::Builder;

/// The members on each host.
const MEMBERS: usize = 3;

/// Returns the number under which the server has the entry of each member; no value for one that it does not have.
fn stored(machines: &Machines) -> BTreeMap<String, Option<u64>> {
    let url = machines.server.url();
    let read = async {
        let context = async_nats::jetstream::new(async_nats::connect(url).await.unwrap());
        // It may just be made.
        let bucket = context.get_stream(format!("KV_team_{TEAM}")).await.ok();
        let mut found = BTreeMap::new();
        for host in machines.all.iter().map(|machine| &machine.name) {
            for at in 0..MEMBERS {
                let key = format!("member.{host}.{host}-m{at}");
                let subject = format!("$KV.team_{TEAM}.{key}");
                let last = match &bucket {
                    Some(bucket) => bucket.get_last_raw_message_by_subject(&subject).await.ok(),
                    None => None,
                };
                found.insert(key, last.map(|message| message.sequence));
            }
        }
        found
    };
    let run = || Builder::new_current_thread().enable_all().build().unwrap().block_on(read);
    machines.network.hub().enter(run)
}

/// The number of times that a relay has read all values, and stored what was missing.
fn readings(machine: &Machine) -> usize {
    let log = fs::read_to_string(machine.dir.relay_log()).unwrap_or_default();
    log.matches("all values of the team are read").count()
}

#[test]
fn a_relay_that_connects_again_stores_only_what_the_server_does_not_have() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    machines.server.snapshot();
    let lives: Vec<_> = machines.all.iter().map(|it| it.play_members(MEMBERS)).collect();
    for name in lives.iter().flatten().map(|life| life.name().as_str()) {
        machines.wait_known(name, true);
    }
    let before = stored(&machines);
    assert!(before.values().all(Option::is_some), "{before:?}");

    let counts: Vec<_> = machines.all.iter().map(readings).collect();
    machines.server.restart();
    machines.eventually("both have read all again", || {
        machines.all.iter().zip(&counts).all(|(machine, count)| readings(machine) > *count)
    });
    let mut alice = machines.get("ann").start_member("alice");
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("alice", true);
    machines.wait_known("carol", true);
    assert_eq!(stored(&machines), before, "nothing that it has was stored again");

    // A power cut takes what the server has not synced: here, all of the members.
    machines.server.roll_back();
    machines.eventually("all is stored again", || stored(&machines).values().all(Option::is_some));
    for child in [&mut alice, &mut carol] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
