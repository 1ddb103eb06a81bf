//! System call errors, injected by strace one at a time: every call on a file of the team fails once with each
//! error. The result is success or a clear error; nothing is lost, duplicated or torn; and the same command works
//! afterwards.
//!
//! Traces also prove that every acknowledged write was synced before the acknowledgement.

use crate::support::child_process::{Job, content, start, write};
use crate::support::events::{History, send};
use crate::support::harness::{PATIENCE, Team, may_inspect_agents, program};
use crate::support::scripts::{calls, says, script};
use crate::support::skips::skipped;
use agent_team::store::{Fsync, TeamDir, roster};
use agent_team::wire::roster::Status;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of cases that run at the same time.
const AT_ONCE: usize = 4;

/// The time for which a disk stays full. It exceeds the retry interval of an agent that waits for space.
const FULL_FOR: Duration = Duration::from_secs(3);

/// The errors that are injected into each call.
const FAILURES: [(&str, &[&str]); 13] = [
    ("openat", &["EMFILE", "ENOSPC", "EIO", "EROFS", "EACCES", "EINTR"]),
    ("write", &["ENOSPC", "EIO", "EDQUOT", "EINTR", "EAGAIN"]),
    ("pwrite64", &["ENOSPC", "EIO", "EDQUOT", "EINTR"]),
    ("linkat", &["ENOSPC", "EIO", "EROFS", "EDQUOT"]),
    ("rename", &["ENOSPC", "EIO", "EROFS"]),
    ("unlink", &["EIO", "EROFS"]),
    ("fsync", &["EIO", "ENOSPC", "EDQUOT"]),
    ("fdatasync", &["EIO", "ENOSPC", "EDQUOT"]),
    ("flock", &["EINTR", "ENOLCK"]),
    ("inotify_init1", &["EMFILE"]),
    ("inotify_add_watch", &["ENOSPC"]),
    ("fcntl", &["EAGAIN", "EINVAL"]),
    ("ftruncate", &["EIO"]),
];

fn can_trace() -> bool {
    let tried = Command::new("strace").args(["-qq", "-e", "trace=none", "true"]).output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        skipped("no strace, or it may not trace: errors of system calls are not tried");
    }
    can
}

/// A `team` command under strace, which writes its trace to `log`.
fn tracing(team: &Team, args: &[&str], options: &[&str], log: &Path) -> Command {
    let ours = team.command("team", args);
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-s", "64", "-o"]).arg(log).args(options);
    command.arg(program("team")).args(args).current_dir(team.workspace()).env_clear();
    command.envs(ours.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.stdin(Stdio::null());
    command
}

/// Runs a `team` command under strace to its end. Returns its output and the lines of the trace.
fn traced(team: &Team, args: &[&str], options: &[&str]) -> (Output, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("trace");
    let output = tracing(team, args, options, &log).output().unwrap();
    (output, lines_of(&log))
}

/// Runs a `team` command under strace with one injected error to its end. Returns `None` if the error hit the
/// eventfd by which the runtime wakes itself, because strace counts the calls of each thread. The kernel never fails
/// such a write, so the runtime panics or waits forever.
fn injected(team: &Team, args: &[&str], option: &str) -> Option<(Output, Vec<String>)> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("trace");
    let mut command = tracing(team, args, &["-e", option], &log);
    let mut strace = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut is_no_case = false;
    team.eventually(&format!("{option}: the command ends"), || {
        is_no_case = is_no_case || kill_if_it_cannot_wake(&log);
        strace.try_wait().unwrap().is_some()
    });
    let output = strace.wait_with_output().unwrap();
    (!is_no_case && !kill_if_it_cannot_wake(&log)).then(|| (output, lines_of(&log)))
}

fn lines_of(log: &Path) -> Vec<String> {
    fs::read_to_string(log).unwrap_or_default().lines().map(ToOwned::to_owned).collect()
}

/// Kills the traced process if an error hit its eventfd. Returns whether one did.
fn kill_if_it_cannot_wake(log: &Path) -> bool {
    let trace = lines_of(log);
    // A user without rights does not see the names of an agent's descriptors.
    let made = trace.iter().filter(|line| line.contains(" eventfd2("));
    let unnamed = made.filter_map(|line| line.rsplit_once(" = ")).map(|(_, number)| {
        let number = number.split('<').next().unwrap_or_default();
        format!(" write({number}, 0x")
    });
    let mut signs = unnamed.chain(["anon_inode:[eventfd]".to_owned()]);
    let is_hit = signs.any(|sign| has_injected(&trace, &sign));
    if is_hit {
        let (pid, _) = trace[0].split_once(' ').unwrap();
        signal_if_running(pid.parse().unwrap(), Signal::SIGKILL);
    }
    is_hit
}

