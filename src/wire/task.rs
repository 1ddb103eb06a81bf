//! `tasks/ID.json`: one entry of the shared task list, with what happened to it.
//!
//! Data only: what may happen next is decided by `protocol::tasks`.

use super::{FORMAT_VERSION, Timestamp, WithUnknownFields};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The number of a task. On disk it is a string; as a file name it has no leading zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TaskId(u64);

/// A string that is no task's number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no task id: a task id is a number, such as 3")]
pub struct NoTaskId(String);

impl TaskId {
    /// Reads an id as people and models write it: `3`, `#3`.
    ///
    /// # Errors
    /// It is no positive number.
    pub fn parse(given: &str) -> Result<Self, NoTaskId> {
        let digits = given.trim().trim_start_matches('#');
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|number| is_number && *number > 0);
        number.map(Self).ok_or_else(|| NoTaskId(given.chars().take(64).collect()))
    }

    /// The id behind this one.
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

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_string())
    }
}

impl<'de> Deserialize<'de> for TaskId {
    /// Hand-written ids often are numbers.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            number @ Value::Number(_) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(D::Error::custom("a task id is text or a number"));
            }
        };
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// All tasks, by id.
pub type Board = BTreeMap<TaskId, WithUnknownFields<Task>>;

/// How far a task has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Nobody works on it.
    #[default]
    Pending,
    /// Its owner works on it.
    InProgress,
    /// It is done.
    Completed,
    /// It was tried and could not be done.
    Failed,
    /// It is no longer wanted.
    #[serde(alias = "canceled")]
    Cancelled,
}

impl TaskStatus {
    /// The word on disk.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Nobody will work on it any more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// One task. Only `subject` must stand in the file; the file's name is its id.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Task {
    /// Format version of the file; a newer one may be read, not written.
    #[serde(default = "this_version")]
    pub version: u32,
    /// Its number.
    #[serde(default)]
    pub id: TaskId,
    /// What is to be done, in one line.
    pub subject: String,
    /// The details.
    #[serde(default)]
    pub description: String,
    /// How far it has come.
    #[serde(default)]
    pub status: TaskStatus,
    /// Whose it is: a member, `lead` or `user`.
    #[serde(default)]
    pub owner: Option<String>,
    /// The life (incarnation) of the owner that works on it. When that ends, the task is pending again.
    #[serde(default)]
    pub lease: Option<String>,
    /// Only members with this role take it by themselves.
    #[serde(default)]
    pub role: Option<String>,
    /// Tasks that must be completed first.
    #[serde(default)]
    pub blocked_by: Vec<TaskId>,
    /// Who made it.
    #[serde(default)]
    pub created_by: String,
    /// When.
    #[serde(default)]
    pub created_at: Timestamp,
    /// When something last happened to it.
    #[serde(default)]
    pub updated_at: Timestamp,
    /// The tool call that made it: the same call, repeated after a crash, makes no second one.
    #[serde(default)]
    pub origin: Option<String>,
    /// What happened to it, oldest first.
    #[serde(default)]
    pub history: Vec<WithUnknownFields<HistoryEntry>>,
}

fn this_version() -> u32 {
    FORMAT_VERSION
}

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When.
    #[serde(default)]
    pub at: Timestamp,
    /// Who did it.
    #[serde(default)]
    pub by: String,
    /// What.
    pub what: EventKind,
    /// Whose it was from then on, or whose it was until then.
    #[serde(default)]
    pub owner: Option<String>,
    /// Why, in words.
    #[serde(default)]
    pub note: Option<String>,
}

/// What can happen to a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It was put on the list.
    #[default]
    Created,
    /// Its words, its role or what it waits for were changed.
    Changed,
    /// It was given to somebody, who has not begun.
    Assigned,
    /// Its owner began.
    Claimed,
    /// Its owner died or gave it back.
    Released,
    /// It was done.
    Completed,
    /// It could not be done.
    Failed,
    /// It was called off.
    Cancelled,
    /// It is to be done after all.
    Reopened,
    /// Written by a later version.
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
    fn a_few_words_are_a_task_and_what_is_unknown_is_kept() {
        let text = r#"{"subject":"x","blocked_by":[3,"4"],"mood":"good","history":[{"what":"sung","by":"bob","key":"C"}]}"#;
        let task: WithUnknownFields<Task> = serde_json::from_str(text).unwrap();
        assert_eq!((task.status, &task.owner), (TaskStatus::Pending, &None));
        assert_eq!(task.blocked_by, [TaskId(3), TaskId(4)]);
        assert_eq!(task.history.first().unwrap().what, EventKind::Other("sung".into()));
        let back = serde_json::to_string(&task).unwrap();
        for kept in [r#""mood":"good""#, r#""what":"sung""#, r#""key":"C""#] {
            assert!(back.contains(kept), "{back}");
        }
        assert!(
            serde_json::from_str::<WithUnknownFields<Task>>("{}").is_err(),
            "no task without a subject"
        );
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
