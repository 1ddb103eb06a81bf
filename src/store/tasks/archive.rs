//! The tasks that ended long ago, in a folder of their own: a list of many years is read as fast as a new one.
//!
//! *Invariants:* a task moves by one rename, so a kill leaves it in one folder or the other. It is moved only if no open
//! task waits for it, and the highest id is always in the list's folder. If both folders have a task, the one in the list's
//! folder counts.

use super::{TaskList, TaskReadOutcome, read, task_of};
use crate::os::file::At;
use crate::store::file::atomic::sync_folder;
use crate::store::file::read::{names_in, open_if_there};
use crate::store::teamdir::make_folder;
use crate::store::{StoreError, failpoint};
use crate::wire::FORMAT_VERSION;
use crate::wire::limits::{ENDED_TASKS_KEPT, LOCK_TIMEOUT};
use crate::wire::task::TaskId;
use std::collections::BTreeSet;
use std::fs;

/// The number of tasks that move while the lock is held once, so that no writer waits long.
const MOVED_AT_ONCE: usize = 1000;

impl TaskList {
    /// Looks up these tasks in the archive, too, from the next look or change on.
    pub fn want(&mut self, ids: impl IntoIterator<Item = TaskId>) {
        self.wanted.extend(ids);
    }

    /// Looks up all archived tasks from the next look or change on. Fails if their folder cannot be read.
    pub fn want_all(&mut self) -> Result<(), StoreError> {
        let names = names_in(&self.dir.archived_tasks())?;
        self.want(names.iter().filter_map(|name| task_of(name)));
        Ok(())
    }

    /// Whether there are archived tasks.
    pub fn has_archive(&self) -> bool {
        fs::read_dir(self.dir.archived_tasks()).is_ok_and(|mut files| files.next().is_some())
    }

    /// Adds the archived tasks to the board that were asked for, or for which an open task waits.
    pub(super) fn read_archived(&mut self) {
        let open = self.board.values().filter(|task| !task.status.is_over());
        let waited_for = open.flat_map(|task| task.blocked_by.iter().copied());
        let is_missing = |id: &TaskId| !self.board.contains_key(id);
        let ids: BTreeSet<TaskId> =
            self.wanted.iter().copied().chain(waited_for).filter(is_missing).collect();
        self.archived.clear();
        for id in ids {
            // A file that cannot be read is no task here, as a file that was removed.
            let Ok(Some((file, known))) = open_if_there(&self.dir.archived_task(id)) else {
                continue;
            };
            if let TaskReadOutcome::Task(task) = read(&file, &known, id) {
                self.board.insert(id, *task);
                self.archived.insert(id);
            }
        }
    }

    /// Moves ended tasks to the archive, except the [`ENDED_TASKS_KEPT`] that ended last; a part of them if they are many.
    /// Returns the number that moved; 0: none is left. On an error some may have moved.
    pub fn archive_ended(&mut self) -> Result<usize, StoreError> {
        self.look()?;
        if self.long_ended().is_empty() {
            return Ok(0);
        }
        let held = self.lock.acquire(LOCK_TIMEOUT)?;
        self.read_folder()?;
        let ids = self.long_ended();
        make_folder(&self.dir.archived_tasks())?;
        for id in &ids {
            let from = self.dir.task(*id);
            fs::rename(&from, self.dir.archived_task(*id)).at(&from)?;
            failpoint::hit("upkeep.archived");
        }
        sync_folder(&self.dir.archived_tasks(), self.fsync)?;
        sync_folder(&self.dir.tasks(), self.fsync)?;
        self.announce()?;
        drop(held);
        Ok(ids.len())
    }

