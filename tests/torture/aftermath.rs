//! Processes that a figure left behind. This program is a subreaper: it adopts the orphans of its children, so
//! none is missed.

use crate::support::harness::PATIENCE;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Makes this process adopt the orphans among its descendants.
pub(crate) fn adopt_orphans() {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
}

/// Runs a command to its end. Meanwhile it reaps adopted processes, which would fill the process table as zombies.
/// Returns whether it succeeded, its output and its error output.
pub(crate) fn run_and_reap(command: &mut Command) -> (bool, String, String) {
    let [out, err] =
        [tempfile::NamedTempFile::new(), tempfile::NamedTempFile::new()].map(Result::unwrap);
    command.stdout(out.reopen().unwrap()).stderr(err.reopen().unwrap());
    let child = Pid::from_raw(command.spawn().unwrap().id().try_into().unwrap());
    let succeeded = loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => break code == 0,
            Ok(WaitStatus::Signaled(pid, ..)) if pid == child => break false,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(why) => panic!("the command cannot be waited for: {why}"),
        }
    };
    let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    (succeeded, text(out.path()), text(err.path()))
}

/// Waits for descendants to exit, then kills those that remain. Returns their pids and command lines.
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

/// Reaps zombies. Returns whether a child is still alive.
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
