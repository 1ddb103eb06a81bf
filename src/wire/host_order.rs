//! Orders that one host of a team gives to another one: to start or stop an agent there, to exchange the commits of its
//! clone, and to change the task list (docs/machines.md).

use crate::wire::WallTime;
use crate::wire::carried::HostName;
use crate::wire::isolation::Isolation;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::ExitCause;
use crate::wire::task_order::{ChangedTask, TaskOrder};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The maximum size of a bundle that comes with an order or its answer, in bytes.
pub const MAX_BUNDLE_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// The id of an order: 32 hexadecimal digits. A repeated order has the same one, and is carried out once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OrderId(String);

/// A text that is no id of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of an order has 32 hexadecimal digits")]
pub struct NotAnOrderId;

impl OrderId {
    /// Parses an id.
    ///
    /// # Errors
    /// The text is none.
    pub fn parse(text: &str) -> Result<Self, NotAnOrderId> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_good = text.len() == 32 && text.bytes().all(is_digit);
        if is_good { Ok(Self(text.into())) } else { Err(NotAnOrderId) }
    }

    /// Makes the id of a number.
    pub fn of(number: u128) -> Self {
        Self(format!("{number:032x}"))
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for OrderId {
    type Error = NotAnOrderId;

    fn try_from(text: String) -> Result<Self, NotAnOrderId> {
        Self::parse(&text)
    }
}

impl From<OrderId> for String {
    fn from(id: OrderId) -> Self {
        id.0
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The direction of orders, as a host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderSide {
    /// Orders of this host to others. A process of this host writes one, and removes it once it needs no answer; the relay
    /// writes the answer.
    Out,
    /// Orders of other hosts to this one. The relay writes one, and the supervisor of this host the answer.
    In,
}

impl OrderSide {
    /// The side on which the host at the other end has the order.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Out => Self::In,
            Self::In => Self::Out,
        }
    }
}

impl fmt::Display for OrderSide {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Out => "out",
            Self::In => "in",
        })
    }
}

/// An order, and the host at its other end: the one to which it goes, or the one from which it has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostOrder {
    /// The host at the other end.
    pub host: HostName,
    /// The time from which nobody waits for the answer, by the clock of the host that gives the order. Only its own relay
    /// looks at it.
    pub until: WallTime,
    /// The order.
    #[serde(flatten)]
    pub order: Order,
}

/// The content of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Start an agent, or give an idle one a new prompt.
    Spawn(Box<SpawnThere>),
    /// Stop an agent.
    Stop(StopThere),
    /// Have the commits with which a clone begins.
    Prepare(ProjectCommits),
    /// Send the saved work of a clone.
    Collect(WorkThere),
    /// Remove a clone whose work is saved.
    Drop(WorkThere),
    /// Change the task list, which the host keeps. Its relay carries it out, and not its supervisor.
    Task(Box<TaskOrder>),
}

/// The commits of the user's repository that a host needs for the clone of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectCommits {
    /// The commits.
    pub commits: Vec<String>,
    /// The commit with which a new clone would begin now: the user's files as they are, or the last commit.
    pub current: String,
    /// The last commit of the user.
    pub head: String,
    /// The object format of the repository, `sha1` or `sha256`.
    pub object_format: String,
    /// An address from which the host may fetch them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// The size of the bundle with what the host lacked; `None` before it was asked. The bundle has the id of the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_bytes: Option<u64>,
}

/// The clone of an agent on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkThere {
    /// The agent.
    pub name: String,
    /// Commits that the host which asks has already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<String>,
}

/// The start of a clone in the commits of the user's repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneStart {
    /// The commit from which its changes count.
    pub base: String,
    /// The commit with the work of an earlier clone, on which it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wip: Option<String>,
    /// The folder of the workspace in the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// The saved work of a clone, as commits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SavedCommits {
    /// The commit that reaches all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wip: Option<String>,
    /// The commit that was offered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<String>,
}

/// An agent that is to be started on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnThere {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: String,
    /// Whether the host that orders it has a file of that role: then it must not start without one.
    #[serde(default)]
    pub role_has_file: bool,
    /// Its first prompt.
    pub prompt: String,
    /// The id of the message with the prompt.
    pub message_id: String,
    /// Its model, as `provider/name`; `None` for that of its role, of its host's settings, or of the lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The model of the lead's teammates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_of_lead: Option<String>,
    /// The permission mode of the lead: the loosest that it may have.
    pub mode_of_lead: PermissionMode,
    /// Its permission mode, if it is a stricter one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PermissionMode>,
    /// The folder in which it works, if it is not that of its role or of the settings there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// The variables whose keys come with the order. The relay of the host that orders it says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent_keys: Vec<String>,
    /// The start of its clone; `None` if it works in a folder of the host, or has a clone there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone: Option<CloneStart>,
}

/// An agent that is to be stopped on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopThere {
    /// Its name.
    pub name: String,
    /// The incarnation that is to end; another one stays.
    pub incarnation: String,
    /// The name in which it is stopped.
    pub by: String,
    /// The reason that it is given.
    pub reason: String,
    /// The cause for the record of its end.
    pub cause: ExitCause,
    /// The first rung of the ladder.
    pub first: StopRung,
}

