//! Creates event loops, and detects calls that block the thread of one: during an fsync or a wait for a lock no
//! mail, signal or model reply is handled.
//!
//! The check exists in debug builds only. Threads for offloaded work carry no mark.

use std::cell::Cell;
use std::io;
use std::panic::Location;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// The time for which an idle helper thread is kept: for ever. A fork bomb or a low limit may leave no room for a new
/// thread, and the event loop panics if offloaded work finds no thread at all.
const HELPER_KEEP_ALIVE: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Creates the event loop of this process, with its first helper thread. Offloaded work that gets no thread of its own
/// waits for that one. Fails if there are no descriptors, no memory or no threads left.
pub(crate) fn event_loop() -> io::Result<LocalRuntime> {
    // A local runtime: the wake-ups of a local set would each go through the kernel.
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(HELPER_KEEP_ALIVE)
        .build_local(LocalOptions::default())?;
    // The runtime panics where this one fails.
    std::thread::Builder::new().spawn(|| ())?.join().unwrap_or_default();
    runtime.spawn_blocking(|| ());
    Ok(runtime)
}

thread_local! {
    static RUNS_EVENT_LOOP: Cell<bool> = const { Cell::new(false) };
}

/// Marks the current thread as one that runs an event loop, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct EventLoopMark {
    was_marked: bool,
}

impl EventLoopMark {
    pub(crate) fn set() -> Self {
        Self { was_marked: RUNS_EVENT_LOOP.replace(true) }
    }
}

impl Drop for EventLoopMark {
    fn drop(&mut self) {
        RUNS_EVENT_LOOP.set(self.was_marked);
    }
}

/// Refuses a call that may block, if an event loop runs on this thread.
///
/// # Panics
/// In a debug build, if an event loop runs on this thread: the call belongs in `store::asynchronous::offload`.
#[track_caller]
pub(crate) fn check_blocking(call: &'static str) {
    debug_assert!(
        !RUNS_EVENT_LOOP.get(),
        "{call} at {} would block the event loop",
        Location::caller()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocking_call_is_refused_only_on_a_marked_thread() {
        let is_refused = || std::panic::catch_unwind(|| check_blocking("lock")).is_err();
        assert!(!is_refused());
        let outer = EventLoopMark::set();
        let inner = EventLoopMark::set();
        drop(inner);
        assert!(is_refused());
        std::thread::spawn(|| check_blocking("fsync")).join().unwrap();
        drop(outer);
        assert!(!is_refused());
    }
}
