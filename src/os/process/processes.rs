//! The process table of `/proc`: parents, groups, states and environments.

use super::pidfd::Pidfd;
use crate::os::Signal;
use crate::os::event::event_loop::check_blocking;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

/// The longest line of `/proc/PID/stat` in bytes.
const LONGEST_LINE: usize = 2048;

/// The size in bytes of an environment that is read in one call.
const USUAL_ENVIRONMENT: usize = 32 * 1024;

/// The maximum number of reads of an environment, and the pause between them: a process that executes a program
/// has no environment for less than a millisecond, unless the machine is busy.
const EXEC_LOOKS: u32 = 1000;
const EXEC_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// The pid, which identifies the process only together with `start`.
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// The start time in clock ticks since boot.
    pub(crate) start: u64,
    pub(crate) threads: u64,
    state: u8,
}

impl Process {
    pub(crate) fn read(pid: i32) -> Option<Self> {
        // One read into a large enough buffer returns the whole line.
        let mut line = [0; LONGEST_LINE];
        let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
        Self::parse(pid, line.get(..length)?)
    }

    fn parse(pid: i32, stat: &[u8]) -> Option<Self> {
        // The name is in parentheses and may contain anything, parentheses included.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let fields = std::str::from_utf8(stat.get(after_name..)?).ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        Some(Self {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether the first thread of the process has exited.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Whether the process can run code. A process whose first thread has exited is shown as a zombie, but its
    /// other threads run.
    pub(crate) fn can_run(&self) -> bool {
        !self.is_dead() || self.threads > 1
    }

    /// Sends a signal to the process, unless its pid was reused.
    pub(crate) fn signal(&self, signal: Signal) {
        let Ok(held) = Pidfd::open(self.pid) else { return };
        if Self::read(self.pid).is_some_and(|now| now.start == self.start) {
            held.send_signal(signal).unwrap_or_default();
        }
    }

    /// Whether the process has this name in `ps`.
    pub(crate) fn is_named(&self, name: &CStr) -> bool {
        let shown = std::fs::read(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        shown.strip_suffix(b"\n") == Some(name.to_bytes())
    }

    /// Whether the environment of the process contains an entry (`NAME=value`); `false` if it cannot be read.
    /// Waits while the process executes a program, because it has no environment then.
    pub(crate) fn carries(&self, entry: &str) -> bool {
        check_blocking("sleep");
        for _ in 0..EXEC_LOOKS {
            let Ok(environment) = self.environment() else { return false };
            if !environment.is_empty() || self.is_without_environment() {
                return environment.split(|byte| *byte == 0).any(|var| var == entry.as_bytes());
            }
            std::thread::park_timeout(EXEC_PAUSE);
        }
        false
    }

    /// Reads the environment in one call if it is not longer than usual: an `execve` between two calls would
    /// cut it off.
    fn environment(&self) -> io::Result<Vec<u8>> {
        let mut file = File::open(format!("/proc/{}/environ", self.pid))?;
        let mut environment = vec![0; USUAL_ENVIRONMENT];
        let length = file.read(&mut environment)?;
        environment.truncate(length);
        if length == USUAL_ENVIRONMENT {
            file.read_to_end(&mut environment)?;
        }
        Ok(environment)
    }

    /// Whether the process has exited, is a kernel thread, or runs a program with an empty environment. In the
    /// middle of an `execve` it has memory, but its code has no address yet.
    fn is_without_environment(&self) -> bool {
        let line = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let Some((_, fields)) = line.rsplit_once(')') else { return true };
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field =
            |at: usize| fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0_u64);
        let (memory, code, environment) = (field(20), field(23), field(48).abs_diff(field(47)));
        memory == 0 || (code > 0 && environment == 0)
    }
}

/// Reads all visible processes, zombies included.
pub(crate) fn all() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// Returns the ancestors of this process, nearest first.
pub(crate) fn ancestors() -> Vec<Process> {
    let above = |process: &Process| Process::read(process.parent);
    let me = Process::read(nix::unistd::Pid::this().as_raw());
    std::iter::successors(me.as_ref().and_then(above), above).collect()
}

/// Returns the memory of a process in bytes: its share of the pages that it has, or all of them if that is not to be read.
pub(crate) fn memory_bytes(pid: i32) -> Option<u64> {
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kilobytes * 1024)
    };
    field("smaps_rollup", "Pss:").or_else(|| field("status", "VmRSS:"))
}

/// Returns the processes below these ones.
pub(crate) fn below(ancestors: &BTreeSet<i32>, table: &[Process]) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in table {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let mut found = BTreeSet::new();
    let mut open: Vec<i32> = ancestors.iter().copied().collect();
    while let Some(pid) = open.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(&below);
        open.extend(below);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::child;
    use std::io::Write;
    use std::process::Command;

    #[test]
    fn reads_names_with_parentheses_and_threads_of_a_dead_leader() {
        let line = b"7 (a) b (c\xff)) Z 3 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 2 0 991 0 0";
        let process = Process::parse(7, line).unwrap();
        let numbers = (process.parent, process.group, process.threads, process.start);
        assert_eq!(numbers, (3, 7, 2, 991));
        assert!(process.is_dead() && process.can_run());
        assert_eq!(Process::parse(7, b"7 (a) Z 3"), None);
    }

    #[test]
    fn an_environment_is_read_while_the_process_executes_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("again");
        File::create(script).unwrap().write_all(b"exec sh ./again").unwrap();
        let mut again = Command::new("sh");
        again.arg("./again").env("MARK", "1").current_dir(folder.path());
        let child = child::spawn(&mut again).unwrap();
        let process = Process::read(child.pid()).unwrap();
        let missed = (0..2000).filter(|_| !process.carries("MARK=1")).count();
        child.send_signal(Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert_eq!(missed, 0);
        assert!(!process.carries("MARK=1"), "it has exited");
    }

    #[test]
    fn finds_grandchildren_and_their_run_ids() {
        let value = uuid::Uuid::now_v7().to_string();
        let mut shell = Command::new("sh");
        shell.env("MARK", &value).args(["-c", "sleep 300; true"]);
        let child = child::spawn(&mut shell).unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let grandchild = loop {
            let table = all();
            let below_child = below(&BTreeSet::from([child.pid()]), &table);
            assert!(below(&BTreeSet::from([me]), &table).is_superset(&below_child));
            if let Some(pid) = below_child.first() {
                break Process::read(*pid).unwrap();
            }
            std::thread::yield_now();
        };
        assert!(grandchild.carries(&format!("MARK={value}")) && !grandchild.carries("MARK="));
        let stale = Process { start: grandchild.start + 1, ..grandchild };
        stale.signal(Signal::SIGKILL);
        assert!(!child.ends_within(std::time::Duration::ZERO));
        grandchild.signal(Signal::SIGKILL);
        child.wait().unwrap();
    }
}
