//! A disk that is full, out of inodes or read-only, and a process without free descriptors: agents report it,
//! wait, and continue without help, and nothing is lost.

use crate::support::child_process::{content, line};
use crate::support::events::{EventKind, History, send};
use crate::support::harness::{Team, may_inspect_agents};
use crate::support::scripts::{
    assert_left_in_order, bash, calls, kill_9, says, script, scripted_lead, spawn, turns, wait,
    wait_file,
};
use crate::support::skips::skipped;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A small file system at a team's workspace, unmounted on drop.
struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Mounts the file system. Returns `None`, with a notice, if this user may not mount.
    fn under(team: &Team, options: &str) -> Option<Self> {
        let at = team.workspace().to_path_buf();
        let words = ["-t", "tmpfs", "-o", options, "tmpfs"];
        let mounted = Command::new("mount").args(words).arg(&at).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            skipped("a small disk cannot be mounted here (needs root)");
            return None;
        }
        Some(Self { at })
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let done = Command::new("mount").args(["-o", &options]).arg(&self.at).status().unwrap();
        assert!(done.success());
    }

    /// Fills the disk until the returned value is dropped.
    fn fill(&self) -> Filler {
        let path = self.at.join("filler");
        let mut file = fs::File::create(&path).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        Filler(vec![path])
    }

    /// Uses all inodes until the returned value is dropped. A process that replaces a file meanwhile frees one when it is
    /// done, so they are used up only once this process of the team does nothing.
    fn fill_inodes(&self, team: &Team, pid: i32) -> Filler {
        let mut filler = Filler(Vec::new());
        team.eventually("no inode is left", || {
            let (before, rest) = (resting(pid), filler.0.len());
            let path = |n: usize| self.at.join(format!("filler-{n}"));
            let made = (rest..).map(path).take_while(|path| fs::File::create(path).is_ok());
            filler.0.extend(made);
            filler.0.len() == rest && before.is_some() && before == resting(pid)
        });
        filler
    }
}

/// Returns how long each thread of a process has run so far; `None` while one of them does not sleep.
fn resting(pid: i32) -> Option<Vec<String>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut ran = Vec::new();
    for thread in threads {
        let thread = thread.ok()?.path();
        let state = fs::read_to_string(thread.join("stat")).ok()?;
        let (_, state) = state.rsplit_once(") ")?;
        if !state.starts_with('S') {
            return None;
        }
        ran.push(fs::read_to_string(thread.join("schedstat")).ok()?);
    }
    Some(ran)
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazy unmount (`-l`), because a failing test may leave a process in the file system.
        drop(Command::new("umount").arg("-l").arg(&self.at).status());
    }
}

struct Filler(Vec<PathBuf>);

impl Drop for Filler {
    fn drop(&mut self) {
        for path in &self.0 {
            drop(fs::remove_file(path));
        }
    }
}

/// A manually started member, and its output so far.
struct Member {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Member {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let said = Arc::<Mutex<String>>::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                writeln!(heard.lock().unwrap(), "{line}").unwrap();
            }
        });
        Self { child, said }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    #[track_caller]
    fn wait_says(&self, team: &Team, words: &str) {
        team.eventually(&format!("it says {words:?}"), || {
            self.said.lock().unwrap().contains(words)
        });
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Sets a limit of the running process. Returns whether this is possible.
    fn limit(&self, limit: &str) -> bool {
        let pid = self.pid().to_string();
        let done = Command::new("prlimit").args(["--pid", &pid, limit]).status();
        done.is_ok_and(|status| status.success())
    }
}

fn bob(team: &Team, model: &str) -> Member {
    Member::start(team.command("team", &["teammate", "bob", "--model", model]))
}

fn can_limit() -> bool {
    let can = Command::new("prlimit").args(["--pid", "1"]).output().is_ok();
    if !can {
        skipped("no prlimit: limits of a running process cannot be changed");
    }
    can
}

