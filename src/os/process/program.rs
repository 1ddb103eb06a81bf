//! The programs of a team as processes: the name they show, the file they are started from, the
//! descriptor a spawned one is handed.

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

/// The name of a command's supervisor in `ps`.
pub(crate) const COMMAND_SUPERVISOR_NAME: &CStr = c"teammate-guard";

/// Shows this process under `name` in `ps`, however it was started. A name that cannot be set is only
/// less pretty.
pub(crate) fn name_this_process(name: &str) {
    if let Ok(name) = CString::new(name) {
        nix::sys::prctl::set_name(&name).unwrap_or_default();
    }
}

/// Hides the memory and the environment of this process from others of the same user. An `exec` undoes
/// it, so each program that holds a secret calls it for itself.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn forbid_looking_inside() -> io::Result<()> {
    Ok(nix::sys::prctl::set_dumpable(false)?)
}

/// The `teammate` program beside this one, held open: an upgrade meanwhile changes nothing for this
/// team.
#[derive(Debug)]
pub(crate) struct TeammateProgram {
    file: File,
}

impl TeammateProgram {
    /// Finds the program.
    ///
    /// # Errors
    /// There is none beside this one.
    pub(crate) fn find() -> io::Result<Self> {
        let path = std::env::current_exe()?.with_file_name("teammate");
        let file = File::open(&path)
            .map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", path.display())))?;
        Ok(Self { file })
    }

    /// A path that leads to it until this is dropped, in this process and its children.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// Takes over a descriptor that whoever started this process has handed to it.
///
/// # Errors
/// There is no such descriptor.
pub(crate) fn adopt_control(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor <= 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: fcntl fails on a number that is no open descriptor; on success it was handed to us
    // on purpose, and nothing else in this process knows it.
    #[expect(unsafe_code, reason = "a descriptor that comes as a number")]
    let control = unsafe {
        let borrowed = std::os::fd::BorrowedFd::borrow_raw(descriptor);
        // Before anything is started: no command may inherit the lifeline.
        fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        OwnedFd::from_raw_fd(descriptor)
    };
    Ok(control)
}

/// Makes reads of a descriptor return at once when nothing is there.
///
/// # Errors
/// The descriptor refuses.
pub(crate) fn set_nonblocking(descriptor: impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
    fcntl(&descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
