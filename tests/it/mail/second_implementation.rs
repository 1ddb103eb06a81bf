//! Tests that docs/format.md is sufficient. A second implementation, written in Python from that page alone, is a
//! member of the team. It exchanges mail with the Rust programs, and each implementation takes over from a killed
//! process of the other.

use crate::support::harness::{self, CommandResult, Team, in_parallel};
use crate::support::scripts::{kill_9, wait};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// The number of messages of each sender.
const EACH: usize = 60;

/// Whether the tests of this file can run.
fn has_python() -> bool {
    harness::has_python("docs/format.md was not tested")
}

/// A command of the second implementation on this team.
fn other(team: &Team, args: &[&str]) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/team_format.py");
    let mut command = team.shell(r#"exec python3 "$0" .team "$@""#);
    command.arg(script).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(mut command: Command) -> CommandResult {
    let args = format!("{command:?}");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommandResult {
        args,
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// Runs a command that must succeed. Returns the words that it printed.
fn words(team: &Team, args: &[&str]) -> Vec<String> {
    let ran = output(other(team, args)).expect(0);
    ran.out.split_whitespace().map(str::to_owned).collect()
}

/// Starts a member of the second implementation and waits until it is idle.
fn member(team: &Team, name: &str) -> Child {
    settled(team, name, other(team, &["member", name]).spawn().unwrap())
}

/// Waits until this process, not an earlier one of that name, reports that it is idle.
fn settled(team: &Team, name: &str, child: Child) -> Child {
    team.eventually(&format!("{name} has begun"), || {
        let entry = team.member(name);
        entry["pid"] == child.id() && entry["status"] == "idle"
    });
    child
}

fn ours(team: &Team, name: &str) -> Child {
    settled(team, name, team.start(&["teammate", name, "--model", "rehearsal"]))
}

/// The ids of the messages that a member has received, in order.
fn ids(team: &Team, name: &str) -> Vec<String> {
    let mail = team.mail_of(name);
    mail.iter().map(|mail| mail["id"].as_str().unwrap().to_owned()).collect()
}

/// The contents of the messages of one sender.
fn contents(from: &str) -> Vec<String> {
    (0..EACH).map(|n| format!("{from} {n}")).collect()
}

/// The senders to one member, two of each implementation, each with its input lines.
fn senders(team: &Team, to: &str) -> Vec<(Command, Vec<String>)> {
    let theirs = ["snake", "viper"].map(|from| (other(team, &["send", to, from]), contents(from)));
    let ours = ["rust", "iron"].map(|from| {
        let mut command = team.command("team", &["send", to, "--jsonl", "--from", from]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let lines = contents(from).into_iter().map(|text| json!({ "content": text }).to_string());
        (command, lines.collect())
    });
    theirs.into_iter().chain(ours).collect()
}

/// Runs a sender with these input lines. Each line must be acknowledged.
fn feed(mut command: Command, lines: &[String]) {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{}", lines.join("\n")).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).lines().count();
    assert_eq!((output.status.code(), told), (Some(0), EACH), "{output:?}");
}

/// Returns a shell that appends messages to an inbox with `echo >>`.
fn scribbler(team: &Team, inbox: &Path) -> Command {
    let line = r#"i=0; while [ $i -lt $1 ]; do
        echo "{\"from\":\"shell\",\"content\":\"shell $i\"}" >> "$0"; i=$((i+1)); done"#;
    let mut shell = team.shell(line);
    shell.arg(inbox).arg(EACH.to_string());
    shell
}

fn received_by_sender(team: &Team, name: &str) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for mail in team.mail_of(name) {
        let word = |field: &str| mail[field].as_str().unwrap_or_default().to_owned();
        found.entry(word("from")).or_default().push(word("content"));
    }
    found
}

/// Both implementations and a shell send hundreds of messages in both directions at once. Every message is
/// delivered once, in the order of its sender.
#[test]
fn mail_crosses_between_two_implementations() {
    if !has_python() {
        return;
    }
    let team = Team::new();
    let mut alice = ours(&team, "alice");
    let mut py = member(&team, "py");
    let all: Vec<_> = ["alice", "py"].into_iter().flat_map(|to| senders(&team, to)).collect();
    let inboxes = ["alice", "py"].map(|name| team.path(&format!("inbox/{name}.jsonl")));
    thread::scope(|scope| {
        for (command, lines) in all {
            scope.spawn(move || feed(command, &lines));
        }
        for inbox in &inboxes {
            let mut shell = scribbler(&team, inbox);
            scope.spawn(move || assert!(shell.status().unwrap().success()));
        }
    });
    let sent: BTreeMap<String, Vec<String>> = ["snake", "viper", "rust", "iron", "shell"]
        .map(|from| (from.into(), contents(from)))
        .into();
    for name in ["alice", "py"] {
        team.eventually(&format!("{name} has it all"), || ids(&team, name).len() >= 5 * EACH);
        team.eventually(&format!("{name} has handled it"), || {
            words(&team, &["unread", name]).is_empty()
        });
        assert_eq!(received_by_sender(&team, name), sent);
        let mail = team.lines(&format!("transcript/{name}.jsonl"));
        let unverified = mail.iter().filter(|line| line["verified"] == false);
        let senders: BTreeSet<_> =
            unverified.filter_map(|it| it["message"]["from"].as_str()).collect();
        assert_eq!(senders, BTreeSet::from(["shell"]), "of {name}");
        assert!(team.lines(&format!("dead/{name}.jsonl")).is_empty(), "{}", team.describe());
    }

    // `py` is stopped like every member: it accepts the request, and its exit is reported.
    let ran = team.team(&["stop", "py"]).expect(0);
    assert!(ran.out.contains("py ended when asked"), "{ran:#?}");
    assert_eq!((wait(&team, &mut py), team.status("py")), (Some(0), "shutdown".into()));
    team.team(&["send", "py", "too late"]).expect(1);
    team.team(&["stop", "--all"]).expect(0);
    assert_eq!(wait(&team, &mut alice), Some(0));
    let late = output(other(&team, &["send", "alice", "snake"]));
    assert_eq!(late.code, Some(0), "nothing was to be sent: {late:#?}");
    let mut late = other(&team, &["send", "alice", "snake"]);
    let mut late = late.stdin(Stdio::piped()).spawn().unwrap();
    late.stdin.take().unwrap().write_all(b"too late\n").unwrap();
    assert_eq!(wait(&team, &mut late), Some(1), "the recipient has exited");
}

/// Sends mail to the lead from both implementations, and appends invalid lines. Returns the ids of the mail.
fn fill(team: &Team, round: &str) -> Vec<String> {
    let first = team.team(&["send", "lead", &format!("first {round}")]).expect(0).out;
    let mut inbox = OpenOptions::new().append(true).open(team.path("inbox/lead.jsonl")).unwrap();
    inbox.write_all(b"this is no message\n\n\xff\n{\"content\":\"torn").unwrap();
    let mut child = other(team, &["send", "lead", "snake"]).stdin(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "second {round}\nthird {round}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let second = String::from_utf8(output.stdout).unwrap();
    (first + &second).lines().map(str::to_owned).collect()
}

/// Tests a takeover: one implementation is killed while it drains as the lead; then mail is sent to that inbox,
/// and the other implementation drains it.
fn assert_takeover(point: &str, kill: impl Fn(&Team), take_over: impl Fn(&Team)) {
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let mut sent = fill(&team, "before");
    kill(&team);
    sent.extend(fill(&team, "after"));
    take_over(&team);
    assert_eq!(ids(&team, "lead"), sent, "{point}: {}", team.describe());
    let dead = team.lines("dead/lead.jsonl");
    let raw: Vec<&str> =
        dead.iter().filter_map(|it| it["raw"].as_str().or(it["raw_hex"].as_str())).collect();
    let each = ["this is no message", "ff", "{\"content\":\"torn"];
    assert_eq!(raw, [each, each].concat(), "{point}: {dead:#?}");
    assert!(words(&team, &["unread", "lead"]).is_empty(), "{point}");
    let unread = team.team(&["inbox", "lead", "--json"]).expect(0).json();
    let unread = unread["messages"].as_array().unwrap().iter().filter(|it| it["state"] == "unread");
    assert_eq!(unread.count(), 0, "{point}");
}

#[test]
fn rust_takes_over_from_python_killed_at_any_failpoint() {
    if !has_python() {
        return;
    }
    in_parallel(["linked", "renamed", "dead_recorded", "torn", "recorded", "marked"], |point| {
        let kill = |team: &Team| {
            let ran = output(other(team, &["drain", "lead", point]));
            assert_eq!(ran.code, None, "no kill at {point}: {ran:#?}");
        };
        let take_over = |team: &Team| drop(team.team(&["inbox", "lead", "--drain"]).expect(0));
        assert_takeover(point, kill, take_over);
    });
}

#[test]
fn python_takes_over_from_rust_killed_at_any_failpoint() {
    if !has_python() {
        return;
    }
    let points = [
        "drain.prepared",
        "drain.before_link",
        "drain.linked",
        "drain.renamed",
        "drain.claimed",
        "drain.reading",
        "drain.buried",
        "drain.delivered",
        "drain.dead_synced",
        "drain.synced",
        "drain.marking",
        "drain.marked",
    ];
    for point in points {
        let kill = |team: &Team| {
            let token = team.workspace().join("token");
            fs::File::create(&token).unwrap();
            let mut command = team.command("team", &["inbox", "lead", "--drain"]);
            command.env("TEAM_FAILPOINTS", format!("team/{point}={}", token.display()));
            let ran = output(command);
            assert_eq!(ran.code, None, "no kill at {point}: {ran:#?}");
        };
        let take_over = |team: &Team| drop(words(team, &["drain", "lead"]));
        assert_takeover(point, kill, take_over);
    }
}

/// Both implementations change the roster at once. No change is lost, and unknown fields are kept.
#[test]
fn the_roster_keeps_the_changes_of_both_implementations() {
    const TIMES: i64 = 60;
    if !has_python() {
        return;
    }
    let team = Team::new();
    team.team(&["init"]).expect(0);
    let mut py = member(&team, "py");
    let counters =
        [(); 2].map(|()| other(&team, &["count", "py", &TIMES.to_string()]).spawn().unwrap());
    for name in ["alice", "bob"] {
        let mut child = ours(&team, name);
        team.team(&["stop", name]).expect(0);
        assert_eq!(wait(&team, &mut child), Some(0));
    }
    for mut counter in counters {
        assert_eq!(wait(&team, &mut counter), Some(0));
    }
    team.team(&["stop", "py"]).expect(0);
    assert_eq!(wait(&team, &mut py), Some(0));
    assert_eq!(team.member("py")["x_count"], 2 * TIMES);
    for name in ["alice", "bob", "py"] {
        let entry = team.member(name);
        assert_eq!(
            (&entry["status"], &entry["last_exit"]["cause"]),
            (&json!("shutdown"), &json!("stopped"))
        );
    }
}

/// A name belongs to one process of either implementation. The life lock, not the roster, decides whether it is
/// alive.
#[test]
fn both_implementations_respect_a_life_lock() {
    if !has_python() {
        return;
    }
    let team = Team::new();
    let mut alice = ours(&team, "alice");
    let mut py = member(&team, "py");
    let listed = |name: &str| {
        let list = team.team(&["ls", "--json"]).expect(0).json();
        let members = list["members"].as_array().cloned().unwrap_or_default();
        members.into_iter().find(|member| member["name"] == name).unwrap_or(Value::Null)
    };
    assert_eq!(listed("py")["alive"], true, "{}", listed("py"));
    assert_eq!(words(&team, &["alive", "alice"]), ["alive"]);
    team.team(&["teammate", "py", "--model", "rehearsal"]).expect(5);
    assert_eq!(output(other(&team, &["member", "alice"])).code, Some(1));

    kill_9(&team, "alice");
    kill_9(&team, "py");
    wait(&team, &mut alice);
    wait(&team, &mut py);
    assert_eq!(words(&team, &["alive", "alice"]), ["free"]);
    assert_eq!(listed("py")["alive"], false, "{}", listed("py"));
    team.team(&["send", "py", "hello?"]).expect(1);

    // Each implementation may take a name that the other has used.
    let mut py = ours(&team, "py");
    let mut alice = member(&team, "alice");
    team.team(&["stop", "--all"]).expect(0);
    assert_eq!((wait(&team, &mut py), wait(&team, &mut alice)), (Some(0), Some(0)));
}

/// Both implementations set timers of one member, which sends itself the reminders.
#[test]
fn a_timer_of_either_implementation_reminds() {
    if !has_python() {
        return;
    }
    let team = Team::new();
    let mut alice = ours(&team, "alice");
    assert_eq!(words(&team, &["remind", "alice", "1", "from outside"]), ["alice-1"]);
    let set = team.team(&["remind", "alice", "1s", "from us"]).expect(0);
    assert!(set.out.starts_with("alice-2: "), "{}", set.out);
    for text in ["from outside", "from us"] {
        team.eventually(text, || team.has_mail("alice", "system", text));
    }
    team.eventually("no timer is left", || {
        team.team(&["remind"]).expect(0).out == "no timer is open\n"
    });
    team.team(&["stop", "alice"]).expect(0);
    assert_eq!(wait(&team, &mut alice), Some(0));
}

/// Both implementations claim the same tasks at once. Each task gets one owner.
#[test]
fn a_task_is_claimed_once() {
    const TASKS: usize = 20;
    if !has_python() {
        return;
    }
    let team = Team::new();
    team.team(&["init"]).expect(0);
    for n in 0..TASKS {
        team.team(&["task", "add", &format!("task {n}")]).expect(0);
    }
    let mut py = member(&team, "py");
    let theirs = other(&team, &["claim", "py"]).spawn().unwrap();
    let ids = (1..=TASKS).rev().map(|n| n.to_string());
    let mine: Vec<String> =
        ids.filter(|id| team.team(&["task", "claim", id]).code == Some(0)).collect();
    let theirs = theirs.wait_with_output().unwrap();
    assert!(theirs.status.success(), "{theirs:?}");
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    let claimed = |owner: &str, ids: Vec<String>| {
        for id in &ids {
            let task = team.team(&["task", "show", id, "--json"]).expect(0).json();
            assert_eq!((&task["status"], &task["owner"]), (&json!("in_progress"), &json!(owner)));
        }
        ids.len()
    };
    let theirs = claimed("py", theirs.lines().map(str::to_owned).collect());
    let mine = claimed("user", mine);
    assert_eq!(theirs + mine, TASKS, "{theirs} and {mine}");
    team.team(&["stop", "py"]).expect(0);
    assert_eq!(wait(&team, &mut py), Some(0));
}
