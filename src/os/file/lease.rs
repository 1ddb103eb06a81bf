//! Detects writers of a file by a read lease, which Linux grants only if no process may write to it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Once;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenWriters {
    Absent,
    /// A process, perhaps this one, has the file open for writing.
    Present,
    /// The file system does not support leases.
    Unknown,
}

/// Checks a file that is open for reading only. The lease is released at once.
pub(crate) fn writers(file: &File) -> OpenWriters {
    quiet_sigio();
    match set_lease(file, nix::libc::F_RDLCK) {
        Ok(()) => {
            // If this fails, closing the file releases the lease.
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

/// Ignores SIGIO, which the kernel sends if a writer opens the file during the lease, and which would kill
/// this process. A handler is used because commands would inherit an ignored signal.
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
    use crate::os::file::create_to_read;
    use std::fs;
    use std::io::Write;
    use std::time::{Duration, Instant};

    #[test]
    fn a_file_that_is_created_to_be_read_has_no_writer_and_replaces_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let (file, known) = create_to_read(&path).unwrap();
        assert_eq!((writers(&file), known.len()), (OpenWriters::Absent, 0));
        assert!((&file).write_all(b"x").is_err());
        assert!(create_to_read(&path).unwrap_err().is_taken());
        assert!(!create_to_read(&folder.path().join("none/new")).unwrap_err().is_taken());
    }

    #[test]
    fn a_writer_is_seen_until_it_closes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (writer, path) = file.into_parts();
        let reader = File::open(&path).unwrap();
        assert_eq!(writers(&reader), OpenWriters::Present);
        drop(writer);
        // A child that another test has just forked holds a copy until its exec.
        let deadline = Instant::now() + Duration::from_secs(60);
        while writers(&reader) == OpenWriters::Present {
            assert!(Instant::now() < deadline, "nobody writes");
        }
        assert_eq!(writers(&reader), OpenWriters::Absent);
        let appending = fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(writers(&reader), OpenWriters::Present);
        drop(appending);
    }
}
