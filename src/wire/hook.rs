//! Hooks as settings and the hello of a lead carry them: which command runs at which event.

use serde::{Deserialize, Serialize};

/// Seconds a hook may take unless it says otherwise.
const USUAL_TIMEOUT: u64 = 60;

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// When it runs.
    pub event: HookEvent,
    /// What runs, as typed in bash.
    pub command: String,
    /// Seconds it may take.
    #[serde(default = "usual_timeout")]
    pub timeout: u64,
}

fn usual_timeout() -> u64 {
    USUAL_TIMEOUT
}

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// A teammate's turn is over and it would rest. A refusal keeps it working.
    TeammateIdle,
    /// An agent would put a task on the list.
    TaskCreated,
    /// An agent would complete a task.
    TaskCompleted,
    /// An agent would send a message or a broadcast.
    MessageSent,
    /// A teammate's process has ended. Nothing can be refused any more.
    TeammateExited,
}

impl HookEvent {
    /// The word that stands in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::TeammateIdle => "teammate_idle",
            Self::TaskCreated => "task_created",
            Self::TaskCompleted => "task_completed",
            Self::MessageSent => "message_sent",
            Self::TeammateExited => "teammate_exited",
        }
    }
}
