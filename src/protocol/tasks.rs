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
//! A claim is a lease: it ends with the life of its owner (`user` needs none). The rules read the whole
//! board and return the one task that changes; they know no file, clock or process.

mod refusal;
#[cfg(test)]
mod tests;

pub(crate) use refusal::TaskRefusal;

use crate::wire::task::{Board, EventKind, HistoryEntry, Task, TaskId, TaskStatus};
use crate::wire::{AgentName, FORMAT_VERSION, WallTime, WithUnknownFields};
use std::collections::BTreeMap;

/// Longest subject, in characters.
pub(crate) const SUBJECT_CHARS: usize = 200;

/// Longest description, in bytes.
pub(crate) const DESCRIPTION_BYTES: usize = 65_536;

/// The task after a change; `None` if the change has no effect.
pub(crate) type TaskChange = Result<Option<WithUnknownFields<Task>>, TaskRefusal>;

/// The agent or person that acts, and the time.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    /// Name of the agent; `user` for the person.
    pub(crate) name: AgentName,
    /// Incarnation of the agent; the person has none.
    pub(crate) life: Option<String>,
    /// Current time.
    pub(crate) now: WallTime,
}

impl Actor {
    /// The person and the lead may change every task.
    fn steers(&self) -> bool {
        self.name.is_lead() || self.name.is_user()
    }

    fn owns(&self, task: &Task) -> bool {
        task.owner.as_deref() == Some(self.name.as_str())
    }

    fn may_steer(&self, task: &Task) -> bool {
        self.steers() || self.owns(task) || task.created_by == self.name.as_str()
    }
}

/// A task that is to be created.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewTask {
    /// Subject, one line.
    pub(crate) subject: String,
    /// Description.
    pub(crate) description: String,
    /// Tasks that must be completed first.
    pub(crate) blocked_by: Vec<TaskId>,
    /// Owner.
    pub(crate) owner: Option<AgentName>,
    /// Role whose members may claim it by themselves.
    pub(crate) role: Option<String>,
    /// Id of the tool call that creates it.
    pub(crate) origin: Option<String>,
}

/// Changes of a task. Absent fields stay.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskEdit {
    /// Subject.
    pub(crate) subject: Option<String>,
    /// Description.
    pub(crate) description: Option<String>,
    /// Role whose members may claim it by themselves; empty for all.
    pub(crate) role: Option<String>,
    /// Tasks that must be completed first.
    pub(crate) blocked_by: Option<Vec<TaskId>>,
    /// New owner.
    pub(crate) owner: Option<NewOwner>,
    /// New status.
    pub(crate) status: Option<TaskStatus>,
    /// Reason, for the history.
    pub(crate) note: Option<String>,
}

/// The new owner of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NewOwner {
    /// None: any agent may claim it.
    Nobody,
    /// This agent.
    Agent(AgentName),
}

/// How a task can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskEnd {
    /// It is done.
    Completed,
    /// It cannot be done.
    Failed,
    /// It is no longer wanted.
    Cancelled,
}

impl TaskEnd {
    fn status(self) -> TaskStatus {
        match self {
            Self::Completed => TaskStatus::Completed,
            Self::Failed => TaskStatus::Failed,
            Self::Cancelled => TaskStatus::Cancelled,
        }
    }

    fn event(self) -> EventKind {
        match self {
            Self::Completed => EventKind::Completed,
            Self::Failed => EventKind::Failed,
            Self::Cancelled => EventKind::Cancelled,
        }
    }
}

/// Creates the task `id`.
pub(crate) fn create(
    board: &Board,
    id: TaskId,
    new: NewTask,
    by: &Actor,
) -> Result<WithUnknownFields<Task>, TaskRefusal> {
    let NewTask { subject, description, blocked_by, owner, role, origin } = new;
    let mut task: WithUnknownFields<Task> = Task {
        version: FORMAT_VERSION,
        id,
        subject: subject_line(&subject)?,
        description: details(description)?,
        status: TaskStatus::Pending,
        owner: owner.map(|owner| owner.to_string()),
        lease: None,
        role: role_word(role),
        blocked_by: waits_for(board, id, blocked_by)?,
        created_by: by.name.to_string(),
        created_at: by.now,
        updated_at: by.now,
        origin,
        history: Vec::new(),
    }
    .into();
    note(&mut task, by, EventKind::Created, None);
    Ok(task)
}

