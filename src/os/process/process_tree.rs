//! What the commands of an agent leave behind, and its end.
//!
//! A command normally dies with its guard. What escapes the guard (because the command killed it) comes
//! to the agent, which adopts orphans, carries a run_id in its environment as long as it did not wipe it,
//! and is in a control group where the machine lends us one; each is enough to find it. The one gap: on a
//! machine without such groups, when guard and agent are killed at once, a command that wiped its run_id, or
//! that forks and ends faster than the process table can be read.

use super::pidfd::Pidfd;
use super::processes::{self, Process};
use super::program::COMMAND_SUPERVISOR_NAME;
use super::{cgroup, child_registry};
use crate::os::Signal;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::killpg;
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::{Pid, getpgrp};
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// The variable of a command's environment whose value tells whose command it is.
pub(crate) const RUN_ID_VARIABLE: &str = "TEAM_RUN";

/// How long a sweep may find only whom it has killed before, until they are given up: they are stuck in the
/// kernel, or run as somebody whom we may not signal.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long those that fork faster than they are killed are chased on a machine that is short of time.
const CHASE: Duration = Duration::from_secs(10);

/// How long the guards of a dead agent may take to end its commands.
const GUARDS_WORK: Duration = Duration::from_secs(2);

/// How many times in a row nobody must be found after somebody was.
const LOOKS: usize = 3;

/// How long one sweep waits for those it has killed.
const SWEEP: Duration = Duration::from_millis(200);

/// Makes this process the parent of orphans below it. Children that it has already (an `exec` hands them
/// down) are none of our business and stay.
///
/// # Errors
/// The kernel has no sub-reapers.
pub(crate) fn become_subreaper() -> io::Result<()> {
    let me = Pid::this().as_raw();
    let mut own = child_registry::own();
    // The whole process table is read only by those few that have children.
    let any = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT);
    if any != Err(Errno::ECHILD) {
        own.extend(processes::all().iter().filter(|process| process.parent == me).map(|p| p.pid));
    }
    prctl::set_child_subreaper(true)?;
    Ok(())
}

/// Ends every process that came to this one by adoption, and every one that carries the run_id, but
/// nothing below children started on purpose. Returns those that could not be ended.
pub(crate) fn end_strays(run_id: &str) -> Vec<i32> {
    end(|own, table| {
        let mut strays = adopted(own, table);
        strays.extend(carrying(run_id, own, table));
        strays
    })
}

/// Ends the commands of an agent that is dead; for whoever cleans up after it: what carries the run_id, and
/// what is in a control group named after it. Returns those that could not be ended.
pub(crate) fn end_run(run_id: &str) -> Vec<i32> {
    if run_id.is_empty() {
        return Vec::new();
    }
    let found = carrying(run_id, &child_registry::own(), &processes::all());
    // A guard knows its own better than the run_id does, and is at it already.
    let guards: Vec<Process> =
        found.iter().filter(|process| process.is_named(COMMAND_SUPERVISOR_NAME)).copied().collect();
    wait_for(&guards, GUARDS_WORK);
    cgroup::end_run(run_id);
    if found.is_empty() {
        return Vec::new();
    }
    end(|own, table| carrying(run_id, own, table))
}

/// Whether a process has come to this one by adoption: a glance at its own children, without the whole
/// process table.
pub(crate) fn has_adopted() -> bool {
    let own = child_registry::own();
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
    threads.flatten().any(|thread| {
        // A kernel without this list: only a look at the whole table would tell.
        let Ok(children) = std::fs::read_to_string(thread.path().join("children")) else {
            return true;
        };
        children.split_ascii_whitespace().flat_map(str::parse).any(|pid| !own.contains(&pid))
    })
}

/// Ends all adopted processes. Returns those that could not be ended.
pub(crate) fn end_adopted() -> Vec<i32> {
    end(adopted)
}

/// Asks all adopted processes to end, and gives them this long.
pub(in crate::os) fn ask_adopted_to_end(grace: Duration) {
    let asked = adopted(&child_registry::own(), &processes::all());
    for process in &asked {
        process.signal(Signal::SIGTERM);
        process.signal(Signal::SIGCONT);
    }
    wait_for(&asked, grace);
}

/// Kills until nobody is found any more. Who always forks and ends can slip through one look at the table,
/// hence several once there was somebody.
fn end(strays: impl Fn(&BTreeSet<i32>, &[Process]) -> Vec<Process>) -> Vec<i32> {
    let chase_ends = Instant::now() + CHASE;
    let mut deadline = Instant::now() + PATIENCE;
    let mut known: BTreeSet<(i32, u64)> = BTreeSet::new();
    let mut looks_left = 1_usize;
    loop {
        let found = {
            // Held throughout: nobody is started between the look at the table and the kill.
            let own = child_registry::own();
            let found = strays(&own, &processes::all());
            for stray in &found {
                stray.signal(Signal::SIGKILL);
            }
            found
        };
        looks_left = if found.is_empty() { looks_left.saturating_sub(1) } else { LOOKS };
        let new = found.iter().filter(|stray| known.insert((stray.pid, stray.start))).count();
        if new > 0 {
            deadline = chase_ends.min(Instant::now() + PATIENCE);
        }
        if looks_left == 0 || Instant::now() > deadline {
            return found.iter().filter(|stray| stray.lives()).map(|stray| stray.pid).collect();
        }
        wait_for(&found, SWEEP);
    }
}

