//! Child processes for tests: this test binary, started again with a job.
//!
//! A child runs `child_process::entry`, a test that does nothing unless the environment variable contains a job. A
//! test program without the usual harness calls [`work`] in `main`. A child reports in files, or in lines on
//! stdout that begin with `>`.

use agent_team::bus::{Bus, MailLimits, Outgoing};
use agent_team::store::inbox::{self, Priority, SendPolicy};
use agent_team::store::liveness::{LifeLock, LifeRecord};
use agent_team::store::mailbox::{Drained, MailPolicy, Mailbox, SettleResult};
use agent_team::store::tasks::TaskList;
use agent_team::store::{Fsync, Keyring, SharedClock, SystemClock, TeamDir, Transcript};
use agent_team::store::{failpoint, lock, roster};
use agent_team::wire::AgentName;
use agent_team::wire::limits::LOCK_TIMEOUT;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const VARIABLE: &str = "TEAM_TEST_JOB";

/// The job of a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Sends `from:0`, `from:1`, …, and repeats a send with an unknown outcome.
    Send { to: String, from: String, log: PathBuf, count: u64, fsync: bool },
    /// Owns a mailbox and drains it until stdin is closed.
    Read { name: String, settle: bool, fsync: bool },
    /// Takes the life lock of a name, reports the outcome, and holds it until stdin is closed.
    Live { name: String },
    /// Takes a lock and sends itself SIGSTOP.
    StopWithLock { path: PathBuf },
    /// Increments `alice`'s restarts this many times.
    Count { times: u32 },
    /// Adds this many tasks.
    AddTasks { times: u32 },
    /// Sends until a send fails, and reports the error.
    SendUntilRefused { to: String, bytes: usize },
    /// Reports its wake mode, the outcome of its wait for an event, and the number of messages that it drained.
    Wake { name: String },
    /// Drains once, and reports the mail or the error.
    DrainOnce { name: String },
    /// Reports that it is ready, waits until stdin is closed, sends as fast as possible without a sync, and
    /// reports the longest send in microseconds.
    Flood { to: String, from: String, count: u64 },
    /// Acts as alice, and as bob, who writes to her: `s` sends, `d` drains, `x` settles the claims, `m` is for the
    /// caller, which prepares the folder. Reports its progress around each send.
    Steps { steps: String },
}

/// A job in a team folder, optionally with armed failpoints.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) team: PathBuf,
    pub(crate) points: Option<(String, u64)>,
    pub(crate) job: Job,
}

/// A running child, which is killed on drop.
#[derive(Debug)]
pub(crate) struct ChildProcess(Child);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl ChildProcess {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Closes stdin, so that the child finishes.
    pub(crate) fn release(&mut self) {
        drop(self.0.stdin.take());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.release();
        self.0.wait().unwrap()
    }

    /// Waits for the next line that the child reports.
    pub(crate) fn read_line(&mut self) -> String {
        let mut out = BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap());
        let mut line = String::new();
        while out.read_line(&mut line).unwrap() > 0 {
            if let Some(said) = line.split_once('>').map(|(_, said)| said.trim().to_owned()) {
                return said;
            }
            line.clear();
        }
        panic!("the child said nothing more");
    }
}

/// Whether SIGKILL ended the process.
pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

pub(crate) fn start(team: &TeamDir, job: Job) -> ChildProcess {
    start_armed(team, job, None)
}

pub(crate) fn start_armed(team: &TeamDir, job: Job, points: Option<(&str, u64)>) -> ChildProcess {
    run(command(team, job, points))
}

/// Starts a child under a shell that runs the commands of `limits` first.
pub(crate) fn start_limited(team: &TeamDir, job: Job, limits: &str) -> ChildProcess {
    start_below(&["sh"], team, job, limits)
}

/// Starts a child under a shell that the program `around` starts.
pub(crate) fn start_below(around: &[&str], team: &TeamDir, job: Job, limits: &str) -> ChildProcess {
    let inner = command(team, job, None);
    let (program, words) = around.split_first().unwrap();
    let mut shell = Command::new(program);
    shell.args(words).args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]);
    shell.arg(inner.get_program());
    shell.args(inner.get_args());
    shell.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
    run(shell)
}

/// Starts a prepared child.
pub(crate) fn run(mut command: Command) -> ChildProcess {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    ChildProcess(command.spawn().unwrap())
}

/// Returns the command line of this program with a job.
pub(crate) fn command(team: &TeamDir, job: Job, points: Option<(&str, u64)>) -> Command {
    let points = points.map(|(points, seed)| (points.to_owned(), seed));
    let order = Order { team: team.root().into(), points, job };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "support::child_process::entry", "--nocapture"]);
    command.env(VARIABLE, serde_json::to_string(&order).unwrap());
    command
}

#[test]
fn entry() {
    work();
}

