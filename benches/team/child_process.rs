//! Child processes: this program, started again with a job. A child reports that it is ready, waits for the
//! start signal, and reports in one line of JSON.

use crate::peers::peer::Peer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write, stdin};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The argument that marks a child's command line.
pub(crate) const FLAG: &str = "--job";

/// The job of a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Sends to the inbox as fast as possible.
    Write { way: Way, number: usize, seconds: f64 },
    /// Drains the mail of many senders.
    Own { way: Way },
    /// Receives one message at a time and reports its latency.
    Wake { way: Way },
    /// Sends one message, with the time of the send, each time its parent says so.
    Notify { way: Way },
    /// Sends one message after the other and reports the duration of each.
    Time { way: Way, times: usize },
    /// Stores unread messages.
    Fill { way: Way, count: usize },
    /// Idles on a single-threaded runtime until stdin, its lead, is closed.
    Idle,
}

/// The transport of a message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Way {
    /// The mailbox of the team.
    Team { dir: PathBuf, is_synced: bool },
    /// A file with appends under a lock.
    Raw { file: PathBuf },
    /// A file with appends and a sync under a lock.
    RawSynced { file: PathBuf },
    /// Another message queue.
    Peer(Peer),
}

impl Job {
    fn way(&self) -> Option<&Way> {
        match self {
            Self::Write { way, .. }
            | Self::Own { way }
            | Self::Wake { way }
            | Self::Notify { way }
            | Self::Time { way, .. }
            | Self::Fill { way, .. } => Some(way),
            Self::Idle => None,
        }
    }
}

/// Reports a value to the parent.
pub(crate) fn say(words: &impl Serialize) {
    let mut line = serde_json::to_string(words).unwrap();
    line.push('\n');
    let mut out = std::io::stdout();
    out.write_all(line.as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Waits for a line of the parent. Returns `None` if the parent has exited.
pub(crate) fn hear<T: DeserializeOwned>() -> Option<T> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).unwrap();
    (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
}

/// A running child, killed on drop.
pub(crate) struct ChildProcess {
    child: Child,
    out: BufReader<ChildStdout>,
}

/// Returns the command line of the program that does a job: this one, or that of a peer.
pub(crate) fn command(job: &Job) -> Command {
    let of_peer = match job.way() {
        Some(Way::Peer(peer)) => peer.program(),
        _ => None,
    };
    let mut command = of_peer.unwrap_or_else(|| Command::new(std::env::current_exe().unwrap()));
    command.args([FLAG, &serde_json::to_string(job).unwrap()]);
    command
}

impl ChildProcess {
    /// Starts a child and waits until it is ready.
    pub(crate) fn start(job: &Job) -> Self {
        let mut child = Self::spawn(job);
        assert_eq!(child.hear::<String>(), "ready");
        child
    }

    /// Starts children at the same time and waits until all are ready.
    pub(crate) fn start_all(jobs: &[Job]) -> Vec<Self> {
        let mut children: Vec<Self> = jobs.iter().map(Self::spawn).collect();
        for child in &mut children {
            assert_eq!(child.hear::<String>(), "ready");
        }
        children
    }

    fn spawn(job: &Job) -> Self {
        let mut child = command(job).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
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
