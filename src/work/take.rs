//! Offers the work of a clone, and takes it into the files of the user: only if it merges without conflict, and only
//! into files without other changes. Index, stash and branches of the user stay as they are.

use super::changes::{self, Change, Changes, is_none};
use super::error::WorkError;
use super::exchange::{self, Exchanged};
use super::repository::Repository;
use super::save::Saver;
use crate::leases;
use crate::os::failpoint::hit;
use crate::os::git::{GitError, GitOutput, split};
use crate::store::TeamDir;
use crate::store::file_writes::FileLock;
use crate::wire::AgentName;
use crate::wire::isolation::ClonePlace;
use crate::wire::limits::LOCK_TIMEOUT;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The maximum number of files that are locked against the file tools of other agents while they are changed.
const MOST_LOCKED: usize = 200;

/// The attempts to merge with files that change meanwhile.
const ATTEMPTS: usize = 6;

/// The mode of an entry that names a commit of another repository.
const SUBMODULE: &str = "160000";

/// The outcome of a merge of a teammate's work with the files of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Merged {
    /// It merges; the text lists the changed files.
    Clean { stat: String },
    /// These files conflict.
    Conflict { files: Vec<String> },
}

/// The part of a teammate's work that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkToTake {
    /// The last offer.
    Offer,
    /// The last offer, else the last save.
    OfferOrSaved,
}

/// A user's repository, for the work of one teammate.
#[derive(Debug)]
pub(crate) struct Taker {
    pub(crate) team: TeamDir,
    pub(crate) name: AgentName,
    pub(crate) place: ClonePlace,
    /// The agent that takes it, which leases bind, or the person.
    pub(crate) by: AgentName,
    /// The environment of git.
    pub(crate) environment: Vec<(String, String)>,
}

/// A merge that was not applied yet.
struct Merge {
    head: String,
    /// The tree of the user's files.
    view: String,
    result: Result<String, Vec<String>>,
}

/// Saves the work of a clone and offers it. Fails if there is none.
pub(crate) fn offer(saver: &Saver, team: &TeamDir) -> Result<Merged, WorkError> {
    let (name, place) = (&saver.name, &saver.place);
    let saved = saver.save()?;
    let repository = saver.repository()?;
    let what = "the work cannot be offered";
    let git_error = |why: GitError| WorkError::git(what, &why);
    let is_new = saved.tree != repository.tree(&place.base).map_err(git_error)?;
    let Some(wip) = saved.wip.filter(|_| is_new) else {
        let why = "no file differs from those with which the clone began";
        return Err(WorkError::new("there is nothing to offer", why, "do the work first"));
    };
    repository.point(name, "offer", &wip, None).map_err(git_error)?;
    if !place.project_host.is_empty() {
        // The files of the user are on another host, which merges them when it takes the work.
        let stat = stat(&repository, &place.base, &wip).map_err(git_error)?;
        return Ok(Merged::Clean { stat });
    }
    let environment = saver.setup.env.clone();
    let (by, name, place) = (name.clone(), name.clone(), place.clone());
    let taker = Taker { team: team.clone(), name, place, by, environment };
    let merge = taker.merge(&repository, &wip)?;
    merge.told(&repository).map_err(git_error)
}

impl Merge {
    fn told(&self, repository: &Repository) -> Result<Merged, GitError> {
        Ok(match &self.result {
            Err(files) => Merged::Conflict { files: files.clone() },
            Ok(tree) => Merged::Clean { stat: stat(repository, &self.view, tree)? },
        })
    }
}

/// Lists the changes between two trees, for people.
pub(super) fn stat(repository: &Repository, from: &str, to: &str) -> Result<String, GitError> {
    let words = ["diff-tree", "-r", "--no-renames", "--stat=100", "--stat-count=60", from, to];
    repository.git.run(&words)
}

