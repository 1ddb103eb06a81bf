//! Carries out an undo: all its files or none.
//!
//! The locks of all files are held meanwhile. The versions that the undo replaces are kept first, then the undo is
//! recorded as pending and in the journal of the agent, then each file changes by an exchange of names. If one is not
//! what it was, those before it are put back. A process that is killed leaves the record; the next undo, plan or start
//! of an agent completes the undo, or puts all back if a file was changed since.

use super::plan::{CurrentState, PlanError, UndoPlan, plan, workspace};
use crate::os::failpoint::hit;
use crate::os::safe_path::{Placement, SafePath, SafePathError, anywhere};
use crate::os::{Clock, SystemClock};
use crate::store::file_writes::{FileLock, draft_name};
use crate::store::undo::{
    UndoStore, clear_pending, load, lock_for_apply, pending, read, set_pending,
};
use crate::store::{Fsync, StoreError, TeamDir, kept_versions};
use crate::wire::AgentName;
use crate::wire::file_view::{ContentHash, FileWrite};
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::undo::{ChangeSource, FileChange, FileState, PendingFile, PendingUndo, UndoEntry};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The reason for which an undo changed nothing, or not all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UndoError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("there is nothing to take back: the files are as they were before")]
    Nothing,
    /// Some files are refused, and the undo was not said to leave them out.
    #[error("{0} of the files cannot be taken back")]
    Refused(usize),
    #[error("{0} was changed just now")]
    Changed(String),
    #[error("another program has {0} open for writing")]
    Busy(String),
    #[error("{0}: {1}")]
    File(String, SafePathError),
    /// These files could not be put back, since they were changed in the middle of the undo.
    #[error("{} was changed during the undo and is left unchanged", .0.join(", "))]
    Mixed(Vec<String>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An undo that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Undone {
    pub(crate) agent: AgentName,
    /// The number of the turn that stands for the undo: it can be taken back.
    pub(crate) turn: u64,
    /// The changed files, as paths for people.
    pub(crate) files: Vec<String>,
}

type Locks = BTreeMap<String, FileLock>;

/// Carries out a plan that a person has seen. With `leaves_refused`, files that it refuses are left as they are; without,
/// they make it fail. Fails also if a file is not what the plan has seen; then no file is changed.
pub(crate) fn apply(
    dir: &TeamDir,
    seen: &UndoPlan,
    leaves_refused: bool,
) -> Result<Undone, UndoError> {
    if !seen.refusals.is_empty() && !leaves_refused {
        return Err(UndoError::Refused(seen.refusals.len()));
    }
    if seen.steps.is_empty() {
        return Err(UndoError::Nothing);
    }
    let held = lock_for_apply(dir)?;
    complete(dir)?;
    let mut locks = lock_all(dir, seen.steps.iter().map(|step| step.path.as_str()))?;
    // Under the locks no file tool changes one of these files.
    let now = plan(dir, &seen.agent, Some(seen.to_turn))?;
    let differs = |one: &UndoPlan, other: &UndoPlan| {
        let step = one.steps.iter().find(|step| !other.steps.contains(step));
        step.map(|step| step.shown.clone())
    };
    if let Some(changed) = differs(seen, &now).or_else(|| differs(&now, seen)) {
        return Err(UndoError::Changed(changed));
    }
    let undo = prepare(dir, seen)?;
    hit("undo.journaled");
    let (done, is_settled) = change_all(dir, &seen.agent, &undo, &mut locks);
    hit("undo.changed");
    if is_settled {
        clear_pending(dir)?;
    }
    hit("undo.finished");
    drop(locks);
    drop(held);
    done?;
    let files = seen.steps.iter().map(|step| step.shown.clone()).collect();
    Ok(Undone { agent: seen.agent.clone(), turn: undo.turn, files })
}

/// Completes or puts back an undo whose process was killed. Does nothing if there is none.
pub(crate) fn recover(dir: &TeamDir) -> Result<(), UndoError> {
    if pending(dir)?.is_none() {
        return Ok(());
    }
    let held = lock_for_apply(dir)?;
    let completed = complete(dir);
    drop(held);
    completed
}

/// Does the work of [`recover`] under its lock.
fn complete(dir: &TeamDir) -> Result<(), UndoError> {
    // The undo may have been under way until now.
    let Some(undo) = pending(dir)? else { return Ok(()) };
    if let Ok(agent) = AgentName::mailbox(&undo.agent) {
        let entries = read(dir, &agent)?;
        let is_begun = entries.iter().any(|entry| {
            matches!(entry, UndoEntry::Turn { turn, at, undoes: Some(first), .. }
                if *turn == undo.turn && *at == undo.at && *first == undo.undoes)
        });
        let is_withdrawn = entries.contains(&UndoEntry::Withdrawn { turn: undo.turn });
        // Files change only after the journal names the undo.
        if is_begun && !is_withdrawn {
            let mut locks = lock_all(dir, undo.files.iter().map(|file| file.path.as_str()))?;
            let (done, is_settled) = change_all(dir, &agent, &undo, &mut locks);
            if !is_settled {
                return done;
            }
            if let Err(why) = done {
                tracing::warn!(%why, "an interrupted undo was rolled back");
            }
        }
    }
    Ok(clear_pending(dir)?)
}

/// Takes the locks of files in the order of their paths. File tools hold one such lock at a time.
fn lock_all<'a>(dir: &TeamDir, paths: impl Iterator<Item = &'a str>) -> Result<Locks, StoreError> {
    let mut paths: Vec<&str> = paths.collect();
    paths.sort_unstable();
    paths.dedup();
    let lock =
        |path: &str| Ok((path.to_owned(), FileLock::take(dir, Path::new(path), LOCK_TIMEOUT)?));
    paths.into_iter().map(lock).collect()
}

