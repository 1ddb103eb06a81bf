//! Tests of the time in which walls are put up, between the fork of a command's process and its first program: whatever
//! is killed then, no process lives on, and none runs a program without its walls.
//!
//! strace stops or kills the command's process at each kind of call by which walls are put up. No other process of an
//! agent makes these calls.

use super::contained_agent::{
    CommandWalls, Containment, Fixture, containments, pause, signal_supervisor, stop, wait_until,
};
use crate::os::processes::{self, Process};
use crate::os::skips::skipped;
use crate::os::{Signal, process_tree};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The calls with which namespaces are set up, in the order in which the first of each kind is made.
const NAMESPACE_CALLS: &[&str] = &["unshare", "mount", "open_tree", "mount_setattr", "move_mount"];

/// The calls after them, without namespaces the only ones.
const RULE_CALLS: &[&str] = &["capset", "landlock_restrict_self", "seccomp"];

/// The process that is killed while walls are put up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Command,
    Supervisor,
    Agent,
    /// The agent, and then the supervisor.
    Both,
}

/// A containment with walls and a call by which they are put up.
type Moment = (Containment, &'static str);

/// The moments that can be tried here.
fn moments() -> Vec<Moment> {
    let tried = Command::new("strace").args(["-qq", "-e", "trace=none", "true"]).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        skipped("no strace, or it may not trace: moments while walls are put up are not tried");
        return Vec::new();
    }
    let of = |containment: Containment| {
        let has_namespaces = containment.walls != CommandWalls::Rules;
        let first = NAMESPACE_CALLS.iter().filter(move |_| has_namespaces);
        first.chain(RULE_CALLS).map(move |call| (containment, *call))
    };
    walled(&[true, false]).into_iter().flat_map(of).collect()
}

/// The containments with walls. Those of the level `read-only` are put up as the others are.
fn walled(means: &[bool]) -> Vec<Containment> {
    let kinds = [CommandWalls::Namespaces, CommandWalls::Rules];
    containments(means).into_iter().filter(|it| kinds.contains(&it.walls)).collect()
}

/// The last line of the evidence of a command's walls.
const END: &str = "end";

/// Returns a command that proves the walls of its shell, which starts nothing before, and then never exits.
fn command(fixture: &Fixture) -> String {
    let evidence = fixture.file("evidence");
    format!(
        "mapfile -t status </proc/$$/status; printf '%s\\n' \"${{status[@]}}\" {END} >{}; sleep 300.{}",
        evidence.display(),
        fixture.token
    )
}

/// Starts an agent process below strace, which sends a signal to the command's process at its first `call`.
fn traced_agent(fixture: &Fixture, call: &str, signal: &str) -> Child {
    let agent = fixture.agent(&command(fixture), 60);
    let mut strace = Command::new("strace");
    let inject = format!("inject={call}:signal={signal}:when=1");
    strace.args(["-f", "-qq", "-e", &format!("trace={call}"), "-e", &inject, "-o"]);
    strace.arg(fixture.path().join("trace")).arg(agent.get_program()).args(agent.get_args());
    strace.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    strace.stdout(Stdio::null()).spawn().unwrap()
}

fn trace(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.path().join("trace")).unwrap_or_default()
}

/// Returns the agent process that strace has started.
fn agent_below(strace: &Child) -> Process {
    let pid = i32::try_from(strace.id()).unwrap();
    processes::all().into_iter().find(|process| process.parent == pid).unwrap()
}

/// Whether a program of the command has run.
fn has_run(fixture: &Fixture) -> bool {
    fixture.file("evidence").exists()
}

/// Calls `check` with each moment, all at once, while the command's process is stopped at it.
fn each_stopped(moments: &[Moment], check: impl Fn(&Fixture, Child) + Sync) {
    std::thread::scope(|threads| {
        for (containment, call) in moments {
            let check = &check;
            threads.spawn(move || {
                let fixture = Fixture::with(*containment);
                let strace = traced_agent(&fixture, call, "SIGSTOP");
                wait_until(&format!("{call} has stopped"), || {
                    trace(&fixture).contains("stopped by SIGSTOP")
                });
                check(&fixture, strace);
                assert!(!has_run(&fixture), "{call} with {containment:?}");
                assert_eq!(fixture.survivors(), 0, "{call} with {containment:?}");
            });
        }
    });
}

#[test]
fn a_command_killed_while_its_walls_are_put_up_runs_nothing() {
    std::thread::scope(|threads| {
        for (containment, call) in moments() {
            threads.spawn(move || {
                let fixture = Fixture::with(containment);
                let strace = traced_agent(&fixture, call, "SIGKILL");
                let said = fixture.said_by(strace);
                assert!(said.starts_with("[ended by signal 9]"), "{call}: {said}");
                assert!(trace(&fixture).contains("killed by SIGKILL"), "{call}");
                assert!(!has_run(&fixture), "{call} with {containment:?}");
                assert_eq!(fixture.survivors(), 0, "{call} with {containment:?}");
            });
        }
    });
}

