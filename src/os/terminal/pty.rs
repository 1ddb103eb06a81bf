//! A pseudo-terminal for tests: a program runs on the inner side, the test types and reads on the outer one.

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::setsid;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) struct Pty {
    outer: File,
    inner: OwnedFd,
}

impl Pty {
    /// Opens a pseudo-terminal. It is closed on exec, so that children of other tests do not keep it open, as
    /// they would with `openpty`.
    pub(crate) fn open(rows: u16, columns: u16) -> io::Result<Self> {
        let outer = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
        grantpt(&outer)?;
        unlockpt(&outer)?;
        let mut open = OpenOptions::new();
        open.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits());
        let inner: OwnedFd = open.open(ptsname_r(&outer)?)?.into();
        let outer = File::from(OwnedFd::from(outer));
        resize(&outer, rows, columns)?;
        Ok(Self { outer, inner })
    }

    /// Starts a program with this terminal as its controlling terminal, stdin and stdout.
    pub(crate) fn spawn(self, command: &mut Command) -> io::Result<(Child, File)> {
        command.stdin(self.inner.try_clone()?).stdout(self.inner);
        let lead_the_session = || {
            setsid()?;
            #[expect(unsafe_code, reason = "nix has no call for TIOCSCTTY")]
            // SAFETY: the request takes an integer and touches no memory.
            let taken = unsafe { libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) };
            Ok(Errno::result(taken).map(drop)?)
        };
        #[expect(unsafe_code, reason = "a controlling terminal can only be taken by the child")]
        // SAFETY: between fork and exec only two system calls run, both async-signal-safe.
        let command = unsafe { command.pre_exec(lead_the_session) };
        let child = command.spawn()?;
        // The command holds copies of the inner side. While they are open, the outer side does not report the end.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok((child, self.outer))
    }
}

/// Returns the output within `patience`; `None` if there is none. Fails if the program has exited.
pub(crate) fn read(outer: &mut File, patience: Duration) -> io::Result<Option<Vec<u8>>> {
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    if poll(&mut [PollFd::new(outer.as_fd(), PollFlags::POLLIN)], timeout)? == 0 {
        return Ok(None);
    }
    let mut bytes = vec![0; 4096];
    let length = outer.read(&mut bytes)?;
    bytes.truncate(length);
    Ok(Some(bytes))
}

/// Changes the size, of which the kernel tells the program by SIGWINCH.
pub(crate) fn resize(outer: &File, rows: u16, columns: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    #[expect(unsafe_code, reason = "neither std nor nix has a safe call for the window size")]
    // SAFETY: the request reads one `winsize`, which lives until after the call.
    let sized = unsafe { libc::ioctl(outer.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    Ok(Errno::result(sized).map(drop)?)
}

/// Whether the terminal is in canonical mode with echo, as a shell expects.
pub(crate) fn is_cooked(outer: &File) -> io::Result<bool> {
    let flags = LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG;
    Ok(tcgetattr(outer)?.local_flags.contains(flags))
}
