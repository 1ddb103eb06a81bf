//! Detects calls that block the thread of an event loop: during an fsync or a wait for a lock no mail,
//! signal or model reply is handled.
//!
//! The check exists in debug builds only. Threads for offloaded work carry no mark.

use std::cell::Cell;
use std::panic::Location;

thread_local! {
    static RUNS_EVENT_LOOP: Cell<bool> = const { Cell::new(false) };
    static VIOLATIONS: Cell<u32> = const { Cell::new(0) };
}

/// Marks the current thread as one that runs an event loop, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct EventLoopMark {
    was_marked: bool,
}

impl EventLoopMark {
    /// Marks the current thread.
    pub(crate) fn set() -> Self {
        Self { was_marked: RUNS_EVENT_LOOP.replace(true) }
    }
}

impl Drop for EventLoopMark {
    fn drop(&mut self) {
        RUNS_EVENT_LOOP.set(self.was_marked);
    }
}

/// Reports a call that may block, if an event loop runs on this thread.
#[track_caller]
pub(crate) fn check_blocking(call: &'static str) {
    if cfg!(debug_assertions) && RUNS_EVENT_LOOP.get() {
        let site = Location::caller();
        VIOLATIONS.set(VIOLATIONS.get() + 1);
        tracing::warn!(call, %site, "a call blocks the event loop");
    }
}

/// The number of violations on this thread.
#[cfg(test)]
pub(crate) fn violations() -> u32 {
    VIOLATIONS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocking_call_is_reported_only_on_a_marked_thread() {
        check_blocking("lock");
        assert_eq!(violations(), 0);
        let outer = EventLoopMark::set();
        let inner = EventLoopMark::set();
        drop(inner);
        check_blocking("lock");
        assert_eq!(violations(), 1);
        std::thread::spawn(|| {
            check_blocking("fsync");
            assert_eq!(violations(), 0);
        })
        .join()
        .unwrap();
        drop(outer);
        check_blocking("lock");
        assert_eq!(violations(), 1);
    }
}
