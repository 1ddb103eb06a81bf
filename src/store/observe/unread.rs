//! Reads the unread mail of an agent without taking it.
//!
//! Mail moves from the inbox into a claim meanwhile. The inbox is opened before the claims are listed, so
//! that every line is seen at least once.

use crate::os::file::FileError;
use crate::store::file::jsonl::{Framed, pieces_of};
use crate::store::file::read::open_if_there;
use crate::store::mailbox::claim::list;
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::limits::MAX_LINE_BYTES;
use crate::wire::message::Message;
use serde_json::{Map, Value};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A waiting line.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// The bytes of the line.
    pub raw: Vec<u8>,
    /// The message, or `None` if the line will become a dead letter.
    pub message: Option<Message>,
    /// The line as an object, if it is one.
    pub object: Option<Map<String, Value>>,
}

/// Whether `name` has mail that it has not acted on. Fails if the folder of claims cannot be read.
pub fn is_unread(dir: &TeamDir, name: &AgentName) -> Result<bool, StoreError> {
    let inbox = fs::symlink_metadata(dir.inbox(name));
    Ok(inbox.is_ok_and(|known| known.len() > 0) || !unread_claims(dir, name)?.is_empty())
}

/// Returns the number of waiting lines. Fails if a file cannot be read.
pub fn count(dir: &TeamDir, name: &AgentName) -> Result<usize, StoreError> {
    let mut count = 0;
    each_line(dir, name, |framed| count += usize::from(!framed.bytes.trim_ascii().is_empty()))?;
    Ok(count)
}

/// Returns the waiting lines, oldest first. Fails if a file cannot be read.
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
    let in_inbox = inbox.as_ref().map(|(_, known)| known.ino());
    for claim in unread_claims(dir, name)? {
        // A claim made since the inbox was opened is that inbox.
        if let Some((file, known)) = open_if_there(&claim)?
            && Some(known.ino()) != in_inbox
        {
            pieces_of(file, &claim, MAX_LINE_BYTES, &mut meet)?;
        }
    }
    if let Some((file, _)) = inbox {
        pieces_of(file, &path, MAX_LINE_BYTES, &mut meet)?;
    }
    Ok(())
}

fn unread_claims(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, FileError> {
    let unread = list(dir, name)?.into_iter().filter(|claim| !claim.is_taken);
    Ok(unread.map(|claim| claim.path).collect())
}
