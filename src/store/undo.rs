//! Versions of files before agents changed them, in `undo/objects/HASH`, and one journal of changes for each agent,
//! `undo/NAME.jsonl`.
//!
//! *Invariant:* a journal names a version only after the version is stored, both under one lock, so that a version
//! which a journal names is removed only together with the line. A version is returned only if it has the content of
//! its name.

use super::file::atomic::{Fsync, json_line, remove, replace};
use super::file::jsonl::{Log, each_line};
use super::file::lock::{Held, exclusive};
use super::file::read::{known_if_there, names_in, open_if_there};
use super::{StoreError, TeamDir};
use crate::os::failpoint::hit;
use crate::os::file::At;
use crate::wire::AgentName;
use crate::wire::file_view::ContentHash;
use crate::wire::limits::{LOCK_TIMEOUT, UNDO_BYTES, UNDO_FILE_BYTES, UNDO_JOURNAL_BYTES};
use crate::wire::undo::{FileState, PendingUndo, UndoEntry};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The maximum size of the record of a pending undo that is read, in bytes.
const LONGEST_PENDING: u64 = 16 * 1024 * 1024;

/// The size of the last part of a journal in which the end of a command is looked for, in bytes.
const SHORT_LINE: usize = 512;

/// The share of the limit that a process may add before it looks whether the limit is exceeded.
const SHARE_BETWEEN_LOOKS: u64 = 16;

/// The journals of all agents that have one.
pub(crate) type Journals = BTreeMap<AgentName, Vec<UndoEntry>>;

/// The versions and journals, under their lock.
pub(crate) struct UndoStore<'a> {
    dir: &'a TeamDir,
    _held: Held,
}

