//! A process that is held by a descriptor, so that signals and waits cannot hit another process with a reused pid.
//!
//! *Invariant:* every child of an agent process is started by [`spawn`](super::child::spawn), which
//! registers it here, and reaped by [`Pidfd::wait`]. An agent process is a subreaper, so it also becomes the
//! parent of processes that its commands leave behind: any other child counts as a stray and is killed.

use crate::os::Signal;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// `PIDFD_SIGNAL_PROCESS_GROUP` of the kernel's `pidfd.h`.
const SIGNAL_PROCESS_GROUP: u32 = 1 << 2;

/// The pids of the children that this process started on purpose.
static OWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Locks the register of children. No child is started or reaped while the guard is held.
pub(super) fn own() -> MutexGuard<'static, BTreeSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exit code of a process, or the number of the signal that killed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    Code(i32),
    Signal(i32),
}

impl fmt::Display for ExitKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(out, "exit {code}"),
            Self::Signal(signal) => write!(out, "signal {signal}"),
        }
    }
}

/// A process that is held by a descriptor, which is readable once the process has exited.
#[derive(Debug)]
pub(crate) struct Pidfd {
    fd: OwnedFd,
    pid: i32,
}

impl Pidfd {
    /// Opens the process with `pid`; fails if there is none, or no descriptor is left.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two integers and touches no memory of ours.
        #[expect(unsafe_code, reason = "nix has no pidfd_open")]
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(Errno::result(fd)?).map_err(io::Error::other)?;
        // SAFETY: the kernel has just returned this descriptor, and no other code owns it.
        #[expect(unsafe_code, reason = "a raw descriptor becomes an owned one")]
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, pid })
    }

    /// Returns the pid at the time of the open.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal; fails if the process was reaped, or may not be signalled.
    pub(crate) fn send_signal(&self, signal: Signal) -> io::Result<()> {
        Ok(self.send(signal, 0)?)
    }

    /// Sends a signal to the process and to the process group that the process leads, if any. A member that was
    /// started by hand may belong to the group of its shell, which gets no signal.
    pub(crate) fn signal_group(&self, signal: Signal) -> io::Result<()> {
        // Kernels before 6.9 refuse this flag. The number of the group is not used instead, because it may have
        // been reused.
        self.send(signal, SIGNAL_PROCESS_GROUP).unwrap_or_default();
        self.send_signal(signal)
    }

    fn send(&self, signal: Signal, flags: u32) -> nix::Result<()> {
        let (fd, none) = (self.fd.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: a null siginfo means "as kill(2)"; nothing else is passed by address.
        #[expect(unsafe_code, reason = "nix has no pidfd_send_signal")]
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal as i32, none, flags) };
        Errno::result(sent).map(drop)
    }

    /// Waits at most `limit` for the exit; returns whether the process has exited.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut fds, limit) {
                Err(Errno::EINTR) => {}
                ready => return ready.is_ok_and(|count| count > 0),
            }
        }
    }

    /// Waits for the exit of a child and reaps it; fails for any other process, and for one that was reaped.
    pub(crate) fn wait(&self) -> io::Result<ExitKind> {
        let end = self.exit(WaitPidFlag::WNOWAIT)?;
        // Locked while it is reaped: afterwards the pid may belong to a stray.
        let mut own = own();
        self.exit(WaitPidFlag::empty())?;
        own.remove(&self.pid);
        Ok(end)
    }

    fn exit(&self, how: WaitPidFlag) -> io::Result<ExitKind> {
        loop {
            match waitid(Id::PIDFd(self.fd.as_fd()), WaitPidFlag::WEXITED | how) {
                Ok(WaitStatus::Exited(_, code)) => return Ok(ExitKind::Code(code)),
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    return Ok(ExitKind::Signal(signal as i32));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::child;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn sleeper() -> Pidfd {
        child::spawn(Command::new("sleep").arg("300")).unwrap()
    }

    #[test]
    fn signals_reach_the_child_and_only_while_it_lives() {
        let child = sleeper();
        assert!(!child.ends_within(Duration::ZERO));
        child.send_signal(Signal::SIGTERM).unwrap();
        assert!(child.ends_within(Duration::from_secs(10)));
        assert_eq!(child.wait().unwrap(), ExitKind::Signal(15));
        assert!(child.send_signal(Signal::SIGTERM).is_err());
        assert!(child.wait().is_err());
        for pid in [i32::MAX, -1] {
            assert!(Pidfd::open(pid).is_err(), "no process has {pid}");
        }
    }

    #[test]
    fn a_group_is_signalled_by_its_leader_and_by_nobody_else() {
        let mut script = Command::new("sh");
        script.args(["-c", "sleep 300 & wait"]).process_group(0);
        let leader = child::spawn(&mut script).unwrap();
        let [first, second] = [sleeper(), sleeper()];
        first.signal_group(Signal::SIGKILL).unwrap();
        assert_eq!(first.wait().unwrap(), ExitKind::Signal(9));
        leader.signal_group(Signal::SIGKILL).unwrap();
        assert_eq!(leader.wait().unwrap(), ExitKind::Signal(9));
        assert!(!second.ends_within(Duration::ZERO), "our own group was not meant");
        second.send_signal(Signal::SIGKILL).unwrap();
        second.wait().unwrap();
    }
}
