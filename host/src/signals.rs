//! The signals that end the relay.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

/// A stream that is readable after a signal to end.
pub(crate) struct EndSignal(UnixStream);

impl EndSignal {
    /// Registers for SIGTERM, SIGINT and SIGHUP.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub(crate) fn register() -> io::Result<Self> {
        let (read, write) = StdStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Self(UnixStream::from_std(read)?))
    }

    /// Waits for a signal.
    pub(crate) async fn received(&mut self) {
        // An error would mean that the pipe is broken, so that no signal can come.
        drop(self.0.read_u8().await);
    }
}