/// The thread and the name of the call in a line of a trace.
fn call_of(line: &str) -> Option<(&str, &str)> {
    let (thread, rest) = line.split_once(' ')?;
    let (name, _) = rest.trim_start().split_once('(')?;
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then_some((thread, name))
}

/// The calls of a command on files of the team: the name, and the ordinal among the calls of that name in its
/// thread.
fn targets(trace: &[String]) -> Vec<(&'static str, u32)> {
    let mut counts: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let mut found = Vec::new();
    for line in trace {
        let Some((thread, name)) = call_of(line) else { continue };
        let Some((call, _)) = FAILURES.iter().find(|(call, _)| *call == name) else { continue };
        let count = counts.entry((thread, name)).or_default();
        *count += 1;
        let ours = line.contains("/.team/") || line.contains("inotify");
        if ours && !found.contains(&(*call, *count)) {
            found.push((*call, *count));
        }
    }
    found
}

/// Calls `try_one` with the strace option of each injected error. With `TEAM_TORTURE_KILLS` all cases are tried,
/// otherwise at most `most`, evenly spread from a random start. Returns the number of cases; `try_one` returns whether
/// it was one.
fn each_failure(
    targets: &[(&'static str, u32)],
    most: usize,
    try_one: impl Fn(&str) -> bool + Sync,
) -> usize {
    let thorough = std::env::vars().any(|(key, _)| key == "TEAM_TORTURE_KILLS");
    let mut all: Vec<String> = Vec::new();
    for (call, n) in targets {
        let (_, ways) = FAILURES.iter().find(|(known, _)| known == call).unwrap();
        all.extend(ways.iter().map(|error| format!("inject={call}:error={error}:when={n}")));
    }
    let every = if thorough { 1 } else { all.len().div_ceil(most) };
    let first = usize::try_from(RandomState::new().hash_one(targets) >> 32).unwrap() % every;
    println!("{} failures are possible; every {every}th from {first} on is tried", all.len());
    let all: Vec<String> = all.into_iter().skip(first).step_by(every).collect();
    let (waiting, count) = (Mutex::new(all), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(option) = waiting.lock().unwrap().pop() else { return };
                    count.fetch_add(usize::from(try_one(&option)), Ordering::Relaxed);
                }
            });
        }
    });
    count.into_inner()
}

/// Whether an error was injected into a call whose line contains `call`. strace splits the line of a call during
/// which it reports another thread.
fn has_injected(trace: &[String], call: &str) -> bool {
    let begun = trace.iter().enumerate().filter(|(_, line)| line.contains(call));
    let mut ends = begun.filter_map(|(at, line)| {
        let (thread, _) = line.split_once(' ')?;
        let is_end = |later: &&String| {
            later
                .split_once(' ')
                .is_some_and(|(of, rest)| of == thread && rest.contains(" resumed>"))
        };
        if line.contains("<unfinished ...>") { trace[at..].iter().find(is_end) } else { Some(line) }
    });
    ends.any(|line| line.contains("(INJECTED)"))
}

/// Asserts that a command does not crash, and that a failed one prints an error of at least two lines. Returns
/// whether the command succeeded.
#[track_caller]
fn is_clear((output, trace): &(Output, Vec<String>), option: &str) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some(), "{option}: killed by a signal\n{said}");
    assert!(!said.contains("panicked"), "{option}: {said}");
    if output.status.success() {
        return true;
    }
    let code = output.status.code();
    assert!(matches!(code, Some(1 | 3 | 5)), "{option}: exit {code:?}\n{said}");
    // The order of the threads' writes varies, so the injected error may hit the error message itself.
    if !has_injected(trace, " write(2<") {
        // Settings that cannot be read cause a warning; the command goes on.
        let mut error = said.lines().skip_while(|line| line.starts_with("warning: "));
        let is_error = error.next().is_some_and(|line| line.starts_with("error: "));
        assert!(is_error && error.next().is_some(), "{option}: {said}");
    }
    false
}

fn read_contents(team: &Team) -> Vec<String> {
    team.mail_of("lead").iter().map(|mail| mail["content"].as_str().unwrap().to_owned()).collect()
}

