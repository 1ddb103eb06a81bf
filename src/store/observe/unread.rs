//! Looking at somebody's unread mail without taking it.
//!
//! Mail moves from the inbox into a claim while we look. Whoever looks at the inbox first and at the
//! claims second sees it at least once.

use crate::os::file::{Access, At, FileError, open};
use crate::store::file::jsonl::{Framed, Lines};
use crate::store::mailbox::claim::{Claim, Stage, list};
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::message::{MAX_LINE_BYTES, Message};
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A line that waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// The line.
    pub raw: Vec<u8>,
    /// What it says; `None` when it will become a dead letter.
    pub message: Option<Message>,
    /// The line as an object, if it is one.
    pub object: Option<Map<String, Value>>,
}

/// Whether `name` has mail that it has not acted on.
///
/// # Errors
/// The folder of claims cannot be read.
pub fn is_unread(dir: &TeamDir, name: &AgentName) -> Result<bool, StoreError> {
    let inbox = fs::symlink_metadata(dir.inbox(name));
    Ok(inbox.is_ok_and(|known| known.len() > 0) || !unread_claims(dir, name)?.is_empty())
}

/// How many lines wait.
///
/// # Errors
/// A file cannot be read.
pub fn count(dir: &TeamDir, name: &AgentName) -> Result<usize, StoreError> {
    let mut count = 0;
    each_line(dir, name, |framed| count += usize::from(!framed.bytes.trim_ascii().is_empty()))?;
    Ok(count)
}

/// The lines that wait, oldest first.
///
/// # Errors
/// A file cannot be read.
pub fn waiting(dir: &TeamDir, name: &AgentName) -> Result<Vec<Waiting>, StoreError> {
    let mut found = Vec::new();
    each_line(dir, name, |framed| {
        let raw = framed.bytes.trim_ascii();
        if !raw.is_empty() {
            let object = serde_json::from_slice::<Map<String, Value>>(raw).ok();
            let message = object.as_ref().and_then(|object| Message::read(object).ok());
            found.push(Waiting { raw: raw.to_vec(), message, object });
        }
    })?;
    Ok(found)
}

fn each_line(
    dir: &TeamDir,
    name: &AgentName,
    mut meet: impl FnMut(&Framed<'_>),
) -> Result<(), StoreError> {
    let path = dir.inbox(name);
    let inbox = open_if_there(&path)?;
    let number = |file: &File| file.metadata().map(|known| known.ino()).ok();
    let in_inbox = inbox.as_ref().and_then(number);
    for claim in unread_claims(dir, name)? {
        // What was claimed since the inbox was opened comes with the inbox.
        if let Some(file) = open_if_there(&claim)?
            && number(&file) != in_inbox
        {
            read(file, &claim, &mut meet)?;
        }
    }
    inbox.map_or(Ok(()), |file| read(file, &path, &mut meet))
}

/// The part of the file that is there now: its writers may be faster than we.
fn read(file: File, path: &Path, meet: &mut impl FnMut(&Framed<'_>)) -> Result<(), StoreError> {
    let end = file.metadata().at(path)?.len();
    let mut lines = Lines::from(file, 0, MAX_LINE_BYTES).at(path)?;
    while lines.offset() < end
        && let Some(framed) = lines.next().at(path)?
    {
        meet(&framed);
    }
    Ok(())
}

fn open_if_there(path: &Path) -> Result<Option<File>, FileError> {
    match open(path, Access::Read) {
        Err(why) if why.is_missing() => Ok(None),
        other => other.map(Some),
    }
}

fn unread_claims(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, FileError> {
    let claims = list(dir, name)?.into_iter();
    let unread = claims.filter(|(_, stage)| *stage == Stage::Inherited);
    Ok(unread.map(|(batch_id, stage)| Claim::new(batch_id, stage).path(dir, name)).collect())
}
