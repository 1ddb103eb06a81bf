//! Signals as events of an asynchronous loop.

use crate::error::{Exit, Failure};
use crate::os::async_fd::ReadableFd;
use crate::os::signals::{SignalEvent, Signals};
use std::io;

/// The signals of this process.
pub(super) struct SignalStream {
    signals: Signals,
    ready: ReadableFd,
}

impl SignalStream {
    /// Begins to listen: from now on signals no longer end the process by themselves.
    pub(super) fn begin() -> Result<Self, Failure> {
        let listen = || -> io::Result<Self> {
            let signals = Signals::listen()?;
            let ready = ReadableFd::to_read(&signals)?;
            Ok(Self { signals, ready })
        };
        listen().map_err(|why| {
            let hint = "close other programs, or raise the limit on open files";
            Failure::new(Exit::Failure, "signals cannot be handled", why.to_string(), hint)
        })
    }

    /// The next signal; waits for it.
    pub(super) async fn next(&mut self) -> SignalEvent {
        loop {
            if let Some(signal) = self.signals.take() {
                return signal;
            }
            if self.ready.woken().await.is_err() {
                // Without the event loop nobody waits any more.
                std::future::pending::<()>().await;
            }
        }
    }
}
