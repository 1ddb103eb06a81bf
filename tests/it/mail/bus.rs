//! The members that accept mail, and the errors of sends to those that do not.

use crate::support::child_process::{open, team};
use crate::support::harness::program;
use crate::support::history::messages;
use agent_team::bus::{Bus, BusError, MailLimits, Outgoing};
use agent_team::store::liveness::{LifeLock, LifeRecord};
use agent_team::store::{Fsync, SystemClock, TeamDir, roster, unread};
use agent_team::wire::AgentName;
use agent_team::wire::message::{Body, Correlation};
use agent_team::wire::roster::{Member, Status};
use std::fs;
use std::sync::Arc;

fn name(name: &str) -> AgentName {
    AgentName::mailbox(name).unwrap()
}

fn bus(dir: &TeamDir) -> Bus {
    Bus::new(dir.clone(), MailLimits::default(), Arc::new(SystemClock))
}

fn set(dir: &TeamDir, member: &str, status: Status) {
    roster::update(dir, Fsync::Never, |roster| {
        if let Some(member) = roster.member_mut(member) {
            member.status = status;
        } else {
            let member = Member { name: member.into(), status, ..Member::default() };
            roster.members.push(member.into());
        }
    })
    .unwrap();
}

fn take(dir: &TeamDir, who: &str) -> LifeLock {
    LifeLock::take(dir, &name(who), LifeRecord::default()).unwrap()
}

fn unread(dir: &TeamDir, who: &str) -> usize {
    unread::count(dir, &name(who)).unwrap()
}

fn files(dir: &TeamDir) -> Vec<String> {
    let list = |folder| fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let locks = dir.inboxes().join(".lock");
    let mut files: Vec<_> = list(dir.inboxes())
        .chain(list(locks))
        .filter(|path| path.is_file())
        .map(|path| path.strip_prefix(dir.root()).unwrap().display().to_string())
        .collect();
    files.sort();
    files
}

#[test]
fn status_and_life_lock_decide_whether_a_member_accepts_mail() {
    let (_folder, dir) = team();
    let bus = bus(&dir);
    let life = take(&dir, "alice");
    let say = || bus.send(&name("bob"), "alice", Outgoing::text("hi"));
    let stop = || {
        let correlation = Correlation { request_id: "r".into(), incarnation: "i".into() };
        let body = Body::ShutdownRequest { reason: None, deadline: None };
        bus.control(&name("lead"), &name("alice"), body, correlation)
    };
    assert!(matches!(say(), Err(BusError::Unreachable { .. })), "not on the roster");
    for (status, text, control) in [
        (Status::Starting, true, true),
        (Status::Working, true, true),
        (Status::Idle, true, true),
        (Status::Waiting, true, true),
        (Status::Stopping, false, true),
        (Status::Shutdown, false, false),
        (Status::Failed, false, false),
    ] {
        set(&dir, "alice", status);
        assert_eq!((say().is_ok(), stop().is_ok()), (text, control), "alive and {status:?}");
    }
    drop(life);
    for status in
        [Status::Starting, Status::Working, Status::Idle, Status::Waiting, Status::Stopping]
    {
        set(&dir, "alice", status);
        assert!(say().is_err() && stop().is_err(), "dead and {status:?}");
    }
    let lead = take(&dir, "lead");
    set(&dir, "alice", Status::Starting);
    say().unwrap();
    drop(lead);
    assert!(say().is_err());
    for always in ["lead", "user"] {
        bus.send(&name("bob"), always, Outgoing::text("hi")).unwrap();
    }
}

#[test]
fn a_refused_send_lists_the_reachable_members_and_creates_nothing() {
    let (_folder, dir) = team();
    let bus = bus(&dir);
    set(&dir, "alice", Status::Idle);
    set(&dir, "dead", Status::Working);
    let _life = take(&dir, "alice");
    let say = |to: &str| bus.send(&AgentName::lead(), to, Outgoing::text("x"));
    for (to, why) in [
        ("nobody", "nobody is not on the roster; reachable: user, alice"),
        ("dead", "dead is dead (the roster still says working)"),
        ("Alice", "not a valid name"),
        ("../x", "not a valid name"),
        ("a\nb", "not a valid name"),
        ("all", "use broadcast"),
        ("broadcast", "use broadcast"),
        ("system", "reserved"),
        ("lead", "cannot write to itself"),
    ] {
        let said = say(to).unwrap_err().to_string();
        assert!(said.contains(why), "{to:?}: {said}");
    }
    let long = Outgoing::text("x".repeat(262_145));
    let said = bus.send(&AgentName::lead(), "alice", long).unwrap_err().to_string();
    assert!(said.contains("write a file and send its path"), "{said}");
    assert_eq!(files(&dir), [""; 0], "not even a lock file");
    let most = Outgoing::text("x".repeat(262_144));
    bus.send(&AgentName::lead(), "alice", most).unwrap();
    assert_eq!(files(&dir), ["inbox/.lock/alice", "inbox/alice.jsonl"]);
}

