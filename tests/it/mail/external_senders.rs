//! Senders that do not take the locks of the inbox: shells, editors, programs that buffer their output.

use crate::support::child_process::{Job, append, line, open, start, team, write};
use crate::support::harness::{PATIENCE, Team};
use crate::support::history::{Sent, check_history, sent, taken_in};
use agent_team::store::mailbox::SettleResult;
use agent_team::store::{dead, unread};
use agent_team::wire::AgentName;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn alice() -> AgentName {
    AgentName::member("alice").unwrap()
}

/// All kinds of senders write while the owner drains: the program's own, `echo >>`, `flock inbox sh -c 'echo >>'`,
/// a program that buffers its lines, and one that writes garbage.
#[test]
fn every_kind_of_sender_at_once() {
    const EACH: u64 = 150;
    let (folder, dir) = team();
    let inbox = dir.inbox(&alice());
    agent_team::store::inbox::ensure(&dir, &alice()).unwrap();
    let mut owner = start(&dir, Job::Read { name: "alice".into(), settle: true });
    let ours = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"];
    let mut children: Vec<_> = ours
        .iter()
        .map(|from| {
            let log = folder.path().join(from);
            let (to, from) = ("alice".into(), (*from).into());
            start(&dir, Job::Send { to, from, log, count: EACH, fsync: false })
        })
        .collect();
    let script = |from: &str, command: &str| {
        let text = format!(
            "i=0; while [ $i -lt {EACH} ]; do \
             L='{{\"from\":\"{from}\",\"id\":\"{from}:'$i'\",\"content\":\"'$i' of {from} \"}}'; \
             export L; {command}; i=$((i+1)); done"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &text]).env("INBOX", &inbox).stdin(Stdio::null());
        shell.spawn().unwrap()
    };
    let outside = ["echo", "echo2", "flock", "garbage"];
    let shells = [
        script(outside[0], r#"echo "$L" >> "$INBOX""#),
        script(outside[1], r#"echo "$L" >> "$INBOX""#),
        script(outside[2], r#"flock "$INBOX" sh -c 'echo "$L" >> "$INBOX"'"#),
        script(outside[3], r#"echo "$i: this is no JSON" >> "$INBOX""#),
    ];
    // A program with a buffer writes the line when it flushes or closes the file.
    for n in 0..EACH {
        let mut file =
            std::io::BufWriter::new(OpenOptions::new().append(true).open(&inbox).unwrap());
        file.write_all(line("python", n, 9).as_bytes()).unwrap();
        file.flush().unwrap();
    }
    for mut shell in shells {
        assert!(shell.wait().unwrap().success());
    }
    for child in &mut children {
        assert!(child.wait().success());
    }
    assert!(owner.wait().success());

    let mut expected: BTreeMap<_, _> =
        ours.iter().map(|from| ((*from).to_owned(), sent(&folder.path().join(from)))).collect();
    for from in ["echo", "echo2", "flock", "python"] {
        expected.insert(from.to_owned(), Sent { begun: EACH, acked: EACH });
    }
    assert_eq!(check_history(&expected, &taken_in(&dir, "alice")), []);
    let letters = dead::read_all(&dir, &alice()).unwrap();
    assert_eq!(u64::try_from(letters.len()).unwrap(), EACH);
    assert!(!unread::is_unread(&dir, &alice()).unwrap());
}

/// The fragment of a sender that was killed in the middle of its line becomes a dead letter. The lines beside it
/// stay complete.
#[test]
fn a_torn_line_is_sealed_off() {
    let (folder, dir) = team();
    let inbox = dir.inbox(&alice());
    append(&inbox, line("carl", 0, 9));
    append(&inbox, r#"{"from":"dora","content":"I was abou"#);
    let job = Job::Send {
        to: "alice".into(),
        from: "bob".into(),
        log: folder.path().join("log"),
        count: 2,
        fsync: true,
    };
    assert!(start(&dir, job).wait().success());
    assert!(start(&dir, Job::Read { name: "alice".into(), settle: true }).wait().success());
    let sent = BTreeMap::from([
        ("bob".to_owned(), Sent { begun: 2, acked: 2 }),
        ("carl".to_owned(), Sent { begun: 1, acked: 1 }),
    ]);
    assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), []);
    let letters = dead::read_all(&dir, &alice()).unwrap();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].raw.as_deref().unwrap().ends_with("I was abou"));
}

