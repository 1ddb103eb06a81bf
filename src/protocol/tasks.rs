//! The rules of the shared task list: which change of a task is legal for which agent.
//!
//! ```text
//!            claim              complete
//!   pending ───────> in_progress ──────> completed (for good)
//!    ^  ^  \            │   \ fail
//!    │  └───\──released─┘    └─────────> failed
//!    │       └──────────── cancel ─────> cancelled
//!    └──────────── reopen ───────────────┘
//! ```
//!
//! A claim is a lease: it ends with the incarnation of its owner (a claim of `user` has none). The rules read the
//! whole board and return the one task that changes. They use no file, clock or process.

mod refusal;
#[cfg(test)]
mod tests;

pub(crate) use crate::wire::task_order::{NewOwner, NewTask, TaskEdit};
pub(crate) use refusal::TaskRefusal;

use super::owner::OwnerLiveness;
use crate::wire::role::folded;
use crate::wire::task::{Board, EventKind, HistoryEntry, Task, TaskId, TaskStatus};
use crate::wire::{AgentName, FORMAT_VERSION, WallTime, WithUnknownFields};
use std::collections::BTreeSet;

pub(crate) const SUBJECT_CHARS: usize = 200;
pub(crate) const DESCRIPTION_BYTES: usize = 65_536;

/// The task after a change; `None` if the change has no effect.
pub(crate) type TaskChange = Result<Option<WithUnknownFields<Task>>, TaskRefusal>;

/// The agent or person that acts, and the time.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    /// The name of the agent; `user` for the person.
    pub(crate) name: AgentName,
    /// The incarnation of the agent; the person has none.
    pub(crate) incarnation: Option<String>,
    pub(crate) now: WallTime,
}

impl Actor {
    /// Whether the actor may change every task: the person and the lead may.
    fn steers(&self) -> bool {
        self.name.is_lead() || self.name.is_user()
    }

    fn owns(&self, task: &Task) -> bool {
        task.owner.as_deref() == Some(self.name.as_str())
    }

    /// Checks that the task is not over and that the actor may change it.
    fn check_change(&self, task: &Task) -> Result<(), TaskRefusal> {
        if task.status.is_over() { Err(TaskRefusal::over(task)) } else { self.check_steer(task) }
    }

    fn check_steer(&self, task: &Task) -> Result<(), TaskRefusal> {
        let permitted = self.steers() || self.owns(task) || task.created_by == self.name.as_str();
        if permitted { Ok(()) } else { Err(TaskRefusal::not_yours(task)) }
    }
}

pub(crate) fn create(
    board: &Board,
    id: TaskId,
    new: NewTask,
    by: &Actor,
) -> Result<WithUnknownFields<Task>, TaskRefusal> {
    let mut task = Task {
        version: FORMAT_VERSION,
        id,
        subject: subject_line(&new.subject)?,
        description: details(new.description)?,
        owner: new.owner.map(|owner| owner.to_string()),
        role: role_word(new.role),
        blocked_by: waits_for(board, id, new.blocked_by)?,
        created_by: by.name.to_string(),
        created_at: by.now,
        origin: new.origin,
        ..Task::default()
    };
    note(&mut task, by, EventKind::Created, None);
    Ok(task.into())
}

pub(crate) fn claim(board: &Board, id: TaskId, by: &Actor) -> TaskChange {
    update(board, id, TaskEdit::status(TaskStatus::InProgress, None), by)
}

/// Makes several changes at once: texts first, then the owner, then the status. Completing an unclaimed task
/// claims it first. Returns `None` if the task is the same afterwards.
pub(crate) fn update(board: &Board, id: TaskId, edit: TaskEdit, by: &Actor) -> TaskChange {
    let TaskEdit { subject, description, role, blocked_by, owner, status, note: why } = edit;
    let before = known(board, id)?;
    let mut changed = before.clone();
    let task: &mut Task = &mut changed;
    if subject.is_some() || description.is_some() || role.is_some() || blocked_by.is_some() {
        by.check_change(task)?;
        if let Some(subject) = subject {
            task.subject = subject_line(&subject)?;
        }
        if let Some(description) = description {
            task.description = details(description)?;
        }
        if role.is_some() {
            task.role = role_word(role);
        }
        if let Some(first) = blocked_by {
            task.blocked_by = waits_for(board, id, first)?;
            if task.status == TaskStatus::InProgress {
                check_unblocked(board, task)?;
            }
        }
        if *task != **before {
            note(task, by, EventKind::Changed, None);
        }
    }
    if let Some(to) = owner {
        assign(task, &to, by)?;
    }
    match status {
        None => {}
        Some(TaskStatus::Pending) => reopen(task, why, by)?,
        Some(TaskStatus::InProgress) => claim_it(board, task, by)?,
        Some(over) => end(board, task, over, why, by)?,
    }
    Ok((changed != *before).then_some(changed))
}

