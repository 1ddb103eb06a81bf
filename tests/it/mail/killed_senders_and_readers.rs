//! `kill -9` at every failpoint: no acknowledged message is lost, none is delivered twice, and the order of each
//! sender is kept. `tests/torture/random_kills.rs` kills at random times.

use crate::support::child_process::{Job, append, line, start, start_armed, team, was_killed};
use crate::support::harness::{PATIENCE, in_parallel};
use crate::support::history::{Sent, check_history, finish, sent, taken_in};
use agent_team::store::failpoint::POINTS;
use agent_team::store::{TeamDir, dead, unread};
use agent_team::wire::AgentName;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

fn read_job() -> Job {
    Job::Read { name: "alice".into(), settle: false, fsync: true }
}

/// The failpoints of one kind.
fn of(kind: &str) -> impl Iterator<Item = &'static str> {
    POINTS.into_iter().filter(move |point| point.starts_with(kind))
}

/// Sends the messages 0..5 with a process that is killed at `point`, and then with another one.
fn send_dying(dir: &TeamDir, log: &Path, point: &str) {
    let job = Job::Send {
        to: "alice".into(),
        from: "bob".into(),
        log: log.into(),
        count: 5,
        fsync: true,
    };
    let armed = format!("{point}:1");
    assert!(was_killed(start_armed(dir, job.clone(), Some((&armed, 1))).wait()), "{point}");
    assert!(start(dir, job).wait().success());
}

#[test]
fn a_sender_killed_at_any_failpoint_sends_once() {
    in_parallel(of("send."), |point| {
        let (folder, dir) = team();
        let log = folder.path().join("log");
        send_dying(&dir, &log, point);
        finish(&dir);
        let sent = BTreeMap::from([("bob".to_owned(), sent(&log))]);
        assert_eq!(sent["bob"], Sent { begun: 5, acked: 5 });
        assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), [], "{point}");
    });
}

#[test]
fn an_owner_killed_at_any_failpoint_receives_once() {
    in_parallel(of("drain."), |point| {
        let (_folder, dir) = team();
        let inbox = dir.inbox(&AgentName::member("alice").unwrap());
        // The fragment in the middle becomes a dead letter.
        append(&inbox, [&line("bob", 0, 9), "{\n", &line("bob", 1, 9)].concat());
        let armed = format!("{point}:1");
        let job = Job::Read { name: "alice".into(), settle: true, fsync: true };
        assert!(was_killed(start_armed(&dir, job, Some((&armed, 1))).wait()), "{point}");
        // A line is appended before the owner is started again, while its claim may be half-made.
        append(&inbox, line("bob", 2, 9));
        finish(&dir);
        let sent = BTreeMap::from([("bob".to_owned(), Sent { begun: 3, acked: 3 })]);
        assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), [], "{point}");
    });
}

/// The owner is killed after it linked the inbox and before it replaced it. The next sender finds an inbox with
/// two links. It must neither fail nor append to a claim.
#[test]
fn a_sender_repairs_a_half_claim() {
    let (folder, dir) = team();
    let alice = AgentName::member("alice").unwrap();
    append(&dir.inbox(&alice), line("carl", 0, 9));
    let armed = Some(("drain.linked:1", 1));
    assert!(was_killed(start_armed(&dir, read_job(), armed).wait()));
    let log = folder.path().join("log");
    send_dying(&dir, &log, "send.written");
    let claims = std::fs::read_dir(dir.claims()).unwrap();
    let left: Vec<_> = claims.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["alice.new"]);
    finish(&dir);
    let sent = BTreeMap::from([
        ("bob".to_owned(), sent(&log)),
        ("carl".to_owned(), Sent { begun: 1, acked: 1 }),
    ]);
    assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), []);
}

/// Mail that crashes its owner five times is quarantined unchanged, and the next mail is delivered.
#[test]
fn a_poison_message_is_quarantined_after_five_crashes() {
    let (_folder, dir) = team();
    let alice = AgentName::member("alice").unwrap();
    append(&dir.inbox(&alice), line("bob", 0, 9));
    for crash in 1..=5 {
        let mut child = start_armed(&dir, read_job(), Some(("drain.reading:1", 1)));
        assert!(was_killed(child.wait()), "crash {crash}");
    }
    append(&dir.inbox(&alice), line("bob", 1, 9));
    assert!(start(&dir, read_job()).wait().success());
    let letters = dead::read_all(&dir, &alice).unwrap();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("poison"), "{letters:?}");
    let kept = std::fs::read_to_string(letters[0].file.as_ref().unwrap()).unwrap();
    assert_eq!(kept, line("bob", 0, 9));
    let taken: Vec<_> = taken_in(&dir, "alice").into_iter().map(|taken| taken.n).collect();
    assert_eq!(taken, [1]);
}

/// The error of a send names a stopped process that holds the lock. A killed holder releases the lock.
#[test]
fn a_stopped_lock_holder_is_named_and_a_killed_one_does_not_block() {
    use agent_team::store::inbox::{self, SendPolicy};
    let (_folder, dir) = team();
    let alice = AgentName::member("alice").unwrap();
    inbox::ensure(&dir, &alice).unwrap();
    let mut holder = start(&dir, Job::StopWithLock { path: dir.inbox_lock(&alice) });
    assert_eq!(holder.read_line(), "locked");
    let policy = SendPolicy {
        lock_limit: Duration::from_millis(300),
        ..crate::support::child_process::policy(agent_team::store::Fsync::Never)
    };
    let send = |policy| inbox::append(&dir, &alice, line("bob", 0, 9).as_bytes(), policy);
    let refused = send(&policy).unwrap_err().to_string();
    assert!(refused.contains(&format!("pid {}", holder.pid())), "{refused}");
    assert!(refused.contains("inbox/.lock/alice"), "{refused}");
    assert_eq!(unread::count(&dir, &alice).unwrap(), 0);
    holder.kill();
    let start = Instant::now();
    send(&SendPolicy { lock_limit: PATIENCE, ..policy }).unwrap();
    assert!(start.elapsed() < PATIENCE);
}
