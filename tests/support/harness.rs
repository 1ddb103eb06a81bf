//! A team in a temporary folder: real processes, a real terminal, real files.

use super::skips::skipped;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The time limit of a single expectation. It is far above normal times, so that only a hang fails on a
/// loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The time that `team stop` gives a working member (RELIABILITY 4). A stop that took less time did not wait for
/// the deadline.
pub(crate) const ASK_DEADLINE: Duration = Duration::from_secs(20);

/// The PATH for programs that do not belong to the project.
pub(crate) const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A workspace for a team. The drop fails the test if a process of the team is left.
pub(crate) struct Team {
    folder: tempfile::TempDir,
    extra: RefCell<Vec<(String, String)>>,
    /// The words before our programs and their arguments, if another program starts them.
    launcher: Vec<String>,
    /// Copies of the programs, for runs during which the built ones may be replaced.
    copies: Option<tempfile::TempDir>,
}

/// The variable that lengthens short deadlines, in milliseconds.
pub(crate) const SHORTEST_DEADLINE: &str = "TEAM_SHORTEST_DEADLINE_MS";

/// The variable that names the file for the counts of a coverage run.
const PROFILE_FILE: &str = "LLVM_PROFILE_FILE";

/// Returns the path of a built program.
pub(crate) fn program(name: &str) -> PathBuf {
    built_programs().join(name)
}

/// Copies a program. Another process does it: no child of a concurrent test can inherit the copy open for writing,
/// which would prevent its execution.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// Whether this process may read the descriptors and counts of an agent, which forbids inspection. Otherwise, reports that
/// `what` was skipped.
pub(crate) fn may_inspect_agents(what: &str) -> bool {
    let may = nix::unistd::geteuid().is_root();
    if !may {
        skipped(&format!("only root may look into an agent: {what}"));
    }
    may
}

/// Whether python3 is installed. Without it, reports that `what` was skipped.
pub(crate) fn has_python(what: &str) -> bool {
    let found = SYSTEM_PATH.split(':').any(|folder| Path::new(folder).join("python3").exists());
    if !found {
        skipped(&format!("python3 is not installed: {what}"));
    }
    found
}

fn built_programs() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_team")).parent().unwrap()
}

/// Runs a test for every case in parallel. A panic in one case fails the test.
pub(crate) fn in_parallel<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    std::thread::scope(|threads| {
        for case in cases {
            threads.spawn(|| test(case));
        }
    });
}

/// Restores the default action of SIGINT. A shell without job control starts background jobs, such as a test run,
/// with SIGINT ignored, and children inherit that.
fn reset_interrupt() {
    use nix::sys::signal::{SigHandler, signal};
    #[expect(unsafe_code, reason = "nix has no safe call to set a disposition")]
    // SAFETY: the default action installs no handler.
    unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) }.unwrap();
}

impl Team {
    pub(crate) fn new() -> Self {
        reset_interrupt();
        let folder = tempfile::Builder::new().prefix("team-it-").tempdir().unwrap();
        Self { folder, extra: RefCell::default(), launcher: Vec::new(), copies: None }
    }

    /// Creates a team whose commands have no walls, since they reach into the team folder or out of the workspace.
    pub(crate) fn without_walls() -> Self {
        let team = Self::new();
        team.variable("TEAM_SANDBOX_LEVEL", "off");
        team
    }

    /// Creates a team on copies of the programs, for runs during which the built ones may be replaced, or by a user who may
    /// not reach them.
    pub(crate) fn of_copies() -> Self {
        let copies = tempfile::Builder::new().prefix("team-it-").tempdir().unwrap();
        fs::set_permissions(copies.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["team", "lead", "teammate"] {
            copy_program(&program(name), &copies.path().join(name));
        }
        let mut team = Self::new();
        team.copies = Some(copies);
        team
    }

    /// Starts our programs by these words from now on. The path, the name and the arguments of the program follow them.
    pub(crate) fn start_by(&mut self, launcher: &[&str]) {
        self.launcher = launcher.iter().map(|word| (*word).to_owned()).collect();
    }

    /// Returns the folder of the programs.
    pub(crate) fn programs(&self) -> &Path {
        self.copies.as_ref().map_or_else(|| built_programs(), |copies| copies.path())
    }

    /// Sets a variable for every program started from now on.
    pub(crate) fn variable(&self, name: &str, value: &str) {
        self.extra.borrow_mut().push((name.into(), value.into()));
    }

    pub(crate) fn workspace(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a path inside the team folder: `.team`, or what `TEAM_DIR` names.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        let extra = self.extra.borrow();
        let named = extra.iter().rev().find(|(name, _)| name == "TEAM_DIR");
        let folder = named.map_or(".team", |(_, folder)| folder.as_str());
        self.workspace().join(folder).join(inside)
    }

    /// Returns a command for one of our programs in this workspace, with a clean environment.
    pub(crate) fn command(&self, program_name: &str, args: &[&str]) -> Command {
        let program = self.programs().join(program_name);
        // Users other than root see only the command line of a process that holds a key, so it names the
        // workspace.
        let name = self.workspace().join(program_name);
        let Some((launcher, words)) = self.launcher.split_first() else {
            let mut command = self.foreign(&program);
            command.arg0(name).args(args);
            return command;
        };
        let mut command = self.foreign(Path::new(launcher));
        command.args(words).arg(program).arg(name).args(args);
        command
    }

    /// Returns a command for a shell line with our programs on its PATH.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let ours = self.programs().display().to_string();
        let mut command = self.foreign(Path::new("bash"));
        command.args(["-c", line]).env("PATH", format!("{ours}:{SYSTEM_PATH}"));
        command
    }