/// Does the job in the environment variable. Returns whether there was one.
pub(crate) fn work() -> bool {
    let Some((_, order)) = std::env::vars().find(|(key, _)| key == VARIABLE) else {
        return false;
    };
    let order: Order = serde_json::from_str(&order).unwrap();
    if let Some((points, seed)) = &order.points {
        failpoint::arm(points, "child", Some(*seed)).unwrap();
    }
    let dir = TeamDir::open(&order.team).unwrap();
    match order.job {
        Job::Send { to, from, log, count, fsync } => send(&dir, &to, &from, &log, count, fsync),
        Job::Read { name, settle, fsync } => read(&dir, &name, settle, fsync),
        Job::Live { name } => live(&dir, &name),
        Job::StopWithLock { path } => {
            let held = lock::exclusive(&path, Duration::from_secs(5)).unwrap();
            println!("> locked");
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP).unwrap();
            drop(held);
        }
        Job::Count { times } => {
            for _ in 0..times {
                roster::update(&dir, Fsync::Never, |roster| {
                    roster.member_mut("alice").unwrap().restarts += 1;
                })
                .unwrap();
            }
        }
        Job::AddTasks { times } => {
            let mut list = TaskList::of(&dir, Fsync::Always);
            for _ in 0..times {
                let made = list.change(|_, next| {
                    let text = format!(r#"{{"id":"{next}","subject":"task {next}"}}"#);
                    (vec![serde_json::from_str(&text).unwrap()], next)
                });
                println!("> {}", made.unwrap());
            }
        }
        Job::SendUntilRefused { to, bytes } => {
            let to = AgentName::mailbox(&to).unwrap();
            let stored = (0..).map(|n| {
                let line = line("bob", n, bytes);
                inbox::append(&dir, &to, line.as_bytes(), &policy(Fsync::Always))
            });
            let mut accepted = 0;
            for outcome in stored {
                match outcome {
                    Ok(()) => accepted += 1,
                    Err(why) => {
                        println!("> {accepted} {why}");
                        break;
                    }
                }
            }
        }
        Job::Wake { name } => {
            let mut mailbox = open(&dir, &name);
            drop(mailbox.drain().unwrap());
            println!("> {:?}", mailbox.wake_mode());
            let mut fds = [PollFd::new(mailbox.watch_fd(), PollFlags::POLLIN)];
            let woken = poll(&mut fds, 10_000_u16).unwrap();
            println!("> woken {woken}");
            mailbox.acknowledge_events().unwrap();
            println!("> {}", mailbox.drain().unwrap().mail.len());
        }
        Job::DrainOnce { name } => {
            let mut mailbox = open(&dir, &name);
            match mailbox.drain() {
                Ok(Drained { mail, .. }) => println!("> took in {}", mail.len()),
                Err(why) => println!("> refused {why}"),
            }
        }
        Job::Flood { to, from, count } => flood(&dir, &to, &from, count),
        Job::Steps { steps } => walk(&dir, &steps),
    }
    true
}

pub(crate) fn policy(fsync: Fsync) -> SendPolicy {
    SendPolicy { priority: Priority::Data, fsync, capacity: 64 << 20, lock_limit: LOCK_TIMEOUT }
}

/// Returns message `n` of a sender as a line. Its content follows from its id.
pub(crate) fn line(from: &str, n: u64, bytes: usize) -> String {
    let content = content(from, n, bytes);
    let id = format!("{from}:{n}");
    let message = serde_json::json!({
        "type": "message", "from": from, "content": content, "timestamp": 1.5, "id": id,
    });
    format!("{message}\n")
}

pub(crate) fn content(from: &str, n: u64, bytes: usize) -> String {
    let mut content = format!("{n} of {from} ");
    while content.len() < bytes {
        content.push_str("\u{fc}ber\n");
    }
    content
}

/// An open mailbox with the life lock of its owner.
pub(crate) struct Owner {
    mailbox: Mailbox,
    _life: LifeLock,
}

impl Deref for Owner {
    type Target = Mailbox;
    fn deref(&self) -> &Mailbox {
        &self.mailbox
    }
}

impl DerefMut for Owner {
    fn deref_mut(&mut self) -> &mut Mailbox {
        &mut self.mailbox
    }
}

pub(crate) fn open(dir: &TeamDir, name: &str) -> Owner {
    open_with(dir, name, Fsync::Always, Arc::new(SystemClock))
}

pub(crate) fn open_with(dir: &TeamDir, name: &str, fsync: Fsync, clock: SharedClock) -> Owner {
    let name = AgentName::mailbox(name).unwrap();
    let life = LifeLock::take(dir, &name, LifeRecord::of_this_process()).unwrap();
    let transcript = Transcript::open(dir, &name).unwrap();
    let policy = MailPolicy { fsync, max_content: 262_144 };
    let keyring = Arc::new(Keyring::new(dir.clone()));
    keyring.own(&name, fsync).unwrap();
    let mailbox = Mailbox::open(dir, &life, transcript, policy, clock, keyring).unwrap();
    Owner { mailbox, _life: life }
}