/// Whether the process that claimed the task has ended.
pub(crate) fn is_abandoned(task: &Task, owner: &OwnerLiveness) -> bool {
    let is_leased = task.status == TaskStatus::InProgress && task.owner.as_deref() != Some("user");
    is_leased && owner.has_ended(task.lease.as_deref())
}

/// Whether the task waits for an agent to which it was assigned.
pub(crate) fn is_assigned(task: &Task) -> bool {
    let is_agent = |owner: &str| !matches!(owner, "lead" | "user");
    task.status == TaskStatus::Pending && task.owner.as_deref().is_some_and(is_agent)
}

/// Returns the task of a dead owner, made pending again.
pub(crate) fn release(task: &WithUnknownFields<Task>, by: &Actor) -> WithUnknownFields<Task> {
    let mut task = task.clone();
    let why = format!("{} is gone", task.owner.as_deref().unwrap_or("its owner"));
    give_up(&mut task, by, EventKind::Released, Some(why));
    task
}

/// Lists the blockers that are not completed, with their status; `None` for a task that does not exist.
pub(crate) fn blockers(board: &Board, task: &Task) -> Vec<(TaskId, Option<TaskStatus>)> {
    let status = |id: &TaskId| board.get(id).map(|blocker| blocker.status);
    let all = task.blocked_by.iter().map(|id| (*id, status(id)));
    all.filter(|(_, status)| *status != Some(TaskStatus::Completed)).collect()
}

/// Whether the task is pending and all its blockers are completed.
fn is_ready(board: &Board, task: &Task) -> bool {
    task.status == TaskStatus::Pending && blockers(board, task).is_empty()
}

/// Whether an agent owns the task and can work on it now.
pub(crate) fn is_in_hand(board: &Board, task: &Task, name: &AgentName) -> bool {
    let is_begun = task.status == TaskStatus::InProgress;
    task.owner.as_deref() == Some(name.as_str()) && (is_begun || is_ready(board, task))
}

/// Whether the task is ready and has no owner.
pub(crate) fn is_claimable(board: &Board, task: &Task) -> bool {
    task.owner.is_none() && is_ready(board, task)
}

pub(crate) fn freed_by(board: &Board, id: TaskId) -> Vec<WithUnknownFields<Task>> {
    let waited = board.values().filter(|task| task.blocked_by.contains(&id));
    waited.filter(|task| is_ready(board, task)).cloned().collect()
}

/// Returns the task that an agent with that role claims next: its own first, then one for its role, by age.
pub(crate) fn next_for(board: &Board, name: &AgentName, role: &str) -> Option<TaskId> {
    let is_own = |task: &Task| task.owner.as_deref() == Some(name.as_str());
    let suits =
        |task: &Task| task.role.as_ref().is_none_or(|wanted| folded(wanted) == folded(role));
    let own = board.values().find(|task| is_own(task) && is_ready(board, task));
    let is_free = |task: &Task| {
        is_claimable(board, task) && suits(task) && !was_given_back(task, name.as_str())
    };
    own.or_else(|| board.values().find(|task| is_free(task))).map(|task| task.id)
}

/// Whether this agent gave the task back, and since then others have at most done the same. The agent would give it
/// back again.
fn was_given_back(task: &Task, name: &str) -> bool {
    let mut passed_on = task
        .history
        .iter()
        .rev()
        .take_while(|event| matches!(event.what, EventKind::Claimed | EventKind::Released));
    passed_on.any(|event| event.what == EventKind::Released && event.by == name)
}

fn claim_it(board: &Board, task: &mut Task, by: &Actor) -> Result<(), TaskRefusal> {
    if task.status.is_over() {
        return Err(TaskRefusal::over(task));
    }
    let is_claimed = task.status == TaskStatus::InProgress;
    if is_claimed && by.owns(task) && task.lease == by.incarnation {
        return Ok(());
    }
    if is_claimed || task.owner.is_some() && !by.owns(task) {
        return Err(TaskRefusal::taken(task));
    }
    check_unblocked(board, task)?;
    task.status = TaskStatus::InProgress;
    task.owner = Some(by.name.to_string());
    task.lease.clone_from(&by.incarnation);
    note(task, by, EventKind::Claimed, None);
    Ok(())
}

fn end(
    board: &Board,
    task: &mut Task,
    status: TaskStatus,
    why: Option<String>,
    by: &Actor,
) -> Result<(), TaskRefusal> {
    if task.status.is_over() {
        let again = task.status == status && by.owns(task);
        return if again { Ok(()) } else { Err(TaskRefusal::over(task)) };
    }
    let is_free = task.status == TaskStatus::Pending && task.owner.is_none();
    if status == TaskStatus::Cancelled {
        by.check_steer(task)?;
    } else if !by.steers() && !by.owns(task) && !is_free {
        return Err(TaskRefusal::not_yours(task));
    }
    if status == TaskStatus::Completed && task.status == TaskStatus::Pending {
        check_unblocked(board, task)?;
        if is_free || by.owns(task) {
            claim_it(board, task, by)?;
        }
    }
    (task.status, task.lease) = (status, None);
    let event = match status {
        TaskStatus::Completed => EventKind::Completed,
        TaskStatus::Failed => EventKind::Failed,
        TaskStatus::Cancelled | TaskStatus::Pending | TaskStatus::InProgress => {
            EventKind::Cancelled
        }
    };
    note(task, by, event, why);
    Ok(())
}

