//! `tasks/ID.json`: a task of the shared task list, with its history.
//!
//! Data only: `protocol::tasks` decides which changes are legal.

use super::words::words;
use super::{FORMAT_VERSION, WallTime, WithUnknownFields};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The id of a task, a positive number. It is a string on disk, without leading zeros in a file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "Value")]
pub struct TaskId(u64);

/// A string that is not a task id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a task id: a task id is a number, such as 3")]
pub struct NoTaskId(String);

impl TaskId {
    /// Parses an id as people and models write it: `3`, `#3`.
    ///
    /// # Errors
    /// The string is not a positive number.
    pub fn parse(given: &str) -> Result<Self, NoTaskId> {
        let digits = given.trim().trim_start_matches('#');
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|number| is_number && *number > 0);
        number.map(Self).ok_or_else(|| NoTaskId(given.chars().take(64).collect()))
    }

    /// Returns the id after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0.to_string())
    }
}

impl From<TaskId> for String {
    fn from(id: TaskId) -> Self {
        id.to_string()
    }
}

impl TryFrom<Value> for TaskId {
    type Error = String;

    /// Accepts a number too, since ids written by hand are often numbers.
    fn try_from(id: Value) -> Result<Self, String> {
        let text = match id {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err("a task id is text or a number".into());
            }
        };
        Self::parse(&text).map_err(|why| why.to_string())
    }
}

/// All tasks by id.
pub type Board = BTreeMap<TaskId, WithUnknownFields<Task>>;

words! {
    /// The state of a task.
    #[derive(Default)]
    pub enum TaskStatus {
        /// No member works on the task.
        #[default]
        Pending = "pending",
        /// The owner works on the task.
        InProgress = "in_progress",
        /// The task was done.
        Completed = "completed",
        /// The task could not be done.
        Failed = "failed",
        /// The task was withdrawn.
        #[serde(alias = "canceled")]
        Cancelled = "cancelled",
    }
}

impl TaskStatus {
    /// Whether the task is completed, failed or cancelled.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A task. The file needs only `subject`; its name is the id.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Task {
    /// The format version of the file; a newer one may be read, not written.
    #[serde(default = "this_version")]
    pub version: u32,
    /// The id.
    #[serde(default)]
    pub id: TaskId,
    /// The title, one line.
    pub subject: String,
    /// The details.
    #[serde(default)]
    pub description: String,
    /// The state.
    #[serde(default)]
    pub status: TaskStatus,
    /// The owner: a member, `lead` or `user`.
    pub owner: Option<String>,
    /// The incarnation of the owner that works on it. When that process ends, the task becomes pending again.
    pub lease: Option<String>,
    /// The role that a member needs to claim it automatically.
    pub role: Option<String>,
    /// The tasks that must be completed first.
    #[serde(default)]
    pub blocked_by: Vec<TaskId>,
    /// The name of the creator.
    #[serde(default)]
    pub created_by: String,
    /// The time of creation.
    #[serde(default)]
    pub created_at: WallTime,
    /// The time of the last change.
    #[serde(default)]
    pub updated_at: WallTime,
    /// The id of the tool call that created it: the same call, repeated after a crash, creates no second task.
    pub origin: Option<String>,
    /// The events so far, oldest first.
    #[serde(default)]
    pub history: Vec<WithUnknownFields<HistoryEntry>>,
}

fn this_version() -> u32 {
    FORMAT_VERSION
}

/// An event in the history of a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The time of the event.
    #[serde(default)]
    pub at: WallTime,
    /// The name of the member or person that caused it.
    #[serde(default)]
    pub by: String,
    /// The kind of event.
    pub what: EventKind,
    /// The new owner, or the owner that gave the task up.
    pub owner: Option<String>,
    /// The reason, in words.
    pub note: Option<String>,
}

/// The kinds of events in the history of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The task was created.
    #[default]
    Created,
    /// The text, the role or the blockers were changed.
    Changed,
    /// The task was assigned to an owner that has not started.
    Assigned,
    /// The owner started to work on the task.
    Claimed,
    /// The process of the owner ended, or the owner gave the task back.
    Released,
    /// The task was done.
    Completed,
    /// The task could not be done.
    Failed,
    /// The task was called off.
    Cancelled,
    /// The task failed or was cancelled, and is to be done after all.
    Reopened,
    /// An event of a later version.
    #[serde(untagged)]
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_positive_numbers() {
        for (given, id) in [("3", 3), ("#12", 12), (" 7 ", 7), ("007", 7)] {
            assert_eq!(TaskId::parse(given), Ok(TaskId(id)));
        }
        for given in ["", "#", "0", "-1", "+1", "1.5", "../1", "x", "99999999999999999999999"] {
            assert!(TaskId::parse(given).is_err(), "{given}");
        }
    }

    #[test]
    fn a_subject_is_enough() {
        let text = r#"{"subject":"x","blocked_by":[3,"4"]}"#;
        let task: Task = serde_json::from_str(text).unwrap();
        assert_eq!((task.status, &task.owner), (TaskStatus::Pending, &None));
        assert_eq!(task.blocked_by, [TaskId(3), TaskId(4)]);
        assert!(serde_json::from_str::<Task>("{}").is_err(), "no task without a subject");
    }

    proptest! {
        #[test]
        fn no_id_can_leave_its_folder(given in any::<String>()) {
            if let Ok(id) = TaskId::parse(&given) {
                prop_assert!(id.to_string().bytes().all(|byte| byte.is_ascii_digit()));
            }
        }
    }
}
