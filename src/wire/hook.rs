//! Hooks in settings and in the lead's handshake: the command that runs at an event.

use super::words::words;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// The longest timeout that a hook may have, in seconds.
const LONGEST_TIMEOUT: u64 = 3600;

/// A hook. Deserialization fails for a command or a timeout with which it could not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// The event that starts the hook.
    pub event: HookEvent,
    /// The command, as typed in bash.
    #[serde(deserialize_with = "command")]
    pub command: String,
    /// The longest time that the hook may take, in seconds.
    #[serde(default = "default_timeout", deserialize_with = "timeout")]
    pub timeout: u64,
}

fn default_timeout() -> u64 {
    60
}

fn command<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let command = String::deserialize(from)?;
    if command.trim().is_empty() || command.contains('\0') {
        return Err(D::Error::custom("the command of a hook is empty or contains a NUL character"));
    }
    Ok(command)
}

fn timeout<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let timeout = u64::deserialize(from)?;
    if !(1..=LONGEST_TIMEOUT).contains(&timeout) {
        let why = format!("the timeout of a hook is from 1 to {LONGEST_TIMEOUT} seconds");
        return Err(D::Error::custom(why));
    }
    Ok(timeout)
}

words! {
    /// An event at which hooks run.
    pub enum HookEvent {
        /// Before a teammate becomes idle at the end of a turn. A refusal keeps it working.
        TeammateIdle = "teammate_idle",
        /// Before an agent adds a task to the list.
        TaskCreated = "task_created",
        /// Before an agent completes a task.
        TaskCompleted = "task_completed",
        /// Before an agent sends a message or a broadcast.
        MessageSent = "message_sent",
        /// After a teammate's process has ended. It cannot be refused.
        TeammateExited = "teammate_exited",
    }
}