/// Applies a change to one task. Returns `None` if the task is the same afterwards.
fn rule(
    board: &Board,
    id: TaskId,
    change: impl FnOnce(&mut WithUnknownFields<Task>) -> Result<(), TaskRefusal>,
) -> TaskChange {
    let before = known(board, id)?;
    let mut task = before.clone();
    change(&mut task)?;
    Ok((task != *before).then_some(task))
}

/// Claims the task for the actor.
pub(crate) fn claim(board: &Board, id: TaskId, by: &Actor) -> TaskChange {
    rule(board, id, |task| claim_it(board, task, by))
}

/// Ends the task. Completing an unclaimed task claims it first.
pub(crate) fn end(
    board: &Board,
    id: TaskId,
    how: TaskEnd,
    why: Option<String>,
    by: &Actor,
) -> TaskChange {
    rule(board, id, |task| end_it(board, task, how, why, by))
}

/// Makes several changes at once: texts first, then the owner, then the status.
pub(crate) fn update(board: &Board, id: TaskId, edit: TaskEdit, by: &Actor) -> TaskChange {
    let TaskEdit { subject, description, role, blocked_by, owner, status, note: why } = edit;
    rule(board, id, |task| {
        let words = Words { subject, description, role, blocked_by };
        if words != Words::default() {
            reword(board, task, words, by)?;
        }
        if let Some(to) = owner {
            assign_it(task, &to, by)?;
        }
        match status {
            None => Ok(()),
            Some(TaskStatus::Pending) => reopen_it(task, why, by),
            Some(TaskStatus::InProgress) => claim_it(board, task, by),
            Some(TaskStatus::Completed) => end_it(board, task, TaskEnd::Completed, why, by),
            Some(TaskStatus::Failed) => end_it(board, task, TaskEnd::Failed, why, by),
            Some(TaskStatus::Cancelled) => end_it(board, task, TaskEnd::Cancelled, why, by),
        }
    })
}

/// Whether the life that claimed the task is over.
pub(crate) fn is_abandoned(task: &Task, life: &OwnerLife) -> bool {
    let is_leased = task.status == TaskStatus::InProgress && task.owner.as_deref() != Some("user");
    is_leased
        && match life {
            OwnerLife::Over => true,
            OwnerLife::Untold => false,
            OwnerLife::Of(life) => task.lease.as_ref().is_some_and(|lease| lease != life),
        }
}

/// What is known of the owner's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnerLife {
    /// No process has the name.
    Over,
    /// A process has the name; its incarnation is unknown.
    Untold,
    /// The process with this incarnation has the name.
    Of(String),
}

/// Makes a task of a dead owner pending again.
pub(crate) fn release(task: &WithUnknownFields<Task>, by: &Actor) -> WithUnknownFields<Task> {
    let mut task = task.clone();
    let owner = task.owner.clone().unwrap_or_else(|| "its owner".into());
    task.status = TaskStatus::Pending;
    note(&mut task, by, EventKind::Released, Some(format!("{owner} is gone")));
    (task.owner, task.lease) = (None, None);
    task
}

/// Lists the blockers that are not completed, with their status; `None` for a task that does not exist.
pub(crate) fn blockers(board: &Board, task: &Task) -> Vec<(TaskId, Option<TaskStatus>)> {
    let status = |id: &TaskId| board.get(id).map(|blocker| blocker.status);
    let all = task.blocked_by.iter().map(|id| (*id, status(id)));
    all.filter(|(_, status)| *status != Some(TaskStatus::Completed)).collect()
}

/// Whether the task is pending and all its blockers are completed.
pub(crate) fn is_ready(board: &Board, task: &Task) -> bool {
    task.status == TaskStatus::Pending && blockers(board, task).is_empty()
}

