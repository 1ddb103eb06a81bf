//! Mail on its way, seen from outside: each line once when it stands in an inbox, once more when its owner
//! has claimed it. Nothing is locked, taken or changed.
//!
//! A file is known by its inode: a claim is the inbox renamed. Only what was appended since the last look is
//! read.

use crate::os::file::{Access, At, open_known};
use crate::store::file::jsonl::{Lines, Piece};
use crate::store::mailbox::claim::list_all;
use crate::store::{StoreError, TeamDir};
use crate::wire::AgentName;
use crate::wire::limits::MAX_LINE_BYTES;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;

/// How far a line has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MailLocation {
    /// It was appended and waits.
    Inbox,
    /// Its owner has claimed it and is reading.
    Claim,
}

/// A line that was seen at a place for the first time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrackedMail {
    /// Whose mail it is.
    pub(crate) owner: AgentName,
    pub(crate) place: MailLocation,
    /// The file that holds it.
    pub(crate) file: PathBuf,
    /// Its line there, counted from 1.
    pub(crate) line: usize,
    /// What it says.
    pub(crate) object: Rc<Map<String, Value>>,
}

/// All inboxes and claims of a team.
#[derive(Debug)]
pub(crate) struct MailTracker {
    dir: TeamDir,
    files: BTreeMap<(AgentName, u64), Known>,
}

#[derive(Debug)]
struct Known {
    place: MailLocation,
    offset: u64,
    lines: usize,
    objects: Vec<(usize, Rc<Map<String, Value>>)>,
}

impl MailTracker {
    pub(crate) fn of(dir: &TeamDir) -> Self {
        Self { dir: dir.clone(), files: BTreeMap::new() }
    }

    /// What came into sight since the last look.
    ///
    /// # Errors
    /// A file refused.
    pub(crate) fn look(&mut self, owners: &[AgentName]) -> Result<Vec<TrackedMail>, StoreError> {
        // Inboxes first: what is claimed in between is seen once more, not missed.
        let inboxes =
            owners.iter().map(|owner| (owner.clone(), MailLocation::Inbox, self.dir.inbox(owner)));
        let mut files: Vec<(AgentName, MailLocation, PathBuf)> = inboxes.collect();
        let claims = list_all(&self.dir)?.into_iter().filter(|claim| !claim.is_taken);
        files.extend(claims.map(|claim| (claim.owner, MailLocation::Claim, claim.path)));
        let mut found = Vec::new();
        let mut there = BTreeMap::new();
        for (owner, place, path) in files {
            let (file, known) = match open_known(&path, Access::Read) {
                Err(why) if why.is_missing() => continue,
                other => other?,
            };
            let key = (owner.clone(), known.ino());
            let before = there.remove(&key).or_else(|| self.files.remove(&key));
            let mut state = before
                .filter(|state| state.place <= place && state.offset <= known.len())
                .unwrap_or(Known { place, offset: 0, lines: 0, objects: Vec::new() });
            let sighted = |line, object: &Rc<_>| TrackedMail {
                owner: owner.clone(),
                place,
                file: path.clone(),
                line,
                object: Rc::clone(object),
            };
            if state.place != place {
                found.extend(state.objects.iter().map(|(line, object)| sighted(*line, object)));
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
                    found.push(sighted(state.lines, &object));
                    state.objects.push((state.lines, object));
                }
                state.offset = lines.offset();
            }
            there.insert(key, state);
        }
        self.files = there;
        Ok(found)
    }

    /// How many lines of `owner` waited at the last look.
    pub(crate) fn unread(&self, owner: &AgentName) -> usize {
        let first = (owner.clone(), u64::MIN);
        let last = (owner.clone(), u64::MAX);
        self.files.range(first..=last).map(|(_, known)| known.lines).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[test]
    fn a_line_is_seen_in_the_inbox_and_again_when_it_is_claimed() {
        let top = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&top.path().join(".team")).unwrap();
        let alice = AgentName::member("alice").unwrap();
        let append = |text: &str| {
            let mut file =
                fs::OpenOptions::new().create(true).append(true).open(dir.inbox(&alice)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let mut sight = MailTracker::of(&dir);
        let owners = [alice.clone()];
        assert!(sight.look(&owners).unwrap().is_empty());
        append("{\"id\":\"1\"}\nnot mail\n{\"id\":\"2\"");
        let seen = sight.look(&owners).unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].place, seen[0].line), (MailLocation::Inbox, 1));
        assert_eq!(sight.unread(&alice), 2);
        append("}\n");
        let seen = sight.look(&owners).unwrap();
        assert_eq!((seen.len(), seen[0].line), (1, 3));
        let claim = dir.claims().join("alice.000000000001-0123abcd");
        fs::rename(dir.inbox(&alice), &claim).unwrap();
        let seen = sight.look(&owners).unwrap();
        let lines: Vec<_> = seen.iter().map(|seen| (seen.place, seen.line)).collect();
        assert_eq!(lines, [(MailLocation::Claim, 1), (MailLocation::Claim, 3)]);
        fs::rename(&claim, claim.with_extension("000000000001-0123abcd.taken")).unwrap();
        assert!(sight.look(&owners).unwrap().is_empty());
        assert_eq!(sight.unread(&alice), 0);
    }
}