    /// Returns the tasks that ended before the last ones and that no open task waits for.
    fn long_ended(&self) -> Vec<TaskId> {
        let open = self.board.values().filter(|task| !task.status.is_over());
        let waited_for: BTreeSet<TaskId> =
            open.flat_map(|task| task.blocked_by.iter().copied()).collect();
        let ended = self.board.values().filter(|task| task.status.is_over());
        let mut ended: Vec<_> = ended.filter(|task| !self.archived.contains(&task.id)).collect();
        ended.sort_by(|a, b| {
            a.updated_at.as_secs().total_cmp(&b.updated_at.as_secs()).then(a.id.cmp(&b.id))
        });
        let rest = ended.len().saturating_sub(ENDED_TASKS_KEPT);
        let earlier = ended.into_iter().take(rest).filter(|task| {
            // The highest id shows which one is next, if the counter is lost.
            task.version <= FORMAT_VERSION
                && task.id != self.highest
                && !waited_for.contains(&task.id)
        });
        earlier.map(|task| task.id).take(MOVED_AT_ONCE).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::file::atomic::replace;
    use crate::store::{Fsync, TeamDir, test_team};
    use crate::wire::WithUnknownFields;
    use crate::wire::task::{Task, TaskStatus};
    use serde_json::json;

    /// The number of tasks that are moved in these tests.
    const MOVED: usize = 7;

    fn id(number: usize) -> TaskId {
        TaskId::parse(&number.to_string()).unwrap()
    }

    fn write(dir: &TeamDir, number: usize, status: &str, blocked_by: &[usize]) {
        let blocked_by: Vec<String> = blocked_by.iter().map(ToString::to_string).collect();
        let task = json!({"subject": "s", "status": status, "updated_at": 1, "extra": number,
            "blocked_by": blocked_by});
        replace(&dir.task(id(number)), task.to_string().as_bytes(), Fsync::Never).unwrap();
    }

    /// Returns a list with so many tasks that ended that [`MOVED`] are to be moved.
    fn long_list(dir: &TeamDir) -> (TaskList, usize) {
        let last = ENDED_TASKS_KEPT + MOVED;
        (1..=last).for_each(|number| write(dir, number, "completed", &[]));
        (TaskList::of(dir, Fsync::Never), last)
    }

    fn archive(list: &mut TaskList) -> usize {
        let moved = std::iter::repeat_with(|| list.archive_ended().unwrap());
        moved.take_while(|moved| *moved > 0).sum()
    }

    #[test]
    fn the_oldest_ended_tasks_are_moved_and_the_others_are_read_alone() {
        let (_folder, dir) = test_team();
        let (mut list, last) = long_list(&dir);
        assert!(!list.has_archive());
        assert_eq!(archive(&mut list), MOVED);
        assert!(list.has_archive());
        list.look().unwrap();
        let ids: Vec<_> = list.board().keys().copied().collect();
        assert_eq!((ids.len(), ids[0], ids[ids.len() - 1]), (last - MOVED, id(8), id(last)));
        let all = &mut TaskList::of(&dir, Fsync::Never);
        all.want_all().unwrap();
        all.look().unwrap();
        assert_eq!(all.board().len(), last);
        assert_eq!(archive(all), 0, "those that were asked for stay where they are");
    }

    #[test]
    fn a_task_that_an_open_one_waits_for_stays_and_is_found_if_it_was_moved() {
        let (_folder, dir) = test_team();
        let (mut list, last) = long_list(&dir);
        write(&dir, last + 1, "pending", &[3]);
        assert_eq!(archive(&mut list), MOVED - 1);
        assert!(dir.task(id(3)).exists());
        write(&dir, last + 2, "pending", &[2]);
        list.look().unwrap();
        assert_eq!(list.board()[&id(2)].status, TaskStatus::Completed);
    }

    #[test]
    fn a_moved_task_comes_back_when_it_is_changed_and_its_copy_does_not_count() {
        let (_folder, dir) = test_team();
        let (mut list, _) = long_list(&dir);
        archive(&mut list);
        let change = |list: &mut TaskList, status| {
            list.want([id(5)]);
            list.change(|board, _| {
                let mut task: WithUnknownFields<Task> = board[&id(5)].clone();
                task.status = status;
                (vec![task], ())
            })
            .unwrap();
        };
        let copy = fs::read(dir.archived_task(id(5))).unwrap();
        change(&mut list, TaskStatus::Failed);
        assert!(dir.task(id(5)).exists() && !dir.archived_task(id(5)).exists());
        // A process that is killed between the two steps leaves both.
        replace(&dir.archived_task(id(5)), &copy, Fsync::Never).unwrap();
        let mut list = TaskList::of(&dir, Fsync::Never);
        list.want([id(5)]);
        list.look().unwrap();
        assert_eq!(list.board()[&id(5)].status, TaskStatus::Failed);
        let text = fs::read_to_string(dir.task(id(5))).unwrap();
        assert!(text.contains("\"extra\": 5"), "unknown fields are kept: {text}");
    }

    #[test]
    fn the_tasks_that_ended_last_stay_whatever_their_ids_are() {
        let (_folder, dir) = test_team();
        let (mut list, last) = long_list(&dir);
        let late = json!({"subject": "s", "status": "completed", "updated_at": 2}).to_string();
        replace(&dir.task(id(1)), late.as_bytes(), Fsync::Never).unwrap();
        assert_eq!(archive(&mut list), MOVED);
        assert!(dir.task(id(1)).exists() && dir.task(id(last)).exists());
    }

    #[test]
    fn an_id_of_a_moved_task_is_not_used_again_without_the_counter() {
        let (_folder, dir) = test_team();
        let (mut list, last) = long_list(&dir);
        archive(&mut list);
        assert!(!dir.last_task().exists());
        let next = list.change(|_, next| (Vec::new(), next)).unwrap();
        assert_eq!(next, id(last + 1));
    }
}