/// A team folder with two messages for the lead.
fn with_mail() -> Team {
    let team = Team::new();
    team.team(&["send", "lead", &content("user", 0, 30)]).expect(1);
    team.team(&["init"]).expect(0);
    team.team(&["send", "lead", &content("user", 0, 30)]).expect(0);
    team.team(&["send", "lead", &content("user", 1, 30)]).expect(0);
    team
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_send_survives_every_system_call_error() {
    if !can_trace() {
        return;
    }
    let text = content("user", 2, 30);
    let send = ["send", "lead", &text];
    let (output, trace) = traced(&with_mail(), &send, &["-e", "trace=all"]);
    assert!(output.status.success(), "{output:?}");
    let targets = targets(&trace);
    let tried = each_failure(&targets, 40, |option| {
        let team = with_mail();
        let Some(ran) = injected(&team, &send, option) else { return is_no_case(&team) };
        let was_told = is_clear(&ran, option);
        let said = String::from_utf8_lossy(&ran.0.stderr);
        let text = fs::read_to_string(team.path("inbox/lead.jsonl")).unwrap();
        let is_unknown = said.contains("may not survive");
        assert!(text.ends_with('\n'), "{option}: half a line: {text:?}");
        let lines = text.lines().count();
        match (was_told, is_unknown) {
            (true, _) => assert_eq!(lines, 3, "{option}: told and lost"),
            (false, true) => assert_eq!(lines, 3, "{option}: {said}"),
            (false, false) => assert_eq!(lines, 2, "{option}: refused and stored: {said}"),
        }
        team.team(&["send", "lead", &content("user", 3, 30)]).expect(0);
        team.team(&["inbox", "lead", "--drain"]).expect(0);
        let mut expected = vec![content("user", 0, 30), content("user", 1, 30)];
        if was_told || is_unknown {
            expected.push(content("user", 2, 30));
        }
        expected.push(content("user", 3, 30));
        assert_eq!(read_contents(&team), expected, "{option}");
        assert!(team.lines("dead/lead.jsonl").is_empty(), "{option}");
        true
    });
    assert!(tried >= 20, "{targets:?}");
    println!("{tried} failures of {} calls", targets.len());
}

#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_drain_survives_every_system_call_error() {
    if !can_trace() {
        return;
    }
    let drain = ["inbox", "lead", "--drain"];
    let (output, trace) = traced(&with_mail(), &drain, &["-e", "trace=all"]);
    assert!(output.status.success(), "{output:?}");
    let targets = targets(&trace);
    let tried = each_failure(&targets, 40, |option| {
        let team = with_mail();
        let Some(ran) = injected(&team, &drain, option) else { return is_no_case(&team) };
        is_clear(&ran, option);
        team.team(&["send", "lead", &content("user", 2, 30)]).expect(0);
        team.team(&drain).expect(0);
        let expected: Vec<_> = (0..3).map(|n| content("user", n, 30)).collect();
        assert_eq!(read_contents(&team), expected, "{option}");
        assert!(team.lines("dead/lead.jsonl").is_empty(), "{option}");
        true
    });
    assert!(tried >= 20, "{targets:?}");
    println!("{tried} failures of {} calls", targets.len());
}

/// Drains all inboxes, also of killed processes.
fn drain_all(team: &Team) {
    for name in ["lead", "user", "bob"] {
        if team.path(&format!("inbox/{name}.jsonl")).exists() {
            team.team(&["inbox", name, "--drain"]).expect(0);
        }
    }
}

/// Removes the claims of a process that was killed because the error hit another call than intended.
fn is_no_case(team: &Team) -> bool {
    drain_all(team);
    false
}

/// Sends a signal to a process that may have exited meanwhile.
fn signal_if_running(pid: i32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap_or_default();
}

/// Runs a teammate under strace with one injected error until it exits. Returns `None` if the error hit another
/// call than intended (see [`injected`]).
///
/// strace counts the calls of each thread, so every new thread gets the same error. A disk that is full for one
/// thread therefore stays full, and an agent that waits for space gets SIGTERM.
fn run_to_its_end(team: &Team, args: &[&str], option: &str) -> Option<Output> {
    let log = team.workspace().join("trace");
    let mut command = tracing(team, args, &["-e", option], &log);
    let mut strace = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut waiting, mut asked, mut is_no_case) = (None, None, false);
    team.eventually(&format!("{option}: bob ends"), || {
        if strace.try_wait().unwrap().is_some() {
            return true;
        }
        is_no_case = is_no_case || kill_if_it_cannot_wake(&log);
        let since = |moment: Instant| moment.elapsed();
        let is_waiting = team.member("bob")["activity"] == "disk full";
        waiting = waiting.filter(|_| is_waiting).or(is_waiting.then(Instant::now));
        if asked.is_none() && waiting.map(since).is_some_and(|time| time > FULL_FOR) {
            signal_if_running(team.pid_of("bob"), Signal::SIGTERM);
            asked = Some(Instant::now());
        }
        assert!(asked.map(since).is_none_or(|time| time < PATIENCE / 2), "{option}: it stays");
        false
    });
    let output = strace.wait_with_output().unwrap();
    if is_no_case || kill_if_it_cannot_wake(&log) {
        return None;
    }
    if asked.is_some() {
        assert_eq!(output.status.code(), Some(143), "{option}: {output:?}");
    }
    Some(output)
}

