//! A workspace, an agent process and its containment, for the tests of containment and of the start of walls.
//!
//! Some tests need an agent process that adopts orphans or can be killed. They start this test binary again with
//! [`agent_process`] as its only test.

use super::{Bash, OutputStore, command_setup};
use crate::os::deadline::lengthen_to;
use crate::os::event_loop::event_loop;
use crate::os::processes::{self, Process};
use crate::os::program::{COMMAND_SUPERVISOR_NAME, test_process};
use crate::os::skips::skipped;
use crate::os::wall::{WallPolicy, Walls};
use crate::os::{Signal, process_tree};
use crate::tools::call::ToolError;
use crate::wire::sandbox::SandboxNetwork;
use serde_json::json;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::park_timeout;
use std::time::{Duration, Instant};

/// The environment variable with the folder of the agent process's task.
const TASK: &str = "TEAM_TEST_TASK";

/// The time within which a killed supervisor must have exited.
const KILLED_WITHIN: Duration = Duration::from_secs(60);

/// The folder of the workspace that commands may change at every level.
const WRITABLE: &str = "writable";

/// The walls around a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandWalls {
    Unwalled,
    /// Namespaces, Landlock and seccomp.
    Namespaces,
    /// Landlock and seccomp.
    Rules,
    /// All of them, as at the level `read-only`: the workspace itself is not writable.
    ReadOnly,
}

/// The means by which the processes of a command are found, besides adoption by its supervisor, and its walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Containment {
    /// Whether it has a control group, where this machine permits one. It always has the run id.
    pub(super) has_group: bool,
    pub(super) walls: CommandWalls,
}

impl CommandWalls {
    const ALL: [Self; 4] = [Self::Unwalled, Self::Namespaces, Self::Rules, Self::ReadOnly];

    fn of_word(word: &str) -> Self {
        Self::ALL.into_iter().find(|walls| format!("{walls:?}") == word).unwrap()
    }

    pub(super) fn are_up(self) -> bool {
        self != Self::Unwalled
    }

    fn have_namespaces(self) -> bool {
        matches!(self, Self::Namespaces | Self::ReadOnly)
    }

    /// Returns the policy for commands in a workspace.
    fn policy(self, folder: &Path) -> WallPolicy {
        let (writable, visible) = match self {
            Self::Unwalled | Self::Namespaces | Self::Rules => (folder.to_owned(), Vec::new()),
            Self::ReadOnly => (folder.join(WRITABLE), vec![folder.to_owned()]),
        };
        WallPolicy {
            writable: vec![writable],
            hidden: vec!["/root/.ssh".into()],
            readable: Vec::new(),
            visible,
            pinned: Vec::new(),
            protected: Vec::new(),
            network: SandboxNetwork::Open,
            hosts: Vec::new(),
            has_namespaces: self.have_namespaces(),
            lacks_landlock: false,
            allows_holes: false,
            landlock_cap: None,
        }
    }
}

impl Containment {
    pub(super) const UNWALLED: Self = Self { has_group: true, walls: CommandWalls::Unwalled };
}

/// Whether a command gets a control group here. The error is the group that it has instead.
pub(super) fn control_group() -> Result<(), String> {
    let fixture = Fixture::new();
    let said = run(&fixture, "grep ^0:: /proc/self/cgroup", 60);
    if said.contains(&fixture.run_id) { Ok(()) } else { Err(said) }
}

/// The containments that can be tried here: commands without walls with each of these means, and each kind of walls with
/// one of them in turn.
pub(super) fn containments(means: &[bool]) -> Vec<Containment> {
    // Without groups, all means are the run id alone.
    let is_one = means.len() > 1 && control_group().is_err();
    let means = if is_one { &means[..1] } else { means };
    let with = |walls, has_group: &bool| Containment { has_group: *has_group, walls };
    let mut all: Vec<Containment> =
        means.iter().map(|means| with(CommandWalls::Unwalled, means)).collect();
    let walled = walls_here().into_iter().filter(|walls| walls.are_up());
    all.extend(walled.zip(means.iter().cycle()).map(|(walls, means)| with(walls, means)));
    all
}

