//! What the commands of an agent leave behind, and its end.
//!
//! A command normally dies with its guard. What escapes the guard (because the command killed it) comes
//! to the agent, which adopts orphans, and carries a mark in its environment as long as it did not
//! wipe it; either is enough to find it. The one gap: an escapee without a mark whose agent is dead too.

use super::Signal;
use super::children;
use super::pidfd::Pidfd;
use super::processes::{self, Process};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// The variable of a command's environment whose value tells whose command it is.
pub(crate) const MARK: &str = "TEAM_RUN";

/// How long the table is swept before what is left is given up: it is stuck in the kernel, or runs as
/// somebody whom we may not signal.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long one sweep waits for those it has killed.
const SWEEP: Duration = Duration::from_millis(200);

/// Makes this process the parent of orphans below it. Children that it has already (an `exec` hands them
/// down) are none of our business and stay.
///
/// # Errors
/// The kernel has no sub-reapers.
pub(crate) fn become_subreaper() -> io::Result<()> {
    let me = Pid::this().as_raw();
    let mut own = children::own();
    // The whole process table is read only by those few that have children.
    let any = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT);
    if any != Err(Errno::ECHILD) {
        own.extend(processes::all().iter().filter(|process| process.parent == me).map(|p| p.pid));
    }
    prctl::set_child_subreaper(true)?;
    Ok(())
}

/// Ends every process that came to this one by adoption, and every one that carries the mark, but
/// nothing below children started on purpose. Returns those that could not be ended.
pub(crate) fn end_strays(mark: &str) -> Vec<i32> {
    end(|own, table| {
        let mut strays = adopted(own, table);
        strays.extend(marked(mark, own, table));
        strays
    })
}

/// Ends what carries the mark of an agent that is dead; for whoever cleans up after it. Returns those
/// that could not be ended.
pub(crate) fn end_marked(mark: &str) -> Vec<i32> {
    end(|own, table| marked(mark, own, table))
}

/// Whether a process has come to this one by adoption: a glance at its own children, without the whole
/// process table.
pub(crate) fn has_adopted() -> bool {
    let own = children::own();
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
pub(super) fn ask_adopted_to_end(grace: Duration) {
    let asked = adopted(&children::own(), &processes::all());
    for process in &asked {
        process.signal(Signal::SIGTERM);
        process.signal(Signal::SIGCONT);
    }
    wait_for(&asked, grace);
}

fn end(strays: impl Fn(&BTreeSet<i32>, &[Process]) -> Vec<Process>) -> Vec<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = {
            // Held throughout: nobody is started between the look at the table and the kill.
            let own = children::own();
            let found = strays(&own, &processes::all());
            for stray in &found {
                stray.signal(Signal::SIGKILL);
            }
            found
        };
        if found.is_empty() || Instant::now() > deadline {
            return found.iter().filter(|stray| stray.lives()).map(|stray| stray.pid).collect();
        }
        wait_for(&found, SWEEP);
    }
}

/// Children that were not started on purpose, and all below them.
fn adopted(own: &BTreeSet<i32>, table: &[Process]) -> Vec<Process> {
    // Who is no sub-reaper has adopted nobody: its unknown children are somebody else's work.
    if !prctl::get_child_subreaper().unwrap_or(false) {
        return Vec::new();
    }
    let me = Pid::this().as_raw();
    let children = table.iter().filter(|process| process.parent == me).map(|p| p.pid);
    let mut strays: BTreeSet<i32> = children.filter(|pid| !own.contains(pid)).collect();
    strays.extend(processes::below(&strays, table));
    table.iter().filter(|process| strays.contains(&process.pid)).copied().collect()
}

fn marked(mark: &str, own: &BTreeSet<i32>, table: &[Process]) -> Vec<Process> {
    let entry = format!("{MARK}={mark}");
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
            // An error means that it has been reaped already.
            let end = waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG));
            end.map(drop).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper(mark: &str) -> Child {
        Command::new("setsid").args(["sleep", "300"]).env(MARK, mark).spawn().unwrap()
    }

    #[test]
    fn a_mark_finds_its_carriers_and_nobody_else() {
        let (mark, other) = (uuid::Uuid::now_v7().to_string(), uuid::Uuid::now_v7().to_string());
        let mut stray = sleeper(&mark);
        let mut foreign = sleeper(&other);
        let own = children::spawn(Command::new("sleep").arg("300").env(MARK, &mark)).unwrap();
        // Until the exec it has our environment.
        while !Process::read(i32::try_from(stray.id()).unwrap())
            .is_some_and(|stray| stray.carries(&format!("{MARK}={mark}")))
        {
            std::thread::yield_now();
        }

        assert!(end_marked(&mark).is_empty());

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
