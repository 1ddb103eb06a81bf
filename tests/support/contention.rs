//! Many processes at once: large teams, and races for one name, each of which one process wins.

use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{
    assert_left_in_order, calls, says, script, scripted_lead_on, spawn, wait,
};
use std::fs;
use std::io::Read;
use std::process::Child;

/// Runs `count` teammates at the same time, sends them a broadcast, and asserts that none is left.
pub(crate) fn run_together(count: usize) {
    let team = Team::new();
    fs::create_dir(team.workspace().join(".team")).unwrap();
    write(&team.path("settings.toml"), format!("max_teammates = {count}\n"));
    let names: Vec<String> = (0..count).map(|i| format!("a{i}")).collect();
    let spawns: Vec<_> = names.iter().map(|name| spawn(name)).collect();
    let mut lines = vec![calls("lead", &spawns)];
    lines.extend(names.iter().map(|name| says(name, "ready")));
    let model = script(&team, &lines);
    let mut lead = scripted_lead_on(&team, &model);
    for name in &names {
        team.wait_status(name, "idle");
    }
    // Teammates for which no inotify watch is left are notified by their FIFO.
    team.team(&["broadcast", "all together"]).expect(0);
    for name in &names {
        team.eventually("everybody has it", || team.has_mail(name, "user", "all together"));
    }
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0), "{}", lead.screen());
    assert_left_in_order(&team);
}

/// Starts `many` processes with the same arguments. Returns the one that keeps running and the error output
/// of the others.
fn race(team: &Team, many: usize, args: &[&str], name: &str) -> (Child, Vec<String>) {
    let mut runners: Vec<Child> = (0..many).map(|_| team.start(args)).collect();
    let mut lost = Vec::new();
    team.eventually("all but one have ended", || {
        runners.retain_mut(|runner| {
            let Some(status) = runner.try_wait().unwrap() else { return true };
            let mut said = String::new();
            runner.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(status.code(), Some(5), "{said}");
            lost.push(said);
            false
        });
        assert!(!runners.is_empty(), "nobody runs: {lost:?}");
        runners.len() == 1
    });
    let winner = runners.remove(0);
    assert_eq!(team.pid_of(name), i32::try_from(winner.id()).unwrap());
    (winner, lost)
}

/// Starts `many` leads in one folder, and asserts that one runs and that the errors of the others name it.
pub(crate) fn one_lead_of(many: usize) {
    let team = Team::new();
    let args = ["lead", "-p", "Run the command `sleep 1000`", "--model", "rehearsal"];
    let (mut winner, lost) = race(&team, many, &args, "lead");
    let pid = format!("pid {}", winner.id());
    for said in &lost {
        assert!(said.contains(&pid) && said.contains("since 20"), "{said}");
    }
    team.team(&["stop", "--all", "--now"]).expect(0);
    assert_eq!(wait(&team, &mut winner), Some(143));
    assert_left_in_order(&team);
}

/// Starts `many` teammates of one name, and asserts that one runs and that the errors of the others name it.
pub(crate) fn one_teammate_of(many: usize) {
    let team = Team::new();
    let args = ["teammate", "bob", "--model", "rehearsal"];
    let (mut winner, lost) = race(&team, many, &args, "bob");
    let pid = format!("pid {}", winner.id());
    assert!(lost.iter().all(|said| said.contains(&pid)), "{lost:?}");
    team.wait_status("bob", "idle");
    assert_eq!(team.roster()["members"].as_array().unwrap().len(), 1);
    assert!(team.team(&["stop", "bob"]).expect(0).out.contains("bob ended when asked"));
    assert_eq!(wait(&team, &mut winner), Some(0));
    assert_left_in_order(&team);
}