/// The walls that this machine permits.
fn walls_here() -> Vec<CommandWalls> {
    let is_there = |walls: &CommandWalls| {
        let said =
            run(&Fixture::with(Containment { has_group: true, walls: *walls }), "echo up", 60);
        if said != "up\n" {
            skipped(&format!("no walls {walls:?}: {said}"));
        }
        said == "up\n"
    };
    CommandWalls::ALL.into_iter().filter(is_there).collect()
}

/// The evidence of walls that a process of a command shows.
#[derive(Debug, PartialEq, Eq)]
struct Evidence {
    /// The fields `NoNewPrivs` and `Seccomp` of its status.
    flags: Vec<String>,
    /// Its mount and IPC namespaces.
    namespaces: Vec<String>,
}

impl Evidence {
    /// Reads the evidence in the status of a process, followed by the links to its namespaces.
    fn read(text: &str) -> Self {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let flags = ["NoNewPrivs:", "Seccomp:"].map(|name| field(name).unwrap().trim().to_owned());
        let is_namespace = |line: &&str| line.starts_with("mnt:[") || line.starts_with("ipc:[");
        let namespaces = text.lines().filter(is_namespace).map(ToOwned::to_owned).collect();
        Self { flags: flags.into(), namespaces }
    }

    fn of_this_process() -> Self {
        let mut text = fs::read_to_string("/proc/self/status").unwrap();
        for name in ["mnt", "ipc"] {
            let link = fs::read_link(Path::new("/proc/self/ns").join(name)).unwrap();
            text.extend([&*link.to_string_lossy(), "\n"]);
        }
        Self::read(&text)
    }
}

/// The shell commands by which a process of a command prints its [`Evidence`].
pub(super) const SHOW_EVIDENCE: &str =
    "cat /proc/self/status; readlink /proc/self/ns/mnt /proc/self/ns/ipc";

