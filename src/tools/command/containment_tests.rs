//! Tests of containment: no process that a command starts outlives the command, a fork bomb is killed, and a
//! command has its own environment and no input, and its endless output needs little memory.
//!
//! Some tests need an agent process that adopts orphans or can be killed. They start this test binary
//! again with [`agent_process`] as its only test.

use super::{Bash, OutputStore, command_setup};
use crate::os::event_loop::event_loop;
use crate::os::processes::{self, Process};
use crate::os::program::test_process;
use crate::os::skips::skipped;
use crate::os::wall::{WallPolicy, Walls};
use crate::os::{Signal, command, process_tree};
use crate::tools::call::ToolError;
use crate::wire::limits::COMMAND_PROCESSES;
use crate::wire::sandbox::SandboxNetwork;
use serde_json::json;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, RwLock};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

/// The environment variable with the folder of the agent process's task.
const TASK: &str = "TEAM_TEST_TASK";

/// The lock of the machine. Tests that need the machine for themselves take it for writing, the others for
/// reading.
static MACHINE: RwLock<()> = RwLock::new(());

/// The means by which the processes of a command are found, besides adoption by its supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Containment {
    /// A control group, where this machine permits one, and the run id.
    ControlGroup,
    /// Only the run id.
    RunId,
    /// A control group, and walls with namespaces around the command.
    Walls,
}

/// A workspace with two programs. `stay` ignores SIGTERM, creates the file `up` and never exits. `respawn`
/// replaces itself by a new process in an endless loop.
struct Fixture {
    folder: tempfile::TempDir,
    token: String,
    run_id: String,
    is_walled: bool,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Containment::ControlGroup)
    }

    fn with(containment: Containment) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = uuid::Uuid::now_v7().as_u128().to_string();
        let up = format!(": >{}/up", folder.path().display());
        let stay = format!("trap '' TERM HUP INT\n{up}\nexec sleep 300.{token}\n");
        let respawn = format!("{up}\n$1 sh ./respawn \"$1\" 300.{token} &\n");
        put(&folder.path().join("stay"), &stay);
        put(&folder.path().join("respawn"), &respawn);
        // A malformed run id gets no control group.
        let end = if containment == Containment::RunId { "-" } else { "" };
        let run_id = format!("{}{end}", uuid::Uuid::now_v7().simple());
        Self { folder, token, run_id, is_walled: containment == Containment::Walls }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the number of processes that are still running, at least 1 if there is any.
    fn survivors(&self) -> usize {
        let argument = format!("300.{}", self.token).into_bytes();
        let ours = |process: &&Process| {
            let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            line.windows(argument.len()).any(|part| part == argument)
        };
        let seen = processes::all().iter().filter(ours).count();
        // A scan can miss a process that keeps respawning, but each one inherits the lock of the first.
        seen + usize::from(is_locked(&self.path().join("lock")))
    }

    fn agent(&self, command: &str, timeout: u64) -> Command {
        let task = json!({"command": command, "timeout": timeout, "run_id": self.run_id, "is_walled": self.is_walled});
        put(&self.path().join("task"), &task.to_string());
        let mut agent = test_process("tools::command::containment_tests::agent_process");
        agent.env(TASK, self.path()).stdout(Stdio::null());
        agent
    }

    /// Runs an agent process to its end and returns the tool's answer.
    fn said_by(&self, agent: &mut Command) -> String {
        let end = agent.status().unwrap();
        assert!(end.success(), "{end}");
        fs::read_to_string(self.path().join("said")).unwrap()
    }

    fn agent_says(&self, command: &str, timeout: u64) -> String {
        self.said_by(&mut self.agent(command, timeout))
    }

    /// Starts an agent process, and returns it when its command has escaped in this way and still runs.
    fn agent_with_escaped(&self, way: &str) -> Child {
        let agent = self.agent(&escape(self, way, "sleep 300"), 60).spawn().unwrap();
        wait_until(&format!("{way} is up"), || {
            self.path().join("up").exists() && self.survivors() > 0
        });
        agent
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

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        park_timeout(Duration::from_millis(5));
    }
}

/// Returns the environment variable of this name, if it is set.
fn variable(wanted: &str) -> Option<(String, String)> {
    std::env::vars().find(|(name, _)| name == wanted)
}

/// Returns walls with all that this machine permits, around a workspace.
fn walls_of(folder: &Path) -> WallPolicy {
    WallPolicy {
        writable: vec![folder.to_owned()],
        hidden: vec!["/root/.ssh".into()],
        readable: Vec::new(),
        visible: Vec::new(),
        pinned: Vec::new(),
        protected: Vec::new(),
        network: SandboxNetwork::Open,
        hosts: Vec::new(),
        has_namespaces: true,
        lacks_landlock: false,
        allows_holes: false,
        landlock_cap: None,
    }
}

