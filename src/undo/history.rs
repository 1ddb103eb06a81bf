//! The journals of all agents put together: the turns of an agent, the causes of its changes, and what each file was.
//! Pure: no files, no clock.

use crate::store::undo::Journals;
use crate::wire::undo::{ChangeSource, FileChange, FileState, LostReason, UndoEntry};
use crate::wire::{AgentName, WallTime};
use std::collections::BTreeMap;
use std::path::Path;

/// A turn in which an agent changed files, or ran commands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) number: u64,
    pub(crate) at: WallTime,
    /// The first words of the prompt or the mail.
    pub(crate) about: String,
    /// For an undo: the first turn that it took back.
    pub(crate) undoes: Option<u64>,
    /// Whether it counts: a turn that was taken back does not.
    pub(crate) is_active: bool,
    pub(crate) changes: Vec<TurnChange>,
    /// The reasons for which changes of its commands are not known.
    pub(crate) uncovered: Vec<String>,
}

/// A change in a turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnChange {
    pub(crate) change: FileChange,
    /// Another agent whose change it may be as well.
    pub(crate) maybe_by: Option<AgentName>,
}

/// The time in which a command ran, and changed files.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin: WallTime,
    /// `None` if it still runs, or was cut off.
    end: Option<WallTime>,
}

impl Window {
    fn overlaps(self, other: Self) -> bool {
        let ends_before = |one: Self, next: Self| one.end.is_some_and(|end| end < next.begin);
        !ends_before(self, other) && !ends_before(other, self)
    }

    fn contains(self, at: WallTime) -> bool {
        self.begin <= at && self.end.is_none_or(|end| at <= end)
    }
}

/// A change with the window of its command.
#[derive(Debug, Clone, Copy)]
struct Windowed<'a> {
    change: &'a FileChange,
    window: Option<Window>,
}

/// A file as an agent changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The state before its first change.
    pub(crate) before: Option<FileState>,
    /// The state after its last change.
    pub(crate) after: Option<FileState>,
    /// Whether a command made one of the changes.
    pub(crate) is_by_command: bool,
    /// Whether one of the changes is one of the permission bits.
    pub(crate) changes_mode: bool,
}

/// The reason for which changes of a file do not follow one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BrokenChain {
    Lost(LostReason),
    /// The change may be one of this agent.
    Unattributable(AgentName),
    /// Between two changes, the file got this state by another one.
    Changed(Option<FileState>),
}

/// Returns the turns of an agent, oldest first.
pub(crate) fn turns(journals: &Journals, agent: &AgentName) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let entries = journals.get(agent).map(Vec::as_slice).unwrap_or_default();
    let mut is_command_open = false;
    for entry in entries {
        match entry {
            UndoEntry::Turn { turn, at, about, undoes } => {
                let (about, undoes) = (about.clone(), *undoes);
                let (changes, uncovered) = (Vec::new(), Vec::new());
                let (number, at) = (*turn, *at);
                turns.push(Turn { number, at, about, undoes, is_active: true, changes, uncovered });
            }
            UndoEntry::Command { uncovered, .. } => {
                if std::mem::replace(&mut is_command_open, uncovered.is_none()) {
                    note(&mut turns, Some(&CUT_OFF.to_owned()));
                }
                note(&mut turns, uncovered.as_ref());
            }
            UndoEntry::CommandEnd { uncovered, .. } => {
                is_command_open = false;
                note(&mut turns, uncovered.as_ref());
            }
            UndoEntry::Withdrawn { turn } => turns.retain(|it| it.number != *turn),
            UndoEntry::Change(_)
            | UndoEntry::Void { .. }
            | UndoEntry::TurnEnd { .. }
            | UndoEntry::Unknown => {}
        }
    }
    if is_command_open {
        note(&mut turns, Some(&OPEN.to_owned()));
    }
    for change in attributed(journals, agent) {
        if let Some(turn) = turns.iter_mut().find(|turn| turn.number == change.change.turn) {
            turn.changes.push(change);
        }
    }
    mark_active(&mut turns);
    turns
}

/// The reason for which the changes of a command are not known whose agent was killed.
pub(super) const CUT_OFF: &str = "a command was interrupted, and its changes are unknown";