/// Whether the task is ready and has no owner.
pub(crate) fn is_claimable(board: &Board, task: &Task) -> bool {
    task.owner.is_none() && is_ready(board, task)
}

/// Lists the tasks that became ready by the completion of `id`.
pub(crate) fn freed_by(board: &Board, id: TaskId) -> Vec<WithUnknownFields<Task>> {
    let waited = board.values().filter(|task| task.blocked_by.contains(&id));
    waited.filter(|task| is_ready(board, task)).cloned().collect()
}

/// Returns the task that an agent with that role claims next by itself: its own first, then those for its
/// role, the oldest first.
pub(crate) fn next_for(board: &Board, name: &AgentName, role: &str) -> Option<TaskId> {
    let is_own = |task: &Task| task.owner.as_deref() == Some(name.as_str());
    let own = board.values().find(|task| is_own(task) && is_ready(board, task));
    let suits = |task: &Task| task.role.as_ref().is_none_or(|wanted| same_role(wanted, role));
    own.or_else(|| board.values().find(|task| is_claimable(board, task) && suits(task)))
        .map(|task| task.id)
}

fn same_role(wanted: &str, role: &str) -> bool {
    wanted.trim().to_lowercase() == role.trim().to_lowercase()
}

fn claim_it(
    board: &Board,
    task: &mut WithUnknownFields<Task>,
    by: &Actor,
) -> Result<(), TaskRefusal> {
    match task.status {
        TaskStatus::InProgress if by.owns(task) && task.lease == by.life => return Ok(()),
        TaskStatus::InProgress => return Err(TaskRefusal::taken(task)),
        TaskStatus::Pending => {}
        TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => {
            return Err(TaskRefusal::over(task));
        }
    }
    if task.owner.is_some() && !by.owns(task) {
        return Err(TaskRefusal::taken(task));
    }
    unblocked(board, task)?;
    task.status = TaskStatus::InProgress;
    task.owner = Some(by.name.to_string());
    task.lease.clone_from(&by.life);
    note(task, by, EventKind::Claimed, None);
    Ok(())
}

fn end_it(
    board: &Board,
    task: &mut WithUnknownFields<Task>,
    how: TaskEnd,
    why: Option<String>,
    by: &Actor,
) -> Result<(), TaskRefusal> {
    if task.status.is_over() {
        let again = task.status == how.status() && by.owns(task);
        return if again { Ok(()) } else { Err(TaskRefusal::over(task)) };
    }
    let is_free = task.status == TaskStatus::Pending && task.owner.is_none();
    let permitted = match how {
        TaskEnd::Completed | TaskEnd::Failed => by.steers() || by.owns(task) || is_free,
        TaskEnd::Cancelled => by.may_steer(task),
    };
    if !permitted {
        return Err(TaskRefusal::not_yours(task));
    }
    if how == TaskEnd::Completed && task.status == TaskStatus::Pending {
        unblocked(board, task)?;
        if is_free || by.owns(task) {
            claim_it(board, task, by)?;
        }
    }
    task.status = how.status();
    task.lease = None;
    note(task, by, how.event(), why);
    Ok(())
}

/// Makes a task pending again: its owner gives it back, or it is wanted after all.
fn reopen_it(
    task: &mut WithUnknownFields<Task>,
    why: Option<String>,
    by: &Actor,
) -> Result<(), TaskRefusal> {
    let event = match task.status {
        TaskStatus::Pending => return Ok(()),
        TaskStatus::Completed => return Err(TaskRefusal::over(task)),
        TaskStatus::InProgress => EventKind::Released,
        TaskStatus::Failed | TaskStatus::Cancelled => EventKind::Reopened,
    };
    if !by.may_steer(task) {
        return Err(TaskRefusal::not_yours(task));
    }
    task.status = TaskStatus::Pending;
    note(task, by, event, why);
    (task.owner, task.lease) = (None, None);
    Ok(())
}

