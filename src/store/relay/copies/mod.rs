//! Copies of files of other hosts, so that a person sees the team of all hosts on one: `copies/HOST/` has the shape of a team
//! folder. A process that wants to see files says so in `copies/.wanted/`, and the relay keeps the copies up to date while
//! that process lives.
//!
//! *Invariants:* a host gives files of the kinds below alone, and each path is checked on both sides. A copy is never read as
//! a file of this host: nothing acts on it.

mod source;
mod target;
mod wishes;

pub use source::{copyable_files, read_part};
pub(crate) use target::as_of;
pub use target::{HostCopy, MissingPart};
pub use wishes::{CopiedHost, WishState, live_wishes, put_wish_state};
pub(crate) use wishes::{Wish, wish_state};

use crate::store::teamdir::make_folder;
use crate::store::{StoreError, TeamDir, subagents};
use crate::wire::carried::HostName;
use crate::wire::host_copy::{CopyPart, CopyPath};
use crate::wire::roster::Roster;
use crate::wire::task::TaskId;
use crate::wire::{AgentName, subagent::SubagentId};
use std::path::PathBuf;

const LINES: &str = ".jsonl";
const OBJECT: &str = ".json";

/// The folders that hold files of each kind, and what is in each of them.
const FOLDERS: [(CopyPart, &str, Content); 8] = [
    (CopyPart::Transcripts, "transcript", Content::LinesOfAgent),
    (CopyPart::Transcripts, "transcript/sub", Content::LinesOfSubagent),
    (CopyPart::Logs, "log", Content::LinesOfAgent),
    (CopyPart::Mail, "inbox", Content::LinesOfAgent),
    (CopyPart::Mail, "inbox/.claim", Content::Claim),
    (CopyPart::Mail, "dead", Content::LinesOfAgent),
    (CopyPart::Mail, "run/.state/relay/out", Content::LinesOfAgent),
    (CopyPart::Tasks, "tasks", Content::Task),
];

/// The owner of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FileOwner {
    Agent(AgentName),
    Team,
}

impl FileOwner {
    fn agent(&self) -> Option<&AgentName> {
        match self {
            Self::Agent(name) => Some(name),
            Self::Team => None,
        }
    }
}

/// The content of the files in a folder.
#[derive(Debug, Clone, Copy)]
enum Content {
    LinesOfAgent,
    LinesOfSubagent,
    Claim,
    Task,
}

impl Content {
    /// Returns the owner of a file; `None` if the folder has no files of that name.
    fn owner(self, file: &str) -> Option<FileOwner> {
        let agent = |name: &str| AgentName::mailbox(name).ok().map(FileOwner::Agent);
        match self {
            Self::LinesOfAgent => agent(file.strip_suffix(LINES)?),
            Self::LinesOfSubagent => {
                let (caller, number) = file.strip_suffix(LINES)?.rsplit_once('-')?;
                let id = SubagentId::parse(&format!("{caller}:{number}"))?;
                Some(FileOwner::Agent(id.caller))
            }
            Self::Claim => agent(file.split_once('.')?.0),
            Self::Task => TaskId::parse(file.strip_suffix(OBJECT)?).ok().map(|_| FileOwner::Team),
        }
    }
}

/// Returns the kind of a file, and its owner; `None` if it is none that is copied.
fn kind_of(path: &CopyPath) -> Option<(CopyPart, FileOwner)> {
    let (folder, file) = path.as_str().rsplit_once('/')?;
    let (part, _, content) = FOLDERS.into_iter().find(|(_, known, _)| *known == folder)?;
    Some((part, content.owner(file)?))
}

/// Returns the kind of a file; `None` if it is none that is copied.
pub fn copy_part(path: &CopyPath) -> Option<CopyPart> {
    kind_of(path).map(|(part, _)| part)
}

/// Returns the task of a file; `None` if it has none.
pub fn copied_task(path: &CopyPath) -> Option<TaskId> {
    let (folder, file) = path.as_str().rsplit_once('/')?;
    let id = TaskId::parse(file.strip_suffix(OBJECT)?).ok();
    id.filter(|id| folder == "tasks" && path.as_str() == format!("tasks/{id}{OBJECT}"))
}

/// Makes the folders of copies, so that wishes can be watched.
///
/// # Errors
/// A folder cannot be made.
pub fn make_copy_folders(dir: &TeamDir) -> Result<(), StoreError> {
    super::make_folders(dir)?;
    make_folder(&dir.relay_copies())?;
    Ok(make_folder(&dir.relay_wishes())?)
}

/// Returns the copy of the files of a host, which need not be there.
pub(crate) fn copy_of(dir: &TeamDir, host: &HostName) -> TeamDir {
    TeamDir::copy_at(dir.relay_copy(host))
}

/// Returns the copies that there are, each with its host.
///
/// # Errors
/// A folder cannot be read.
pub(crate) fn all(dir: &TeamDir) -> Result<Vec<(HostName, TeamDir)>, StoreError> {
    let mut found = Vec::new();
    for name in super::names_in(&dir.relay_copies())? {
        let Ok(host) = HostName::parse(&name) else { continue };
        let copy = copy_of(dir, &host);
        found.push((host, copy));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// Returns the folder with the files of an agent: the team folder, or the copy of the files of its host.
pub(crate) fn folder_of(dir: &TeamDir, roster: &Roster, name: &AgentName) -> TeamDir {
    match roster.host_of(name.as_str()).map(HostName::parse) {
        Some(Ok(host)) => copy_of(dir, &host),
        Some(Err(_)) | None => dir.clone(),
    }
}

/// Returns the path of the transcript of an agent, or of a subagent (`CALLER:NUMBER`), or of its copy; `None` if neither can
/// have the name.
pub(crate) fn conversation(dir: &TeamDir, roster: &Roster, name: &str) -> Option<PathBuf> {
    let agent = AgentName::mailbox(name).ok().or_else(|| Some(SubagentId::parse(name)?.caller))?;
    subagents::conversation(&folder_of(dir, roster, &agent), name)
}

/// Returns the path of a file in a copy, or in the team folder.
fn at(dir: &TeamDir, path: &CopyPath) -> PathBuf {
    dir.root().join(path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_these_kinds_are_copied() {
        let kind = |path: &str| {
            let kind = kind_of(&CopyPath::parse(path).unwrap());
            kind.map(|(part, owner)| (part, owner.agent().map(ToString::to_string)))
        };
        let of = |part, name: &str| Some((part, Some(name.to_owned())));
        assert_eq!(kind("transcript/carol.jsonl"), of(CopyPart::Transcripts, "carol"));
        assert_eq!(kind("transcript/sub/a-b-3.jsonl"), of(CopyPart::Transcripts, "a-b"));
        assert_eq!(kind("log/carol.jsonl"), of(CopyPart::Logs, "carol"));
        assert_eq!(kind("inbox/user.jsonl"), of(CopyPart::Mail, "user"));
        let claim = "inbox/.claim/carol.000000000001-0a1b2c3d.taken";
        assert_eq!(kind(claim), of(CopyPart::Mail, "carol"));
        assert_eq!(kind("run/.state/relay/out/lead.jsonl"), of(CopyPart::Mail, "lead"));
        assert_eq!(kind("tasks/3.json"), Some((CopyPart::Tasks, None)));
        for other in [
            "config.json",
            "settings.toml",
            "run/.state/relay/keys.json",
            "run/.state/carol.key",
            "transcript/archive/carol-1.jsonl",
            "tasks/3.json.bad-1",
            "inbox/.lock/carol",
            "transcript/.jsonl",
        ] {
            assert_eq!(kind(other), None, "{other}");
        }
    }
}
