//! The second implementation of docs/format.md, which knows nothing of hosts, has one half of its members on each of two.

use crate::machines::{Machine, Machines};
use crate::rig::process::spawn_tied;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// The number of messages of each sender.
const EACH: usize = 40;

fn script(machine: &Machine, args: &[&str]) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/team_format.py");
    let mut command = machine.command_of(Path::new("python3"));
    command.arg(script).arg(".team").args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn member(machine: &Machine, name: &str) -> Child {
    spawn_tied(script(machine, &["member", name])).unwrap()
}

fn texts(from: &str) -> Vec<String> {
    (0..EACH).map(|number| format!("{from} {number}")).collect()
}

/// Sends the texts of a sender by the script; returns the number of ids that it prints.
fn send(machine: &Machine, from: &str, to: &str) -> usize {
    let mut command = script(machine, &["send", to, from]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all((texts(from).join("\n") + "\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).split_whitespace().count()
}

/// Returns the texts that a member has of a sender, in order.
fn received(machine: &Machine, member: &str, from: &str) -> Vec<String> {
    let mail = machine.mail_of(member).into_iter().filter(|mail| mail["from"] == from);
    mail.map(|mail| mail["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn members_of_the_second_implementation_on_two_hosts_exchange_mail_and_are_stopped_over_them() {
    let Some(mut machines) = Machines::or_skip(&["ann", "gpu1"]) else { return };
    let mut alice = member(machines.get("ann"), "alice");
    let mut carol = member(machines.get("gpu1"), "carol");
    machines.wait_known("alice", true);
    machines.wait_known("carol", true);
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    thread::scope(|threads| {
        let sent = threads.spawn(|| send(ann, "alice", "carol"));
        assert_eq!(send(gpu, "carol", "alice"), EACH);
        assert_eq!(sent.join().unwrap(), EACH);
    });
    machines.get_mut("gpu1").kill_relay();
    machines.get("ann").team_ok(&["send", "carol", "by the program"]);
    machines.get_mut("gpu1").start_relay();
    machines.eventually("carol has all of it", || {
        let gpu = machines.get("gpu1");
        received(gpu, "carol", "alice").len() >= EACH && gpu.has_mail("carol", "by the program")
    });
    let (ann, gpu) = (machines.get("ann"), machines.get("gpu1"));
    machines.eventually("alice has all of it", || received(ann, "alice", "carol").len() >= EACH);
    assert_eq!(received(gpu, "carol", "alice"), texts("alice"));
    assert_eq!(received(ann, "alice", "carol"), texts("carol"));

    for (machine, other, child) in [(ann, "carol", &mut carol), (gpu, "alice", &mut alice)] {
        let said = machine.team_ok(&["stop", other]);
        assert!(said.contains("ended when asked"), "{said}");
        assert!(child.wait().unwrap().success());
        machines.eventually("the name is free", || {
            script(machine, &["alive", other]).output().unwrap().stdout == b"free\n"
        });
    }
}
