//! Many signals, and signals at bad moments, have the effect of a single one.

use crate::support::harness::{Team, in_parallel};
use crate::support::scripts::{
    assert_left_in_order, calls, last_exit, lead, script, signal, spawn, stop_process, wait,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::thread::park_timeout;
use std::time::Duration;

/// Sends a thousand signals of a kind, ten per millisecond.
fn storm(pid: i32, kind: Signal) {
    for _ in 0..1000 {
        if kill(Pid::from_raw(pid), kind).is_err() {
            return;
        }
        park_timeout(Duration::from_micros(100));
    }
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_thousand_signals_to_a_teammate_have_the_effect_of_one() {
    in_parallel(
        [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 143)],
        |(kind, code)| {
            let team = Team::new();
            let mut bob = team.start(&["teammate", "bob", "--model", "rehearsal"]);
            team.wait_status("bob", "idle");
            storm(team.pid_of("bob"), Signal::SIGWINCH);
            assert_eq!(team.status("bob"), "idle");
            // The test reaps the process after the storm, so its pid cannot be reused during it.
            storm(team.pid_of("bob"), kind);
            assert_eq!(wait(&team, &mut bob), Some(code), "{kind}");
            assert_eq!(
                last_exit(&team, "bob"),
                ("stopped".into(), Some(code.into()), None),
                "{kind}"
            );
            assert_left_in_order(&team);
        },
    );
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_thousand_signals_to_the_lead_have_the_effect_of_one() {
    let team = Team::new();
    let mut lead = lead(&team, "rehearsal");
    lead.type_line("Spawn alice (coder).");
    team.wait_status("alice", "idle");
    let pid = team.pid_of("lead");
    storm(pid, Signal::SIGWINCH);
    assert_eq!((team.status("lead").as_str(), team.status("alice").as_str()), ("idle", "idle"));
    storm(pid, Signal::SIGTERM);
    assert_eq!(lead.wait().code(), Some(143));
    team.wait_no_process();
    assert_eq!(team.status("lead"), "shutdown");
    assert_eq!(last_exit(&team, "alice").0, "team_stopped");
    assert_left_in_order(&team);
}

/// Sends a signal to a lead at different moments while it spawns three teammates. No process may be left.
fn end_while_spawning(kind: Signal) {
    std::thread::scope(|threads| {
        for first in 0..3 {
            threads.spawn(move || {
                for step in 0..6 {
                    let team = Team::new();
                    let three = [spawn("a1"), spawn("a2"), spawn("a3")];
                    let model = script(&team, &[calls("lead", &three)]);
                    let mut lead = team.start(&["lead", "-p", "begin", "--model", &model]);
                    team.eventually("the lead is at it", || team.status("lead") == "working");
                    park_timeout(Duration::from_millis(first * 11 + step * 33));
                    signal(i32::try_from(lead.id()).unwrap(), kind);
                    lead.wait().unwrap();
                    team.wait_no_process();
                    for name in ["a1", "a2", "a3"] {
                        let status = team.status(name);
                        let over = ["shutdown", "failed", "absent"].contains(&status.as_str());
                        // After a killed lead, the next lead updates the roster.
                        assert!(
                            over || kind == Signal::SIGKILL,
                            "{name} is {status}: {}",
                            team.describe()
                        );
                    }
                    if kind == Signal::SIGKILL {
                        crate::support::scripts::headless(&team, "rehearsal", "Hello.").expect(0);
                        assert_left_in_order_but_members(&team);
                    }
                }
            });
        }
    });
}

fn assert_left_in_order_but_members(team: &Team) {
    for name in ["a1", "a2", "a3"] {
        assert!(["shutdown", "failed", "absent"].contains(&team.status(name).as_str()));
    }
    assert_left_in_order(team);
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_lead_terminated_while_it_spawns_leaves_no_process() {
    end_while_spawning(Signal::SIGTERM);
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_lead_killed_while_it_spawns_leaves_no_process() {
    end_while_spawning(Signal::SIGKILL);
}

/// A teammate that is stopped with SIGSTOP still handles SIGTERM.
#[test]
fn a_stopped_teammate_handles_sigterm() {
    let team = Team::new();
    let mut bob = team.start(&["teammate", "bob", "--model", "rehearsal"]);
    team.wait_status("bob", "idle");
    stop_process(&team, "bob");
    let ran = team.team(&["stop", "bob", "--now"]).expect(0);
    assert!(ran.out.contains("ended on SIGTERM"), "{ran:#?}");
    assert_eq!(wait(&team, &mut bob), Some(143));
    assert_left_in_order(&team);
}
