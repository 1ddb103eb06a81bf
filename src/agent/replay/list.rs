//! The shared task list of the record: the times at which calls changed it, and the tasks that the person has added.

use crate::protocol::tasks::NewTask;
use crate::store::tasks::TaskList;
use crate::store::{Fsync, StoreError, TeamDir};
use crate::wire::task::{EventKind, TaskId};
use crate::wire::{AgentName, WallTime};

/// The changes of the recorded list.
#[derive(Debug, Default)]
pub(crate) struct RecordedList {
    /// Each change, with its author.
    changes: Vec<(String, WallTime)>,
    /// The tasks that the person has added, in order.
    pub(super) of_person: Vec<(WallTime, NewTask)>,
    /// The first change of a task by the person, after it was added.
    pub(crate) changed_by_person: Option<(WallTime, TaskId)>,
}

impl RecordedList {
    pub(crate) fn read(record: &TeamDir) -> Result<Self, StoreError> {
        let mut list = TaskList::of(record, Fsync::Never);
        list.look()?;
        let mut found = Self::default();
        for task in list.board().values() {
            for change in &task.history {
                found.changes.push((change.by.clone(), change.at));
                let is_of_person = change.by == AgentName::user().as_str();
                if is_of_person && change.what != EventKind::Created {
                    let before = found.changed_by_person.filter(|(at, _)| *at < change.at);
                    found.changed_by_person = before.or(Some((change.at, task.id)));
                }
            }
            if task.created_by != AgentName::user().as_str() || task.origin.is_some() {
                continue;
            }
            let first = task.history.first().and_then(|change| change.owner.as_deref());
            let new = NewTask {
                subject: task.subject.clone(),
                description: task.description.clone(),
                blocked_by: task.blocked_by.clone(),
                owner: first.and_then(|owner| AgentName::mailbox(owner).ok()),
                role: task.role.clone(),
                origin: None,
            };
            found.of_person.push((task.created_at, new));
        }
        found.of_person.sort_by(|(one, _), (other, _)| one.as_secs().total_cmp(&other.as_secs()));
        Ok(found)
    }

    /// Returns the time at which a call of `name` between these times changed the list, else the later one.
    pub(super) fn changed_at(&self, name: &AgentName, from: WallTime, to: WallTime) -> WallTime {
        let changes = self.changes.iter().filter(|(by, _)| by == name.as_str());
        let times = changes.map(|(_, at)| *at).filter(|at| *at >= from && *at <= to);
        times.fold(to, |first, at| if at < first { at } else { first })
    }
}