    /// Returns a command for any program in this workspace, with a clean environment.
    fn foreign(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        command.current_dir(self.workspace()).env_clear();
        command.env("PATH", SYSTEM_PATH).env("TERM", "xterm-256color");
        // Most tests are not about permissions, so no call needs a permission.
        command.env("TEAM_MODE", "bypass");
        command.env("HOME", self.workspace()).env("LANG", "C.UTF-8");
        // Local model servers on this machine must not affect a test.
        command.env("TEAM_LOCAL_PORTS", "none");
        // On a loaded machine, a process may stand still for longer than a short deadline. The score card judges the
        // deadlines of the contract.
        if env!("CARGO_CRATE_NAME") != "torture" {
            command.env(SHORTEST_DEADLINE, "5000");
        }
        // `scripts/coverage` counts what the programs execute, too.
        if let Some((name, file)) = std::env::vars().find(|(name, _)| name == PROFILE_FILE) {
            command.env("TEAM_PASS_ENVIRONMENT", &name).env(name, file);
        }
        for (name, value) in self.extra.borrow().iter() {
            command.env(name, value);
        }
        command
    }

    /// Runs `team ARGS` to its end.
    pub(crate) fn team(&self, args: &[&str]) -> CommandResult {
        self.team_with_input(args, "")
    }

    /// Runs `team ARGS` to its end with `input` on stdin.
    pub(crate) fn team_with_input(&self, args: &[&str], input: &str) -> CommandResult {
        let mut command = self.command("team", args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // A command that does not read its input closes the pipe early, so a failed write is no error.
        let feed = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let (ended, end) = std::sync::mpsc::channel::<()>();
        // A command that hangs fails its test instead of blocking the run.
        let watchdog = std::thread::spawn(move || {
            if end.recv_timeout(5 * PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                kill(pid, Signal::SIGKILL).unwrap_or_default();
            }
        });
        let output = child.wait_with_output().unwrap();
        drop(ended);
        watchdog.join().unwrap();
        feed.join().unwrap();
        CommandResult::of(args, &output)
    }

    /// Starts `team ARGS` without waiting for it.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command("team", args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    pub(crate) fn roster(&self) -> Value {
        let text = fs::read_to_string(self.path("config.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Returns a member's roster entry; `null` if there is none.
    pub(crate) fn member(&self, name: &str) -> Value {
        let roster = self.roster();
        let members = roster["members"].as_array().cloned().unwrap_or_default();
        members.into_iter().find(|member| member["name"] == name).unwrap_or(Value::Null)
    }

    pub(crate) fn status(&self, name: &str) -> String {
        let entry = if name == "lead" { self.roster()["lead"].clone() } else { self.member(name) };
        entry["status"].as_str().unwrap_or("absent").to_owned()
    }

    /// Returns the log of an agent, with its rotated parts.
    pub(crate) fn log(&self, name: &str) -> String {
        let old = (1..=5).rev().map(|number| self.path(&format!("log/.old/{name}-{number}.jsonl")));
        let files = old.chain([self.path(&format!("log/{name}.jsonl"))]);
        files.map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
    }

    /// Returns all valid lines of a JSONL file.
    pub(crate) fn lines(&self, inside: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(inside)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Returns the messages that an agent has received.
    pub(crate) fn mail_of(&self, name: &str) -> Vec<Value> {
        let lines = self.lines(&format!("transcript/{name}.jsonl"));
        let mail = lines.into_iter().filter(|line| line["kind"] == "mail");
        mail.map(|line| line["message"].clone()).collect()
    }

    /// Whether an agent has received a message from that sender that contains the text.
    pub(crate) fn has_mail(&self, owner: &str, from: &str, text: &str) -> bool {
        self.mail_of(owner).iter().any(|mail| {
            mail["from"] == from && mail["content"].as_str().is_some_and(|it| it.contains(text))
        })
    }

    /// Waits until a condition holds.
    pub(crate) fn eventually(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < until, "never: {what}\n{}", self.describe());
            std::thread::park_timeout(Duration::from_millis(15));
        }
    }

    /// Waits until a member has a status. A teammate of the lead is idle for a moment before its prompt arrives; this
    /// waits until its first turn is over as well.
    pub(crate) fn wait_status(&self, name: &str, status: &str) {
        let waits_for_prompt = || {
            status == "idle"
                && self.member(name)["started_by"] == "lead"
                && !self.lines(&format!("transcript/{name}.jsonl")).iter().any(is_turn_end)
        };
        self.eventually(&format!("{name} is {status}"), || {
            self.status(name) == status && !waits_for_prompt()
        });
    }

    /// Returns the processes whose command line, environment or working directory contains this team's folder.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let here = self.workspace().to_string_lossy().into_owned();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let proc = entry.path();
            let stat = fs::read_to_string(proc.join("stat")).unwrap_or_default();
            let zombie = stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z'));
            let cmdline = fs::read(proc.join("cmdline")).unwrap_or_default();
            let cmdline = String::from_utf8_lossy(&cmdline).replace('\0', " ");
            let cwd = fs::read_link(proc.join("cwd")).unwrap_or_default();
            let environ = fs::read(proc.join("environ")).unwrap_or_default();
            let ours = cmdline.contains(&here)
                || cwd.starts_with(self.workspace())
                || String::from_utf8_lossy(&environ).contains(&here);
            if ours && !zombie && pid != i32::try_from(std::process::id()).unwrap() {
                found.push((pid, cmdline));
            }
        }
        found
    }

