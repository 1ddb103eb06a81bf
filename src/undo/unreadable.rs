//! The files that an agent may not read. Undo neither copies nor hashes their contents.

use crate::os::wall::Walls;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files that an agent may not read.
#[derive(Default)]
pub(crate) struct UnreadableFiles {
    walls: Option<Arc<Walls>>,
    refused: Option<Refused>,
}

/// Whether the file tools of the agent refuse to read the file at a real, absolute path.
type Refused = Box<dyn Fn(&Path) -> bool + Send + Sync>;

impl UnreadableFiles {
    /// Creates the set of the files that walls hide, and of those that file tools refuse to read.
    pub(crate) fn new(walls: Option<Arc<Walls>>, refused: Refused) -> Self {
        Self { walls, refused: Some(refused) }
    }

    /// Returns the files of a folder without links that may not be read now.
    pub(super) fn below(&self, folder: &Path) -> UnreadableNow<'_> {
        let mut hidden = self.walls.as_ref().map(|walls| walls.hidden_paths()).unwrap_or_default();
        hidden.retain(|path| path.starts_with(folder) || folder.starts_with(path));
        UnreadableNow { hidden, refused: self.refused.as_ref() }
    }
}

impl fmt::Debug for UnreadableFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnreadableFiles").field("walls", &self.walls).finish_non_exhaustive()
    }
}

/// The files of a folder that may not be read now.
pub(super) struct UnreadableNow<'a> {
    /// Files and folders.
    hidden: Vec<PathBuf>,
    refused: Option<&'a Refused>,
}

impl UnreadableNow<'_> {
    /// Whether the file at a real, absolute path may not be read.
    pub(super) fn contains(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| path.starts_with(hidden))
            || self.refused.is_some_and(|refuses| refuses(path))
    }
}
