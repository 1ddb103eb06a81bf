//! The read log of an agent: the content of each file as the agent last saw it, and the lines of it that were shown.
//!
//! *Invariant:* it is a function of the views in the transcript.

use super::seen_lines::SeenLines;
use crate::wire::file_view::{ContentHash, FileView};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file as the agent last saw it.
#[derive(Debug, Clone)]
pub(super) struct SeenFile {
    pub(super) hash: ContentHash,
    pub(super) lines: SeenLines,
}

/// The read log.
#[derive(Debug, Default)]
pub(super) struct ReadLog {
    pub(super) files: BTreeMap<PathBuf, SeenFile>,
}

impl ReadLog {
    /// Notes that the agent has seen lines of a content. Lines that it saw earlier still count if the content is the
    /// same.
    pub(super) fn note(&mut self, path: &Path, hash: ContentHash, lines: &SeenLines) {
        let earlier = self.files.get(path).filter(|seen| seen.hash == hash);
        let earlier = earlier.map(|seen| seen.lines.clone()).unwrap_or_default();
        let lines = earlier.ranges().chain(lines.ranges()).collect();
        self.files.insert(path.to_owned(), SeenFile { hash, lines });
    }

    /// Returns the view of a file for the transcript.
    pub(super) fn view(&self, path: &Path) -> Option<FileView> {
        let SeenFile { hash, lines } = self.files.get(path)?;
        let path = path.display().to_string();
        Some(FileView { path, hash: hash.clone(), lines: lines.ranges().collect() })
    }

    /// Restores a file from the transcript.
    pub(super) fn restore(&mut self, view: &FileView) {
        let lines = view.lines.iter().copied().collect();
        let seen = SeenFile { hash: view.hash.clone(), lines };
        self.files.insert(PathBuf::from(&view.path), seen);
    }
}
