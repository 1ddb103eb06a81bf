//! Examples of the rules, and a property test of the invariants.

use super::*;
use TaskStatus::{Cancelled, Completed, Failed, InProgress, Pending};
use proptest::prelude::*;

fn name(name: &str) -> AgentName {
    if name == "system" { AgentName::system() } else { AgentName::mailbox(name).unwrap() }
}

fn actor(who: &str) -> Actor {
    let incarnation = (who != "user").then(|| format!("{who}-1"));
    Actor { name: name(who), incarnation, now: 1.0.into() }
}

fn id(number: u64) -> TaskId {
    TaskId::parse(&number.to_string()).unwrap()
}

#[derive(Debug, Clone)]
enum Change {
    Add(Vec<u64>),
    Status(u64, TaskStatus),
    Assign(u64, Option<&'static str>),
    Wait(u64, Vec<u64>),
    Role(u64, &'static str),
    Die,
}
use Change::{Add, Assign, Die, Role, Status, Wait};

type Changed = Result<Vec<WithUnknownFields<Task>>, TaskRefusal>;

fn attempt(board: &Board, what: Change, by: &Actor) -> Changed {
    let edit = TaskEdit::default();
    let (task, edit) = match what {
        Add(after) => {
            let next = board.keys().last().copied().unwrap_or_default().next();
            let blocked_by = after.into_iter().map(id).collect();
            let new = NewTask { subject: "x".into(), blocked_by, ..NewTask::default() };
            return create(board, next, new, by).map(|task| vec![task]);
        }
        Die => {
            let its = board.values().filter(|task| by.owns(task));
            let its = its.filter(|task| is_abandoned(task, &OwnerLiveness::Ended));
            return Ok(its.map(|task| release(task, &actor("system"))).collect());
        }
        Status(task, status) => (task, TaskEdit::status(status, Some("why".into()))),
        Assign(task, to) => {
            let owner = Some(to.map_or(NewOwner::Unowned, |to| NewOwner::Agent(name(to))));
            (task, TaskEdit { owner, ..edit })
        }
        Wait(task, after) => {
            let blocked_by = Some(after.into_iter().map(id).collect());
            (task, TaskEdit { blocked_by, ..edit })
        }
        Role(task, role) => (task, TaskEdit { role: Some(role.into()), ..edit }),
    };
    update(board, id(task), edit, by).map(|task| task.into_iter().collect())
}

/// Applies changes in order. The expected answer is "ok", "same" for a change without effect, or the beginning of
/// a refusal.
fn check(board: &mut Board, steps: &[(&str, Change, &str)]) {
    for (who, what, wanted) in steps {
        let answer = match attempt(board, what.clone(), &actor(who)) {
            Ok(tasks) if tasks.is_empty() => "same".into(),
            Ok(tasks) => {
                board.extend(tasks.into_iter().map(|task| (task.id, task)));
                "ok".into()
            }
            Err(why) => why.to_string(),
        };
        assert!(answer.starts_with(wanted), "{who} {what:?}: {answer}");
    }
}

/// Returns a board of tasks of the lead, each with the tasks that it waits for.
fn board(tasks: &[&[u64]]) -> Board {
    let mut board = Board::new();
    for after in tasks {
        check(&mut board, &[("lead", Add(after.to_vec()), "ok")]);
    }
    board
}

#[test]
fn a_task_is_claimed_once_and_after_its_blockers() {
    let mut board = board(&[&[], &[1]]);
    let steps = [
        ("bob", Status(2, InProgress), "task 2 waits for 1 (pending)"),
        ("user", Status(2, Completed), "task 2 waits for 1 (pending)"),
        ("alice", Status(1, InProgress), "ok"),
        ("alice", Status(1, InProgress), "same"),
        ("bob", Status(1, InProgress), "task 1 is alice's (in_progress)"),
        ("bob", Status(1, Completed), "task 1 is not yours to change: it is alice's"),
    ];
    check(&mut board, &steps);
    assert_eq!(claim(&board, id(1), &actor("alice")), Ok(None), "as the change of status");
    assert_eq!(freed_by(&board, id(1)), []);
    let steps = [
        ("alice", Status(1, Completed), "ok"),
        ("alice", Status(1, Completed), "same"),
        ("alice", Status(1, Failed), "task 1 is completed already (by alice)"),
        ("lead", Status(1, Pending), "task 1 is completed already (by alice)"),
    ];
    check(&mut board, &steps);
    assert_eq!(freed_by(&board, id(1)).len(), 1);
    assert!(is_claimable(&board, &board[&id(2)]));
    let events: Vec<_> = board[&id(1)].history.iter().map(|event| event.what.clone()).collect();
    assert_eq!(events, [EventKind::Created, EventKind::Claimed, EventKind::Completed]);
}

#[test]
fn a_failed_task_blocks_until_it_is_reopened() {
    let mut board = board(&[&[], &[1]]);
    check(&mut board, &[("alice", Status(1, Failed), "ok")]);
    assert_eq!(board[&id(1)].history.last().unwrap().note.as_deref(), Some("why"));
    let refused = claim(&board, id(2), &actor("bob")).unwrap_err();
    assert!(refused.to_string().contains("1 (failed)") && refused.hint().contains("reopen"));
    check(&mut board, &[("user", Status(1, Pending), "ok")]);
    assert!(is_claimable(&board, &board[&id(1)]));
    board.remove(&id(1));
    let missing = "task 2 waits for 1 (which does not exist)";
    check(&mut board, &[("bob", Status(2, InProgress), missing)]);
}

#[test]
fn only_permitted_agents_change_the_owner() {
    let mut board = board(&[&[]]);
    let steps = [
        ("bob", Assign(1, Some("alice")), "ok"),
        ("bob", Status(1, InProgress), "task 1 is alice's"),
        ("bob", Assign(1, Some("bob")), "task 1 is not yours"),
        ("alice", Status(1, InProgress), "ok"),
    ];
    check(&mut board, &steps);
    assert_eq!(board[&id(1)].lease.as_deref(), Some("alice-1"));
    check(&mut board, &[("lead", Assign(1, Some("bob")), "ok")]);
    let now = &board[&id(1)];
    assert_eq!((now.status, now.owner.as_deref(), &now.lease), (Pending, Some("bob"), &None));
}

#[test]
fn a_lease_ends_with_the_incarnation_that_claimed() {
    let mut board = board(&[&[]]);
    let running = |incarnation: &str| OwnerLiveness::Running(incarnation.into());
    assert!(!is_abandoned(&board[&id(1)], &OwnerLiveness::Ended), "it is not claimed");
    check(&mut board, &[("alice", Status(1, InProgress), "ok")]);
    let held = &board[&id(1)];
    assert!(
        !is_abandoned(held, &running("alice-1")) && !is_abandoned(held, &OwnerLiveness::Unknown)
    );
    assert!(is_abandoned(held, &running("alice-2")) && is_abandoned(held, &OwnerLiveness::Ended));
    check(&mut board, &[("alice", Die, "ok")]);
    check(&mut board, &[("user", Status(1, InProgress), "ok")]);
    assert!(!is_abandoned(&board[&id(1)], &OwnerLiveness::Ended), "the person needs no lease");
}

#[test]
fn a_cycle_is_refused_and_described() {
    let mut board = board(&[&[], &[1], &[2], &[2, 3]]);
    let refused = attempt(&board, Wait(1, vec![4]), &actor("lead")).unwrap_err().to_string();
    assert!(refused.starts_with("task 1 would wait for itself: 1 waits for 4 waits for "));
    assert!(refused.ends_with(" waits for 1"), "{refused}");
    let steps = [
        ("lead", Wait(2, vec![2]), "task 2 would wait for itself"),
        ("lead", Wait(2, vec![9]), "there is no task 9"),
        ("lead", Wait(4, vec![3, 1, 3]), "ok"),
        ("lead", Add(vec![5]), "task 5 would wait for itself"),
    ];
    check(&mut board, &steps);
    assert_eq!(board[&id(4)].blocked_by, [id(1), id(3)]);
}

#[test]
fn the_next_task_is_an_own_one_or_one_for_the_role() {
    let mut board = board(&[&[]]);
    check(&mut board, &[("lead", Role(1, " Tester "), "ok")]);
    let next = |board: &Board, who, role| next_for(board, &name(who), role);
    assert_eq!(next(&board, "alice", "coder"), None);
    assert_eq!(next(&board, "alice", "tester"), Some(id(1)));
    check(&mut board, &[("lead", Add(vec![]), "ok"), ("lead", Add(vec![]), "ok")]);
    assert_eq!(next(&board, "alice", "coder"), Some(id(2)));
    check(&mut board, &[("lead", Assign(3, Some("alice")), "ok")]);
    assert_eq!(next(&board, "alice", "coder"), Some(id(3)));
    assert_eq!(next(&board, "bob", "coder"), Some(id(2)));
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

fn changes() -> impl Strategy<Value = Change> {
    let task = 1..8_u64;
    let tasks = proptest::collection::vec(1..8_u64, 0..3);
    let status = prop::sample::select(vec![Pending, InProgress, Completed, Failed, Cancelled]);
    let owner = prop::sample::select(vec![None, Some("alice"), Some("bob")]);
    prop_oneof![
        1 => tasks.clone().prop_map(Add),
        3 => (task.clone(), status).prop_map(|(task, status)| Status(task, status)),
        1 => (task.clone(), owner).prop_map(|(task, to)| Assign(task, to)),
        1 => (task, tasks).prop_map(|(task, after)| Wait(task, after)),
        1 => Just(Die),
    ]
}

proptest! {
    /// After any changes by any agents there is no cycle, no task is in progress or completed before its
    /// blockers, none is completed twice, histories only grow, and the owner of a task in progress is the agent
    /// that claimed it.
    #[test]
    fn any_order_of_changes_keeps_the_invariants(
        steps in proptest::collection::vec(
            (prop_oneof![Just("alice"), Just("bob"), Just("lead"), Just("user")], changes()),
            1..80,
        ),
    ) {
        let mut board = Board::new();
        for (who, what) in steps {
            for task in attempt(&board, what.clone(), &actor(who)).unwrap_or_default() {
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
