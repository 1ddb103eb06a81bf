//! Errors of walls, which name the wall and the errno.

use nix::errno::Errno;
use std::fmt::Display;
use std::io;

/// Puts the name of a wall or of its part in front of an error, as in `namespaces: unshare: EPERM: …`.
pub(super) fn named(name: impl Display, why: &io::Error) -> io::Error {
    let text = match why.raw_os_error() {
        Some(number) => format!("{name}: {}", Errno::from_raw(number)),
        None => format!("{name}: {why}"),
    };
    io::Error::new(why.kind(), text)
}
