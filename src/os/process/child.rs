//! Starts a process that is independent of this one, such as a teammate: its own process group, a clean
//! environment, and one control socket.

use super::child_registry;
use super::limits;
use super::pidfd::Pidfd;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::Mode;
use nix::unistd::write;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// When memory runs out, commands (500) are killed first, then teammates, the lead last.
const OOM_SCORE: &[u8] = b"300";

/// The program to start.
#[derive(Debug)]
pub(crate) struct Program {
    /// The executable; `/proc/self/exe` remains the same program when the file is replaced.
    pub(crate) path: PathBuf,
    /// The name in `ps`.
    pub(crate) arg0: OsString,
    /// The arguments; the control descriptor has the same number in the child.
    pub(crate) args: Vec<OsString>,
    /// The whole environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The working directory.
    pub(crate) cwd: PathBuf,
    /// The file for its output.
    pub(crate) stdout_err: File,
}

/// A started process.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// Its pid, which is also its process group.
    pub(crate) pid: i32,
    /// The handle of the process.
    pub(crate) pidfd: Pidfd,
}

/// Starts a process group that inherits `control` and no other descriptor; this process closes its copy.
/// Reap it by [`Pidfd::wait`].
///
/// # Errors
/// The program cannot be started or executed.
pub(crate) fn spawn_detached(program: Program, control: OwnedFd) -> io::Result<Spawned> {
    let mut command = Command::new(program.path);
    command.arg0(program.arg0).args(program.args).env_clear().envs(program.env);
    command.current_dir(program.cwd).process_group(0).stdin(Stdio::null());
    command.stdout(program.stdout_err.try_clone()?).stderr(program.stdout_err);
    let control_number = control.as_raw_fd();
    let prepare = move || {
        reset_signals();
        set_oom_score(OOM_SCORE);
        limits::restore();
        close_others_on_exec()?;
        inherit(control_number)
    };
    // SAFETY: between fork and exec only system calls are made, nothing is allocated or locked.
    #[expect(unsafe_code, reason = "descriptors and signals are set in the child alone")]
    unsafe {
        command.pre_exec(prepare);
    }
    let pidfd = spawn(&mut command)?;
    // Otherwise the child would never see end of file from the other end.
    drop(control);
    Ok(Spawned { pid: pidfd.pid(), pidfd })
}

/// Starts a child and registers it, so that it does not count as a stray.
///
/// # Errors
/// The program cannot be started, or no descriptor is left to hold it.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Pidfd> {
    let mut own = child_registry::own();
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    match Pidfd::open(pid) {
        Ok(held) => {
            own.insert(pid);
            Ok(held)
        }
        Err(why) => {
            child.kill()?;
            child.wait()?;
            Err(why)
        }
    }
}

/// Creates a pair of connected stream sockets that no child inherits by accident.
///
/// # Errors
/// No descriptor is left.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC);
    Ok(pair?)
}

/// Raises the score by which the kernel chooses a process to kill when memory runs out, where that is
/// allowed. Makes only system calls, so that it may run between fork and exec.
pub(in crate::os) fn set_oom_score(score: &[u8]) {
    let file = open(c"/proc/self/oom_score_adj", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty());
    if let Ok(file) = file {
        write(file, score).map(drop).unwrap_or_default();
    }
}

