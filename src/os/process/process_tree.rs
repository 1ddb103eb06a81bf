//! Finds and ends the processes that commands of an agent leave behind.
//!
//! A command normally ends with its supervisor. A process that escapes (because the command killed its
//! supervisor) is found in three ways, each of which suffices: the agent adopts it, it carries a `run_id` in its
//! environment unless it removed that, and it is in a control group where available. One gap remains on machines
//! without such groups. If supervisor and agent are killed at once, a process is missed if it has removed its
//! `run_id`, or if it forks and exits faster than the process table can be read.

use super::cgroup;
use super::pidfd::{Pidfd, own};
use super::processes::{self, Process};
use super::program::COMMAND_SUPERVISOR_NAME;
use crate::os::Signal;
use crate::os::wall::outbox::OutboxText;
use crate::os::wall::temp_folder;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::killpg;
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::{Pid, getpgrp};
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// The environment variable that contains the `run_id` of a command.
pub(crate) const RUN_ID_VARIABLE: &str = "TEAM_RUN";

/// The time for which scans may find only processes that were killed before. After it, [`end`] gives up: these
/// processes are stuck in the kernel or belong to another user.
const STUCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The time for which [`end`] kills processes that fork faster than they are killed, as on a busy machine.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that the supervisors of a dead agent have to end its commands. Only a stuck one needs so long.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of empty scans in a row that [`end`] requires after it has found a process.
const EMPTY_SCANS: usize = 3;

/// The time for which [`end`] waits after a scan for the processes that it has killed.
const REAP_WAIT: Duration = Duration::from_millis(200);

/// Makes this process the parent of orphans below it. Children that it already has, from before an `exec`, count
/// as its own. Fails where the kernel does not support subreapers.
pub(crate) fn become_subreaper() -> io::Result<()> {
    let mut own = own();
    // The process table is read only if there are children.
    if has_children() {
        own.extend(children_of_this(&processes::all()));
    }
    Ok(prctl::set_child_subreaper(true)?)
}

/// Whether this process has a child, also one that has exited and was not reaped.
fn has_children() -> bool {
    let any = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, any | WaitPidFlag::__WALL) != Err(Errno::ECHILD)
}

/// Whether unknown children of this process are adopted ones. In a process that is no subreaper, they were
/// started by other code.
pub(crate) fn is_subreaper() -> bool {
    prctl::get_child_subreaper().unwrap_or(false)
}

/// Kills adopted processes and those with the `run_id`, but none below registered children. Returns the pids of
/// the survivors.
pub(crate) fn end_strays(run_id: &str) -> Vec<i32> {
    end(|own, table| [adopted(own, table), carrying(run_id, own, table)].concat())
}

/// Kills the commands of a dead agent, found by the `run_id` and the control group named after it, and removes
/// their temporary files. Before, `keep` gets the mail in their outboxes; if it fails, the files stay. Returns the
/// pids of the survivors.
pub(crate) fn end_run(run_id: &str, keep: impl FnOnce(&[OutboxText]) -> bool) -> Vec<i32> {
    if run_id.is_empty() {
        return Vec::new();
    }
    let found = carrying(run_id, &own(), &processes::all());
    // A supervisor finds its processes most reliably, and is already ending them.
    let supervisors: Vec<Process> =
        found.iter().filter(|process| process.is_named(COMMAND_SUPERVISOR_NAME)).copied().collect();
    wait_for(&supervisors, SUPERVISOR_TIMEOUT);
    cgroup::end_run(run_id);
    let survivors =
        if found.is_empty() { Vec::new() } else { end(|own, table| carrying(run_id, own, table)) };
    let outboxes = temp_folder::read_left_outboxes(run_id);
    if outboxes.is_empty() || keep(&outboxes) {
        temp_folder::remove_left(run_id);
    }
    survivors
}

