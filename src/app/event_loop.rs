//! The single-threaded event loop that an agent, or a command that waits, runs on.

use crate::error::{Failure, OrFail};
use crate::os::event_loop::EventLoopMark;
use crate::os::{command, memory};
use std::time::Duration;

/// How long cancelled commands are waited for at the end.
const CANCELLED_COMMANDS_LIMIT: Duration = Duration::from_secs(3);

/// How long an idle helper thread is kept: long enough for the next lock or disk access of a turn.
const THREAD_KEEP_ALIVE: Duration = Duration::from_millis(500);

/// Runs a future to its end.
///
/// # Errors
/// The system gives no event loop (descriptors, memory).
pub(crate) fn block_on<F: Future>(main: F) -> Result<F::Output, Failure> {
    memory::use_one_heap();
    // A local runtime: the wake-ups of a local set would each go through the kernel.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build_local(tokio::runtime::LocalOptions::default())
        .or_fail(
            "the event loop cannot be started",
            "close other programs, or raise the limit on open files",
        )?;
    let mark = EventLoopMark::set();
    let output = runtime.block_on(main);
    drop(mark);
    // The processes of a command that was cancelled a moment ago may still be exiting.
    if !command::settle(CANCELLED_COMMANDS_LIMIT) {
        tracing::warn!("a cancelled command has not exited yet");
    }
    // A thread that still waits for a lock or a terminal must not keep the process alive.
    runtime.shutdown_background();
    Ok(output)
}