/// No file may grow. Mail stays in the inbox; its owner keeps running, waits for space, and shows this in the
/// roster. Afterwards it receives all mail in order.
#[test]
fn an_agent_waits_for_space_and_continues_by_itself() {
    if !can_limit() {
        return;
    }
    let team = Team::new();
    let model = script(&team, &[says("bob", "one"), says("bob", "two")]);
    let line = format!("trap '' XFSZ; ulimit -S -f 16; exec team teammate bob --model {model}");
    let mut member = Member::start(team.shell(&line));
    team.wait_status("bob", "idle");
    for n in 0..4 {
        team.team(&["send", "bob", &content("user", n, 9_000)]).expect(0);
    }
    member.wait_says(&team, "disk full");
    team.eventually("the roster says so", || {
        team.status("bob") == "waiting" && team.member("bob")["activity"] == "disk full"
    });
    assert!(team.team(&["ls"]).expect(0).out.contains("disk full"));
    assert!(member.child.try_wait().unwrap().is_none(), "it lives");
    assert!(team.mail_of("bob").len() < 4);
    assert!(member.limit("--fsize=unlimited"));
    member.wait_says(&team, "the disk has room again");
    team.eventually("all mail is taken in", || team.mail_of("bob").len() == 4);
    let taken: Vec<_> = team.mail_of("bob").iter().map(|mail| mail["content"].clone()).collect();
    let expected: Vec<_> = (0..4).map(|n| json!(content("user", n, 9_000))).collect();
    assert_eq!(taken, expected);
    team.wait_status("bob", "idle");
    team.team(&["stop", "bob"]).expect(0);
    assert_eq!(wait(&team, &mut member.child), Some(0));
    assert!(team.lines("dead/bob.jsonl").is_empty());
}

/// The number of messages that each member sends to the other.
const MESSAGES: u64 = 20;

/// The disk becomes full while all members work. All of them wait, and finish when there is space again.
#[test]
fn a_whole_team_on_a_full_disk_continues_when_there_is_space() {
    let team = Team::new();
    let Some(disk) = Disk::under(&team, "size=4m,mode=0700") else { return };
    let mut lines = vec![
        calls("lead", &[spawn("alice"), spawn("bob")]),
        calls("lead", &[bash("until test -e started.alice -a -e started.bob; do sleep 0.1; done")]),
        says("lead", "the lead waits"),
    ];
    for (me, other) in [("alice", "bob"), ("bob", "alice")] {
        lines.push(calls(me, &[bash(&format!("touch started.{me}"))]));
        for n in 0..MESSAGES {
            let mut step =
                calls(me, &[send(me, other, n), bash("head -c 3000 /dev/zero | tr '\\0' x")]);
            step["delay_ms"] = json!(40);
            lines.push(step);
        }
        lines.push(says(me, "done it all"));
    }
    let model = script(&team, &lines);
    let mut lead = team.start(&["lead", "-p", "begin", "--model", &model, "--timeout", "600"]);
    wait_file(&team, "started.alice");
    wait_file(&team, "started.bob");
    let filler = disk.fill();
    let mut refused = 0;
    team.eventually("sends are refused again and again", || {
        let ran = team.team(&["send", "lead", &"x".repeat(10_000)]);
        if ran.code == Some(1) {
            assert!(ran.err.contains("No space left"), "{ran:?}");
            refused += 1;
        }
        refused == 20
    });
    assert!(lead.try_wait().unwrap().is_none(), "{}", team.describe());
    // A command may still be running.
    team.eventually("the agents alone are left", || team.processes().len() == 3);
    drop(filler);
    assert_eq!(wait(&team, &mut lead), Some(0), "{}", team.describe());
    team.wait_no_process();
    let history = History::of(&team, &["lead", "alice", "bob"]);
    assert_eq!(history.check(), [], "{}", history.text());
    assert_eq!(history.count(EventKind::Sent), 2 * usize::try_from(MESSAGES).unwrap());
    assert!(team.has_mail("lead", "alice", "done it all"));
    assert!(team.has_mail("lead", "bob", "done it all"));
}