impl Taker {
    /// Takes the work into the files of the user.
    pub(crate) fn take(&self, wanted: WorkToTake) -> Result<Merged, WorkError> {
        let host = &self.place.project_host;
        if !host.is_empty() {
            let what = format!("the work of {} was not taken", self.name);
            let why = format!("the files of its project are on {host}");
            return Err(WorkError::new(what, why, format!("take it there, on {host}")));
        }
        let repository = Repository::find(Path::new(&self.place.repository), &self.environment)?;
        let offer = repository.reference(&self.name, "offer");
        let saved = || match wanted {
            WorkToTake::Offer => None,
            WorkToTake::OfferOrSaved => repository.reference(&self.name, "wip"),
        };
        let Some(work) = offer.or_else(saved) else {
            let hint = "ask it to call offer_work when it is done";
            let why = format!("{} has offered nothing", self.name);
            return Err(WorkError::new("there is nothing to take", why, hint));
        };
        let what = format!("the work of {} was not taken", self.name);
        let git_error = |why: GitError| WorkError::git(&what, &why);
        let mut locks = Vec::new();
        let mut before = None;
        let mut in_use = None;
        for _ in 0..ATTEMPTS {
            let merge = self.merge(&repository, &work)?;
            let told = merge.told(&repository).map_err(git_error)?;
            let Ok(tree) = &merge.result else { return Ok(told) };
            let changed = changes::between(&repository, &merge.view, tree).map_err(git_error)?;
            self.check(&repository, &merge, &changed)?;
            // Merged under the locks, and with the same files as before them.
            if let Some((view, seen)) = &before
                && *view == merge.view
            {
                hit("work.merged");
                let beside = Path::new(&self.place.path);
                match exchange::run(&repository, beside, tree, &changed, seen)? {
                    Exchanged::All => {}
                    Exchanged::None(path) => {
                        (before, in_use) = (None, Some(path));
                        continue;
                    }
                }
                hit("work.applied");
                let text = format!("Taken from {}", self.name);
                let taken = repository.commit(tree, &[&work], &text).map_err(git_error)?;
                repository.point(&self.name, "taken", &taken, None).map_err(git_error)?;
                return Ok(told);
            }
            drop(std::mem::take(&mut locks));
            locks = self.lock(&repository, changed.keys())?;
            let seen = exchange::look(&repository, changed.keys());
            let seen = seen.map_err(|why| WorkError::file(&repository.top, &why))?;
            before = Some((merge.view, seen));
        }
        let why = in_use.map_or_else(
            || "the files of the workspace keep changing".to_owned(),
            |path| format!("another program writes {}, or has it open for that", path.display()),
        );
        Err(WorkError::new(what, why, "wait until the others are idle, then try again"))
    }

