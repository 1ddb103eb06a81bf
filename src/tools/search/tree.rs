//! The files of the workspace that a search sees.
//!
//! *Invariant:* a search opens no file that the agent may not read, and none outside the workspace, also while links are
//! changed under it.

use super::left_out::LeftOut;
use crate::os::safe_path::{SafePathError, SafeRoot};
use crate::store::asynchronous::EndWithCall;
use crate::tools::call::ToolError;
use crate::tools::files::{ReadCheck, ReadLimits};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, WalkBuilder, WalkState};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time after which a search ends with what it has found.
const LIMIT: Duration = Duration::from_secs(60);

/// The largest size of a file with rules about ignored files, in bytes.
const MAX_RULES_BYTES: u64 = 1024 * 1024;

/// The largest number of threads of one search.
const MAX_THREADS: usize = 8;

/// The part of a workspace in which a search looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    /// A folder or a file in the workspace; `None` for all of it.
    pub(super) path: Option<&'a str>,
    /// Files whose path does not match are left out, in the syntax of `rg --glob`.
    pub(super) glob: Option<&'a str>,
    /// Whether hidden and ignored files are searched, too.
    pub(super) has_all: bool,
    /// The number of folders below the path that are entered.
    pub(super) depth: Option<usize>,
}

/// The files that a search sees.
#[derive(Debug)]
pub(super) struct Tree {
    workspace: Arc<SafeRoot>,
    /// The folder or file, relative to the workspace and without links; empty for the workspace.
    below: PathBuf,
    globs: Override,
    /// Whether only files that match a glob are searched.
    is_selective: bool,
    has_all: bool,
    depth: Option<usize>,
    check: Option<ReadCheck>,
    /// The folders that are not entered, since their rules about ignored files must not be opened.
    passed_over: Arc<LeftOut>,
    /// Whether nobody waits for the search any more.
    is_dropped: Arc<AtomicBool>,
    deadline: Instant,
}

/// The continuation of a walk after a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Next,
    /// The walk ends: enough is found.
    End,
}

impl Tree {
    /// Fails if the path is not in the workspace or the glob cannot be understood.
    pub(super) fn new(
        workspace: &Arc<SafeRoot>,
        limits: Option<&ReadLimits>,
        scope: Scope<'_>,
    ) -> Result<(Self, EndWithCall), ToolError> {
        let path = scope.path.unwrap_or(".");
        let below = workspace.resolve(Path::new(path)).map_err(|why| path_error(path, &why))?;
        if !workspace.path().join(&below).exists() {
            return Err(ToolError::Reply(format!(
                "{path} does not exist; list_files shows what is there"
            )));
        }
        let globs = globs(workspace.path(), scope.glob).map_err(|why| {
            ToolError::Reply(format!("the glob cannot be understood: {why}; an example is *.rs"))
        })?;
        let root = workspace.path();
        if !scope.has_all && root.join(&below).ancestors().any(has_odd_rules) {
            return Err(ToolError::reply(
                "not searched: a .gitignore, .ignore or .rgignore above is no regular file, or longer than 1 MiB; set `all`, \
                 or search in another folder",
            ));
        }
        let end = EndWithCall::default();
        let is_dropped = end.flag();
        let tree = Self {
            workspace: Arc::clone(workspace),
            below,
            is_selective: globs.num_whitelists() > 0,
            globs,
            has_all: scope.has_all,
            depth: scope.depth,
            check: limits.map(ReadLimits::check),
            passed_over: Arc::default(),
            is_dropped,
            deadline: Instant::now() + LIMIT,
        };
        Ok((tree, end))
    }