/// A rung of the ladder by which an agent is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopRung {
    /// A `shutdown_request`.
    Ask,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// None has ended it.
    GiveUp,
}

/// The answer of the host that has carried out an order, or has not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum OrderAnswer {
    /// The agent was started, or has its prompt.
    Spawned {
        /// The outcome, for the model that has ordered it.
        text: String,
        /// Whether it works in a clone with the start that was ordered.
        #[serde(default)]
        has_clone: bool,
    },
    /// The agent was stopped, or was not running.
    Stopped {
        /// The rung that has ended it; `None` if it was not running.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rung: Option<StopRung>,
        /// Its reason, if it has refused at first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refusal: Option<String>,
    },
    /// The host has the commits.
    Prepared,
    /// The host lacks commits, and has these.
    Lacking {
        /// Commits that it has.
        known: Vec<String>,
    },
    /// The saved work.
    Collected {
        /// Its commits.
        #[serde(flatten)]
        saved: SavedCommits,
        /// The size of the bundle with those that were not known; `None` if there are none. It has the id of the order.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bundle_bytes: Option<u64>,
    },
    /// The clone was removed.
    Dropped {
        /// The outcome, for the person.
        text: String,
    },
    /// The task list was changed, or there was nothing to change.
    TaskChanged(Box<ChangedTask>),
    /// The change of the task list was refused.
    TaskRefused {
        /// The reason.
        why: String,
        /// The advice.
        hint: String,
    },
    /// The order was not carried out.
    Refused {
        /// The reason.
        why: String,
    },
}

impl Order {
    /// Whether the order transfers commits and changes nothing that runs.
    pub fn is_transfer(&self) -> bool {
        match self {
            Self::Prepare(_) | Self::Collect(_) => true,
            Self::Spawn(_) | Self::Stop(_) | Self::Drop(_) | Self::Task(_) => false,
        }
    }

    /// The size of the bundle that comes with the order.
    pub fn bundle_bytes(&self) -> Option<u64> {
        match self {
            Self::Prepare(commits) => commits.bundle_bytes,
            Self::Spawn(_) | Self::Stop(_) | Self::Collect(_) | Self::Drop(_) | Self::Task(_) => {
                None
            }
        }
    }
}

impl OrderAnswer {
    /// The size of the bundle that comes with the answer.
    pub fn bundle_bytes(&self) -> Option<u64> {
        match self {
            Self::Collected { bundle_bytes, .. } => *bundle_bytes,
            Self::Spawned { .. }
            | Self::Stopped { .. }
            | Self::Prepared
            | Self::Lacking { .. }
            | Self::Dropped { .. }
            | Self::TaskChanged(_)
            | Self::TaskRefused { .. }
            | Self::Refused { .. } => None,
        }
    }

    /// Returns the reason for which an answer is not the one that its order asks for.
    pub fn refusal(self) -> String {
        match self {
            Self::Refused { why } | Self::TaskRefused { why, .. } => why,
            Self::Lacking { .. } => "it lacks commits still".into(),
            Self::Spawned { .. }
            | Self::Stopped { .. }
            | Self::Prepared
            | Self::Collected { .. }
            | Self::Dropped { .. }
            | Self::TaskChanged(_) => "its answer is for another order".into(),
        }
    }

    /// Returns the word for the answer in logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Spawned { .. } => "spawned",
            Self::Stopped { .. } => "stopped",
            Self::Prepared => "prepared",
            Self::Lacking { .. } => "lacking",
            Self::Collected { .. } => "collected",
            Self::Dropped { .. } => "dropped",
            Self::TaskChanged(_) => "task changed",
            Self::Refused { .. } | Self::TaskRefused { .. } => "refused",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_order_is_one_readable_object() {
        let stop = StopThere {
            name: "carol".into(),
            incarnation: "i".into(),
            by: "lead".into(),
            reason: "done".into(),
            cause: ExitCause::Stopped,
            first: StopRung::Ask,
        };
        let order = HostOrder {
            host: HostName::parse("gpu1").unwrap(),
            until: WallTime::from(5.0),
            order: Order::Stop(stop),
        };
        let written = serde_json::to_value(&order).unwrap();
        let expected = json!({
            "host": "gpu1", "until": 5.0, "order": "stop", "name": "carol", "incarnation": "i", "by": "lead",
            "reason": "done", "cause": "stopped", "first": "ask",
        });
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_value::<HostOrder>(written).unwrap(), order);
    }

    #[test]
    fn an_id_has_32_digits() {
        let id = OrderId::of(171);
        assert_eq!(id.as_str(), format!("{}ab", "0".repeat(30)));
        assert_eq!(OrderId::parse(id.as_str()), Ok(id));
        for bad in ["", "../../x", &"AB".repeat(16), &"ab".repeat(17)] {
            assert_eq!(OrderId::parse(bad), Err(NotAnOrderId), "{bad}");
        }
    }
}