#[test]
fn nothing_outlives_a_supervisor_killed_while_walls_are_put_up() {
    each_stopped(&moments(), |fixture, strace| {
        signal_supervisor(agent_below(&strace).pid, Signal::SIGKILL);
        let said = fixture.said_by(strace);
        assert!(said.starts_with("[ended by signal 9]"), "{said}");
    });
}

#[test]
fn nothing_outlives_an_agent_killed_while_walls_are_put_up() {
    each_stopped(&moments(), |fixture, mut strace| {
        agent_below(&strace).signal(Signal::SIGKILL);
        strace.wait().unwrap();
        wait_until("no process is left", || fixture.survivors() == 0);
    });
}

/// The kernel ends a stopped process whose group has lost its parent; the next start ends it otherwise.
#[test]
fn nothing_outlives_agent_and_supervisor_killed_while_walls_are_put_up() {
    each_stopped(&moments(), |fixture, mut strace| {
        let agent = agent_below(&strace);
        stop(&agent);
        signal_supervisor(agent.pid, Signal::SIGKILL);
        agent.signal(Signal::SIGKILL);
        wait_until("the agent is gone", || {
            !Process::read(agent.pid).is_some_and(|it| it.can_run())
        });
        end_run(fixture);
        strace.wait().unwrap();
    });
}

/// Ends what is left of a run. On a busy machine the kernel needs longer for a process behind walls than one attempt waits.
fn end_run(fixture: &Fixture) {
    wait_until("the run has ended", || process_tree::end_run(&fixture.run_id, |_| true).is_empty());
}

fn assert_walled_if_run(fixture: &Fixture) {
    let status = fs::read_to_string(fixture.file("evidence")).unwrap_or_default();
    // A shell writes line by line: one that was killed while it did so has written the first lines only.
    let complete = status.lines().next_back() == Some(END);
    for (name, value) in [("NoNewPrivs:", "1"), ("Seccomp:", "2")] {
        let line = status.split_inclusive('\n').find_map(|line| line.strip_prefix(name));
        match line.and_then(|line| line.strip_suffix('\n')) {
            Some(found) => assert_eq!(found.trim(), value, "{name} {status}"),
            None => assert!(!complete, "{name} {status}"),
        }
    }
}

/// The number of moments at which each victim is killed.
const ROUNDS: u32 = 12;

/// The time between these moments. Together they cover the start of a command on a machine that is not loaded.
const STEP: Duration = Duration::from_micros(700);

/// Kills one process at moments from the start of the supervisor on, without strace.
#[test]
fn whatever_is_killed_at_the_start_of_a_command_nothing_lives_on_or_runs_without_walls() {
    for containment in walled(&[true, false]) {
        for victim in [Victim::Command, Victim::Supervisor, Victim::Agent, Victim::Both] {
            std::thread::scope(|threads| {
                for round in 0..ROUNDS {
                    threads.spawn(move || kill_at(containment, victim, STEP * round));
                }
            });
        }
    }
}

/// Kills the victim this long after its supervisor has been seen.
fn kill_at(containment: Containment, victim: Victim, delay: Duration) {
    let fixture = Fixture::with(containment);
    let mut agent = fixture.agent(&command(&fixture), 60).spawn().unwrap();
    let pid = i32::try_from(agent.id()).unwrap();
    let below = |pid| processes::below(&BTreeSet::from([pid]), &processes::all());
    let supervisor = loop {
        if let Some(supervisor) = below(pid).into_iter().find_map(Process::read) {
            break supervisor;
        }
        assert!(agent.try_wait().unwrap().is_none(), "the agent has exited");
    };
    pause(delay);
    match victim {
        Victim::Command => wait_until("its process is killed", || {
            let supervisors = below(pid);
            let found = below(pid).into_iter().filter(|it| {
                Process::read(*it).is_some_and(|process| supervisors.contains(&process.parent))
            });
            let found: Vec<Process> = found.filter_map(Process::read).collect();
            for process in &found {
                process.signal(Signal::SIGKILL);
            }
            !found.is_empty()
        }),
        Victim::Supervisor => signal_supervisor(pid, Signal::SIGKILL),
        Victim::Agent => agent.kill().unwrap(),
        Victim::Both => {
            stop(&Process::read(pid).unwrap());
            signal_supervisor(pid, Signal::SIGKILL);
            agent.kill().unwrap();
        }
    }
    match victim {
        Victim::Command | Victim::Supervisor => {
            let said = fixture.said_by(agent);
            assert!(said.starts_with("[ended by signal 9]"), "{victim:?}: {said}");
        }
        Victim::Agent => drop(agent.wait().unwrap()),
        Victim::Both => {
            agent.wait().unwrap();
            end_run(&fixture);
        }
    }
    // Until then, it may still start the command.
    wait_until("its supervisor is gone", || {
        !Process::read(supervisor.pid)
            .is_some_and(|it| it.can_run() && it.start == supervisor.start)
    });
    wait_until("no process is left", || fixture.survivors() == 0);
    assert_walled_if_run(&fixture);
}
