//! The number of servers that keep what relays store: three of a cluster, else one.

use crate::machines::{Machines, TEAM};
use crate::rig::nats_wire::NatsWire;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpStream;
use std::time::Duration;

/// The streams of the team: that of the mail, and that of the values.
fn streams() -> [String; 2] {
    [format!("MAIL_{TEAM}"), format!("KV_team_{TEAM}")]
}

/// Asks the first server; `None` without an answer.
fn ask(machines: &Machines, subject: &str, body: &str) -> Option<Value> {
    let address = machines.server.address();
    machines.network.hub().enter(|| {
        let stream = TcpStream::connect(address).ok()?;
        let mut wire = NatsWire::open(stream, Duration::from_secs(2)).ok()?;
        wire.request(subject, body.as_bytes()).ok()
    })
}

fn config(machines: &Machines, stream: &str) -> Option<Value> {
    let info = ask(machines, &format!("$JS.API.STREAM.INFO.{stream}"), "")?;
    Some(info["config"].clone())
}

/// The number of servers that keep each of the streams.
fn replicas(machines: &Machines) -> Option<Vec<u64>> {
    let of = |stream: &String| config(machines, stream)?["num_replicas"].as_u64();
    streams().iter().map(of).collect()
}

#[test]
fn three_servers_of_a_cluster_keep_what_is_stored_also_if_one_has_kept_it_before() {
    let Some(mut machines) = Machines::at_cluster_or_skip(&["a", "b"]) else { return };
    machines.eventually("three servers keep them", || replicas(&machines) == Some(vec![3, 3]));
    machines.get_mut("a").kill_relay();
    machines.get_mut("b").kill_relay();
    for stream in streams() {
        machines.eventually("one server keeps the stream", || {
            let Some(mut config) = config(&machines, &stream) else { return false };
            config["num_replicas"] = json!(1);
            let subject = format!("$JS.API.STREAM.UPDATE.{stream}");
            ask(&machines, &subject, &config.to_string())
                .is_some_and(|answer| answer["config"]["num_replicas"] == 1)
        });
    }
    machines.get_mut("a").start_relay();
    machines.eventually("three keep them again", || replicas(&machines) == Some(vec![3, 3]));
}

#[test]
fn one_server_with_three_addresses_keeps_what_is_stored_alone() {
    let Some(mut machines) = Machines::or_skip(&["a", "b"]) else { return };
    for name in ["a", "b"] {
        machines.get_mut(name).kill_relay();
    }
    machines.server.forget_everything();
    for name in ["a", "b"] {
        let url = machines.server.url();
        machines.get_mut(name).use_servers(vec![url.clone(), url.clone(), url]);
        machines.get_mut(name).start_relay();
    }
    let mut bob = machines.get("b").start_member("bob");
    machines.wait_known("bob", true);
    machines.get("a").team_ok(&["send", "bob", "with one copy"]);
    machines.eventually("it arrives", || machines.get("b").has_mail("bob", "with one copy"));
    assert_eq!(replicas(&machines), Some(vec![1, 1]));
    let log = |name: &str| fs::read_to_string(machines.get(name).dir.relay_log()).unwrap();
    let told = "too few servers of the cluster keep a stream of the team";
    assert!((log("a") + &log("b")).contains(told));
    bob.kill().unwrap();
    bob.wait().unwrap();
}
