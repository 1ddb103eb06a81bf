//! The task list on disk: one file a task, each replaced whole, all under one side lock.
//!
//! A file that cannot be read never blocks the others: it is named, and put beside by the next writer.
//! Ids come from a counter that outlives the files. What may be written is decided elsewhere.

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

/// Bytes of a file that is still read as a task.
const LONGEST: u64 = 2 * 1024 * 1024;

/// What stands between a task's file name and the number of one that was put aside.
const BAD: &str = ".json.bad-";

/// A file in the list's folder that is no task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Its name.
    pub file: String,
    /// What is the matter with it.
    pub why: String,
}

/// The list as one process sees it: a file is read again only when it is another one.
#[derive(Debug)]
pub struct TaskList {
    dir: TeamDir,
    fsync: Fsync,
    lock: SideLock,
    board: Board,
    stamps: BTreeMap<TaskId, Stamp>,
    problems: Vec<Problem>,
    /// What writers were at when they were killed, or are at now.
    unfinished: Vec<PathBuf>,
    /// The highest id seen in a file name.
    highest: TaskId,
}

/// What changes when a file is replaced or edited. Histories only grow, so a file that takes over the
/// inode of an earlier one of the same task is longer.
type Stamp = (u64, u64, i64, i64, i64, i64);

/// What a file in the folder is.
enum Found {
    Task(Box<WithUnknownFields<Task>>),
    /// Not to be read, and left as it is.
    Problem(String),
    /// No task at all.
    Damaged(String),
    /// It went away meanwhile.
    Gone,
}

impl TaskList {
    /// The list of a team; nothing is read yet.
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

    /// The tasks as of the last look.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Files that were no tasks at the last look.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Whether a writer was at work at the last look, or was killed in the middle of it.
    pub fn is_any_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Looks at the folder, changing nothing.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn look(&mut self) -> Result<(), StoreError> {
        self.read_folder().map(|_| ())
    }

    /// Changes the list: `decide` sees it as it is now, with the id that a new task would have, and gives
    /// the tasks to be stored. They are on disk when this returns.
    ///
    /// # Errors
    /// Something refused, or a task was written by a later version. What was not stored is as it was.
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
            // Who holds the lock knows that nobody is at it.
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
            // Whoever waits for work watches this file.
            let fifo = open_or_create(&self.dir.tasks_lock(), Access::Update)?;
            touch(&fifo).at(&self.dir.tasks_lock())?;
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
            // First, so that an id is never given again, whatever becomes of the file.
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
            // A counter that is no number is made anew from the file names.
            Ok(mut file) => drop(file.read_to_string(&mut text)),
        }
        Ok(TaskId::parse(text.trim()).unwrap_or_default())
    }

    /// Reads what is new in the folder; gives the ids of damaged files.
    fn read_folder(&mut self) -> Result<Vec<TaskId>, StoreError> {
        let folder = self.dir.tasks();
        let (mut ids, mut damaged) = (Vec::new(), Vec::new());
        self.problems.clear();
        self.unfinished.clear();
        // Who only looks may come before anybody has made it.
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

    /// The task in a file; nothing when it is the one that is known.
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

    /// Moves a damaged file to `ID.json.bad-N`.
    fn quarantine(&self, id: TaskId) -> Result<(), FileError> {
        let path = self.dir.task(id);
        let beside = |number: u32| path.with_extension(format!("json.bad-{number}"));
        let free = (1..=u32::MAX).map(beside).find(|beside| fs::symlink_metadata(beside).is_err());
        free.map_or(Ok(()), |beside| fs::rename(&path, beside).at(&path))
    }
}

/// The task that is in a file of this name.
fn task_of(name: &str) -> Option<TaskId> {
    name.strip_suffix(".json").and_then(canonical)
}

/// An id as file names spell it.
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

/// Tells when our programs have changed the list.
#[derive(Debug)]
pub struct TaskListWatch {
    watch: Watch,
    path: PathBuf,
}

impl TaskListWatch {
    /// Begins to listen.
    ///
    /// # Errors
    /// There are no file events to be had: look from time to time instead.
    pub fn listen(dir: &TeamDir) -> io::Result<Self> {
        let path = dir.tasks_lock();
        open_or_create(&path, Access::Update).map_err(io::Error::other)?;
        let watch = Watch::new()?;
        watch.add(&path)?;
        Ok(Self { watch, path })
    }

    /// Takes the events that have come.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn acknowledge(&self) -> Result<(), StoreError> {
        Ok(self.watch.acknowledge(&mut Written::default()).at(&self.path)?)
    }
}

impl AsFd for TaskListWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}
