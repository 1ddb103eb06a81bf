//! A child process whose exit and pipes the event loop waits for.
//!
//! It is not that of tokio: its feature for processes would open signal pipes in every program of the workspace.

use agent_team::relay::ExitWatcher;
use std::io;
use std::process::{Child as StdChild, Command, ExitStatus};
use tokio::net::unix::pipe::{Receiver, Sender};

/// A running child. It is killed when this is dropped.
pub(crate) struct Child {
    process: StdChild,
    exit: ExitWatcher,
    pub(crate) stdin: Option<Sender>,
    pub(crate) stdout: Option<Receiver>,
    pub(crate) stderr: Option<Receiver>,
}

impl Child {
    /// Starts a command. Call it in an event loop.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let exit = match ExitWatcher::of(child.id()) {
            Ok(exit) => exit,
            Err(why) => {
                child.kill()?;
                child.wait()?;
                return Err(why);
            }
        };
        let mut started = Self { process: child, exit, stdin: None, stdout: None, stderr: None };
        started.stdin = pipes.0.map(|pipe| Sender::from_owned_fd(pipe.into())).transpose()?;
        started.stdout = pipes.1.map(|pipe| Receiver::from_owned_fd(pipe.into())).transpose()?;
        started.stderr = pipes.2.map(|pipe| Receiver::from_owned_fd(pipe.into())).transpose()?;
        Ok(started)
    }

    /// Returns its process id, which is its own as long as it was not waited for.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns its exit status if it has exited.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Waits for its exit.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            self.exit.exited().await?;
        }
    }

    /// Kills it, and waits for its exit.
    pub(crate) async fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.wait().await.map(drop)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            // It has ended meanwhile, or ends now.
            drop(self.process.kill());
            drop(self.process.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::runtime::Builder;

    #[test]
    fn a_child_is_read_and_waited_for_and_killed_when_it_is_dropped() {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let mut command = Command::new("cat");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut cat = Child::spawn(command).unwrap();
            let mut input = cat.stdin.take().unwrap();
            input.write_all(b"hello").await.unwrap();
            drop(input);
            let mut said = String::new();
            cat.stdout.take().unwrap().read_to_string(&mut said).await.unwrap();
            assert!(said == "hello" && cat.wait().await.unwrap().success());

            let mut command = Command::new("sleep");
            command.arg("300");
            let sleeper = Child::spawn(command).unwrap();
            let watcher = ExitWatcher::of(sleeper.id()).unwrap();
            drop(sleeper);
            watcher.exited().await.unwrap();
        });
    }
}
