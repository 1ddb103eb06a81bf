//! The changes of each agent since a time, as differences of its files.

use super::history::{BrokenChain, Chain, Turn, TurnChange, chain, hash, turns};
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
    Text {
        before: String,
        after: String,
    },
    /// Only the permission bits differ: before and after.
    Mode(u32, u32),
    Binary,
    /// The reason for which the differences are not known.
    Unknown(String),
}

/// Returns the changed lines between two texts in the unified format, without a header.
pub(crate) fn unified(before: &str, after: &str) -> String {
    TextDiff::from_lines(before, after).unified_diff().context_radius(CONTEXT_LINES).to_string()
}

/// Returns what an agent has changed in the turns after number `after` that began at or after `since`, and the number of
/// the last one. Undos do not count.
pub(crate) fn turn_diff(
    dir: &TeamDir,
    agent: &AgentName,
    since: WallTime,
    after: u64,
) -> Result<Option<(u64, AgentDiff)>, StoreError> {
    let mut turns = turns(&read_all(dir)?, agent);
    turns.retain(|turn| turn.at >= since && turn.number > after && turn.undoes.is_none());
    let Some(last) = turns.last().map(|turn| turn.number) else { return Ok(None) };
    let diff = diff_of(dir, agent, &turns)?;
    Ok(Some((last, diff)))
}

/// Returns what these agents, or all, have changed since a time. Agents without changes are left out.
pub(crate) fn session_diff(
    dir: &TeamDir,
    since: Option<WallTime>,
    agents: &[AgentName],
) -> Result<Vec<AgentDiff>, StoreError> {
    let journals = read_all(dir)?;
    let mut found = Vec::new();
    let is_meant = |name: &&AgentName| agents.is_empty() || agents.contains(name);
    for agent in journals.keys().filter(is_meant) {
        let mut turns = turns(&journals, agent);
        turns.retain(|turn| since.is_none_or(|since| turn.at >= since));
        let diff = diff_of(dir, agent, &turns)?;
        if !diff.files.is_empty() || !diff.uncovered.is_empty() {
            found.push(diff);
        }
    }
    Ok(found)
}

fn diff_of(dir: &TeamDir, agent: &AgentName, turns: &[Turn]) -> Result<AgentDiff, StoreError> {
    let workspace = workspace(dir);
    let mut by_path: BTreeMap<&str, Vec<&TurnChange>> = BTreeMap::new();
    let mut uncovered: Vec<String> = Vec::new();
    for turn in turns {
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
            files.extend(of_part(dir, path, shown(&workspace, path), part)?);
        }
    }
    Ok(AgentDiff { agent: agent.clone(), files, uncovered })
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
                (Some(old), Some(new)) => text(old, new),
                (None, _) => DiffContent::Unknown("the previous version is not stored".into()),
                (_, None) => DiffContent::Unknown(
                    "the new version is not stored, and the file has changed since".into(),
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

fn text(before: Vec<u8>, after: Vec<u8>) -> DiffContent {
    match (String::from_utf8(before), String::from_utf8(after)) {
        (Ok(before), Ok(after)) if !before.contains('\0') && !after.contains('\0') => {
            DiffContent::Text { before, after }
        }
        _ => DiffContent::Binary,
    }
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
