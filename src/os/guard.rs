//! The guard of one shell command: a small process between an agent and the command, which outlives
//! neither.
//!
//! It is this program started once more with [`ARGUMENT`]. It has a session of its own, adopts whatever
//! the command orphans, and when the shell ends, or its standard input (the *lifeline*, whose other
//! end only the agent holds) reports end of file, it ends everything below it and then exits as the
//! shell did. It knows nothing of agents: no settings, no log, no runtime.

use super::child::fresh_signals;
use super::descendants;
use super::pidfd::ExitKind;
use super::processes;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, write};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The hidden first argument that makes any of our programs a guard; the second is the command.
pub(super) const ARGUMENT: &str = "__guard";

/// How long what a cancelled command started may tidy up after SIGTERM.
pub(super) const GRACE: Duration = Duration::from_millis(500);

/// How many more threads a command may start than the machine runs already: room for any build, an end
/// for a fork bomb (the kernel does not hold root to it).
const THREADS: u64 = 2048;

/// Becomes the guard of a shell command if this process was started as one.
pub fn intercept() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != ARGUMENT {
        return None;
    }
    Some(match (args.next(), args.next()) {
        (Some(command), None) => guard(&command),
        _ => ExitCode::from(2),
    })
}

fn guard(command: &OsStr) -> ExitCode {
    match watch(command) {
        Ok(ExitKind::Code(code)) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Ok(ExitKind::Signal(number)) => end_by(number),
        Err(why) => {
            // Standard output is the command's; if even that is closed, the code must do.
            writeln!(io::stdout(), "the command could not be started: {why}").unwrap_or_default();
            ExitCode::from(126)
        }
    }
}

fn watch(command: &OsStr) -> io::Result<ExitKind> {
    prctl::set_name(c"teammate-guard")?;
    prctl::set_child_subreaper(true)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    limit_threads()?;
    // Nothing but SIGKILL ends a guard: a stray `kill $PPID` must not open the cage.
    SigSet::all().thread_block()?;
    let child_ends = SigSet::from(Signal::SIGCHLD);
    let child_ends = SignalFd::with_flags(&child_ends, SfdFlags::SFD_CLOEXEC)?;
    let shell = start_shell(command)?;

    let lifeline = io::stdin();
    loop {
        let mut fds = [
            PollFd::new(child_ends.as_fd(), PollFlags::POLLIN),
            PollFd::new(lifeline.as_fd(), PollFlags::empty()),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            ready => ready?,
        };
        let [child_ended, cut] = fds.map(|fd| fd.any().unwrap_or(false));
        if child_ended {
            child_ends.read_signal()?;
            if let Some(end) = reap(shell) {
                descendants::end_adopted();
                return Ok(end);
            }
        }
        if cut {
            descendants::ask_adopted_to_end(GRACE);
            descendants::end_adopted();
            return Ok(ExitKind::Signal(libc::SIGTERM));
        }
    }
}

fn limit_threads() -> nix::Result<()> {
    let running: u64 = processes::all().iter().map(|process| process.threads).sum();
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
    let limit = hard.min(running + THREADS);
    setrlimit(Resource::RLIMIT_NPROC, limit, limit)
}

fn start_shell(command: &OsStr) -> io::Result<Pid> {
    let started = match shell(OsStr::new("bash"), command).spawn() {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            shell(OsStr::new("sh"), command).spawn()?
        }
        started => started?,
    };
    Ok(Pid::from_raw(i32::try_from(started.id()).map_err(io::Error::other)?))
}

fn shell(program: &OsStr, command: &OsStr) -> Command {
    let mut shell = Command::new(program);
    // `--`: a command may begin with a dash.
    shell.args([OsStr::new("-c"), OsStr::new("--"), command]);
    shell.stdin(Stdio::null()).process_group(0);
    let prepare = || {
        fresh_signals();
        offer_to_oom_killer();
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made, nothing is allocated or locked.
    #[expect(unsafe_code, reason = "signals and oom score are set in the child alone")]
    unsafe {
        shell.pre_exec(prepare);
    }
    shell
}

/// Commands go first when memory runs out; where that may not be said, they do not.
fn offer_to_oom_killer() {
    let score =
        open(c"/proc/self/oom_score_adj", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty());
    if let Ok(score) = score {
        write(score, b"500").map(drop).unwrap_or_default();
    }
}

/// Reaps whoever has ended, and says how the shell did.
fn reap(shell: Pid) -> Option<ExitKind> {
    let mut shell_end = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == shell => {
                shell_end = Some(ExitKind::Code(code));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == shell => {
                shell_end = Some(ExitKind::Signal(signal as i32));
            }
            Ok(WaitStatus::StillAlive) | Err(_) => return shell_end,
            Ok(_) => {}
        }
    }
}

/// Ends this process by a signal, as the shell was.
fn end_by(number: i32) -> ExitCode {
    fresh_signals();
    if let Ok(signal) = Signal::try_from(number) {
        nix::sys::signal::raise(signal).unwrap_or_default();
    }
    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
}
