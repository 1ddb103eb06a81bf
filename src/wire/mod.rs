//! The data that crosses a process boundary or rests on disk, and its (de)serialization.
//!
//! *Invariant:* this layer does no I/O, reads no clock, starts no thread and logs nothing. Writers are strict and
//! readers tolerant (SPEC 3.1): fields and kinds that this version does not know are kept, never dropped.

pub mod activity;
pub mod agent_program;
pub mod attachment;
pub mod background;
pub mod budget;
pub mod carried;
pub mod chat;
pub mod file_view;
pub mod front_matter;
pub mod hook;
pub mod host;
pub mod host_copy;
pub mod host_order;
pub mod image;
pub mod inbox_block;
pub mod isolation;
pub mod lease;
pub mod limits;
pub(crate) mod log_words;
pub mod mcp;
pub mod message;
pub mod model_abilities;
pub mod model_facts;
pub mod model_keys;
pub mod money;
pub mod name;
pub(crate) mod nearest;
pub(crate) mod newest;
pub mod permission;
pub mod price_list;
pub mod replay;
pub mod role;
pub mod roster;
pub mod sandbox;
pub mod seal;
pub(crate) mod shell_word;
pub mod skill;
pub mod subagent;
pub mod task;
pub mod task_order;
pub(crate) mod text_change;
pub mod time;
pub mod timer;
pub mod tool;
pub(crate) mod tool_summary;
pub mod transcript;
pub mod undo;
pub mod unknown_fields;
mod words;

pub use name::{AgentName, NameError};
pub use time::{MachineTime, WallTime};
pub use unknown_fields::WithUnknownFields;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the on-disk format that this build writes (`config.json`, message and transcript lines).
///
/// Changelog: **1** — the first format; golden files in `tests/it/golden/v1`.
pub const FORMAT_VERSION: u32 = 1;

/// The events that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// The end of any process, and power loss.
    #[default]
    Always,
    /// The end of any process.
    Never,
}

/// The ends of a teammate's process that are followed by a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// None.
    Never,
    /// A crash, or the kill of a hung process.
    #[default]
    OnCrash,
    /// Every end that was not asked for.
    Always,
}

fn object_of(record: &impl Serialize) -> serde_json::Result<Map<String, Value>> {
    serde_json::from_value(serde_json::to_value(record)?)
}
