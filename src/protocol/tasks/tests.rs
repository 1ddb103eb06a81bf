//! Examples of the rules, and a property test of the invariants.

use super::*;
use proptest::prelude::*;

fn name(name: &str) -> AgentName {
    match name {
        "system" => AgentName::system(),
        name => AgentName::mailbox(name).unwrap(),
    }
}

fn actor(who: &str) -> Actor {
    let life = (who != "user").then(|| format!("{who}-1"));
    Actor { name: name(who), life, now: 1.0.into() }
}

fn id(number: u64) -> TaskId {
    TaskId::parse(&number.to_string()).unwrap()
}

fn put(board: &mut Board, ruled: TaskChange) {
    if let Some(task) = ruled.unwrap() {
        board.insert(task.id, task);
    }
}

fn add(board: &mut Board, after: &[u64], by: &str) -> TaskId {
    let next = board.keys().last().copied().unwrap_or_default().next();
    let blocked_by = after.iter().copied().map(id).collect();
    let new = NewTask { subject: format!("task {next}"), blocked_by, ..NewTask::default() };
    let task = create(board, next, new, &actor(by)).unwrap();
    board.insert(next, task);
    next
}

fn assigned(board: &Board, task: TaskId, to: &str, by: &str) -> TaskChange {
    let owner = Some(NewOwner::Agent(name(to)));
    update(board, task, TaskEdit { owner, ..TaskEdit::default() }, &actor(by))
}

fn events(task: &Task) -> Vec<&EventKind> {
    task.history.iter().map(|event| &event.what).collect()
}

#[test]
fn a_task_is_claimed_once_and_after_its_blockers() {
    let mut board = Board::new();
    let (first, second) = (add(&mut board, &[], "lead"), add(&mut board, &[1], "lead"));
    assert!(matches!(claim(&board, second, &actor("bob")), Err(TaskRefusal::Blocked { .. })));
    assert!(matches!(
        end(&board, second, TaskEnd::Completed, None, &actor("user")),
        Err(TaskRefusal::Blocked { .. })
    ));
    let claimed = claim(&board, first, &actor("alice"));
    put(&mut board, claimed);
    assert_eq!(claim(&board, first, &actor("alice")), Ok(None), "claiming again changes nothing");
    assert!(matches!(claim(&board, first, &actor("bob")), Err(TaskRefusal::Taken { .. })));
    let by_bob = end(&board, first, TaskEnd::Completed, None, &actor("bob"));
    assert!(matches!(by_bob, Err(TaskRefusal::NotYours { .. })));
    assert_eq!(freed_by(&board, first), []);
    let done = end(&board, first, TaskEnd::Completed, None, &actor("alice"));
    put(&mut board, done);
    assert_eq!(end(&board, first, TaskEnd::Completed, None, &actor("alice")), Ok(None));
    assert!(matches!(
        end(&board, first, TaskEnd::Failed, None, &actor("alice")),
        Err(TaskRefusal::Over { .. })
    ));
    assert_eq!(freed_by(&board, first).len(), 1);
    assert!(is_claimable(&board, &board[&second]));
    assert_eq!(
        events(&board[&first]),
        [&EventKind::Created, &EventKind::Claimed, &EventKind::Completed]
    );
    let lost = reopen_of(&board, first, "lead");
    assert!(matches!(lost, Err(TaskRefusal::Over { .. })), "completed is final");
}

fn reopen_of(board: &Board, task: TaskId, by: &str) -> TaskChange {
    let status = Some(TaskStatus::Pending);
    update(board, task, TaskEdit { status, ..TaskEdit::default() }, &actor(by))
}

#[test]
fn a_failed_task_blocks_until_it_is_reopened() {
    let mut board = Board::new();
    let (first, second) = (add(&mut board, &[], "user"), add(&mut board, &[1], "user"));
    let failed = end(&board, first, TaskEnd::Failed, Some("no disk".into()), &actor("alice"));
    put(&mut board, failed);
    assert_eq!(board[&first].history.last().unwrap().note.as_deref(), Some("no disk"));
    let refused = claim(&board, second, &actor("bob")).unwrap_err();
    assert!(refused.to_string().contains("1 (failed)") && refused.hint().contains("reopen"));
    let reopened = reopen_of(&board, first, "user");
    put(&mut board, reopened);
    assert!(is_claimable(&board, &board[&first]));
    board.remove(&first);
    let refused = claim(&board, second, &actor("bob")).unwrap_err();
    assert!(refused.to_string().contains("1 (which does not exist)"), "{refused}");
}