fn send(dir: &TeamDir, to: &str, from: &str, log: &Path, count: u64, fsync: bool) {
    let to = AgentName::mailbox(to).unwrap();
    let policy = policy(if fsync { Fsync::Always } else { Fsync::Never });
    let mut text = String::new();
    let mut log = OpenOptions::new().read(true).append(true).create(true).open(log).unwrap();
    log.read_to_string(&mut text).unwrap();
    let begun = text.lines().filter(|line| line.starts_with("sent ")).count();
    let acked = text.lines().filter(|line| line.starts_with("told ")).count();
    let mut note = |word: &str, n: u64| {
        log.write_all(format!("{word} {from} {to} {n}\n").as_bytes()).unwrap();
    };
    assert!(begun == acked || begun == acked + 1);
    for n in u64::try_from(acked).unwrap()..count {
        if n >= u64::try_from(begun).unwrap() {
            note("sent", n);
        }
        let bytes = if n % 50 == 49 { 20_000 } else { 20 };
        inbox::append(dir, &to, line(from, n, bytes).as_bytes(), &policy).unwrap();
        note("told", n);
    }
}

fn flood(dir: &TeamDir, to: &str, from: &str, count: u64) {
    let from = AgentName::member(from).unwrap();
    let limits = MailLimits { fsync: Fsync::Never, inbox_bytes: u64::MAX, ..MailLimits::default() };
    let bus = Bus::new(dir.clone(), limits, Arc::new(SystemClock));
    println!("> ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let mut longest = Duration::ZERO;
    for n in 0..count {
        let id = Some(format!("{from}:{n}"));
        let message = Outgoing { id, ..Outgoing::text(content(from.as_str(), n, 200)) };
        let begun = Instant::now();
        bus.send(&from, to, message).unwrap();
        longest = longest.max(begun.elapsed());
    }
    println!("> {}", longest.as_micros());
}

fn walk(dir: &TeamDir, steps: &str) {
    let mut owner = open(dir, "alice");
    let alice = AgentName::member("alice").unwrap();
    let mut sent = 0;
    for step in steps.chars() {
        match step {
            's' => {
                println!("> begin {sent}");
                let line = line("bob", sent, 20);
                inbox::append(dir, &alice, line.as_bytes(), &policy(Fsync::Always)).unwrap();
                println!("> ack {sent}");
                sent += 1;
            }
            'd' => {
                drop(owner.drain().unwrap());
                owner.mark_taken().unwrap();
            }
            'x' => {
                while let SettleResult::Again { after } = owner.settle().unwrap() {
                    std::thread::park_timeout(after);
                }
            }
            'm' => {}
            other => panic!("no step is called {other:?}"),
        }
    }
}

fn read(dir: &TeamDir, name: &str, settle: bool, fsync: bool) {
    let fsync = if fsync { Fsync::Always } else { Fsync::Never };
    let mut mailbox = open_with(dir, name, fsync, Arc::new(SystemClock));
    let mut done = false;
    loop {
        while !mailbox.drain().unwrap().is_empty() {}
        mailbox.mark_taken().unwrap();
        let settled = mailbox.settle().unwrap();
        if done && (!settle || settled == SettleResult::Done) {
            return;
        }
        let mut pause = Duration::from_secs(1);
        if let SettleResult::Again { after } = settled {
            pause = pause.min(after);
        }
        done |= wait(&mailbox, if done { Watch::Mail } else { Watch::MailAndStdin }, pause);
        mailbox.acknowledge_events().unwrap();
    }
}

#[derive(Clone, Copy)]
enum Watch {
    Mail,
    MailAndStdin,
}

/// Waits until mail may have arrived. Returns `true` if stdin was closed.
fn wait(mailbox: &Mailbox, watch: Watch, pause: Duration) -> bool {
    if mailbox.has_unread() {
        return false;
    }
    let stdin = std::io::stdin();
    let mut fds = vec![PollFd::new(mailbox.watch_fd(), PollFlags::POLLIN)];
    if let Watch::MailAndStdin = watch {
        fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
    }
    poll(&mut fds, PollTimeout::try_from(pause).unwrap()).unwrap();
    fds.get(1).is_some_and(|fd| fd.any() == Some(true))
}

fn live(dir: &TeamDir, name: &str) {
    let name = AgentName::mailbox(name).unwrap();
    let start = Instant::now();
    let incarnation = std::process::id().to_string();
    let record = LifeRecord { incarnation, ..LifeRecord::of_this_process() };
    match LifeLock::take(dir, &name, record) {
        Ok(lock) => {
            println!("> won");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            drop(lock);
        }
        Err(why) => println!("> lost in {} ms: {why}", start.elapsed().as_millis()),
    }
}

/// Creates a team folder that is removed with the test.
pub(crate) fn team() -> (tempfile::TempDir, TeamDir) {
    let folder = tempfile::tempdir().unwrap();
    let dir = TeamDir::create(&folder.path().join(".team")).unwrap();
    (folder, dir)
}

/// Writes a file without taking the program's locks.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    File::create(path).unwrap().write_all(bytes.as_ref()).unwrap();
}

/// Appends to a file as `echo >>` does.
pub(crate) fn append(path: &Path, bytes: impl AsRef<[u8]>) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(bytes.as_ref()).unwrap();
}