/// The containments that can be tried here. Walls need namespaces.
fn containments() -> &'static [Containment] {
    let all = &[Containment::ControlGroup, Containment::RunId, Containment::Walls];
    let said = run(&Fixture::with(Containment::Walls), "echo up", 60);
    if said == "up\n" {
        return all;
    }
    skipped(&format!("no walls: {said}"));
    BOTH
}

async fn bash(
    folder: &Path,
    run_id: &str,
    is_walled: bool,
    command: &str,
    timeout: u64,
) -> Result<String, ToolError> {
    let walls = is_walled.then(|| Arc::new(Walls::new(walls_of(folder), run_id).unwrap()));
    let setup = command_setup(variable("PATH").into_iter().collect(), run_id.to_owned(), walls);
    let output_store =
        OutputStore::below(folder.ancestors().find(|folder| folder.is_dir()).unwrap());
    let bash = Bash { command: command.into(), timeout: Some(timeout), outside: None, hosts: None };
    bash.run_in(folder, &setup, &output_store).await
}

fn block_on<R>(task: impl Future<Output = R>) -> R {
    event_loop().unwrap().block_on(task)
}

fn run(fixture: &Fixture, command: &str, timeout: u64) -> String {
    block_on(bash(fixture.path(), &fixture.run_id, fixture.is_walled, command, timeout)).unwrap()
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
    let timeout = task["timeout"].as_u64().unwrap();
    let is_walled = task["is_walled"] == true;
    let said = block_on(bash(folder, word("run_id"), is_walled, word("command"), timeout)).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    put(&folder.join("said"), &format!("{said}\n{peak}"));
}

/// Ways to leave the command's process group or session; `STAY` stands for the program `stay`.
const ESCAPES: &[&str] = &[
    "STAY &",
    "STAY >/dev/null 2>&1 </dev/null & disown",
    "nohup STAY &",
    "setsid STAY &",
    "( ( STAY & ) & )",
    "setsid sh -c '(STAY &)' </dev/null >/dev/null 2>&1 &",
    "STAY <&- >&- 2>&- &",
    "trap '' TERM HUP; STAY &",
    // daemon(3): a new session, twice forked, no descriptors, another folder.
    "(setsid sh -c 'cd /; (STAY &)' <&- >&- 2>&- &)",
    "(exec -a '[kworker/0:1]' STAY) &",
    "STAY & until grep -qs sleep /proc/$!/comm; do sleep 0.01; done; kill -STOP $!",
];

/// Ways to respawn faster than a scan of the process table.
const RESPAWNING: &[&str] = &["sh ./respawn ''", "setsid sh ./respawn ''"];

/// A way to respawn in a new process group each time.
const FASTEST: &[&str] = &["env -i setsid sh ./respawn 'setsid --fork'"];

/// Ways that also remove the run id from the environment.
const UNMARKED: &[&str] = &[
    "env -i PATH=\"$PATH\" setsid STAY &",
    "env -u TEAM_RUN setsid STAY &",
    "TEAM_RUN=another setsid STAY &",
    "(unset TEAM_RUN; setsid bash -c 'cd /; (exec -a cron STAY &)' <&- >&- 2>&- &)",
];

/// Returns a command that escapes in this way and then runs `then`. What has escaped holds a lock.
fn escape(fixture: &Fixture, way: &str, then: &str) -> String {
    let stay = format!("sh {}/stay", fixture.path().display());
    let way = way.replace("STAY", &stay);
    let up = "until [ -e up ]; do sleep 0.01; done";
    format!("exec 9>>lock; flock 9\n{way}\nexec 9>&-\n{up}\n{then}")
}

/// The number of checks that run at once. They mostly wait, but some of their processes fork without a pause: too many
/// of them keep a supervisor from ending its command within its time limit.
const AT_ONCE: usize = 8;

/// Checks each way with each containment, several at once. No process may be left afterwards.
fn each_of(ways: &[&[&str]], containments: &[Containment], check: impl Fn(&Fixture, &str) + Sync) {
    let _shared = MACHINE.read();
    let ways: Vec<&str> = ways.iter().copied().flatten().copied().collect();
    for containment in containments {
        for ways in ways.chunks(AT_ONCE) {
            std::thread::scope(|threads| {
                for way in ways {
                    let check = &check;
                    threads.spawn(move || {
                        let fixture = Fixture::with(*containment);
                        check(&fixture, way);
                        assert_eq!(fixture.survivors(), 0, "{way} with {containment:?}");
                    });
                }
            });
        }
    }
}

