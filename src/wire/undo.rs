//! The changes of files by agents, as the journals for undo hold them.

use super::WallTime;
use super::file_view::ContentHash;
use serde::{Deserialize, Serialize};

/// The state of a regular file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// The hash of the content.
    pub hash: ContentHash,
    /// The permission bits.
    pub mode: u32,
}

/// The cause of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeSource {
    /// A file tool.
    File,
    /// A command: the change was found by a look before and after it.
    Command,
    /// An undo.
    Undo,
    /// A cause of a later version.
    #[serde(other)]
    Unknown,
}

/// The reason for which a change cannot be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostReason {
    /// A version of the file is larger than those that are kept.
    TooLarge,
    /// The object is a link, or was one.
    Link,
    /// The object is neither a file nor a link, or was none.
    NotRegular,
    /// The version before the change was not kept.
    NotKept,
    /// The agent may not read the file.
    Unreadable,
    /// A reason of a later version.
    #[serde(other)]
    Unknown,
}

/// A change of one file by an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileChange {
    /// The number of the turn.
    pub turn: u64,
    /// The time at which the change began, or was found.
    pub at: WallTime,
    /// The real, absolute path.
    pub path: String,
    /// The state before; `None` for no file.
    pub before: Option<FileState>,
    /// The state after; `None` for no file.
    pub after: Option<FileState>,
    /// The cause.
    pub by: ChangeSource,
    /// Set if the change cannot be undone; then the states may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostReason>,
}

/// A line of the journal of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum UndoEntry {
    /// A turn begins to change files.
    Turn {
        /// Its number; each is higher than the one before it.
        turn: u64,
        /// The time.
        at: WallTime,
        /// The first words of the prompt or the mail.
        about: String,
        /// For an undo: the first turn that was taken back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undoes: Option<u64>,
    },
    /// A change of a file is about to be made, or was made by a command.
    Change(FileChange),
    /// The last change of this path, which would have led to this content, was not made.
    Void {
        /// The real, absolute path.
        path: String,
        /// The hash of the content; `None` for no file.
        hash: Option<ContentHash>,
    },
    /// A command begins.
    Command {
        /// The number of the turn.
        turn: u64,
        /// The time.
        at: WallTime,
        /// The folder in which changes are looked for; `None` if they are not, or it is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
        /// The reason for which changes of the command are not found, if they are not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uncovered: Option<String>,
    },
    /// The changes of the last command have been looked for.
    CommandEnd {
        /// The time.
        at: WallTime,
        /// The reason for which some changes may not have been found.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uncovered: Option<String>,
    },
    /// The turn has ended.
    TurnEnd {
        /// Its number.
        turn: u64,
    },
    /// All changes of this undo were put back.
    Withdrawn {
        /// The number of the turn of the undo.
        turn: u64,
    },
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

impl UndoEntry {
    /// Returns the number and the time of a turn that begins.
    pub fn begun_turn(&self) -> Option<(u64, WallTime)> {
        if let Self::Turn { turn, at, .. } = self { Some((*turn, *at)) } else { None }
    }

    /// Returns the change of a file.
    pub fn change(&self) -> Option<&FileChange> {
        if let Self::Change(change) = self { Some(change) } else { None }
    }
}

/// An undo that is under way: its files are changed, or put back if that fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingUndo {
    /// The agent whose changes are taken back.
    pub agent: String,
    /// The number of the turn that stands for the undo.
    pub turn: u64,
    /// The first turn that is taken back.
    pub undoes: u64,
    /// The time.
    pub at: WallTime,
    /// The files with their states before and after the undo.
    pub files: Vec<PendingFile>,
}

/// A file of an undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingFile {
    /// The real, absolute path.
    pub path: String,
    /// The state that the undo finds; `None` for no file.
    pub from: Option<FileState>,
    /// The state that the undo leaves; `None` for no file.
    pub to: Option<FileState>,
}
