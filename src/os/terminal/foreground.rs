//! A program that has the terminal until it exits, such as an editor.

use crate::os::child::{isolate, spawn};
use crate::os::pidfd::{ExitKind, Pidfd};
use crate::os::terminal::raw_mode::suspend;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, tcgetattr, tcsetattr};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp, getpid, tcsetpgrp};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

/// Runs a program on the terminal of this process and waits for its exit. Afterwards the terminal has its previous
/// settings. `started` gets the process, so that another thread can end it; it is also hung up if this process dies.
///
/// The program is a job of its own, so the keys that interrupt or quit reach it alone. If it is suspended, so is
/// this process, and both go on together.
pub(crate) fn run(mut command: Command, started: impl FnOnce(Arc<Pidfd>)) -> io::Result<ExitKind> {
    let settings = tcgetattr(io::stdin())?;
    command.process_group(0);
    isolate(&mut command, Vec::new(), || {
        set_pdeathsig(Signal::SIGHUP)?;
        Ok(give_terminal_to(getpid())?)
    });
    let child = Arc::new(spawn(&mut command)?);
    started(Arc::clone(&child));
    let pid = Pid::from_raw(child.pid());
    while is_suspended(pid)? {
        give_terminal_to(getpgrp())?;
        suspend()?;
        give_terminal_to(pid)?;
        child.signal_group(Signal::SIGCONT)?;
    }
    let exit = child.wait();
    // A terminal that is gone has neither a job nor settings.
    give_terminal_to(getpgrp()).unwrap_or_default();
    tcsetattr(io::stdin(), SetArg::TCSADRAIN, &settings).unwrap_or_default();
    exit
}

/// Waits until a child is suspended or has exited; it is not reaped.
fn is_suspended(pid: Pid) -> nix::Result<bool> {
    let either = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(pid), either) {
            Ok(WaitStatus::Stopped(..)) => {
                waitid(Id::Pid(pid), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG)?;
                return Ok(true);
            }
            Err(nix::errno::Errno::EINTR) => {}
            ended => return ended.map(|_| false),
        }
    }
}

/// Makes a process group the foreground job. Makes only system calls, so that it may run between fork and exec.
fn give_terminal_to(group: Pid) -> nix::Result<()> {
    // A job in the background that changes the foreground job is stopped by this signal.
    let before =
        SigSet::from(Signal::SIGTTOU).thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
    let given = tcsetpgrp(io::stdin(), group);
    before.thread_set_mask()?;
    given
}
