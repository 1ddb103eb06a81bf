//! Tests that nothing a command starts outlives it, whatever it tries, with real processes.
//!
//! Some of them need an agent that can be killed or adopts orphans. Then this test binary starts itself
//! again, with only [`be_an_agent`] to run.

use super::bash::Bash;
use super::environment::CommandEnvironment;
use super::{Call, Tool, ToolError};
use crate::os::{command, descendants};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

/// Tells the second copy of this binary where its task lies.
const TASK: &str = "TEAM_TEST_TASK";

/// A workspace whose `stay` ignores SIGTERM, says that it is there, and never ends by itself.
struct Scene {
    folder: tempfile::TempDir,
    token: String,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = uuid::Uuid::now_v7().as_u128().to_string();
        let stay = format!("trap '' TERM HUP INT\n: >up\nexec sleep 300.{token}\n");
        put(&folder.path().join("stay"), &stay);
        Self { folder, token }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// How many processes of this scene live.
    fn survivors(&self) -> usize {
        let argument = format!("300.{}", self.token).into_bytes();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.filter(|line| line.windows(argument.len()).any(|part| part == argument)).count()
    }

    /// Starts an agent in a process of its own that runs this command.
    fn agent(&self, command: &str, timeout: u64) -> Child {
        put(
            &self.path().join("task"),
            &json!({"command": command, "timeout": timeout}).to_string(),
        );
        let mut agent = Command::new(std::env::current_exe().unwrap());
        agent.args(["--exact", "tools::containment::be_an_agent", "--test-threads=1"]);
        agent.env(TASK, self.path()).stdout(Stdio::null()).spawn().unwrap()
    }

    /// The same, to its end: what the tool said.
    fn agent_says(&self, command: &str, timeout: u64) -> String {
        let end = self.agent(command, timeout).wait().unwrap();
        assert!(end.success(), "{end}");
        fs::read_to_string(self.path().join("said")).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || self.survivors() == 0);
    }
}

#[expect(clippy::disallowed_methods, reason = "a test makes its own files")]
fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        park_timeout(Duration::from_millis(5));
    }
}

async fn bash(folder: PathBuf, command: &str, timeout: u64) -> Result<String, ToolError> {
    let path = std::env::vars().find(|(name, _)| name == "PATH");
    let mark = uuid::Uuid::now_v7().simple().to_string();
    let bash = Bash::new(folder, CommandEnvironment::new(path.into_iter().collect(), mark));
    let input = json!({"command": command, "timeout": timeout});
    bash.call(&Call { id: "1".into(), name: "bash".into(), input }).await
}

fn block_on<R>(task: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
}

fn run(scene: &Scene, command: &str, timeout: u64) -> String {
    block_on(bash(scene.path().to_owned(), command, timeout)).unwrap()
}

/// Not a test by itself: the agent of [`Scene::agent`].
#[test]
fn be_an_agent() {
    let Some((_, folder)) = std::env::vars().find(|(name, _)| name == TASK) else { return };
    let folder = PathBuf::from(folder);
    descendants::become_subreaper().unwrap();
    let task = fs::read_to_string(folder.join("task")).unwrap();
    let task: serde_json::Value = serde_json::from_str(&task).unwrap();
    let (command, timeout) = (task["command"].as_str().unwrap(), task["timeout"].as_u64().unwrap());
    let said = block_on(bash(folder.clone(), command, timeout)).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    put(&folder.join("said"), &format!("{said}\n{peak}"));
}

/// Ways to get away, each with `stay` in place of `STAY`.
const ESCAPES: &[&str] = &[
    "STAY &",
    "STAY >/dev/null 2>&1 </dev/null & disown",
    "nohup STAY &",
    "setsid STAY &",
    "( ( STAY & ) & )",
    "setsid sh -c '(STAY &)' </dev/null >/dev/null 2>&1 &",
    "STAY <&- >&- 2>&- &",
    "trap '' TERM HUP; STAY &",
    "env -i PATH=\"$PATH\" setsid STAY &",
];

/// The command that escapes in this way, then does `then`.
fn escape(way: &str, then: &str) -> String {
    let way = way.replace("STAY", "sh ./stay");
    format!("{way}\nuntil [ -e up ]; do sleep 0.01; done\n{then}")
}

/// Tries all of them at once: most of the time is waiting.
fn each_way(check: impl Fn(&str) + Sync) {
    std::thread::scope(|threads| {
        for way in ESCAPES {
            threads.spawn(|| check(way));
        }
    });
}

#[test]
fn nothing_outlives_the_shell() {
    each_way(|way| {
        let scene = Scene::new();
        let began = Instant::now();
        assert_eq!(run(&scene, &escape(way, "echo done"), 60), "done\n", "{way}");
        assert_eq!(scene.survivors(), 0, "{way}");
        assert!(began.elapsed() < Duration::from_secs(20), "{way} took {:?}", began.elapsed());
    });
}

#[test]
fn nothing_outlives_the_timeout() {
    each_way(|way| {
        let scene = Scene::new();
        let said = run(&scene, &escape(way, "sleep 300"), 1);
        assert_eq!(said, "[timed out after 1 s; everything it started was ended]", "{way}");
        assert_eq!(scene.survivors(), 0, "{way}");
    });
}

