//! Detects calls that block the thread of an event loop: during an fsync or a wait for a lock no mail,
//! signal or model reply is handled.
//!
//! The check exists in debug builds only. Threads for offloaded work carry no mark.

use std::cell::Cell;
use std::panic::Location;

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
