//! The task list on disk: one file for each task, replaced whole, all under one side lock.
//!
//! A file that cannot be read never blocks the others: it is reported, and quarantined by the next writer. Ids
//! come from a stored counter, so an id is not reused after its file is removed.
//!
//! Tasks that ended long ago are in a folder of their own (`archive`), which no look reads.

mod archive;
mod copied;

pub use copied::{CopiedTask, copy_list, is_copy_of, make_list, note_own_list, version};

use super::file::atomic::{Fsync, pretty_json, remove, replace, replaced_by};
use super::file::lock::SideLock;
use super::file::read::{Stamp, names_in, newer_version, open_if_there, quarantine, stamp};
use super::{StoreError, TeamDir};
use crate::os::file::FileError;
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::task::{Board, Task, TaskId};
use crate::wire::{FORMAT_VERSION, WithUnknownFields};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::path::PathBuf;

/// The maximum size of a task file that is read, in bytes.
const LONGEST: u64 = 2 * 1024 * 1024;

/// The part of a quarantined file's name between the task id and the number.
const BAD: &str = ".json.bad-";

/// A file in the list's folder that is not a task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The name of the file.
    pub file: String,
    /// The reason for which it is not a task.
    pub why: String,
}

/// An in-memory copy of the task list. A file is read again only after it has changed.
#[derive(Debug)]
pub struct TaskList {
    dir: TeamDir,
    fsync: Fsync,
    lock: SideLock,
    board: Board,
    /// The stamps of the files that were read. Histories only grow, so a file that reuses the inode of an earlier
    /// version of the task is longer.
    stamps: BTreeMap<TaskId, Stamp>,
    problems: Vec<Problem>,
    /// Temporary files of writers that are at work or were killed.
    unfinished: Vec<PathBuf>,
    /// The highest id in any file name.
    highest: TaskId,
    /// The ids that are looked up in the archive, too.
    wanted: BTreeSet<TaskId>,
    /// The tasks on the board that are in the archive.
    archived: BTreeSet<TaskId>,
}

/// The result of reading a task file.
enum TaskReadOutcome {
    Task(Box<WithUnknownFields<Task>>),
    /// The file cannot be read, and is not quarantined.
    Problem(String),
    Damaged(String),
    Gone,
}

impl TaskList {
    /// Creates the list without reading it.
    pub fn of(dir: &TeamDir, fsync: Fsync) -> Self {
        Self {
            fsync,
            lock: SideLock::new(dir.tasks_lock()),
            dir: dir.clone(),
            board: Board::new(),
            stamps: BTreeMap::new(),
            problems: Vec::new(),
            unfinished: Vec::new(),
            highest: TaskId::default(),
            wanted: BTreeSet::new(),
            archived: BTreeSet::new(),
        }
    }

    /// Returns the tasks as of the last [`TaskList::look`].
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Returns the files that were not tasks at the last [`TaskList::look`].
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Whether the last [`TaskList::look`] found the temporary file of a writer that was at work or was killed.
    pub fn is_any_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Reads the folder without changing it. Fails if the folder cannot be read.
    pub fn look(&mut self) -> Result<(), StoreError> {
        self.read_folder().map(|_| ())
    }

    /// Changes the list under its lock. `decide` receives the current board and the id for a new task, and returns
    /// the tasks to store, which are then on disk. On an error some of these may be stored; all others are
    /// unchanged.
    pub fn change<R>(
        &mut self,
        decide: impl FnOnce(&Board, TaskId) -> (Vec<WithUnknownFields<Task>>, R),
    ) -> Result<R, StoreError> {
        let held = self.lock.acquire(LOCK_TIMEOUT)?;
        crate::store::failpoint::hit("tasks.locked");
        for id in self.read_folder()? {
            quarantine(&self.dir.task(id))?;
        }
        for path in self.unfinished.drain(..) {
            // No writer is at work while the lock is held here.
            remove(&path)?;
        }
        let last = self.last_given()?;
        if self.highest > last {
            self.count(self.highest)?;
        }
        let next = last.max(self.highest).next();
        let (changed, answer) = decide(&self.board, next);
        for task in &changed {
            self.store(task, next)?;
        }
        if !changed.is_empty() {
            self.announce()?;
        }
        drop(held);
        Ok(answer)
    }

