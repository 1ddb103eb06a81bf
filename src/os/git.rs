//! Runs git, the program. It asks nobody, and starts neither hooks nor monitors nor background work.

use super::Signal;
use super::command;
use super::event_loop::check_blocking;
use super::process::child::{isolate, spawn};
use super::process::pidfd::{ExitKind, Pidfd};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time after which a call of git is killed.
const LIMIT: Duration = Duration::from_secs(600);

/// The oldest version with `merge-tree --write-tree`.
const OLDEST: (u32, u32) = (2, 38);

/// Settings that win over those of the repository and the user.
pub(crate) const OPTIONS: [&str; 11] = [
    "core.fsmonitor=false",
    "core.splitIndex=false",
    "core.untrackedCache=false",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.version=2",
    "commit.gpgSign=false",
    "diff.ignoreSubmodules=dirty",
    "advice.addEmbeddedRepo=false",
];

/// The maximum number of characters of a message of git that an error repeats.
const SAID_CHARS: usize = 600;

/// The reason for which a call of git failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    #[error("git is not installed, or not in PATH")]
    Missing,
    #[error("git {0}.{1} is too old; 2.38 is needed")]
    TooOld(u32, u32),
    #[error("`git {command}` failed: {said}")]
    Failed { command: String, said: String },
    #[error("git cannot be run: {0}")]
    Io(#[from] io::Error),
}

/// Git in a folder.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    folder: PathBuf,
    environment: Vec<(String, String)>,
    limit: Duration,
}

/// A running call of git. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct RunningGit {
    /// `None` once its end was waited for.
    process: Option<Pidfd>,
    command: String,
    stdout: File,
    stderr: File,
    limit: Duration,
}

impl Drop for RunningGit {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let killed = process.signal_group(Signal::SIGKILL).and_then(|()| process.wait());
            killed.map(drop).unwrap_or_default();
        }
    }
}

/// The end of a call of git.
pub(crate) struct GitOutput {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Git {
    /// Creates git in a folder; it gets only these variables.
    pub(crate) fn new(folder: &Path, environment: &[(String, String)]) -> Self {
        Self { folder: folder.to_owned(), environment: environment.to_vec(), limit: LIMIT }
    }

    /// Returns this git with another time after which a call is killed.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Returns this git with one more variable.
    pub(crate) fn with(&self, name: &str, value: &Path) -> Self {
        let mut git = self.clone();
        git.environment.push((name.into(), value.display().to_string()));
        git
    }

    /// Returns this git with settings that win over those of files.
    pub(crate) fn with_settings(&self, settings: impl Iterator<Item = (String, String)>) -> Self {
        let (mut git, mut count) = (self.clone(), 0);
        for (key, value) in settings {
            git.environment.push((format!("GIT_CONFIG_KEY_{count}"), key));
            git.environment.push((format!("GIT_CONFIG_VALUE_{count}"), value));
            count += 1;
        }
        git.environment.push(("GIT_CONFIG_COUNT".into(), count.to_string()));
        git
    }

    /// Fails if git is missing or too old.
    pub(crate) fn check_version(&self) -> Result<(), GitError> {
        let text = self.run(&["--version"])?;
        let numbers = text.split_whitespace().nth(2).unwrap_or_default();
        let mut numbers = numbers.split('.').map(|part| part.parse().unwrap_or_default());
        let version = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        if version < OLDEST { Err(GitError::TooOld(version.0, version.1)) } else { Ok(()) }
    }

    /// Returns the output of a call, without the last line end. Fails if git does.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, GitError> {
        let output = self.checked(arguments, b"")?;
        let text = String::from_utf8_lossy(&output).into_owned();
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Returns the bytes that a call prints. Fails if git does.
    pub(crate) fn checked(&self, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        self.start(arguments, input)?.output()
    }

    /// Runs git to its end.
    pub(crate) fn call(&self, arguments: &[&str], input: &[u8]) -> Result<GitOutput, GitError> {
        self.start(arguments, input)?.end()
    }

    /// Starts git.
    pub(crate) fn start(&self, arguments: &[&str], input: &[u8]) -> Result<RunningGit, GitError> {
        check_blocking("git");
        let files = [input, b"", b""].map(command::memory_file);
        let [stdin, stdout, stderr] = files;
        let (stdin, stdout, stderr) = (stdin?, stdout?, stderr?);
        let mut program = Command::new("git");
        for option in OPTIONS {
            program.args(["-c", option]);
        }
        // A key at the terminal interrupts the lead, not git.
        program.args(arguments).current_dir(&self.folder).process_group(0);
        program.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        program.env("GIT_TERMINAL_PROMPT", "0").env("GIT_NO_LAZY_FETCH", "1").env("LC_ALL", "C");
        program.env("GIT_OPTIONAL_LOCKS", "0");
        program.stdin(stdin).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        isolate(&mut program, Vec::new(), || Ok(()));
        let process = spawn(&mut program).map_err(|why| {
            let is_missing = why.kind() == io::ErrorKind::NotFound && self.folder.is_dir();
            if is_missing { GitError::Missing } else { GitError::Io(why) }
        })?;
        let command = arguments.iter().find(|word| !word.starts_with('-')).copied();
        let command = command.unwrap_or_default().to_owned();
        Ok(RunningGit { process: Some(process), command, stdout, stderr, limit: self.limit })
    }
}

impl RunningGit {
    /// Waits for the end. Returns the printed bytes. Fails if git does.
    pub(crate) fn output(self) -> Result<Vec<u8>, GitError> {
        let command = self.command.clone();
        let GitOutput { code, stdout, stderr } = self.end()?;
        if code == 0 {
            return Ok(stdout);
        }
        let said = stderr.trim();
        let said = if said.is_empty() { format!("exit code {code}") } else { said.to_owned() };
        let said = said.chars().take(SAID_CHARS).collect();
        Err(GitError::Failed { command, said })
    }

    /// Waits for the end.
    fn end(mut self) -> Result<GitOutput, GitError> {
        check_blocking("git");
        let Some(process) = self.process.take() else {
            return Err(io::Error::other("no git").into());
        };
        let is_late = !process.ends_within(self.limit);
        if is_late {
            process.signal_group(Signal::SIGKILL)?;
        }
        let end = process.wait()?;
        let read = |mut file: &File| {
            let mut bytes = Vec::new();
            file.rewind()?;
            file.read_to_end(&mut bytes).map(|_| bytes)
        };
        let (stdout, stderr) = (read(&self.stdout)?, read(&self.stderr)?);
        let code = match end {
            ExitKind::Code(code) => code,
            ExitKind::Signal(_) if is_late => {
                let why = format!("git was killed after {} s", self.limit.as_secs());
                return Err(io::Error::other(why).into());
            }
            ExitKind::Signal(signal) => {
                return Err(io::Error::other(format!("signal {signal} killed git")).into());
            }
        };
        Ok(GitOutput { code, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() })
    }
}

/// Splits text at its NUL characters.
pub(crate) fn split(bytes: &[u8]) -> Vec<String> {
    let names = bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}