/// A teammate dies while the disk is full: its end cannot be written into the roster. It comes back, with its mail,
/// when there is space.
#[test]
fn a_teammate_that_dies_on_a_full_disk_comes_back_when_there_is_space() {
    let team = Team::new();
    let Some(disk) = Disk::under(&team, "size=4m,mode=0700") else { return };
    let lines = [calls("lead", &[spawn("bob")]), says("lead", "spawned"), says("bob", "ready")];
    let answers = [says("lead", "I see"), says("bob", "one more")];
    let mut lead = scripted_lead(&team, &[&lines[..], &answers[..]].concat());
    team.wait_status("bob", "idle");
    team.wait_status("lead", "idle");
    let filler = disk.fill();
    kill_9(&team, "bob");
    team.eventually("bob is dead", || team.team(&["ls"]).out.contains("dead"));
    drop(filler);
    team.eventually("bob is back", || {
        let bob = team.member("bob");
        bob["restarts"] == 1 && bob["status"] == "idle"
    });
    team.team(&["send", "bob", "go on"]).expect(0);
    team.eventually("he works on", || team.has_mail("lead", "bob", "one more"));
    lead.type_line("/quit");
    lead.wait();
    assert_left_in_order(&team);
}

/// The log and the stderr of a teammate are on the same full disk. A line that finds no room there is left out.
#[test]
fn a_log_without_room_does_not_end_the_agent() {
    let team = Team::without_walls();
    let Some(disk) = Disk::under(&team, "size=4m,mode=0700") else { return };
    let go = tempfile::tempdir().unwrap();
    let gate = go.path().join("go");
    let wait = format!("touch here; until test -e {}; do sleep 0.05; done", gate.display());
    let lines = [
        calls("lead", &[spawn("bob")]),
        says("lead", "spawned"),
        calls("bob", &[bash(&wait)]),
        says("bob", "done it"),
        says("lead", "I see"),
    ];
    let mut lead = scripted_lead(&team, &lines);
    wait_file(&team, "here");
    // The next line of the log needs another page of the disk.
    let log = team.path("log/bob.jsonl");
    let size = fs::metadata(&log).unwrap().len();
    let mut file = fs::OpenOptions::new().append(true).open(&log).unwrap();
    file.write_all(&vec![b'\n'; usize::try_from(4096 - size % 4096).unwrap()]).unwrap();
    let filler = disk.fill();
    let bob = team.pid_of("bob");
    fs::File::create(&gate).unwrap();
    team.eventually("the agents alone are left", || team.processes().len() == 2);
    // Without the time that he needs to write his log, this test would only prove less.
    std::thread::park_timeout(Duration::from_millis(500));
    drop(filler);
    team.eventually("he works on", || team.has_mail("lead", "bob", "done it"));
    assert_eq!(team.pid_of("bob"), bob, "the same process");
    lead.type_line("/quit");
    lead.wait();
    assert_left_in_order(&team);
}

/// An agent that is stopped while it waits for space uses the reserve for its last lines.
#[test]
fn the_reserve_lets_an_agent_end_in_order_on_a_full_disk() {
    let team = Team::without_walls();
    let Some(disk) = Disk::under(&team, "size=4m,mode=0700") else { return };
    let go = tempfile::tempdir().unwrap();
    let gate = go.path().join("go");
    let noise = "head -c 20000 /dev/zero | tr '\\0' x";
    let wait_then_talk =
        format!("touch here; until test -e {}; do sleep 0.05; done; {noise}", gate.display());
    let model = script(&team, &[calls("bob", &[bash(&wait_then_talk)])]);
    let mut member = bob(&team, &model);
    team.wait_status("bob", "idle");
    team.team(&["send", "bob", "begin"]).expect(0);
    wait_file(&team, "here");
    assert!(team.path("run/.state/reserve").exists());
    let filler = disk.fill();
    fs::File::create(&gate).unwrap();
    member.wait_says(&team, "disk full");
    member.signal(Signal::SIGTERM);
    assert_eq!(wait(&team, &mut member.child), Some(143), "{}", team.describe());
    assert!(!team.path("run/.state/reserve").exists());
    let lines = team.lines("transcript/bob.jsonl");
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"tool_result") && kinds.last() == Some(&"turn_end"), "{kinds:?}");
    drop(filler);
    assert_left_in_order(&team);
}

/// Mail can be sent when no inode is left, and is delivered when there is one.
#[test]
fn a_disk_without_inodes_loses_nothing() {
    let team = Team::new();
    let Some(disk) = Disk::under(&team, "size=8m,nr_inodes=120,mode=0700") else { return };
    let model = script(&team, &[says("bob", "one"), says("bob", "two")]);
    let mut member = bob(&team, &model);
    team.wait_status("bob", "idle");
    let filler = disk.fill_inodes(&team, member.pid());
    team.team(&["send", "bob", &content("user", 0, 30)]).expect(0);
    member.wait_says(&team, "disk full");
    team.team(&["send", "bob", &content("user", 1, 30)]).expect(0);
    drop(filler);
    team.eventually("both are taken in", || team.mail_of("bob").len() == 2);
    team.team(&["stop", "bob"]).expect(0);
    assert_eq!(wait(&team, &mut member.child), Some(0));
    assert_left_in_order(&team);
}