/// A writer keeps the inbox open for hours (`tail -f x >> alice.jsonl`) while the owner drains. The claim is kept
/// for as long, and every line is delivered.
#[test]
fn a_writer_that_stays_is_waited_for() {
    let (_folder, dir) = team();
    let inbox = dir.inbox(&alice());
    let mut owner = open(&dir, "alice");
    let mut writer = OpenOptions::new().append(true).open(&inbox).unwrap();
    let whole = line("bob", 1, 9);
    let (half, rest) = whole.split_at(20);
    writer.write_all(line("bob", 0, 9).as_bytes()).unwrap();
    writer.write_all(half.as_bytes()).unwrap();
    assert_eq!(owner.drain().unwrap().mail.len(), 1);
    owner.mark_taken().unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1200) {
        let settled = owner.settle().unwrap();
        let SettleResult::Again { after } = settled else { panic!("{settled:?} beside a writer") };
        std::thread::park_timeout(after);
    }
    assert!(!owner.has_unread());
    writer.write_all(rest.as_bytes()).unwrap();
    assert!(owner.has_unread());
    assert_eq!(owner.settle().unwrap(), SettleResult::Grown);
    assert_eq!(owner.drain().unwrap().mail.len(), 1);
    assert!(unread::is_unread(&dir, &alice()).unwrap(), "what came late is unread as well");
    owner.mark_taken().unwrap();
    writer.write_all(half.as_bytes()).unwrap();
    drop(owner.drain().unwrap());
    drop(writer);
    let start = Instant::now();
    while owner.settle().unwrap() != SettleResult::Done {
        std::thread::park_timeout(Duration::from_millis(1));
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(owner.has_unread(), "the unfinished line is reported");
    assert_eq!(owner.drain().unwrap().notices.len(), 1);
    let sent = BTreeMap::from([("bob".to_owned(), Sent { begun: 2, acked: 2 })]);
    assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), []);
}

/// A complete line without its newline is delivered immediately and only once.
#[test]
fn a_message_without_its_newline_is_delivered_once() {
    let (_folder, dir) = team();
    let inbox = dir.inbox(&alice());
    append(&inbox, line("bob", 0, 9).trim_end());
    let mut owner = open(&dir, "alice");
    assert_eq!(owner.drain().unwrap().mail.len(), 1);
    drop(owner);
    let claim = fs::read_dir(dir.claims()).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        (path.extension().unwrap() != "new").then_some(path)
    });
    append(&claim.unwrap(), "\n");
    assert!(open(&dir, "alice").drain().unwrap().is_empty());
    assert_eq!(taken_in(&dir, "alice").len(), 1);
}

/// The folder of claims contains a prepared inbox with mail, a file that no drain has made, and a link.
#[test]
fn foreign_files_among_the_claims_are_delivered_or_ignored() {
    let (_folder, dir) = team();
    write(&dir.next_inbox(&alice()), line("bob", 1, 9));
    write(&dir.claims().join("alice.junk"), "junk");
    write(&dir.claims().join("alice.000000000007-0000beef"), line("carl", 0, 9));
    std::os::unix::fs::symlink("/etc/passwd", dir.claims().join("alice.000000000008-0000beef"))
        .unwrap();
    append(&dir.inbox(&alice()), line("bob", 0, 9));
    let mut owner = open(&dir, "alice");
    let first = owner.drain().unwrap();
    assert_eq!(first.mail.len(), 2, "{first:?}");
    assert_eq!(first.notices.len(), 1, "the link is put away: {first:?}");
    assert_eq!(owner.drain().unwrap().mail.len(), 1);
    assert_eq!(fs::read_to_string(dir.claims().join("alice.junk")).unwrap(), "junk");
    let sent = BTreeMap::from([
        ("bob".to_owned(), Sent { begun: 2, acked: 2 }),
        ("carl".to_owned(), Sent { begun: 1, acked: 1 }),
    ]);
    assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), []);
}

/// Waits until a condition holds.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + crate::support::harness::PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// A process that is killed on drop.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The descriptor of `tail -f feed >> alice.jsonl` outlives many claims, and every line is delivered once.
#[test]
fn lines_of_a_tail_that_runs_for_hours_arrive() {
    let (folder, dir) = team();
    agent_team::store::inbox::ensure(&dir, &alice()).unwrap();
    let feed = folder.path().join("feed");
    write(&feed, "");
    let mut owner = start(&dir, Job::Read { name: "alice".into(), settle: true });
    let into = OpenOptions::new().append(true).open(dir.inbox(&alice())).unwrap();
    let tail = {
        // The command also keeps the file open, so it is dropped at the end of this block.
        let mut command = Command::new("tail");
        command.args(["-n", "+1", "-f"]).arg(&feed).stdin(Stdio::null()).stdout(into);
        Killed(command.stderr(Stdio::null()).spawn().unwrap())
    };
    for n in 0..5 {
        append(&feed, line("bob", n, 9));
        // `tail` writes the next line after this one was claimed, into a file that is no longer the inbox.
        eventually("it is taken in", || {
            taken_in(&dir, "alice").len() > usize::try_from(n).unwrap()
        });
    }
    append(&feed, line("bob", 5, 9).trim_end());
    eventually("a line without its end is complete", || taken_in(&dir, "alice").len() == 6);
    append(&feed, "\n");
    append(&feed, line("bob", 6, 9));
    eventually("the last one is taken in", || taken_in(&dir, "alice").len() == 7);
    drop(tail);
    assert!(owner.wait().success(), "it lets go of the claim");
    let sent = BTreeMap::from([("bob".to_owned(), Sent { begun: 7, acked: 7 })]);
    assert_eq!(check_history(&sent, &taken_in(&dir, "alice")), []);
    assert_eq!(dead::read_all(&dir, &alice()).unwrap(), []);
}

