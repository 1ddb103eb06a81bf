//! The files that an agent may read without a call that is judged: skills and instructions that people wrote for it.

use crate::os::wall::Walls;
use crate::protocol::permission::{DeniedFiles, PermissionSubject};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The walls and rules that keep an agent from reading a file.
#[derive(Debug, Clone)]
pub(crate) struct ReadLimits {
    /// The folder in which the agent works, without links.
    workspace: PathBuf,
    /// The team folder, without links.
    team: PathBuf,
    walls: Option<Arc<Walls>>,
    denied: DeniedFiles,
}

impl ReadLimits {
    pub(crate) fn new(
        workspace: &Path,
        team: &Path,
        walls: Option<Arc<Walls>>,
        denied: DeniedFiles,
    ) -> Self {
        let [workspace, team] =
            [workspace, team].map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        Self { workspace, team, walls, denied }
    }

    /// Returns the limits for files of another workspace.
    pub(crate) fn of_workspace(self, workspace: &Path) -> Self {
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        Self { workspace, ..self }
    }

    /// Whether the agent may not read the file at a real, absolute path: it belongs to the team folder, a wall hides it
    /// from commands, or a rule keeps it from `read_file`.
    pub(crate) fn refuses(&self, path: &Path) -> bool {
        self.check().refuses(path)
    }

    /// Returns the check of many paths, with the walls as they are now.
    pub(crate) fn check(&self) -> ReadCheck {
        let hidden = self.walls.as_ref().map(|walls| walls.hidden_paths()).unwrap_or_default();
        ReadCheck { limits: self.clone(), hidden }
    }
}

/// The limits for many paths.
#[derive(Debug, Clone)]
pub(crate) struct ReadCheck {
    limits: ReadLimits,
    hidden: Vec<PathBuf>,
}

impl ReadCheck {
    /// See [`ReadLimits::refuses`].
    pub(crate) fn refuses(&self, path: &Path) -> bool {
        let ReadLimits { workspace, team, denied, .. } = &self.limits;
        let inside = path.strip_prefix(workspace).ok();
        // Walls leave the workspace readable where they hide a folder around it.
        let is_hidden = self.hidden.iter().any(|hidden| {
            path.starts_with(hidden) && (inside.is_none() || !workspace.starts_with(hidden))
        });
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let subject = match inside {
            Some(inside) => PermissionSubject::Path(text(inside)),
            None => PermissionSubject::Outside(text(path)),
        };
        let is_of_team = path.starts_with(team) && !workspace.starts_with(team);
        is_hidden || is_of_team || denied.contains(&subject)
    }
}
