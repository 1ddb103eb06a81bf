//! Child processes: this program, started again with a job. They say that they are ready, wait for a
//! word, and report in one line of JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write, stdin};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Marks a child's command line.
pub(crate) const FLAG: &str = "--job";

/// What a child does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Writes to the one inbox as fast as it can.
    Write { way: Way, number: usize, seconds: f64 },
    /// Takes in what many write.
    Own { way: Way },
    /// Takes in one message at a time, telling how long it was on its way.
    Wake { way: Way },
    /// Idles on a single-threaded runtime until its lead, which is stdin, has gone.
    Idle,
}

/// How a message is passed on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Way {
    /// Ours, in the team folder.
    Team { dir: PathBuf, is_synced: bool },
    /// A file that is only ever appended to, under a lock.
    Raw { file: PathBuf },
    /// The same with a sync before the lock is given back.
    RawSynced { file: PathBuf },
}

/// A child tells its parent.
pub(crate) fn say(words: &impl Serialize) {
    let mut line = serde_json::to_string(words).unwrap();
    line.push('\n');
    let mut out = std::io::stdout();
    out.write_all(line.as_bytes()).unwrap();
    out.flush().unwrap();
}

/// A child waits for its parent's word; `None` when that has gone.
pub(crate) fn hear<T: DeserializeOwned>() -> Option<T> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).unwrap();
    (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
}

/// A running child, ended when dropped.
pub(crate) struct ChildProcess {
    child: Child,
    out: BufReader<ChildStdout>,
}

/// This program with a job.
pub(crate) fn command(job: &Job) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([FLAG, &serde_json::to_string(job).unwrap()]);
    command
}

impl ChildProcess {
    /// Starts a child and waits until it is ready.
    pub(crate) fn start(job: &Job) -> Self {
        let mut child = command(job).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut child = Self { child, out };
        assert_eq!(child.hear::<String>(), "ready");
        child
    }

    pub(crate) fn say(&mut self, words: &impl Serialize) {
        let mut line = serde_json::to_string(words).unwrap();
        line.push('\n');
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> T {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
