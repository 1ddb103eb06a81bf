//! The work of the host that keeps the task list: it carries out the changes that other hosts order.

use super::{Changed, TaskError, TaskRecord, Tasks};
use crate::protocol::owner::OwnerLiveness;
use crate::wire::AgentName;
use crate::wire::host_order::OrderAnswer;
use crate::wire::task::{TaskId, TaskStatus};
use crate::wire::task_order::{ChangedTask, OrderedTaskChange, TaskEdit, TaskOrder};

impl Tasks {
    /// Carries out an order of another host, which may give it. `is_repeated` says that the order may have been carried out
    /// before. Returns `None` while this host does not know the process that the order is of: it has just started.
    pub(crate) fn carry_out(&self, order: &TaskOrder, is_repeated: bool) -> Option<OrderAnswer> {
        let done = match self.kept_on() {
            Ok(None) if !self.knows_process_of(order) => return None,
            Ok(None) => self.change_for(order, is_repeated),
            Ok(Some(host)) => {
                let why = format!("the lead is on {host} now, which keeps the task list");
                Err(TaskError::RefusedThere { why, hint: "try again".into() })
            }
            Err(why) => Err(why.into()),
        };
        Some(match done {
            Ok(changed) => OrderAnswer::TaskChanged(Box::new(changed)),
            Err(why) => OrderAnswer::TaskRefused { why: why.to_string(), hint: why.hint() },
        })
    }

    /// Whether the process that an order is of is the one that this host knows. A claim is bound to it.
    fn knows_process_of(&self, order: &TaskOrder) -> bool {
        let Some(incarnation) = &order.incarnation else { return true };
        self.liveness_of(order.by.as_str()) == OwnerLiveness::Running(incarnation.clone())
    }

    fn change_for(&self, order: &TaskOrder, is_repeated: bool) -> Result<ChangedTask, TaskError> {
        let by = &order.by;
        let changed = match &order.change {
            OrderedTaskChange::Create(new) => self.create_here(new, by)?,
            OrderedTaskChange::Claim { task_id } => self.claim_here(*task_id, by)?,
            OrderedTaskChange::Update { task_id, edit } => {
                self.update_for(*task_id, edit, by, is_repeated)?
            }
            OrderedTaskChange::TakeNext => {
                let task = self.take_next_for(by, is_repeated)?;
                return Ok(ChangedTask { task, ..ChangedTask::default() });
            }
            OrderedTaskChange::BeginAssigned { task_ids } => {
                self.begin_assigned_here(task_ids, by)?;
                return Ok(ChangedTask::default());
            }
        };
        let Changed { task, waits_for, ready, .. } = changed;
        Ok(ChangedTask { task: Some(task), waits_for, ready })
    }

    /// Changes a task. A repeated end is no refusal: the task is as it was to be.
    fn update_for(
        &self,
        id: TaskId,
        edit: &TaskEdit,
        by: &AgentName,
        is_repeated: bool,
    ) -> Result<Changed, TaskError> {
        let refused = match self.update_here(id, edit.clone(), by) {
            Err(why) if is_repeated => why,
            changed => return changed,
        };
        let (task, seen) = self.get(id)?;
        let is_last = task.history.last().is_some_and(|last| last.by == by.as_str());
        if !(is_last && task.status.is_over() && edit.status == Some(task.status)) {
            return Err(refused);
        }
        let is_completed = task.status == TaskStatus::Completed;
        let freed = || crate::protocol::tasks::freed_by(&seen.board, id);
        let ready = if is_completed { freed() } else { Vec::new() };
        Ok(Changed { task, waits_for: Vec::new(), ready, untold: Vec::new() })
    }

    /// Claims the next task. A repeated order gets the task that it may have claimed before.
    fn take_next_for(
        &self,
        by: &AgentName,
        is_repeated: bool,
    ) -> Result<Option<TaskRecord>, TaskError> {
        if is_repeated {
            let incarnation = self.actor(by).incarnation;
            let is_of_process = |task: &TaskRecord| task.lease == incarnation;
            let mut taken = self.in_progress_of(by)?;
            taken.retain(is_of_process);
            if let Some(task) = taken.pop() {
                return Ok(Some(task));
            }
        }
        self.take_next_here(by)
    }
}
