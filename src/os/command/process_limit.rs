//! How many processes a command may have at once: an end for a fork bomb that needs no privilege.
//!
//! The kernel's own limit (`RLIMIT_NPROC`) counts everything that the user runs and does not hold root,
//! so it only stands far behind this one.

use crate::os::process::processes;
use crate::wire::limits::COMMAND_PROCESSES;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// How often somebody looks whether they may be too many.
pub(in crate::os) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often they are counted anyway: others may have ended while these grew.
const COUNT_EVERY: Duration = Duration::from_secs(2);

/// How many more threads a command may start than the machine runs already.
const THREADS: u64 = 2048;

/// The processes below this one, counted now and then.
#[derive(Debug)]
pub(in crate::os) struct ProcessLimit {
    /// The fewest threads the machine has had since the command began.
    calm: u64,
    looked: Instant,
    counted: Instant,
}

impl ProcessLimit {
    /// Begins to watch.
    pub(in crate::os) fn watch() -> Self {
        let now = Instant::now();
        Self { calm: threads_of_machine(), looked: now, counted: now }
    }

    /// Whether there are more than [`COMMAND_PROCESSES`] now. They are counted seldom as long as the machine as a whole
    /// has not grown by so many, which costs next to nothing to know.
    pub(in crate::os) fn is_too_large(&mut self) -> bool {
        if self.looked.elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked = Instant::now();
        let now = threads_of_machine();
        self.calm = self.calm.min(now);
        let has_grown = usize::try_from(now - self.calm).unwrap_or(usize::MAX) > COMMAND_PROCESSES;
        if !has_grown && self.counted.elapsed() < COUNT_EVERY {
            return false;
        }
        self.counted = Instant::now();
        below_us() > COMMAND_PROCESSES
    }
}

fn below_us() -> usize {
    let me = nix::unistd::Pid::this().as_raw();
    processes::below(&BTreeSet::from([me]), &processes::all()).len()
}

/// `0.20 0.18 0.12 1/80 11206`: the number behind the slash.
fn threads_of_machine() -> u64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let threads = load.split(['/', ' ']).nth(4).and_then(|word| word.parse().ok());
    threads.unwrap_or_default()
}

/// A second end for a bomb that grows faster than it is counted.
pub(in crate::os) fn limit_threads() -> nix::Result<()> {
    let running: u64 = processes::all().iter().map(|process| process.threads).sum();
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
    let limit = hard.min(running + THREADS);
    setrlimit(Resource::RLIMIT_NPROC, limit, limit)
}
