//! The read cursor of a person: the offset in a transcript up to which its mail was shown. The inbox itself is
//! mostly empty, because it is drained before every model call.

use crate::store::file::atomic::{Fsync, replace};
use crate::store::file::tail::Tail;
use crate::store::transcript::mail_of;
use crate::store::{StoreError, TeamDir, failpoint};
use crate::wire::AgentName;
use serde_json::{Map, Value};
use std::fs;

/// Returns the mail that was drained since the last call. Fails if a file cannot be read or written.
pub(crate) fn since_last_look(
    dir: &TeamDir,
    name: &AgentName,
) -> Result<Vec<Map<String, Value>>, StoreError> {
    let cursor = dir.state(&format!("{name}.looked"));
    let offset = fs::read_to_string(&cursor).ok().and_then(|text| text.trim().parse().ok());
    let mut taken = NewlyRead(Tail::at(dir.transcript(name), offset.unwrap_or(0)));
    let mail = taken.read_new()?;
    let looked = taken.0.offset();
    if Some(looked) != offset {
        failpoint::hit("looked.read");
        // On a full or read-only disk the mail is shown again, which is better than not at all.
        drop(replace(&cursor, format!("{looked}\n").as_bytes(), Fsync::Never));
    }
    Ok(mail)
}

/// Returns a position from which only mail that is drained later is read. Fails if the transcript cannot be read.
pub(crate) fn mail_from_now_on(dir: &TeamDir, name: &AgentName) -> Result<NewlyRead, StoreError> {
    let mut taken = NewlyRead(Tail::new(dir.transcript(name)));
    taken.read_new()?;
    Ok(taken)
}

/// A position in a transcript from which mail is read.
#[derive(Debug)]
pub(crate) struct NewlyRead(Tail);

impl NewlyRead {
    /// Returns the mail that was drained since the last call. Fails if the transcript cannot be read.
    pub(crate) fn read_new(&mut self) -> Result<Vec<Map<String, Value>>, StoreError> {
        let lines = self.0.read_new()?;
        Ok(lines.iter().filter_map(|line| mail_of(line)).collect())
    }
}
