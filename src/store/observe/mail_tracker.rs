//! Tracks the mail of a team without taking it: each line is reported once in the inbox and once more when its
//! owner has claimed it.
//!
//! A file is identified by its inode, since a claim is the renamed inbox. Only appended lines are read.

use crate::os::file::At;
use crate::store::file::jsonl::{Lines, Piece};
use crate::store::file::read::open_if_there;
use crate::store::mailbox::claim::list_all;
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::limits::MAX_LINE_BYTES;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MailLocation {
    /// The line was appended and is not claimed yet.
    Inbox,
    Claim,
}

/// A line that was seen at a location for the first time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrackedMail {
    pub(crate) owner: AgentName,
    pub(crate) place: MailLocation,
    pub(crate) file: PathBuf,
    /// The line number, counted from 1.
    pub(crate) line: usize,
    pub(crate) object: Rc<Map<String, Value>>,
}

/// A tracker of all inboxes and claims of a team.
#[derive(Debug)]
pub(crate) struct MailTracker {
    dir: TeamDir,
    files: BTreeMap<(AgentName, u64), TrackedFile>,
}

#[derive(Debug)]
struct TrackedFile {
    place: MailLocation,
    offset: u64,
    lines: usize,
    objects: Vec<(usize, Rc<Map<String, Value>>)>,
}

impl MailTracker {
    pub(crate) fn of(dir: &TeamDir) -> Self {
        Self { dir: dir.clone(), files: BTreeMap::new() }
    }

    /// Returns the lines that are new since the last call. Fails if a file cannot be read.
    pub(crate) fn look(&mut self, owners: &[AgentName]) -> Result<Vec<TrackedMail>, StoreError> {
        // Inboxes first: a line that is claimed in between is seen twice, not missed.
        let inbox = |owner: &AgentName| (owner.clone(), MailLocation::Inbox, self.dir.inbox(owner));
        let mut files: Vec<_> = owners.iter().map(inbox).collect();
        let claims = list_all(&self.dir)?.into_iter().filter(|claim| !claim.is_taken);
        files.extend(claims.map(|claim| (claim.owner, MailLocation::Claim, claim.path)));
        let mut found = Vec::new();
        let mut there = BTreeMap::new();
        for (owner, place, path) in files {
            let Some((file, known)) = open_if_there(&path)? else { continue };
            let key = (owner.clone(), known.ino());
            let before = there.remove(&key).or_else(|| self.files.remove(&key));
            let mut state = before
                .filter(|state| state.place <= place && state.offset <= known.len())
                .unwrap_or(TrackedFile { place, offset: 0, lines: 0, objects: Vec::new() });
            let tracked = |line, object: &Rc<_>| TrackedMail {
                owner: owner.clone(),
                place,
                file: path.clone(),
                line,
                object: Rc::clone(object),
            };
            if state.place != place {
                found.extend(state.objects.iter().map(|(line, object)| tracked(*line, object)));
                state.place = place;
            }
            let mut lines = Lines::from(file, state.offset, MAX_LINE_BYTES).at(&path)?;
            while let Some(framed) = lines.next().at(&path)? {
                if framed.piece == Piece::Fragment {
                    break;
                }
                state.lines += 1;
                if let Ok(object) = serde_json::from_slice(framed.bytes) {
                    let object = Rc::new(object);
                    found.push(tracked(state.lines, &object));
                    state.objects.push((state.lines, object));
                }
                state.offset = lines.offset();
            }
            there.insert(key, state);
        }
        self.files = there;
        Ok(found)
    }

    /// Returns the number of unread lines of `owner`, as of the last [`MailTracker::look`].
    pub(crate) fn unread(&self, owner: &AgentName) -> usize {
        let first = (owner.clone(), u64::MIN);
        let last = (owner.clone(), u64::MAX);
        self.files.range(first..=last).map(|(_, known)| known.lines).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::fs;
    use std::io::Write;

    #[test]
    fn a_line_is_reported_in_the_inbox_and_again_in_the_claim() {
        let (_folder, dir) = test_team();
        let alice = AgentName::member("alice").unwrap();
        let append = |text: &str| {
            let mut options = fs::File::options();
            let mut file = options.create(true).append(true).open(dir.inbox(&alice)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let mut tracker = MailTracker::of(&dir);
        let owners = [alice.clone()];
        assert!(tracker.look(&owners).unwrap().is_empty());
        append("{\"id\":\"1\"}\nnot mail\n{\"id\":\"2\"");
        let seen = tracker.look(&owners).unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].place, seen[0].line), (MailLocation::Inbox, 1));
        assert_eq!(tracker.unread(&alice), 2);
        append("}\n");
        let seen = tracker.look(&owners).unwrap();
        assert_eq!((seen.len(), seen[0].line), (1, 3));
        let claim = dir.claims().join("alice.000000000001-0123abcd");
        fs::rename(dir.inbox(&alice), &claim).unwrap();
        let seen = tracker.look(&owners).unwrap();
        let lines: Vec<_> = seen.iter().map(|seen| (seen.place, seen.line)).collect();
        assert_eq!(lines, [(MailLocation::Claim, 1), (MailLocation::Claim, 3)]);
        fs::rename(&claim, claim.with_extension("000000000001-0123abcd.taken")).unwrap();
        assert!(tracker.look(&owners).unwrap().is_empty());
        assert_eq!(tracker.unread(&alice), 0);
    }
}