/// A command that kills its guard with SIGKILL gets its orphans adopted by the agent, which finds them
/// even without their mark.
#[test]
fn killing_the_guard_frees_nobody() {
    each_way(|way| {
        let scene = Scene::new();
        let said = scene.agent_says(&escape(way, "kill -9 $PPID; sleep 300"), 60);
        assert!(said.starts_with("[ended by signal 9]"), "{way}: {said}");
        assert_eq!(scene.survivors(), 0, "{way}");
    });
}

#[test]
fn a_stopped_guard_is_replaced_by_the_agent() {
    let scene = Scene::new();
    let said = scene.agent_says(&escape("setsid STAY &", "kill -STOP $PPID; sleep 300"), 1);
    assert!(said.starts_with("[timed out after 1 s"), "{said}");
    assert_eq!(scene.survivors(), 0);
}

#[test]
fn a_guard_cannot_be_talked_to() {
    let scene = Scene::new();
    let command =
        "for signal in TERM INT HUP QUIT USR1 PIPE ALRM; do kill -$signal $PPID; done; echo on";
    assert_eq!(run(&scene, command, 60), "on\n");
}

#[test]
fn nothing_outlives_an_interrupted_call() {
    each_way(|way| {
        let scene = Scene::new();
        block_on(async {
            let command = escape(way, "sleep 300");
            let call = bash(scene.path().to_owned(), &command, 60);
            let up = async {
                while !scene.path().join("up").exists() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                said = call => panic!("{way} ended: {said:?}"),
                () = up => {}
            }
        });
        assert!(command::settle(Duration::from_secs(60)));
        assert_eq!(scene.survivors(), 0, "{way}");
    });
}

#[test]
fn nothing_outlives_an_agent_that_is_killed() {
    each_way(|way| {
        let scene = Scene::new();
        let mut agent = scene.agent(&escape(way, "sleep 300"), 60);
        wait_until("it is up", || scene.path().join("up").exists() && scene.survivors() > 0);
        agent.kill().unwrap();
        agent.wait().unwrap();
        wait_until("nobody is left", || scene.survivors() == 0);
    });
}

#[test]
fn endless_output_needs_little_memory() {
    let scene = Scene::new();
    let said = scene.agent_says("yes", 2);
    assert!(said.starts_with("y\ny\n") && said.contains("characters cut here"));
    let (_, peak) = said.rsplit_once("VmHWM:").unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 64 * 1024, "{peak} kB");
}

#[test]
fn there_is_no_input_and_no_terminal() {
    let scene = Scene::new();
    assert_eq!(run(&scene, "cat; echo $?", 60), "0\n");
    let said = run(&scene, "read -r line </dev/tty", 60);
    assert!(said.contains("/dev/tty") && said.ends_with("[exit code 1]"), "{said}");
}

#[test]
fn ends_are_told() {
    let scene = Scene::new();
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
        assert_eq!(run(&scene, command, 60), expected, "{command}");
    }
}

#[test]
fn commands_begin_clean() {
    let scene = Scene::new();
    let said = run(&scene, "env | cut -d= -f1 | sort | tr '\\n' ' '; pwd -P", 60);
    let folder = scene.path().canonicalize().unwrap();
    let names = "PATH PWD SHLVL TEAM_RUN TERM _ ";
    assert_eq!(said, format!("{names}{}\n", folder.display()));
    let said =
        run(&scene, "grep -E '^Sig(Blk|Ign)' /proc/self/status; cat /proc/self/oom_score_adj", 60);
    assert_eq!(said, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n500\n");
    assert_eq!(run(&scene, "ulimit -c; ls /proc/self/fd | tr '\\n' ' '", 60), "0\n0 1 2 3 ");
}

#[test]
fn where_there_is_no_bash_there_is_sh() {
    let scene = Scene::new();
    std::os::unix::fs::symlink("/bin/sh", scene.path().join("sh")).unwrap();
    let path = vec![("PATH".into(), scene.path().display().to_string())];
    let environment = CommandEnvironment::new(path, uuid::Uuid::now_v7().to_string());
    let bash = Bash::new(scene.path().to_owned(), environment);
    let input = json!({"command": "echo $0"});
    let call = Call { id: "1".into(), name: "bash".into(), input };
    assert_eq!(block_on(bash.call(&call)).unwrap(), "sh\n");
}

#[test]
fn calls_that_cannot_be_run_say_what_to_do() {
    let scene = Scene::new();
    let long = format!("true {}", "x".repeat(131_071));
    for (command, timeout, says) in [
        (" ", 60, "give the command"),
        ("a\0b", 60, "NUL"),
        (long.as_str(), 60, "write_file"),
        ("true", 0, "from 1 to 3600"),
        ("true", 120_000, "timeout is in seconds"),
    ] {
        let why = block_on(bash(scene.path().to_owned(), command, timeout)).unwrap_err();
        assert!(matches!(&why, ToolError::Reply(text) if text.contains(says)), "{why}");
    }
    let nowhere = scene.path().join("gone");
    let why = block_on(bash(nowhere, "true", 60)).unwrap_err();
    assert!(matches!(&why, ToolError::Reply(text) if text.contains("could not be run")), "{why}");
    let longest = format!("true {}", "x".repeat(131_066));
    assert_eq!(run(&scene, &longest, 60), "(no output)");
}
