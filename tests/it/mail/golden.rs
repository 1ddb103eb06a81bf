//! Files in the form of each released version of the format. Every later version must read them, so the folders of
//! released versions are never edited.

use crate::support::child_process::{open, team, write};
use agent_team::store::tasks::TaskList;
use agent_team::store::{Fsync, dead, roster, transcript};
use agent_team::wire::AgentName;
use agent_team::wire::activity::Activity;
use agent_team::wire::message::Body;
use agent_team::wire::roster::{ExitCause, Status};
use agent_team::wire::task::{EventKind, TaskId, TaskStatus};
use agent_team::wire::transcript::Entry;

const CONFIG: &str = include_str!("../golden/v1/config.json");
const INBOX: &str = include_str!("../golden/v1/inbox.jsonl");
const TRANSCRIPT: &str = include_str!("../golden/v1/transcript.jsonl");
const TASK: &str = include_str!("../golden/v1/task.json");
const DEAD: &str = include_str!("../golden/v1/dead.jsonl");

#[test]
fn the_roster_of_version_1() {
    let (_folder, dir) = team();
    write(&dir.config(), CONFIG);
    let roster = roster::read(&dir).unwrap();
    assert_eq!((roster.version, roster.members.len()), (1, 3));
    let lead = roster.lead.as_ref().unwrap();
    assert_eq!(
        (lead.pid, lead.status, lead.incarnation.as_str()),
        (Some(4711), Status::Working, "k3f9")
    );
    let alice = roster.member("alice").unwrap();
    assert_eq!(
        (alice.status, &alice.activity),
        (Status::Working, &Some(Activity::Tool("bash".into())))
    );
    assert_eq!((alice.usage.turns, alice.usage.output_tokens), (3, 880));
    let exit = roster.member("bob").unwrap().last_exit.clone().unwrap();
    assert_eq!((exit.signal, exit.cause), (Some(9), ExitCause::Crash));
}

#[test]
fn the_inbox_of_version_1_and_of_earlier_programs() {
    let (_folder, dir) = team();
    let alice = AgentName::member("alice").unwrap();
    write(&dir.inbox(&alice), INBOX);
    let mut owner = open(&dir, "alice");
    let drained = owner.drain().unwrap();
    assert_eq!(drained.notices, []);
    assert_eq!(drained.mail.len(), INBOX.lines().count());
    let unknown =
        drained.mail.iter().filter(|mail| matches!(mail.message.body, Body::Unknown { .. }));
    let contents: Vec<_> = unknown.map(|mail| mail.message.content.as_str()).collect();
    assert_eq!(contents, ["a type of the future"]);
    let by_hand = drained.mail.iter().filter(|mail| mail.message.from == "unknown").count();
    assert_eq!(by_hand, 1);
    let approvals = drained
        .mail
        .iter()
        .filter(|mail| matches!(mail.message.body, Body::ShutdownResponse { approve: true, .. }));
    assert_eq!(approvals.count(), 3, "shutdown_response, shutdown_approved, approved");
}

#[test]
fn the_transcript_of_version_1() {
    let (_folder, dir) = team();
    let alice = AgentName::member("alice").unwrap();
    write(&dir.transcript(&alice), TRANSCRIPT);
    let lines = transcript::read_all(&dir, &alice).unwrap();
    assert_eq!(lines.len(), TRANSCRIPT.lines().count());
    let kinds: Vec<_> = lines.iter().map(|line| std::mem::discriminant(&line.entry)).collect();
    for (at, kind) in kinds.iter().enumerate() {
        assert!(!kinds[..at].contains(kind), "line {at}: one line of every kind");
    }
    assert_eq!(lines.last().unwrap().entry, Entry::Unknown);
    // A repeated send of a message in this transcript is not delivered again.
    write(&dir.inbox(&alice), "{\"from\":\"lead\",\"content\":\"start\",\"id\":\"lead:1\"}\n");
    assert_eq!(open(&dir, "alice").drain().unwrap().mail, []);
}

#[test]
fn the_dead_letters_of_version_1() {
    let (_folder, dir) = team();
    let alice = AgentName::member("alice").unwrap();
    write(&dir.dead(&alice), DEAD);
    let letters = dead::read_all(&dir, &alice).unwrap();
    let kept = letters.iter().map(|l| (l.raw.is_some(), l.raw_hex.is_some(), l.file.is_some()));
    let forms = [(true, false, false), (false, true, false), (false, false, true)];
    assert!(kept.eq(forms));
}

#[test]
fn the_task_of_version_1() {
    let (_folder, dir) = team();
    let id = TaskId::parse("7").unwrap();
    write(&dir.task(id), TASK);
    let mut list = TaskList::of(&dir, Fsync::Never);
    list.look().unwrap();
    assert_eq!(list.problems(), []);
    let task = list.board()[&id].clone();
    assert_eq!((task.status, task.owner.as_deref()), (TaskStatus::InProgress, Some("alice")));
    assert_eq!((task.lease.as_deref(), task.role.as_deref()), (Some("m2c1"), Some("coder")));
    let events: Vec<&EventKind> = task.history.iter().map(|event| &event.what).collect();
    assert_eq!(
        events,
        [
            &EventKind::Created,
            &EventKind::Claimed,
            &EventKind::Other("a deed of the future".into())
        ]
    );
    // Writing the task again gives the same file, because unknown fields are kept.
    list.change(|board, _| (vec![board[&id].clone()], ())).unwrap();
    assert_eq!(std::fs::read_to_string(dir.task(id)).unwrap(), TASK);
}