/// Makes a task pending again: its owner gives it back, or a failed or cancelled task is to be done after all.
fn reopen(task: &mut Task, why: Option<String>, by: &Actor) -> Result<(), TaskRefusal> {
    let event = match task.status {
        TaskStatus::Pending => return Ok(()),
        TaskStatus::Completed => return Err(TaskRefusal::over(task)),
        TaskStatus::InProgress => EventKind::Released,
        TaskStatus::Failed | TaskStatus::Cancelled => EventKind::Reopened,
    };
    by.check_steer(task)?;
    give_up(task, by, event, why);
    Ok(())
}

/// Makes a task pending and removes its owner. The new history entry names the previous owner.
fn give_up(task: &mut Task, by: &Actor, event: EventKind, why: Option<String>) {
    task.status = TaskStatus::Pending;
    note(task, by, event, why);
    (task.owner, task.lease) = (None, None);
}

fn assign(task: &mut Task, to: &NewOwner, by: &Actor) -> Result<(), TaskRefusal> {
    let (owner, event) = match to {
        NewOwner::Unowned => (None, EventKind::Released),
        NewOwner::Agent(name) => (Some(name.to_string()), EventKind::Assigned),
    };
    if task.status.is_over() {
        return Err(TaskRefusal::over(task));
    }
    if task.owner == owner {
        return Ok(());
    }
    if task.owner.is_some() {
        by.check_steer(task)?;
    }
    (task.status, task.owner, task.lease) = (TaskStatus::Pending, owner, None);
    note(task, by, event, None);
    Ok(())
}

fn known(board: &Board, id: TaskId) -> Result<&WithUnknownFields<Task>, TaskRefusal> {
    board.get(&id).ok_or_else(|| TaskRefusal::unknown(board, id))
}

fn check_unblocked(board: &Board, task: &Task) -> Result<(), TaskRefusal> {
    let open = blockers(board, task);
    if open.is_empty() { Ok(()) } else { Err(TaskRefusal::Blocked { id: task.id, by: open }) }
}

/// Checks that the blockers exist and do not wait for the task. Returns them sorted, each once.
fn waits_for(
    board: &Board,
    id: TaskId,
    mut first: Vec<TaskId>,
) -> Result<Vec<TaskId>, TaskRefusal> {
    first.sort_unstable();
    first.dedup();
    for blocker in &first {
        if *blocker != id {
            known(board, *blocker)?;
        }
        if let Some(way) = way(board, *blocker, id) {
            return Err(TaskRefusal::Cycle { id, way });
        }
    }
    Ok(first)
}

/// Returns the chain by which `from` waits for `to`, if it does.
fn way(board: &Board, from: TaskId, to: TaskId) -> Option<Vec<TaskId>> {
    let mut seen = BTreeSet::from([from]);
    let mut ways = vec![vec![from]];
    while let Some(way) = ways.pop() {
        let last = *way.last()?;
        if last == to {
            return Some(way);
        }
        let next = board.get(&last).map(|task| &*task.blocked_by).unwrap_or_default();
        ways.extend(next.iter().filter(|id| seen.insert(**id)).map(|id| [&*way, &[*id]].concat()));
    }
    None
}

/// Folds white space, so that the subject is one line. Fails if it is empty or too long.
fn subject_line(given: &str) -> Result<String, TaskRefusal> {
    let line = given.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.chars().count() {
        0 => Err(TaskRefusal::NoSubject),
        1..=SUBJECT_CHARS => Ok(line),
        count => Err(TaskRefusal::TooLong { what: "subject", count, most: SUBJECT_CHARS }),
    }
}

fn details(given: String) -> Result<String, TaskRefusal> {
    let (what, count, most) = ("description", given.len(), DESCRIPTION_BYTES);
    if count > most { Err(TaskRefusal::TooLong { what, count, most }) } else { Ok(given) }
}

fn role_word(given: Option<String>) -> Option<String> {
    given.map(|role| role.trim().to_owned()).filter(|role| !role.is_empty())
}

fn note(task: &mut Task, by: &Actor, what: EventKind, note: Option<String>) {
    let (by, at) = (by.name.to_string(), by.now);
    let owner = task.owner.clone();
    task.updated_at = at;
    task.history.push(HistoryEntry { at, by, what, owner, note }.into());
}
