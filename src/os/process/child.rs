//! Starts child processes. A detached one, such as a teammate, is independent of this process: it has its
//! own process group, and of all descriptors only one control socket.

use super::pidfd::{Pidfd, own};
use super::program::restore_descriptors;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::libc;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, setsid, write};
use std::io::{self, PipeWriter};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The OOM score of a teammate: if memory runs out, commands (500) are killed first, then teammates, the lead last.
const OOM_SCORE: &[u8] = b"300";

/// Starts a process in its own process group. Of the descriptors from 3 on, it inherits only `control`, under the
/// same number. This process closes its copy, because the other end would otherwise never see end of file. Reap
/// the child by [`Pidfd::wait`].
pub(crate) fn spawn_detached(mut command: Command, control: OwnedFd) -> io::Result<Pidfd> {
    command.process_group(0).stdin(Stdio::null());
    isolate(&mut command, vec![control.as_raw_fd()], || Ok(()));
    let child = spawn(&mut command)?;
    drop(control);
    Ok(child)
}

/// Starts a process in its own process group that ends when its standard input ends: the returned writer holds it open, and
/// the kernel closes it with this process. Reap the child by [`Pidfd::wait`].
pub(crate) fn spawn_until_input_ends(mut command: Command) -> io::Result<(Pidfd, PipeWriter)> {
    let (input, writer) = io::pipe()?;
    command.process_group(0).stdin(input);
    isolate(&mut command, Vec::new(), || Ok(()));
    Ok((spawn(&mut command)?, writer))
}

/// Starts a process in a session of its own, which outlives this one and its terminal. It inherits no descriptor from 3 on. Reap
/// the child by [`Pidfd::wait`].
pub(crate) fn spawn_in_own_session(mut command: Command) -> io::Result<Pidfd> {
    command.stdin(Stdio::null());
    isolate(&mut command, Vec::new(), || Ok(setsid().map(drop)?));
    spawn(&mut command)
}

/// Starts a child and registers it, so that it does not count as a stray.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Pidfd> {
    let mut own = own();
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

/// Makes the kernel ask a child to end, by SIGTERM, when this process ends first.
pub fn end_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only a system call is made.
    #[expect(unsafe_code, reason = "the signal is set in the child alone")]
    unsafe {
        command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGTERM)?));
    }
}

/// Asks a child to end, by SIGTERM. The caller has not waited for it yet, so the number is still its own.
pub fn ask_to_end(child: u32) {
    if let Ok(pid) = i32::try_from(child) {
        // One that has exited needs no signal.
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap_or_default();
    }
}

/// Asks a child to read its configuration again, by SIGHUP. The caller has not waited for it yet.
pub fn ask_to_reload(child: u32) {
    if let Ok(pid) = i32::try_from(child) {
        // One that has exited reads it at its next start.
        kill(Pid::from_raw(pid), Signal::SIGHUP).unwrap_or_default();
    }
}

/// Makes the kernel end this process before its lead when memory runs out. A lead cannot do that for its child: it
/// forbids inspection, and so the files of the child in `/proc` belong to root until the child runs its program.
pub(crate) fn end_before_lead_without_memory() {
    set_oom_score(OOM_SCORE);
}

/// Configures a command to start with default signals, with the limits that this process was started with, and
/// with no descriptor from 3 on but `inherited`. `prepare` runs between fork and exec, so it may only make system
/// calls, unless this process has a single thread.
pub(in crate::os) fn isolate(
    command: &mut Command,
    inherited: Vec<RawFd>,
    prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    let isolate = move || {
        reset_signals();
        prepare()?;
        restore_descriptors();
        close_others_on_exec()?;
        inherited.iter().copied().try_for_each(inherit)
    };
    // SAFETY: between fork and exec only system calls are made, nothing is allocated or locked.
    #[expect(unsafe_code, reason = "descriptors, limits and signals are set in the child alone")]
    unsafe {
        command.pre_exec(isolate);
    }
}

/// Raises the OOM score of this process, if permitted. Makes only system calls.
pub(in crate::os) fn set_oom_score(score: &[u8]) {
    let file = open(c"/proc/self/oom_score_adj", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty());
    if let Ok(file) = file {
        write(file, score).map(drop).unwrap_or_default();
    }
}

/// Restores default dispositions and an empty mask, because a child inherits those of its parent. Makes only
/// system calls.
pub(in crate::os) fn reset_signals() {
    // A zeroed kernel `sigaction` means default. libc's own call refuses the signals that it reserves.
    let default = [0_u64; 4];
    // SAFETY: the kernel reads one `sigaction` of at most 32 bytes and a set of 8, and installs no handler.
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

/// Marks all descriptors from 3 on as close-on-exec. Closing them would close the pipe on which std reports a
/// failed exec.
fn close_others_on_exec() -> io::Result<()> {
    // SAFETY: close_range takes three integers; descriptors are marked, none is closed.
    #[expect(unsafe_code, reason = "nix has no close_range")]
    let marked =
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Ok(Errno::result(marked).map(drop)?)
}

/// Clears the close-on-exec mark of a descriptor. Makes only system calls, so that it may run between fork and exec.
fn inherit(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: the parent keeps it open until spawn returns, and the fork has a copy.
    #[expect(unsafe_code, reason = "an owned descriptor cannot be moved into a pre_exec closure")]
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty())).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::pidfd::ExitKind;
    use std::io::{Seek, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_child_has_the_socket_its_own_group_and_nothing_else_of_ours() {
        let unrelated = tempfile::tempfile().unwrap();
        inherit(unrelated.as_raw_fd()).unwrap();
        let mut output = tempfile::tempfile().unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let control = theirs.as_raw_fd();
        let script = format!(
            "read -r a <&{control}; read -r b <&{control} || echo ready, $a >&{control}; echo $0; \
             ls -m /proc/$$/fd; env | grep -c .; cut -d' ' -f5 /proc/$$/stat; echo $$; \
             grep -E '^Sig(Blk|Ign)' /proc/self/status; exit 7"
        );
        let mut command = Command::new("/bin/bash");
        command.arg0("teammate").arg("-c").arg(script).env_clear();
        command.env("ONLY", "this").env("PATH", "/usr/bin:/bin");
        command.stdout(output.try_clone().unwrap());
        let child = spawn_detached(command, theirs.into()).unwrap();
        ours.write_all(b"credentials\n").unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(child.wait().unwrap(), ExitKind::Code(7));
        assert_eq!(io::read_to_string(ours).unwrap(), "ready, credentials\n");
        output.rewind().unwrap();
        let text = io::read_to_string(output).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut open: Vec<i32> = lines[1].split(", ").map(|fd| fd.parse().unwrap()).collect();
        open.retain(|fd| *fd != 255); // bash's own
        open.sort_unstable();
        assert_eq!(open, [0, 1, 2, control]);
        // The given environment, and PWD, SHLVL and _ of bash.
        assert_eq!([lines[0], lines[2]], ["teammate", "5"]);
        assert_eq!(lines[3], lines[4], "it leads its group");
        let none = ["SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"];
        assert_eq!(lines[5..], none, "its signals are reset");
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_an_error() {
        let (control, _) = UnixStream::pair().unwrap();
        let missing = spawn_detached(Command::new("/nonexistent/program"), control.into());
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
