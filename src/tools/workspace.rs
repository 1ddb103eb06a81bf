//! The folder that an agent's file tools never leave, and what in it they never write.

use super::ToolError;
use crate::os::beneath::{BeneathError, Root, Spot};
use std::io;
use std::path::{Component, Path, PathBuf};

/// Longest path that the system takes.
const LONGEST_PATH: usize = 4096;

/// The folder that agents work in.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: Root,
    /// The team folder below it.
    team: Option<PathBuf>,
}

impl Workspace {
    /// The workspace at `root`; `team` is the team folder, whatever it is called.
    ///
    /// # Errors
    /// The folder does not exist or may not be entered.
    pub(crate) fn open(root: &Path, team: &Path) -> io::Result<Self> {
        let root = Root::open(root)?;
        let team = team.canonicalize().unwrap_or_else(|_| team.to_owned());
        let team = team.strip_prefix(root.path()).ok().map(Path::to_owned);
        Ok(Self { root, team })
    }

    /// The folder, for commands to run in.
    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    /// The place that a model's path means.
    pub(crate) fn to_read(&self, path: &str) -> Result<Spot, ToolError> {
        let advice = "give a path inside the workspace, such as src/main.rs";
        let reply = |why: &str| ToolError::Reply(format!("{why}; {advice}"));
        if path.is_empty() {
            return Err(reply("the path is empty"));
        }
        if path.contains('\0') {
            return Err(reply("the path contains a NUL character"));
        }
        if path.len() > LONGEST_PATH {
            return Err(reply(&format!("the path has {} bytes, 4096 are allowed", path.len())));
        }
        self.root.find(Path::new(path)).map_err(|why| refusal(path, &why))
    }

    /// The same for a place that will be written, which some may not be.
    pub(crate) fn to_write(&self, path: &str) -> Result<Spot, ToolError> {
        let spot = self.to_read(path)?;
        let real = spot.path();
        let in_team = self.team.as_ref().is_some_and(|team| real.starts_with(team));
        if in_team || names(&real).any(|name| name == ".team") {
            return Err(ToolError::Reply(format!(
                "{path} belongs to the team folder, which is never written by file tools; use \
                 send_message and the task tools instead"
            )));
        }
        if runs_code(&real) {
            return Err(ToolError::Reply(format!(
                "{path} decides what git runs and is never written by file tools; ask the user to \
                 change it"
            )));
        }
        Ok(spot)
    }
}

/// What to tell the model when a place cannot be had.
pub(super) fn refusal(path: &str, why: &BeneathError) -> ToolError {
    let advice = match why {
        BeneathError::Outside => "file tools stay inside the workspace; give a path inside it",
        BeneathError::Folder => "give the path of a file; `ls` it with bash",
        BeneathError::Special(_) => "only regular files can be read and written",
        BeneathError::Nowhere => "give the path without `..`",
        BeneathError::Io(_) => "look with `ls -la` what is there",
    };
    let path: String = path.chars().take(256).collect();
    ToolError::Reply(format!("{path}: {why}; {advice}"))
}

/// The names of a path as a file system that folds case would compare them.
fn names(path: &Path) -> impl Iterator<Item = String> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            None
        }
    })
}

/// Git runs hooks and takes commands from its configuration, also for submodules and worktrees.
fn runs_code(path: &Path) -> bool {
    let mut inside_git = names(path).skip_while(|name| name != ".git");
    if inside_git.next().is_none() {
        return false;
    }
    let mut rest = inside_git.peekable();
    // `.git` itself can be a file that says where another one is.
    rest.peek().is_none()
        || rest.any(|name| matches!(name.as_str(), "hooks" | "config" | "config.worktree"))
}