/// A teammate sends and exits. After any failed call, starting it again completes the work.
#[test]
#[ignore = "long: scripts/check --all runs it"]
fn a_teammate_survives_every_system_call_error() {
    if !can_trace() {
        return;
    }
    let begin = |team: &Team| {
        let lines = [
            calls("bob", &[send("bob", "lead", 0), send("bob", "user", 0)]),
            says("bob", "bob has done it all"),
        ];
        script(team, &lines)
    };
    let args = |model: &str| {
        ["teammate", "bob", "--once", "--model", model, "--prompt", "begin"].map(str::to_owned)
    };
    let team = Team::new();
    let words = args(&begin(&team));
    let words = words.each_ref().map(String::as_str);
    let (output, trace) = traced(&team, &words, &["-e", "trace=all"]);
    assert!(output.status.success(), "{output:?}");
    let targets = targets(&trace);
    let tried = each_failure(&targets, 24, |option| {
        let team = Team::new();
        let words = args(&begin(&team));
        let words = words.each_ref().map(String::as_str);
        let Some(output) = run_to_its_end(&team, &words, option) else { return is_no_case(&team) };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code().is_some(), "{option}: killed by a signal\n{said}");
        assert!(!said.contains("panicked"), "{option}: {said}");
        let is_done = || {
            let lines = team.lines("transcript/bob.jsonl");
            lines.iter().any(|line| line["blocks"][0]["text"] == "bob has done it all")
        };
        for _ in 0..3 {
            if !is_done() {
                let again = ["teammate", "bob", "--once", "--model", words[4], "--prompt", "go on"];
                team.team(&again).expect(0);
            }
        }
        assert!(is_done(), "{option}: it never went on\n{}", team.describe());
        // A repeated send has the same id, so a drain delivers it once.
        drain_all(&team);
        let history = History::of(&team, &["bob", "lead", "user"]);
        assert_eq!(history.check(), [], "{option}\n{}\n{}", history.text(), team.describe());
        true
    });
    assert!(tried >= 12, "{targets:?}");
    println!("{tried} failures of {} calls", targets.len());
}

/// The index of the first line of a trace that contains all these words.
fn place(trace: &[String], words: &[&str]) -> Option<usize> {
    trace.iter().position(|line| words.iter().all(|word| line.contains(word)))
}

/// Whether `team send` synced its write before it reported success.
fn send_is_durable(team: &Team) -> bool {
    let (output, trace) = traced(team, &["send", "lead", "hi"], &["-e", "trace=all"]);
    assert!(output.status.success());
    let written = place(&trace, &[" write(", "inbox/lead.jsonl>"]).unwrap();
    let synced = place(&trace, &["fdatasync(", "inbox/lead.jsonl>"]);
    let said = place(&trace, &[" write(1<"]).unwrap();
    synced.is_some_and(|synced| written < synced && synced < said)
}

/// Whether a drain synced the transcript after the write and before it released the claim, and synced the folders
/// before it released the lock of the senders.
fn drain_is_durable(team: &Team) -> bool {
    let (output, trace) = traced(team, &["inbox", "lead", "--drain"], &["-e", "trace=all"]);
    assert!(output.status.success());
    let recorded = place(&trace, &[" write(", "transcript/lead.jsonl>"]).unwrap();
    let synced = place(&trace, &["fdatasync(", "transcript/lead.jsonl>"]);
    let claims = place(&trace, &["fsync(", "inbox/.claim>"]);
    let swapped = place(&trace, &["rename", "lead.new", "inbox/lead.jsonl"]).unwrap();
    let folder = place(&trace, &["fsync(", "/inbox>"]);
    let after = |from: usize, words: &[&str]| place(&trace[from..], words).map(|at| from + at);
    let unlocked = after(swapped, &["flock(", ".lock/lead>", "LOCK_UN"]).unwrap();
    let let_go = place(&trace, &["rename", ".taken"]).or(place(&trace, &["unlink", ".claim/"]));
    synced.is_some_and(|synced| recorded < synced && synced < let_go.unwrap())
        && claims.is_some_and(|claims| claims < swapped)
        && folder.is_some_and(|folder| swapped < folder && folder < unlocked)
}

