//! The files that an agent may not read. Undo neither copies nor hashes their contents.

use crate::os::wall::Walls;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files that an agent may not read.
#[derive(Default)]
pub(crate) struct UnreadableFiles {
    /// The folder in which the agent works. Walls leave it readable where they hide a folder around it.
    own: PathBuf,
    walls: Option<Arc<Walls>>,
    refused: Option<Refused>,
}

/// Whether the file tools of the agent refuse to read the file at a real, absolute path.
type Refused = Box<dyn Fn(&Path) -> bool + Send + Sync>;

impl UnreadableFiles {
    /// Creates the set of the files that walls hide, and of those that file tools refuse to read. The agent works in the
    /// folder `own`, a path without links.
    pub(crate) fn new(own: PathBuf, walls: Option<Arc<Walls>>, refused: Refused) -> Self {
        Self { own, walls, refused: Some(refused) }
    }

    /// Returns the files that may not be read now.
    pub(super) fn now(&self) -> UnreadableNow<'_> {
        let hidden = self.walls.as_ref().map(|walls| walls.hidden_paths()).unwrap_or_default();
        let (inside, outside) = hidden.into_iter().partition(|path| path.starts_with(&self.own));
        UnreadableNow { own: &self.own, inside, outside, refused: self.refused.as_ref() }
    }
}

impl fmt::Debug for UnreadableFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnreadableFiles").field("walls", &self.walls).finish_non_exhaustive()
    }
}

/// The files that may not be read now.
pub(super) struct UnreadableNow<'a> {
    own: &'a Path,
    /// The hidden files and folders in the folder of the agent.
    inside: Vec<PathBuf>,
    /// The others.
    outside: Vec<PathBuf>,
    refused: Option<&'a Refused>,
}

impl UnreadableNow<'_> {
    /// Whether the file at a real, absolute path may not be read.
    pub(super) fn contains(&self, path: &Path) -> bool {
        let hidden = if path.starts_with(self.own) { &self.inside } else { &self.outside };
        hidden.iter().any(|hidden| path.starts_with(hidden))
            || self.refused.is_some_and(|refuses| refuses(path))
    }
}