/// Two programs write long lines in pieces, as bash and jq do. Only their own lines are mixed up, and every piece
/// is kept.
#[test]
fn long_lines_written_in_pieces_damage_no_other_line() {
    const LINES: u64 = 40;
    let (folder, dir) = team();
    let inbox = dir.inbox(&alice());
    agent_team::store::inbox::ensure(&dir, &alice()).unwrap();
    let mut owner = start(&dir, Job::Read { name: "alice".into(), settle: true });
    let log = folder.path().join("log");
    let job = Job::Send {
        to: "alice".into(),
        from: "ours".into(),
        log: log.clone(),
        count: 60,
        fsync: false,
    };
    let mut ours = start(&dir, job);
    // A line has four writes of 4 kB, each with its own mark.
    let script = |who: &str| {
        let text = format!(
            "F=$(head -c 4000 /dev/zero | tr '\\0' x); n=0; while [ $n -lt {LINES} ]; do \
             printf '%s' '{{\"from\":\"{who}\",\"content\":\"' >> \"$INBOX\"; \
             for p in a b c d; do printf '%s' \"<{who}.$n$p>$F\" >> \"$INBOX\"; done; \
             printf '%s\\n' '\"}}' >> \"$INBOX\"; n=$((n+1)); done"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &text]).env("INBOX", &inbox).stdin(Stdio::null()).spawn().unwrap()
    };
    for mut shell in [script("jq"), script("bash")] {
        assert!(shell.wait().unwrap().success());
    }
    assert!(ours.wait().success() && owner.wait().success());
    let taken = crate::support::history::messages(&dir, "alice");
    let numbered: Vec<_> =
        taken_in(&dir, "alice").into_iter().filter(|taken| taken.from == "ours").collect();
    assert_eq!(check_history(&BTreeMap::from([("ours".to_owned(), sent(&log))]), &numbered), []);
    let letters = dead::read_all(&dir, &alice()).unwrap();
    let kept: String = taken
        .iter()
        .map(|message| message.content.as_str())
        .chain(letters.iter().filter_map(|letter| letter.raw.as_deref()))
        .collect();
    for who in ["jq", "bash"] {
        for n in 0..LINES {
            for piece in ["a", "b", "c", "d"] {
                let mark = format!("<{who}.{n}{piece}>");
                assert_eq!(kept.matches(&mark).count(), 1, "{mark}");
            }
        }
    }
}

/// A team that ends waits for no late writer. A shell that opened the inbox before the mail was claimed may write
/// after the end: the next start of the member delivers that line, and removes the claim.
#[test]
fn a_line_that_is_written_after_the_end_of_the_team_is_delivered_by_the_next_start() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let mut late =
        OpenOptions::new().create(true).append(true).open(team.path("inbox/alice.jsonl"));
    let late = late.as_mut().unwrap();
    let spawn = "Spawn alice (coder). Ask alice to run pwd";
    team.team(&["lead", "-p", spawn, "--model", "rehearsal", "--mode", "bypass"]).expect(0);
    writeln!(late, r#"{{"from":"user","content":"Run echo late"}}"#).unwrap();
    let claims = || fs::read_dir(team.path("inbox/.claim")).unwrap().flatten();
    let is_kept = |claim: fs::DirEntry| claim.file_name().to_string_lossy().starts_with("alice.0");
    assert!(claims().any(is_kept), "the claim is kept for the late writer");
    let alice = ["teammate", "alice", "--model", "rehearsal", "--mode", "bypass", "--once"];
    team.team(&alice).expect(0);
    assert!(team.has_mail("alice", "user", "Run echo late"), "{}", team.describe());
    assert_eq!(fs::metadata(team.path("inbox/alice.jsonl")).unwrap().len(), 0);
}
