//! The task list on disk: one file for each task, replaced whole, all under one side lock.
//!
//! A file that cannot be read never blocks the others: it is reported, and quarantined by the next writer.
//! Ids come from a counter that outlives the files.

use super::file::atomic::{Contents, Fsync, remove, replace, replaced_by};
use super::file::lock::SideLock;
use super::{StoreError, TeamDir};
use crate::os::file::{Access, At, FileError, open, open_known, open_or_create};
use crate::os::watch::{Watch, Written, touch};
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::task::{Board, Task, TaskId};
use crate::wire::{FORMAT_VERSION, WithUnknownFields};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The longest task file that is read, in bytes.
const LONGEST: u64 = 2 * 1024 * 1024;

/// The part of a quarantined file's name between the task id and the number.
const BAD: &str = ".json.bad-";

/// A file in the list's folder that is not a task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The name of the file.
    pub file: String,
    /// The problem with it.
    pub why: String,
}

/// The task list as one process sees it; a file is read again only when it has changed.
#[derive(Debug)]
pub struct TaskList {
    dir: TeamDir,
    fsync: Fsync,
    lock: SideLock,
    board: Board,
    stamps: BTreeMap<TaskId, Stamp>,
    problems: Vec<Problem>,
    /// Temporary files of writers that are at work or were killed.
    unfinished: Vec<PathBuf>,
    /// The highest id in any file name.
    highest: TaskId,
}

/// The attributes that change when a file is replaced or edited. Histories only grow, so a file that reuses
/// the inode of an earlier version of the task is longer.
type Stamp = (u64, u64, i64, i64, i64, i64);

/// The result of reading a task file.
enum Found {
    Task(Box<WithUnknownFields<Task>>),
    /// The file cannot be read and stays.
    Problem(String),
    /// The file is not a task.
    Damaged(String),
    /// The file no longer exists.
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

    /// Whether a writer was at work, or was killed at work, at the last [`TaskList::look`].
    pub fn is_any_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Reads the folder without changing it. Fails if the folder cannot be read.
    pub fn look(&mut self) -> Result<(), StoreError> {
        self.read_folder().map(|_| ())
    }

    /// Changes the list under its lock: `decide` receives the current board and the id for a new task, and
    /// returns the tasks to store. They are on disk when this returns. After an error, as for a task of a
    /// later version, tasks that were not stored stay as they were.
    pub fn change<R>(
        &mut self,
        decide: impl FnOnce(&Board, TaskId) -> (Vec<WithUnknownFields<Task>>, R),
    ) -> Result<R, StoreError> {
        let mut lock = std::mem::replace(&mut self.lock, SideLock::new(self.dir.tasks_lock()));
        let done = self.change_under(&mut lock, decide);
        self.lock = lock;
        done
    }

    fn change_under<R>(
        &mut self,
        lock: &mut SideLock,
        decide: impl FnOnce(&Board, TaskId) -> (Vec<WithUnknownFields<Task>>, R),
    ) -> Result<R, StoreError> {
        let held = lock.acquire(LOCK_TIMEOUT)?;
        crate::store::failpoint::hit("tasks.locked");
        for id in self.read_folder()? {
            self.quarantine(id)?;
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
            // Members that wait for work watch this file.
            let lock_file = open_or_create(&self.dir.tasks_lock(), Access::Update)?;
            touch(&lock_file).at(&self.dir.tasks_lock())?;
        }
        drop(held);
        Ok(answer)
    }

    fn store(&mut self, task: &WithUnknownFields<Task>, next: TaskId) -> Result<(), StoreError> {
        let path = self.dir.task(task.id);
        if task.version > FORMAT_VERSION {
            let found = u64::from(task.version);
            return Err(StoreError::Newer { path, found, known: FORMAT_VERSION });
        }
        if task.id == next {
            // The counter comes first, so that an id is never reused.
            self.count(next)?;
            crate::store::failpoint::hit("tasks.counted");
        }
        let text = Contents::pretty_json(task).at(&path)?.line();
        replace(&path, &text, self.fsync)?;
        crate::store::failpoint::hit("tasks.stored");
        self.stamps.remove(&task.id);
        self.board.insert(task.id, task.clone());
        Ok(())
    }

    fn count(&self, id: TaskId) -> Result<(), FileError> {
        replace(&self.dir.last_task(), &Contents::text(format!("{id}\n")), self.fsync)
    }

    fn last_given(&self) -> Result<TaskId, FileError> {
        let path = self.dir.last_task();
        let mut text = String::new();
        match open(&path, Access::Read) {
            Err(why) if why.is_missing() => return Ok(TaskId::default()),
            Err(why) => return Err(why),
            // An invalid counter is rebuilt from the file names.
            Ok(mut file) => drop(file.read_to_string(&mut text)),
        }
        Ok(TaskId::parse(text.trim()).unwrap_or_default())
    }