/// A workspace with two programs. `stay` ignores SIGTERM, creates the file `up` and never exits. `respawn`
/// replaces itself by a new process in an endless loop. Both first write their [`Evidence`].
pub(super) struct Fixture {
    folder: tempfile::TempDir,
    pub(super) token: String,
    pub(super) run_id: String,
    pub(super) containment: Containment,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with(Containment::UNWALLED)
    }

    pub(super) fn with(containment: Containment) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = uuid::Uuid::now_v7().as_u128().to_string();
        let writable = folder.path().join(WRITABLE);
        fs::create_dir(&writable).unwrap();
        let place = writable.display();
        let evidence = format!("{{ {SHOW_EVIDENCE}; }} >{place}/evidence");
        let up = format!(": >{place}/up");
        let stay = format!("trap '' TERM HUP INT\n{evidence}\n{up}\nexec sleep 300.{token}\n");
        // A run of tests that is killed as a whole leaves no storm of processes.
        let test = std::process::id();
        let respawn = format!(
            "[ -d /proc/{test} ] || exit\n[ -e {place}/up ] || {evidence}\n{up}\n$1 sh ./respawn \"$1\" 300.{token} &\n"
        );
        put(&folder.path().join("stay"), &stay);
        put(&folder.path().join("respawn"), &respawn);
        // A malformed run id gets no control group.
        let end = if containment.has_group { "" } else { "-" };
        let run_id = format!("{}{end}", uuid::Uuid::now_v7().simple());
        Self { folder, token, run_id, containment }
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of a file that commands may write at every level.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path().join(WRITABLE).join(name)
    }

    /// Returns the number of processes that are still running, at least 1 if there is any.
    pub(super) fn survivors(&self) -> usize {
        let argument = format!("300.{}", self.token).into_bytes();
        let ours = |process: &&Process| {
            let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            line.windows(argument.len()).any(|part| part == argument)
        };
        let seen = processes::all().iter().filter(ours).count();
        // A scan can miss a process that keeps respawning, but each one inherits the lock of the first.
        seen + usize::from(is_locked(&self.file("lock")))
    }

    /// Asserts that the escaped process had the walls of this containment, and no others.
    #[track_caller]
    pub(super) fn assert_walled(&self) {
        self.assert_evidence(&fs::read_to_string(self.file("evidence")).unwrap());
    }

    #[track_caller]
    fn assert_evidence(&self, text: &str) {
        let (shown, ours) = (Evidence::read(text), Evidence::of_this_process());
        let walls = self.containment.walls;
        if walls.are_up() {
            assert_eq!(shown.flags, ["1", "2"], "{walls:?}: {text}");
        } else {
            assert_eq!(shown, ours, "{walls:?}");
        }
        assert_eq!(shown.namespaces.len(), 2, "{walls:?}: {text}");
        for (shown, ours) in shown.namespaces.iter().zip(&ours.namespaces) {
            assert_eq!(shown != ours, walls.have_namespaces(), "{walls:?}: {shown} and {ours}");
        }
    }

    /// Asserts that a command which does nothing else has the walls of this containment.
    #[track_caller]
    pub(super) fn assert_walls_stand(&self) {
        self.assert_evidence(&run(self, SHOW_EVIDENCE, 60));
    }

    pub(super) fn agent(&self, command: &str, timeout: u64) -> Command {
        let walls = format!("{:?}", self.containment.walls);
        let task =
            json!({"command": command, "timeout": timeout, "run_id": self.run_id, "walls": walls});
        put(&self.path().join("task"), &task.to_string());
        let mut agent = test_process("tools::command::contained_agent::agent_process");
        agent.env(TASK, self.path()).stdout(Stdio::null());
        agent
    }

    /// Waits for the end of an agent process and returns the tool's answer.
    pub(super) fn said_by(&self, mut agent: Child) -> String {
        let end = agent.wait().unwrap();
        assert!(end.success(), "{end}");
        fs::read_to_string(self.path().join("said")).unwrap()
    }

    pub(super) fn agent_says(&self, command: &str, timeout: u64) -> String {
        self.said_by(self.agent(command, timeout).spawn().unwrap())
    }

    /// Starts an agent process, and returns it when its command has escaped in this way and still runs. Returns `None` if
    /// its time limit came first.
    pub(super) fn try_agent_with_escaped(&self, way: &str, timeout: u64) -> Option<Child> {
        let mut agent = self.agent(&escape(self, way, "sleep 300"), timeout).spawn().unwrap();
        let mut has_ended = false;
        wait_until(&format!("{way} is up"), || {
            has_ended = agent.try_wait().unwrap().is_some();
            has_ended || (self.file("up").exists() && self.survivors() > 0)
        });
        (!has_ended).then_some(agent)
    }

    pub(super) fn agent_with_escaped(&self, way: &str) -> Child {
        self.try_agent_with_escaped(way, 60).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || self.survivors() == 0);
        // An agent that was killed leaves its temporary folder to the next one.
        let left = std::env::temp_dir().join(format!("team-{}", self.run_id));
        fs::remove_dir_all(left).unwrap_or_default();
    }
}

/// Returns a command that escapes in this way and then runs `then`. What has escaped holds a lock.
pub(super) fn escape(fixture: &Fixture, way: &str, then: &str) -> String {
    let stay = format!("sh {}/stay", fixture.path().display());
    let (way, up) = (way.replace("STAY", &stay), fixture.file("up"));
    let (up, lock) = (up.display(), fixture.file("lock"));
    let up = format!("until [ -e {up} ]; do sleep 0.01; done");
    format!("exec 9>>{}; flock 9\n{way}\nexec 9>&-\n{up}\n{then}", lock.display())
}

