//! Claims on disk: batches of mail that their owner took from the inbox and still keeps.

use super::batch_id::counter;
use crate::os::file::{At, FileError};
use crate::os::watch::WatchId;
use crate::store::file::read::names_in;
use crate::store::{TeamDir, failpoint};
use crate::wire::AgentName;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The suffix of a claim whose mail was acted on.
const TAKEN: &str = ".taken";

/// A claim, as its owner tracks it.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) batch_id: String,
    pub(crate) stage: Stage,
    /// The watch on its file; without one, only the size of the file tells of late writers.
    pub(crate) watch_id: Option<WatchId>,
    /// Every byte before this offset is in the transcript or the dead letters.
    pub(crate) read_to: u64,
    /// The size of the file when it was read.
    pub(crate) size: u64,
    /// The last offsets that earlier processes recorded.
    pub(crate) recorded: Recorded,
    /// The time at which this process first saw the claim.
    pub(crate) since: Instant,
    /// The time at which it was last seen to grow.
    pub(crate) grown: Instant,
    /// The pause before the next check for late writers.
    pub(crate) pause: Duration,
}

/// The progress of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Made by this process.
    Fresh,
    /// Left by an earlier process that did not act on it.
    Inherited,
    /// Left by an earlier process that acted on it.
    InheritedTaken,
    /// Its mail is acknowledged and not yet acted on.
    Acknowledged,
    /// Its mail was acted on; the file is kept for late writers.
    Taken,
}

/// The highest offsets of one claim in the owner's files. The files are written one after the other, so
/// neither tells about the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) mail: Option<u64>,
    pub(crate) dead: Option<u64>,
}

impl Claim {
    pub(crate) fn new(batch_id: String, stage: Stage) -> Self {
        let now = Instant::now();
        Self {
            batch_id,
            stage,
            watch_id: None,
            read_to: 0,
            size: 0,
            recorded: Recorded::default(),
            since: now,
            grown: now,
            pause: Duration::from_millis(1),
        }
    }

    /// Tracks a claim that an earlier process left.
    pub(crate) fn inherited(file: ClaimFile) -> Self {
        let stage = if file.is_taken { Stage::InheritedTaken } else { Stage::Inherited };
        Self::new(file.batch_id, stage)
    }

    /// Returns the current path.
    pub(crate) fn path(&self, dir: &TeamDir, name: &AgentName) -> PathBuf {
        let end = match self.stage {
            Stage::Taken | Stage::InheritedTaken => TAKEN,
            Stage::Fresh | Stage::Inherited | Stage::Acknowledged => "",
        };
        dir.claims().join(format!("{name}.{}{end}", self.batch_id))
    }

    /// Whether all of its known mail is acknowledged.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.stage, Stage::Acknowledged | Stage::Taken)
    }

    /// Whether the file is longer than when it was read.
    pub(crate) fn has_grown(&self, dir: &TeamDir, name: &AgentName) -> bool {
        fs::symlink_metadata(self.path(dir, name)).is_ok_and(|known| known.len() != self.size)
    }

    /// Enters a stage and renames the file accordingly. A removed file needs no name, since its mail is not
    /// acted on again.
    pub(crate) fn enter(
        &mut self,
        stage: Stage,
        dir: &TeamDir,
        name: &AgentName,
    ) -> Result<(), FileError> {
        let old = self.path(dir, name);
        let before = std::mem::replace(&mut self.stage, stage);
        let new = self.path(dir, name);
        if old == new {
            return Ok(());
        }
        match fs::rename(&old, &new).at(&old) {
            Err(why) if why.is_missing() => Ok(()),
            moved => moved.inspect_err(|_| self.stage = before),
        }
    }
}

/// A claim as another process sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimFile {
    pub(crate) owner: AgentName,
    pub(crate) batch_id: String,
    /// The owner has acted on the mail; the file is kept for late writers.
    pub(crate) is_taken: bool,
    pub(crate) path: PathBuf,
}

/// Lists the claims of one mailbox, oldest first.
pub(crate) fn list(dir: &TeamDir, name: &AgentName) -> Result<Vec<ClaimFile>, FileError> {
    list_where(dir, |owner| owner == name.as_str())
}

/// Lists the claims of all mailboxes, by owner and age.
pub(crate) fn list_all(dir: &TeamDir) -> Result<Vec<ClaimFile>, FileError> {
    list_where(dir, |_| true)
}

/// A folder that does not exist yet has no claims.
fn list_where(
    dir: &TeamDir,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<ClaimFile>, FileError> {
    let folder = dir.claims();
    let mut found = Vec::new();
    for file in names_in(&folder)? {
        let parts = file.split_once('.').filter(|(owner, _)| is_wanted(owner));
        let Some((owner, rest)) = parts else { continue };
        let (batch_id, is_taken) = rest.strip_suffix(TAKEN).map_or((rest, false), |id| (id, true));
        if counter(batch_id).is_some()
            && let Ok(owner) = AgentName::mailbox(owner)
        {
            let (batch_id, path) = (batch_id.to_owned(), folder.join(&file));
            found.push(ClaimFile { owner, batch_id, is_taken, path });
        }
    }
    found.sort();
    Ok(found)
}

/// Removes the second link of an inbox, whose claimant was killed between the link and the rename. The
/// caller holds the side lock, so no claimant is alive in between.
pub(crate) fn undo_half_claim(
    dir: &TeamDir,
    name: &AgentName,
    inbox: u64,
) -> Result<(), FileError> {
    for ClaimFile { path, .. } in list(dir, name)? {
        match fs::symlink_metadata(&path) {
            Ok(known) if known.ino() == inbox => {
                failpoint::hit("recover.half_claim");
                fs::remove_file(&path).at(&path)?;
                failpoint::hit("recover.undone");
            }
            Ok(_) => {}
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(FileError::Io { path, source }),
        }
    }
    Ok(())
}