/// Every command that writes fails with one clear error. Commands that only read work.
#[test]
fn a_read_only_folder_is_one_clear_error() {
    let team = Team::new();
    let (disk, why) = if nix::unistd::geteuid().is_root() {
        (Disk::under(&team, "size=4m,mode=0700"), "Read-only file system")
    } else {
        (None, "Permission denied")
    };
    if disk.is_none() && nix::unistd::geteuid().is_root() {
        return;
    }
    team.team(&["init"]).expect(0);
    team.team(&["send", "lead", "hello"]).expect(0);
    let folders = || {
        let inside =
            ["", "inbox", "inbox/.lock", "inbox/.claim", "transcript", "run", "run/.state"];
        inside.map(|folder| team.path(folder))
    };
    // A file in a read-only folder may still be writable, so the inbox gets the mode, too.
    let set_mode = |mode: u32| {
        for path in folders().into_iter().chain([team.path("inbox/lead.jsonl")]) {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(path, mode).unwrap();
        }
    };
    match &disk {
        Some(disk) => disk.remount("ro"),
        None => set_mode(0o500),
    }
    for args in [
        &["send", "lead", "again"][..],
        &["inbox", "lead", "--drain"],
        &["teammate", "bob", "--once", "--model", "rehearsal"],
        &["lead", "-p", "hello", "--model", "rehearsal"],
    ] {
        let ran = team.team(args).expect(1);
        assert!(ran.err.contains(why) && ran.err.contains(".team"), "{ran:?}");
        assert_eq!(ran.err.matches("error:").count(), 1, "{ran:?}");
        assert!(ran.err.lines().count() <= 5, "{ran:?}");
    }
    team.team(&["ls"]).expect(0);
    match &disk {
        Some(disk) => disk.remount("rw"),
        None => set_mode(0o700),
    }
    team.team(&["inbox", "lead", "--drain"]).expect(0);
    assert!(team.has_mail("lead", "user", "hello"));
}

/// Mail for a running agent without free descriptors waits, and is delivered when there is one.
#[test]
fn an_agent_out_of_descriptors_recovers() {
    if !can_limit() || !may_inspect_agents("how many descriptors it has") {
        return;
    }
    let team = Team::new();
    let model = script(&team, &[says("bob", "one")]);
    let mut member = bob(&team, &model);
    team.wait_status("bob", "idle");
    let open = fs::read_dir(format!("/proc/{}/fd", member.pid())).unwrap().count();
    assert!(member.limit(&format!("--nofile={}:", open.saturating_sub(4))));
    team.team(&["send", "bob", &content("user", 0, 30)]).expect(0);
    member.wait_says(&team, "mail could not be delivered");
    assert!(member.child.try_wait().unwrap().is_none());
    assert!(member.limit("--nofile=1024:"));
    team.eventually("the mail is taken in", || team.mail_of("bob").len() == 1);
    team.team(&["stop", "bob"]).expect(0);
    assert_eq!(wait(&team, &mut member.child), Some(0));
    assert_left_in_order(&team);
}

/// No new thread is possible for an agent that has been idle for a while. It uses the one that it has.
#[test]
fn an_agent_without_a_thread_to_spare_continues() {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can become a user who runs nothing else");
        return;
    }
    if !can_limit() {
        return;
    }
    let team = Team::of_copies();
    let model = script(&team, &[says("bob", "one")]);
    let user = 60_000 + std::process::id() % 5000;
    chown(team.workspace(), Some(user), Some(user)).unwrap();
    let command = |args: &[&str]| {
        let mut command = team.command("team", args);
        command.uid(user).gid(user);
        command
    };
    let mut member = Member::start(command(&["teammate", "bob", "--model", &model]));
    team.wait_status("bob", "idle");
    // A thread that is not kept has ended by then.
    std::thread::park_timeout(Duration::from_secs(1));
    let pid = member.pid().to_string();
    let mut limit = Command::new("prlimit");
    limit.args(["--pid", &pid, "--nproc=1:1"]).uid(user).gid(user);
    assert!(limit.status().unwrap().success());
    assert!(command(&["send", "bob", "hello"]).output().unwrap().status.success());
    team.eventually("bob has answered", || turns(&team, "bob") == 1);
    assert!(command(&["stop", "bob"]).output().unwrap().status.success());
    assert_eq!(wait(&team, &mut member.child), Some(0));
    assert_left_in_order(&team);
}