/// Keeps the versions that the undo replaces, and records it as pending and in the journal. The agent, which may be in a
/// turn, cannot take the number of the undo meanwhile.
fn prepare(dir: &TeamDir, plan: &UndoPlan) -> Result<PendingUndo, UndoError> {
    let mut files = Vec::new();
    let store = UndoStore::lock(dir)?;
    for step in &plan.steps {
        let current = CurrentState::look(Path::new(&step.path));
        if !current.has_content_of(step.from.as_ref()) {
            return Err(UndoError::Changed(step.shown.clone()));
        }
        if let CurrentState::File(_, bytes) = &current {
            store.keep(bytes, Fsync::Always)?;
        }
        files.push(PendingFile {
            path: step.path.clone(),
            from: step.from.clone(),
            to: step.to.clone(),
        });
    }
    let entries = read(dir, &plan.agent)?;
    let last = entries.iter().filter_map(UndoEntry::begun_turn).map(|(turn, _)| turn).max();
    let undo = PendingUndo {
        agent: plan.agent.to_string(),
        turn: last.unwrap_or_default() + 1,
        undoes: plan.to_turn,
        at: SystemClock.now(),
        files,
    };
    set_pending(dir, &undo)?;
    hit("undo.planned");
    journal(&store, &plan.agent, &undo, &plan.about)?;
    Ok(undo)
}

/// Records the undo as a turn of the agent, so that it can be taken back.
fn journal(
    store: &UndoStore<'_>,
    agent: &AgentName,
    undo: &PendingUndo,
    about: &str,
) -> Result<(), StoreError> {
    let PendingUndo { turn, at, undoes, .. } = undo;
    let about = format!("undo of turn {undoes}: {about}");
    let mut entries = vec![UndoEntry::Turn { turn: *turn, at: *at, about, undoes: Some(*undoes) }];
    entries.extend(undo.files.iter().map(|file| {
        UndoEntry::Change(FileChange {
            turn: *turn,
            at: *at,
            path: file.path.clone(),
            before: file.from.clone(),
            after: file.to.clone(),
            by: ChangeSource::Undo,
            lost: None,
        })
    }));
    entries.push(UndoEntry::TurnEnd { turn: *turn });
    store.append(agent, &entries, Fsync::Always)?;
    Ok(())
}

