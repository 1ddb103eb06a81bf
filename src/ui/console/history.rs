//! The typed lines of this and earlier sessions, in a file of the user.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The maximum number of entries that are offered.
const OFFERED: usize = 1000;
/// The number of bytes that are read from the end of the file: many times the usual size of its entries.
const READ_BYTES: u64 = 4 * 1024 * 1024;

/// The entries, oldest first, and the position of the one that is recalled.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The file; `None` without one, or after an error.
    file: Option<PathBuf>,
    entries: Vec<String>,
    /// The index of the recalled entry; `None` while the person's own text is shown.
    recalled: Option<usize>,
    /// The person's own text, while an entry is shown.
    draft: String,
}

impl History {
    pub(super) fn open(file: Option<PathBuf>) -> Self {
        let entries = file.as_ref().and_then(|file| load(file).ok()).unwrap_or_default();
        Self { file, entries, ..Self::default() }
    }

    /// Adds a line, unless it is blank, begins with a blank, or repeats the last one.
    pub(super) fn add(&mut self, line: &str) {
        self.recalled = None;
        let is_kept = !line.trim().is_empty() && !line.starts_with(' ');
        if !is_kept || self.entries.last().is_some_and(|last| last == line) {
            return;
        }
        self.entries.push(line.to_owned());
        if self.file.as_ref().is_some_and(|file| append(file, line).is_err()) {
            self.file = None;
        }
    }

    /// Returns the entry before the recalled one; `current` is the text that it replaces.
    pub(super) fn older(&mut self, current: &str) -> Option<String> {
        let at = self.recalled.unwrap_or(self.entries.len()).checked_sub(1)?;
        if self.recalled.is_none() {
            current.clone_into(&mut self.draft);
        }
        self.recalled = Some(at);
        self.entries.get(at).cloned()
    }

    /// Returns the entry after the recalled one, and the person's own text after the last.
    pub(super) fn newer(&mut self) -> Option<String> {
        let at = self.recalled? + 1;
        self.recalled = Some(at).filter(|at| *at < self.entries.len());
        Some(self.entries.get(at).cloned().unwrap_or_else(|| std::mem::take(&mut self.draft)))
    }

    /// Ends the recall, because the text was changed.
    pub(super) fn forget_place(&mut self) {
        self.recalled = None;
    }

    /// Returns the latest entry that contains a text, and its index; only entries before `before` count.
    pub(super) fn find(&self, text: &str, before: Option<usize>) -> Option<(usize, &str)> {
        let before = before.unwrap_or(self.entries.len());
        let found = self.entries.iter().enumerate().take(before);
        found.rev().find(|(_, entry)| entry.contains(text)).map(|(at, entry)| (at, entry.as_str()))
    }
}

/// Loads the last typed lines of a history file, oldest first. Each line of the file is a JSON string, so that a
/// pasted paragraph is one entry.
fn load(file: &Path) -> io::Result<Vec<String>> {
    let mut file = OpenOptions::new().read(true).open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(READ_BYTES)))?;
    let mut text = Vec::new();
    file.take(READ_BYTES).read_to_end(&mut text)?;
    let lines = text.split(|byte| *byte == b'\n');
    let mut entries: Vec<_> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Ok(entries.split_off(entries.len().saturating_sub(OFFERED)))
}

/// Appends a line, and creates file and folder if they are missing.
fn append(file: &Path, entry: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(file)?;
    let line = serde_json::Value::from(entry).to_string() + "\n";
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_keeps_line_ends_and_is_private_and_damage_is_tolerated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("team/history");
        let mut history = History::open(Some(file.clone()));
        for line in ["one", "two\nlines", " a secret", "", "two\nlines", "three"] {
            history.add(line);
        }
        assert_eq!(load(&file).unwrap(), ["one", "two\nlines", "three"]);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(History::open(Some(file.clone())).entries.len(), 3);
        std::fs::File::create(&file).unwrap().write_all(b"\"a\"\n\"torn\n\xff\n\"b\"\n").unwrap();
        assert_eq!(load(&file).unwrap(), ["a", "b"]);
        let mut refused = History::open(Some(file.join("below/a/file")));
        refused.add("x");
        assert_eq!(refused.file, None);
    }

    #[test]
    fn entries_are_recalled_and_the_draft_comes_back() {
        let mut history = History::default();
        for line in ["cargo test", "git log", "cargo doc"] {
            history.add(line);
        }
        assert_eq!(history.older("dra").as_deref(), Some("cargo doc"));
        assert_eq!(history.older("cargo doc").as_deref(), Some("git log"));
        assert_eq!(history.newer().as_deref(), Some("cargo doc"));
        assert_eq!(history.newer().as_deref(), Some("dra"));
        assert_eq!(history.newer(), None);
        let (at, line) = history.find("cargo", None).unwrap();
        assert_eq!(line, "cargo doc");
        assert_eq!(history.find("cargo", Some(at)).unwrap().1, "cargo test");
        assert_eq!(history.find("cargo", Some(0)), None);
    }
}
