//! Reads every line of all files about an agent's mail, with file and offset, as `grep` would.

use crate::store::conversations::index::{Sought, may_name};
use crate::store::file::jsonl::{LONGEST_LINE, Piece, each_piece};
use crate::store::mailbox::claim::list;
use crate::store::transcript::conversations;
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use std::path::PathBuf;

/// The kind of file that holds a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchLocation {
    Inbox,
    /// A claim that its owner has not acted on.
    Claim,
    /// A claim that was acted on, kept for late writers.
    TakenClaim,
    Dead,
    /// The conversation, current or archived.
    Transcript,
    Log,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineLocation {
    pub(crate) place: SearchLocation,
    /// The file, relative to the team folder.
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
    /// The line number, counted from 1.
    pub(crate) line: usize,
}

/// Passes every whole line of an agent's files to `meet`; of the archived conversations, only those of files that may
/// name one of the words. Mail moves from the inbox into a claim and into the transcript; the files are read in this
/// order, so that a message is seen at least once.
pub(crate) fn each_line(
    dir: &TeamDir,
    name: &AgentName,
    words: &[Sought<'_>],
    mut meet: impl FnMut(&LineLocation, &[u8]),
) -> Result<(), StoreError> {
    let mut read = |place, path: PathBuf| -> Result<(), StoreError> {
        let inside = path.strip_prefix(dir.root()).map_or_else(|_| path.clone(), PathBuf::from);
        let mut spot = LineLocation { place, file: inside, offset: 0, line: 0 };
        each_piece(&path, LONGEST_LINE, |framed| {
            spot.line += 1;
            if framed.piece == Piece::Line {
                spot.offset = framed.offset;
                meet(&spot, framed.bytes);
            }
        })?;
        Ok(())
    };
    read(SearchLocation::Inbox, dir.inbox(name))?;
    // The claims are listed after the inbox was read: a message that was claimed meanwhile is in one of them.
    for claim in list(dir, name)? {
        let is_taken = claim.is_taken;
        let place = if is_taken { SearchLocation::TakenClaim } else { SearchLocation::Claim };
        read(place, claim.path)?;
    }
    read(SearchLocation::Dead, dir.dead(name))?;
    for path in conversations(dir, name)? {
        if may_name(dir, &path, words) {
            read(SearchLocation::Transcript, path)?;
        }
    }
    read(SearchLocation::Log, dir.log(name))
}