/// Every acknowledged write is synced before its acknowledgement. With `TEAM_FSYNC=never` the check fails.
#[test]
fn every_acknowledgement_comes_after_its_sync() {
    if !can_trace() {
        return;
    }
    let team = with_mail();
    assert!(send_is_durable(&team));
    assert!(drain_is_durable(&team));
    let careless = with_mail();
    careless.variable("TEAM_FSYNC", "never");
    assert!(!send_is_durable(&careless), "the proof does not bite");
    assert!(!drain_is_durable(&careless), "the proof does not bite");
}

/// A send to a member that is being spawned is acknowledged only after the roster entry is durable. Without the
/// entry the recipient would not exist after a power cut.
#[test]
fn a_send_to_a_starting_member_waits_for_its_durable_entry() {
    if !can_trace() {
        return;
    }
    let team = with_mail();
    let dir = TeamDir::open(&team.path("")).unwrap();
    let mut lead = start(&dir, Job::Live { name: "lead".into() });
    assert_eq!(lead.read_line(), "won");
    let enter = |status| {
        roster::update(&dir, Fsync::Never, |roster| roster.enter("alice", 1.0).status = status)
    };
    enter(Status::Starting).unwrap();
    let (output, trace) = traced(&team, &["send", "alice", "hi"], &["-e", "trace=all"]);
    assert!(output.status.success(), "{output:?}");
    let said = place(&trace, &[" write(1<"]).unwrap();
    let entry = place(&trace, &["fdatasync(", "/config.json>"]).expect("the entry is synced");
    let name = place(&trace, &["fsync(", "/.team>"]).expect("its name is synced");
    assert!(entry < name && name < said, "{trace:#?}");
    lead.release();
    assert!(lead.wait().success());
}

/// After a failed sync nothing is acknowledged, and the sync is not repeated: a second one would report
/// success.
#[test]
fn a_failed_sync_is_reported_and_never_repeated() {
    if !can_trace() {
        return;
    }
    let team = with_mail();
    let inject = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1"];
    let (output, trace) = traced(&team, &["send", "lead", "hi"], &inject);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("written, but it may not survive a power cut"), "{said}");
    let asked = trace.iter().filter(|line| line.contains("inbox/lead.jsonl>")).count();
    assert_eq!(asked, 1, "{trace:#?}");

    if !may_inspect_agents("the paths of its descriptors") {
        return;
    }
    let model = script(&team, &[calls("bob", &[send("bob", "lead", 0)]), says("bob", "two")]);
    let transcript = PathBuf::from("transcript/bob.jsonl");
    let at = |trace: &[String]| {
        let syncs = trace.iter().filter(|line| line.contains("fdatasync("));
        syncs.filter(|line| line.contains(transcript.to_str().unwrap())).count()
    };
    let args = ["teammate", "bob", "--once", "--model", &model, "--prompt", "begin"];
    let sound = traced(&team, &args, &["-e", "trace=fdatasync"]).1;
    assert!(at(&sound) >= 2, "{sound:#?}");
    write(&team.path(transcript.to_str().unwrap()), "");
    // With `-P`, strace selects calls by path: only the syncs of this file fail.
    let path = team.path(transcript.to_str().unwrap());
    let only = ["-P", path.to_str().unwrap(), "-e", "inject=fdatasync:error=EIO:when=1+"];
    let (output, trace) = traced(&team, &args, &only);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("transcript/bob.jsonl"), "{said}");
    assert_eq!(at(&trace), 1, "asked again: {trace:#?}");
}

/// Locks that do not work are detected before anything is written.
#[test]
fn a_disk_without_locks_is_refused_at_the_start() {
    if !can_trace() {
        return;
    }
    let team = Team::new();
    let inject = ["-e", "inject=flock:error=ENOLCK:when=1+"];
    let args = ["lead", "-p", "hello", "--model", "rehearsal"];
    let (output, _) = traced(&team, &args, &inject);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(".team") && said.contains("No locks available"), "{said}");
    assert!(!team.path("config.json").exists());
}
