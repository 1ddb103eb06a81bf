//! Exchanges files of the user for their next versions: all of them, or none.
//!
//! Git writes the new versions into a folder aside first: beside the clones, where no command of an agent can put a link in
//! its way. Then each changes places with the old one in one step, and what has come aside is compared with the version
//! that was seen. If another program has written meanwhile, or a file does not fit on the disk, all files are put back.
//! What is aside is removed at the end, unless it is a version that nobody else has.

use super::changes::{Change, Changes};
use super::error::WorkError;
use super::left_takes;
use super::repository::Repository;

use crate::os::file::held_folder::{FileVersion, HeldFolder};
use crate::store::lock::try_exclusive;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The end of the names of folders and files aside.
const ASIDE: &str = "team-take";

/// The folders in it: with the new versions, and then the old ones in their places; and with files that are removed.
const NEW: &str = "new";
const REMOVED: &str = "removed";

const NOT_TAKEN: &str = "the work was not taken";

/// The files of the user that a take changes, as they were seen.
pub(super) type SeenFiles = BTreeMap<PathBuf, Option<FileVersion>>;

/// The end of an exchange.
#[derive(Debug)]
pub(super) enum Exchanged {
    All,
    /// This file is not as it was seen, or a program has it open for writing. No file is changed.
    None(PathBuf),
}

/// A failed step.
enum Failure {
    Changed,
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(why: io::Error) -> Self {
        let of_changes = [
            io::ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists,
            io::ErrorKind::NotADirectory,
            io::ErrorKind::IsADirectory,
        ];
        // The file, or a folder on the way to it, is not what it was.
        if of_changes.contains(&why.kind()) { Self::Changed } else { Self::Io(why) }
    }
}

/// The way in which a file is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Exchanged,
    Created,
    Removed,
}

/// A step that was done.
#[derive(Debug)]
enum Step {
    File(FileStep),
    FolderMade(PathBuf),
    FolderRemoved(PathBuf),
}

impl Step {
    fn path(&self) -> &Path {
        match self {
            Self::File(step) => &step.path,
            Self::FolderMade(path) | Self::FolderRemoved(path) => path,
        }
    }
}

/// A file that was changed.
#[derive(Debug)]
struct FileStep {
    path: PathBuf,
    way: Way,
    /// The new version; `None` if there is none.
    new: Option<FileVersion>,
    /// Whether the other version is beside the file, which is on another file system than the folder aside.
    is_beside: bool,
}

/// A file and its other version: each a folder and a name in it.
struct Places<'a> {
    folder: HeldFolder,
    name: &'a OsStr,
    aside: HeldFolder,
    aside_name: OsString,
}

/// A running exchange.
struct Exchange<'a> {
    repository: &'a Repository,
    top: HeldFolder,
    /// The folder aside.
    folder: PathBuf,
    aside: HeldFolder,
    done: Vec<Step>,
    /// Whether a version that nobody else has is aside.
    keeps: bool,
}

/// Looks at the files of the user at these paths.
pub(super) fn look<'a>(
    repository: &Repository,
    paths: impl Iterator<Item = &'a PathBuf>,
) -> io::Result<SeenFiles> {
    let top = HeldFolder::open(&repository.top)?;
    let see = |path: &PathBuf| Ok((path.clone(), version(&top, path)?));
    paths.map(see).collect()
}

fn version(top: &HeldFolder, path: &Path) -> io::Result<Option<FileVersion>> {
    let (folder, name) = parts(path);
    match top.enter(folder) {
        Ok(folder) => folder.version(name),
        // Nothing is below a file or a link.
        Err(_) => Ok(None),
    }
}

/// Returns the folder and the name in it.
fn parts(path: &Path) -> (&Path, &OsStr) {
    (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default())
}

/// Gives the files of the user the versions of a tree. `changed` has each that differs, and `seen` how it was when the tree
/// was made from it. `beside` is the path of the clone.
pub(super) fn run(
    repository: &Repository,
    beside: &Path,
    tree: &str,
    changed: &Changes,
    seen: &SeenFiles,
) -> Result<Exchanged, WorkError> {
    if let Some(clones) = beside.parent() {
        left_takes::remove(repository, clones, ASIDE);
    }
    let (folder, lock) = new_folder(beside).map_err(|why| WorkError::file(beside, &why))?;
    let at_folder = |why: io::Error| WorkError::file(&folder, &why);
    let exchange = Exchange {
        repository,
        top: HeldFolder::open(&repository.top).map_err(at_folder)?,
        aside: HeldFolder::open(&folder).map_err(at_folder)?,
        folder: folder.clone(),
        done: Vec::new(),
        keeps: false,
    };
    let written = write_new(repository, tree, changed, &folder);
    let end = written.map_or_else(
        |why| {
            fs::remove_dir_all(&folder).unwrap_or_default();
            Err(why)
        },
        |()| exchange.all(changed, seen),
    );
    drop(lock);
    end
}

