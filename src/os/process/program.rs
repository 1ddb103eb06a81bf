//! The programs of a team as processes: their names, executables, inherited descriptors and limits.

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::getpid;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
/// Returns the name of the user that runs this process; `None` if the system does not know it.
pub(crate) fn user_name() -> Option<String> {
    nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten().map(|user| user.name)
}

#[cfg(test)]
use std::process::Command;
use std::sync::OnceLock;

/// The name of a command's supervisor in `ps`.
pub(crate) const COMMAND_SUPERVISOR_NAME: &CStr = c"teammate-guard";

/// The soft and hard limit of descriptors that this process was started with.
static GIVEN_DESCRIPTORS: OnceLock<(u64, u64)> = OnceLock::new();

/// Sets the name of this process in `ps`. A failure is ignored.
pub(crate) fn name_this_process(name: &str) {
    if let Ok(name) = CString::new(name) {
        nix::sys::prctl::set_name(&name).unwrap_or_default();
    }
}

/// Hides the memory and the environment of this process from other processes of the user. An `exec` undoes
/// it, so each program that holds a secret calls it. It leaves no core file either.
///
/// # Errors
/// The system refuses it.
pub fn forbid_inspection() -> io::Result<()> {
    Ok(nix::sys::prctl::set_dumpable(false)?)
}

/// Raises the limit of descriptors to the maximum, because a lead needs a few for each teammate, and a relay for each member of
/// another host. Children get the original limit, because programs that use `select` break above 1024.
pub fn raise_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && GIVEN_DESCRIPTORS.set((soft, hard)).is_ok()
    {
        // A limit that cannot be raised stays.
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap_or_default();
    }
}

/// Restores the original limit. Makes only system calls, so that it may run between fork and exec.
pub(super) fn restore_descriptors() {
    if let Some((soft, hard)) = GIVEN_DESCRIPTORS.get() {
        setrlimit(Resource::RLIMIT_NOFILE, *soft, *hard).unwrap_or_default();
    }
}

/// The program of this process, held open, so that an upgrade does not affect a running team.
#[derive(Debug)]
pub(crate) struct OwnProgram(File);

impl OwnProgram {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(File::open("/proc/self/exe")?))
    }

    /// Returns a path to the program that is valid in this process and its children until `self` is dropped.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// Returns the command of a process that runs one test of this test binary, for tests that cannot run beside the
/// threads of the others.
#[cfg(test)]
pub(crate) fn test_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
}

/// Runs a [`test_process`], whose test must exist and pass.
#[cfg(test)]
pub(crate) fn assert_passes(test_process: &mut Command) {
    let ran = test_process.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out.contains("1 passed"), "{out}{err}");
}

/// Kills this process, as `kill -9` does. No destructor runs, and nothing is flushed.
pub(crate) fn kill_this_process() {
    let killed = kill(getpid(), Signal::SIGKILL);
    debug_assert_eq!(killed, Ok(()), "a process may signal itself");
}

/// Takes ownership of a descriptor that this process inherited on purpose; fails if there is none.
pub(crate) fn adopt_control(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: fcntl fails on a number that is no open descriptor; on success it was inherited
    // on purpose, and no other code in this process knows it.
    #[expect(unsafe_code, reason = "a descriptor that comes as a number")]
    unsafe {
        // Set before any command is started, because no command may inherit the lifeline.
        fcntl(BorrowedFd::borrow_raw(descriptor), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Makes reads of a descriptor return at once if nothing is available.
pub(crate) fn set_nonblocking(descriptor: impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
    fcntl(&descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
