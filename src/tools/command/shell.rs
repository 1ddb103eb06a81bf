//! Runs one shell command with capped output and a time limit, for `bash` and for hooks.

use super::output::CappedOutput;
use crate::os::async_fd::ReadableFd;
use crate::os::command::{self, CommandSetup};
use crate::os::pidfd::ExitKind;
use crate::wire::limits::OUTPUT_DRAIN;
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

pub(in crate::tools) struct CommandResult {
    /// Its standard output and error.
    pub(in crate::tools) output: String,
    /// The exit status of its shell.
    pub(in crate::tools) end: ExitKind,
    /// Whether it was killed at the time limit.
    pub(in crate::tools) timed_out: bool,
}

/// Runs a command and collects its output in `output`. Dropping the future kills the command. Fails if it cannot
/// be started, or if its supervisor process hangs in the kernel.
pub(in crate::tools) async fn run(
    command: &str,
    folder: &Path,
    setup: &CommandSetup,
    input: Option<File>,
    limit: Duration,
    mut output: CappedOutput,
) -> io::Result<CommandResult> {
    let (running, pipe) = command::start(command.as_ref(), folder, setup, input)?;
    let readable = ReadableFd::to_read(&pipe)?;
    let supervisor = ReadableFd::to_read(running.supervisor())?;
    let mut drained = false;
    let (end, timed_out) = {
        let mut reading = pin!(read_all(pipe, readable, &mut output));
        let mut limit = pin!(sleep(limit));
        let timed_out = loop {
            tokio::select! {
                () = &mut reading, if !drained => drained = true,
                _ = supervisor.wait() => break false,
                () = &mut limit => break true,
            }
        };
        let mut ending = tokio::task::spawn_blocking(|| running.end());
        let end = loop {
            tokio::select! {
                () = &mut reading, if !drained => drained = true,
                end = &mut ending => break end.map_err(io::Error::other)??,
            }
        };
        if !drained {
            // A process beyond the reach of the supervisor may still hold the pipe.
            timeout(OUTPUT_DRAIN, reading).await.unwrap_or_default();
        }
        (end, timed_out)
    };
    Ok(CommandResult { output: output.finish(), end, timed_out })
}

/// Reads until the pipe has no writer.
async fn read_all(mut pipe: PipeReader, readable: ReadableFd, output: &mut CappedOutput) {
    let mut buffer = vec![0; 65_536];
    loop {
        match readable.read(|| pipe.read(&mut buffer)).await {
            Ok(count) if count > 0 => {
                output.push(buffer.get(..count).unwrap_or_default());
                // A command that writes faster than this loop reads would starve other tasks and the timeout.
                yield_now().await;
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return,
        }
    }
}