/// Makes the folder aside, and locks it: without a lock, it is that of a killed take.
fn new_folder(beside: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    loop {
        let number = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = format!("{}.{}.{}.{ASIDE}", beside.display(), number.0, number.1);
        let folder = PathBuf::from(name);
        match fs::create_dir(&folder) {
            // A killed process of this number has left it.
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        let lock = File::open(&folder)?;
        if !try_exclusive(&lock)? {
            continue;
        }
        fs::create_dir(folder.join(NEW))?;
        fs::create_dir(folder.join(REMOVED))?;
        return Ok((folder, lock));
    }
}

/// Lets git write the new versions, as it writes them into a working tree.
fn write_new(
    repository: &Repository,
    tree: &str,
    changed: &Changes,
    folder: &Path,
) -> Result<(), WorkError> {
    let git = repository.git.with("GIT_INDEX_FILE", &folder.join("index"));
    let mut names = Vec::new();
    for path in changed.iter().filter(|(_, change)| !change.is_removal()).map(|(path, _)| path) {
        names.extend_from_slice(path.as_os_str().as_bytes());
        names.push(0);
    }
    let prefix = format!("--prefix={}/", folder.join(NEW).display());
    let write = || {
        git.run(&["read-tree", "--no-sparse-checkout", tree])?;
        git.checked(&["checkout-index", &prefix, "-z", "--stdin"], &names)
    };
    write().map(drop).map_err(|why| WorkError::git(NOT_TAKEN, &why))
}

impl Exchange<'_> {
    fn all(mut self, changed: &Changes, seen: &SeenFiles) -> Result<Exchanged, WorkError> {
        // Files and folders can take each other's places.
        let (removed, written): (Vec<_>, Vec<_>) =
            changed.iter().partition(|(_, change)| change.is_removal());
        let is_last_removal = removed.len().checked_sub(1);
        let mut end = Ok(Exchanged::All);
        for (number, (path, change)) in removed.into_iter().chain(written).enumerate() {
            let known = seen.get(path).and_then(Option::as_ref);
            if let Err(failure) = self.step(path, change, known) {
                self.put_all_back();
                end = match failure {
                    Failure::Changed => Ok(Exchanged::None(path.clone())),
                    Failure::Io(why) => Err(WorkError::file(&self.repository.top.join(path), &why)),
                };
                break;
            }
            if is_last_removal == Some(number) {
                self.remove_empty_folders();
            }
        }
        if matches!(end, Ok(Exchanged::All)) {
            self.remove_beside();
            self.remove_empty_folders();
        }
        if self.keeps {
            let why = "another program has written files in this moment";
            let hint = format!("its versions are in {}: look at them", self.folder.display());
            return Err(WorkError::new(NOT_TAKEN, why, hint));
        }
        fs::remove_dir_all(&self.folder).unwrap_or_default();
        end
    }

    /// Changes one file.
    fn step(
        &mut self,
        path: &Path,
        change: &Change,
        seen: Option<&FileVersion>,
    ) -> Result<(), Failure> {
        let way = match (change.is_removal(), change.is_new()) {
            (true, _) => Way::Removed,
            (false, true) => Way::Created,
            (false, false) => Way::Exchanged,
        };
        if way == Way::Created {
            self.make_folders(parts(path).0)?;
        }
        if way == Way::Removed {
            fs::create_dir_all(self.folder.join(REMOVED).join(parts(path).0))?;
        }
        let mut places = self.places(path, way, false)?;
        if let Some(seen) = seen.filter(|_| way == Way::Exchanged && change.keeps_mode()) {
            places.aside.set_mode_of(&places.aside_name, seen)?;
        }
        // Once a file has its name, another program can write it.
        let new_version = |places: &Places<'_>| match way {
            Way::Removed => Ok(None),
            Way::Exchanged | Way::Created => places.version_aside(),
        };
        let mut new = new_version(&places)?;
        let mut is_beside = false;
        let mut done = places.swap(way);
        if done.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::CrossesDevices) {
            let beside = self.places(path, way, true)?;
            if way != Way::Removed {
                places.aside.copy_to(&places.aside_name, &beside.aside, &beside.aside_name)?;
            }
            (places, is_beside) = (beside, true);
            new = new_version(&places)?;
            done = places.swap(way);
            if done.is_err() && way != Way::Removed {
                places.aside.remove(&places.aside_name).unwrap_or_default();
            }
        }
        done?;
        self.done.push(Step::File(FileStep { path: path.into(), way, new, is_beside }));
        // There is nothing aside of a new file.
        let is_as_seen = way == Way::Created
            || places.version_aside().is_ok_and(|now| now.as_ref() == seen)
                && !places.aside.has_writer(&places.aside_name);
        if is_as_seen { Ok(()) } else { Err(Failure::Changed) }
    }

    fn places<'a>(&self, path: &'a Path, way: Way, is_beside: bool) -> io::Result<Places<'a>> {
        let (folder, name) = parts(path);
        let part = if way == Way::Removed { REMOVED } else { NEW };
        let aside = if is_beside {
            self.top.enter(folder)?
        } else {
            self.aside.enter(&Path::new(part).join(folder))?
        };
        let aside_name = if is_beside { beside(name) } else { name.to_owned() };
        Ok(Places { folder: self.top.enter(folder)?, name, aside, aside_name })
    }

    /// Makes the folders of a file.
    fn make_folders(&mut self, path: &Path) -> io::Result<()> {
        let mut made = PathBuf::new();
        let mut folder = self.top.enter(&made)?;
        for name in path {
            made.push(name);
            if folder.make_folder(name)? {
                self.done.push(Step::FolderMade(made.clone()));
            }
            folder = folder.enter(Path::new(name))?;
        }
        Ok(())
    }

    /// Removes the folders of removed files in which nothing is left.
    fn remove_empty_folders(&mut self) {
        let removed = self.files().filter(|step| step.way == Way::Removed);
        let paths: Vec<PathBuf> = removed.map(|step| step.path.clone()).collect();
        for path in paths {
            let folders = path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
            for path in folders {
                if self.remove_folder(path).is_err() {
                    break;
                }
                self.done.push(Step::FolderRemoved(path.into()));
            }
        }
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = parts(path);
        self.top.enter(folder)?.remove_folder(name)
    }

    fn files(&self) -> impl Iterator<Item = &FileStep> {
        self.done.iter().filter_map(|step| match step {
            Step::File(step) => Some(step),
            Step::FolderMade(_) | Step::FolderRemoved(_) => None,
        })
    }

    /// Undoes all steps, the last one first.
    fn put_all_back(&mut self) {
        for step in std::mem::take(&mut self.done).into_iter().rev() {
            let done = match &step {
                Step::File(step) => self.put_back(step),
                Step::FolderMade(path) => {
                    // Another program may have put something in it.
                    self.remove_folder(path).unwrap_or_default();
                    Ok(true)
                }
                Step::FolderRemoved(path) => {
                    let (folder, name) = parts(path);
                    let made = self.top.enter(folder).and_then(|folder| folder.make_folder(name));
                    made.map(|_| true)
                }
            };
            let is_done = done.unwrap_or_else(|why| {
                tracing::warn!(%why, path = %step.path().display(), "a file is not put back");
                false
            });
            self.keeps |= !is_done;
        }
    }

    /// Undoes a step. Returns whether nothing is aside that nobody else has: if another program has written the file since
    /// the step, its version is kept.
    fn put_back(&self, step: &FileStep) -> io::Result<bool> {
        let places = self.places(&step.path, step.way, step.is_beside)?;
        let Places { folder, name, aside, aside_name } = &places;
        let undone = match step.way {
            Way::Exchanged => folder.exchange(name, aside, aside_name),
            Way::Created => folder.move_to(name, aside, aside_name),
            Way::Removed => return aside.move_to(aside_name, folder, name).map(|()| true),
        };
        match (undone, step.way) {
            (Ok(()), _) => {}
            // Another program has removed the new version.
            (Err(why), Way::Exchanged) if why.kind() == io::ErrorKind::NotFound => {
                return aside.move_to(aside_name, folder, name).map(|()| true);
            }
            (Err(why), Way::Created) if why.kind() == io::ErrorKind::NotFound => return Ok(true),
            (Err(why), _) => return Err(why),
        }
        let is_ours = places.version_aside()? == step.new && !aside.has_writer(aside_name);
        match (is_ours, step.way) {
            (true, _) if step.is_beside => aside.remove(aside_name)?,
            (false, Way::Created) => {
                aside.move_to(aside_name, folder, name)?;
                return Ok(true);
            }
            (_, _) => {}
        }
        Ok(is_ours)
    }

    /// Removes the old versions that are beside their files.
    fn remove_beside(&self) {
        for step in self.files().filter(|step| step.is_beside && step.way != Way::Created) {
            let places = self.places(&step.path, step.way, true);
            let removed = places.and_then(|it| it.aside.remove(&it.aside_name));
            removed.unwrap_or_default();
        }
    }
}

impl Places<'_> {
    /// Makes the file and its other version change places.
    fn swap(&self, way: Way) -> io::Result<()> {
        match way {
            Way::Exchanged => self.folder.exchange(self.name, &self.aside, &self.aside_name),
            Way::Created => self.aside.move_to(&self.aside_name, &self.folder, self.name),
            Way::Removed => self.folder.move_to(self.name, &self.aside, &self.aside_name),
        }
    }

    fn version_aside(&self) -> io::Result<Option<FileVersion>> {
        self.aside.version(&self.aside_name)
    }
}

/// Returns a name beside a file.
fn beside(name: &OsStr) -> OsString {
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.{ASIDE}", std::process::id()));
    beside
}
