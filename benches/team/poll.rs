//! Waits for input.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Waits until a descriptor is readable. Returns whether it is.
pub(crate) fn wait(descriptor: BorrowedFd<'_>, limit: Duration) -> bool {
    let mut descriptors = [PollFd::new(descriptor, PollFlags::POLLIN)];
    poll(&mut descriptors, PollTimeout::try_from(limit).unwrap()).unwrap() > 0
}