const BOTH: &[Containment] = &[Containment::ControlGroup, Containment::RunId];

fn each_way(check: impl Fn(&Fixture, &str) + Sync) {
    each_of(&[ESCAPES, UNMARKED, RESPAWNING], containments(), check);
}

#[test]
fn nothing_outlives_the_shell() {
    each_way(|fixture, way| {
        let began = Instant::now();
        assert_eq!(run(fixture, &escape(fixture, way, "echo done"), 60), "done\n", "{way}");
        assert!(began.elapsed() < Duration::from_secs(60), "{way} took {:?}", began.elapsed());
    });
}

#[test]
fn nothing_outlives_the_timeout() {
    each_way(|fixture, way| {
        let said = run(fixture, &escape(fixture, way, "sleep 300"), 2);
        assert_eq!(said, "[timed out after 2 s; everything it started was ended]", "{way}");
    });
}

/// If a command kills its supervisor with SIGKILL, the agent adopts the orphans and finds them even
/// without their run id.
#[test]
fn nothing_outlives_a_killed_supervisor() {
    // Behind walls a command cannot signal its supervisor.
    each_of(&[ESCAPES, UNMARKED, RESPAWNING], BOTH, |fixture, way| {
        let said = fixture.agent_says(&escape(fixture, way, "kill -9 $PPID; sleep 300"), 60);
        assert!(said.starts_with("[ended by signal 9]"), "{way}: {said}");
    });
}

#[test]
fn the_agent_takes_over_from_a_stopped_supervisor() {
    each_of(&[&["setsid STAY &"], UNMARKED], BOTH, |fixture, way| {
        let said = fixture.agent_says(&escape(fixture, way, "kill -STOP $PPID; sleep 300"), 1);
        assert!(said.starts_with("[timed out after 1 s"), "{said}");
    });
}

#[test]
fn a_supervisor_ignores_signals_of_its_command() {
    let command =
        "for signal in TERM INT HUP QUIT USR1 PIPE ALRM; do kill -$signal $PPID; done; echo on";
    assert_eq!(run(&Fixture::new(), command, 60), "on\n");
}

#[test]
fn nothing_outlives_an_interrupted_call() {
    each_way(|fixture, way| {
        block_on(async {
            let command = escape(fixture, way, "sleep 300");
            let call = bash(fixture.path(), &fixture.run_id, fixture.is_walled, &command, 60);
            let up = async {
                while !fixture.path().join("up").exists() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                said = call => panic!("{way} ended: {said:?}"),
                () = up => {}
            }
        });
        // This also waits for the commands of concurrent checks.
        assert!(command::settle(Duration::from_secs(60)));
    });
}

fn kill(mut agent: Child) {
    agent.kill().unwrap();
    agent.wait().unwrap();
}

#[test]
fn nothing_outlives_a_killed_agent() {
    each_way(|fixture, way| {
        kill(fixture.agent_with_escaped(way));
        wait_until("no process is left", || fixture.survivors() == 0);
    });
}

/// The cleanup after a dead agent waits for the supervisor, which alone can find unmarked processes.
#[test]
fn cleanup_waits_for_the_supervisor() {
    each_of(&[ESCAPES, UNMARKED], &[Containment::RunId], |fixture, way| {
        kill(fixture.agent_with_escaped(way));
        wait_until("the run has ended", || {
            process_tree::end_run(&fixture.run_id, |_| true).is_empty()
        });
    });
}

/// Kills an agent and the supervisor of its command. Only run id and control group identify the command's
/// processes after that.
fn killed_with_its_supervisor(fixture: &Fixture, way: &str) {
    let agent = fixture.agent_with_escaped(way);
    let pid = i32::try_from(agent.id()).unwrap();
    Process::read(pid).unwrap().signal(Signal::SIGSTOP);
    let is_supervisor = |it: &&Process| it.parent == pid && it.is_named(c"teammate-guard");
    let mut killed = 0;
    wait_until("its supervisor is killed", || {
        let all = processes::all();
        killed += all.iter().filter(is_supervisor).map(|it| it.signal(Signal::SIGKILL)).count();
        killed > 0
    });
    kill(agent);
    assert!(fixture.survivors() > 0, "{way} exited by itself");
    wait_until("the run has ended", || process_tree::end_run(&fixture.run_id, |_| true).is_empty());
    // A killed process loses its environment, by which it is found, before it is gone.
    wait_until("no process is left", || fixture.survivors() == 0);
}

