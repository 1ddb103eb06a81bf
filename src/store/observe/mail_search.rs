//! Every line that tells of somebody's mail, wherever it lies now: what `grep` over the folder would
//! find, with the place. It reads, and changes nothing.

use crate::store::file::jsonl::{Piece, each_piece};
use crate::store::mailbox::claim::list;
use crate::store::transcript::all_archives;
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use std::path::PathBuf;

/// Longest line that is looked at.
const LONGEST: usize = 64 * 1024 * 1024;

/// What a line stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchLocation {
    /// The inbox.
    Inbox,
    /// A batch that its owner has taken, not yet acted on.
    Claim,
    /// A batch that was acted on, kept for late writers.
    TakenClaim,
    /// The dead letters.
    Dead,
    /// The conversation, or an earlier one.
    Transcript,
    /// The structured log.
    Log,
}

/// Where a line stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// What it stands in.
    pub place: SearchLocation,
    /// The file, from the team folder on.
    pub file: PathBuf,
    /// Byte offset of the line.
    pub offset: u64,
    /// Its number, counted from 1.
    pub line: usize,
}

/// Meets every whole line of somebody's files: mail moves from the inbox into a claim and on into the
/// transcript, and is looked for in this order, so that it is seen at least once.
///
/// # Errors
/// A file cannot be read.
pub fn each_line(
    dir: &TeamDir,
    name: &AgentName,
    mut meet: impl FnMut(&Spot, &[u8]),
) -> Result<(), StoreError> {
    let mut files = vec![(SearchLocation::Inbox, dir.inbox(name))];
    for claim in list(dir, name)? {
        let place = if claim.is_taken { SearchLocation::TakenClaim } else { SearchLocation::Claim };
        files.push((place, claim.path));
    }
    files.push((SearchLocation::Dead, dir.dead(name)));
    if dir.archive().exists() {
        files.extend(
            all_archives(dir, name)?.into_iter().map(|path| (SearchLocation::Transcript, path)),
        );
    }
    files.push((SearchLocation::Transcript, dir.transcript(name)));
    files.push((SearchLocation::Log, dir.log(name)));
    for (place, path) in files {
        let inside = path.strip_prefix(dir.root()).map_or_else(|_| path.clone(), PathBuf::from);
        let mut spot = Spot { place, file: inside, offset: 0, line: 0 };
        each_piece(&path, LONGEST, |framed| {
            spot.line += 1;
            if framed.piece == Piece::Line {
                spot.offset = framed.offset;
                meet(&spot, framed.bytes);
            }
        })?;
    }
    Ok(())
}
