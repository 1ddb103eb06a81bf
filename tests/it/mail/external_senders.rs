//! Senders that do not take the locks of the inbox: shells, editors, programs that buffer their output.

use crate::support::child_process::{Job, append, line, open, start, team, write};
use crate::support::harness::{PATIENCE, Team, has_python};
use crate::support::history::{Sent, check_history, sent, taken_in};
use agent_team::store::failpoint::POINTS;
use agent_team::store::mailbox::SettleResult;
use agent_team::store::{dead, unread};
use agent_team::wire::AgentName;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn alice() -> AgentName {
    AgentName::member("alice").unwrap()
}

/// A program in the format of the origin: no lock, no id, a plain append. It opens the file for each line, or keeps
/// it open for some lines and flushes its buffer.
const ORIGIN: &str = r#"
import json, os, sys, time
path, sender, folder, keeps_open = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "open"
kept, count = open(path, "a") if keeps_open else None, 0
while not os.path.exists(folder + "/enough"):
    line = {"type": "message", "from": sender, "content": f"{sender} {count}", "timestamp": time.time()}
    if kept:
        kept.write(json.dumps(line) + "\n")
        kept.flush()
        if count % 5 == 4:
            kept.close()
            kept = open(path, "a")
    else:
        with open(path, "a") as inbox:
            inbox.write(json.dumps(line) + "\n")
    count += 1
    time.sleep(0.02)
with open(f"{folder}/sent.{sender}", "w") as sent:
    sent.write(str(count))
"#;

