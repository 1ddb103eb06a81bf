//! Reads the unread mail of an agent without taking it.
//!
//! Meanwhile the owner may move mail from the inbox into a claim. The inbox is opened before the claims are
//! listed, so that every line is seen at least once.

use crate::os::file::FileError;
use crate::store::file::jsonl::{Framed, pieces_of};
use crate::store::file::read::{known_if_there, open_if_there};
use crate::store::mailbox::claim::{list, list_all};
use crate::store::{Keyring, StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::limits::MAX_LINE_BYTES;
use crate::wire::message::Message;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A line that its owner has not acted on.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// The bytes of the line.
    pub raw: Vec<u8>,
    /// The message, or `None` if the line will become a dead letter.
    pub message: Option<Message>,
    /// The line as an object, if it is one.
    pub object: Option<Map<String, Value>>,
}

impl Waiting {
    /// Returns the message with the evidence for its sender, which only the owner of the mailbox can tell.
    pub(crate) fn verified(&self, keyring: &Keyring) -> Option<Message> {
        let mut message = self.message.clone()?;
        let line = str::from_utf8(&self.raw).unwrap_or_default();
        message.verification = keyring.verify(&message, line);
        Some(message)
    }
}

/// Whether `name` has mail that it has not acted on. Fails if the folder of claims cannot be read.
pub fn is_unread(dir: &TeamDir, name: &AgentName) -> Result<bool, StoreError> {
    let inbox = fs::symlink_metadata(dir.inbox(name));
    Ok(inbox.is_ok_and(|known| known.len() > 0) || !unread_claims(dir, name)?.is_empty())
}

/// Returns those of the agents that have mail that they have not acted on. Lists the claims once for all agents; claims
/// that cannot be listed count as none.
pub(crate) fn agents_with_unread<'a>(
    dir: &TeamDir,
    names: impl Iterator<Item = &'a AgentName>,
) -> BTreeSet<AgentName> {
    let has_inbox =
        |name: &AgentName| fs::symlink_metadata(dir.inbox(name)).is_ok_and(|known| known.len() > 0);
    let (mut unread, others): (BTreeSet<AgentName>, BTreeSet<AgentName>) =
        names.cloned().partition(has_inbox);
    if !others.is_empty() {
        let claims = list_all(dir).unwrap_or_default().into_iter().filter(|it| !it.is_taken);
        unread.extend(claims.map(|claim| claim.owner).filter(|owner| others.contains(owner)));
    }
    unread
}

/// Returns the number of waiting lines. Fails if a file cannot be read.
pub fn count(dir: &TeamDir, name: &AgentName) -> Result<usize, StoreError> {
    let mut count = 0;
    each_line(dir, name, |framed| count += usize::from(is_line(framed)))?;
    Ok(count)
}

/// Returns the number of waiting lines of each agent; a file that cannot be read counts as empty. Lists the claims
/// once for all agents.
pub(crate) fn counts(dir: &TeamDir, names: Vec<AgentName>) -> BTreeMap<AgentName, usize> {
    let mut counts: BTreeMap<AgentName, usize> = names.into_iter().map(|name| (name, 0)).collect();
    let mut inboxes = BTreeSet::new();
    for (name, count) in &mut counts {
        let path = dir.inbox(name);
        // Most are empty, and a look costs less than opening them.
        let is_empty =
            known_if_there(&path).is_ok_and(|known| known.is_none_or(|it| it.len() == 0));
        if !is_empty && let Ok(Some((file, known))) = open_if_there(&path) {
            inboxes.insert(known.ino());
            *count += lines_in(file, &path).unwrap_or_default();
        }
    }
    for claim in list_all(dir).unwrap_or_default() {
        if !claim.is_taken
            && let Some(count) = counts.get_mut(&claim.owner)
            && let Ok(Some((file, known))) = open_if_there(&claim.path)
            && !inboxes.contains(&known.ino())
        {
            *count += lines_in(file, &claim.path).unwrap_or_default();
        }
    }
    counts
}

fn lines_in(file: File, path: &Path) -> Result<usize, FileError> {
    let mut count = 0;
    pieces_of(file, path, MAX_LINE_BYTES, |framed| count += usize::from(is_line(framed)))?;
    Ok(count)
}

fn is_line(framed: &Framed<'_>) -> bool {
    !framed.bytes.trim_ascii().is_empty()
}

/// Returns the waiting lines, oldest first. Fails if a file cannot be read.
pub fn waiting(dir: &TeamDir, name: &AgentName) -> Result<Vec<Waiting>, StoreError> {
    let mut found = Vec::new();
    each_line(dir, name, |framed| {
        if is_line(framed) {
            let raw = framed.bytes.trim_ascii();
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
        // A claim that was made after the inbox was opened is the same file.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::io::Write;

    fn append(path: &Path, text: &str) {
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn each_waiting_line_counts_once_for_its_owner() {
        let (_folder, dir) = test_team();
        let [alice, bob, carol] =
            ["alice", "bob", "carol"].map(|name| AgentName::member(name).unwrap());
        let claim = |name: &str| dir.claims().join(name);
        append(&dir.inbox(&alice), "{}\n\nno mail\n");
        append(&claim("alice.000000000001-0123abcd"), "{}\n");
        append(&claim("alice.000000000002-0123abcd.taken"), "{}\n");
        append(&claim("dave.000000000001-0123abcd"), "{}\n");
        append(&dir.inbox(&bob), "{}\n");
        // The state between the link and the rename of a claim.
        fs::hard_link(dir.inbox(&bob), claim("bob.000000000001-0123abcd")).unwrap();
        let names = vec![alice.clone(), bob.clone(), carol.clone()];
        let found = counts(&dir, names);
        assert_eq!(found.into_values().collect::<Vec<_>>(), [3, 1, 0]);
        let names = [alice.clone(), bob.clone(), carol.clone()];
        let unread = [alice.clone(), bob.clone()];
        assert_eq!(agents_with_unread(&dir, names.iter()), unread.into());
        // Of mail in claims only the owner's name tells.
        fs::remove_file(dir.inbox(&alice)).unwrap();
        assert_eq!(agents_with_unread(&dir, [alice.clone(), carol.clone()].iter()).len(), 1);
        append(&dir.inbox(&alice), "{}\n\nno mail\n");
        let one_by_one = [alice, bob, carol].map(|name| count(&dir, &name).unwrap());
        assert_eq!(one_by_one, [3, 1, 0]);
    }
}