/// Gives all files their states after the undo. If one fails, gives all their states before it, and records that. Returns
/// also whether that is the end: if files can be neither changed nor put back now, the next one tries again.
fn change_all(
    dir: &TeamDir,
    agent: &AgentName,
    undo: &PendingUndo,
    locks: &mut Locks,
) -> (Result<(), UndoError>, bool) {
    for file in &undo.files {
        let changed = change(dir, agent, file, (&file.from, &file.to), locks);
        hit("undo.swapped");
        if let Err(why) = changed {
            return put_all_back(dir, agent, undo, locks, (file, why));
        }
    }
    (Ok(()), true)
}

/// Gives all files of an undo, in which one has failed, their states before it.
fn put_all_back(
    dir: &TeamDir,
    agent: &AgentName,
    undo: &PendingUndo,
    locks: &mut Locks,
    (failed, why): (&PendingFile, UndoError),
) -> (Result<(), UndoError>, bool) {
    let (mut mixed, mut is_stuck) = (Vec::new(), false);
    for file in &undo.files {
        let is_back = change(dir, agent, file, (&file.to, &file.from), locks);
        if is_back.is_err() && !is_as(file, file.from.as_ref()) {
            is_stuck |= is_as(file, file.to.as_ref());
            // The file that made the undo fail was changed by another program before the undo reached it.
            if file.path != failed.path {
                mixed.push(super::plan::shown(&workspace(dir), &file.path));
            }
        }
    }
    let why = if mixed.is_empty() { why } else { UndoError::Mixed(mixed) };
    if is_stuck {
        return (Err(why), false);
    }
    let withdrawn = [UndoEntry::Withdrawn { turn: undo.turn }];
    let stored =
        UndoStore::lock(dir).and_then(|store| store.append(agent, &withdrawn, Fsync::Always));
    match stored {
        Ok(_) => (Err(why), true),
        Err(why) => (Err(why.into()), false),
    }
}

fn is_as(file: &PendingFile, state: Option<&FileState>) -> bool {
    CurrentState::look(Path::new(&file.path)).has_content_of(state)
}

/// Leads one file from a state to another one. Does nothing if it has that already. Fails if it has neither.
fn change(
    dir: &TeamDir,
    agent: &AgentName,
    file: &PendingFile,
    (from, to): (&Option<FileState>, &Option<FileState>),
    locks: &mut Locks,
) -> Result<(), UndoError> {
    let shown = super::plan::shown(&workspace(dir), &file.path);
    let failed = |why: SafePathError| UndoError::File(shown.clone(), why);
    let spot = anywhere(Path::new(&file.path)).map_err(failed)?;
    let draft = draft_name(Path::new(&file.path));
    let lock = locks.get_mut(&file.path);
    let lock = lock.ok_or_else(|| UndoError::Changed(shown.clone()))?;
    settle_draft(dir, agent, &spot, file, lock).map_err(|why| why.in_words(&shown))?;
    let current = CurrentState::look(Path::new(&file.path));
    if current.has_content_of(to.as_ref()) {
        return set_mode(&spot, to.as_ref()).map_err(failed);
    }
    if !current.has_content_of(from.as_ref()) {
        return Err(UndoError::Changed(shown));
    }
    let CurrentState::File(_, bytes) = &current else {
        return place(dir, lock, (&spot, &draft), None, to.as_ref(), &shown);
    };
    place(dir, lock, (&spot, &draft), Some(bytes), to.as_ref(), &shown)
}

