//! No processor is free: who was killed is gone a little later, and is waited for.

use crate::crew::{assert_left_by_force, bash, calls, script, wait, wait_file};
use crate::group::{Group, Limit};
use crate::harness::Team;

/// A thousandth of a processor, a second at a time.
const LITTLE: [Limit<'_>; 2] = [
    ("/sys/fs/cgroup/cpu", &[("cpu.cfs_period_us", "1000000"), ("cpu.cfs_quota_us", "1000")]),
    ("/sys/fs/cgroup", &[("cpu.max", "1000 1000000")]),
];

#[test]
fn who_is_killed_on_a_busy_machine_is_waited_for() {
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
    assert_left_by_force(&team, &names);
}