/// Whether this process has adopted another one; `true` if the kernel does not list children. Reads only the
/// children of this process, not the process table.
pub(crate) fn has_adopted() -> bool {
    let own = own();
    // Without the list, only the whole process table could answer.
    listed_children().is_none_or(|children| children.iter().any(|pid| !own.contains(pid)))
}

/// Kills all adopted processes. Returns the pids of the survivors.
pub(crate) fn end_adopted() -> Vec<i32> {
    reap_adopted();
    // Each process below a subreaper has an ancestor among its children. The process table is slow to read.
    if is_subreaper() && !has_children() { Vec::new() } else { end(adopted) }
}

/// Sends SIGTERM to all adopted processes, continues stopped ones, and waits at most `grace` for their exit.
pub(in crate::os) fn ask_adopted_to_end(grace: Duration) {
    let asked = adopted(&own(), &processes::all());
    for process in &asked {
        process.signal(Signal::SIGTERM);
        process.signal(Signal::SIGCONT);
    }
    wait_for(&asked, grace);
}

/// Kills until no process is found. A process that forks and exits in a loop can be missed by one scan of the
/// process table, so the scan is repeated until several in a row find nothing. Exited processes are reaped before
/// each scan: otherwise they fill the table, and a scan of it takes seconds. Returns the pids of the survivors.
fn end(strays: impl Fn(&BTreeSet<i32>, &[Process]) -> Vec<Process>) -> Vec<i32> {
    let kill_ends = Instant::now() + KILL_TIMEOUT;
    let mut deadline = Instant::now() + STUCK_TIMEOUT;
    let mut known: BTreeSet<(i32, u64)> = BTreeSet::new();
    let mut scans_left = 1_usize;
    loop {
        reap_adopted();
        // Held until the kill, so that no child is started between the scan and the kill.
        let own = own();
        let found = strays(&own, &processes::all());
        for stray in &found {
            stray.signal(Signal::SIGKILL);
        }
        drop(own);
        scans_left = if found.is_empty() { scans_left.saturating_sub(1) } else { EMPTY_SCANS };
        let new = found.iter().filter(|stray| known.insert((stray.pid, stray.start))).count();
        if new > 0 {
            deadline = kill_ends.min(Instant::now() + STUCK_TIMEOUT);
        }
        if scans_left == 0 || Instant::now() > deadline {
            return found.iter().filter(|stray| stray.can_run()).map(|stray| stray.pid).collect();
        }
        wait_for(&found, REAP_WAIT);
    }
}

/// Returns the children of this process; `None` if the kernel does not list them.
fn listed_children() -> Option<Vec<i32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let listed = std::fs::read_to_string(thread.path().join("children")).ok()?;
        children.extend(listed.split_ascii_whitespace().flat_map(str::parse::<i32>));
    }
    Some(children)
}

fn children_of_this(table: &[Process]) -> impl Iterator<Item = i32> {
    let me = Pid::this().as_raw();
    table.iter().filter(move |process| process.parent == me).map(|process| process.pid)
}