/// Replaces, creates or removes a file whose content is `old`.
fn place(
    dir: &TeamDir,
    lock: &mut FileLock,
    (spot, draft): (&SafePath, &std::ffi::OsStr),
    old: Option<&[u8]>,
    to: Option<&FileState>,
    shown: &str,
) -> Result<(), UndoError> {
    let failed = |why: SafePathError| UndoError::File(shown.to_owned(), why);
    let version = match to {
        Some(to) => {
            let lost =
                || failed(io::Error::other("the previous version is no longer stored").into());
            Some(load(dir, &to.hash)?.ok_or_else(lost)?)
        }
        None => None,
    };
    // An agent that follows its version in the file sees that another member has built on it.
    lock.begin(FileWrite {
        by: AgentName::user().to_string(),
        hash: ContentHash::of(version.as_deref().unwrap_or_default()),
        base: old.map(ContentHash::of),
    })?;
    let placed = match (&version, old) {
        (Some(version), _) => spot.draft(draft, version).and_then(|draft| draft.place(old)),
        (None, Some(old)) => spot.remove_exactly(draft, old),
        (None, None) => Ok(Placement::Placed),
    };
    let is_placed = matches!(placed, Ok(Placement::Placed));
    lock.end(is_placed)?;
    match placed.map_err(failed)? {
        Placement::Placed => set_mode(spot, to).map_err(failed),
        Placement::Busy => Err(UndoError::Busy(shown.to_owned())),
        Placement::Changed => Err(UndoError::Changed(shown.to_owned())),
        Placement::Restored { version, displaced } => {
            let user = AgentName::user();
            if !version.is_empty() {
                kept_versions::keep(dir, &user, &version)?;
            }
            if let Some(displaced) = displaced {
                kept_versions::keep(dir, &user, &displaced.read().map_err(failed)?)?;
                displaced.remove().map_err(failed)?;
            }
            Err(UndoError::Changed(shown.to_owned()))
        }
    }
}

/// Gives a file its permission bits.
fn set_mode(spot: &SafePath, state: Option<&FileState>) -> Result<(), SafePathError> {
    let (Some(state), Some(file)) = (state, spot.open()?) else { return Ok(()) };
    if file.metadata()?.permissions().mode() & 0o7777 != state.mode {
        file.set_permissions(Permissions::from_mode(state.mode))?;
    }
    Ok(())
}

/// A failed look at the draft of a killed process.
enum DraftError {
    Path(SafePathError),
    Store(StoreError),
}

impl DraftError {
    fn in_words(self, shown: &str) -> UndoError {
        match self {
            Self::Path(why) => UndoError::File(shown.to_owned(), why),
            Self::Store(why) => why.into(),
        }
    }
}

/// Removes the draft of a process that was killed, or keeps it if it is a version of another program.
fn settle_draft(
    dir: &TeamDir,
    agent: &AgentName,
    spot: &SafePath,
    file: &PendingFile,
    lock: &mut FileLock,
) -> Result<(), DraftError> {
    let leftover = spot.leftover(&draft_name(Path::new(&file.path))).map_err(DraftError::Path)?;
    let record = lock.record();
    let is_pending = record.pending;
    if let Some(leftover) = leftover {
        let bytes = leftover.read().map_err(DraftError::Path)?;
        let hash = ContentHash::of(&bytes);
        let last = record.writes.last();
        let is_of_write =
            last.is_some_and(|last| last.hash == hash || last.base == Some(hash.clone()));
        let states = [file.from.as_ref(), file.to.as_ref()];
        let is_of_undo = states.into_iter().flatten().any(|state| state.hash == hash);
        if is_pending && !is_of_write && !is_of_undo {
            kept_versions::keep(dir, agent, &bytes).map_err(DraftError::Store)?;
        }
        leftover.remove().map_err(DraftError::Path)?;
    }
    if is_pending {
        let current = CurrentState::look(Path::new(&file.path));
        let last = lock.record().writes.last().map(|last| last.hash.clone());
        let is_done = current.state().map(|state| state.hash.clone()) == last;
        lock.end(is_done).map_err(DraftError::Store)?;
    }
    Ok(())
}