    /// Kills every process of this team; none sees the end of another one. Returns their number.
    pub(crate) fn kill_all(&self) -> usize {
        let (lead, mut killed) = (self.pid_of("lead"), BTreeSet::new());
        let mut signal_all = |signal| {
            let mut living = self.processes();
            // The lead comes last: its end would orphan the groups of its stopped teammates, which then go on by SIGHUP and
            // SIGCONT.
            living.sort_by_key(|(pid, _)| *pid == lead);
            for (pid, _) in &living {
                killed.insert(*pid);
                let _gone = kill(Pid::from_raw(*pid), signal);
            }
            living.is_empty()
        };
        signal_all(Signal::SIGSTOP);
        self.eventually("all are killed", || signal_all(Signal::SIGKILL));
        // The environment of a process goes before its files, and with them its locks.
        let has_ended = |pid: &i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')')
                .next()
                .is_none_or(|rest| matches!(rest.trim().get(..1), None | Some("Z" | "X")))
        };
        self.eventually("their locks are free", || killed.iter().all(has_ended));
        killed.len()
    }

    /// Returns the pid in a member's life lock.
    pub(crate) fn pid_of(&self, name: &str) -> i32 {
        let text = fs::read_to_string(self.path(&format!("run/{name}.lock"))).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        i32::try_from(record["pid"].as_i64().unwrap()).unwrap()
    }

    /// Waits until no process of this team is left.
    pub(crate) fn wait_no_process(&self) {
        self.eventually("no process is left", || self.processes().is_empty());
    }

    /// Returns the locks that a process holds.
    fn held_locks(&self) -> Vec<PathBuf> {
        let in_folder = |inside: &str| fs::read_dir(self.path(inside)).into_iter().flatten();
        let locks = in_folder("run").chain(in_folder("inbox/.lock")).flatten();
        let locks = locks.map(|entry| entry.path()).filter(|path| path.is_file());
        let is_held = |path: &PathBuf| {
            let file = fs::File::open(path).unwrap();
            nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).is_err()
        };
        locks.filter(is_held).collect()
    }

    /// Returns the claims whose mail is not in a transcript.
    pub(crate) fn open_claims(&self) -> Vec<String> {
        let claims = fs::read_dir(self.path("inbox/.claim")).into_iter().flatten().flatten();
        let names = claims.map(|claim| claim.file_name().to_string_lossy().into_owned());
        let is_open = |name: &String| !matches!(name.rsplit('.').next(), Some("taken" | "new"));
        names.filter(is_open).collect()
    }

    /// Returns the roster, the processes and the ends of all files, for failure messages.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("roster: {:#}\nprocesses: {:?}\n", self.roster(), self.processes());
        for folder in ["log", "log/.err", "inbox", "transcript"] {
            let Ok(entries) = fs::read_dir(self.path(folder)) else { continue };
            for entry in entries.flatten().filter(|entry| entry.path().is_file()) {
                let content = fs::read_to_string(entry.path()).unwrap_or_default();
                let tail: Vec<&str> = content.lines().rev().take(25).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                let _infallible =
                    writeln!(text, "--- {folder}/{:?}\n{}", entry.file_name(), tail.join("\n"));
            }
        }
        text
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // A failing test reports its own cause. A passing test must have left no process, lock or claim.
        let left = self.processes();
        for (pid, _) in &left {
            let _gone = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        if !std::thread::panicking() {
            assert!(left.is_empty(), "processes left behind: {left:?}");
            let held = self.held_locks();
            assert!(held.is_empty(), "locks left behind: {held:?}");
            let claims = self.open_claims();
            assert!(claims.is_empty(), "claims left behind: {claims:?}");
        }
    }
}

/// The exit code and the output of a command.
#[derive(Debug, Clone)]
pub(crate) struct CommandResult {
    pub(crate) args: String,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandResult {
    pub(crate) fn of(args: &[&str], output: &Output) -> Self {
        Self {
            args: args.join(" "),
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "team {}: {self:#?}", self.args);
        self
    }

    /// Parses stdout as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|why| panic!("{why}: {self:#?}"))
    }
}

fn is_turn_end(line: &Value) -> bool {
    line["kind"] == "turn_end"
}
