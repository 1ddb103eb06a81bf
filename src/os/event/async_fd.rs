//! Waiting for a descriptor in the event loop; the one place of this layer that knows the event loop.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Tells when something can be read.
#[derive(Debug)]
pub(crate) struct ReadableFd(AsyncFd<OwnedFd>);

impl ReadableFd {
    /// Watches a descriptor (by a copy of its own). What is to be read must not block.
    ///
    /// # Errors
    /// No descriptor is left, or it is of a kind that is always ready.
    pub(crate) fn to_read(source: &impl AsFd) -> io::Result<Self> {
        let copy = source.as_fd().try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` always gives the same descriptor and keeps it open until dropped.
        #[expect(unsafe_code, reason = "tokio cannot see that the descriptor is owned")]
        let watched = unsafe { AsyncFd::register_with_interest(copy, Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// Waits until there is something to read; for what stays readable, such as a process that has ended.
    pub(crate) async fn wait(&self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        ready.retain_ready();
        Ok(())
    }

    /// Waits until something new can be read; what is there is left to the caller.
    pub(crate) async fn woken(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }

    /// Waits until `attempt` no longer would block, and gives what it gave.
    pub(crate) async fn read<R>(
        &self,
        mut attempt: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(done) = ready.try_io(|_| attempt()) {
                return done;
            }
        }
    }
}