fn assign_it(
    task: &mut WithUnknownFields<Task>,
    to: &NewOwner,
    by: &Actor,
) -> Result<(), TaskRefusal> {
    let owner = match to {
        NewOwner::Nobody => None,
        NewOwner::Agent(name) => Some(name.to_string()),
    };
    if task.status.is_over() {
        return Err(TaskRefusal::over(task));
    }
    if task.owner == owner {
        return Ok(());
    }
    if task.owner.is_some() && !by.may_steer(task) {
        return Err(TaskRefusal::not_yours(task));
    }
    let event = if owner.is_some() { EventKind::Assigned } else { EventKind::Released };
    task.status = TaskStatus::Pending;
    (task.owner, task.lease) = (owner, None);
    note(task, by, event, None);
    Ok(())
}

/// The text fields of an edit, and the blockers.
#[derive(Default, PartialEq)]
struct Words {
    subject: Option<String>,
    description: Option<String>,
    role: Option<String>,
    blocked_by: Option<Vec<TaskId>>,
}

fn reword(
    board: &Board,
    task: &mut WithUnknownFields<Task>,
    words: Words,
    by: &Actor,
) -> Result<(), TaskRefusal> {
    if task.status.is_over() {
        return Err(TaskRefusal::over(task));
    }
    if !by.may_steer(task) {
        return Err(TaskRefusal::not_yours(task));
    }
    let before = task.clone();
    if let Some(subject) = words.subject {
        task.subject = subject_line(&subject)?;
    }
    if let Some(description) = words.description {
        task.description = details(description)?;
    }
    if let Some(role) = words.role {
        task.role = role_word(Some(role));
    }
    if let Some(first) = words.blocked_by {
        task.blocked_by = waits_for(board, task.id, first)?;
        if task.status == TaskStatus::InProgress {
            unblocked(board, task)?;
        }
    }
    if *task != before {
        note(task, by, EventKind::Changed, None);
    }
    Ok(())
}

fn known(board: &Board, id: TaskId) -> Result<&WithUnknownFields<Task>, TaskRefusal> {
    board.get(&id).ok_or_else(|| TaskRefusal::unknown(board, id))
}

fn unblocked(board: &Board, task: &Task) -> Result<(), TaskRefusal> {
    let open = blockers(board, task);
    if open.is_empty() { Ok(()) } else { Err(TaskRefusal::Blocked { id: task.id, by: open }) }
}

/// Checks blockers: they must exist and not wait for the task.
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
    let mut came_from: BTreeMap<TaskId, Option<TaskId>> = BTreeMap::from([(from, None)]);
    let mut open = vec![from];
    while let Some(id) = open.pop() {
        if id == to {
            let mut way = vec![id];
            let mut at = id;
            while let Some(Some(before)) = came_from.get(&at) {
                way.push(*before);
                at = *before;
            }
            way.reverse();
            return Some(way);
        }
        for next in board.get(&id).map(|task| &*task.blocked_by).unwrap_or_default() {
            if !came_from.contains_key(next) {
                came_from.insert(*next, Some(id));
                open.push(*next);
            }
        }
    }
    None
}

/// Folds white space into one line.
fn subject_line(given: &str) -> Result<String, TaskRefusal> {
    let line = given.split_whitespace().collect::<Vec<_>>().join(" ");
    let count = line.chars().count();
    match count {
        0 => Err(TaskRefusal::NoSubject),
        1..=SUBJECT_CHARS => Ok(line),
        _ => Err(TaskRefusal::TooLong { what: "subject", count, most: SUBJECT_CHARS }),
    }
}

fn details(given: String) -> Result<String, TaskRefusal> {
    let (count, most) = (given.len(), DESCRIPTION_BYTES);
    if count > most {
        return Err(TaskRefusal::TooLong { what: "description", count, most });
    }
    Ok(given)
}

fn role_word(given: Option<String>) -> Option<String> {
    given.map(|role| role.trim().to_owned()).filter(|role| !role.is_empty())
}

fn note(task: &mut WithUnknownFields<Task>, by: &Actor, what: EventKind, note: Option<String>) {
    let (by, at) = (by.name.to_string(), by.now);
    let owner = task.owner.clone();
    task.updated_at = at;
    task.history.push(HistoryEntry { at, by, what, owner, note }.into());
}