/// Starts every kind of sender to the lead. Each sends until the file `enough` exists, and then writes the number of
/// its messages to `sent.NAME`.
fn start_senders(team: &Team) -> BTreeMap<String, Child> {
    let inbox = team.path("inbox/lead.jsonl");
    let mut children = BTreeMap::new();
    let mut begin = |from: &str, mut command: Command| {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.env("INBOX", &inbox).env("FROM", from).env("FOLDER", team.workspace());
        children.insert(from.to_owned(), command.spawn().unwrap());
    };
    // A read of an empty pipe is a pause that starts no process.
    assert!(team.shell("mkfifo pause").status().unwrap().success());
    let until_enough = |body: &str| {
        format!(
            "set -e; i=0; while [ ! -e enough ]; do {body}; i=$((i+1)); \
             read -rt 0.05 <> pause || true; done; echo $i > sent.$FROM"
        )
    };
    let each = |body: &str| team.shell(&until_enough(body));
    let line = r#"L="{\"from\":\"$FROM\",\"content\":\"$FROM $i\"}""#;
    for from in ["send0", "send1"] {
        begin(from, each(r#"team send lead --from "$FROM" "$FROM $i""#));
    }
    for from in ["stream0", "stream1"] {
        let lines = until_enough(r#"echo "{\"content\":\"$FROM $i\"}""#);
        begin(from, team.shell(&format!("({lines}) | team send lead --jsonl --from $FROM")));
    }
    for from in ["echo0", "echo1"] {
        begin(from, each(&format!(r#"{line}; echo "$L" >> "$INBOX""#)));
    }
    let locked = r#"export L; flock "$INBOX" sh -c 'echo "$L" >> "$INBOX"'"#;
    begin("flock", each(&format!("{line}; {locked}")));
    begin("garbage", each(r#"echo "$i: this is no JSON" >> "$INBOX""#));
    if has_python("no program in the format of the origin was a sender") {
        let program = team.workspace().join("origin.py");
        write(&program, ORIGIN);
        for (from, how) in [("python0", "each"), ("python1", "each"), ("python2", "open")] {
            let mut python = team.shell(r#"exec python3 "$0" "$INBOX" "$FROM" "$FOLDER" "$1""#);
            python.arg(&program).arg(how);
            begin(from, python);
        }
    }
    children
}

/// Drains the lead's inbox with a process that is killed at this failpoint.
fn drain_killed_at(team: &Team, point: &str) {
    let token = team.workspace().join("token");
    write(&token, "");
    let mut command = team.command("team", &["inbox", "lead", "--drain"]);
    command.env("TEAM_FAILPOINTS", format!("team/{point}={}", token.display()));
    let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(ended.signal(), Some(9), "{point}: {ended:?}");
}

/// Real senders of all kinds write at once while readers drain and are killed: `team send`, one process each and
/// with `--jsonl`; programs in the format of the origin; `echo >>` of shells, also with `flock`; one that writes
/// garbage. Every message is delivered once, in the order of its sender, also without an id.
#[test]
fn every_kind_of_sender_at_once() {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    team.team(&["send", "lead", "--from", "first", "first 0"]).expect(0);
    let senders = start_senders(&team);
    // A drain ends before its claim is old enough to be removed.
    let is_reached = |point: &&str| point.starts_with("drain.") && !point.ends_with("unlink");
    let points = POINTS.into_iter().filter(|point| *point != "drain.unlinked");
    let points: Vec<_> = points.filter(is_reached).collect();
    // Mail that kills five readers is quarantined, so the fifth one survives.
    for some in points.chunks(4) {
        for point in some {
            // Both kinds of lines are there, so that a reader reaches every point.
            team.eventually("there is mail", || {
                let waiting = fs::read_to_string(team.path("inbox/lead.jsonl"));
                waiting.is_ok_and(|it| it.contains("from") && it.contains("no JSON"))
            });
            drain_killed_at(&team, point);
        }
        team.team(&["inbox", "lead", "--drain"]).expect(0);
    }
    write(&team.workspace().join("enough"), "");
    let mut counts = BTreeMap::from([("first".to_owned(), 1)]);
    for (from, mut sender) in senders {
        assert!(sender.wait().unwrap().success(), "{from}");
        let told = fs::read_to_string(team.workspace().join(format!("sent.{from}"))).unwrap();
        let count: usize = told.trim().parse().unwrap();
        assert!(count > 0, "{from} has sent nothing");
        counts.insert(from, count);
    }
    team.team(&["inbox", "lead", "--drain"]).expect(0);

    let garbage = counts.remove("garbage").unwrap();
    let mut received = BTreeMap::<String, Vec<String>>::new();
    for mail in team.mail_of("lead") {
        let word = |field: &str| mail[field].as_str().unwrap().to_owned();
        received.entry(word("from")).or_default().push(word("content"));
    }
    let told = |(from, count): (&String, &usize)| {
        (from.clone(), (0..*count).map(|n| format!("{from} {n}")).collect::<Vec<_>>())
    };
    let sent: BTreeMap<_, _> = counts.iter().map(told).collect();
    assert_eq!(received.keys().collect::<Vec<_>>(), sent.keys().collect::<Vec<_>>());
    for (from, contents) in &sent {
        assert_eq!(&received[from], contents, "{from}");
    }
    let dead = team.lines("dead/lead.jsonl");
    let raw: BTreeSet<&str> = dead.iter().filter_map(|letter| letter["raw"].as_str()).collect();
    assert_eq!((dead.len(), raw.len()), (garbage, garbage));
    let unread = team.team(&["inbox", "lead", "--json"]).expect(0).json();
    let unread = unread["messages"].as_array().unwrap().iter().filter(|it| it["state"] == "unread");
    assert_eq!(unread.count(), 0);
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
    assert!(
        start(&dir, Job::Read { name: "alice".into(), settle: true, fsync: true }).wait().success()
    );
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

/// An addition of a late writer to a batch is unread before the batch was acted on, without any event, and later as
/// soon as the event is there.
#[test]
fn mail_of_a_late_writer_is_unread_before_and_after_its_batch_was_acted_on() {
    let (_folder, dir) = team();
    let mut owner = open(&dir, "alice");
    let mut writer = OpenOptions::new().append(true).open(dir.inbox(&alice())).unwrap();
    writer.write_all(line("bob", 0, 9).as_bytes()).unwrap();
    assert_eq!(owner.drain().unwrap().mail.len(), 1);
    assert!(!owner.has_unread());
    writer.write_all(line("bob", 1, 9).as_bytes()).unwrap();
    assert!(owner.has_unread());
    assert_eq!(owner.drain().unwrap().mail.len(), 1);
    owner.mark_taken().unwrap();
    owner.acknowledge_events().unwrap();
    assert!(!owner.has_unread());
    writer.write_all(line("bob", 2, 9).as_bytes()).unwrap();
    owner.acknowledge_events().unwrap();
    assert!(owner.has_unread());
    assert_eq!(owner.drain().unwrap().mail.len(), 1);
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
    let mut owner = start(&dir, Job::Read { name: "alice".into(), settle: true, fsync: true });
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
    let mut owner = start(&dir, Job::Read { name: "alice".into(), settle: true, fsync: true });
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
