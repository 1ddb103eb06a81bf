//! Finds the last line of a link that stands in a mailbox, by the field `via` of the lines themselves.

use crate::os::file::{Access, open_known};
use crate::store::conversations::index;
use crate::store::file::atomic::{Fsync, sync_data, sync_folder};
use crate::store::file::jsonl::each_line;
use crate::store::file::lock::SideLock;
use crate::store::mailbox::claim::list;
use crate::store::mailbox::dead;
use crate::store::transcript::{archived, mail_of};
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::carried::{Epoch, HostName, Via};
use crate::wire::limits::LOCK_TIMEOUT;
use memchr::memmem;
use serde_json::{Map, Value};
use std::path::Path;

/// Returns the highest number of a link's lines in the mailbox of a member of this host; `None` if there is none. What is
/// found is durable.
///
/// The files are read in the direction in which lines move, so that none can slip past: inbox, claims, dead letters,
/// transcript, and archived transcripts.
///
/// # Errors
/// A file cannot be read or synced.
pub fn highest_arrived(
    dir: &TeamDir,
    name: &AgentName,
    host: &HostName,
    epoch: &Epoch,
) -> Result<Option<u64>, StoreError> {
    let wanted = Wanted { host, epoch };
    let mut highest = None;
    let mut side = SideLock::new(dir.inbox_lock(name));
    let held = side.acquire(LOCK_TIMEOUT)?;
    let claims = list(dir, name)?;
    for path in std::iter::once(dir.inbox(name)).chain(claims.into_iter().map(|file| file.path)) {
        each_line(&path, |line| highest = highest.max(wanted.number(line)))?;
        match open_known(&path, Access::Update) {
            Ok((file, _)) => sync_data(&file, &path, Fsync::Always)?,
            Err(why) if why.is_missing() => {}
            Err(why) => return Err(why.into()),
        }
    }
    sync_folder(&dir.inboxes(), Fsync::Always)?;
    drop(held);
    // A claim that was listed may be gone since: then its lines are in one of these files.
    for letter in dead::read_all(dir, name)? {
        highest =
            highest.max(letter.raw.as_deref().and_then(|line| wanted.number(line.as_bytes())));
    }
    let mut transcripts = archived(dir, name)?;
    transcripts.retain(|path| !matches!(index::mail(dir, path), index::IndexedMail::None));
    transcripts.push(dir.transcript(name));
    for path in transcripts {
        highest = highest.max(wanted.in_transcript(&path)?);
    }
    Ok(highest)
}

/// The link whose lines are wanted.
struct Wanted<'a> {
    host: &'a HostName,
    epoch: &'a Epoch,
}

impl Wanted<'_> {
    fn number(&self, line: &[u8]) -> Option<u64> {
        // Most lines are of other links, and are not parsed.
        memmem::find(line, self.epoch.as_str().as_bytes())?;
        let message: Map<String, Value> = serde_json::from_slice(line.trim_ascii()).ok()?;
        self.of(&message)
    }

    fn of(&self, message: &Map<String, Value>) -> Option<u64> {
        let via = Via::of(message)?;
        (via.host == *self.host && via.epoch == *self.epoch).then_some(via.seq)
    }

    fn in_transcript(&self, path: &Path) -> Result<Option<u64>, StoreError> {
        let mut highest = None;
        each_line(path, |line| {
            if memmem::find(line, self.epoch.as_str().as_bytes()).is_some()
                && let Some(message) = mail_of(line)
            {
                highest = highest.max(self.of(&message));
            }
        })?;
        Ok(highest)
    }
}
