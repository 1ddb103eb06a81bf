//! Waits for a descriptor in the event loop; the only file of this layer that uses tokio.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub(crate) struct ReadableFd(AsyncFd<OwnedFd>);

impl ReadableFd {
    /// Watches a copy of a descriptor, whose reads must not block. Fails for a kind that is always ready.
    pub(crate) fn to_read(source: &impl AsFd) -> io::Result<Self> {
        let copy = source.as_fd().try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` always gives the same descriptor and keeps it open until dropped.
        #[expect(unsafe_code, reason = "tokio cannot see that the descriptor is owned")]
        let watched = unsafe { AsyncFd::register_with_interest(copy, Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// Waits until the descriptor is readable. It must then stay readable, as that of an exited process does.
    pub(crate) async fn wait(&self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        ready.retain_ready();
        Ok(())
    }

    /// Waits until the descriptor becomes readable; the caller reads.
    pub(crate) async fn woken(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }

    /// Waits until `attempt` does not block, and returns its result.
    pub(crate) async fn read<R>(&self, attempt: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        let mut attempt = attempt;
        self.0.async_io(Interest::READABLE, |_| attempt()).await
    }
}
