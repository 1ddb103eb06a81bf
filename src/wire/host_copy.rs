//! Copies of files of other hosts: the files that are wanted, and those that a host has (docs/machines.md).

use super::carried::HostName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most bytes of a path below a team folder that is copied.
const MOST_PATH: usize = 128;

/// A kind of files of which copies are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyPart {
    /// The current conversations of agents and of their subagents.
    Transcripts,
    /// The current logs of agents.
    Logs,
    /// The inboxes, claims, dead letters and outboxes.
    Mail,
    /// The shared tasks, without the archived ones.
    Tasks,
}

/// The files of a host that are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySelection {
    /// Their kinds.
    pub parts: Vec<CopyPart>,
    /// The agents whose transcripts and logs are wanted; all agents if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
}

impl CopySelection {
    /// Returns what both together want.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        if self.agents.is_empty() || other.agents.is_empty() {
            self.agents.clear();
        } else {
            self.agents.extend(other.agents.iter().cloned());
            self.agents.sort();
            self.agents.dedup();
        }
        self.parts.extend(&other.parts);
        self.parts.sort_unstable();
        self.parts.dedup();
        self
    }
}

/// The files of other hosts that a process of this one wants to see while it lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyWish {
    /// The hosts; all hosts if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostName>,
    /// The files.
    #[serde(flatten)]
    pub selection: CopySelection,
}

/// A path below a team folder that may be copied: no part of it begins with more than one dot, and none is empty.
///
/// The store decides of which kind it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CopyPath(String);

/// A text that is no path of a file that may be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no path of a file that may be copied")]
pub struct NotACopyPath;

impl CopyPath {
    /// Parses a path.
    ///
    /// # Errors
    /// The text is none.
    pub fn parse(text: &str) -> Result<Self, NotACopyPath> {
        let is_char = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_part = |part: &str| {
            !part.is_empty()
                && !matches!(part, "." | "..")
                && !part.starts_with("..")
                && part.bytes().all(is_char)
        };
        let is_good = text.len() <= MOST_PATH && text.split('/').all(is_part);
        if is_good { Ok(Self(text.into())) } else { Err(NotACopyPath) }
    }

    /// Returns the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CopyPath {
    type Error = NotACopyPath;

    fn try_from(text: String) -> Result<Self, NotACopyPath> {
        Self::parse(&text)
    }
}

impl From<CopyPath> for String {
    fn from(path: CopyPath) -> Self {
        path.0
    }
}

impl fmt::Display for CopyPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A file of a host, as the host sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFile {
    /// Its path below the team folder.
    pub path: CopyPath,
    /// A text that another file at this path does not have. A file only grows while it keeps it.
    pub id: String,
    /// Its size.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_nowhere_else() {
        for good in ["transcript/carol.jsonl", "inbox/.claim/carol.000000000001-0a1b2c3d"] {
            assert_eq!(CopyPath::parse(good).unwrap().as_str(), good);
        }
        let bad = ["", "/etc/passwd", "a//b", "a/", "../a", "a/../b", "a/..", "a/./b", "a\0", "ä"];
        for bad in bad.into_iter().chain(["..a", &"a".repeat(200)]) {
            assert_eq!(CopyPath::parse(bad), Err(NotACopyPath), "{bad:?}");
        }
        assert!(serde_json::from_str::<CopyPath>(r#""../a""#).is_err());
    }

    #[test]
    fn two_selections_are_one() {
        let of = |parts: &[CopyPart], agents: &[&str]| CopySelection {
            parts: parts.to_vec(),
            agents: agents.iter().map(ToString::to_string).collect(),
        };
        let carol = of(&[CopyPart::Transcripts], &["carol"]);
        let both = carol.clone().with(&of(&[CopyPart::Logs], &["bob", "carol"]));
        assert_eq!(both, of(&[CopyPart::Transcripts, CopyPart::Logs], &["bob", "carol"]));
        assert_eq!(both.with(&of(&[], &[])).agents, Vec::<String>::new());
    }
}
