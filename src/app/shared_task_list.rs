//! The task list of the host that keeps it, for the relay of this host: it carries out the changes that other hosts order, and
//! releases the tasks of members that have ended there.

use super::context::open_tasks;
use crate::bus::Bus;
use crate::tasks::Tasks;
use crate::wire::host_order::OrderAnswer;
use crate::wire::task_order::TaskOrder;
use std::sync::{Arc, OnceLock};

/// The task list, opened when it is needed first. All calls wait for the disk.
pub struct SharedTaskList {
    bus: Arc<Bus>,
    tasks: OnceLock<Arc<Tasks>>,
}

impl SharedTaskList {
    /// Creates the list of the team whose mail `bus` carries.
    pub fn new(bus: Arc<Bus>) -> Self {
        Self { bus, tasks: OnceLock::new() }
    }

    fn tasks(&self) -> &Tasks {
        self.tasks.get_or_init(|| open_tasks(&self.bus))
    }

    /// Carries out an order of another host, which may give it; `is_repeated` if it may have been carried out before. Returns
    /// `None` while this host does not know the process that the order is of.
    pub fn carry_out(&self, order: &TaskOrder, is_repeated: bool) -> Option<OrderAnswer> {
        self.tasks().carry_out(order, is_repeated)
    }

    /// Makes the tasks of members that have ended pending again, if this host keeps the list. Returns their number.
    ///
    /// # Errors
    /// In words: a file cannot be read or written.
    pub fn release_abandoned(&self) -> Result<usize, String> {
        let released = self.tasks().release_abandoned();
        released.map(|released| released.len()).map_err(|why| why.to_string())
    }
}
