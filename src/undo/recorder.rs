//! Records the changes of one agent's file tools and commands, turn by turn.
//!
//! *Invariant:* the version before a change is stored, and the change is in the journal, before the file is changed. Of
//! a file that an agent changes several times in a turn, only the version before the first change is stored.
//!
//! Nothing is synced, so that a write takes as long as without: the end of any process loses nothing. After a power cut
//! a version can be missing or damaged, and the undo refuses its file.

use super::history::{CUT_OFF, hash};
use super::look::{Checkout, CommandLook, Looker};
use super::unreadable::UnreadableFiles;
use crate::os::{Clock, SystemClock};
use crate::store::undo::{UndoStore, is_look_due, last_entry, read};
use crate::store::{Fsync, StoreError, TeamDir, background, liveness};
use crate::wire::background::BackgroundCommand;
use crate::wire::file_view::ContentHash;
use crate::wire::limits::UNDO_FILE_BYTES;
use crate::wire::undo::{ChangeSource, FileChange, FileState, LostReason, UndoEntry};
use crate::wire::{AgentName, WallTime};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of characters of a prompt that stand for a turn.
const ABOUT_CHARS: usize = 80;

/// The recorder of one agent. Its methods use the disk and wait for locks.
#[derive(Debug)]
pub(crate) struct Recorder {
    dir: TeamDir,
    me: AgentName,
    unreadable: UnreadableFiles,
    input: Mutex<TurnInput>,
    state: Mutex<RecorderState>,
}

/// The part that the event loop of the agent sets. Its lock is held for no work.
#[derive(Debug, Default)]
struct TurnInput {
    /// The begin of the prompt or mail of the current turn.
    about: String,
    /// Whether the next change belongs to the last turn of the journal, which a crash cut off.
    continues: bool,
}

#[derive(Debug, Default)]
struct RecorderState {
    turn: Option<OpenTurn>,
    /// The size of the journal after the last change.
    journal_size: u64,
    /// The number of bytes that were stored since the last look at their sum.
    stored: u64,
    looker: Looker,
    /// The look before a command that runs, or was interrupted a moment ago.
    look: Option<PendingLook>,
    /// The id of the last look.
    last_look: u64,
}

/// The look before a command.
#[derive(Debug)]
struct PendingLook {
    id: u64,
    /// The turn of the command.
    turn: u64,
    /// The time of the look.
    at: WallTime,
    folder: Option<PathBuf>,
    /// The look, or the reason for which it failed.
    look: Result<CommandLook, String>,
}

/// A turn that changes files.
#[derive(Debug)]
struct OpenTurn {
    number: u64,
    /// The states after its last changes, by path.
    after: BTreeMap<String, Option<FileState>>,
}

