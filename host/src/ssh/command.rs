//! The program `ssh`, as the person has set it up, without questions.

use crate::child::Child;
use agent_team::relay::end_with_parent;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command as StdCommand, Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// The options of each call. A connection that is shared with other calls could not end with this one. A dead network is
/// noticed within about 9 seconds.
const OPTIONS: [&str; 6] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ControlMaster=no",
    "ControlPath=none",
    "ServerAliveInterval=3",
    "ServerAliveCountMax=3",
];

/// The options of the call that stays: another program that listens at the port there must not take its place.
const LINK_OPTIONS: [&str; 1] = ["ExitOnForwardFailure=yes"];

/// The program `ssh`.
#[derive(Debug, Clone)]
pub(crate) struct Ssh {
    program: PathBuf,
}

/// The input of a command on another host.
pub(crate) enum Input {
    Text(String),
    File(File),
}

impl Ssh {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program }
    }

    /// Runs a command on a host to its end.
    ///
    /// # Errors
    /// `ssh` cannot be started, or the time is over.
    pub(crate) async fn run(
        &self,
        destination: &str,
        command: &str,
        input: Input,
        limit: Duration,
    ) -> io::Result<Output> {
        let mut ssh = self.command(&OPTIONS);
        ssh.arg("--").arg(destination).arg(command);
        let (stdin, text) = match input {
            Input::File(file) => (Stdio::from(file), None),
            Input::Text(text) => (Stdio::piped(), Some(text)),
        };
        ssh.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        end_with_parent(&mut ssh);
        let mut child = Child::spawn(ssh)?;
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let (Some(mut pipe), Some(text)) = (input, text) {
                // A host that does not read it says why.
                drop(pipe.write_all(text.as_bytes()).await);
            }
        };
        let work = async {
            let ((), stdout, stderr) = tokio::join!(write, all(output), all(errors));
            Ok(Output { status: child.wait().await?, stdout, stderr })
        };
        match timeout(limit, work).await {
            Ok(output) => output,
            Err(_) => {
                let why = format!("no answer within {} s", limit.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }

    /// Starts a command on a host that stays as long as its standard input. With `tunnel`, that port of its loopback leads
    /// to an address of this host.
    ///
    /// # Errors
    /// `ssh` cannot be started.
    pub(crate) fn link(
        &self,
        destination: &str,
        command: &str,
        tunnel: Option<(u16, SocketAddr)>,
    ) -> io::Result<Child> {
        let mut ssh = self.command(&OPTIONS);
        for option in LINK_OPTIONS {
            ssh.args(["-o", option]);
        }
        if let Some((there, here)) = tunnel {
            ssh.arg("-R").arg(format!("127.0.0.1:{there}:{here}"));
        }
        ssh.arg("--").arg(destination).arg(command).process_group(0);
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        end_with_parent(&mut ssh);
        Child::spawn(ssh)
    }

    fn command(&self, options: &[&str]) -> StdCommand {
        let mut ssh = StdCommand::new(&self.program);
        ssh.arg("-T");
        for option in options {
            ssh.args(["-o", option]);
        }
        ssh
    }
}

/// Returns all that a program says, as far as it can be read.
async fn all(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut said = Vec::new();
    if let Some(mut pipe) = pipe {
        drop(pipe.read_to_end(&mut said).await);
    }
    said
}

/// Returns a text as one word for the shells that a person may have there.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the line of what a program has said on standard error that gives the reason, without control characters: the
/// last one, unless a relay has said why it ended.
pub(crate) fn last_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let mut lines = text.lines().rev().filter(|line| !line.trim().is_empty());
    let own = lines.clone().find(|line| line.starts_with("team-host: "));
    let line = own.or_else(|| lines.next()).unwrap_or_default();
    line.trim().chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_one_word_for_a_shell() {
        for text in ["plain", "with space", "it's", "$HOME `id` \"x\" \\", ""] {
            let echo = format!("printf %s {}", quoted(text));
            let output = StdCommand::new("sh").args(["-c", &echo]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), text);
        }
    }

    #[test]
    fn the_last_line_that_says_something_is_the_reason() {
        assert_eq!(
            last_line(b"Warning: x\nssh: Could not resolve\x1b[0m\r\n\n"),
            "ssh: Could not resolve[0m"
        );
        assert_eq!(last_line(b"team-host: a: b\n  try c\n"), "team-host: a: b");
        assert_eq!(last_line(b""), "");
    }
}
