//! The mailbox in one process: delivery, dead letters, refusals and repeated sends.

use crate::support::child_process::{
    Job, Owner, append, line, open, open_with, policy, start_below, start_limited, team, write,
};
use crate::support::harness::PATIENCE;
use crate::support::history::{Sent, check_history, messages, taken_in};
use crate::support::skips::skipped;
use agent_team::store::inbox::{self, Priority, SendError, SendPolicy};
use agent_team::store::mailbox::{MailNotice, SettleResult};
use agent_team::store::{Clock, Fsync, TeamDir, WakeMode, dead, transcript, unread};
use agent_team::wire::{AgentName, WallTime};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn alice() -> AgentName {
    AgentName::member("alice").unwrap()
}

fn send(dir: &TeamDir, line: &str) {
    inbox::append(dir, &alice(), line.as_bytes(), &policy(Fsync::Always)).unwrap();
}

/// The contents that one drain returns.
fn contents(owner: &mut Owner) -> Vec<String> {
    owner.drain().unwrap().mail.into_iter().map(|mail| mail.message.content).collect()
}

/// Waits until the claims are settled, and drains the mail of late writers.
fn settle(owner: &mut Owner) {
    let start = Instant::now();
    loop {
        owner.mark_taken().unwrap();
        match owner.settle().unwrap() {
            SettleResult::Done => return,
            SettleResult::Grown => drop(owner.drain().unwrap()),
            SettleResult::Again { after } => std::thread::park_timeout(after),
        }
        assert!(start.elapsed() < PATIENCE, "the claims never settle");
    }
}

fn claims(dir: &TeamDir) -> Vec<String> {
    let names = fs::read_dir(dir.claims()).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn is_ready(owner: &Owner, limit: Duration) -> bool {
    let mut fds = [PollFd::new(owner.watch_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::try_from(limit).unwrap()).unwrap() == 1
}

#[test]
fn mail_is_received_once_and_in_order_across_restarts() {
    let (_folder, dir) = team();
    for n in 0..3 {
        send(&dir, &line("bob", n, 9));
    }
    assert!(unread::is_unread(&dir, &alice()).unwrap());
    assert_eq!(unread::count(&dir, &alice()).unwrap(), 3);
    let mut owner = open(&dir, "alice");
    assert_eq!(contents(&mut owner).len(), 3);
    assert_eq!(contents(&mut owner).len(), 0);
    assert_eq!(fs::metadata(dir.inbox(&alice())).unwrap().len(), 0);
    assert!(unread::is_unread(&dir, &alice()).unwrap(), "taken in, not yet acted on");
    assert_eq!(unread::waiting(&dir, &alice()).unwrap().len(), 3);
    owner.mark_taken().unwrap();
    assert!(!unread::is_unread(&dir, &alice()).unwrap());
    assert!(!owner.has_unread());
    send(&dir, &line("bob", 3, 9));
    assert!(owner.has_unread());
    drop(owner);
    let mut owner = open(&dir, "alice");
    assert_eq!(contents(&mut owner).len(), 1);
    settle(&mut owner);
    assert_eq!(claims(&dir), ["alice.new"]);
    let sent = BTreeMap::from([("bob".to_owned(), Sent { begun: 4, acked: 4 })]);
    assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), []);
}

#[test]
fn a_repeated_send_counts_once_and_a_reused_id_is_a_dead_letter() {
    let (_folder, dir) = team();
    let mut owner = open(&dir, "alice");
    let again = line("bob", 1, 9).replace("1.5", "2.5");
    for line in [&line("bob", 1, 9), &again] {
        send(&dir, line);
    }
    let drained = owner.drain().unwrap();
    assert_eq!(drained.mail.len(), 1);
    let repeated = MailNotice::Repeated { id: "bob:1".into(), from: "bob".into() };
    assert_eq!(drained.notices, std::slice::from_ref(&repeated));
    settle(&mut owner);
    drop(owner);

    let mut owner = open(&dir, "alice");
    send(&dir, &again);
    send(&dir, &line("bob", 1, 900));
    let drained = owner.drain().unwrap();
    assert_eq!(drained.mail, []);
    assert_eq!(drained.notices.len(), 2);
    assert_eq!(drained.notices[0], repeated);
    let letters = dead::read_all(&dir, &alice()).unwrap();
    assert!(letters[0].reason.contains("id reused"), "{letters:?}");
    assert_eq!(letters[0].raw.as_deref(), Some(line("bob", 1, 900).trim_end()));
}