#[test]
fn only_permitted_agents_change_the_owner() {
    let mut board = Board::new();
    let task = add(&mut board, &[], "lead");
    let given = assigned(&board, task, "alice", "bob");
    put(&mut board, given);
    assert!(matches!(claim(&board, task, &actor("bob")), Err(TaskRefusal::Taken { .. })));
    assert!(matches!(assigned(&board, task, "bob", "bob"), Err(TaskRefusal::NotYours { .. })));
    let begun = claim(&board, task, &actor("alice"));
    put(&mut board, begun);
    assert_eq!(board[&task].lease.as_deref(), Some("alice-1"));
    let moved = assigned(&board, task, "bob", "lead");
    put(&mut board, moved);
    let now = &board[&task];
    assert_eq!((now.status, now.owner.as_deref()), (TaskStatus::Pending, Some("bob")));
    assert_eq!(now.lease, None);
}

#[test]
fn a_lease_ends_with_the_incarnation_that_claimed() {
    let mut board = Board::new();
    let task = add(&mut board, &[], "lead");
    let life = |life: &str| OwnerLife::Of(life.into());
    assert!(!is_abandoned(&board[&task], &OwnerLife::Over), "it is not claimed");
    let begun = claim(&board, task, &actor("alice"));
    put(&mut board, begun);
    let held = &board[&task];
    assert!(!is_abandoned(held, &life("alice-1")) && !is_abandoned(held, &OwnerLife::Untold));
    assert!(is_abandoned(held, &life("alice-2")) && is_abandoned(held, &OwnerLife::Over));
    let free = release(held, &actor("system"));
    assert_eq!((free.status, &free.owner, &free.lease), (TaskStatus::Pending, &None, &None));
    let last = free.history.last().unwrap();
    assert_eq!(last.owner.as_deref(), Some("alice"));
    assert_eq!(last.note.as_deref(), Some("alice is gone"));
    board.insert(task, free);
    let persons = claim(&board, task, &actor("user"));
    put(&mut board, persons);
    assert!(!is_abandoned(&board[&task], &OwnerLife::Over), "the person needs no lease");
}

#[test]
fn a_cycle_is_refused_and_described() {
    let mut board = Board::new();
    for after in [vec![], vec![1], vec![2], vec![2, 3]] {
        add(&mut board, &after, "lead");
    }
    let wait = |task, after: &[u64]| {
        let blocked_by = Some(after.iter().copied().map(id).collect());
        update(&board, id(task), TaskEdit { blocked_by, ..TaskEdit::default() }, &actor("lead"))
    };
    let refused = wait(1, &[4]).unwrap_err().to_string();
    assert!(refused.starts_with("task 1 would wait for itself: 1 waits for 4 waits for "));
    assert!(refused.ends_with(" waits for 1"), "{refused}");
    assert!(matches!(wait(2, &[2]), Err(TaskRefusal::Cycle { .. })));
    assert!(matches!(wait(2, &[9]), Err(TaskRefusal::Unknown { .. })));
    assert_eq!(wait(4, &[3, 1, 3]).unwrap().unwrap().blocked_by, [id(1), id(3)]);
    let own = NewTask { subject: "x".into(), blocked_by: vec![id(5)], ..NewTask::default() };
    assert!(matches!(create(&board, id(5), own, &actor("lead")), Err(TaskRefusal::Cycle { .. })));
}

#[test]
fn the_next_task_is_an_own_one_or_one_for_the_role() {
    let mut board = Board::new();
    let task = add(&mut board, &[], "lead");
    let tester = TaskEdit { role: Some(" Tester ".into()), ..TaskEdit::default() };
    let tester = update(&board, task, tester, &actor("lead"));
    put(&mut board, tester);
    assert_eq!(next_for(&board, &name("alice"), "coder"), None);
    assert_eq!(next_for(&board, &name("alice"), "tester"), Some(task));
    let (second, third) = (add(&mut board, &[], "lead"), add(&mut board, &[], "lead"));
    assert_eq!(next_for(&board, &name("alice"), "coder"), Some(second));
    let given = assigned(&board, third, "alice", "lead");
    put(&mut board, given);
    assert_eq!(next_for(&board, &name("alice"), "coder"), Some(third));
    assert_eq!(next_for(&board, &name("bob"), "coder"), Some(second));
}

#[test]
fn texts_have_limits() {
    let new = |subject: &str, description: String| {
        let new = NewTask { subject: subject.into(), description, ..NewTask::default() };
        create(&Board::new(), id(1), new, &actor("lead"))
    };
    assert_eq!(new("  a\n b ", String::new()).unwrap().subject, "a b");
    assert_eq!(new(" \n", String::new()), Err(TaskRefusal::NoSubject));
    assert!(matches!(new(&"x".repeat(201), String::new()), Err(TaskRefusal::TooLong { .. })));
    assert!(matches!(new("x", "y".repeat(65_537)), Err(TaskRefusal::TooLong { .. })));
}

