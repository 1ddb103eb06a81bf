//! The plan of an undo: each file with its state before and after, and the files that it refuses.

use super::history::{BrokenChain, Chain, TurnChange, chain, hash, last_turn, turns, writer};
use crate::leases;
use crate::os::safe_path::{SafePathError, anywhere};
use crate::store::undo::{Journals, has, read_all};
use crate::store::{StoreError, TeamDir, file_writes};
use crate::wire::AgentName;
use crate::wire::file_view::{ContentHash, FileRecord};
use crate::wire::limits::{UNDO_FILE_BYTES, UNDO_FILES};
use crate::wire::undo::{ChangeSource, FileState, LostReason};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The plan of an undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UndoPlan {
    pub(crate) agent: AgentName,
    /// The first turn that is taken back; all later ones are, too.
    pub(crate) to_turn: u64,
    /// The first words of the prompt of that turn.
    pub(crate) about: String,
    /// The number of turns that are taken back and count.
    pub(crate) turns: usize,
    pub(crate) steps: Vec<UndoStep>,
    pub(crate) refusals: Vec<UndoRefusal>,
    /// The reasons for which further changes of these turns are not known.
    pub(crate) uncovered: Vec<String>,
}

/// The effect of an undo on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UndoAction {
    /// It gets its content back.
    Restore,
    /// It gets its permission bits back.
    RestoreMode,
    /// It was created, and is removed.
    Remove,
    /// It was removed, and is created again.
    Recreate,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UndoStep {
    /// The absolute path.
    pub(crate) path: String,
    /// The path for people: relative to the workspace if it is inside.
    pub(crate) shown: String,
    pub(crate) action: UndoAction,
    /// Whether a command made one of the changes.
    pub(crate) is_by_command: bool,
    pub(crate) from: Option<FileState>,
    pub(crate) to: Option<FileState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UndoRefusal {
    pub(crate) shown: String,
    pub(crate) why: RefusalReason,
}

/// The reason for which the changes of a file are not taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// Another agent changed it since, or between two of the changes.
    ChangedBy(String),
    /// The person or an unknown program did.
    ChangedByUnknown,
    /// The change may be one of this agent, whose command ran at the same time.
    Unattributable(String),
    Lost(LostReason),
    /// It is this kind of object now, not a regular file.
    NotRegular(String),
    /// Another agent has leased it; the text says which, why and since when.
    Leased(String),
    /// One undo changes at most this number of files.
    TooMany(usize),
}

impl RefusalReason {
    /// Returns the reason as an end of the sentence "PATH: …".
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::ChangedBy(name) => format!("changed since by {name}"),
            Self::ChangedByUnknown => "changed since by you or another program".into(),
            Self::Unattributable(name) => format!(
                "changed while a command of {name} ran as well, so it may be a change of {name}"
            ),
            Self::Lost(LostReason::TooLarge) => {
                "too large: versions of up to 8 MiB are kept".into()
            }
            Self::Lost(LostReason::Link) => "a link, which is not covered".into(),
            Self::Lost(LostReason::NotRegular) => "not a regular file, which is not covered".into(),
            Self::Lost(LostReason::NotKept | LostReason::Unknown) => {
                "the previous version is not stored".into()
            }
            Self::Lost(LostReason::Unreadable) => {
                "a file that the agent may not read: its versions are not kept".into()
            }
            Self::NotRegular(kind) => format!("it is {kind} now"),
            Self::Leased(lease) => lease.clone(),
            Self::TooMany(most) => format!("one undo changes at most {most} files"),
        }
    }
}

