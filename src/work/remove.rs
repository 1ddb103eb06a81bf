//! Removes a clone, if all of its work is in the user's repository. There is no way to remove it otherwise.

use super::clone::{description, first_index, known, remove};
use super::error::WorkError;
use super::repository::{Repository, tips};
use super::save::{Saver, fetch};
use crate::os::command;
use crate::os::failpoint::hit;
use crate::os::git::{GitError, split};
use crate::os::pidfd::ExitKind;
use crate::wire::AgentName;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time for the list of ignored files.
const LIMIT: Duration = Duration::from_secs(120);
const MAX_OUTPUT: usize = 16 * 1024 * 1024;

/// The maximum number of repositories that an error names.
const MOST_NAMED: usize = 5;

/// The maximum number of ignored files that are named.
const MOST_IGNORED: usize = 10;

/// The maximum number of commits that nothing names, which one drop saves.
const MOST_LOST: usize = 5000;

/// The result of the removal of a clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removed {
    /// The ignored files and folders that were in the clone. They are not saved.
    pub(crate) ignored: Vec<String>,
    /// Whether the clone was missing before.
    pub(crate) was_missing: bool,
}

impl Removed {
    /// Returns the outcome as a text for the user.
    pub(crate) fn in_words(&self, name: &AgentName) -> String {
        let saved = format!(
            "its work stays in refs/team/{name}/wip (`git diff refs/team/{name}/base refs/team/{name}/wip` shows it)"
        );
        let mut text = if self.was_missing {
            format!("The clone of {name} was missing and is no longer listed; {saved}.")
        } else {
            format!("The clone of {name} is removed; {saved}.")
        };
        if !self.ignored.is_empty() {
            let named: Vec<&str> =
                self.ignored.iter().take(MOST_IGNORED).map(String::as_str).collect();
            let more = self.ignored.len().saturating_sub(MOST_IGNORED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let _infallible =
                write!(text, "\nIgnored files in it were not saved: {}{more}.", named.join(", "));
        }
        text
    }
}

/// Saves the work of a clone and removes the clone. Its teammate must not run. Fails, and keeps the clone, if something
/// in it is not saved.
pub(crate) fn drop_clone(saver: &Saver) -> Result<Removed, WorkError> {
    let path = Path::new(&saver.place.path);
    let kept = format!("the clone of {} is kept", saver.name);
    let Some(clones) = path.parent() else {
        return Err(WorkError::new(kept, "its path has no parent", "remove it by hand"));
    };
    let going = clones.join(format!(".{}.dropped", saver.name));
    let is_there = fs::symlink_metadata(path).is_ok();
    // A roster can name any path. One that is not there may be what an interrupted removal has left.
    if known(clones, &saver.name).is_none_or(|made| made.path != saver.place.path) && is_there {
        let why = format!("no clone was made there: {}", path.display());
        return Err(WorkError::new(kept, why, "remove it by hand"));
    }
    if !is_there {
        remove(&going)?;
        forget(saver, clones)?;
        return Ok(Removed { ignored: Vec::new(), was_missing: true });
    }
    let user = users(path);
    if let Some(pid) = user.first() {
        let hint = "end it, then try again";
        return Err(WorkError::new(kept, format!("the process {pid} works in it"), hint));
    }
    let ignored = ignored(saver)?;
    let inner = inner_repositories(path)?;
    if !inner.is_empty() {
        let names: Vec<_> =
            inner.iter().take(MOST_NAMED).map(|inner| inner.to_string_lossy()).collect();
        let more = inner.len().saturating_sub(MOST_NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let why = format!(
            "it contains repositories, which are saved nowhere: {}{more}",
            names.join(", ")
        );
        return Err(WorkError::new(kept, why, "move them away or remove them, then try again"));
    }
    saver.save()?;
    let repository = saver.repository()?;
    let git_error = |why: GitError| WorkError::git(&kept, &why);
    save_lost(saver, &repository).map_err(git_error)?;
    let lost = lost_commits(saver, &repository).map_err(git_error)?;
    if !lost.is_empty() {
        let why = format!("{} of its commits could not be saved", lost.len());
        return Err(WorkError::new(kept, why, format!("look at `git -C {} fsck`", path.display())));
    }
    hit("work.kept");
    remove(&going)?;
    fs::rename(path, &going).map_err(|why| WorkError::file(path, &why))?;
    hit("work.moved");
    // Until the description is gone, a repeated removal goes on from here.
    remove(&going)?;
    hit("work.removed");
    forget(saver, clones)?;
    Ok(Removed { ignored, was_missing: false })
}

fn forget(saver: &Saver, clones: &Path) -> Result<(), WorkError> {
    fs::remove_file(first_index(Path::new(&saver.place.path))).unwrap_or_default();
    let file = description(clones, &saver.name);
    match fs::remove_file(&file) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(WorkError::file(&file, &why)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the processes whose working folder is in a clone, as far as they can be seen.
fn users(path: &Path) -> Vec<i32> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_inside = |pid: &i32| {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&real))
    };
    pids.filter(is_inside).collect()
}

/// Returns the ignored files and folders of a clone.
fn ignored(saver: &Saver) -> Result<Vec<String>, WorkError> {
    let list =
        "git -c core.fsmonitor=false ls-files -z --others --ignored --exclude-standard --directory";
    let folder = Path::new(&saver.place.path);
    let ran = command::run_to_end(list.as_ref(), folder, &saver.setup, LIMIT, MAX_OUTPUT);
    let what = format!("the clone of {} is kept", saver.name);
    match ran {
        Ok((ExitKind::Code(0), output)) => Ok(split(&output)),
        Ok((_, output)) => {
            let why = String::from_utf8_lossy(&output).trim().to_owned();
            Err(WorkError::new(what, why, "repair the clone with git"))
        }
        Err(why) => Err(WorkError::new(what, why, "try again")),
    }
}

/// Returns the repositories in a clone besides its own, also in ignored folders and in its git folder, which holds those
/// of submodules. No link is followed. Fails if a folder cannot be read.
fn inner_repositories(path: &Path) -> Result<Vec<PathBuf>, WorkError> {
    let own = path.join(".git");
    let (mut found, mut open) = (Vec::new(), vec![path.to_owned()]);
    while let Some(folder) = open.pop() {
        let error = |why: std::io::Error| WorkError::file(&folder, &why);
        let is_bare = folder.join("HEAD").is_file() && folder.join("objects").is_dir();
        let has_own = fs::symlink_metadata(folder.join(".git")).is_ok();
        if folder != own && (is_bare || (has_own && folder != path)) {
            found.push(folder.strip_prefix(path).unwrap_or(&folder).to_owned());
            continue;
        }
        for entry in fs::read_dir(&folder).map_err(error)? {
            let entry = entry.map_err(error)?;
            let is_objects = folder == own && entry.file_name() == "objects";
            if !is_objects && entry.file_type().map_err(error)?.is_dir() {
                open.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Saves the commits of a clone that none of its references and logs names, such as a dropped stash.
fn save_lost(saver: &Saver, repository: &Repository) -> Result<(), GitError> {
    let lost = lost_commits(saver, repository)?;
    if lost.is_empty() || lost.len() > MOST_LOST {
        return Ok(());
    }
    fetch(repository, &saver.place, &lost)?;
    let wip = repository.reference(&saver.name, "wip");
    let first = wip.as_deref().unwrap_or(&saver.place.base);
    let new = tips(&repository.unreached(&lost, &[first])?);
    let mut parents = vec![first];
    parents.extend(new.iter().map(String::as_str));
    let text = format!("Commits of {} that nothing named", saver.name);
    let kept = repository.commit(&repository.tree(first)?, &parents, &text)?;
    repository.point(&saver.name, "wip", &kept, Some(wip.as_deref().unwrap_or_default()))
}

/// Returns the commits that are in a clone and not in the user's repository.
fn lost_commits(saver: &Saver, repository: &Repository) -> Result<Vec<String>, GitError> {
    let words = [
        "cat-file",
        "--batch-all-objects",
        "--unordered",
        "--batch-check=%(objecttype) %(objectname)",
    ];
    let commits = |git: &crate::os::git::Git| -> Result<BTreeSet<String>, GitError> {
        let output = git.checked(&words, b"")?;
        let text = String::from_utf8_lossy(&output);
        let commits = text.lines().filter_map(|line| line.strip_prefix("commit "));
        Ok(commits.map(ToOwned::to_owned).collect())
    };
    let known = commits(&repository.git)?;
    let objects = Path::new(&saver.place.path).join(".git/objects");
    let both = commits(&repository.git.with("GIT_ALTERNATE_OBJECT_DIRECTORIES", &objects))?;
    Ok(both.difference(&known).cloned().collect())
}