/// The archive is read before the first claim, and not at a start, which would wait for it.
#[test]
fn the_archive_is_known_before_the_first_claim() {
    let (_folder, dir) = team();
    let mut owner = open(&dir, "alice");
    send(&dir, &line("bob", 1, 9));
    assert_eq!(contents(&mut owner).len(), 1);
    settle(&mut owner);
    assert_eq!(owner.start_anew().unwrap().mail, []);
    drop(owner);
    // Nothing can read it for some time.
    let archived = dir.archive().join("alice-000001.jsonl");
    let aside = archived.with_extension("aside");
    fs::rename(&archived, &aside).unwrap();
    fs::create_dir(&archived).unwrap();
    let mut owner = open(&dir, "alice");
    assert_eq!(contents(&mut owner).len(), 0);
    for n in [1, 2] {
        send(&dir, &line("bob", n, 9));
    }
    owner.drain().unwrap_err();
    assert_eq!(claims(&dir), ["alice.new"]);
    fs::remove_dir(&archived).unwrap();
    fs::rename(&aside, &archived).unwrap();
    let drained = owner.drain().unwrap();
    assert_eq!((drained.mail.len(), drained.notices.len()), (1, 1), "the first one is known");
    settle(&mut owner);
    drop(owner);
    // The current conversation, which has mail, would hide the one before when it is archived.
    let mut owner = open(&dir, "alice");
    assert_eq!(owner.start_anew().unwrap().mail, []);
    send(&dir, &line("bob", 1, 9));
    let drained = owner.drain().unwrap();
    assert_eq!((drained.mail.len(), drained.notices.len()), (0, 1), "it is still known");
}

/// The folder of claims is removed between drain and acknowledgement.
#[test]
fn removed_claims_do_not_block_the_owner() {
    let (_folder, dir) = team();
    let mut owner = open(&dir, "alice");
    for n in 0..2 {
        send(&dir, &line("bob", n, 9));
        assert_eq!(contents(&mut owner).len(), 1);
        fs::remove_dir_all(dir.claims()).unwrap();
        settle(&mut owner);
        assert!(!owner.has_unread());
    }
    drop(owner);
    let dir = TeamDir::create(dir.root()).unwrap();
    assert_eq!(contents(&mut open(&dir, "alice")).len(), 0);
    let sent = BTreeMap::from([("bob".to_owned(), Sent { begun: 2, acked: 2 })]);
    assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), []);
}

/// A new conversation keeps the ids of received mail. Mail that was claimed before belongs to the old
/// conversation.
#[test]
fn a_broken_inbox_does_not_delay_the_mail_of_an_earlier_claim() {
    let (_folder, dir) = team();
    write(&dir.claims().join("alice.000000000001-0123abcd"), line("bob", 0, 9));
    let mut owner = open(&dir, "alice");
    let inbox = dir.inbox(&alice());
    fs::remove_file(&inbox).unwrap();
    fs::create_dir(&inbox).unwrap();
    assert_eq!(owner.drain().unwrap().mail.len(), 1);
    owner.drain().unwrap_err();
    fs::remove_dir(&inbox).unwrap();
    send(&dir, &line("bob", 1, 9));
    assert_eq!(owner.drain().unwrap().mail.len(), 1);
}