    /// Reads the changed files of the folder; returns the ids of damaged ones.
    fn read_folder(&mut self) -> Result<Vec<TaskId>, StoreError> {
        let folder = self.dir.tasks();
        let (mut ids, mut damaged) = (Vec::new(), Vec::new());
        self.problems.clear();
        self.unfinished.clear();
        // A reader may come before the folder is created.
        let entries = match fs::read_dir(&folder) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => None,
            other => Some(other.at(&folder)?),
        };
        for entry in entries.into_iter().flatten() {
            let name = entry.at(&folder)?.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(id) = task_of(name) {
                ids.push(id);
            } else if let Some((stem, _)) = name.split_once(BAD) {
                self.highest = self.highest.max(canonical(stem).unwrap_or_default());
                self.report(name, "no task could be read from it, so it was put aside");
            } else if replaced_by(name).and_then(task_of).is_some() {
                self.unfinished.push(folder.join(name));
            }
        }
        ids.sort_unstable();
        self.highest = ids.last().copied().unwrap_or_default().max(self.highest);
        self.board.retain(|id, _| ids.binary_search(id).is_ok());
        self.stamps.retain(|id, _| ids.binary_search(id).is_ok());
        for id in ids {
            match self.read_task(id) {
                None => {}
                Some(Found::Task(task)) => drop(self.board.insert(id, *task)),
                Some(Found::Gone) => drop(self.board.remove(&id)),
                Some(Found::Problem(why)) => {
                    self.board.remove(&id);
                    self.report(&format!("{id}.json"), &why);
                }
                Some(Found::Damaged(why)) => {
                    self.board.remove(&id);
                    self.report(&format!("{id}.json"), &why);
                    damaged.push(id);
                }
            }
        }
        self.problems.sort();
        Ok(damaged)
    }

    fn report(&mut self, file: &str, why: &str) {
        self.problems.push(Problem { file: file.into(), why: why.into() });
    }

    /// Reads a task file; returns `None` if it has not changed.
    fn read_task(&mut self, id: TaskId) -> Option<Found> {
        let path = self.dir.task(id);
        let known = fs::symlink_metadata(&path).ok().map(|known| stamp(&known));
        if known.is_some() && known == self.stamps.get(&id).copied() {
            return None;
        }
        self.stamps.remove(&id);
        let (file, known) = match open_known(&path, Access::Read) {
            Ok(opened) => opened,
            Err(why) if why.is_missing() => return Some(Found::Gone),
            Err(why) => return Some(Found::Problem(why.to_string())),
        };
        let found = read(&file, &known, id);
        if let Found::Task(_) = found {
            self.stamps.insert(id, stamp(&known));
        }
        Some(found)
    }

    /// Renames a damaged file to `ID.json.bad-N`.
    fn quarantine(&self, id: TaskId) -> Result<(), FileError> {
        let path = self.dir.task(id);
        let beside = |number: u32| path.with_extension(format!("json.bad-{number}"));
        let free = (1..=u32::MAX).map(beside).find(|beside| fs::symlink_metadata(beside).is_err());
        free.map_or(Ok(()), |beside| fs::rename(&path, beside).at(&path))
    }
}

/// Returns the id of a task file name.
fn task_of(name: &str) -> Option<TaskId> {
    name.strip_suffix(".json").and_then(canonical)
}

/// Returns the id if it is spelled as in file names.
fn canonical(stem: &str) -> Option<TaskId> {
    TaskId::parse(stem).ok().filter(|id| id.to_string() == stem)
}

fn read(mut file: &File, known: &Metadata, id: TaskId) -> Found {
    if known.len() > LONGEST {
        return Found::Problem(format!("{} bytes are too many for a task", known.len()));
    }
    let mut text = Vec::new();
    if let Err(why) = file.read_to_end(&mut text) {
        return Found::Problem(why.to_string());
    }
    match serde_json::from_slice::<WithUnknownFields<Task>>(&text) {
        Ok(mut task) => {
            task.id = id;
            Found::Task(Box::new(task))
        }
        Err(why) => match newer_version(&text) {
            Some(found) => {
                Found::Problem(format!("its format version is {found}, which is not known here"))
            }
            None => Found::Damaged(format!("not a task: {why}")),
        },
    }
}

fn newer_version(text: &[u8]) -> Option<u64> {
    let value: Value = serde_json::from_slice(text).ok()?;
    value.get("version")?.as_u64().filter(|version| *version > u64::from(FORMAT_VERSION))
}

fn stamp(known: &Metadata) -> Stamp {
    let (mtime, ctime) = (known.mtime(), known.ctime());
    (known.ino(), known.len(), mtime, known.mtime_nsec(), ctime, known.ctime_nsec())
}

/// File events for changes of the list by the programs of a team.
#[derive(Debug)]
pub struct TaskListWatch {
    watch: Watch,
    path: PathBuf,
}

impl TaskListWatch {
    /// Starts to watch. Fails if the user has no file events left; poll instead.
    pub fn listen(dir: &TeamDir) -> io::Result<Self> {
        let path = dir.tasks_lock();
        open_or_create(&path, Access::Update).map_err(io::Error::other)?;
        let watch = Watch::new()?;
        watch.add(&path)?;
        Ok(Self { watch, path })
    }

    /// Consumes the pending events. Fails if the events cannot be read.
    pub fn acknowledge(&self) -> Result<(), StoreError> {
        Ok(self.watch.acknowledge(&mut Written::default()).at(&self.path)?)
    }
}

impl AsFd for TaskListWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}
