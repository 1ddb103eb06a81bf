//! Output that waits for its reader, also on a descriptor that another program has made non-blocking.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

/// A writer whose writes wait until the descriptor has room.
#[derive(Debug)]
pub(crate) struct BlockingOutput<W>(pub(crate) W);

impl<W: Write + AsFd> BlockingOutput<W> {
    fn when_writable<T>(&mut self, step: impl Fn(&mut W) -> io::Result<T>) -> io::Result<T> {
        loop {
            match step(&mut self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut full = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
                    poll(&mut full, PollTimeout::NONE).unwrap_or_default();
                }
                done => return done,
            }
        }
    }
}

impl<W: Write + AsFd> Write for BlockingOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.when_writable(|out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.when_writable(Write::flush)
    }
}