/// The reason for which the changes of a command are not known that has no end yet.
const OPEN: &str = "a command is still running or was interrupted: its changes are unknown";

fn note(turns: &mut [Turn], why: Option<&String>) {
    if let (Some(turn), Some(why)) = (turns.last_mut(), why)
        && !turn.uncovered.contains(why)
    {
        turn.uncovered.push(why.clone());
    }
}

/// Finds the turns that count. An undo leaves those that counted before the first turn that it took back, so the undo of
/// an undo brings turns back.
fn mark_active(turns: &mut [Turn]) {
    let mut after: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut active: Vec<u64> = Vec::new();
    for turn in turns.iter() {
        match turn.undoes {
            Some(first) => {
                let before = after.range(..first).next_back();
                active = before.map(|(_, active)| active.clone()).unwrap_or_default();
            }
            None => active.push(turn.number),
        }
        after.insert(turn.number, active.clone());
    }
    for turn in turns {
        turn.is_active = active.contains(&turn.number);
    }
}

/// Returns the last turn that counts and changed files.
pub(crate) fn last_turn(turns: &[Turn]) -> Option<&Turn> {
    turns.iter().rev().find(|turn| turn.is_active && !turn.changes.is_empty())
}

/// Returns the changes that an agent made, in order, without those that were not made or that others made.
fn attributed(journals: &Journals, agent: &AgentName) -> Vec<TurnChange> {
    let all: BTreeMap<&AgentName, Vec<Windowed<'_>>> =
        journals.iter().map(|(name, entries)| (name, windowed(entries))).collect();
    let open: OpenWindows<'_> =
        journals.iter().map(|(name, entries)| (name, open_window(entries))).collect();
    let mut found = Vec::new();
    for own in all.get(agent).into_iter().flatten() {
        let Some(window) = own.window else {
            found.push(TurnChange { change: own.change.clone(), maybe_by: None });
            continue;
        };
        match cause(&all, &open, agent, own.change, window) {
            Cause::Own => found.push(TurnChange { change: own.change.clone(), maybe_by: None }),
            Cause::Other => {}
            Cause::Unclear(other) => {
                found.push(TurnChange { change: own.change.clone(), maybe_by: Some(other) });
            }
        }
    }
    found
}

/// The windows of the commands that still run, or were cut off, with their folders.
type OpenWindows<'a> = BTreeMap<&'a AgentName, Option<(Window, Option<&'a str>)>>;

enum Cause {
    Own,
    /// A file tool of another agent, or an undo.
    Other,
    Unclear(AgentName),
}

/// Finds the cause of a change that was found after a command.
fn cause(
    all: &BTreeMap<&AgentName, Vec<Windowed<'_>>>,
    open: &OpenWindows<'_>,
    agent: &AgentName,
    change: &FileChange,
    window: Window,
) -> Cause {
    let mut unclear = None;
    for (name, others) in all {
        let of_path = others.iter().filter(|other| other.change.path == change.path);
        for other in of_path {
            let is_same_agent = *name == agent;
            match other.change.by {
                ChangeSource::File if is_same_agent => {}
                ChangeSource::File | ChangeSource::Undo if window.contains(other.change.at) => {
                    if hash(other.change.after.as_ref()) == hash(change.after.as_ref()) {
                        return Cause::Other;
                    }
                    unclear = Some((*name).clone());
                }
                ChangeSource::Command if !is_same_agent => {
                    if other.window.is_some_and(|other| other.overlaps(window)) {
                        unclear = Some((*name).clone());
                    }
                }
                ChangeSource::File
                | ChangeSource::Undo
                | ChangeSource::Command
                | ChangeSource::Unknown => {}
            }
        }
        let running = open.get(name).copied().flatten();
        let may_be_of = |(running, folder): (Window, Option<&str>)| {
            running.overlaps(window)
                && folder.is_none_or(|folder| Path::new(&change.path).starts_with(folder))
        };
        if *name != agent && running.is_some_and(may_be_of) {
            unclear = Some((*name).clone());
        }
    }
    unclear.map_or(Cause::Own, Cause::Unclear)
}

/// Returns the changes of a journal without those that were not made, each with the window of its command.
fn windowed(entries: &[UndoEntry]) -> Vec<Windowed<'_>> {
    let mut found: Vec<Windowed<'_>> = Vec::new();
    let mut begin = None;
    for entry in entries {
        match entry {
            UndoEntry::Command { at, .. } => begin = Some(*at),
            UndoEntry::CommandEnd { at, .. } => {
                // The changes of a command are recorded together with its end.
                for change in found.iter_mut().rev().map_while(|it| it.window.as_mut()) {
                    change.end.get_or_insert(*at);
                }
                begin = None;
            }
            UndoEntry::Change(change) => {
                let is_command = change.by == ChangeSource::Command;
                let window = is_command.then(|| begin.unwrap_or(change.at));
                let window = window.map(|begin| Window { begin, end: None });
                found.push(Windowed { change, window });
            }
            UndoEntry::Void { path, hash: voided } => {
                let is_meant = |it: &Windowed<'_>| {
                    it.change.path == *path && hash(it.change.after.as_ref()) == voided.as_ref()
                };
                if let Some(at) = found.iter().rposition(is_meant) {
                    found.remove(at);
                }
            }
            UndoEntry::Withdrawn { turn } => found.retain(|it| it.change.turn != *turn),
            UndoEntry::Turn { .. } | UndoEntry::TurnEnd { .. } | UndoEntry::Unknown => {}
        }
    }
    found
}

