//! The working folder of a teammate: the workspace itself, or a clone of its repository.

use super::words::words;
use serde::{Deserialize, Serialize};

words! {
    /// The folder that a teammate works in, from the loosest to the strictest.
    #[derive(PartialOrd, Ord, Default)]
    pub enum Isolation {
        /// The workspace, with the lead and other teammates.
        #[default]
        Shared = "shared",
        /// A clone of its own.
        Clone = "clone",
    }
}

words! {
    /// The start of a clone.
    #[derive(Default)]
    pub enum CloneBase {
        /// The files of the workspace as they are, without ignored ones.
        #[default]
        Snapshot = "snapshot",
        /// The last commit.
        Head = "head",
    }
}

impl Isolation {
    /// The words of all values.
    pub const WORDS: [&str; 2] = [Self::Shared.word(), Self::Clone.word()];

    /// Returns the value of that word; `None` if there is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|isolation| isolation.word() == word)
    }
}

/// The clone of a teammate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClonePlace {
    /// The top folder of the clone.
    pub path: String,
    /// The folder in it in which the teammate works: that of the workspace.
    pub folder: String,
    /// The branch of the teammate.
    pub branch: String,
    /// The commit with which it began.
    pub base: String,
    /// The top folder of the repository that was cloned.
    pub repository: String,
    /// The host with the clone, if it is another one: its saved work comes into the repository here, and `path` is only a
    /// name for it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The host with the user's repository, if it is another one: the repository here only has its commits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project_host: String,
}

impl ClonePlace {
    /// Whether the clone is on this host.
    pub fn is_here(&self) -> bool {
        self.host.is_empty()
    }
}