/// The team folder is removed while a team runs. Every process exits with an error, and none creates the folder
/// again.
#[test]
fn a_removed_team_folder_ends_the_team() {
    let team = Team::new();
    let model = script(&team, &[calls("lead", &[spawn("alice")]), says("alice", "ready")]);
    let mut lead = crate::support::scripts::lead(&team, &model);
    lead.type_line("begin");
    team.wait_status("alice", "idle");
    let mut member = bob(&team, "rehearsal");
    team.wait_status("bob", "idle");
    // The removal fails if a process creates a file at this moment, as `rm -rf` would.
    team.eventually("the folder is removed", || fs::remove_dir_all(team.path("")).is_ok());
    assert_eq!(wait(&team, &mut member.child), Some(1));
    assert_eq!(lead.wait().code(), Some(1), "{}", lead.screen());
    assert!(lead.printed().contains("was removed or replaced"), "{}", lead.printed());
    team.wait_no_process();
    assert!(!team.path("").exists(), "it was made anew");
}

/// `rm -rf` may fail half-way, because an agent has just written a file. No agent goes on with the rest of the team.
#[test]
fn a_team_folder_that_was_emptied_ends_the_team() {
    let team = Team::new();
    let model = script(&team, &[calls("lead", &[spawn("alice")]), says("alice", "ready")]);
    let mut lead = crate::support::scripts::lead(&team, &model);
    lead.type_line("begin");
    team.wait_status("alice", "idle");
    team.wait_status("lead", "idle");
    let gone = team.workspace().join("gone");
    fs::create_dir(&gone).unwrap();
    for folder in ["run", "inbox"] {
        fs::rename(team.path(folder), gone.join(folder)).unwrap();
    }
    assert_eq!(lead.wait().code(), Some(1), "{}", lead.screen());
    assert!(lead.printed().contains("was removed or replaced"), "{}", lead.printed());
    team.wait_no_process();
}

/// Folders of the mailbox are removed while an agent runs. The agent creates them again and continues.
#[test]
fn removed_folders_of_the_mailbox_are_created_again() {
    let team = Team::new();
    let mut member = bob(&team, "rehearsal");
    team.wait_status("bob", "idle");
    for (n, folders) in
        [&["inbox/.claim"][..], &["inbox/.lock"], &["inbox", "dead"]].iter().enumerate()
    {
        for folder in *folders {
            // A rename removes the folder at once, before the member can create another file in it.
            let gone = team.workspace().join("gone");
            fs::rename(team.path(folder), &gone).unwrap();
            fs::remove_dir_all(gone).unwrap();
        }
        let text = format!("after {folders:?} {n}");
        team.team(&["send", "bob", &text]).expect(0);
        team.eventually("the mail is taken in", || team.has_mail("bob", "user", &text));
    }
    team.team(&["stop", "bob"]).expect(0);
    assert_eq!(wait(&team, &mut member.child), Some(0));
    assert_left_in_order(&team);
}

/// A new team folder takes the place of the old one. It belongs to another team, and the old member does not
/// change it.
#[test]
fn a_replaced_team_folder_is_not_touched() {
    let team = Team::new();
    let mut member = bob(&team, "rehearsal");
    team.wait_status("bob", "idle");
    fs::rename(team.path(""), team.workspace().join("old")).unwrap();
    team.team(&["init"]).expect(0);
    let mut inbox = fs::File::create(team.path("inbox/bob.jsonl")).unwrap();
    inbox.write_all(line("user", 0, 9).as_bytes()).unwrap();
    assert_eq!(wait(&team, &mut member.child), Some(1));
    let text = fs::read_to_string(team.path("inbox/bob.jsonl")).unwrap();
    assert_eq!(text, line("user", 0, 9));
    assert!(!team.path("transcript/bob.jsonl").exists() && !team.path("config.json").exists());
}
