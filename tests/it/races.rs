//! Many at once for one place: one gets it, the others say who has it.

use crate::harness::Team;
use crate::scripts::{assert_left_in_order, wait};
use std::io::Read;
use std::process::Child;

/// Starts many of the same program; gives the one that runs and what the others said.
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

/// So many leads in one folder: one runs, the others name it.
pub(crate) fn one_lead_of(many: usize) {
    let team = Team::new();
    let args = ["lead", "-p", "Run the command `sleep 20`", "--model", "rehearsal"];
    let (mut winner, lost) = race(&team, many, &args, "lead");
    let pid = format!("pid {}", winner.id());
    for said in &lost {
        assert!(said.contains(&pid) && said.contains("since 20"), "{said}");
    }
    team.team(&["stop", "--all", "--now"]).expect(0);
    assert_eq!(wait(&team, &mut winner), Some(143));
    assert_left_in_order(&team);
}

/// So many teammates of one name: one runs, the others name it.
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

#[test]
fn of_fifty_leads_one_runs() {
    one_lead_of(50);
}

#[test]
fn of_fifty_teammates_of_one_name_one_runs() {
    one_teammate_of(50);
}
