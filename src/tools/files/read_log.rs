//! The read log of an agent: the content of each file as the agent last saw it, and the lines of it that were shown.
//!
//! *Invariant:* hashes and lines are a function of the views in the transcript. Only they decide about writes; the
//! rest saves work or repetition.

use super::own_versions::{MOST_FILES, OwnVersion};
use super::seen_lines::SeenLines;
use crate::os::{Clock, SystemClock};
use crate::wire::file_view::{ContentHash, FileView};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The age from which on the times of a file tell its versions apart, in seconds. Two writes within one step of the
/// file system's clock may leave the same times.
const SETTLED_S: f64 = 2.0;

/// A file as the agent last saw it.
#[derive(Debug, Clone)]
pub(super) struct SeenFile {
    pub(super) hash: ContentHash,
    pub(super) lines: SeenLines,
    /// The stamp of the file when it was last compared; `None` if its next version may have the same stamp.
    pub(super) stamp: Option<FileStamp>,
    /// The state of the file of which the agent was told.
    pub(super) told: Option<DiskState>,
}

/// The metadata by which two versions of a file differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    inode: (u64, u64),
    bytes: u64,
    changed: [(i64, i64); 2],
}

/// The state of a file on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiskState {
    Missing,
    Content(ContentHash),
}

impl FileStamp {
    /// Returns the stamp; `None` if the file was changed so recently that a later change may leave the same stamp.
    pub(super) fn of(known: &Metadata) -> Option<Self> {
        let changed = [(known.mtime(), known.mtime_nsec()), (known.ctime(), known.ctime_nsec())];
        let stamp = Self { inode: (known.dev(), known.ino()), bytes: known.len(), changed };
        #[expect(clippy::cast_precision_loss, reason = "whole seconds suffice")]
        let age = SystemClock.now().as_secs() - known.ctime() as f64;
        (age >= SETTLED_S).then_some(stamp)
    }
}

/// The read log, with the versions that the agent wrote.
#[derive(Debug, Default)]
pub(super) struct ReadLog {
    pub(super) files: BTreeMap<PathBuf, SeenFile>,
    pub(super) own: BTreeMap<PathBuf, OwnVersion>,
}

impl ReadLog {
    /// Notes that the agent has seen lines of a content. Lines that it saw earlier still count if the content is the
    /// same.
    pub(super) fn note(
        &mut self,
        path: &Path,
        hash: ContentHash,
        lines: &SeenLines,
        stamp: Option<FileStamp>,
    ) {
        let earlier = self.files.get(path).filter(|seen| seen.hash == hash);
        let earlier = earlier.map(|seen| seen.lines.clone()).unwrap_or_default();
        let lines = earlier.ranges().chain(lines.ranges()).collect();
        self.files.insert(path.to_owned(), SeenFile { hash, lines, stamp, told: None });
    }

    /// Follows a version that the agent wrote, or none. Of too many, another one is no longer followed.
    pub(super) fn follow(&mut self, path: &Path, own: Option<OwnVersion>) {
        self.own.remove(path);
        if let Some(own) = own {
            while self.own.len() >= MOST_FILES && self.own.pop_first().is_some() {}
            self.own.insert(path.to_owned(), own);
        }
    }

    /// Returns the view of a file for the transcript.
    pub(super) fn view(&self, path: &Path) -> Option<FileView> {
        let SeenFile { hash, lines, .. } = self.files.get(path)?;
        let path = path.display().to_string();
        Some(FileView { path, hash: hash.clone(), lines: lines.ranges().collect() })
    }

    /// Restores a file from the transcript.
    pub(super) fn restore(&mut self, view: &FileView) {
        let lines = view.lines.iter().copied().collect();
        let seen = SeenFile { hash: view.hash.clone(), lines, stamp: None, told: None };
        self.files.insert(PathBuf::from(&view.path), seen);
    }
}