#[derive(Debug, Clone)]
enum Change {
    Add(Vec<u64>),
    Claim(u64),
    End(u64, TaskEnd),
    Assign(u64, Option<&'static str>),
    Wait(u64, Vec<u64>),
    Reopen(u64),
    Die,
}

fn changes() -> impl Strategy<Value = Change> {
    let task = 1..8_u64;
    let tasks = proptest::collection::vec(1..8_u64, 0..3);
    let ends =
        prop_oneof![Just(TaskEnd::Completed), Just(TaskEnd::Failed), Just(TaskEnd::Cancelled)];
    let owners = prop_oneof![Just(None), Just(Some("alice")), Just(Some("bob"))];
    prop_oneof![
        tasks.clone().prop_map(Change::Add),
        task.clone().prop_map(Change::Claim),
        (task.clone(), ends).prop_map(|(task, how)| Change::End(task, how)),
        (task.clone(), owners).prop_map(|(task, to)| Change::Assign(task, to)),
        (task.clone(), tasks).prop_map(|(task, after)| Change::Wait(task, after)),
        task.prop_map(Change::Reopen),
        Just(Change::Die),
    ]
}

fn attempt(board: &Board, what: Change, by: &Actor) -> Vec<WithUnknownFields<Task>> {
    let edit = |task, edit| update(board, id(task), edit, by);
    let ruled = match what {
        Change::Add(after) => {
            let next = board.keys().last().copied().unwrap_or_default().next();
            let blocked_by = after.into_iter().map(id).collect();
            let new = NewTask { subject: "x".into(), blocked_by, ..NewTask::default() };
            create(board, next, new, by).map(Some)
        }
        Change::Claim(task) => claim(board, id(task), by),
        Change::End(task, how) => end(board, id(task), how, None, by),
        Change::Assign(task, to) => {
            let to = to.map_or(NewOwner::Nobody, |to| NewOwner::Agent(name(to)));
            edit(task, TaskEdit { owner: Some(to), ..TaskEdit::default() })
        }
        Change::Wait(task, after) => {
            let after = Some(after.into_iter().map(id).collect());
            edit(task, TaskEdit { blocked_by: after, ..TaskEdit::default() })
        }
        Change::Reopen(task) => {
            edit(task, TaskEdit { status: Some(TaskStatus::Pending), ..TaskEdit::default() })
        }
        Change::Die => {
            let its = board.values().filter(|task| by.owns(task));
            let its = its.filter(|task| is_abandoned(task, &OwnerLife::Over));
            return its.map(|task| release(task, &actor("system"))).collect();
        }
    };
    ruled.ok().flatten().into_iter().collect()
}

proptest! {
    /// After any changes by any agents: no cycles, no task in progress or completed before its blockers, none
    /// completed twice, histories only grow, and the owner is the agent that claimed.
    #[test]
    fn any_order_of_changes_keeps_the_invariants(
        steps in proptest::collection::vec(
            (prop_oneof![Just("alice"), Just("bob"), Just("lead"), Just("user")], changes()),
            1..80,
        ),
    ) {
        let mut board = Board::new();
        for (who, what) in steps {
            for task in attempt(&board, what.clone(), &actor(who)) {
                if let Some(before) = board.get(&task.id) {
                    prop_assert!(task.history.starts_with(&before.history), "{what:?}");
                    prop_assert!(task.history.len() > before.history.len(), "{what:?}");
                    prop_assert!(before.status != TaskStatus::Completed, "{what:?}");
                }
                board.insert(task.id, task);
            }
            for task in board.values() {
                let worked_on = matches!(task.status, TaskStatus::InProgress | TaskStatus::Completed);
                prop_assert!(!worked_on || blockers(&board, task).is_empty(), "{what:?}: {task:?}");
                for first in &task.blocked_by {
                    prop_assert!(way(&board, *first, task.id).is_none(), "{what:?}: {task:?}");
                }
                let done = task.history.iter().filter(|event| event.what == EventKind::Completed);
                prop_assert!(done.count() <= 1);
                if task.status == TaskStatus::InProgress {
                    let claimed = task.history.iter().rev().find(|e| e.what == EventKind::Claimed);
                    prop_assert_eq!(task.owner.as_ref(), claimed.map(|event| &event.by));
                } else {
                    prop_assert_eq!(&task.lease, &None);
                }
            }
        }
    }
}