/// Returns the version with this hash; `None` if it is not kept, or is damaged.
pub(crate) fn load(dir: &TeamDir, hash: &ContentHash) -> Result<Option<Vec<u8>>, StoreError> {
    let path = dir.undo_object(hash.as_str());
    let Some((file, _)) = open_if_there(&path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(UNDO_FILE_BYTES + 1).read_to_end(&mut bytes).at(&path)?;
    Ok((ContentHash::of(&bytes) == *hash).then_some(bytes))
}

/// Whether a version with this hash is kept; it may be damaged.
pub(crate) fn has(dir: &TeamDir, hash: &ContentHash) -> bool {
    known_if_there(&dir.undo_object(hash.as_str())).is_ok_and(|known| known.is_some())
}

/// Reads the journal of an agent. Torn and foreign lines are skipped.
pub(crate) fn read(dir: &TeamDir, name: &AgentName) -> Result<Vec<UndoEntry>, StoreError> {
    let mut entries = Vec::new();
    each_line(&dir.undo_journal(name), |line| {
        entries.extend(serde_json::from_slice::<UndoEntry>(line).ok());
    })?;
    Ok(entries)
}

/// Reads the last entry of the journal of an agent, if it is short: the begin or the end of a command.
pub(crate) fn last_entry(dir: &TeamDir, name: &AgentName) -> Result<Option<UndoEntry>, StoreError> {
    let path = dir.undo_journal(name);
    let Some((file, known)) = open_if_there(&path)? else { return Ok(None) };
    let mut tail = vec![0; SHORT_LINE];
    let read = file.read_at(&mut tail, known.len().saturating_sub(SHORT_LINE as u64)).at(&path)?;
    tail.truncate(read);
    let last = tail.strip_suffix(b"\n").and_then(|tail| tail.rsplit(|byte| *byte == b'\n').next());
    Ok(last.and_then(|line| serde_json::from_slice(line).ok()))
}

/// Reads all journals.
pub(crate) fn read_all(dir: &TeamDir) -> Result<Journals, StoreError> {
    let names = dir.agents_with_undo()?;
    names.into_iter().map(|name| Ok((name.clone(), read(dir, &name)?))).collect()
}

/// Returns the undo that is under way, or was when its process was killed.
pub(crate) fn pending(dir: &TeamDir) -> Result<Option<PendingUndo>, StoreError> {
    let path = dir.pending_undo();
    let Some((file, _)) = open_if_there(&path)? else { return Ok(None) };
    let mut text = Vec::new();
    file.take(LONGEST_PENDING).read_to_end(&mut text).at(&path)?;
    // The file is replaced whole, so one that cannot be read was not written by this program.
    Ok(serde_json::from_slice(&text).ok())
}

/// Takes the lock under which one undo at a time changes files. Fails after a while; the error names the holder.
#[track_caller]
pub(crate) fn lock_for_apply(dir: &TeamDir) -> Result<Held, StoreError> {
    exclusive(&dir.undo_apply_lock(), LOCK_TIMEOUT)
}

/// Records an undo that begins. The caller holds the lock for it.
pub(crate) fn set_pending(dir: &TeamDir, undo: &PendingUndo) -> Result<(), StoreError> {
    let path = dir.pending_undo();
    Ok(replace(&path, &json_line(undo, &path)?, Fsync::Always)?)
}

/// Records that no undo is under way. The caller holds the lock for it.
pub(crate) fn clear_pending(dir: &TeamDir) -> Result<(), StoreError> {
    Ok(remove(&dir.pending_undo())?)
}

/// Returns the journal of an agent, if it has one. For the lead, returns the versions and the pending undo, too.
pub(super) fn files(dir: &TeamDir, name: &AgentName) -> Result<Vec<PathBuf>, StoreError> {
    let mut files = vec![dir.undo_journal(name)];
    if name.is_lead() {
        files.push(dir.pending_undo());
        let objects = names_in(&dir.undo_objects())?;
        files.extend(objects.iter().map(|name| dir.undo_object(name)));
    }
    Ok(files)
}

impl<'a> UndoStore<'a> {
    /// Takes the lock. Fails after a while; the error names the holder.
    #[track_caller]
    pub(crate) fn lock(dir: &'a TeamDir) -> Result<Self, StoreError> {
        if !dir.undo_objects().is_dir() {
            dir.complete()?;
        }
        let held = exclusive(&dir.undo_lock(), LOCK_TIMEOUT)?;
        Ok(Self { dir, _held: held })
    }

    /// Returns the size of the journal of an agent in bytes, by which its writer sees whether another process has
    /// appended to it.
    pub(crate) fn journal_size(&self, name: &AgentName) -> Result<u64, StoreError> {
        Ok(known_if_there(&self.dir.undo_journal(name))?.map_or(0, |known| known.len()))
    }

    /// Keeps a version. Returns its hash and the number of bytes that were stored: 0 if it was there.
    pub(crate) fn keep(
        &self,
        bytes: &[u8],
        fsync: Fsync,
    ) -> Result<(ContentHash, u64), StoreError> {
        let hash = ContentHash::of(bytes);
        let path = self.dir.undo_object(hash.as_str());
        let size = bytes.len() as u64;
        if known_if_there(&path)?.is_some_and(|known| known.is_file() && known.len() == size) {
            return Ok((hash, 0));
        }
        replace(&path, bytes, fsync)?;
        hit("undo.kept");
        Ok((hash, size))
    }

    /// Appends entries to the journal of an agent: all of them, or none on an error. Returns its size afterwards.
    pub(crate) fn append(
        &self,
        name: &AgentName,
        entries: &[UndoEntry],
        fsync: Fsync,
    ) -> Result<u64, StoreError> {
        let path = self.dir.undo_journal(name);
        let mut lines = Vec::new();
        for entry in entries {
            lines.append(&mut json_line(entry, &path)?);
        }
        let mut log = Log::open(path)?;
        log.append(&lines)?;
        log.sync(fsync)?;
        hit("undo.noted");
        self.journal_size(name)
    }

    /// Drops the oldest turns of an agent whose journal is too long.
    pub(crate) fn shorten(&self, name: &AgentName) -> Result<(), StoreError> {
        if self.journal_size(name)? <= UNDO_JOURNAL_BYTES {
            return Ok(());
        }
        let entries = read(self.dir, name)?;
        let begins = entries.iter().filter_map(UndoEntry::begun_turn);
        let begins: Vec<u64> = begins.map(|(turn, _)| turn).collect();
        let first = begins.get(begins.len() / 2).copied().unwrap_or_default();
        self.drop_turns(name, &entries, first)
    }

    /// Replaces a journal by its turns from the `first` one on.
    fn drop_turns(
        &self,
        name: &AgentName,
        entries: &[UndoEntry],
        first: u64,
    ) -> Result<(), StoreError> {
        let is_first =
            |entry: &UndoEntry| entry.begun_turn().is_some_and(|(turn, _)| turn >= first);
        let start = entries.iter().position(is_first).unwrap_or(entries.len());
        let path = self.dir.undo_journal(name);
        let mut lines = Vec::new();
        for entry in entries.iter().skip(start).filter(|entry| **entry != UndoEntry::Unknown) {
            lines.append(&mut json_line(entry, &path)?);
        }
        Ok(replace(&path, &lines, Fsync::Never)?)
    }

    /// Removes versions until all together have at most [`UNDO_BYTES`]: first those that no journal names, then those of
    /// the oldest turns, with their lines.
    pub(crate) fn make_room(&self) -> Result<(), StoreError> {
        self.make_room_within(UNDO_BYTES)
    }

    fn make_room_within(&self, most: u64) -> Result<(), StoreError> {
        let mut sizes = BTreeMap::new();
        for name in names_in(&self.dir.undo_objects())? {
            if let Some(known) = known_if_there(&self.dir.undo_object(&name))? {
                sizes.insert(name, known.len());
            }
        }
        let mut total: u64 = sizes.values().sum();
        if total <= most {
            return Ok(());
        }
        let mut journals = read_all(self.dir)?;
        loop {
            let named: BTreeSet<&str> = journals.values().flatten().flat_map(versions).collect();
            let unnamed = sizes.keys().filter(|name| !named.contains(name.as_str()));
            for name in unnamed.cloned().collect::<Vec<_>>() {
                if total <= most {
                    break;
                }
                remove(&self.dir.undo_object(&name))?;
                total -= sizes.remove(&name).unwrap_or_default();
            }
            let Some((name, first)) = oldest_turn(&journals).filter(|_| total > most) else {
                return Ok(());
            };
            let entries = journals.remove(&name).unwrap_or_default();
            self.drop_turns(&name, &entries, first + 1)?;
            journals.insert(name.clone(), read(self.dir, &name)?);
        }
    }
}

/// Whether a process that has stored so many bytes since its last look should make room.
pub(crate) fn is_look_due(stored: u64) -> bool {
    stored > UNDO_BYTES / SHARE_BETWEEN_LOOKS
}

/// Returns the hashes that an entry names.
fn versions(entry: &UndoEntry) -> impl Iterator<Item = &str> {
    let states = entry.change().map(|change| [change.before.as_ref(), change.after.as_ref()]);
    states.into_iter().flatten().flatten().map(|FileState { hash, .. }| hash.as_str())
}

/// Returns the agent with the turn that began first, and the number of the turn.
fn oldest_turn(journals: &Journals) -> Option<(AgentName, u64)> {
    let first = |(name, entries): (&AgentName, &Vec<UndoEntry>)| {
        let begun = entries.iter().find_map(UndoEntry::begun_turn);
        begun.map(|(turn, at)| (at.as_secs(), name.clone(), turn))
    };
    let oldest = journals.iter().filter_map(first).min_by(|one, other| one.0.total_cmp(&other.0));
    oldest.map(|(_, name, turn)| (name, turn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use crate::wire::WallTime;
    use crate::wire::undo::{ChangeSource, FileChange};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn name(name: &str) -> AgentName {
        AgentName::member(name).unwrap()
    }

    fn turn(turn: u64, at: f64, before: ContentHash) -> [UndoEntry; 2] {
        let at = WallTime::from_secs(at);
        let before = Some(FileState { hash: before, mode: 0o644 });
        let change = FileChange {
            turn,
            at,
            path: "/w/a".into(),
            before,
            after: None,
            by: ChangeSource::File,
            lost: None,
        };
        [UndoEntry::Turn { turn, at, about: "x".into(), undoes: None }, UndoEntry::Change(change)]
    }

    #[test]
    fn a_version_is_kept_once_privately_and_a_damaged_one_is_not_returned() {
        let (_folder, dir) = test_team();
        let store = UndoStore::lock(&dir).unwrap();
        let (hash, size) = store.keep(b"text", Fsync::Always).unwrap();
        assert_eq!((size, store.keep(b"text", Fsync::Never).unwrap().1), (4, 0));
        let path = dir.undo_object(hash.as_str());
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&dir.undo_objects())), (0o600, 0o700));
        assert_eq!(load(&dir, &hash).unwrap().unwrap(), b"text");
        crate::os::file::open(&path, crate::os::file::Access::Update).unwrap().set_len(2).unwrap();
        assert!(has(&dir, &hash) && load(&dir, &hash).unwrap().is_none());
        store.keep(b"text", Fsync::Never).unwrap();
        assert!(load(&dir, &hash).unwrap().is_some());
    }

    #[test]
    fn a_long_journal_loses_its_older_turns() {
        let (_folder, dir) = test_team();
        let store = UndoStore::lock(&dir).unwrap();
        let alice = name("alice");
        let about = "x".repeat(64 * 1024);
        let begin = |turn| UndoEntry::Turn {
            turn,
            at: WallTime::from_secs(1.0),
            about: about.clone(),
            undoes: None,
        };
        let entries: Vec<UndoEntry> = (1..=60).map(begin).collect();
        store.append(&alice, &entries, Fsync::Never).unwrap();
        store.shorten(&alice).unwrap();
        assert_eq!(read(&dir, &alice).unwrap().len(), 60, "it is not long enough");
        let more: Vec<UndoEntry> = (61..=70).map(begin).collect();
        store.append(&alice, &more, Fsync::Never).unwrap();
        store.shorten(&alice).unwrap();
        let left = read(&dir, &alice).unwrap();
        assert_eq!((left.len(), left[0].begun_turn().unwrap().0), (35, 36));
    }

    #[test]
    fn the_last_entry_is_read_if_it_is_short() {
        let (_folder, dir) = test_team();
        let alice = name("alice");
        assert_eq!(last_entry(&dir, &alice).unwrap(), None);
        let store = UndoStore::lock(&dir).unwrap();
        let at = WallTime::from_secs(1.5);
        let command = UndoEntry::Command { turn: 1, at, folder: None, uncovered: None };
        let hash = ContentHash::of(b"");
        let entries = [turn(1, 1.0, hash), [UndoEntry::TurnEnd { turn: 1 }, command.clone()]];
        store.append(&alice, &entries.concat(), Fsync::Never).unwrap();
        assert_eq!(last_entry(&dir, &alice).unwrap(), Some(command));
    }

    #[test]
    fn room_is_made_by_unnamed_versions_first_and_then_by_the_oldest_turns() {
        let (_folder, dir) = test_team();
        let store = UndoStore::lock(&dir).unwrap();
        let keep = |text: &str| store.keep(text.as_bytes(), Fsync::Never).unwrap().0;
        let [old, middle, new, unnamed] = ["old.", "mid.", "new.", "none"].map(keep);
        let (alice, bob) = (name("alice"), name("bob"));
        store.append(&alice, &turn(1, 1.0, old.clone()), Fsync::Never).unwrap();
        store.append(&bob, &turn(1, 2.0, middle.clone()), Fsync::Never).unwrap();
        store.append(&alice, &turn(2, 3.0, new.clone()), Fsync::Never).unwrap();
        store.make_room_within(12).unwrap();
        assert!(has(&dir, &old) && !has(&dir, &unnamed));
        store.make_room_within(8).unwrap();
        assert!(!has(&dir, &old) && has(&dir, &middle) && has(&dir, &new));
        assert_eq!(read(&dir, &alice).unwrap(), turn(2, 3.0, new.clone()));
        store.make_room_within(0).unwrap();
        assert!(read_all(&dir).unwrap().values().all(Vec::is_empty));
    }
}
