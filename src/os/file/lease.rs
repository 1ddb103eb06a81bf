//! Does anybody have this file open for writing? Asked with a read lease, which Linux grants only when
//! nobody has.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Once;

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenWriters {
    /// Nobody.
    Absent,
    /// Somebody, perhaps this very process.
    Present,
    /// This file system cannot tell.
    Unknown,
}

/// Asks about a file that is open read-only. The lease is given back at once.
pub(crate) fn writers(file: &File) -> OpenWriters {
    quiet_sigio();
    match set_lease(file, nix::libc::F_RDLCK) {
        Ok(()) => {
            // Should that fail, closing the file gives it back.
            let _given_back = set_lease(file, nix::libc::F_UNLCK);
            OpenWriters::Absent
        }
        Err(nix::errno::Errno::EAGAIN) => OpenWriters::Present,
        Err(_) => OpenWriters::Unknown,
    }
}

fn set_lease(file: &File, lease: i32) -> nix::Result<()> {
    #[expect(unsafe_code, reason = "nix has no F_SETLEASE")]
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the argument is a number.
    let answer = unsafe { nix::libc::fcntl(file.as_raw_fd(), nix::libc::F_SETLEASE, lease) };
    nix::errno::Errno::result(answer).map(drop)
}

/// Somebody who opens the file in the instant of the lease makes the kernel send SIGIO, which would end
/// the process. A handler, because an ignored signal would be inherited by every command.
fn quiet_sigio() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[expect(unsafe_code, reason = "installing a signal handler")]
        // SAFETY: the handler does nothing.
        let handler = unsafe { signal_hook::low_level::register(nix::libc::SIGIO, || ()) };
        drop(handler);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_writer_is_seen_until_it_closes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (writer, path) = file.into_parts();
        let reader = File::open(&path).unwrap();
        assert_eq!(writers(&reader), OpenWriters::Present);
        drop(writer);
        assert_eq!(writers(&reader), OpenWriters::Absent);
        let appending = fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(writers(&reader), OpenWriters::Present);
        drop(appending);
    }
}