/// A write of a file tool, which is about to be made.
#[derive(Debug)]
pub(crate) struct NewWrite<'a> {
    /// The real path.
    pub(crate) path: &'a Path,
    /// The content and the permission bits of the file; `None` if there is none.
    pub(crate) old: Option<(&'a [u8], u32)>,
    /// The content and the permission bits that it gets; `None` if it is removed.
    pub(crate) new: Option<(&'a [u8], u32)>,
}

impl Recorder {
    /// Creates the recorder of an agent that may not read these files.
    pub(crate) fn new(dir: &TeamDir, me: &AgentName, unreadable: UnreadableFiles) -> Self {
        let (input, state) = (Mutex::default(), Mutex::default());
        Self { dir: dir.clone(), me: me.clone(), unreadable, input, state }
    }

    fn input(&self) -> MutexGuard<'_, TurnInput> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a prompt or mail. The first one of a turn stands for the turn. Does not use the disk.
    pub(crate) fn note_input(&self, text: &str) {
        let mut input = self.input();
        if input.about.is_empty() {
            let words: Vec<&str> = text.split_whitespace().collect();
            input.about = words.join(" ").chars().take(ABOUT_CHARS).collect();
        }
    }

    /// Notes that the agent continues a turn that a crash cut off. Does not use the disk.
    pub(crate) fn continue_turn(&self) {
        self.input().continues = true;
    }

    /// Records that the turn has ended. A turn that the end of the process cuts off is continued later.
    pub(crate) fn end_turn(&self, is_cut_off: bool) -> Result<(), StoreError> {
        if is_cut_off {
            return Ok(());
        }
        let mut state = self.state();
        *self.input() = TurnInput::default();
        let Some(OpenTurn { number, .. }) = state.turn.take() else { return Ok(()) };
        let end = UndoEntry::TurnEnd { turn: number };
        let store = UndoStore::lock(&self.dir)?;
        state.journal_size = store.append(&self.me, &[end], Fsync::Never)?;
        store.shorten(&self.me)
    }

    /// Records a write that is about to be made. The caller holds the lock of the file.
    pub(crate) fn record_write(&self, write: &NewWrite<'_>) -> Result<(), StoreError> {
        // A path that is not text is not covered.
        let Some(path) = write.path.to_str() else { return Ok(()) };
        let is_unreadable = self.unreadable.now().contains(write.path);
        let state_of = |(bytes, mode): (&[u8], u32)| {
            (!is_unreadable).then(|| FileState { hash: ContentHash::of(bytes), mode })
        };
        let before = write.old.and_then(state_of);
        let after = write.new.and_then(state_of);
        let mut state = self.state();
        let store = UndoStore::lock(&self.dir)?;
        let turn = self.open_turn(&store, &mut state)?;
        let known = turn.after.get(path).map(|state| hash(state.as_ref()));
        let is_known = known == Some(hash(before.as_ref()));
        let number = turn.number;
        let mut lost = is_unreadable.then_some(LostReason::Unreadable);
        if let Some((bytes, _)) = write.old.filter(|_| !is_known && !is_unreadable) {
            if bytes.len() as u64 > UNDO_FILE_BYTES {
                lost = Some(LostReason::TooLarge);
            } else {
                state.stored += store.keep(bytes, Fsync::Never)?.1;
            }
        }
        let size = write.new.map_or(0, |(bytes, _)| bytes.len() as u64);
        if size > UNDO_FILE_BYTES && !is_unreadable {
            lost = Some(LostReason::TooLarge);
        }
        let at = SystemClock.now();
        let by = ChangeSource::File;
        let change = FileChange {
            turn: number,
            at,
            path: path.into(),
            before,
            after: after.clone(),
            by,
            lost,
        };
        let entry = UndoEntry::Change(change);
        state.journal_size = store.append(&self.me, &[entry], Fsync::Never)?;
        if let Some(turn) = &mut state.turn {
            turn.after.insert(path.into(), after);
        }
        if is_look_due(state.stored) {
            store.make_room()?;
            state.stored = 0;
            state.journal_size = store.journal_size(&self.me)?;
        }
        Ok(())
    }

    /// Records that the last recorded write of this file, which was to lead to this content (`None`: to no file), was not
    /// made.
    pub(crate) fn withdraw(
        &self,
        path: &Path,
        content: Option<&ContentHash>,
    ) -> Result<(), StoreError> {
        let mut state = self.state();
        if let (Some(turn), Some(path)) = (&mut state.turn, path.to_str()) {
            turn.after.remove(path);
        }
        state.journal_size = void(&self.dir, &self.me, path, content)?;
        Ok(())
    }

    /// Looks at the files of a checkout before a command, so that its changes are found. Returns the id of the look; `None`
    /// if they are not covered.
    pub(crate) fn begin_command(
        &self,
        checkout: &Checkout,
        environment: &[(String, String)],
    ) -> Result<Option<u64>, StoreError> {
        let mut state = self.state();
        // An interrupted command that has not been looked at yet counts as cut off.
        state.look = None;
        let (folder, uncovered) = match state.looker.top(checkout) {
            Ok(top) => (Some(top), None),
            Err(why) => (None, Some(why)),
        };
        let is_first = state.turn.is_none();
        let (turn, at, uncovered) = {
            let store = UndoStore::lock(&self.dir)?;
            self.end_cut_off(&store)?;
            let turn = self.open_turn(&store, &mut state)?.number;
            let at = SystemClock.now();
            let uncovered = uncovered.or_else(|| self.find_background(folder.as_deref(), None));
            let shown = folder.as_ref().map(|top| top.display().to_string());
            // Without coverage, the reason is recorded once for a turn.
            if uncovered.is_none() || is_first {
                let uncovered = uncovered.clone();
                let entry = UndoEntry::Command { turn, at, folder: shown, uncovered };
                state.journal_size = store.append(&self.me, &[entry], Fsync::Never)?;
            }
            (turn, at, uncovered)
        };
        if uncovered.is_some() {
            return Ok(None);
        }
        state.last_look += 1;
        let id = state.last_look;
        let look = state.looker.before(&self.dir, checkout, environment, &self.unreadable);
        state.look = Some(PendingLook { id, turn, at, folder, look });
        Ok(Some(id))
    }

    /// Records that a command begins which runs beside others, so that its changes are not covered. `record` notes the
    /// command with its folder before any further look begins.
    pub(crate) fn begin_background(
        &self,
        checkout: &Checkout,
        id: &str,
        record: impl FnOnce(WallTime, Option<PathBuf>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut state = self.state();
        // An interrupted command that has not been looked at yet counts as cut off.
        state.look = None;
        let top = state.looker.top(checkout).ok();
        let store = UndoStore::lock(&self.dir)?;
        let turn = self.open_turn(&store, &mut state)?.number;
        let at = SystemClock.now();
        let folder = top.as_ref().map(|top| top.display().to_string());
        record(at, top)?;
        let uncovered = Some(format!("the changes of the background command {id} are not known"));
        let entry = UndoEntry::Command { turn, at, folder, uncovered };
        state.journal_size = store.append(&self.me, &[entry], Fsync::Never)?;
        Ok(())
    }

    /// Returns the reason for which changes in a folder are not known: a command runs there in the background, or has begun
    /// since then. Git must not run outside walls meanwhile, either: the command may plant files for it.
    fn find_background(&self, folder: Option<&Path>, since: Option<WallTime>) -> Option<String> {
        let folder = folder?;
        let names = self.dir.agents_with_undo().unwrap_or_default();
        names.into_iter().find_map(|name| {
            let of_agent = if since.is_none() && name != self.me {
                background::running(&self.dir, &name)
            } else {
                background::read(&self.dir, &name).unwrap_or_default().commands
            };
            let counts = |command: &&BackgroundCommand| {
                let is_meant = since.map_or_else(|| command.is_running(), |at| command.since >= at);
                is_meant && command.folder == folder
            };
            let id = &of_agent.iter().find(counts)?.id;
            Some(format!(
                "changes made by commands are not covered while {id} of {name} runs in the background"
            ))
        })
    }

    /// Records the changes of the command with this look, which has ended. Does nothing if the next one has begun.
    pub(crate) fn end_command(&self, id: u64) -> Result<(), StoreError> {
        let mut state = self.state();
        let state = &mut *state;
        let Some(PendingLook { turn: number, at: begun, folder, look, .. }) =
            state.look.take_if(|it| it.id == id)
        else {
            return Ok(());
        };
        let find = || self.find_background(folder.as_deref(), Some(begun));
        let look = find().map_or(look, Err);
        let mut found = state.looker.after(&self.dir, look, &self.unreadable);
        let store = UndoStore::lock(&self.dir)?;
        if let Some(why) = find() {
            found.changes.clear();
            found.uncovered = Some(why);
        }
        // The turn of an interrupted command may be over. After an undo in its middle, another one begins.
        let number = match &state.turn {
            Some(_) => self.open_turn(&store, state)?.number,
            None => number,
        };
        let at = SystemClock.now();
        let mut entries = Vec::new();
        for change in found.changes {
            if let Some(turn) = state.turn.as_mut().filter(|turn| turn.number == number) {
                turn.after.insert(change.path.clone(), change.after.clone());
            }
            let FileChange { path, before, after, lost, .. } = change;
            let by = ChangeSource::Command;
            let change = FileChange { turn: number, at, path, before, after, by, lost };
            entries.push(UndoEntry::Change(change));
        }
        entries.push(UndoEntry::CommandEnd { at, uncovered: found.uncovered });
        state.journal_size = store.append(&self.me, &entries, Fsync::Never)?;
        state.stored += found.stored;
        if is_look_due(state.stored) {
            store.make_room()?;
            state.stored = 0;
            state.journal_size = store.journal_size(&self.me)?;
        }
        Ok(())
    }

    /// Returns the turn to which changes belong now. After an undo of the person in the middle of a turn, a new one
    /// begins.
    fn open_turn<'a>(
        &self,
        store: &UndoStore<'_>,
        state: &'a mut RecorderState,
    ) -> Result<&'a mut OpenTurn, StoreError> {
        let size = store.journal_size(&self.me)?;
        let is_current = state.turn.is_some() && size == state.journal_size;
        if !is_current {
            let entries = read(&self.dir, &self.me)?;
            let last = entries.iter().rev().find_map(UndoEntry::begun_turn).map(|(turn, _)| turn);
            let is_last = state.turn.as_ref().is_some_and(|turn| Some(turn.number) == last);
            let is_over = last.is_none_or(|turn| entries.contains(&UndoEntry::TurnEnd { turn }));
            let continues = std::mem::take(&mut self.input().continues);
            let continued = last.filter(|_| !is_over && continues && state.turn.is_none());
            if let Some(number) = continued {
                let changes = entries.iter().filter_map(UndoEntry::change);
                let changes = changes.filter(|change| change.turn == number);
                let after = changes.map(|it| (it.path.clone(), it.after.clone())).collect();
                state.turn = Some(OpenTurn { number, after });
            } else if !is_last {
                let own = state.turn.as_ref().map(|turn| turn.number);
                let number = last.max(own).unwrap_or_default() + 1;
                let about = self.input().about.clone();
                let at = SystemClock.now();
                let begin = UndoEntry::Turn { turn: number, at, about, undoes: None };
                store.append(&self.me, &[begin], Fsync::Never)?;
                state.turn = Some(OpenTurn { number, after: BTreeMap::new() });
            }
            state.journal_size = store.journal_size(&self.me)?;
        }
        Ok(state.turn.get_or_insert_with(|| OpenTurn { number: 1, after: BTreeMap::new() }))
    }

    /// Records the ends of commands whose agents were killed, so that later changes are not taken for theirs.
    fn end_cut_off(&self, store: &UndoStore<'_>) -> Result<(), StoreError> {
        for name in self.dir.agents_with_undo()? {
            let last = last_entry(&self.dir, &name)?;
            let is_open = matches!(last, Some(UndoEntry::Command { uncovered: None, .. }));
            if is_open && (name == self.me || !liveness::probe(&self.dir, &name)?.is_alive()) {
                let at = SystemClock.now();
                let end = UndoEntry::CommandEnd { at, uncovered: Some(CUT_OFF.into()) };
                store.append(&name, &[end], Fsync::Never)?;
            }
        }
        Ok(())
    }
}

/// Records that a write of an agent, which was to lead to this content, was not made. Returns the size of its journal.
pub(crate) fn void(
    dir: &TeamDir,
    name: &AgentName,
    path: &Path,
    content: Option<&ContentHash>,
) -> Result<u64, StoreError> {
    let store = UndoStore::lock(dir)?;
    let entry = UndoEntry::Void { path: path.display().to_string(), hash: content.cloned() };
    store.append(name, &[entry], Fsync::Never)
}
