//! Tests of the task list in one process.

use super::*;
use crate::bus::MailLimits;
use crate::store::{Fsync, LifeLock, LifeRecord, SystemClock, test_team, unread};

struct Team {
    _folder: tempfile::TempDir,
    tasks: Tasks,
}

fn name(name: &str) -> AgentName {
    AgentName::mailbox(name).unwrap()
}

fn team() -> Team {
    let (folder, dir) = test_team();
    let limits = MailLimits { fsync: Fsync::Never, ..MailLimits::default() };
    let clock: SharedClock = Arc::new(SystemClock);
    let bus = Arc::new(Bus::new(dir, limits, Arc::clone(&clock)));
    let tasks = Tasks::new(bus, clock, |_, role| role != "reader");
    Team { _folder: folder, tasks }
}

impl Team {
    /// Adds a member that is running until the lock is dropped.
    fn member(&self, who: &str, role: &str) -> LifeLock {
        let (dir, member) = (self.tasks.dir(), name(who));
        roster::update(dir, Fsync::Never, |roster| {
            let entry = roster.enter(who, 0.0);
            (entry.status, entry.role) = (Status::Idle, role.into());
        })
        .unwrap();
        let record =
            LifeRecord { incarnation: format!("{who}-1"), ..LifeRecord::of_this_process() };
        LifeLock::take(dir, &member, record).unwrap()
    }

    fn add(&self, new: NewTask) -> Changed {
        self.tasks.create(&NewTask { subject: "x".into(), ..new }, &AgentName::lead()).unwrap()
    }

    fn told(&self, who: &str) -> Vec<(String, Vec<String>)> {
        let waiting = unread::waiting(self.tasks.dir(), &name(who)).unwrap().into_iter();
        let bodies = waiting.filter_map(|waiting| Some(waiting.message?.body));
        let tasks = bodies.filter_map(|body| {
            let Body::TaskAssignment { task_id, blocked_by, .. } = body else { return None };
            Some((task_id, blocked_by))
        });
        tasks.collect()
    }
}

#[test]
fn a_repeated_call_creates_one_task() {
    let team = team();
    let once = || team.add(NewTask { origin: Some("lead:t1".into()), ..NewTask::default() });
    assert_eq!(once().task.id, once().task.id);
    let other = team.add(NewTask { origin: Some("lead:t2".into()), ..NewTask::default() });
    assert_ne!(once().task.id, other.task.id);
    assert_eq!(team.tasks.snapshot().unwrap().board.len(), 2);
}

#[test]
fn owners_get_mail_about_their_tasks_and_when_they_can_begin() {
    let team = team();
    let _alice = team.member("alice", "coder");
    let first = team.add(NewTask::default()).task.id;
    let owner = Some(name("alice"));
    let blocked_by = vec![first];
    let second = team.add(NewTask { blocked_by, owner, ..NewTask::default() }).task.id;
    assert_eq!(team.told("alice"), [(second.to_string(), vec![first.to_string()])]);
    let done = team.tasks.end(first, TaskStatus::Completed, None, &AgentName::user()).unwrap();
    assert_eq!(done.ready.iter().map(|task| task.id).collect::<Vec<_>>(), [second]);
    assert!(done.untold.is_empty());
    assert_eq!(team.told("alice").last(), Some(&(second.to_string(), Vec::new())));
    team.tasks.claim(second, &name("alice")).unwrap();
    assert_eq!(team.told("alice").len(), 2, "a member gets no mail about its own change");
}

#[test]
fn a_task_is_taken_by_a_member_that_can_complete_it_and_arrives_as_mail() {
    let team = team();
    let _rita = team.member("rita", "reader");
    let id = team.add(NewTask::default()).task.id;
    assert!(!team.tasks.is_any_wanted().unwrap(), "a reader completes no task");
    assert_eq!(team.tasks.next_for(&name("rita")).unwrap(), None);
    assert!(team.tasks.take_next(&name("rita")).unwrap().is_none());
    let alice = team.member("alice", "coder");
    assert!(team.tasks.is_any_wanted().unwrap());
    let taken = team.tasks.take_next(&name("alice")).unwrap().unwrap();
    assert_eq!((taken.id, taken.lease.as_deref()), (id, Some("alice-1")));
    assert_eq!(team.told("alice"), [(id.to_string(), Vec::new())]);
    assert!(!team.tasks.is_any_wanted().unwrap());
    team.add(NewTask { role: Some("tester".into()), ..NewTask::default() });
    assert!(!team.tasks.is_any_wanted().unwrap(), "no member is a tester");
    assert!(team.tasks.take_next(&name("alice")).unwrap().is_none());
    assert!(team.tasks.release_abandoned().unwrap().is_empty());
    drop(alice);
    let released = team.tasks.release_abandoned().unwrap();
    assert_eq!(released.first().and_then(|task| task.owner.as_deref()), Some("alice"));
    assert!(matches!(team.tasks.claim(id, &name("alice")), Err(TaskError::NotRunning(_))));
}

#[test]
fn a_task_whose_mail_cannot_be_sent_is_pending_again() {
    let team = team();
    let _alice = team.member("alice", "coder");
    let id = team.add(NewTask::default()).task.id;
    std::fs::create_dir(team.tasks.dir().inbox(&name("alice"))).unwrap();
    assert!(team.tasks.take_next(&name("alice")).is_err());
    let task = team.tasks.get(id).unwrap().0;
    assert_eq!((task.status, &task.owner), (TaskStatus::Pending, &None));
    let note = task.history.last().unwrap().note.clone().unwrap();
    assert!(note.contains("could not be handed to alice"), "{note}");
}
