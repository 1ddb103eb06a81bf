//! Offers the work of a clone, and takes it into the files of the user: only if it merges without conflict, and only
//! into files without other changes. Index, stash and branches of the user stay as they are.

use super::error::WorkError;
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
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The maximum number of files that are locked against the file tools of other agents while they are changed.
const MOST_LOCKED: usize = 200;

/// The attempts to merge with files that change meanwhile.
const ATTEMPTS: usize = 5;

/// The begin of the name of a folder in the git folder of the workspace, for second names of files.
const KEPT: &str = "team-take";

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

/// A change of one file between two trees.
struct Change {
    modes: [String; 2],
    ids: [String; 2],
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
        for _ in 0..ATTEMPTS {
            let merge = self.merge(&repository, &work)?;
            let told = merge.told(&repository).map_err(git_error)?;
            let Ok(tree) = &merge.result else { return Ok(told) };
            let changed = changes(&repository, &merge.view, tree).map_err(git_error)?;
            self.check(&repository, &merge, &changed)?;
            // Merged under the locks, and with the same files as before them.
            if before.as_ref() == Some(&merge.view) {
                hit("work.merged");
                let kept = KeptFiles::keep(&repository, &changed).map_err(|why| {
                    WorkError::new(&*what, why, "look at the git folder of the workspace")
                })?;
                let applied = apply(&repository, &merge.view, tree);
                kept.end(&repository, tree, applied.is_ok());
                applied.map_err(git_error)?;
                hit("work.applied");
                let text = format!("Taken from {}", self.name);
                let taken = repository.commit(tree, &[&work], &text).map_err(git_error)?;
                repository.point(&self.name, "taken", &taken, None).map_err(git_error)?;
                return Ok(told);
            }
            drop(std::mem::take(&mut locks));
            locks = self.lock(&repository, changed.keys())?;
            before = Some(merge.view);
        }
        let why = "the files of the workspace change all the time";
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
        changed: &BTreeMap<String, Change>,
    ) -> Result<(), WorkError> {
        let what = format!("the work of {} was not taken", self.name);
        let git_error = |why: GitError| WorkError::git(&what, &why);
        let refuse = |files: Vec<&String>, why: &str, hint: &str| {
            let files: Vec<&str> = files.into_iter().map(String::as_str).collect();
            if files.is_empty() {
                return Ok(());
            }
            Err(WorkError::new(&*what, format!("{why}: {}", files.join(", ")), hint))
        };
        let team = self.team.root();
        let team = team.canonicalize().unwrap_or_else(|_| team.to_owned());
        let in_team = |path: &&String| {
            let is_named = Path::new(path.as_str()).iter().any(|name| name == ".team");
            is_named || repository.top.join(path).starts_with(&team)
        };
        let hint = "ask for the work without them";
        refuse(changed.keys().filter(in_team).collect(), "it changes the team folder", hint)?;
        let submodules = changed.iter().filter(|(_, it)| it.modes.iter().any(|m| m == SUBMODULE));
        let submodules = submodules.map(|(path, _)| path).collect();
        refuse(submodules, "it changes repositories in the repository", hint)?;
        self.check_leases(repository, changed.keys())?;
        let head = repository.tree(&merge.head).map_err(git_error)?;
        let dirty = changes(repository, &head, &merge.view).map_err(git_error)?;
        let taken = ["for-each-ref", "--format=%(refname)", "refs/team/*/taken"];
        let taken = repository.git.run(&taken).map_err(git_error)?;
        let is_taken = |path: &String, id: &String| {
            taken.lines().any(|taken| {
                let named = format!("{taken}:{path}");
                let found = repository.git.run(&["rev-parse", "--quiet", "--verify", &named]);
                found.map_or_else(|_| is_none(id), |found| found == *id)
            })
        };
        let is_dirty = |path: &&String| {
            let change = dirty.get(path.as_str());
            change.is_some_and(|Change { ids: [_, id], .. }| !is_taken(path, id))
        };
        let files = changed.keys().filter(is_dirty).collect();
        let hint = "commit or stash these files, then take the work";
        refuse(files, "these files have changes that are not committed", hint)?;
        let is_in_the_way = |(path, change): &(&String, &Change)| {
            is_none(&change.ids[0]) && fs::symlink_metadata(repository.top.join(path)).is_ok()
        };
        let files = changed.iter().filter(is_in_the_way).map(|(path, _)| path).collect();
        refuse(files, "ignored files are in the way", "move these files, then take the work")
    }

    /// Fails if another agent than the taker has leased a file.
    fn check_leases<'a>(
        &self,
        repository: &Repository,
        files: impl Iterator<Item = &'a String>,
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
        files: impl ExactSizeIterator<Item = &'a String>,
    ) -> Result<Vec<FileLock>, WorkError> {
        if files.len() > MOST_LOCKED {
            return Ok(Vec::new());
        }
        let top = repository.top.canonicalize().unwrap_or_else(|_| repository.top.clone());
        let lock = |file: &String| -> Result<FileLock, WorkError> {
            let real: PathBuf = top.join(file);
            FileLock::take(&self.team, &real, LOCK_TIMEOUT)
                .map_err(|why| WorkError::new(format!("{file} is not usable"), why, "try again"))
        };
        files.map(lock).collect()
    }
}

