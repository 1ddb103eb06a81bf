//! Relays whose server was away store what it does not have, and no more.

use crate::machines::{Machine, Machines, TEAM};
use std::fs;
use tokio::runtime::Builder;

/// The members on each host.
const MEMBERS: usize = 3;

/// Returns the number under which the server has each key; no value for one that it does not have.
fn stored(machines: &Machines, keys: &[String]) -> Vec<Option<u64>> {
    let url = machines.server.url();
    let read = async {
        let context = async_nats::jetstream::new(async_nats::connect(url).await.unwrap());
        // It may just be made.
        let Ok(bucket) = context.get_stream(format!("KV_team_{TEAM}")).await else {
            return vec![None; keys.len()];
        };
        let mut found = Vec::new();
        for key in keys {
            let subject = format!("$KV.team_{TEAM}.{key}");
            let last = bucket.get_last_raw_message_by_subject(&subject).await;
            found.push(last.ok().map(|message| message.sequence));
        }
        found
    };
    let run = || Builder::new_current_thread().enable_all().build().unwrap().block_on(read);
    machines.network.hub().enter(run)
}

fn has_all(machines: &Machines, keys: &[String]) -> bool {
    stored(machines, keys).iter().all(Option::is_some)
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
    let hosts = ["ann", "gpu1"].into_iter();
    let key = |host, at| format!("member.{host}.{host}-m{at}");
    let keys: Vec<_> = hosts.flat_map(|host| (0..MEMBERS).map(move |at| key(host, at))).collect();
    let before = stored(&machines, &keys);
    assert!(before.iter().all(Option::is_some), "{before:?}");

    let counts: Vec<_> = machines.all.iter().map(readings).collect();
    machines.server.restart();
    machines.eventually("both have read all again", || {
        machines.all.iter().zip(&counts).all(|(machine, count)| readings(machine) > *count)
    });
    let mut alice = machines.get("ann").start_member("alice");
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("alice", true);
    machines.wait_known("carol", true);
    assert_eq!(stored(&machines, &keys), before, "nothing that it has was stored again");

    // A power cut takes what the server has not synced: here, all of the members.
    machines.server.roll_back();
    machines.eventually("all is stored again", || has_all(&machines, &keys));
    for child in [&mut alice, &mut carol] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_withdrawal_of_keys_that_the_server_has_lost_is_stored_again() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    machines
        .eventually("both are there", || machines.all.iter().all(|machine| readings(machine) > 0));
    machines.server.snapshot();
    machines.get("ann").team_ok(&["host", "rm", "gpu1"]);
    let key = ["least.gpu1".to_owned()];
    machines.eventually("the other hosts are told", || has_all(&machines, &key));
    machines.server.roll_back();
    machines.eventually("they are told again", || has_all(&machines, &key));
}
