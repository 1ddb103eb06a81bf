//! What a figure left behind: processes. Whoever loses its parent becomes a child of this program, so
//! nobody escapes the count.

use crate::support::harness::PATIENCE;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::time::{Duration, Instant};

/// Orphans come here from now on.
pub(crate) fn adopt_orphans() {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
}

/// Reaps; then names, and ends, every process below this one that does not end by itself.
pub(crate) fn left_behind() -> Vec<String> {
    let until = Instant::now() + PATIENCE / 4;
    while has_children() && Instant::now() < until {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let mut left = Vec::new();
    while has_children() {
        for (pid, command) in children() {
            left.push(format!("{pid} {command}"));
            let _gone = kill(pid, Signal::SIGKILL);
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    left.dedup();
    left
}

/// Takes in the dead; whether somebody still lives.
fn has_children() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

fn children() -> Vec<(Pid, String)> {
    let mine = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        if fields.split_whitespace().nth(1) == Some(mine.as_str()) {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            found.push((Pid::from_raw(pid), command.trim().to_owned()));
        }
    }
    found
}
