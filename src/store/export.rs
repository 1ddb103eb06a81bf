//! The files of a team that an export holds: what was said and done, no key and no lock.

use super::file::jsonl::each_line;
use super::file::read::{known_if_there, names_in};
use super::{StoreError, TeamDir};
use std::path::PathBuf;

/// The folders, each with the end of its files. A file of JSON Lines has a value in each line, any other JSON file one.
const FOLDERS: [(&str, &str, ExportedKind); 13] = [
    ("transcript", ".jsonl", ExportedKind::Conversation),
    ("transcript/sub", ".jsonl", ExportedKind::Conversation),
    ("transcript/archive", ".jsonl", ExportedKind::EarlierConversation),
    ("inbox", ".jsonl", ExportedKind::Other),
    ("dead", ".jsonl", ExportedKind::Other),
    ("tasks", ".json", ExportedKind::Task),
    ("tasks/.archive", ".json", ExportedKind::Task),
    ("leases", ".json", ExportedKind::Other),
    ("timers", ".json", ExportedKind::Other),
    ("undo", ".jsonl", ExportedKind::Other),
    ("log", ".jsonl", ExportedKind::Other),
    ("log/.old", ".jsonl", ExportedKind::Other),
    ("log/.err", "", ExportedKind::Other),
];

/// The content of a file, as far as a page shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportedKind {
    Roster,
    Conversation,
    EarlierConversation,
    Task,
    Other,
}

/// A file of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportedFile {
    /// The path below the team folder.
    pub(crate) path: String,
    pub(crate) kind: ExportedKind,
    file: PathBuf,
    /// Whether each line is a value of its own.
    has_lines: bool,
}

/// Returns the files, sorted within their folders; `has_archive` adds earlier conversations.
pub(crate) fn files(dir: &TeamDir, has_archive: bool) -> Result<Vec<ExportedFile>, StoreError> {
    let mut files = Vec::new();
    let mut add = |path: String, kind, has_lines| -> Result<(), StoreError> {
        let file = dir.root().join(&path);
        if known_if_there(&file)?.is_some_and(|known| known.is_file() && known.len() > 0) {
            files.push(ExportedFile { path, kind, file, has_lines });
        }
        Ok(())
    };
    add("config.json".into(), ExportedKind::Roster, false)?;
    let is_wanted = |kind| has_archive || kind != ExportedKind::EarlierConversation;
    for (folder, end, kind) in FOLDERS.iter().filter(|(_, _, kind)| is_wanted(*kind)) {
        let mut names = names_in(&dir.root().join(folder))?;
        names.retain(|name| name.ends_with(end) && !name.starts_with('.'));
        names.sort();
        for name in names {
            add(format!("{folder}/{name}"), *kind, *end == ".jsonl")?;
        }
    }
    Ok(files)
}

impl ExportedFile {
    /// Calls `meet` with each value of the file as text, which may be torn. A file that is gone has none.
    pub(crate) fn each_value(&self, mut meet: impl FnMut(&[u8])) -> Result<(), StoreError> {
        if self.has_lines {
            return Ok(each_line(&self.file, meet)?);
        }
        let mut whole = Vec::new();
        each_line(&self.file, |line| {
            whole.extend_from_slice(line);
            whole.push(b'\n');
        })?;
        meet(&whole);
        Ok(())
    }
}
