//! The machine: clock, signals, processes, file events, the terminal.
//!
//! *Invariant:* only this layer uses `nix`, `signal-hook` and `unsafe`; it knows nothing of teams or
//! messages.

pub(crate) mod aligned_interval;
pub(crate) mod async_fd;
pub(crate) mod cgroup;
pub(crate) mod child;
pub(crate) mod child_registry;
pub(crate) mod command;
pub(crate) mod command_supervisor;
pub(crate) mod containment;
pub mod failpoint;
pub(crate) mod file;
pub(crate) mod identity;
pub(crate) mod kill_self;
pub(crate) mod lease;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod pidfd;
pub(crate) mod process_limit;
pub(crate) mod process_tree;
pub(crate) mod processes;
pub(crate) mod program;
#[cfg(test)]
pub(crate) mod pty;
pub(crate) mod safe_path;
pub(crate) mod signals;
pub(crate) mod syscall_timeout;
pub(crate) mod terminal;
pub(crate) mod terminal_size;
pub(crate) mod usage;
pub(crate) mod watch;

pub(crate) use nix::sys::signal::Signal;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seconds on the machine's monotonic clock: the same for all processes, whatever the time of day does.
pub(crate) fn uptime() -> f64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map(|now| std::time::Duration::from(now).as_secs_f64()).unwrap_or_default()
}

/// Where time comes from. Deadlines use [`Clock::monotonic`]; wall-clock time is for people and files.
pub trait Clock {
    /// Seconds since 1970.
    fn now(&self) -> f64;

    /// A clock that never jumps.
    fn monotonic(&self) -> Instant;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock everybody else must use")]
    fn now(&self) -> f64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        // Microseconds: what a double can hold without noise in its printed form.
        (since.as_secs_f64() * 1e6).round() / 1e6
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}