/// Restores default dispositions and an empty mask, because ignored and blocked signals are inherited.
/// Makes only system calls, so that it may run between fork and exec.
pub(in crate::os) fn reset_signals() {
    // A zeroed kernel `sigaction` means default. The call of libc refuses the signals that libc reserves,
    // which may have been inherited as ignored.
    let default = [0_u64; 4];
    // SAFETY: the kernel reads one `sigaction`, never more than 32 bytes, and a set of 8; no handler of
    // ours is installed.
    #[expect(unsafe_code, reason = "nix knows no real-time signals")]
    unsafe {
        for number in 1..=libc::SIGRTMAX() {
            let (action, none) = (default.as_ptr(), std::ptr::null_mut::<u64>());
            libc::syscall(libc::SYS_rt_sigaction, number, action, none, 8);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Marks every descriptor from 3 on as close-on-exec. Closing them would also close the pipe on which std
/// reports a failed exec.
pub(in crate::os) fn close_others_on_exec() -> io::Result<()> {
    // SAFETY: close_range takes three integers; descriptors are marked, none is closed.
    #[expect(unsafe_code, reason = "nix has no close_range")]
    let marked =
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Ok(Errno::result(marked).map(drop)?)
}

/// Lets a descriptor survive the exec. Makes only system calls, so that it may run between fork and exec.
pub(in crate::os) fn inherit(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: the parent keeps it open until spawn returns, and the fork has a copy.
    #[expect(unsafe_code, reason = "an owned descriptor cannot be moved into a pre_exec closure")]
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty())).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::pidfd::ExitKind;
    use std::io::{Read, Seek, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn program(script: &str, output: &File) -> Program {
        Program {
            path: "/bin/bash".into(),
            arg0: "teammate".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("ONLY".into(), "this".into()), ("PATH".into(), "/usr/bin:/bin".into())],
            cwd: "/".into(),
            stdout_err: output.try_clone().unwrap(),
        }
    }

    fn run(script: impl FnOnce(RawFd) -> String) -> (ExitKind, String, UnixStream) {
        let mut output = tempfile::tempfile().unwrap();
        let (ours, theirs) = socket_pair().unwrap();
        let script = script(theirs.as_raw_fd());
        let child = spawn_detached(program(&script, &output), theirs).unwrap();
        let end = child.pidfd.wait().unwrap();
        let mut text = String::new();
        output.rewind().unwrap();
        output.read_to_string(&mut text).unwrap();
        (end, text, ours.into())
    }

    #[test]
    fn the_child_has_the_socket_and_nothing_else_of_ours() {
        let unrelated = tempfile::tempfile().unwrap();
        inherit(unrelated.as_raw_fd()).unwrap();
        let mut control_number = 0;
        let (end, text, mut ours) = run(|control| {
            control_number = control;
            format!("echo ready >&{control}; echo $0; ls -m /proc/$$/fd; env | grep -c .; exit 7")
        });
        assert_eq!(end, ExitKind::Code(7));
        let mut said = String::new();
        ours.read_to_string(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "teammate");
        let mut open: Vec<i32> = lines[1].split(", ").map(|fd| fd.parse().unwrap()).collect();
        open.retain(|fd| *fd != 255); // bash's own
        open.sort_unstable();
        assert_eq!(open, [0, 1, 2, control_number]);
        // The given environment, and PWD, SHLVL and _ of bash.
        assert_eq!(lines[2], "5");
    }

    #[test]
    fn the_child_begins_with_reset_signals_in_its_own_group() {
        let script =
            "grep -E '^Sig(Blk|Ign)' /proc/self/status; cut -d' ' -f5 /proc/$$/stat; echo $$";
        let (_, text, _) = run(|_| script.into());
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[..4], ["SigBlk:", "0000000000000000", "SigIgn:", "0000000000000000"]);
        assert_eq!(words[4], words[5]);
    }

    #[test]
    fn the_child_sees_the_end_of_its_parent() {
        let output = tempfile::tempfile().unwrap();
        let (ours, theirs) = socket_pair().unwrap();
        let script = format!("read -r word <&{0}; read -r more <&{0}; exit 9", theirs.as_raw_fd());
        let child = spawn_detached(program(&script, &output), theirs).unwrap();
        UnixStream::from(ours).write_all(b"credentials\n").unwrap();
        assert!(child.pidfd.ends_within(Duration::from_secs(10)));
        assert_eq!(child.pidfd.wait().unwrap(), ExitKind::Code(9));
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_an_error() {
        let output = tempfile::tempfile().unwrap();
        let mut missing = program("", &output);
        missing.path = "/nonexistent/program".into();
        let why = spawn_detached(missing, socket_pair().unwrap().0).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::NotFound);
    }
}