/// The next start kills every process with the run id of a dead agent.
#[test]
fn marked_processes_do_not_outlive_agent_and_supervisor() {
    each_of(&[ESCAPES], &[Containment::RunId], killed_with_its_supervisor);
}

/// With control groups, the next start also kills unmarked and respawning processes. Without them, these
/// processes are the one known gap.
#[test]
fn with_control_groups_nothing_outlives_agent_and_supervisor() {
    if has_control_groups() {
        let ways = [ESCAPES, UNMARKED, RESPAWNING, FASTEST];
        each_of(&ways, &[Containment::ControlGroup], killed_with_its_supervisor);
    }
}

fn has_control_groups() -> bool {
    let fixture = Fixture::new();
    let said = run(&fixture, "grep ^0:: /proc/self/cgroup", 60);
    let has = said.contains(&fixture.run_id);
    if !has {
        skipped(&format!("no cgroup v2 that may be written: {said}"));
    }
    has
}

/// A control group is removed with its command, by the supervisor or by the agent.
#[test]
fn no_control_group_is_left() {
    if !has_control_groups() {
        return;
    }
    let groups = |fixture: &Fixture| {
        let mut find = Command::new("find");
        find.args(["/sys/fs/cgroup", "-name", &format!("team-{}.*", fixture.run_id)]);
        let found = find.output().unwrap();
        String::from_utf8(found.stdout).unwrap()
    };
    let fixture = Fixture::new();
    run(&fixture, "setsid sleep 300 & true", 60);
    assert_eq!(groups(&fixture), "");
    fixture.agent_says("setsid sleep 300 & kill -9 $PPID; sleep 300", 60);
    assert_eq!(groups(&fixture), "");
    // A group that a command created within its own is removed too.
    let nested = "cd /sys/fs/cgroup*/$(sed -n s/^0::.//p /proc/self/cgroup) 2>/dev/null ||
        cd /sys/fs/cgroup/unified/$(sed -n s/^0::.//p /proc/self/cgroup)
        mkdir -p inner/most && echo 0 > inner/most/cgroup.procs; setsid sleep 300 & pwd";
    let said = run(&fixture, nested, 60);
    assert!(said.contains(&fixture.run_id), "{said}");
    assert_eq!(groups(&fixture), "");
}

/// The number of processes that the kernel permits, in case the limit under test fails.
const KERNEL_LIMIT: usize = 3 * COMMAND_PROCESSES;

const TOO_MANY: &str = "[more than 512 processes at once: all were ended]\n[ended by signal 9]";

/// Returns the tool's answer in an agent process under a kernel limit of processes. The kernel exempts root from
/// the limit, so root switches to an otherwise unused user.
fn says_within_limit(fixture: &Fixture, command: &str) -> String {
    let agent = fixture.agent(command, 60);
    let mut limited = Command::new("bash");
    let am_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let running = if am_root { 0 } else { processes::all().len() };
    let limit = format!("ulimit -u {}; exec \"$0\" \"$@\"", KERNEL_LIMIT + running);
    limited.args(["-c", &limit]).arg(agent.get_program()).args(agent.get_args());
    limited.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if am_root {
        let user = 60_000 + std::process::id() % 5000;
        chown(fixture.path(), Some(user), Some(user)).unwrap();
        limited.uid(user).gid(user);
    }
    fixture.said_by(limited.stdout(Stdio::null()))
}

/// One bomb forks in one process group, the other in new sessions.
#[test]
fn a_fork_bomb_is_ended() {
    let _exclusive = MACHINE.write();
    for bomb in [":(){ :|:& };:", "b() { b & setsid bash -c \"$(declare -f b); b\" & }; b"] {
        for containment in BOTH {
            let fixture = Fixture::with(*containment);
            let began = Instant::now();
            let said = says_within_limit(&fixture, &format!("{bomb}; sleep 300.{}", fixture.token));
            let took = began.elapsed();
            assert!(said.contains(TOO_MANY), "{bomb} with {containment:?}: {said}");
            assert!(took < Duration::from_secs(60), "{bomb} with {containment:?} took {took:?}");
            assert_eq!(fixture.survivors(), 0, "{bomb} with {containment:?}");
        }
    }
}

#[test]
fn only_more_processes_than_the_limit_are_killed() {
    let _exclusive = MACHINE.write();
    for (count, seconds, end) in
        [(COMMAND_PROCESSES - 100, 4, "done\n"), (COMMAND_PROCESSES + 100, 300, TOO_MANY)]
    {
        let fixture = Fixture::new();
        let sleep = format!("sleep 300.{}", fixture.token);
        let command =
            format!("for i in $(seq {count}); do {sleep} & done; sleep {seconds}; echo done");
        let said = run(&fixture, &command, 60);
        assert!(said.ends_with(end), "{count}: {said}");
    }
}

#[test]
fn much_output_needs_little_memory() {
    for command in [
        "yes | head -c 100M",
        "head -c 100M /dev/urandom",
        "head -c 100M /dev/zero | tr '\\0' '\\377'",
        "yes | head -c 50M >&2 & yes | head -c 50M; wait",
    ] {
        let fixture = Fixture::new();
        let said = fixture.agent_says(command, 600);
        assert!(said.contains("characters cut here") && !said.contains("timed out"), "{command}");
        let (_, peak) = said.rsplit_once("VmHWM:").unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak < 64 * 1024, "{command}: {peak} kB");
    }
}

