//! Killed processes that do not exit immediately: they get no CPU time, or they wait in the kernel.

use crate::support::cgroup::{Group, Limit};
use crate::support::harness::Team;
use crate::support::scripts::{assert_left_in_order, bash, calls, script, wait, wait_file};

/// A version 1 freezer group. A frozen process reacts to no signal, like one that waits for a broken disk.
const FREEZER: [Limit<'_>; 1] = [("/sys/fs/cgroup/freezer", &[("freezer.state", "THAWED")])];

/// A limit of 1/1000 of a CPU, in periods of one second.
const LITTLE: [Limit<'_>; 2] = [
    ("/sys/fs/cgroup/cpu", &[("cpu.cfs_period_us", "1000000"), ("cpu.cfs_quota_us", "1000")]),
    ("/sys/fs/cgroup", &[("cpu.max", "1000 1000000")]),
];

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_stop_waits_for_a_killed_process_without_a_processor() {
    let Some(group) = Group::new("processor", &LITTLE) else { return };
    let team = Team::new();
    let names = ["alice", "bob", "carl"];
    let model = script(
        &team,
        &names.map(|name| calls(name, &[bash(&format!("touch {name}.here; sleep 1000"))])),
    );
    let mut members = names.map(|name| {
        team.start(&["teammate", name, "--model", &model, "--mode", "bypass", "--prompt", "begin"])
    });
    for name in names {
        wait_file(&team, &format!("{name}.here"));
        assert!(group.set("cgroup.procs", &team.pid_of(name).to_string()));
    }
    let stopped = team.team(&["stop", "--all", "--now"]).expect(0);
    assert_eq!(stopped.out.matches("had to be killed").count(), 3, "{stopped:?}");
    for member in &mut members {
        assert_eq!(wait(&team, member), None);
    }
    assert_left_in_order(&team);
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_stop_names_a_killed_process_that_waits_for_the_kernel() {
    let Some(group) = Group::new("freezer", &FREEZER) else { return };
    let team = Team::new();
    let model = script(&team, &[calls("bob", &[bash("touch bob.here; sleep 1000")])]);
    let args = ["teammate", "bob", "--model", &model, "--mode", "bypass", "--prompt", "begin"];
    let mut bob = team.start(&args);
    wait_file(&team, "bob.here");
    assert!(group.set("cgroup.procs", &team.pid_of("bob").to_string()));
    assert!(group.set("freezer.state", "FROZEN"));
    let stopped = team.team(&["stop", "bob", "--now"]).expect(1);
    assert!(stopped.out.contains("SIGKILL had no effect"), "{stopped:?}");
    assert!(stopped.err.contains("state D"), "{stopped:?}");
    assert_eq!(team.status("bob"), "stopping", "it is still there");
    assert!(group.set("freezer.state", "THAWED"));
    assert_eq!(wait(&team, &mut bob), None);
    let again = team.team(&["stop", "bob", "--now"]).expect(0);
    assert!(again.out.contains("was not running"), "{again:?}");
    team.wait_no_process();
}
