//! The containment of one command: its shell and all processes that the shell starts.
//!
//! Three mechanisms complement each other: the control group (where available) has every member, the process
//! group cannot be outrun by forking, and adoption finds processes that left both. A limit on the number of
//! processes stops a fork bomb without privileges. The limit of the kernel (`RLIMIT_NPROC`) counts all processes
//! of the user and does not bind root, so it is only the second line of defence.

use crate::os::process::cgroup::Cgroup;
use crate::os::process::child::{isolate, set_oom_score};
use crate::os::process::pidfd::ExitKind;
use crate::os::process::{process_tree, processes};
use crate::os::wall::{ConnectFilter, PreparedWalls, Wall, WallPolicy};
use crate::wire::limits::COMMAND_PROCESSES;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, fork, write};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The OOM score of commands: they are killed first when memory runs out.
const OOM_SCORE: &[u8] = b"500";

/// The period of the cheap check for too many processes.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The period of the exact count, in case other processes have exited while those of the command grew in number.
const COUNT_EVERY: Duration = Duration::from_secs(2);

/// The number of threads that a command may add to those that the machine runs at its start.
const THREADS: u64 = 2048;

/// The flags that inspect an exited child without reaping it.
const PEEK: WaitPidFlag =
    WaitPidFlag::WEXITED.union(WaitPidFlag::WNOHANG).union(WaitPidFlag::WNOWAIT);

#[derive(Debug)]
pub(super) struct Containment {
    group: Option<Cgroup>,
    /// The leader of the process group. It is reaped last, so that the number of the group is not reused.
    shell: Pid,
    /// The judge of its connections, where walls need one.
    pub(super) connect_filter: Option<ConnectFilter>,
}

/// The descriptors and walls that a command starts with.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandStart<'a> {
    pub(super) input: Option<&'a OwnedFd>,
    pub(super) walls: Option<&'a WallPolicy>,
    /// The way to the agent's proxy.
    pub(super) agent: Option<&'a OwnedFd>,
}

impl Containment {
    pub(super) fn start(run_id: &str, command: &OsStr, with: CommandStart<'_>) -> io::Result<Self> {
        let group = Cgroup::make(run_id);
        let entrance = group.as_ref().and_then(|group| group.open("cgroup.procs").ok());
        let start = |program| start_shell(program, command, with, entrance.as_ref());
        let started = match start("bash") {
            Err(why) if why.kind() == io::ErrorKind::NotFound => start("sh"),
            started => started,
        };
        match started {
            Ok((shell, connect_filter)) => Ok(Self { group, shell, connect_filter }),
            Err(why) => {
                group.map(Cgroup::end).unwrap_or_default();
                Err(why)
            }
        }
    }

    /// Reaps exited children other than the shell; returns the exit of the shell once it has exited.
    pub(super) fn reap(&self) -> Option<ExitKind> {
        loop {
            match waitid(Id::All, PEEK) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.shell => {
                    return Some(ExitKind::Code(code));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.shell => {
                    return Some(ExitKind::Signal(signal as i32));
                }
                Ok(WaitStatus::StillAlive) | Err(_) => return None,
                Ok(other) => {
                    let _reaped = other.pid().map(|pid| waitpid(pid, Some(WaitPidFlag::WNOHANG)));
                }
            }
        }
    }

    pub(super) fn end(self) {
        if let Some(group) = &self.group {
            group.kill();
        }
        // While the shell is not reaped, its number is not reused.
        if waitid(Id::Pid(self.shell), PEEK) != Err(Errno::ECHILD) {
            killpg(self.shell, Signal::SIGKILL).unwrap_or_default();
        }
        process_tree::end_adopted();
        self.group.map(Cgroup::end).unwrap_or_default();
    }
}

