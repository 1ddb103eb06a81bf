//! The limit of processes of one command, which stops a fork bomb without privileges.
//!
//! The limit of the kernel (`RLIMIT_NPROC`) counts all processes of the user and does not bind root, so it
//! is only the second line of defence.

use crate::os::process::processes;
use crate::wire::limits::COMMAND_PROCESSES;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// The period of the cheap check.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The period of the exact count: other processes may have exited while these grew.
const COUNT_EVERY: Duration = Duration::from_secs(2);

/// The number of threads that a command may start beyond those of the machine.
const THREADS: u64 = 2048;

/// Counts the processes below this one now and then.
#[derive(Debug)]
pub(super) struct ProcessLimit {
    /// The fewest threads of the machine since the command began.
    fewest_threads: u64,
    checked: Instant,
    counted: Instant,
}

impl ProcessLimit {
    /// Starts to count.
    pub(super) fn watch() -> Self {
        let now = Instant::now();
        Self { fewest_threads: threads_of_machine(), checked: now, counted: now }
    }

    /// Whether there are more than [`COMMAND_PROCESSES`]. They are counted rarely until the machine as a
    /// whole has grown by that number, which is cheap to know.
    pub(super) fn is_exceeded(&mut self) -> bool {
        if self.checked.elapsed() < LOOK_EVERY {
            return false;
        }
        self.checked = Instant::now();
        let now = threads_of_machine();
        self.fewest_threads = self.fewest_threads.min(now);
        let growth = usize::try_from(now - self.fewest_threads).unwrap_or(usize::MAX);
        if growth <= COMMAND_PROCESSES && self.counted.elapsed() < COUNT_EVERY {
            return false;
        }
        self.counted = Instant::now();
        let me = nix::unistd::Pid::this().as_raw();
        processes::below(&BTreeSet::from([me]), &processes::all()).len() > COMMAND_PROCESSES
    }
}

/// `0.20 0.18 0.12 1/80 11206`: the number behind the slash.
fn threads_of_machine() -> u64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let threads = load.split(['/', ' ']).nth(4).and_then(|word| word.parse().ok());
    threads.unwrap_or_default()
}

/// Sets the kernel's limit, for a bomb that grows faster than it is counted.
pub(super) fn limit_threads() -> nix::Result<()> {
    let running: u64 = processes::all().iter().map(|process| process.threads).sum();
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
    let limit = hard.min(running + THREADS);
    setrlimit(Resource::RLIMIT_NPROC, limit, limit)
}
