//! The process table as `/proc` shows it: who is whose child, who still lives, who carries a mark.

use super::pidfd::Pidfd;
use crate::os::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

/// More than a line of `/proc/PID/stat` can have.
const LONGEST_LINE: usize = 2048;

/// One row of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its pid; names it only together with `start`.
    pub(crate) pid: i32,
    /// Its parent's pid.
    pub(crate) parent: i32,
    /// Its process group.
    pub(crate) group: i32,
    /// When it started, in clock ticks since boot.
    pub(crate) start: u64,
    /// How many threads it has.
    pub(crate) threads: u64,
    state: u8,
}

impl Process {
    /// The process that has this pid now.
    pub(crate) fn read(pid: i32) -> Option<Self> {
        // The kernel gives the whole line to one read that has room for it.
        let mut line = [0; LONGEST_LINE];
        let read =
            File::open(format!("/proc/{pid}/stat")).and_then(|mut stat| stat.read(&mut line));
        Self::parse(pid, line.get(..read.ok()?)?)
    }

    fn parse(pid: i32, stat: &[u8]) -> Option<Self> {
        // The name stands in parentheses and may hold anything, also parentheses.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let fields = std::str::from_utf8(stat.get(after_name..)?).ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        Some(Self {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// It can still run code. A process whose first thread has ended looks like a zombie but has
    /// other threads.
    pub(crate) fn lives(&self) -> bool {
        !matches!(self.state, b'Z' | b'X') || self.threads > 1
    }

    /// Signals it if the pid is still its own; a process that is gone needs no signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let Ok(held) = Pidfd::open(self.pid) else { return };
        if Self::read(self.pid).is_some_and(|now| now.start == self.start) {
            held.send_signal(signal).unwrap_or_default();
        }
    }

    /// It shows this name.
    pub(crate) fn is_named(&self, name: &CStr) -> bool {
        let shown = std::fs::read(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        shown.strip_suffix(b"\n") == Some(name.to_bytes())
    }

    /// Its environment holds this entry (`NAME=value`), as far as we may look.
    pub(crate) fn carries(&self, entry: &str) -> bool {
        std::fs::read(format!("/proc/{}/environ", self.pid)).is_ok_and(|environment| {
            environment.split(|byte| *byte == 0).any(|var| var == entry.as_bytes())
        })
    }
}

/// All processes that we may see, zombies included.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| std::str::from_utf8(name.as_bytes()).ok()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// The pids of everything below these ancestors, themselves not included.
pub(crate) fn below(ancestors: &BTreeSet<i32>, table: &[Process]) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in table {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let mut found = BTreeSet::new();
    let mut open: Vec<i32> = ancestors.iter().copied().collect();
    while let Some(pid) = open.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            found.insert(child);
            open.push(child);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::child;
    use std::process::Command;

    #[test]
    fn reads_names_with_parentheses_and_threads_of_a_dead_leader() {
        let line = b"7 (a) b (c\xff)) Z 3 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 2 0 991 0 0";
        let process = Process::parse(7, line).unwrap();
        let numbers = (process.parent, process.group, process.threads, process.start);
        assert_eq!(numbers, (3, 7, 2, 991));
        assert!(process.lives());
        assert_eq!(Process::parse(7, b"7 (a) Z 3"), None);
    }

    #[test]
    fn finds_grandchildren_and_their_marks() {
        let mark = format!("MARK={}", uuid::Uuid::now_v7());
        let (name, value) = mark.split_once('=').unwrap();
        let child =
            child::spawn(Command::new("sh").env(name, value).args(["-c", "sleep 300; true"]))
                .unwrap();
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
        assert!(grandchild.carries(&mark) && !grandchild.carries("MARK="));
        let stale = Process { start: grandchild.start + 1, ..grandchild };
        stale.signal(Signal::SIGKILL);
        assert!(!child.ends_within(std::time::Duration::ZERO));
        grandchild.signal(Signal::SIGKILL);
        child.wait().unwrap();
    }
}
