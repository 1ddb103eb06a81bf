//! Files by which a command could have the next git command of the user run code, and which walls cannot protect because
//! they do not exist yet: what has appeared when a command has ended is quarantined.
//!
//! A `commondir` is judged by its content alone. A `config.worktree` may stay if it was there before the command: walls
//! with namespaces protect it then.

use crate::os::command;
use crate::os::git_folders::{COMMON_FOLDER, Submodules, WORKTREE_CONFIG, of_worktrees};
use crate::os::wall::Walls;
use crate::store::asynchronous::offload;
use crate::tools::registry::ToolParts;
use crate::wire::log_words;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, mem, thread};

/// The maximum size of a file that names a git folder, in bytes.
const MOST_BYTES: u64 = 8192;

/// The content of that file in each linked worktree.
const COMMON_OF_WORKTREES: &str = "../..\n";

/// The time in which an interrupted command ends.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// The suffix of a file that was quarantined.
const QUARANTINED: &str = ".quarantined";

/// The work that follows the quarantine after an interrupted command.
pub(in crate::tools) type NextLook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(super) struct GitGuard {
    /// The git folder of the workspace; `None` if it has none, or if nothing is guarded.
    git: Option<PathBuf>,
    configs: BTreeSet<PathBuf>,
    next: Option<NextLook>,
}

impl GitGuard {
    /// Prepares the guard of a command. A clone has none: the user runs no git command there.
    pub(super) async fn of(parts: &ToolParts, walls: Option<&Walls>) -> Self {
        let git = parts.files.workspace.path().join(".git");
        if parts.work.is_some() || walls.is_none() || !is_folder(&git) {
            return Self::default();
        }
        offload(move || {
            let configs = git_folders(&git).into_iter().map(|it| it.join(WORKTREE_CONFIG));
            let configs = configs.filter(|path| exists(path)).collect();
            Self { git: Some(git), configs, next: None }
        })
        .await
    }

    /// Adds work that runs git after an interrupted command.
    pub(super) fn before(mut self, next: NextLook) -> Self {
        self.next = Some(next);
        self
    }

    /// Quarantines what the command, which has ended, has left. Returns a text below its output.
    pub(super) async fn report(mut self) -> String {
        self.next = None;
        let Some(git) = self.git.take() else { return String::new() };
        let configs = mem::take(&mut self.configs);
        offload(move || quarantine_all(&git, &configs)).await
    }
}

/// A call that is interrupted drops its guard, and then its command ends.
impl Drop for GitGuard {
    fn drop(&mut self) {
        let (git, next) = (self.git.take(), self.next.take());
        if git.is_none() && next.is_none() {
            return;
        }
        let configs = mem::take(&mut self.configs);
        // A thread, because the event loop must not wait. Without one, the file stays as if the agent had been killed.
        let look = move || {
            command::settle(END_TIMEOUT);
            if let Some(git) = git {
                quarantine_all(&git, &configs);
            }
            if let Some(next) = next {
                next();
            }
        };
        let thread = thread::Builder::new().name("git-guard".into()).spawn(look);
        thread.map(drop).unwrap_or_default();
    }
}

fn quarantine_all(git: &Path, configs: &BTreeSet<PathBuf>) -> String {
    let mut text = String::new();
    let mut planted = Vec::new();
    for folder in git_folders(git) {
        let (common, config) = (folder.join(COMMON_FOLDER), folder.join(WORKTREE_CONFIG));
        let is_worktree = folder.parent().is_some_and(|parent| parent == git.join("worktrees"));
        if exists(&common) && !(is_worktree && names_folder(&common, git)) {
            planted.push((common, is_worktree.then_some(COMMON_OF_WORKTREES)));
        }
        if exists(&config) && !configs.contains(&config) {
            planted.push((config, None));
        }
    }
    for (path, right) in planted {
        let done = quarantine(&path, right);
        tracing::warn!(path = %path.display(), done = log_words::done(&done), "a command left a file by which git runs code");
        let shown = path.strip_prefix(git.parent().unwrap_or(git)).unwrap_or(&path).display();
        let told = match done {
            Ok(()) => format!(
                "\n[git: {shown} would have the user's git commands run what it names; it was renamed to {shown}{QUARANTINED}]"
            ),
            Err(why) => format!(
                "\n[git: {shown} has the user's git commands run what it names, and could not be renamed ({why}); remove it]"
            ),
        };
        text.push_str(&told);
    }
    text
}

/// Renames a file, and puts the right content in its place if it is to be there.
fn quarantine(path: &Path, right: Option<&str>) -> io::Result<()> {
    let mut to = OsString::from(path);
    to.push(QUARANTINED);
    fs::rename(path, to)?;
    right.map_or(Ok(()), |right| {
        io::Write::write_all(&mut fs::File::create_new(path)?, right.as_bytes())
    })
}

/// Returns a git folder with those of its worktrees and submodules.
fn git_folders(git: &Path) -> Vec<PathBuf> {
    [vec![git.to_owned()], of_worktrees(git), Submodules::of(git).git_folders].concat()
}

/// Whether the file names this folder, as git reads it.
fn names_folder(file: &Path, folder: &Path) -> bool {
    // A pipe would be read for ever.
    let is_small = |known: fs::Metadata| known.is_file() && known.len() <= MOST_BYTES;
    if !fs::symlink_metadata(file).is_ok_and(is_small) {
        return false;
    }
    let (Ok(text), Some(own)) = (fs::read_to_string(file), file.parent()) else { return false };
    let named = own.join(text.trim_end_matches(['\n', '\r']));
    let real = |path: &Path| fs::canonicalize(path).ok();
    real(&named).is_some_and(|named| Some(named) == real(folder))
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|known| known.is_dir())
}