    /// Walks on several threads; `visitor` makes the function that each of them calls with a file or, at the largest
    /// depth, a folder. Returns whether every file was visited.
    pub(super) fn walk<V>(&self, visitor: impl Fn() -> V) -> bool
    where
        V: FnMut(Entry<'_>) -> Step + Send,
    {
        let is_whole = AtomicBool::new(true);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let is_seen = {
            let (root, check) = (self.workspace.path().to_owned(), self.check.clone());
            let (has_rules, passed_over) = (!self.has_all, Arc::clone(&self.passed_over));
            move |entry: &DirEntry| {
                if !is_seen(entry, &root, check.as_ref()) {
                    return false;
                }
                let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
                let is_passed_over = has_rules && is_folder && has_odd_rules(entry.path());
                if is_passed_over {
                    passed_over.note(entry.path().strip_prefix(&root).unwrap_or(entry.path()));
                }
                !is_passed_over
            }
        };
        let mut walk = WalkBuilder::new(self.workspace.path().join(&self.below));
        walk.hidden(!self.has_all)
            .ignore(!self.has_all)
            .git_ignore(!self.has_all)
            .git_global(!self.has_all)
            .git_exclude(!self.has_all)
            .parents(!self.has_all)
            .max_depth(self.depth)
            .filter_entry(is_seen)
            .threads(threads);
        if !self.is_selective {
            walk.overrides(self.globs.clone());
        }
        if !self.has_all {
            walk.add_custom_ignore_filename(".rgignore");
        }
        walk.build_parallel().run(|| {
            let mut visit = visitor();
            let is_whole = &is_whole;
            Box::new(move |entry| {
                if self.must_end() {
                    is_whole.store(false, Ordering::Relaxed);
                    return WalkState::Quit;
                }
                // A folder that cannot be read has no files for this agent.
                let Ok(entry) = entry else { return WalkState::Continue };
                let Some(entry) = Entry::new(self, &entry) else { return WalkState::Continue };
                match visit(entry) {
                    Step::Next => WalkState::Continue,
                    Step::End => {
                        is_whole.store(false, Ordering::Relaxed);
                        WalkState::Quit
                    }
                }
            })
        });
        // The last file may have been cut.
        is_whole.into_inner() && !self.must_end()
    }

    /// Returns a note about the folders that the walk has not entered.
    pub(super) fn passed_over(&self) -> Option<String> {
        let folders = self.passed_over.in_words()?;
        Some(format!(
            "[not searched: {folders}: a .gitignore, .ignore or .rgignore there is no regular file, or longer than 1 MiB; \
             `all` searches there]"
        ))
    }

    /// Whether nobody waits for the search any more, or it has taken too long.
    pub(super) fn must_end(&self) -> bool {
        self.is_dropped.load(Ordering::Relaxed) || Instant::now() > self.deadline
    }
}

/// Whether a folder has a file with rules that must not be opened: a pipe or a device, which may never end, or a huge one.
fn has_odd_rules(folder: &Path) -> bool {
    let names = [".gitignore", ".ignore", ".rgignore", ".git/info/exclude"];
    names.iter().any(|name| {
        let known = std::fs::metadata(folder.join(name));
        known.is_ok_and(|it| !it.is_dir() && (!it.is_file() || it.len() > MAX_RULES_BYTES))
    })
}

/// A file that a walk has found, or a folder at its largest depth.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    tree: &'a Tree,
    /// The path in the workspace.
    pub(super) path: PathBuf,
    pub(super) is_folder: bool,
}

impl<'a> Entry<'a> {
    fn new(tree: &'a Tree, entry: &DirEntry) -> Option<Self> {
        let kind = entry.file_type()?;
        let is_folder = kind.is_dir();
        if is_folder && (entry.depth() == 0 || Some(entry.depth()) != tree.depth) {
            return None;
        }
        if !is_folder && !kind.is_file() {
            return None;
        }
        // The walk does not ask about its root.
        if entry.depth() == 0 && !is_seen(entry, tree.workspace.path(), tree.check.as_ref()) {
            return None;
        }
        // As overrides of the walk, these globs would bring in ignored files, too.
        if tree.is_selective && tree.globs.matched(entry.path(), is_folder).is_ignore() {
            return None;
        }
        let path = entry.path().strip_prefix(tree.workspace.path()).ok()?.to_owned();
        Some(Self { tree, path, is_folder })
    }

    /// Opens the file; `None` if it is no regular file of the workspace any more.
    pub(super) fn open(&self) -> Option<File> {
        self.tree.workspace.open_without_links(&self.path).ok()?
    }
}

fn globs(root: &Path, glob: Option<&str>) -> Result<Override, ignore::Error> {
    let mut globs = OverrideBuilder::new(root);
    if let Some(glob) = glob {
        globs.add(glob)?;
    }
    globs.build()
}

/// Whether a search may see a file or folder.
fn is_seen(entry: &DirEntry, workspace: &Path, check: Option<&ReadCheck>) -> bool {
    // A folder of git is as large as the files, and says nothing about them.
    if entry.depth() > 0 && entry.file_name() == ".git" {
        return false;
    }
    let Ok(inside) = entry.path().strip_prefix(workspace) else { return false };
    inside.as_os_str().is_empty() || !check.is_some_and(|check| check.refuses(entry.path()))
}

fn path_error(path: &str, why: &SafePathError) -> ToolError {
    let path: String = path.chars().take(256).collect();
    ToolError::Reply(format!(
        "{path}: {why}; a search stays in the workspace: give a path inside it, or use bash"
    ))
}