/// The files of the user that a take changes, under second names, until it has ended. Git removes each file before it writes
/// its next version, and leaves those that it has written when one does not fit.
#[derive(Debug)]
struct KeptFiles {
    folder: PathBuf,
    /// The path in the repository of each file, and its second name; `None` if there is no file.
    files: Vec<(String, Option<PathBuf>)>,
}

impl KeptFiles {
    /// Names the files. One that cannot have a second name, as on another file system, is left out.
    fn keep(repository: &Repository, changed: &BTreeMap<String, Change>) -> io::Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        // Others may take work at the same time. A take that was killed leaves its folder.
        let number = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = repository.own.join(format!("{KEPT}.{}.{}", number.0, number.1));
        fs::remove_dir_all(&folder).unwrap_or_default();
        fs::create_dir(&folder)?;
        let name = |(number, (path, change)): (usize, (&String, &Change))| {
            if is_none(&change.ids[0]) {
                return Some((path.clone(), None));
            }
            let second = folder.join(number.to_string());
            let named = fs::hard_link(repository.top.join(path), &second);
            named.is_ok().then(|| (path.clone(), Some(second)))
        };
        let files = changed.iter().enumerate().filter_map(name).collect();
        Ok(Self { folder, files })
    }

    /// Removes the second names. If the take has failed, the files are put back before.
    fn end(self, repository: &Repository, to: &str, is_taken: bool) {
        if !is_taken {
            for (path, second) in &self.files {
                let done = put_back(repository, to, path, second.as_deref());
                done.unwrap_or_else(|why| tracing::warn!(%why, path, "a file is not put back"));
            }
        }
        fs::remove_dir_all(&self.folder).unwrap_or_default();
    }
}

/// Puts a file back, unless another program has written it meanwhile.
fn put_back(
    repository: &Repository,
    to: &str,
    path: &str,
    second: Option<&Path>,
) -> io::Result<()> {
    let file = repository.top.join(path);
    let folder = file.parent().unwrap_or(&repository.top);
    let is_inside = fs::canonicalize(folder).is_ok_and(|real| real == folder);
    let is_of_take = || match fs::symlink_metadata(&file) {
        Err(_) => true,
        Ok(found) if !found.is_file() => false,
        Ok(_) => {
            let new =
                repository.git.checked(&["cat-file", "--filters", &format!("{to}:{path}")], b"");
            let now = fs::read(&file).unwrap_or_default();
            // Not all of it may have fitted.
            new.is_ok_and(|new| new.starts_with(&now))
        }
    };
    if !is_inside || !is_of_take() {
        return Ok(());
    }
    match second {
        // Nothing happens if both are the same file.
        Some(second) => fs::rename(second, &file),
        None => match fs::remove_file(&file) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
            Ok(()) | Err(_) => Ok(()),
        },
    }
}

/// Changes the files of the user. Git checks each file before it changes the first one.
fn apply(repository: &Repository, from: &str, to: &str) -> Result<(), GitError> {
    let words = ["diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", from, to];
    let patch = repository.git.checked(&words, b"")?;
    if patch.is_empty() {
        return Ok(());
    }
    let plain = ["-c", "apply.ignoreWhitespace=no", "apply", "--whitespace=nowarn", "-"];
    repository.git.checked(&plain, &patch).map(drop)
}

/// Whether the id of an object stands for a missing file.
fn is_none(id: &str) -> bool {
    id.bytes().all(|byte| byte == b'0')
}

/// Returns the files that differ between two trees.
fn changes(
    repository: &Repository,
    from: &str,
    to: &str,
) -> Result<BTreeMap<String, Change>, GitError> {
    let words = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to];
    let fields = repository.git.names(&words)?;
    let mut changes = BTreeMap::new();
    for pair in fields.chunks_exact(2) {
        let [about, path] = pair else { continue };
        let mut words = about.trim_start_matches(':').split(' ').map(ToOwned::to_owned);
        let mut next = || words.next().unwrap_or_default();
        let (modes, ids) = ([next(), next()], [next(), next()]);
        changes.insert(path.clone(), Change { modes, ids });
    }
    Ok(changes)
}
