//! A server that has no room for the mail, or takes shorter messages than a line of mail may be.

use crate::machines::{Machine, Machines};
use crate::rig::nats_server::ServerOptions;
use agent_team::bus::Outgoing;
use agent_team::wire::AgentName;
use std::fs;
use std::time::Duration;

/// The length of each message.
const BYTES: usize = 60_000;

fn send(machine: &Machine, to: &str, number: usize) {
    let text = format!("{number:09} {}", "x".repeat(BYTES));
    machine.bus().send(&AgentName::user(), to, Outgoing::text(text)).unwrap();
}

/// Returns the numbers of the messages that a member has got.
fn numbers(machine: &Machine, owner: &str) -> Vec<usize> {
    let number = |mail: serde_json::Value| mail["content"].as_str()?.get(..9)?.parse().ok();
    machine.mail_of(owner).into_iter().filter_map(number).collect()
}

#[test]
fn mail_waits_while_the_store_of_the_server_is_full_and_all_of_it_follows() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("carol", true);
    machines.get_mut("gpu1").kill_relay();
    let full = ServerOptions { max_store: Some("500KB"), ..ServerOptions::default() };
    machines.server.reconfigure(&full);
    for number in 0..20 {
        send(machines.get("ann"), "carol", number);
    }
    let told = |machines: &Machines| {
        let log = fs::read_to_string(machines.get("ann").dir.relay_log()).unwrap_or_default();
        log.matches("stores no more mail at present").count()
    };
    machines.eventually("the relay says that the server is full", || told(&machines) > 0);
    machines.eventually("all wait", || machines.get("ann").waiting_for("gpu1") == Some(20));
    // While nothing changes, it does not say it again.
    std::thread::park_timeout(Duration::from_secs(2));
    assert!(told(&machines) <= 4, "{}", machines.get("ann").describe());
    // Mail that arrives makes room.
    machines.get_mut("gpu1").start_relay();
    let all: Vec<_> = (0..20).collect();
    machines.eventually("all arrive", || numbers(machines.get("gpu1"), "carol") == all);
    machines.eventually("none waits", || machines.get("ann").waiting_for("gpu1") == Some(0));
    carol.kill().unwrap();
    carol.wait().unwrap();
}

#[test]
fn a_server_that_takes_too_short_messages_is_named_and_a_long_line_waits_for_another_setting() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut carol = machines.get("gpu1").start_member("carol");
    machines.wait_known("carol", true);
    let short = ServerOptions { max_payload: Some("32KB"), ..ServerOptions::default() };
    machines.server.reconfigure(&short);
    let said = || fs::read_to_string(machines.get("ann").folder().join("relay.err")).unwrap();
    machines.eventually("the relay says so", || said().contains("set max_payload: 4MB"));
    send(machines.get("ann"), "carol", 0);
    machines.eventually("it waits", || machines.get("ann").waiting_for("gpu1") == Some(1));
    machines.server.reconfigure(&ServerOptions::default());
    machines.eventually("it arrives", || numbers(machines.get("gpu1"), "carol") == [0]);
    carol.kill().unwrap();
    carol.wait().unwrap();
}
