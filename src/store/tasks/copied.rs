//! The list of another host, as it is copied to this one: the lead's host alone changes it.

use super::{TaskList, task_of};
use crate::os::file::{Access, At, FileError, open_or_create};
use crate::os::watch::touch;
use crate::store::file::atomic::{Fsync, json_line, remove, replace};
use crate::store::file::read::{known_if_there, names_in, open_if_there, read_state};
use crate::store::relay::make_copy_folders;
use crate::store::teamdir::make_folder;
use crate::store::{StoreError, TeamDir};
use crate::wire::carried::HostName;
use crate::wire::limits::LOCK_TIMEOUT;
use crate::wire::task::TaskId;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A task of the other host as its file stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedTask {
    /// The task.
    pub id: TaskId,
    /// The content of its file.
    pub text: Vec<u8>,
}

/// Returns a text that changes with the list of this host; empty if it was never changed.
///
/// # Errors
/// The folder cannot be read.
pub fn version(dir: &TeamDir) -> Result<String, StoreError> {
    let known = known_if_there(&dir.tasks_lock())?;
    // A writer touches it once its tasks are stored.
    let touched = |known: fs::Metadata| format!("{}.{:09}", known.ctime(), known.ctime_nsec());
    Ok(known.map(touched).unwrap_or_default())
}

/// Makes the file that a writer of the list touches, so that it can be watched.
///
/// # Errors
/// The file cannot be made.
pub fn make_list(dir: &TeamDir) -> Result<(), StoreError> {
    open_or_create(&dir.tasks_lock(), Access::Update)?;
    Ok(())
}

/// Whether the list of this host is a copy of that of another one.
///
/// # Errors
/// The file exists and cannot be read.
pub fn is_copy_of(dir: &TeamDir, host: &HostName) -> Result<bool, StoreError> {
    Ok(read_state::<HostName>(&dir.relay_copied_list())?.as_ref() == Some(host))
}

/// Notes that the list of this host is its own: the lead is here.
///
/// # Errors
/// The file cannot be removed.
pub fn note_own_list(dir: &TeamDir) -> Result<(), StoreError> {
    Ok(remove(&dir.relay_copied_list())?)
}

/// Makes the list of this host that of another one, which has the tasks `there`, of which `changed` are new or other ones. If
/// it was no copy of that list before, tasks that the other host does not have in the same words are put aside. Returns their
/// number.
///
/// # Errors
/// A file cannot be read or written. The rest of the list is as before.
pub fn copy_list(
    dir: &TeamDir,
    host: &HostName,
    there: &BTreeSet<TaskId>,
    changed: &[CopiedTask],
) -> Result<usize, StoreError> {
    let mut list = TaskList::of(dir, Fsync::Never);
    let held = list.lock.acquire(LOCK_TIMEOUT)?;
    let is_first = !is_copy_of(dir, host)?;
    let mut put_aside = 0;
    let new_text = |id: TaskId| changed.iter().find(|task| task.id == id).map(|task| &task.text);
    for id in names_in(&dir.tasks())?.iter().filter_map(|name| task_of(name)) {
        let path = dir.task(id);
        let is_other = match new_text(id) {
            Some(text) => read_file(&path)?.is_some_and(|own| own != *text),
            None => !there.contains(&id),
        };
        if is_first && is_other {
            make_folder(&dir.tasks_aside())?;
            fs::rename(&path, dir.task_aside(id)).at(&path)?;
            put_aside += 1;
        } else if !there.contains(&id) {
            remove(&path)?;
        }
    }
    for CopiedTask { id, text } in changed {
        replace(&dir.task(*id), text, Fsync::Never)?;
    }
    if is_first {
        let path = dir.relay_copied_list();
        make_copy_folders(dir)?;
        replace(&path, &json_line(host, &path)?, Fsync::Never)?;
    }
    list.announce()?;
    drop(held);
    Ok(put_aside)
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let Some((file, known)) = open_if_there(path)? else { return Ok(None) };
    let mut text = Vec::new();
    file.take(known.len()).read_to_end(&mut text).at(path)?;
    Ok(Some(text))
}

impl TaskList {
    /// Wakes the members that wait for work: they watch this file.
    pub(super) fn announce(&self) -> Result<(), FileError> {
        let lock_file = open_or_create(&self.dir.tasks_lock(), Access::Update)?;
        touch(&lock_file).at(&self.dir.tasks_lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_team;
    use std::io::Write;

    fn put(path: &Path, text: &str) {
        fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn ids(list: &[u64]) -> BTreeSet<TaskId> {
        list.iter().map(|id| TaskId::parse(&id.to_string()).unwrap()).collect()
    }

    fn task(id: u64, text: &str) -> CopiedTask {
        CopiedTask { id: TaskId::parse(&id.to_string()).unwrap(), text: text.into() }
    }

    fn files(dir: &TeamDir) -> Vec<(String, String)> {
        let read = |name: &String| fs::read_to_string(dir.tasks().join(name)).unwrap_or_default();
        let mut names = names_in(&dir.tasks()).unwrap();
        names.retain(|name| task_of(name).is_some());
        names.sort();
        names.iter().map(|name| (name.clone(), read(name))).collect()
    }

    #[test]
    fn the_list_is_that_of_the_other_host_and_what_was_here_before_is_put_aside() {
        let (_folder, dir) = test_team();
        put(&dir.task(ids(&[1]).pop_first().unwrap()), "own");
        put(&dir.task(ids(&[2]).pop_first().unwrap()), "same");
        put(&dir.task(ids(&[7]).pop_first().unwrap()), "own");
        let (before, ann) = (version(&dir).unwrap(), HostName::parse("ann").unwrap());
        let all = [task(1, "other"), task(2, "same")];
        assert_eq!(copy_list(&dir, &ann, &ids(&[1, 2]), &all).unwrap(), 2);
        let of = |id: &str, text: &str| (format!("{id}.json"), text.to_owned());
        assert_eq!(files(&dir), [of("1", "other"), of("2", "same")]);
        let aside = |id: u64| fs::read_to_string(dir.task_aside(ids(&[id]).pop_first().unwrap()));
        assert_eq!((aside(1).unwrap(), aside(7).unwrap()), ("own".into(), "own".into()));
        assert_ne!(version(&dir).unwrap(), before);
        // From then on it is a copy, of which nothing is kept.
        assert_eq!(copy_list(&dir, &ann, &ids(&[1]), &[task(1, "later")]).unwrap(), 0);
        assert_eq!(files(&dir), [of("1", "later")]);
        assert_eq!(aside(1).unwrap(), "own");
        // The lead was here meanwhile.
        note_own_list(&dir).unwrap();
        assert_eq!(copy_list(&dir, &ann, &ids(&[]), &[]).unwrap(), 1);
        assert_eq!((files(&dir), aside(1).unwrap()), (vec![], "later".into()));
    }
}