    /// Merges work with the files of the user as they are. No file is changed.
    fn merge(&self, repository: &Repository, work: &str) -> Result<Merge, WorkError> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let what = format!("the work of {} cannot be merged", self.name);
        let git_error = |why: GitError| WorkError::git(&what, &why);
        let number = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let index = format!("{}.{}.{}.index", self.place.path, number.0, number.1);
        let view = repository.view(Path::new(&index))?;
        let head = repository.head().map_err(git_error)?;
        let ours = repository.commit(&view, &[&head, &self.place.base], "The workspace");
        let ours = ours.map_err(git_error)?;
        let words =
            ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", &ours, work];
        let GitOutput { code, stdout, stderr } =
            repository.git.call(&words, b"").map_err(git_error)?;
        let mut names = split(&stdout).into_iter();
        let tree = names.next().unwrap_or_default();
        let result = match code {
            0 => Ok(tree),
            1 => Err(names.collect()),
            _ => {
                let hint = "look at both with git";
                return Err(WorkError::new(what, stderr.trim(), hint));
            }
        };
        Ok(Merge { head, view, result })
    }

    /// Fails if a changed file is not clean in the user's working tree, or is never taken.
    fn check(
        &self,
        repository: &Repository,
        merge: &Merge,
        changed: &Changes,
    ) -> Result<(), WorkError> {
        let what = format!("the work of {} was not taken", self.name);
        let git_error = |why: GitError| WorkError::git(&what, &why);
        let refuse = |files: Vec<&PathBuf>, why: &str, hint: &str| {
            let files: Vec<_> = files.into_iter().map(|path| path.to_string_lossy()).collect();
            if files.is_empty() {
                return Ok(());
            }
            Err(WorkError::new(&*what, format!("{why}: {}", files.join(", ")), hint))
        };
        let team = self.team.root();
        let team = team.canonicalize().unwrap_or_else(|_| team.to_owned());
        let in_team = |path: &&PathBuf| {
            let is_named = path.iter().any(|name| name == ".team");
            is_named || repository.top.join(path).starts_with(&team)
        };
        let hint = "ask for the work without them";
        refuse(changed.keys().filter(in_team).collect(), "it changes the team folder", hint)?;
        let submodules = changed.iter().filter(|(_, it)| it.modes.iter().any(|m| m == SUBMODULE));
        let submodules = submodules.map(|(path, _)| path).collect();
        refuse(submodules, "it changes nested repositories", hint)?;
        self.check_leases(repository, changed.keys())?;
        let head = repository.tree(&merge.head).map_err(git_error)?;
        let dirty = changes::between(repository, &head, &merge.view).map_err(git_error)?;
        let taken = ["for-each-ref", "--format=%(refname)", "refs/team/*/taken"];
        let taken = repository.git.run(&taken).map_err(git_error)?;
        let is_taken = |path: &Path, id: &String| {
            taken.lines().any(|taken| {
                let named = format!("{taken}:{}", path.display());
                let found = repository.git.run(&["rev-parse", "--quiet", "--verify", &named]);
                found.map_or_else(|_| is_none(id), |found| found == *id)
            })
        };
        let is_dirty = |path: &&PathBuf| {
            let change = dirty.get(path.as_path());
            change.is_some_and(|Change { ids: [_, id], .. }| !is_taken(path, id))
        };
        let files = changed.keys().filter(is_dirty).collect();
        let hint = "commit or stash these files, then take the work";
        refuse(files, "these files have changes that are not committed", hint)?;
        let is_missing = |(path, change): &(&PathBuf, &Change)| {
            !change.is_new() && fs::symlink_metadata(repository.top.join(path)).is_err()
        };
        let files = changed.iter().filter(is_missing).map(|(path, _)| path).collect();
        let hint = "add them to the checkout (`git sparse-checkout add`), then take the work";
        refuse(files, "these files are not checked out", hint)?;
        let is_in_the_way = |(path, change): &(&PathBuf, &Change)| {
            change.is_new() && has_others(&repository.top, path, changed)
        };
        let files = changed.iter().filter(is_in_the_way).map(|(path, _)| path).collect();
        refuse(files, "ignored files are in the way", "move these files, then take the work")
    }

    /// Fails if another agent than the taker has leased a file.
    fn check_leases<'a>(
        &self,
        repository: &Repository,
        files: impl Iterator<Item = &'a PathBuf>,
    ) -> Result<(), WorkError> {
        if self.by.is_user() {
            return Ok(());
        }
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (workspace, top) = (real(self.team.workspace()), real(&repository.top));
        let what = format!("the work of {} was not taken", self.name);
        for file in files {
            let path = top.join(file);
            let Ok(path) = path.strip_prefix(&workspace) else { continue };
            let found = leases::conflict(&self.team, &self.by, &path.to_string_lossy());
            if let Some(conflict) = found.map_err(|why| WorkError::new(&*what, &why, why.hint()))? {
                let hint = leases::way_out(&conflict.owner);
                return Err(WorkError::new(what, leases::in_words(&conflict), hint));
            }
        }
        Ok(())
    }

    /// Takes the locks of files, so that no agent of the team writes them meanwhile.
    fn lock<'a>(
        &self,
        repository: &Repository,
        files: impl ExactSizeIterator<Item = &'a PathBuf>,
    ) -> Result<Vec<FileLock>, WorkError> {
        if files.len() > MOST_LOCKED {
            return Ok(Vec::new());
        }
        let top = repository.top.canonicalize().unwrap_or_else(|_| repository.top.clone());
        let lock = |file: &PathBuf| -> Result<FileLock, WorkError> {
            let real: PathBuf = top.join(file);
            FileLock::take(&self.team, &real, LOCK_TIMEOUT).map_err(|why| {
                WorkError::new(format!("{} cannot be used", file.display()), why, "try again")
            })
        };
        files.map(lock).collect()
    }
}

/// Whether something is at a path, or below it, that is not removed.
fn has_others(top: &Path, path: &Path, changed: &Changes) -> bool {
    let Ok(found) = fs::symlink_metadata(top.join(path)) else { return false };
    if !found.is_dir() {
        return !changed.get(path).is_some_and(Change::is_removal);
    }
    let entries = fs::read_dir(top.join(path)).into_iter().flatten().flatten();
    let entries: Vec<_> = entries.map(|entry| path.join(entry.file_name())).collect();
    entries.is_empty() || entries.iter().any(|entry| has_others(top, entry, changed))
}
