//! Searches all files about an agent's mail for words, as `grep -bn` would.

use crate::os::file::FileError;
use crate::store::conversations::index::{Sought, may_name};
pub(crate) use crate::store::file::line_search::NextLine;
use crate::store::file::line_search::{self, matching_lines};
use crate::store::file::read::{changed_at, known_if_there, open_if_there};
use crate::store::file::tail::LogPart;
use crate::store::mailbox::claim::list;
use crate::store::process_log::{self, parts};
use crate::store::relay::acknowledged_in;
use crate::store::transcript::archived;
use crate::store::{StoreError, TeamDir};
use crate::wire::{AgentName, WallTime};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The kind of file that holds a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchLocation {
    Inbox,
    /// A claim that its owner has not acted on.
    Claim,
    /// A claim that was acted on, kept for late writers.
    TakenClaim,
    /// Mail that a relay has taken out of the inbox, on its way to another host.
    Outbox,
    /// The same mail, after the host of its recipient has acknowledged it.
    Acknowledged,
    Dead,
    /// The conversation, current or archived.
    Transcript,
    Log,
}

impl SearchLocation {
    /// Whether the line is one of an outbox.
    pub(crate) fn is_outbox(self) -> bool {
        matches!(self, Self::Outbox | Self::Acknowledged)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineLocation {
    pub(crate) place: SearchLocation,
    /// The file, relative to the team folder.
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
}

/// Passes every whole line of an agent's files but its logs that holds one of the words to `meet`, and those that it asks for.
/// Mail moves from the inbox into a claim and into the transcript, which may be archived; the files are read in this order,
/// so that a message is seen at least once. Of the archived conversations, the newest first, those that were written only
/// before `since` are left out; `meet` may set it.
pub(crate) fn each_line(
    dir: &TeamDir,
    name: &AgentName,
    words: &[Sought<'_>],
    since: &Cell<Option<WallTime>>,
    mut meet: impl FnMut(&LineLocation, &[u8]) -> NextLine,
) -> Result<(), StoreError> {
    let written = written(words);
    let mut read = |place, path: PathBuf| -> Result<(), StoreError> {
        let Some((file, _)) = open_if_there(&path)? else { return Ok(()) };
        let acknowledged = if place == SearchLocation::Outbox { acknowledged_in(&path) } else { 0 };
        let mut meet = |spot: &LineLocation, line: &[u8]| {
            // Other files have no numbers, and may be large.
            if acknowledged > 0 && number_of(line).is_some_and(|number| number <= acknowledged) {
                let place = SearchLocation::Acknowledged;
                return meet(&LineLocation { place, ..spot.clone() }, line);
            }
            meet(spot, line)
        };
        Ok(each_line_of(dir, place, (file, 0), &path, &written, &mut meet)?)
    };
    read(SearchLocation::Inbox, dir.inbox(name))?;
    // The claims are listed after the inbox was read: a message that was claimed meanwhile is in one of them.
    for claim in list(dir, name)? {
        let is_taken = claim.is_taken;
        let place = if is_taken { SearchLocation::TakenClaim } else { SearchLocation::Claim };
        read(place, claim.path)?;
    }
    read(SearchLocation::Outbox, dir.relay_outbox(name))?;
    read(SearchLocation::Dead, dir.dead(name))?;
    read(SearchLocation::Transcript, dir.transcript(name))?;
    for path in archived(dir, name)?.into_iter().rev() {
        let is_old = match since.get() {
            Some(since) => known_if_there(&path)?.is_none_or(|known| changed_at(&known) < since),
            None => false,
        };
        if !is_old && may_name(dir, &path, words) {
            read(SearchLocation::Transcript, path)?;
        }
    }
    Ok(())
}

/// Returns the number of a line of an outbox.
fn number_of(line: &[u8]) -> Option<u64> {
    let line: Map<String, Value> = serde_json::from_slice(line).ok()?;
    line.get("seq")?.as_u64()
}

/// Returns the message in a line of an outbox.
pub(crate) fn carried(line: &[u8]) -> Option<Map<String, Value>> {
    let mut line: Map<String, Value> = serde_json::from_slice(line).ok()?;
    match line.remove("line") {
        Some(Value::Object(message)) => Some(message),
        Some(_) | None => None,
    }
}

/// Returns the number of the line at an offset of a file below the team folder, from 1.
pub(crate) fn line_number(dir: &TeamDir, file: &Path, offset: u64) -> Result<usize, StoreError> {
    Ok(line_search::line_number(&dir.root().join(file), offset)?)
}

/// Passes every whole line of an agent's logs that holds one of the words to `meet`, and those that it asks for, rotated ones
/// first, from about `since` on.
pub(crate) fn each_log_line(
    dir: &TeamDir,
    name: &AgentName,
    since: Option<WallTime>,
    words: &[Sought<'_>],
    mut meet: impl FnMut(&LineLocation, &[u8]) -> NextLine,
) -> Result<(), StoreError> {
    let written = written(words);
    for part in parts(dir, name)? {
        if since.is_none_or(|since| changed_at(&part.known) >= since) {
            let from = since.map_or(Ok(0), |since| part.offset_at(since, &process_log::time))?;
            let LogPart { path, file, .. } = part;
            each_line_of(dir, SearchLocation::Log, (file, from), &path, &written, &mut meet)?;
        }
    }
    Ok(())
}

/// Returns the words as they may stand in a line.
fn written(words: &[Sought<'_>]) -> Vec<String> {
    words.iter().flat_map(Sought::written).collect()
}

fn each_line_of(
    dir: &TeamDir,
    place: SearchLocation,
    (file, from): (File, u64),
    path: &Path,
    words: &[String],
    meet: &mut impl FnMut(&LineLocation, &[u8]) -> NextLine,
) -> Result<(), FileError> {
    let inside = path.strip_prefix(dir.root()).map_or_else(|_| path.to_owned(), PathBuf::from);
    let mut spot = LineLocation { place, file: inside, offset: 0 };
    matching_lines(file, path, from, words, |found| {
        spot.offset = found.offset;
        meet(&spot, found.bytes)
    })
}
