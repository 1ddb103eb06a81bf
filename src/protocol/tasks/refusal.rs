//! Refusals of task changes, each with a hint.

use crate::wire::task::{Board, Task, TaskId, TaskStatus};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TaskRefusal {
    #[error("there is no task {id}; {}", listed(known))]
    Unknown { id: TaskId, known: Vec<TaskId> },
    #[error("task {id} waits for {}", waited_for(by))]
    Blocked {
        id: TaskId,
        /// The blockers with their status; `None` for a task that does not exist.
        by: Vec<(TaskId, Option<TaskStatus>)>,
    },
    #[error("task {id} is {owner}'s ({})", status.word())]
    Taken { id: TaskId, owner: String, status: TaskStatus },
    #[error("task {id} is {} already{}", status.word(), by_whom(by.as_deref()))]
    Over { id: TaskId, status: TaskStatus, by: Option<String> },
    /// Only the owner, the creator, the lead and the person may make this change.
    #[error("task {id} is not yours to change: it is {whose}")]
    NotYours { id: TaskId, whose: String },
    #[error("task {id} would wait for itself: {}", chain(*id, way))]
    Cycle {
        id: TaskId,
        /// The chain from the new blocker back to the task.
        way: Vec<TaskId>,
    },
    #[error("a task needs a subject")]
    NoSubject,
    #[error("the {what} is too long: {count}, at most {most}")]
    TooLong { what: &'static str, count: usize, most: usize },
}

/// The maximum number of ids in a message.
const LISTED: usize = 20;

impl TaskRefusal {
    pub(crate) fn unknown(board: &Board, id: TaskId) -> Self {
        Self::Unknown { id, known: board.keys().copied().collect() }
    }

    pub(super) fn taken(task: &Task) -> Self {
        let owner = task.owner.clone().unwrap_or_else(|| "another member".into());
        Self::Taken { id: task.id, owner, status: task.status }
    }

    pub(super) fn over(task: &Task) -> Self {
        let by = task.history.last().map(|last| last.by.clone());
        Self::Over { id: task.id, status: task.status, by }
    }

    pub(super) fn not_yours(task: &Task) -> Self {
        let whose = match &task.owner {
            Some(owner) => format!("{owner}'s"),
            None => format!("not assigned, and was created by {}", task.created_by),
        };
        Self::NotYours { id: task.id, whose }
    }

    /// Returns advice for people and models.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Unknown { .. } => "look at the task list for its id".into(),
            Self::Blocked { by, .. } if by.iter().all(|(_, status)| is_coming(*status)) => {
                "take another task, or wait until those are completed".into()
            }
            Self::Blocked { .. } => {
                "what failed, was cancelled or is gone will not be completed: reopen it, or change \
                 what the task waits for (update_task with blocked_by)"
                    .into()
            }
            Self::Taken { owner, .. } => {
                format!("take another task, or ask {owner} or the lead to give it back")
            }
            Self::Over { status: TaskStatus::Completed, .. } => {
                "for more work of that kind, make a new task".into()
            }
            Self::Over { .. } => {
                "to have it done after all, reopen it (set its status to pending)".into()
            }
            Self::NotYours { .. } => "ask its owner or the lead".into(),
            Self::Cycle { .. } => "leave out one of those dependencies".into(),
            Self::NoSubject => "say in one line what is to be done".into(),
            Self::TooLong { .. } => "write the details to a file and name its path".into(),
        }
    }
}

fn is_coming(status: Option<TaskStatus>) -> bool {
    matches!(status, Some(TaskStatus::Pending | TaskStatus::InProgress))
}

fn listed(known: &[TaskId]) -> String {
    if known.is_empty() {
        return "the task list is empty".into();
    }
    let some: Vec<String> = known.iter().take(LISTED).map(ToString::to_string).collect();
    let more = if known.len() > LISTED { " and more" } else { "" };
    format!("there are {}{more}", some.join(", "))
}

fn waited_for(by: &[(TaskId, Option<TaskStatus>)]) -> String {
    let one = |(id, status): &(TaskId, Option<TaskStatus>)| {
        format!("{id} ({})", status.map_or("which does not exist", TaskStatus::word))
    };
    by.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn by_whom(by: Option<&str>) -> String {
    by.filter(|by| !by.is_empty()).map(|by| format!(" (by {by})")).unwrap_or_default()
}

fn chain(id: TaskId, way: &[TaskId]) -> String {
    let ids: Vec<String> = std::iter::once(&id).chain(way).map(ToString::to_string).collect();
    ids.join(" waits for ")
}