    fn store(&mut self, task: &WithUnknownFields<Task>, next: TaskId) -> Result<(), StoreError> {
        let path = self.dir.task(task.id);
        if task.version > FORMAT_VERSION {
            return Err(StoreError::Newer { path, found: task.version.into() });
        }
        if task.id == next {
            // The counter is stored first, so that an id is never reused.
            self.count(next)?;
            crate::store::failpoint::hit("tasks.counted");
        }
        replace(&path, &pretty_json(task, &path)?, self.fsync)?;
        crate::store::failpoint::hit("tasks.stored");
        if self.archived.remove(&task.id) {
            // A copy that a kill leaves here does not count: the file in the list's folder does.
            remove(&self.dir.archived_task(task.id))?;
        }
        self.stamps.remove(&task.id);
        self.board.insert(task.id, task.clone());
        Ok(())
    }

    fn count(&self, id: TaskId) -> Result<(), FileError> {
        replace(&self.dir.last_task(), format!("{id}\n").as_bytes(), self.fsync)
    }

    fn last_given(&self) -> Result<TaskId, FileError> {
        let mut text = String::new();
        if let Some((mut file, _)) = open_if_there(&self.dir.last_task())? {
            // An invalid counter is rebuilt from the file names.
            drop(file.read_to_string(&mut text));
        }
        Ok(TaskId::parse(text.trim()).unwrap_or_default())
    }

    /// Reads the changed files of the folder; returns the ids of damaged ones.
    fn read_folder(&mut self) -> Result<Vec<TaskId>, StoreError> {
        let folder = self.dir.tasks();
        let (mut ids, mut damaged) = (Vec::new(), Vec::new());
        self.problems.clear();
        self.unfinished.clear();
        for name in names_in(&folder)? {
            if let Some(id) = task_of(&name) {
                ids.push(id);
            } else if let Some((stem, _)) = name.split_once(BAD) {
                self.highest = self.highest.max(canonical(stem).unwrap_or_default());
                self.report(&name, "no task could be read from it, so it was moved aside");
            } else if replaced_by(&name).and_then(task_of).is_some() {
                self.unfinished.push(folder.join(name));
            }
        }
        ids.sort_unstable();
        self.highest = ids.last().copied().unwrap_or_default().max(self.highest);
        self.board.retain(|id, _| ids.binary_search(id).is_ok());
        self.stamps.retain(|id, _| ids.binary_search(id).is_ok());
        for id in ids {
            let Some(found) = self.read_task(id) else { continue };
            self.board.remove(&id);
            match found {
                TaskReadOutcome::Task(task) => drop(self.board.insert(id, *task)),
                TaskReadOutcome::Gone => {}
                TaskReadOutcome::Problem(why) => self.report(&format!("{id}.json"), &why),
                TaskReadOutcome::Damaged(why) => {
                    self.report(&format!("{id}.json"), &why);
                    damaged.push(id);
                }
            }
        }
        self.problems.sort();
        self.read_archived();
        Ok(damaged)
    }

    fn report(&mut self, file: &str, why: &str) {
        self.problems.push(Problem { file: file.into(), why: why.into() });
    }

    /// Reads a task file; returns `None` if it has not changed.
    fn read_task(&mut self, id: TaskId) -> Option<TaskReadOutcome> {
        let path = self.dir.task(id);
        let known = fs::symlink_metadata(&path).ok().map(|known| stamp(&known));
        if known.is_some() && known == self.stamps.get(&id).copied() {
            return None;
        }
        self.stamps.remove(&id);
        let (file, known) = match open_if_there(&path) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Some(TaskReadOutcome::Gone),
            Err(why) => return Some(TaskReadOutcome::Problem(why.to_string())),
        };
        let found = read(&file, &known, id);
        if let TaskReadOutcome::Task(_) = found {
            self.stamps.insert(id, stamp(&known));
        }
        Some(found)
    }
}

fn task_of(name: &str) -> Option<TaskId> {
    name.strip_suffix(".json").and_then(canonical)
}

/// Returns the id if it is spelled as in file names.
fn canonical(stem: &str) -> Option<TaskId> {
    TaskId::parse(stem).ok().filter(|id| id.to_string() == stem)
}

fn read(mut file: &File, known: &Metadata, id: TaskId) -> TaskReadOutcome {
    if known.len() > LONGEST {
        return TaskReadOutcome::Problem(format!("{} bytes are too many for a task", known.len()));
    }
    let mut text = Vec::new();
    if let Err(why) = file.read_to_end(&mut text) {
        return TaskReadOutcome::Problem(why.to_string());
    }
    match serde_json::from_slice::<WithUnknownFields<Task>>(&text) {
        Ok(mut task) => {
            task.id = id;
            TaskReadOutcome::Task(Box::new(task))
        }
        Err(why) => match newer_version(&text) {
            Some(found) => TaskReadOutcome::Problem(format!(
                "its format version is {found}, which is not known here"
            )),
            None => TaskReadOutcome::Damaged(format!("not a task: {why}")),
        },
    }
}