#[test]
fn a_new_conversation_archives_the_old_one_and_keeps_its_ids() {
    let (_folder, dir) = team();
    let mut owner = open(&dir, "lead");
    let lead = AgentName::lead();
    let send = |n| {
        inbox::append(&dir, &lead, line("bob", n, 9).as_bytes(), &policy(Fsync::Never)).unwrap();
    };
    send(0);
    assert_eq!(owner.drain().unwrap().mail.len(), 1);
    send(1);
    assert_eq!(owner.start_anew().unwrap().mail.len(), 0);
    assert_eq!(transcript::read_all(&dir, &lead).unwrap(), []);
    send(0);
    let drained = owner.drain().unwrap();
    assert_eq!((drained.mail.len(), drained.notices.len()), (1, 1));
    settle(&mut owner);
    drop(owner);
    send(0);
    let drained = open(&dir, "lead").drain().unwrap();
    assert_eq!((drained.mail.len(), drained.notices.len()), (0, 1), "known from the archive");
    let archived = fs::read_to_string(dir.archive().join("lead-000001.jsonl")).unwrap();
    assert_eq!(archived.lines().count(), 1);
}

/// A claim is kept for late writers for a second, in which several owners may start and be killed. Mail that the
/// first one received is not delivered to a later one, nor is a repeated send.
#[test]
fn a_claim_outlives_two_conversations_and_is_not_delivered_again() {
    let (_folder, dir) = team();
    send(&dir, &line("bob", 0, 9));
    let mut first = open(&dir, "alice");
    assert_eq!(contents(&mut first).len(), 1);
    drop(first);
    let mut second = open(&dir, "alice");
    assert_eq!(second.start_anew().unwrap().mail, []);
    append(&dir.transcript(&alice()), "{\"kind\":\"note\",\"at\":1.5,\"content\":\"no mail\"}\n");
    drop(second);
    let mut third = open(&dir, "alice");
    assert_eq!(third.start_anew().unwrap().mail, []);
    drop(third);
    let mut fourth = open(&dir, "alice");
    send(&dir, &line("bob", 0, 9));
    assert_eq!(contents(&mut fourth), Vec::<String>::new());
}

#[test]
fn garbage_never_blocks_good_lines_and_never_disappears() {
    let (_folder, dir) = team();
    let long = format!("{{\"content\":\"{}\"}}\n", "x".repeat(5 << 20));
    let too_long = format!("{{\"content\":\"{}\"}}", "y".repeat(262_145));
    let garbage: [&[u8]; 8] = [
        b"hello\n",
        b"[1,2]\n",
        b"\xff\xfe\n",
        b"\0\0\0\n",
        b"{\"content\":\"torn\n",
        b"{\"from\":[]}\n",
        long.as_bytes(),
        too_long.as_bytes(),
    ];
    let inbox = dir.inbox(&alice());
    for (n, garbage) in garbage.iter().enumerate() {
        append(&inbox, line("bob", n.try_into().unwrap(), 9));
        append(&inbox, garbage);
    }
    append(&inbox, b"\n\n \r\n");
    append(&inbox, line("bob", 8, 9));
    let mut owner = open(&dir, "alice");
    assert_eq!(contents(&mut owner).len(), 9);
    let letters = dead::read_all(&dir, &alice()).unwrap();
    let parts: Vec<_> = letters.iter().filter(|l| l.reason.contains("part of a line")).collect();
    assert_eq!(letters.len(), 7 + parts.len());
    let joined: String = parts.iter().map(|part| part.raw.as_deref().unwrap()).collect();
    assert_eq!(joined, long.trim_end());
    assert_eq!(letters[0].raw.as_deref(), Some("hello"));
    assert_eq!(letters[2].raw_hex.as_deref(), Some("fffe"));
    assert!(letters.last().unwrap().reason.contains("longer than 262144"));
    // A replay after a crash delivers nothing again and adds no dead letter.
    drop(owner);
    assert!(open(&dir, "alice").drain().unwrap().is_empty());
    assert_eq!(dead::read_all(&dir, &alice()).unwrap().len(), letters.len());
}

