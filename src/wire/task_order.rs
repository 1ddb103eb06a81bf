//! Changes of the task list as data: what a member or a person asks for, here or by an order to the host that keeps the list.

use super::task::{Task, TaskId, TaskStatus};
use super::{AgentName, NameError, WithUnknownFields};
use serde::{Deserialize, Serialize};

/// A task that is to be created.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NewTask {
    /// The title.
    pub subject: String,
    /// The details.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The tasks that must be completed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<TaskId>,
    /// The owner; without one, an idle member claims the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentName>,
    /// The role whose members may claim it by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The id of the tool call that creates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

/// The changes of a task. An absent field stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskEdit {
    /// The title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The role whose members may claim it by themselves; empty for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The tasks that must be completed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<Vec<TaskId>>,
    /// The owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<NewOwner>,
    /// The status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    /// The reason for the new status, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl TaskEdit {
    /// Returns the change of the status alone.
    pub fn status(status: TaskStatus, note: Option<String>) -> Self {
        Self { status: Some(status), note, ..Self::default() }
    }
}

/// The new owner of a task; an empty text is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NewOwner {
    /// No owner: any agent may claim the task.
    Unowned,
    /// A member, the lead or the person.
    Agent(AgentName),
}

impl TryFrom<String> for NewOwner {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        if text.is_empty() { Ok(Self::Unowned) } else { AgentName::mailbox(&text).map(Self::Agent) }
    }
}

impl From<NewOwner> for String {
    fn from(owner: NewOwner) -> Self {
        match owner {
            NewOwner::Unowned => Self::new(),
            NewOwner::Agent(name) => name.to_string(),
        }
    }
}

/// An order to the host that keeps the task list: a change of it in the name of an agent or of the person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOrder {
    /// The agent, which is on the host that gives the order, or `user`.
    pub by: AgentName,
    /// The incarnation of the agent, to which a claim is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// The change.
    #[serde(flatten)]
    pub change: OrderedTaskChange,
}

/// A change of the task list by an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum OrderedTaskChange {
    /// Create a task.
    Create(NewTask),
    /// Claim a task.
    Claim {
        /// The task.
        task_id: TaskId,
    },
    /// Change a task.
    Update {
        /// The task.
        task_id: TaskId,
        /// The changes.
        #[serde(flatten)]
        edit: TaskEdit,
    },
    /// Claim the task that suits the agent next, if there is one.
    TakeNext,
    /// Claim those tasks of the agent that can begin: it has their assignments.
    BeginAssigned {
        /// The tasks.
        task_ids: Vec<TaskId>,
    },
}

/// The answer to an order that changed the list, or found nothing to change.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChangedTask {
    /// The task as it is now; `None` if there is no single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<WithUnknownFields<Task>>,
    /// The tasks for which it waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<TaskId>,
    /// The tasks that can begin because of the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ready: Vec<WithUnknownFields<Task>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::WallTime;
    use crate::wire::carried::HostName;
    use crate::wire::host_order::{HostOrder, Order, OrderAnswer};
    use serde_json::{Value, json};

    fn carried(change: OrderedTaskChange) -> Value {
        let by = AgentName::member("carol").unwrap();
        let order = TaskOrder { by, incarnation: Some("i".into()), change };
        let order = HostOrder {
            host: HostName::parse("ann").unwrap(),
            until: WallTime::from(5.0),
            order: Order::Task(Box::new(order)),
        };
        let written = serde_json::to_value(&order).unwrap();
        assert_eq!(serde_json::from_value::<HostOrder>(written.clone()).unwrap(), order);
        written
    }

    #[test]
    fn an_order_for_a_task_is_one_readable_object() {
        let id = TaskId::parse("3").unwrap();
        let expected = |fields: Value| {
            let mut all = json!({
                "host": "ann", "until": 5.0, "order": "task", "by": "carol", "incarnation": "i",
            });
            let Value::Object(fields) = fields else { unreachable!() };
            all.as_object_mut().unwrap().extend(fields);
            all
        };
        let new = NewTask {
            subject: "x".into(),
            blocked_by: vec![id],
            owner: Some(AgentName::lead()),
            ..NewTask::default()
        };
        let create =
            json!({ "change": "create", "subject": "x", "blocked_by": ["3"], "owner": "lead" });
        assert_eq!(carried(OrderedTaskChange::Create(new)), expected(create));
        let claim = json!({ "change": "claim", "task_id": "3" });
        assert_eq!(carried(OrderedTaskChange::Claim { task_id: id }), expected(claim));
        let edit = TaskEdit {
            owner: Some(NewOwner::Unowned),
            ..TaskEdit::status(TaskStatus::Failed, Some("why".into()))
        };
        let update = json!({
            "change": "update", "task_id": "3", "owner": "", "status": "failed", "note": "why",
        });
        assert_eq!(carried(OrderedTaskChange::Update { task_id: id, edit }), expected(update));
        assert_eq!(
            carried(OrderedTaskChange::TakeNext),
            expected(json!({ "change": "take_next" }))
        );
        let begin = json!({ "change": "begin_assigned", "task_ids": ["3"] });
        assert_eq!(
            carried(OrderedTaskChange::BeginAssigned { task_ids: vec![id] }),
            expected(begin)
        );
    }

    #[test]
    fn an_order_in_no_name_of_an_agent_is_none() {
        for by in ["system", "../x", ""] {
            let order = json!({ "by": by, "change": "take_next" });
            assert!(serde_json::from_value::<TaskOrder>(order).is_err(), "{by}");
        }
    }

    #[test]
    fn fields_of_a_later_version_survive_an_answer() {
        let answer = json!({
            "answer": "task_changed", "waits_for": ["1"],
            "task": {
                "subject": "x", "colour": "red",
                "history": [{ "what": "blessed", "by": "carol", "luck": 3 }],
            },
        });
        let read: OrderAnswer = serde_json::from_value(answer).unwrap();
        let OrderAnswer::TaskChanged(changed) = &read else { panic!("another answer") };
        let task = changed.task.as_ref().unwrap();
        assert_eq!(task.history.len(), 1);
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(written["task"]["colour"], "red");
        assert_eq!(written["task"]["history"][0]["luck"], 3);
        assert_eq!(written["task"]["history"][0]["what"], "blessed");
        assert_eq!(written["waits_for"], json!(["1"]));
    }
}