/// Returns the children that were not registered, and all processes below them.
fn adopted(own: &BTreeSet<i32>, table: &[Process]) -> Vec<Process> {
    if !is_subreaper() {
        return Vec::new();
    }
    let unknown = children_of_this(table).filter(|pid| !own.contains(pid));
    let mut strays: BTreeSet<i32> = unknown.collect();
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

/// Waits for the exit of the processes and reaps those that are children.
fn wait_for(processes: &[Process], limit: Duration) {
    let deadline = Instant::now() + limit;
    for process in processes {
        if process.can_run()
            && let Ok(held) = Pidfd::open(process.pid)
        {
            held.ends_within(deadline.saturating_duration_since(Instant::now()));
        }
        if process.parent == Pid::this().as_raw() {
            reap(process);
        }
    }
}

/// Reaps all adopted children that have exited. Reads only the children, not the process table.
fn reap_adopted() {
    if !is_subreaper() {
        return;
    }
    let children = listed_children().unwrap_or_default();
    let unknown = children.into_iter().filter(|pid| !own().contains(pid));
    unknown.filter_map(Process::read).for_each(|child| reap(&child));
}

/// Reaps an adopted child that has exited, and first kills the rest of its process group: a process that
/// forks and exits in a loop can escape a scan, but not a signal to its group.
fn reap(stray: &Process) {
    // Locked, so that no other thread reaps the child: until it is reaped, the number of its group is not reused.
    let own = own();
    let is_same = |now: &Process| now.start == stray.start && now.parent == Pid::this().as_raw();
    let Some(now) = Process::read(stray.pid).filter(is_same) else { return };
    // The child may exit right after this was read. Then the next scan finds it.
    if now.can_run() {
        return;
    }
    let group = Pid::from_raw(now.group);
    if group.as_raw() > 1 && group != getpgrp() && !own.contains(&now.group) {
        killpg(group, Signal::SIGKILL).unwrap_or_default();
    }
    let _reaped = waitpid(Pid::from_raw(stray.pid), Some(WaitPidFlag::WNOHANG));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::child;
    use crate::os::program::{assert_passes, test_process};
    use std::process::Command;

    #[test]
    fn a_run_id_finds_only_the_processes_that_carry_it() {
        let [run_id, other] = [uuid::Uuid::now_v7().to_string(), uuid::Uuid::now_v7().to_string()];
        let sleeper = |run_id| {
            let mut sleep = Command::new("setsid");
            sleep.args(["sleep", "300"]).env(RUN_ID_VARIABLE, run_id);
            sleep
        };
        let mut stray = sleeper(&run_id).spawn().unwrap();
        let mut foreign = sleeper(&other).spawn().unwrap();
        let own = child::spawn(&mut sleeper(&run_id)).unwrap();
        // Before the exec it has the environment of this process.
        while !Process::read(i32::try_from(stray.id()).unwrap())
            .is_some_and(|stray| stray.carries(&format!("{RUN_ID_VARIABLE}={run_id}")))
        {
            std::thread::yield_now();
        }

        assert!(end_run(&run_id, |_| true).is_empty());

        // The stray was reaped as well.
        assert!(stray.wait().is_err());
        assert!(foreign.try_wait().unwrap().is_none());
        assert!(!own.ends_within(Duration::ZERO));
        foreign.kill().unwrap();
        foreign.wait().unwrap();
        own.send_signal(Signal::SIGKILL).unwrap();
        own.wait().unwrap();
    }

    /// The environment variable with the folder of [`adopts_a_respawning_process`].
    const FOLDER: &str = "TEAM_TEST_RESPAWN";

    /// Not a test by itself: a process that adopts another one, which keeps replacing itself by a new one.
    #[test]
    fn adopts_a_respawning_process() {
        let Some((_, folder)) = std::env::vars().find(|(name, _)| name == FOLDER) else { return };
        become_subreaper().unwrap();
        let mut first = Command::new("setsid");
        first
            .args(["sh", "-c", "echo 'sh ./respawn &' >respawn; sh ./respawn"])
            .current_dir(folder);
        assert!(first.status().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(60);
        while listed_children().is_some_and(|children| !children.is_empty()) {
            reap_adopted();
            assert!(Instant::now() < deadline, "it still respawns");
        }
    }

    #[test]
    fn a_process_that_outruns_a_scan_is_ended_with_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let name = "os::process::process_tree::tests::adopts_a_respawning_process";
        assert_passes(test_process(name).env(FOLDER, folder.path()));
    }

    #[test]
    fn children_of_a_process_that_is_no_subreaper_are_no_strays() {
        let mut child = Command::new("sleep").arg("300").spawn().unwrap();
        assert!(has_adopted(), "nobody here started it on purpose");
        assert!(end_strays(&uuid::Uuid::now_v7().to_string()).is_empty());
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