#[test]
fn a_stopping_member_accepts_no_mail() {
    let (_folder, dir) = team();
    let bus = bus(&dir);
    let _life = take(&dir, "alice");
    set(&dir, "alice", Status::Idle);
    let say = || bus.send(&AgentName::lead(), "alice", Outgoing::text("x"));
    say().unwrap();
    set(&dir, "alice", Status::Stopping);
    assert!(say().is_err(), "the roster at hand is not an old one");
    set(&dir, "alice", Status::Idle);
    say().unwrap();
    assert_eq!(unread(&dir, "alice"), 2);
}

#[test]
fn ids_come_from_the_sender_or_are_unique() {
    let (_folder, dir) = team();
    let bus = bus(&dir);
    let say = |id: Option<&str>| {
        let outgoing = Outgoing { id: id.map(str::to_owned), ..Outgoing::text("x") };
        bus.send(&name("bob"), "lead", outgoing).unwrap()
    };
    assert_eq!(say(Some("bob:toolu_1")), "bob:toolu_1");
    assert_eq!(say(Some("bob:toolu_1")), "bob:toolu_1");
    let (one, two) = (say(None), say(None));
    assert!(one.starts_with("bob:") && one.len() == 4 + 36 && one != two);
    let mut owner = open(&dir, "lead");
    assert_eq!(owner.drain().unwrap().mail.len(), 3, "the repeated call counts once");
}

#[test]
fn a_broadcast_reaches_all_but_its_sender_with_an_id_each() {
    let (_folder, dir) = team();
    let bus = bus(&dir);
    let _lives: Vec<_> = ["alice", "bob"].iter().map(|who| take(&dir, who)).collect();
    for who in ["alice", "bob", "gone"] {
        set(&dir, who, Status::Idle);
    }
    for _ in 0..2 {
        let outgoing = Outgoing { id: Some("alice:t1".into()), ..Outgoing::broadcast("phase 1") };
        let sent = bus.broadcast(&name("alice"), &outgoing).unwrap();
        let ids: Vec<_> = sent.iter().map(|(_, sent)| sent.as_ref().unwrap().clone()).collect();
        assert_eq!(ids, ["alice:t1:lead", "alice:t1:bob"]);
    }
    assert_eq!((unread(&dir, "alice"), unread(&dir, "gone"), unread(&dir, "user")), (0, 0, 0));
    assert_eq!(open(&dir, "lead").drain().unwrap().mail.len(), 1);
    let message = messages(&dir, "lead").remove(0);
    assert_eq!((message.body, message.content.as_str()), (Body::Broadcast {}, "phase 1"));
}

#[test]
fn a_broadcast_reaches_more_members_than_files_may_be_open() {
    const MEMBERS: usize = 400;
    let (_folder, dir) = team();
    let names: Vec<_> = (0..MEMBERS).map(|at| format!("m{at}")).collect();
    roster::update(&dir, Fsync::Never, |roster| {
        for name in &names {
            let (name, host) = (name.clone(), Some("gpu1".into()));
            let idle = Status::Idle;
            let member =
                Member { name, status: idle, host, alive: Some(true), ..Member::default() };
            roster.members.push(member.into());
        }
    })
    .unwrap();
    let broadcast = "ulimit -n 512 && exec \"$0\" --dir \"$1\" broadcast hello";
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", broadcast]).arg(program("team")).arg(dir.root());
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in &names {
        assert_eq!(unread(&dir, name), 1, "{name}");
    }
}

#[test]
fn every_send_of_concurrent_threads_succeeds_with_shared_and_own_buses() {
    let (_folder, dir) = team();
    let shared = bus(&dir);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (shared, dir) = (&shared, &dir);
            scope.spawn(move || {
                let own = bus(dir);
                let from = name(&format!("t{thread}"));
                for n in 0..50 {
                    let bus = if n % 2 == 0 { shared } else { &own };
                    bus.send(&from, "lead", Outgoing::text(n.to_string())).unwrap();
                }
            });
        }
    });
    assert_eq!(open(&dir, "lead").drain().unwrap().mail.len(), 200);
    for thread in 0..4 {
        let from = format!("t{thread}");
        let mail = messages(&dir, "lead").into_iter().filter(|message| message.from == from);
        let numbers: Vec<u32> = mail.map(|message| message.content.parse().unwrap()).collect();
        assert!(numbers.is_sorted() && numbers.len() == 50);
    }
}

#[test]
fn a_bad_name_is_explained_once() {
    let (_folder, dir) = team();
    let why = bus(&dir).send(&name("bob"), "Alice", Outgoing::text("hi")).unwrap_err();
    assert_eq!(why.hint(), "try \"alice\"");
    assert!(!why.to_string().contains("try"), "{why}");
}
