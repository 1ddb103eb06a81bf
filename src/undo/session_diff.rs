//! The changes of each agent since a time, as differences of its files.

use super::history::{BrokenChain, Chain, TurnChange, chain, hash, turns};
use super::plan::{CurrentState, shown, workspace};
use crate::store::undo::{load, read_all};
use crate::store::{StoreError, TeamDir};
use crate::wire::undo::FileState;
use crate::wire::{AgentName, WallTime};
use similar::TextDiff;
use std::collections::BTreeMap;
use std::path::Path;

/// The number of unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// The changes of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentDiff {
    pub(crate) agent: AgentName,
    pub(crate) files: Vec<FileDiff>,
    /// The reasons for which further changes are not known.
    pub(crate) uncovered: Vec<String>,
}

/// The change of one file: from the state that an agent found to the one that it left, with no change of others between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileDiff {
    /// The path for people.
    pub(crate) shown: String,
    pub(crate) kind: DiffKind,
    /// Whether a command made one of the changes.
    pub(crate) is_by_command: bool,
    pub(crate) content: DiffContent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiffKind {
    Created,
    Changed,
    Removed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DiffContent {
    /// The changed lines in the unified format, without a header.
    Lines(String),
    /// Only the permission bits differ: before and after.
    Mode(u32, u32),
    Binary,
    /// The reason for which the differences are not known.
    Unknown(String),
}

/// Returns what these agents, or all, have changed since a time. Agents without changes are left out.
pub(crate) fn session_diff(
    dir: &TeamDir,
    since: Option<WallTime>,
    agents: &[AgentName],
) -> Result<Vec<AgentDiff>, StoreError> {
    let journals = read_all(dir)?;
    let workspace = workspace(dir);
    let mut found = Vec::new();
    let is_meant = |name: &&AgentName| agents.is_empty() || agents.contains(name);
    for agent in journals.keys().filter(is_meant) {
        let turns = turns(&journals, agent).into_iter();
        let turns: Vec<_> =
            turns.filter(|turn| since.is_none_or(|since| turn.at >= since)).collect();
        let mut by_path: BTreeMap<&str, Vec<&TurnChange>> = BTreeMap::new();
        let mut uncovered: Vec<String> = Vec::new();
        for turn in &turns {
            for change in &turn.changes {
                by_path.entry(&change.change.path).or_default().push(change);
            }
            for why in &turn.uncovered {
                if !uncovered.contains(why) {
                    uncovered.push(why.clone());
                }
            }
        }
        let mut files = Vec::new();
        for (path, changes) in by_path {
            for part in parts(&changes) {
                let file = of_part(dir, path, shown(&workspace, path), part)?;
                files.extend(file);
            }
        }
        if !files.is_empty() || !uncovered.is_empty() {
            found.push(AgentDiff { agent: agent.clone(), files, uncovered });
        }
    }
    Ok(found)
}

/// Splits the changes of a file where they do not follow one another.
fn parts(changes: &[&TurnChange]) -> Vec<Result<Chain, BrokenChain>> {
    let mut found = Vec::new();
    let mut begin = 0;
    for end in 1..=changes.len() {
        let next = changes.get(begin..=end).unwrap_or_default();
        let is_last = end == changes.len();
        if is_last || chain(next.iter().copied()).is_err() {
            let part = changes.get(begin..end).unwrap_or_default();
            found.extend(chain(part.iter().copied()).transpose());
            begin = end;
        }
    }
    found
}

fn of_part(
    dir: &TeamDir,
    path: &str,
    shown: String,
    part: Result<Chain, BrokenChain>,
) -> Result<Option<FileDiff>, StoreError> {
    let Chain { before, after, is_by_command, changes_mode } = match part {
        Ok(chain) => chain,
        Err(why) => {
            let content = DiffContent::Unknown(in_words(&why));
            let (kind, is_by_command) = (DiffKind::Changed, true);
            return Ok(Some(FileDiff { shown, kind, is_by_command, content }));
        }
    };
    let kind = match (&before, &after) {
        (None, Some(_)) => DiffKind::Created,
        (Some(_), None) => DiffKind::Removed,
        (Some(_), Some(_)) | (None, None) => DiffKind::Changed,
    };
    let content = match (&before, &after) {
        (before, after) if hash(before.as_ref()) != hash(after.as_ref()) => {
            let current = CurrentState::look(Path::new(path));
            let [old, new] = [before, after].map(|state| version(dir, state.as_ref(), &current));
            match (old?, new?) {
                (Some(old), Some(new)) => lines(&old, &new),
                (None, _) => DiffContent::Unknown("the version before is not kept".into()),
                (_, None) => DiffContent::Unknown(
                    "the version after is not kept, and the file was changed since".into(),
                ),
            }
        }
        (Some(before), Some(after)) if changes_mode && before.mode != after.mode => {
            DiffContent::Mode(before.mode, after.mode)
        }
        (_, _) => return Ok(None),
    };
    Ok(Some(FileDiff { shown, kind, is_by_command, content }))
}

/// Returns the content of a state; empty for no file. `None` if it is not there any more.
fn version(
    dir: &TeamDir,
    state: Option<&FileState>,
    current: &CurrentState,
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(state) = state else { return Ok(Some(Vec::new())) };
    if let CurrentState::File(now, bytes) = current
        && now.hash == state.hash
    {
        return Ok(Some(bytes.clone()));
    }
    load(dir, &state.hash)
}

fn lines(old: &[u8], new: &[u8]) -> DiffContent {
    let (Ok(old), Ok(new)) = (str::from_utf8(old), str::from_utf8(new)) else {
        return DiffContent::Binary;
    };
    if old.contains('\0') || new.contains('\0') {
        return DiffContent::Binary;
    }
    let diff = TextDiff::from_lines(old, new);
    let lines = diff.unified_diff().context_radius(CONTEXT_LINES).to_string();
    DiffContent::Lines(lines)
}

fn in_words(why: &BrokenChain) -> String {
    use super::plan::RefusalReason;
    match why {
        BrokenChain::Lost(why) => RefusalReason::Lost(*why).in_words(),
        BrokenChain::Unattributable(name) => {
            RefusalReason::Unattributable(name.to_string()).in_words()
        }
        BrokenChain::Changed(_) => RefusalReason::ChangedByUnknown.in_words(),
    }
}
