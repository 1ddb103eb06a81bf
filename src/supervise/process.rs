//! One process of the team, seen from outside: signals, its end, and whether it is stuck.
//!
//! *Invariant:* a process is signalled only through a pidfd, after its start time and boot id were
//! compared.

use crate::os::Signal;
use crate::os::async_fd::ReadableFd;
use crate::os::identity;
use crate::os::pidfd::Pidfd;
use crate::store::{LifeRecord, Liveness, TeamDir, liveness};
use crate::wire::AgentName;
use std::io;
use std::pin::Pin;
use std::time::Duration;

/// How long a killed process may take to end on a machine without a free processor.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// Interval at which a killed process is checked for being stuck in the kernel.
const STUCK_CHECK_EVERY: Duration = Duration::from_millis(100);

/// Consecutive checks that must find a process inside the kernel before it counts as stuck.
const STUCK_CHECKS: u32 = 5;

/// Interval at which a life lock is probed once the process has ended or cannot be watched.
const PROBE_EVERY: Duration = Duration::from_millis(10);

/// Opens the process of a life record; `None` if it has ended.
pub(super) fn open_checked(record: &LifeRecord) -> Option<Pidfd> {
    // Opened before the comparison: a descriptor refers to one process for ever, a number does not.
    let process = Pidfd::open(record.pid).ok()?;
    record.process().is_running().then_some(process)
}

/// Sends SIGTERM, and SIGCONT so that a stopped process receives it.
pub(super) fn terminate(process: &Pidfd) -> io::Result<()> {
    process.send_signal(Signal::SIGTERM)?;
    process.send_signal(Signal::SIGCONT)
}

/// Sends SIGKILL to the process, and to its group if it leads one. A member started by hand may belong to
/// the group of its shell.
pub(super) fn kill(process: &Pidfd) -> io::Result<()> {
    process.signal_group(Signal::SIGKILL)
}

/// Waits until the process has ended.
pub(super) async fn ended(process: &Pidfd) -> io::Result<()> {
    ReadableFd::to_read(process)?.wait().await
}

/// Waits until the process has ended and its life lock is free.
pub(super) async fn wait_gone(dir: &TeamDir, name: &AgentName, process: Option<&Pidfd>) {
    if let Some(process) = process
        && let Err(why) = ended(process).await
    {
        tracing::warn!(%name, %why, "cannot wait for the process");
    }
    // The kernel releases the lock with the process. Without a pidfd, the lock is all there is to see.
    while matches!(liveness::probe(dir, name), Ok(Liveness::Alive(_))) {
        tokio::time::sleep(PROBE_EVERY).await;
    }
}

/// Waits for a process after SIGKILL. Returns whether it has gone; if not, it is stuck in the kernel, or the
/// machine is too busy to run it.
pub(super) async fn gone_after_kill(
    process: Option<&Pidfd>,
    mut gone: Pin<&mut impl Future<Output = ()>>,
) -> bool {
    let mut stuck = 0;
    for _ in 0..KILLED_WITHIN.as_millis() / STUCK_CHECK_EVERY.as_millis() {
        let is_in_kernel = process.is_none_or(|process| identity::is_in_kernel(process.pid()));
        stuck = if is_in_kernel { stuck + 1 } else { 0 };
        if stuck > STUCK_CHECKS {
            break;
        }
        if tokio::time::timeout(STUCK_CHECK_EVERY, gone.as_mut()).await.is_ok() {
            return true;
        }
    }
    false
}
