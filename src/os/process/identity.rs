//! Identifies a process. Its pid alone is not enough, because it may have been reused.
//!
//! Linux only: it reads `/proc`.

use super::processes::Process;
use serde::{Deserialize, Serialize};
use std::fs;

/// The identity of a process, which differs from that of every other process with the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The pid.
    pub pid: i32,
    /// The start time in clock ticks since boot.
    pub start_time: u64,
    /// The id of the boot of the machine during which the process runs.
    pub boot_id: String,
}

impl ProcessIdentity {
    /// Returns the identity of this process.
    pub fn current() -> Self {
        let pid = nix::unistd::getpid().as_raw();
        Self::of(pid).unwrap_or(Self { pid, start_time: 0, boot_id: String::new() })
    }

    /// Returns the identity of the process with `pid`; `None` if there is none, or if it waits to be reaped.
    pub fn of(pid: i32) -> Option<Self> {
        let process = Process::read(pid).filter(|process| !process.is_dead())?;
        Some(Self { pid, start_time: process.start, boot_id: boot_id() })
    }

    /// Whether exactly this process is running.
    pub fn is_running(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }
}

/// Whether a thread of the process waits in the kernel uninterruptibly (state D).
pub(crate) fn is_in_kernel(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.into_iter().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('D'))
    })
}

/// Returns the id of this boot of the machine; empty if the system does not report it.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The number of times that the locks of the machine are read to find one holder.
const LOOKS: usize = 20;

/// Finds the process that holds a `flock` on the inode in `/proc/locks`; returns its pid and its command. One
/// read can miss a lock: the kernel returns the list in parts, and an entry moves when other locks are taken or
/// released.
pub(crate) fn lock_holder(inode: u64) -> Option<(i32, String)> {
    let look = || fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = (0..LOOKS).find_map(|_| look().lines().find_map(|line| holder_in(line, inode)))?;
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, command.trim().to_owned()))
}

/// Returns the holder of a lock on the inode in a line such as
/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:123456 0 EOF`; the line of a waiter has `->` after the number.
fn holder_in(line: &str, inode: u64) -> Option<i32> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok()?;
    let number: u64 = words.next()?.rsplit(':').next()?.parse().ok()?;
    (number == inode).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_process_is_running_until_it_ends_even_when_nobody_reaps_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let identity = ProcessIdentity::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(identity.is_running());
        child.kill().unwrap();
        while identity.is_running() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!identity.is_running());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test takes its own locks")]
    fn a_lock_is_found_while_others_come_and_go() {
        const OTHERS: usize = 2;
        let held = tempfile::NamedTempFile::new().unwrap();
        held.as_file().lock().unwrap();
        let inode = held.as_file().metadata().unwrap().ino();
        let (is_over, under_way) = (AtomicBool::new(false), Barrier::new(OTHERS + 1));
        let take_and_release = || {
            let files: Vec<File> = (0..200).map(|_| tempfile::tempfile().unwrap()).collect();
            under_way.wait();
            while !is_over.load(Ordering::Relaxed) {
                for file in &files {
                    file.lock().unwrap();
                }
                for file in &files {
                    file.unlock().unwrap();
                }
            }
        };
        std::thread::scope(|threads| {
            for _ in 0..OTHERS {
                threads.spawn(take_and_release);
            }
            under_way.wait();
            let missed = (0..300).filter(|_| lock_holder(inode).is_none()).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }

    #[test]
    fn another_start_or_another_boot_is_another_process() {
        let me = ProcessIdentity::current();
        assert!(me.is_running());
        assert!(!ProcessIdentity { start_time: me.start_time + 1, ..me.clone() }.is_running());
        assert!(!ProcessIdentity { boot_id: "another".into(), ..me }.is_running());
        assert_eq!([0, -1].map(ProcessIdentity::of), [None, None]);
    }

    #[test]
    fn a_process_that_waits_for_a_lock_is_not_its_holder() {
        for (line, inode, holder) in [
            ("3: -> FLOCK  ADVISORY  WRITE 9 fe:00:77 0 EOF", 77, None),
            ("3: FLOCK  ADVISORY  WRITE 9 fe:00:77 0 EOF", 77, Some(9)),
            ("3: FLOCK  ADVISORY  WRITE 9 fe:00:77 0 EOF", 7, None),
        ] {
            assert_eq!(holder_in(line, inode), holder, "{line}");
        }
    }
}
