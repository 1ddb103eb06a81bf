//! The rules of the shared task list: who may do what with a task next, and what it is afterwards.
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
//! A claim is a lease: it ends with the life of its owner (`user` needs none). The rules look at the
//! whole board and give back the one task that changes; they know no file, clock or process.

mod refusal;
#[cfg(test)]
mod tests;

pub(crate) use refusal::TaskRefusal;

use crate::wire::task::{Board, EventKind, HistoryEntry, Task, TaskId, TaskStatus};
use crate::wire::{AgentName, FORMAT_VERSION, WallTime, WithUnknownFields};
use std::collections::BTreeMap;

/// Characters of a subject.
pub(crate) const SUBJECT_CHARS: usize = 200;

/// Bytes of a description.
pub(crate) const DESCRIPTION_BYTES: usize = 65_536;

/// A task as it is after a change; nothing when it is so already.
pub(crate) type Ruling = Result<Option<WithUnknownFields<Task>>, TaskRefusal>;

/// Who acts, and when.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    /// The agent, or the person.
    pub(crate) name: AgentName,
    /// This life of it; the person has none.
    pub(crate) life: Option<String>,
    /// Now.
    pub(crate) now: WallTime,
}

impl Actor {
    /// The person and the lead may set everything right.
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

/// A task to be made.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewTask {
    /// What is to be done, in one line.
    pub(crate) subject: String,
    /// The details.
    pub(crate) description: String,
    /// What comes first.
    pub(crate) blocked_by: Vec<TaskId>,
    /// Whose it is.
    pub(crate) owner: Option<AgentName>,
    /// Who may take it by itself.
    pub(crate) role: Option<String>,
    /// The tool call that makes it.
    pub(crate) origin: Option<String>,
}

/// What is to be changed; what is absent stays.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskEdit {
    /// The line.
    pub(crate) subject: Option<String>,
    /// The details.
    pub(crate) description: Option<String>,
    /// Who may take it by itself; empty: anybody.
    pub(crate) role: Option<String>,
    /// What comes first.
    pub(crate) blocked_by: Option<Vec<TaskId>>,
    /// Whose it is from now on.
    pub(crate) owner: Option<NewOwner>,
    /// How far it has come.
    pub(crate) status: Option<TaskStatus>,
    /// Why, for the history.
    pub(crate) note: Option<String>,
}

/// Whose a task is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NewOwner {
    /// Whoever takes it.
    Nobody,
    /// This one.
    Agent(AgentName),
}

/// How a task can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskEnd {
    /// Done.
    Completed,
    /// It cannot be done.
    Failed,
    /// No longer wanted.
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

    fn deed(self) -> EventKind {
        match self {
            Self::Completed => EventKind::Completed,
            Self::Failed => EventKind::Failed,
            Self::Cancelled => EventKind::Cancelled,
        }
    }
}

/// The task `id`, as `new` describes it.
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

/// Rules on one task; whatever comes out differs from what stood on the board, or there is nothing.
fn rule(
    board: &Board,
    id: TaskId,
    change: impl FnOnce(&mut WithUnknownFields<Task>) -> Result<(), TaskRefusal>,
) -> Ruling {
    let before = known(board, id)?;
    let mut task = before.clone();
    change(&mut task)?;
    Ok((task != *before).then_some(task))
}

/// The actor begins to work on it.
pub(crate) fn claim(board: &Board, id: TaskId, by: &Actor) -> Ruling {
    rule(board, id, |task| claim_it(board, task, by))
}

/// The task ends. Completing one that nobody has claimed claims it on the way.
pub(crate) fn end(
    board: &Board,
    id: TaskId,
    how: TaskEnd,
    why: Option<String>,
    by: &Actor,
) -> Ruling {
    rule(board, id, |task| end_it(board, task, how, why, by))
}

/// Several changes at once: the words first, then the owner, then the status.
pub(crate) fn update(board: &Board, id: TaskId, edit: TaskEdit, by: &Actor) -> Ruling {
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

/// Whether the life that worked on it is over, by what is known of the owner's life now.
pub(crate) fn is_abandoned(task: &Task, life: &OwnerLife) -> bool {
    let is_leased = task.status == TaskStatus::InProgress && task.owner.as_deref() != Some("user");
    is_leased
        && match life {
            OwnerLife::Over => true,
            OwnerLife::Untold => false,
            OwnerLife::Of(life) => task.lease.as_ref().is_some_and(|lease| lease != life),
        }
}

/// What is known of an owner's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnerLife {
    /// Nobody lives under the name.
    Over,
    /// Somebody does, and has not said which life it is.
    Untold,
    /// This one.
    Of(String),
}

/// The task after its owner's life is over.
pub(crate) fn release(task: &WithUnknownFields<Task>, by: &Actor) -> WithUnknownFields<Task> {
    let mut task = task.clone();
    let owner = task.owner.clone().unwrap_or_else(|| "its owner".into());
    task.status = TaskStatus::Pending;
    note(&mut task, by, EventKind::Released, Some(format!("{owner} is gone")));
    (task.owner, task.lease) = (None, None);
    task
}

/// Blockers that are not completed, with their status; none for one that does not exist.
pub(crate) fn blockers(board: &Board, task: &Task) -> Vec<(TaskId, Option<TaskStatus>)> {
    let status = |id: &TaskId| board.get(id).map(|blocker| blocker.status);
    let all = task.blocked_by.iter().map(|id| (*id, status(id)));
    all.filter(|(_, status)| *status != Some(TaskStatus::Completed)).collect()
}

/// Pending, with nothing left to wait for.
pub(crate) fn is_ready(board: &Board, task: &Task) -> bool {
    task.status == TaskStatus::Pending && blockers(board, task).is_empty()
}

/// Ready, and nobody's.
pub(crate) fn is_claimable(board: &Board, task: &Task) -> bool {
    task.owner.is_none() && is_ready(board, task)
}

/// Tasks that waited for `id` and now wait for nothing.
pub(crate) fn freed_by(board: &Board, id: TaskId) -> Vec<WithUnknownFields<Task>> {
    let waited = board.values().filter(|task| task.blocked_by.contains(&id));
    waited.filter(|task| is_ready(board, task)).cloned().collect()
}

/// What somebody with that role takes next by itself: its own first, then what suits, oldest first.
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
    note(task, by, how.deed(), why);
    Ok(())
}

/// Given back by its owner, or wanted after all.
fn reopen_it(
    task: &mut WithUnknownFields<Task>,
    why: Option<String>,
    by: &Actor,
) -> Result<(), TaskRefusal> {
    let deed = match task.status {
        TaskStatus::Pending => return Ok(()),
        TaskStatus::Completed => return Err(TaskRefusal::over(task)),
        TaskStatus::InProgress => EventKind::Released,
        TaskStatus::Failed | TaskStatus::Cancelled => EventKind::Reopened,
    };
    if !by.may_steer(task) {
        return Err(TaskRefusal::not_yours(task));
    }
    task.status = TaskStatus::Pending;
    note(task, by, deed, why);
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
    let deed = if owner.is_some() { EventKind::Assigned } else { EventKind::Released };
    task.status = TaskStatus::Pending;
    (task.owner, task.lease) = (owner, None);
    note(task, by, deed, None);
    Ok(())
}

/// What an edit says anew about the work itself.
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

/// What a task may wait for: tasks that exist and do not wait for it.
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

/// How `from` comes to wait for `to`, if it does.
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

/// One line, its white space folded.
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