/// Who is no sub-reaper has adopted nobody: its unknown children are somebody else's work.
fn adopts() -> bool {
    prctl::get_child_subreaper().unwrap_or(false)
}

/// Children that were not started on purpose, and all below them.
fn adopted(own: &BTreeSet<i32>, table: &[Process]) -> Vec<Process> {
    if !adopts() {
        return Vec::new();
    }
    let me = Pid::this().as_raw();
    let children = table.iter().filter(|process| process.parent == me).map(|p| p.pid);
    let mut strays: BTreeSet<i32> = children.filter(|pid| !own.contains(pid)).collect();
    strays.extend(processes::below(&strays, table));
    table.iter().filter(|process| strays.contains(&process.pid)).copied().collect()
}

fn carrying(run_id: &str, own: &BTreeSet<i32>, table: &[Process]) -> Vec<Process> {
    let entry = format!("{RUN_ID_VARIABLE}={run_id}");
    let mut spared = processes::below(own, table);
    spared.extend(own);
    spared.insert(Pid::this().as_raw());
    let others = table.iter().filter(|process| !spared.contains(&process.pid));
    others.filter(|process| process.carries(&entry)).copied().collect()
}

/// Waits for the end of these processes and reaps those that are children.
fn wait_for(processes: &[Process], limit: Duration) {
    let deadline = Instant::now() + limit;
    for process in processes {
        if process.lives()
            && let Ok(held) = Pidfd::open(process.pid)
        {
            held.ends_within(deadline.saturating_duration_since(Instant::now()));
        }
        if process.parent == Pid::this().as_raw() {
            reap(process);
        }
    }
}

/// Reaps an adopted child, if it has ended and is not reaped yet. Before that it kills the rest of its
/// process group: who always forks and ends can outrun a look at the table, but not a signal to its group.
fn reap(stray: &Process) {
    // Locked, so that nobody else reaps it meanwhile: until then the group's number is the group's.
    let own = child_registry::own();
    let Some(now) = Process::read(stray.pid).filter(|now| now.start == stray.start) else { return };
    let group = Pid::from_raw(now.group);
    let is_stray = group.as_raw() > 1 && group != getpgrp() && !own.contains(&now.group);
    if is_stray && now.parent == Pid::this().as_raw() && !now.lives() {
        killpg(group, Signal::SIGKILL).unwrap_or_default();
    }
    // Not dead yet, or reaped already: both are fine.
    let end = waitpid(Pid::from_raw(stray.pid), Some(WaitPidFlag::WNOHANG));
    end.map(drop).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::child;
    use std::process::{Child, Command};

    fn sleeper(run_id: &str) -> Child {
        Command::new("setsid").args(["sleep", "300"]).env(RUN_ID_VARIABLE, run_id).spawn().unwrap()
    }

    #[test]
    fn a_mark_finds_its_carriers_and_nobody_else() {
        let (run_id, other) = (uuid::Uuid::now_v7().to_string(), uuid::Uuid::now_v7().to_string());
        let mut stray = sleeper(&run_id);
        let mut foreign = sleeper(&other);
        let own =
            child::spawn(Command::new("sleep").arg("300").env(RUN_ID_VARIABLE, &run_id)).unwrap();
        // Until the exec it has our environment.
        while !Process::read(i32::try_from(stray.id()).unwrap())
            .is_some_and(|stray| stray.carries(&format!("{RUN_ID_VARIABLE}={run_id}")))
        {
            std::thread::yield_now();
        }

        assert!(end_run(&run_id).is_empty());

        // Reaped as well, so there is nothing left to wait for.
        assert!(stray.wait().is_err());
        assert!(foreign.try_wait().unwrap().is_none());
        assert!(!own.ends_within(Duration::ZERO));
        foreign.kill().unwrap();
        foreign.wait().unwrap();
        own.send_signal(Signal::SIGKILL).unwrap();
        own.wait().unwrap();
    }

    #[test]
    fn who_adopts_nobody_has_no_strays() {
        let mut child = Command::new("sleep").arg("300").spawn().unwrap();
        assert!(has_adopted(), "nobody here started it on purpose");
        assert!(end_strays(&uuid::Uuid::now_v7().to_string()).is_empty());
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