/// Sends a signal to the supervisor of the command of an agent process, from outside, unless that one ends before.
pub(super) fn signal_supervisor(agent: i32, signal: Signal) {
    let is_supervisor = |it: &&Process| it.parent == agent && it.is_named(COMMAND_SUPERVISOR_NAME);
    let mut sent = 0;
    wait_until("its supervisor is signalled", || {
        let all = processes::all();
        sent += all.iter().filter(is_supervisor).map(|it| it.signal(signal)).count();
        sent > 0 || !Process::read(agent).is_some_and(|it| it.can_run())
    });
}

/// Stops a process, and waits until each of its threads has stopped: one of them takes the signal, and the others run
/// until it does.
pub(super) fn stop(process: &Process) {
    process.signal(Signal::SIGSTOP);
    let threads = format!("/proc/{}/task", process.pid);
    wait_until("all its threads have stopped", || {
        fs::read_dir(&threads).unwrap().all(|thread| {
            let status = fs::read_to_string(thread.unwrap().path().join("status"));
            // A traced one is in a stop of its own.
            status.is_ok_and(|status| {
                ["T ", "t "].iter().any(|state| status.contains(&format!("\nState:\t{state}")))
            })
        })
    });
}

#[expect(clippy::disallowed_methods, reason = "a test makes its own files")]
fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

/// Whether a process holds this lock of [`escape`].
#[expect(clippy::disallowed_methods, reason = "a lock of the test's own")]
fn is_locked(lock: &Path) -> bool {
    let Ok(lock) = File::open(lock) else { return false };
    let is_locked = matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
    // A child that a concurrent test is just starting has a copy of the file, which would stay locked.
    lock.unlock().unwrap();
    is_locked
}

pub(super) fn pause(time: Duration) {
    park_timeout(time);
}

pub(super) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    // Long: on a busy machine, processes that fork and exit in a loop take more than a minute to be killed.
    let deadline = Instant::now() + Duration::from_secs(240);
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        pause(Duration::from_millis(5));
    }
}

/// Returns the environment variable of this name, if it is set.
fn variable(wanted: &str) -> Option<(String, String)> {
    std::env::vars().find(|(name, _)| name == wanted)
}

pub(super) async fn bash(
    folder: &Path,
    run_id: &str,
    walls: CommandWalls,
    command: &str,
    timeout: u64,
) -> Result<String, ToolError> {
    // Among fork bombs a killed supervisor may wait long for a processor on which it exits.
    lengthen_to(KILLED_WITHIN);
    let walls = walls.are_up().then(|| Arc::new(Walls::new(walls.policy(folder), run_id).unwrap()));
    let setup = command_setup(variable("PATH").into_iter().collect(), run_id.to_owned(), walls);
    let output_store =
        OutputStore::below(folder.ancestors().find(|folder| folder.is_dir()).unwrap());
    let bash = Bash {
        command: command.into(),
        timeout: Some(timeout),
        background: None,
        outside: None,
        hosts: None,
    };
    bash.run_in(folder, &setup, &output_store).await
}

pub(super) fn block_on<R>(task: impl Future<Output = R>) -> R {
    event_loop().unwrap().block_on(task)
}

pub(super) fn run(fixture: &Fixture, command: &str, timeout: u64) -> String {
    let walls = fixture.containment.walls;
    block_on(bash(fixture.path(), &fixture.run_id, walls, command, timeout)).unwrap()
}

/// Not a test by itself: the agent process of [`Fixture::agent`].
#[test]
fn agent_process() {
    let Some((_, folder)) = variable(TASK) else { return };
    let folder = Path::new(&folder);
    process_tree::become_subreaper().unwrap();
    let task = fs::read_to_string(folder.join("task")).unwrap();
    let task: serde_json::Value = serde_json::from_str(&task).unwrap();
    let word = |name: &str| task[name].as_str().unwrap();
    let (walls, timeout) =
        (CommandWalls::of_word(word("walls")), task["timeout"].as_u64().unwrap());
    let said = block_on(bash(folder, word("run_id"), walls, word("command"), timeout)).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    put(&folder.join("said"), &format!("{said}\n{peak}"));
}
