//! A headless run that waits for others says for whom, on a terminal, in a line that goes away.

use crate::harness::Team;
use crate::scripts::{assert_left_in_order, bash, calls, says, script, spawn};
use crate::terminal::Terminal;

#[test]
fn a_headless_run_says_whom_it_waits_for() {
    let team = Team::new();
    let lines = [
        calls("lead", &[spawn("alice")]),
        says("lead", "she works"),
        calls("alice", &[bash("sleep 3")]),
        says("alice", "slept well"),
        says("lead", "all is done"),
    ];
    let model = script(&team, &lines);
    let args = ["lead", "-p", "begin", "--model", &model, "--mode", "bypass"];
    let mut run = Terminal::start(team.command("team", &args));
    run.expect("waiting for alice (working, ");
    assert_eq!(run.wait().code(), Some(0), "{}", run.screen());
    assert!(run.screen().contains("all is done"), "{}", run.screen());
    assert!(!run.screen().contains("waiting for alice"), "{}", run.screen());
    assert_left_in_order(&team);
}
