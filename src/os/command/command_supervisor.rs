//! The supervisor of one shell command: a small process between an agent and the command, which outlives neither
//! of them.
//!
//! It is this program, started again with [`ARGUMENT`]. It has its own session and adopts every process that the
//! command orphans. It kills every process below it and exits: as the shell did after the shell has exited, by
//! SIGKILL if there are too many processes, and by SIGTERM if its standard input (the *lifeline*, whose other end
//! only the agent holds) reports end of file. It has no settings, no log and no runtime.

use super::containment::{self, CommandStart, Containment, ProcessLimit};
use crate::os::process::child::reset_signals;
use crate::os::process::pidfd::ExitKind;
use crate::os::process::process_tree;
use crate::os::process::program::{COMMAND_SUPERVISOR_NAME, adopt_control};
use crate::os::wall::{ConnectFilter, WallPolicy};
use crate::wire::limits::COMMAND_PROCESSES;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

/// The hidden first argument that makes a program of the team a supervisor. The `run_id`, the command, and the
/// descriptors of its input, of its walls, and of its way to the agent's proxy follow.
pub(super) const ARGUMENT: &str = "__guard";

/// The argument in place of a descriptor that there is not.
pub(super) const NO_DESCRIPTOR: &str = "-";

/// The time that the processes of a cancelled command have after SIGTERM.
pub(super) const GRACE: Duration = Duration::from_millis(500);

/// Becomes the supervisor of a shell command if this process was started as one; otherwise returns `None`.
pub fn intercept() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != ARGUMENT {
        return None;
    }
    let (run_id, command) = (args.next(), args.next());
    let files = [args.next(), args.next(), args.next()];
    Some(match (run_id, command, files, args.next()) {
        (Some(run_id), Some(command), [Some(input), Some(walls), Some(agent)], None) => {
            supervise(&run_id.to_string_lossy(), &command, [&input, &walls, &agent])
        }
        _ => ExitCode::from(2),
    })
}

fn supervise(run_id: &str, command: &OsStr, files: [&OsStr; 3]) -> ExitCode {
    let start = || {
        let [input, walls, agent] = files.map(adopt);
        let (input, walls, agent) = (input?, walls?, agent?);
        let walls = walls.map(|file| WallPolicy::from_file(file.into())).transpose()?;
        let with =
            CommandStart { input: input.as_ref(), walls: walls.as_ref(), agent: agent.as_ref() };
        watch(run_id, command, with)
    };
    match start() {
        Ok(ExitKind::Code(code)) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Ok(ExitKind::Signal(number)) => exit_by_signal(number),
        Err(why) => {
            // Standard output belongs to the command. If it is closed, only the exit code reports the failure.
            writeln!(io::stdout(), "the command could not be started: {why}").unwrap_or_default();
            ExitCode::from(126)
        }
    }
}

/// Takes ownership of the descriptor that an argument names; `None` if it names none.
fn adopt(argument: &OsStr) -> io::Result<Option<OwnedFd>> {
    if argument == NO_DESCRIPTOR {
        return Ok(None);
    }
    let number = argument.to_string_lossy().parse().map_err(io::Error::other)?;
    adopt_control(number).map(Some)
}

fn watch(run_id: &str, command: &OsStr, with: CommandStart<'_>) -> io::Result<ExitKind> {
    prctl::set_name(COMMAND_SUPERVISOR_NAME)?;
    prctl::set_child_subreaper(true)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    containment::limit_threads()?;
    // Only SIGKILL kills a supervisor: a `kill $PPID` must not release the command.
    SigSet::all().thread_block()?;
    let child_ends = SigSet::from(Signal::SIGCHLD);
    let child_ends = SignalFd::with_flags(&child_ends, SfdFlags::SFD_CLOEXEC)?;
    let mut process_limit = ProcessLimit::watch();
    let mut containment = Containment::start(run_id, command, with)?;

    let lifeline = io::stdin();
    let pause = PollTimeout::try_from(containment::LOOK_EVERY).unwrap_or(PollTimeout::MAX);
    loop {
        let connects = containment.connect_filter.as_ref().and_then(ConnectFilter::requests);
        let connects = connects.map(|requests| PollFd::new(requests, PollFlags::POLLIN));
        let mut fds = vec![
            PollFd::new(child_ends.as_fd(), PollFlags::POLLIN),
            PollFd::new(lifeline.as_fd(), PollFlags::empty()),
        ];
        fds.extend(connects);
        match poll(&mut fds, pause) {
            Err(Errno::EINTR) => continue,
            ready => ready?,
        };
        let is_ready = |at: usize| fds.get(at).and_then(PollFd::any).unwrap_or(false);
        let (child_ended, cut) = (is_ready(0), is_ready(1));
        let connects = fds.get(2).and_then(PollFd::revents);
        if let Some(filter) = &mut containment.connect_filter {
            match connects {
                Some(ready) if ready.contains(PollFlags::POLLIN) => filter.answer(),
                Some(ready) if !ready.is_empty() => filter.close(),
                Some(_) | None => {}
            }
        }
        if child_ended {
            child_ends.read_signal()?;
            if let Some(end) = containment.reap() {
                containment.end();
                return Ok(end);
            }
        }
        if cut {
            process_tree::ask_adopted_to_end(GRACE);
            containment.end();
            return Ok(ExitKind::Signal(libc::SIGTERM));
        }
        if process_limit.is_exceeded() {
            containment.end();
            let why = format!("[more than {COMMAND_PROCESSES} processes at once: all were ended]");
            writeln!(io::stdout(), "\n{why}").unwrap_or_default();
            return Ok(ExitKind::Signal(libc::SIGKILL));
        }
    }
}

/// Kills this process by the signal that killed the shell.
fn exit_by_signal(number: i32) -> ExitCode {
    reset_signals();
    if let Ok(signal) = Signal::try_from(number) {
        nix::sys::signal::raise(signal).unwrap_or_default();
    }
    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
}