/// A jump of the clock does not change the order, which is that of the file. Ids stay valid, and nothing expires.
#[test]
fn delivery_does_not_depend_on_the_clock() {
    #[derive(Debug)]
    struct Jumping(AtomicUsize);
    impl Clock for Jumping {
        fn now(&self) -> WallTime {
            let times = [4e9, -1.0, 0.0, 1.7e9, -1e15];
            times[self.0.fetch_add(1, Ordering::Relaxed) % times.len()].into()
        }
        fn monotonic(&self) -> Instant {
            Instant::now()
        }
    }
    let (_folder, dir) = team();
    for life in 0..5_u8 {
        let mut owner = open_with(
            &dir,
            "alice",
            Fsync::Always,
            Arc::new(Jumping(AtomicUsize::new(life.into()))),
        );
        for n in 0..4 {
            send(&dir, &line("bob", u64::from(life) * 4 + n, 9));
            assert_eq!(contents(&mut owner).len(), 1);
        }
    }
    let sent = BTreeMap::from([("bob".to_owned(), Sent { begun: 20, acked: 20 })]);
    assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), []);
}

#[test]
fn the_owner_is_notified_by_every_kind_of_sender_and_otherwise_waits() {
    let (_folder, dir) = team();
    let mut owner = open(&dir, "alice");
    drop(owner.drain().unwrap());
    let limit = Duration::from_secs(5);
    for n in 0..3 {
        owner.acknowledge_events().unwrap();
        assert!(!is_ready(&owner, Duration::ZERO) && !owner.has_unread());
        let text = line("bob", n, 9);
        if n == 1 {
            append(&dir.inbox(&alice()), &text);
        } else {
            send(&dir, &text);
        }
        assert!(is_ready(&owner, limit));
        owner.acknowledge_events().unwrap();
        assert_eq!(contents(&mut owner).len(), 1);
        owner.mark_taken().unwrap();
    }
    fs::read(dir.inbox(&alice())).unwrap();
    owner.acknowledge_events().unwrap();
    assert!(!is_ready(&owner, Duration::ZERO), "looking at an inbox wakes nobody");
    fs::remove_file(dir.inbox(&alice())).unwrap();
    assert!(is_ready(&owner, limit) && owner.has_unread());
    drop(owner.drain().unwrap());
    owner.acknowledge_events().unwrap();
    send(&dir, &line("bob", 9, 9));
    assert!(is_ready(&owner, limit), "the inbox made anew is watched");
    assert_eq!(owner.wake_mode(), WakeMode::Events);
}

/// Senders notify the owner through a FIFO if no inotify instance is left for this user.
#[test]
fn without_inotify_a_fifo_notifies_the_owner() {
    let around = ["unshare", "--user", "--map-root-user", "sh"];
    let limit = "echo 0 > /proc/sys/user/max_inotify_instances";
    let can = Command::new(around[0]).args(&around[1..]).args(["-c", limit]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        skipped("no user namespace in which file events could be taken away");
        return;
    }
    let (_folder, dir) = team();
    let mut child = start_below(&around, &dir, Job::Wake { name: "alice".into() }, limit);
    assert_eq!(child.read_line(), "Fifo");
    send(&dir, &line("bob", 0, 9));
    assert_eq!(child.read_line(), "woken 1");
    assert_eq!(child.read_line(), "1");
    assert!(child.wait().success());
    drop(open(&dir, "alice"));
    assert!(!dir.fifo(&alice()).exists(), "taken down by an owner that needs none");
}

#[test]
fn a_full_inbox_refuses_mail_and_keeps_room_for_control() {
    let (_folder, dir) = team();
    let small = SendPolicy { capacity: 1000, ..policy(Fsync::Never) };
    let bob = |n| line("bob", n, 9);
    let mut outcomes = (0..100).map(|n| inbox::append(&dir, &alice(), bob(n).as_bytes(), &small));
    let refused = outcomes.find_map(Result::err).unwrap();
    assert!(matches!(refused, SendError::Full { size, .. } if size <= 1000), "{refused}");
    let control = SendPolicy { priority: Priority::Control, ..small };
    inbox::append(&dir, &alice(), bob(100).as_bytes(), &control).unwrap();
    let long = line("bob", 101, 3 << 20);
    let refused = inbox::append(&dir, &alice(), long.as_bytes(), &policy(Fsync::Never));
    assert!(matches!(refused, Err(SendError::TooLong { .. })));
}

