//! Containment: every way in which the processes of a command can try to outlive it, combined with every way in
//! which a team ends.

use crate::support::child_process::write;
use crate::support::harness::{Team, in_parallel};
use crate::support::machines::Machine;
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, lead, scripted_lead, signal, spawn, tool_results,
    wait_file,
};
use crate::support::skips::skipped;
use crate::support::terminal::Terminal;
use nix::sys::signal::Signal;
use std::fs;

/// Shell commands that start an escaping process. `STAY` is replaced by its command line.
const WAYS: [&str; 12] = [
    "STAY &",
    "STAY & disown",
    "nohup STAY &",
    "setsid STAY &",
    "( ( STAY & ) & )",
    "(setsid sh -c 'cd /; (STAY &)' <&- >&- 2>&- &)",
    "STAY <&- >&- 2>&- &",
    "(exec -a '[kworker/0:1]' STAY) &",
    "STAY & kill -STOP $!",
    "env -i setsid STAY &",
    "env -u TEAM_RUN setsid STAY &",
    "TEAM_RUN=another setsid STAY &",
];

/// Bob's command: it starts an escaping process in each of the ways, then sleeps.
fn escape(team: &Team) -> String {
    let folder = team.workspace().display();
    let sleeps = "trap '' TERM HUP INT\nwhile :; do sleep 1000; done\n";
    write(&team.workspace().join("stay"), sleeps);
    let stay = format!("sh {folder}/stay");
    let ways: Vec<String> = WAYS.iter().map(|way| way.replace("STAY", &stay)).collect();
    format!("{}\nsleep 0.3; touch away; sleep 1000", ways.join("\n"))
}

/// Starts a lead with bob, and waits until bob's command has started all escaping processes.
fn loose(team: &Team, machine: Machine) -> Terminal {
    let command = escape(team);
    let lead =
        scripted_lead(team, &[calls("lead", &[spawn("bob")]), calls("bob", &[bash(&command)])]);
    wait_file(team, "away");
    assert!(stays(team) >= WAYS.len(), "{}", team.describe());
    machine.assert_walls(team);
    lead
}

fn stays(team: &Team) -> usize {
    team.processes().iter().filter(|(_, line)| line.contains("/stay")).count()
}

fn wait_none_stays(team: &Team) {
    team.eventually("nobody stays", || stays(team) == 0);
}

fn quit(lead: &mut Terminal) {
    lead.type_line("/quit");
    assert_eq!(lead.wait().code(), Some(0));
}

#[test]
fn no_process_outlives_the_end_of_the_command() {
    in_parallel(Machine::ALL, |machine| {
        let team = machine.team();
        let command = escape(&team).replace("; sleep 1000", "; echo over");
        let calls = [calls("lead", &[bash(&command)])];
        let mut lead = scripted_lead(&team, &calls);
        team.eventually("the command is over", || !tool_results(&team, "lead").is_empty());
        assert_eq!(stays(&team), 0, "{}", team.describe());
        quit(&mut lead);
        assert_left_in_order(&team);
    });
}

#[test]
fn no_process_outlives_an_interrupted_turn() {
    in_parallel(Machine::ALL, |machine| {
        let team = machine.team();
        let calls = [calls("lead", &[bash(&escape(&team))])];
        let mut lead = scripted_lead(&team, &calls);
        wait_file(&team, "away");
        lead.press("\u{3}");
        wait_none_stays(&team);
        team.wait_status("lead", "idle");
        quit(&mut lead);
        assert_left_in_order(&team);
    });
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn no_process_outlives_a_stop_polite_or_not() {
    let ways = [&["stop", "bob"][..], &["stop", "bob", "--now"]];
    let cases = ways.into_iter().flat_map(|how| Machine::ALL.map(|machine| (how, machine)));
    in_parallel(cases, |(how, machine)| {
        let team = machine.team();
        let mut lead = loose(&team, machine);
        team.team(how).expect(0);
        // `team stop` returns after the last process has exited.
        assert_eq!(stays(&team), 0, "{how:?}: {}", team.describe());
        quit(&mut lead);
        assert_left_in_order(&team);
    });
}

#[test]
fn no_process_outlives_a_killed_teammate() {
    in_parallel(Machine::ALL, |machine| {
        let team = machine.team();
        let mut lead = loose(&team, machine);
        kill_9(&team, "bob");
        wait_none_stays(&team);
        quit(&mut lead);
        assert_left_in_order(&team);
    });
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn no_process_outlives_a_killed_lead() {
    in_parallel(Machine::ALL, |machine| {
        let team = machine.team();
        let mut lead = loose(&team, machine);
        kill_9(&team, "lead");
        lead.wait();
        team.wait_no_process();
        assert_left_in_order(&team);
    });
}

/// Kills bob's command supervisors while bob is stopped, and then bob.
fn kill_with_guards(team: &Team) {
    let bob = team.pid_of("bob");
    signal(bob, Signal::SIGSTOP);
    for (pid, _) in team.processes() {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if comm.trim() == "teammate-guard" {
            signal(pid, Signal::SIGKILL);
        }
    }
    signal(bob, Signal::SIGKILL);
}

/// The lead adopts the leftover processes, and kills even those without the run id.
#[test]
fn no_process_outlives_a_teammate_killed_with_its_supervisor() {
    in_parallel(Machine::ALL, |machine| {
        let team = machine.team();
        let mut lead = loose(&team, machine);
        let life = fs::read_to_string(team.path("run/bob.lock")).unwrap();
        let life: serde_json::Value = serde_json::from_str(&life).unwrap();
        let groups = format!("team-{}.*", life["marker"].as_str().unwrap());
        kill_with_guards(&team);
        wait_none_stays(&team);
        team.eventually("its control group is gone", || {
            let mut find = std::process::Command::new("find");
            let found = find.args(["/sys/fs/cgroup", "-name", &groups]).output().unwrap();
            found.stdout.is_empty()
        });
        quit(&mut lead);
        assert_left_in_order(&team);
    });
}

/// After `kill -9` of the lead, bob and the command supervisors, the next lead kills the leftover processes. A
/// known gap: without control groups, it does not find processes that lost their run id.
#[test]
fn no_process_outlives_the_next_start_after_everything_was_killed() {
    in_parallel(Machine::ALL, |machine| {
        let team = machine.team();
        let mut first = loose(&team, machine);
        signal(team.pid_of("lead"), Signal::SIGSTOP);
        kill_with_guards(&team);
        kill_9(&team, "lead");
        first.wait();
        assert!(stays(&team) > WAYS.len() / 2, "they are loose: {}", team.describe());
        let mut next = lead(&team, "rehearsal");
        let groups = fs::read_to_string("/proc/self/mountinfo").unwrap().contains(" - cgroup2 ");
        if groups && nix::unistd::geteuid().is_root() {
            // The lead has killed them, but on a loaded machine they may still be exiting.
            wait_none_stays(&team);
        } else {
            let left: Vec<(i32, String)> =
                team.processes().into_iter().filter(|(_, line)| line.contains("/stay")).collect();
            skipped(&format!("no control groups here; {} without a mark were left", left.len()));
            assert!(left.len() <= 3, "{left:?}");
            let is_loose = |line: &str| line.contains("/stay") || line.starts_with("sleep ");
            for (pid, _) in team.processes().iter().filter(|(_, line)| is_loose(line)) {
                signal(*pid, Signal::SIGKILL);
            }
        }
        quit(&mut next);
        assert_left_in_order(&team);
    });
}