/// Returns the window of a command that still runs, or was cut off, with the folder in which it may change files.
fn open_window(entries: &[UndoEntry]) -> Option<(Window, Option<&str>)> {
    let mut begin = None;
    for entry in entries {
        match entry {
            UndoEntry::Command { at, folder, uncovered: None, .. } => {
                begin = Some((*at, folder.as_deref()));
            }
            UndoEntry::CommandEnd { .. } | UndoEntry::Command { uncovered: Some(_), .. } => {
                begin = None;
            }
            UndoEntry::Turn { .. }
            | UndoEntry::TurnEnd { .. }
            | UndoEntry::Change(_)
            | UndoEntry::Void { .. }
            | UndoEntry::Withdrawn { .. }
            | UndoEntry::Unknown => {}
        }
    }
    begin.map(|(begin, folder)| (Window { begin, end: None }, folder))
}

pub(crate) fn hash(state: Option<&FileState>) -> Option<&crate::wire::file_view::ContentHash> {
    state.map(|state| &state.hash)
}

/// Joins changes of one file, in order. Fails where they do not follow one another.
pub(crate) fn chain<'a>(
    changes: impl IntoIterator<Item = &'a TurnChange>,
) -> Result<Option<Chain>, BrokenChain> {
    let mut chain: Option<Chain> = None;
    for TurnChange { change, maybe_by } in changes {
        if let Some(other) = maybe_by {
            return Err(BrokenChain::Unattributable(other.clone()));
        }
        if let Some(why) = change.lost {
            return Err(BrokenChain::Lost(why));
        }
        let is_by_command = change.by == ChangeSource::Command;
        let changes_mode = match (&change.before, &change.after) {
            (Some(before), Some(after)) => before.mode != after.mode,
            (None, _) | (_, None) => false,
        };
        chain = Some(match chain {
            None => Chain {
                before: change.before.clone(),
                after: change.after.clone(),
                is_by_command,
                changes_mode,
            },
            Some(chain) if hash(chain.after.as_ref()) == hash(change.before.as_ref()) => Chain {
                after: change.after.clone(),
                is_by_command: chain.is_by_command || is_by_command,
                changes_mode: chain.changes_mode || changes_mode,
                ..chain
            },
            Some(_) => return Err(BrokenChain::Changed(change.before.clone())),
        });
    }
    Ok(chain)
}

/// Returns the agent that left this state of a file, if one did.
pub(crate) fn writer<'a>(
    journals: &'a Journals,
    path: &str,
    state: Option<&FileState>,
    except: &AgentName,
) -> Option<&'a AgentName> {
    let left = |entries: &[UndoEntry]| {
        let mut changes = entries.iter().filter_map(UndoEntry::change);
        changes.any(|change| {
            change.path == path
                && change.by != ChangeSource::Undo
                && hash(change.after.as_ref()) == hash(state)
        })
    };
    let others = journals.iter().filter(|(name, _)| *name != except);
    others.into_iter().find(|(_, entries)| left(entries)).map(|(name, _)| name)
}
