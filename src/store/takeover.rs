//! The note that a lead leaves for the one whose place it takes: the process that ends learns by it why.
//!
//! The note is for the last words alone. Nothing acts on it.

use super::file::atomic::{Fsync, json_line, remove, replace};
use super::file::read::read_state;
use super::{StoreError, TeamDir};
use crate::wire::WallTime;
use serde::{Deserialize, Serialize};

/// The process that takes the place of a lead.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Takeover {
    /// The incarnation of the lead that is to end.
    pub(crate) of: String,
    pub(crate) pid: i32,
    /// The name of the user; empty if it is not known.
    pub(crate) user: String,
    /// The terminal; empty without one.
    pub(crate) terminal: String,
    pub(crate) at: WallTime,
}

/// Leaves the note. Fails if it cannot be written.
pub(crate) fn leave(dir: &TeamDir, note: &Takeover) -> Result<(), StoreError> {
    let path = dir.takeover();
    let line = json_line(note, &path)?;
    Ok(replace(&path, &line, Fsync::Never)?)
}

/// Takes the note for this incarnation, if there is one.
pub(crate) fn take(dir: &TeamDir, incarnation: &str) -> Option<Takeover> {
    let path = dir.takeover();
    let note = read_state::<Takeover>(&path).ok().flatten();
    let note = note.filter(|note| note.of == incarnation)?;
    if let Err(why) = remove(&path) {
        tracing::warn!(%why, "the note about a takeover stays");
    }
    Some(note)
}