fn start_shell(
    program: &str,
    command: &OsStr,
    CommandStart { input, walls, agent }: CommandStart<'_>,
    entrance: Option<&File>,
) -> io::Result<(Pid, Option<ConnectFilter>)> {
    let prepared = walls.map(|walls| Wall::prepare(walls, agent)).transpose()?;
    let (wall, report, mut connect_filter) = match prepared {
        Some(PreparedWalls { wall, report, connect_filter }) => {
            (Some(wall), Some(report), connect_filter)
        }
        None => (None, None, None),
    };
    let mut shell = Command::new(program);
    // `--`: a command may begin with a dash.
    shell.args([OsStr::new("-c"), OsStr::new("--"), command]).process_group(0);
    let input = input.map(OwnedFd::try_clone).transpose()?;
    shell.stdin(input.map_or_else(Stdio::null, Stdio::from));
    let entrance = entrance.map(File::try_clone).transpose()?;
    isolate(&mut shell, Vec::new(), move || {
        set_oom_score(OOM_SCORE);
        // A process that may not enter the group is still found by the other mechanisms.
        entrance.as_ref().map(|entrance| write(entrance, b"0")).map(drop).unwrap_or_default();
        wall.as_ref().map_or(Ok(()), Wall::enter)
    });
    let started = spawn(shell).map_err(|why| match report {
        Some(report) => report.explain(why),
        None => why,
    })?;
    if let Some(filter) = &mut connect_filter
        && let Err(why) = filter.attach()
    {
        // Without its judge no connection would ever be answered.
        end(started);
        return Err(why);
    }
    Ok((started, connect_filter))
}

/// Starts a command, and waits until it runs its program. Unlike that of std, it does not wait for a process that is stopped or
/// stuck before: when the lifeline is cut, the process is killed, and this fails.
fn spawn(mut command: Command) -> io::Result<Pid> {
    let (mut start, mut failure) = io::pipe()?;
    // SAFETY: a supervisor has a single thread.
    #[expect(unsafe_code, reason = "std waits for the program without a limit")]
    let forked = unsafe { fork() }?;
    let ForkResult::Parent { child } = forked else {
        let number = command.exec().raw_os_error().unwrap_or(libc::EIO);
        failure.write_all(&number.to_ne_bytes()).unwrap_or_default();
        // SAFETY: nothing of this process is to be done a second time.
        #[expect(unsafe_code, reason = "std has no such exit")]
        unsafe {
            libc::_exit(126)
        }
    };
    drop((command, failure));
    let lifeline = io::stdin();
    loop {
        let mut fds = [
            PollFd::new(start.as_fd(), PollFlags::POLLIN),
            PollFd::new(lifeline.as_fd(), PollFlags::empty()),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            ready => ready?,
        };
        let is_ready = |at: usize| fds.get(at).and_then(PollFd::any).unwrap_or(false);
        if is_ready(0) {
            break;
        }
        if is_ready(1) {
            end(child);
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    let mut number = [0; 4];
    // The program's start has closed the pipe, or the end of the process.
    if start.read_exact(&mut number).is_err() {
        return Ok(child);
    }
    waitpid(child, None)?;
    Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
}

/// Kills a child, and reaps it.
fn end(child: Pid) {
    kill(child, Signal::SIGKILL).unwrap_or_default();
    waitpid(child, None).map(drop).unwrap_or_default();
}

/// The limit on the number of processes below this one, checked from time to time.
#[derive(Debug)]
pub(super) struct ProcessLimit {
    /// The lowest number of threads of the machine since the command began.
    fewest_threads: u64,
    checked: Instant,
    counted: Instant,
}

impl ProcessLimit {
    pub(super) fn watch() -> Self {
        let now = Instant::now();
        Self { fewest_threads: threads_of_machine(), checked: now, counted: now }
    }

    /// Whether there are more processes below this one than [`COMMAND_PROCESSES`]. The exact count is rare until
    /// the number of threads of the machine, which is cheap to read, has grown by more than that.
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
        let me = Pid::this().as_raw();
        processes::below(&BTreeSet::from([me]), &processes::all()).len() > COMMAND_PROCESSES
    }
}

/// Returns the number behind the slash in a text such as `0.20 0.18 0.12 1/80 11206`; 0 if it cannot be read.
fn threads_of_machine() -> u64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let threads = load.split(['/', ' ']).nth(4).and_then(|word| word.parse().ok());
    threads.unwrap_or_default()
}

/// Sets the limit of the kernel, for a fork bomb that grows faster than it is counted.
pub(super) fn limit_threads() -> nix::Result<()> {
    let running = match threads_of_machine() {
        0 => processes::all().iter().map(|process| process.threads).sum(),
        running => running,
    };
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
    let limit = hard.min(running + THREADS);
    setrlimit(Resource::RLIMIT_NPROC, limit, limit)
}