/// A send fails if the disk becomes full in the middle of its line. Earlier lines stay intact, and later ones are
/// delivered.
#[test]
fn a_full_disk_fails_the_send_and_harms_nothing() {
    let (_folder, dir) = team();
    let job = Job::SendUntilRefused { to: "alice".into(), bytes: 700 };
    let mut child = start_limited(&dir, job, "trap '' XFSZ; ulimit -f 16");
    let said = child.read_line();
    assert!(child.wait().success());
    let (accepted, why) = said.split_once(' ').unwrap();
    let accepted: u64 = accepted.parse().unwrap();
    assert!(accepted > 2 && why.contains("inbox/alice.jsonl"), "{said}");
    let text = fs::read_to_string(dir.inbox(&alice())).unwrap();
    assert!(text.ends_with('\n'));
    assert_eq!(u64::try_from(text.lines().count()).unwrap(), accepted, "rolled back");
    send(&dir, &line("bob", accepted, 9));
    assert_eq!(contents(&mut open(&dir, "alice")).len(), usize::try_from(accepted).unwrap() + 1);
    assert_eq!(dead::read_all(&dir, &alice()).unwrap(), []);
}

/// Mail stays in the inbox if the disk is full during a drain, and is delivered when there is space.
#[test]
fn a_full_disk_keeps_the_mail_for_later() {
    let (_folder, dir) = team();
    let count = 200;
    let text: String = (0..count).map(|n| line("bob", n, 700)).collect();
    append(&dir.inbox(&alice()), text);
    for _ in 0..2 {
        let job = Job::DrainOnce { name: "alice".into() };
        let mut child = start_limited(&dir, job, "trap '' XFSZ; ulimit -f 64");
        let said = child.read_line();
        assert!(said.contains("refused") && said.contains("transcript/alice.jsonl"), "{said}");
        assert!(child.wait().success());
    }
    let mut owner = open(&dir, "alice");
    drop(owner.drain().unwrap());
    let sent = BTreeMap::from([("bob".to_owned(), Sent { begun: count, acked: count })]);
    assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), []);
}

#[test]
fn a_huge_sparse_line_is_quarantined_unread() {
    let (_folder, dir) = team();
    let inbox = dir.inbox(&alice());
    write(&inbox, "");
    fs::OpenOptions::new().write(true).open(&inbox).unwrap().set_len(1 << 40).unwrap();
    let refused = inbox::append(&dir, &alice(), b"{}\n", &policy(Fsync::Never));
    assert!(matches!(refused, Err(SendError::Full { .. })));
    let mut owner = open(&dir, "alice");
    let start = Instant::now();
    assert_eq!(owner.drain().unwrap().notices.len(), 1);
    assert!(start.elapsed() < PATIENCE);
    assert!(dead::read_all(&dir, &alice()).unwrap()[0].reason.contains("hole"));
    send(&dir, &line("bob", 0, 9));
    assert_eq!(contents(&mut owner).len(), 1);
}

/// The transcript contains the message as it was received, with its id. A line without an id gets one that is
/// derived from its position.
#[test]
fn the_transcript_has_the_message_as_received() {
    let (_folder, dir) = team();
    let text = r#"{"from":"user","content":"hi","n":1.50,"deep":{"b":[1]}}"#;
    append(&dir.inbox(&alice()), format!("{text}\n"));
    let mut owner = open(&dir, "alice");
    let mail = owner.drain().unwrap().mail.remove(0);
    let id = format!("raw-{}-0", mail.batch_id);
    assert_eq!(mail.message.id.as_deref(), Some(id.as_str()));
    assert_eq!(mail.object()["id"], id.as_str());
    let line = fs::read_to_string(dir.transcript(&alice())).unwrap();
    assert!(line.contains(&text.replacen('{', &format!("{{\"id\":\"{id}\","), 1)), "{line}");
    assert_eq!(messages(&dir, "alice"), [*mail.message]);
}
