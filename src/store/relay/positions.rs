//! The positions of the mail that an outbox has had, for the next owner of its name's mailbox on this host.

use crate::os::file::FileError;
use crate::store::TeamDir;
use crate::store::file::jsonl::each_line;
use crate::wire::AgentName;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The part of a line of an outbox that tells a position, or all positions of the lines that were dropped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Position {
    #[serde(rename = "gen")]
    batch_id: String,
    offset: u64,
    recorded: BTreeMap<String, u64>,
}

/// Passes the position of each line that the outbox of a name has or had to `meet`: batch id and offset. Of a claim whose lines
/// were dropped, it is the last one.
///
/// # Errors
/// The file exists and cannot be read.
pub(crate) fn each_position(
    dir: &TeamDir,
    name: &AgentName,
    mut meet: impl FnMut(&str, u64),
) -> Result<(), FileError> {
    each_line(&dir.relay_outbox(name), |line| {
        let Ok(Position { batch_id, offset, recorded }) = serde_json::from_slice(line) else {
            return;
        };
        for (batch_id, offset) in &recorded {
            meet(batch_id, *offset);
        }
        if !batch_id.is_empty() {
            meet(&batch_id, offset);
        }
    })
}
