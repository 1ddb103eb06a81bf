//! The files and folders that a search has not looked at, or not to their end.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The number of paths that are shown.
const SHOWN: usize = 5;

/// The number of paths that are kept.
const MAX_KEPT: usize = 10_000;

/// Paths that several threads note.
#[derive(Debug, Default)]
pub(super) struct LeftOut(Mutex<Vec<PathBuf>>);

impl LeftOut {
    pub(super) fn note(&self, path: &Path) {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.len() < MAX_KEPT {
            paths.push(path.to_owned());
        }
    }

    /// Returns the first paths in their order and the number of the others; `None` without a path.
    pub(super) fn in_words(&self) -> Option<String> {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        paths.sort_unstable();
        let shown: Vec<String> =
            paths.iter().take(SHOWN).map(|it| it.display().to_string()).collect();
        let more = match paths.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more if paths.len() < MAX_KEPT => format!(" and {more} more"),
            more => format!(" and at least {more} more"),
        };
        (!shown.is_empty()).then(|| shown.join(", ") + &more)
    }
}
