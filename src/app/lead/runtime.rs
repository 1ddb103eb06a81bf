//! The parts of a running lead that its session, its approvals and its end share.

use crate::agent::Events;
use crate::agent::event::Event;
use crate::bus::Bus;
use crate::store::TeamDir;
use crate::supervise::supervisor::Supervisor;
use crate::tasks::Tasks;
use crate::tools::approval_queue::ApprovalQueue;
use std::rc::Rc;
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct LeadRuntime {
    pub(super) bus: Arc<Bus>,
    pub(super) tasks: Arc<Tasks>,
    /// Whether idle teammates claim tasks of the list, so that a claimable task keeps a run from ending.
    pub(super) auto_claim: bool,
    pub(super) supervisor: Rc<Supervisor>,
    pub(super) approval_queue: Rc<ApprovalQueue>,
    pub(super) events: Events,
    pub(super) incarnation: String,
}

impl LeadRuntime {
    pub(super) fn team(&self) -> &TeamDir {
        self.bus.dir()
    }

    pub(super) fn send(&self, event: Event) {
        // An agent whose loop has ended needs no more events.
        let _ended = self.events.send(event);
    }
}
