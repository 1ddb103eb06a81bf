//! Changes of the task list on a host that does not keep it: each is an order to the host that does.
//!
//! The members that a change concerns are told by mail from here: only the host of an agent writes in its name.

use super::{Changed, TaskError, TaskRecord, Tasks};
use crate::bus::host_orders::{OrderFailure, give_at_once};
use crate::bus::new_id;
use crate::store::relay::{self, order_id};
use crate::store::roster;
use crate::wire::AgentName;
use crate::wire::carried::HostName;
use crate::wire::host_order::{Order, OrderAnswer};
use crate::wire::task::{Board, TaskStatus};
use crate::wire::task_order::{ChangedTask, NewTask, OrderedTaskChange, TaskOrder};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest time for an order and its answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

impl Tasks {
    /// Returns the other host that keeps the list: the one of the lead. `None` if this one does, or knows of no lead.
    pub(crate) fn kept_on(&self) -> Result<Option<HostName>, crate::store::StoreError> {
        // A team on one host has no identity, and costs no more than this look.
        if relay::identity(self.dir())?.is_none() {
            return Ok(None);
        }
        let lead = roster::read(self.dir())?.lead.clone();
        Ok(lead.and_then(|lead| HostName::parse(lead.host.as_deref()?).ok()))
    }

    /// Creates a task on the host that keeps the list, once for a repeated tool call.
    pub(super) fn create_on(
        &self,
        host: &HostName,
        mut new: NewTask,
        by: &AgentName,
    ) -> Result<Changed, TaskError> {
        // Without a tool call, the order itself is what is not carried out twice.
        let origin = new.origin.get_or_insert_with(|| new_id(by)).clone();
        let change = OrderedTaskChange::Create(new);
        let changed = self.order_as(&format!("task:{origin}"), host, change, by)?;
        changed_task(host, changed)
    }

    /// Changes a task on the host that keeps the list.
    pub(super) fn change_on(
        &self,
        host: &HostName,
        change: OrderedTaskChange,
        by: &AgentName,
    ) -> Result<Changed, TaskError> {
        let changed = self.order(host, change, by)?;
        changed_task(host, changed)
    }

    /// Claims the next task for a member of this host. One that an unanswered order has claimed comes first.
    pub(super) fn take_next_on(
        &self,
        host: &HostName,
        name: &AgentName,
    ) -> Result<Option<TaskRecord>, TaskError> {
        if let Some(task) = self.taken_unanswered(&self.snapshot()?.board, name) {
            self.may_have_taken.store(false, Ordering::Relaxed);
            return Ok(Some(task));
        }
        let role = self.role_of(name)?;
        if !(self.can_complete)(self.dir(), &role) {
            return Ok(None);
        }
        let taken = self.order(host, OrderedTaskChange::TakeNext, name);
        let is_unanswered = matches!(
            &taken,
            Err(TaskError::Unreached { why: OrderFailure::Unanswered { .. }, .. })
        );
        if is_unanswered || taken.is_ok() {
            self.may_have_taken.store(is_unanswered, Ordering::Relaxed);
        }
        Ok(taken?.task)
    }

    /// Returns a task that the host which keeps the list has claimed for this member without its knowledge: the answer was
    /// lost, and the copy here shows it.
    pub(super) fn taken_unanswered(&self, board: &Board, name: &AgentName) -> Option<TaskRecord> {
        if !self.may_have_taken.load(Ordering::Relaxed) {
            return None;
        }
        let incarnation = self.actor(name).incarnation;
        let is_its = |task: &&TaskRecord| {
            task.status == TaskStatus::InProgress
                && task.owner.as_deref() == Some(name.as_str())
                && task.lease == incarnation
        };
        board.values().find(is_its).cloned()
    }

    /// Gives an order to the host that keeps the list.
    pub(super) fn order(
        &self,
        host: &HostName,
        change: OrderedTaskChange,
        by: &AgentName,
    ) -> Result<ChangedTask, TaskError> {
        self.order_as(&new_id(by), host, change, by)
    }

    /// Gives an order that is known by a text: a repeated one is carried out once.
    fn order_as(
        &self,
        known_by: &str,
        host: &HostName,
        change: OrderedTaskChange,
        by: &AgentName,
    ) -> Result<ChangedTask, TaskError> {
        let incarnation = self.actor(by).incarnation;
        let order = Order::Task(Box::new(TaskOrder { by: by.clone(), incarnation, change }));
        let order = (order_id(known_by), order);
        let given = give_at_once(self.dir(), host, order, (&*self.clock, ANSWERED_WITHIN));
        match given.map_err(|why| TaskError::Unreached { host: host.clone(), why })? {
            OrderAnswer::TaskChanged(changed) => Ok(*changed),
            OrderAnswer::TaskRefused { why, hint } => Err(TaskError::RefusedThere { why, hint }),
            other @ (OrderAnswer::Spawned { .. }
            | OrderAnswer::Stopped { .. }
            | OrderAnswer::Prepared
            | OrderAnswer::Lacking { .. }
            | OrderAnswer::Collected { .. }
            | OrderAnswer::Dropped { .. }
            | OrderAnswer::Refused { .. }) => {
                let why =
                    format!("{host}, which keeps the task list, refuses: {}", other.refusal());
                Err(TaskError::RefusedThere { why, hint: "nothing was changed".into() })
            }
        }
    }
}

fn changed_task(host: &HostName, changed: ChangedTask) -> Result<Changed, TaskError> {
    let ChangedTask { task, waits_for, ready } = changed;
    let task = task.ok_or_else(|| TaskError::RefusedThere {
        why: format!("the answer of {host} has no task"),
        hint: "use the same version on both hosts".into(),
    })?;
    Ok(Changed { task, waits_for, ready, untold: Vec::new() })
}
