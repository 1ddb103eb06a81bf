//! A background command as its agent sees it while it runs: its output, and what waits for its changes.

use super::output::CommandLog;
use crate::tools::command::output::OutputSink;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::sync::Notify;

/// A command whose output is in memory.
pub(super) struct LiveCommand {
    pub(super) log: RefCell<CommandLog>,
    pub(super) has_ended: Cell<bool>,
    pub(super) is_stopped: Cell<bool>,
    pub(super) is_stopped_by_user: Cell<bool>,
    /// The number of calls that are about to show its end.
    pub(super) looks: Cell<usize>,
    /// Whether the notice of its end is being sent.
    pub(super) is_telling: Cell<bool>,
    /// Notified at each change of the above.
    pub(super) changed: Notify,
}

impl LiveCommand {
    pub(super) fn new(log: CommandLog, has_ended: bool) -> Rc<Self> {
        Rc::new(Self {
            log: RefCell::new(log),
            has_ended: Cell::new(has_ended),
            is_stopped: Cell::default(),
            is_stopped_by_user: Cell::default(),
            looks: Cell::default(),
            is_telling: Cell::default(),
            changed: Notify::new(),
        })
    }

    pub(super) fn stop(&self) {
        self.is_stopped.set(true);
        self.changed.notify_waiters();
    }

    /// Waits until a condition holds. Every change of it notifies.
    pub(super) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }
}

/// Passes output to a command that is looked at meanwhile.
pub(super) struct LogSink(pub(super) Rc<LiveCommand>);

impl OutputSink for LogSink {
    fn push(&mut self, bytes: &[u8]) {
        self.0.log.borrow_mut().push(bytes);
        self.0.changed.notify_waiters();
    }
}