/// The reason for which there is no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("{0} has no recorded changes to take back")]
    NothingRecorded(AgentName),
    #[error("{0} has no turn {1} with recorded changes")]
    UnknownTurn(AgentName, u64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The state of the object at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CurrentState {
    Absent,
    File(FileState, Vec<u8>),
    /// A file that is larger than those that are kept.
    Large,
    /// This kind of object.
    Other(String),
}

impl CurrentState {
    /// Looks at a path, in which no link is followed.
    pub(super) fn look(path: &Path) -> Self {
        let opened = anywhere(path).and_then(|spot| spot.open());
        let file = match opened {
            Ok(Some(file)) => file,
            Ok(None) => return Self::Absent,
            Err(SafePathError::Link) => return Self::Other("a link, or below one".into()),
            Err(SafePathError::Folder) => return Self::Other("a folder".into()),
            Err(why @ (SafePathError::Outside | SafePathError::Nowhere | SafePathError::Io(_))) => {
                return Self::Other(format!("not readable ({why})"));
            }
            Err(SafePathError::Special(kind)) => return Self::Other(kind.into()),
        };
        let Ok(known) = file.metadata() else { return Self::Other("not readable".into()) };
        let mut bytes = Vec::new();
        match file.take(UNDO_FILE_BYTES + 1).read_to_end(&mut bytes) {
            Ok(read) if read as u64 > UNDO_FILE_BYTES => Self::Large,
            Ok(_) => {
                let mode = known.permissions().mode() & 0o7777;
                Self::File(FileState { hash: ContentHash::of(&bytes), mode }, bytes)
            }
            Err(why) => Self::Other(format!("not readable ({why})")),
        }
    }

    pub(super) fn state(&self) -> Option<&FileState> {
        if let Self::File(state, _) = self { Some(state) } else { None }
    }

    /// Whether the object is a regular file with the content of this state, or nothing for none.
    pub(super) fn has_content_of(&self, state: Option<&FileState>) -> bool {
        match self {
            Self::Absent => state.is_none(),
            Self::File(own, _) => state.is_some_and(|state| state.hash == own.hash),
            Self::Large | Self::Other(_) => false,
        }
    }
}

/// Plans the undo of the last turn of an agent, or of `to_turn` and all later ones. Changes nothing.
pub(crate) fn plan(
    dir: &TeamDir,
    agent: &AgentName,
    to_turn: Option<u64>,
) -> Result<UndoPlan, PlanError> {
    let journals = read_all(dir)?;
    let turns = turns(&journals, agent);
    let nothing = || PlanError::NothingRecorded(agent.clone());
    let first = match to_turn {
        None => last_turn(&turns).ok_or_else(nothing)?,
        Some(_) if turns.iter().all(|turn| turn.changes.is_empty()) => return Err(nothing()),
        Some(number) => turns
            .iter()
            .find(|turn| turn.number == number)
            .ok_or_else(|| PlanError::UnknownTurn(agent.clone(), number))?,
    };
    let meant = turns.iter().filter(|turn| turn.number >= first.number);
    let mut by_path: BTreeMap<&str, Vec<&TurnChange>> = BTreeMap::new();
    let mut plan = UndoPlan {
        agent: agent.clone(),
        to_turn: first.number,
        about: first.about.clone(),
        turns: 0,
        steps: Vec::new(),
        refusals: Vec::new(),
        uncovered: Vec::new(),
    };
    for turn in meant {
        plan.turns += usize::from(turn.is_active);
        for change in &turn.changes {
            by_path.entry(&change.change.path).or_default().push(change);
        }
        for why in turn.uncovered.iter().filter(|_| turn.is_active) {
            if !plan.uncovered.contains(why) {
                plan.uncovered.push(why.clone());
            }
        }
    }
    let view = View { dir, agent, journals: &journals, workspace: workspace(dir) };
    for (path, changes) in by_path {
        match view.step(path, changes)? {
            Ok(Some(_)) if plan.steps.len() == UNDO_FILES => {
                let (shown, why) = (view.shown(path), RefusalReason::TooMany(UNDO_FILES));
                plan.refusals.push(UndoRefusal { shown, why });
            }
            Ok(step) => plan.steps.extend(step),
            Err(why) => plan.refusals.push(UndoRefusal { shown: view.shown(path), why }),
        }
    }
    Ok(plan)
}

/// Returns the workspace without links.
pub(super) fn workspace(dir: &TeamDir) -> std::path::PathBuf {
    let workspace = dir.workspace();
    workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned())
}

/// Returns a path for people: relative to the workspace if it is inside.
pub(crate) fn shown(workspace: &Path, path: &str) -> String {
    let inside = Path::new(path).strip_prefix(workspace);
    inside.map_or_else(|_| path.to_owned(), |inside| inside.display().to_string())
}

struct View<'a> {
    dir: &'a TeamDir,
    agent: &'a AgentName,
    journals: &'a Journals,
    workspace: std::path::PathBuf,
}

