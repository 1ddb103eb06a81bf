//! What crosses a process boundary or rests on disk: data and its reading and writing.
//!
//! *Invariant:* nothing here does I/O, reads a clock, starts a thread or logs. Writers are strict,
//! readers tolerant (SPEC 3.1): what this version does not know is kept, never dropped.

pub mod activity;
pub mod budget;
pub mod chat;
pub mod front_matter;
pub mod hook;
pub mod inbox_block;
pub mod message;
pub mod money;
pub mod name;
pub mod permission;
pub mod restart;
pub mod role;
pub mod roster;
pub mod task;
pub mod transcript;
pub mod unknown_fields;

pub use name::{AgentName, NameError};
pub use unknown_fields::WithUnknownFields;

/// Version of the on-disk format that this build writes (`config.json`, message and transcript lines).
///
/// Changelog: **1** — the first format; golden files in `tests/it/golden/v1`.
pub const FORMAT_VERSION: u32 = 1;

/// Seconds since 1970 with a fraction, as every `timestamp`, `at` and `since` on disk.
pub type Timestamp = f64;
