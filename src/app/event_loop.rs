//! The single-threaded event loop of an agent or of a command that waits, and signals as its events.

use crate::error::{Exit, Failure, OrFail};
use crate::os::event_loop::{self, EventLoopMark};
use crate::os::signals::{SignalEvent, Signals};
use crate::os::{async_fd::ReadableFd, command, memory};
use std::io;
use std::time::Duration;

const CANCELLED_COMMANDS_LIMIT: Duration = Duration::from_secs(3);

/// The time that abandoned work on other threads has to finish at the end. A thread that still waits for a lock
/// or a terminal must not keep the process alive.
const ABANDONED_WORK_LIMIT: Duration = Duration::from_millis(500);

/// The remedy if the system provides no descriptors, threads or memory.
const HINT: &str = "close other programs, or raise the limits on open files and processes";

/// Runs a future to completion. Fails if the event loop cannot be created, for lack of descriptors, threads or memory.
pub(crate) fn block_on<F: Future>(main: F) -> Result<F::Output, Failure> {
    memory::use_one_heap();
    let runtime = event_loop::event_loop().or_fail("the event loop cannot be started", HINT)?;
    let mark = EventLoopMark::set();
    let output = runtime.block_on(main);
    drop(mark);
    // The processes of a command that was cancelled a moment ago may still be exiting.
    if !command::settle(CANCELLED_COMMANDS_LIMIT) {
        tracing::warn!("a cancelled command has not exited yet");
    }
    // An abandoned update of the roster gets the time to finish, so that it leaves no temporary file behind.
    runtime.shutdown_timeout(ABANDONED_WORK_LIMIT);
    Ok(output)
}

pub(crate) struct SignalStream {
    signals: Signals,
    ready: ReadableFd,
}

impl SignalStream {
    /// Starts to handle signals: from now on they do not terminate the process by themselves.
    pub(crate) fn begin() -> Result<Self, Failure> {
        let listen = || -> io::Result<Self> {
            let signals = Signals::listen()?;
            let ready = ReadableFd::to_read(&signals)?;
            Ok(Self { signals, ready })
        };
        listen().or_fail("signals cannot be handled", HINT)
    }

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

pub(crate) fn exit_of(signal: SignalEvent) -> Exit {
    match signal {
        SignalEvent::Interrupt => Exit::Interrupted,
        SignalEvent::Terminate | SignalEvent::Hangup => Exit::Terminated,
    }
}