impl View<'_> {
    fn shown(&self, path: &str) -> String {
        shown(&self.workspace, path)
    }

    /// Returns what is to be done with a file, if anything is, or why it is refused.
    fn step(
        &self,
        path: &str,
        mut changes: Vec<&TurnChange>,
    ) -> Result<Result<Option<UndoStep>, RefusalReason>, StoreError> {
        let current = CurrentState::look(Path::new(path));
        let record = file_writes::record(self.dir, Path::new(path))?;
        drop_unmade(&mut changes, &record, &current, self.agent);
        let chain = match chain(changes) {
            Ok(Some(chain)) => chain,
            Ok(None) => return Ok(Ok(None)),
            Err(BrokenChain::Lost(why)) => return Ok(Err(RefusalReason::Lost(why))),
            Err(BrokenChain::Unattributable(other)) => {
                return Ok(Err(RefusalReason::Unattributable(other.to_string())));
            }
            Err(BrokenChain::Changed(state)) => {
                return Ok(Err(self.changed_by(path, state.as_ref(), &record)));
            }
        };
        self.step_of(path, &chain, &current, &record)
    }

    fn step_of(
        &self,
        path: &str,
        chain: &Chain,
        current: &CurrentState,
        record: &FileRecord,
    ) -> Result<Result<Option<UndoStep>, RefusalReason>, StoreError> {
        let Chain { before, after, is_by_command, changes_mode } = chain;
        let has_content = hash(before.as_ref()) != hash(after.as_ref());
        if !has_content && !changes_mode {
            return Ok(Ok(None));
        }
        match current {
            CurrentState::Other(kind) => {
                return Ok(Err(RefusalReason::NotRegular(kind.clone())));
            }
            CurrentState::Large => return Ok(Err(self.changed_by(path, None, record))),
            CurrentState::Absent | CurrentState::File(..) => {}
        }
        let mode = |state: Option<&FileState>| state.map(|state| state.mode);
        let is_mode = |state: &Option<FileState>| {
            !changes_mode || mode(current.state()) == mode(state.as_ref())
        };
        if current.has_content_of(before.as_ref()) && is_mode(before) {
            return Ok(Ok(None));
        }
        if !current.has_content_of(after.as_ref()) || !is_mode(after) {
            return Ok(Err(self.changed_by(path, current.state(), record)));
        }
        if let Ok(inside) = Path::new(path).strip_prefix(&self.workspace)
            && let Some(lease) = leases::conflict(self.dir, self.agent, &inside.to_string_lossy())?
        {
            return Ok(Err(RefusalReason::Leased(leases::in_words(&lease))));
        }
        if has_content && before.as_ref().is_some_and(|before| !has(self.dir, &before.hash)) {
            return Ok(Err(RefusalReason::Lost(LostReason::NotKept)));
        }
        let action = match (before, after) {
            (Some(_), Some(_)) if has_content => UndoAction::Restore,
            (Some(_), Some(_)) => UndoAction::RestoreMode,
            (Some(_), None) => UndoAction::Recreate,
            (None, _) => UndoAction::Remove,
        };
        // Without a change of the mode by the agent, the mode of now is kept.
        let to = before.clone().map(|before| match current.state() {
            Some(now) if !changes_mode => FileState { mode: now.mode, ..before },
            Some(_) | None => before,
        });
        Ok(Ok(Some(UndoStep {
            path: path.into(),
            shown: self.shown(path),
            action,
            is_by_command: *is_by_command,
            from: current.state().cloned(),
            to,
        })))
    }

    /// Finds who has given a file a state that this agent has not.
    fn changed_by(
        &self,
        path: &str,
        state: Option<&FileState>,
        record: &FileRecord,
    ) -> RefusalReason {
        if let Some(other) = writer(self.journals, path, state, self.agent) {
            return RefusalReason::ChangedBy(other.to_string());
        }
        let by = state.and_then(|state| record.writer_of(&state.hash));
        match by.filter(|by| *by != self.agent.as_str() && *by != AgentName::user().as_str()) {
            Some(by) => RefusalReason::ChangedBy(by.into()),
            None => RefusalReason::ChangedByUnknown,
        }
    }
}

/// Drops the last change of a file if the agent was killed before it was made.
fn drop_unmade(
    changes: &mut Vec<&TurnChange>,
    record: &FileRecord,
    current: &CurrentState,
    agent: &AgentName,
) {
    let Some(last) = changes.last().map(|last| &last.change) else { return };
    let Some(write) = record.writes.last().filter(|_| record.pending) else { return };
    let is_of_write = last.by == ChangeSource::File
        && write.by == agent.as_str()
        && hash(last.after.as_ref()) == Some(&write.hash);
    if is_of_write && current.has_content_of(last.before.as_ref()) {
        changes.pop();
    }
}
