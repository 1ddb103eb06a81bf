//! Signals as events of an asynchronous loop.

use crate::error::{Exit, Failure, OrFail};
use crate::os::async_fd::ReadableFd;
use crate::os::signals::{SignalEvent, Signals};
use std::io;

/// The signals of this process.
pub(crate) struct SignalStream {
    signals: Signals,
    ready: ReadableFd,
}

impl SignalStream {
    /// Starts to listen: from now on signals no longer end the process by themselves.
    pub(crate) fn begin() -> Result<Self, Failure> {
        let listen = || -> io::Result<Self> {
            let signals = Signals::listen()?;
            let ready = ReadableFd::to_read(&signals)?;
            Ok(Self { signals, ready })
        };
        listen().or_fail(
            "signals cannot be handled",
            "close other programs, or raise the limit on open files",
        )
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> SignalEvent {
        loop {
            if let Some(signal) = self.signals.take() {
                return signal;
            }
            if self.ready.woken().await.is_err() {
                // The event loop is being shut down.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// The exit code of a command that a signal ended.
pub(crate) fn exit_of(signal: SignalEvent) -> Exit {
    match signal {
        SignalEvent::Interrupt => Exit::Interrupted,
        SignalEvent::Terminate | SignalEvent::Hangup => Exit::Terminated,
    }
}