#[test]
fn there_is_no_input_and_no_terminal() {
    let fixture = Fixture::new();
    assert_eq!(run(&fixture, "cat; echo $?", 60), "0\n");
    let said = run(&fixture, "read -r line </dev/tty", 60);
    assert!(said.contains("/dev/tty") && said.ends_with("[exit code 1]"), "{said}");
}

#[test]
fn exit_codes_and_signals_are_reported() {
    let fixture = Fixture::new();
    let cases = [
        ("true", "(no output)"),
        ("echo out; echo err >&2; echo out", "out\nerr\nout\n"),
        ("printf x; exit 3", "x\n[exit code 3]"),
        ("kill -9 $$", "[ended by signal 9]"),
        ("kill -TERM $$", "[ended by signal 15]"),
        ("exit 255", "[exit code 255]"),
        ("exec >&- 2>&-; sleep 0.1; exit 4", "[exit code 4]"),
        ("printf '\\377\\033[31mred'", "\u{fffd}\u{1b}[31mred"),
        ("-x", "bash: line 1: -x: command not found\n[exit code 127]"),
    ];
    for (command, expected) in cases {
        assert_eq!(run(&fixture, command, 60), expected, "{command}");
    }
}

#[test]
fn commands_start_with_a_clean_environment() {
    let fixture = Fixture::new();
    let folder = fixture.path().canonicalize().unwrap();
    let names = format!("PATH PWD SHLVL TEAM_RUN TERM _ {}\n", folder.display());
    for (command, expected) in [
        ("env | cut -d= -f1 | sort | tr '\\n' ' '; pwd -P", &*names),
        (
            "grep -E '^Sig(Blk|Ign)' /proc/self/status; cat /proc/self/oom_score_adj",
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n500\n",
        ),
        ("ulimit -c; ls /proc/self/fd | tr '\\n' ' '", "0\n0 1 2 3 "),
    ] {
        assert_eq!(run(&fixture, command, 60), expected, "{command}");
    }
}

#[test]
fn sh_replaces_a_missing_bash() {
    let fixture = Fixture::new();
    std::os::unix::fs::symlink("/bin/sh", fixture.path().join("sh")).unwrap();
    let path = vec![("PATH".into(), fixture.path().display().to_string())];
    let setup = command_setup(path, uuid::Uuid::now_v7().to_string(), None);
    let bash = Bash { command: "echo $0".into(), timeout: None, outside: None, hosts: None };
    let output_store = OutputStore::below(fixture.path());
    assert_eq!(block_on(bash.run_in(fixture.path(), &setup, &output_store)).unwrap(), "sh\n");
}

#[test]
fn an_invalid_call_says_what_to_do() {
    let fixture = Fixture::new();
    let (folder, missing) = (fixture.path(), fixture.path().join("gone"));
    let long = format!("true {}", "x".repeat(131_071));
    for (folder, command, timeout, says) in [
        (folder, " ", 60, "give the command"),
        (folder, "a\0b", 60, "NUL"),
        (folder, long.as_str(), 60, "write_file"),
        (folder, "true", 0, "from 1 to 3600"),
        (folder, "true", 120_000, "timeout is in seconds"),
        (missing.as_path(), "true", 60, "could not be run"),
    ] {
        let why = block_on(bash(folder, &fixture.run_id, false, command, timeout)).unwrap_err();
        assert!(matches!(&why, ToolError::Reply(text) if text.contains(says)), "{why}");
    }
    let longest = format!("true {}", "x".repeat(131_066));
    assert_eq!(run(&fixture, &longest, 60), "(no output)");
}
