//! One shell command run to its end, with its output capped and a time limit: what `bash` and hooks share.

use super::output::Capped;
use crate::os::async_fd::ReadableFd;
use crate::os::command::{self, CommandSetup};
use crate::os::pidfd::ExitKind;
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// How long output may still come when everything has ended.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// How a command went.
pub(super) struct Done {
    /// What it wrote.
    pub(super) output: String,
    /// How its shell ended.
    pub(super) end: ExitKind,
    /// It was ended because its time was up.
    pub(super) timed_out: bool,
}

/// Runs a command; dropping the future ends it. `input` is what it reads, `output`
/// takes what it writes.
///
/// # Errors
/// It cannot be started, or its guard is stuck in the kernel.
pub(super) async fn run(
    command: &str,
    folder: &Path,
    setting: &CommandSetup,
    input: Option<File>,
    limit: Duration,
    mut output: Capped,
) -> io::Result<Done> {
    let (running, pipe) = command::start(command.as_ref(), folder, setting, input)?;
    let readable = ReadableFd::to_read(&pipe)?;
    let guard = ReadableFd::to_read(running.guard())?;
    let mut drained = false;
    let (end, timed_out) = {
        let mut reading = pin!(read_all(pipe, readable, &mut output));
        let mut limit = pin!(sleep(limit));
        let timed_out = loop {
            tokio::select! {
                () = &mut reading, if !drained => drained = true,
                _ = guard.wait() => break false,
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
            // Whoever still holds the pipe now is out of reach.
            timeout(LAST_OUTPUT, reading).await.unwrap_or_default();
        }
        (end, timed_out)
    };
    Ok(Done { output: output.finish(), end, timed_out })
}

/// Reads until all writers are gone.
async fn read_all(mut pipe: PipeReader, readable: ReadableFd, output: &mut Capped) {
    let mut buffer = vec![0; 65_536];
    loop {
        match readable.read(|| pipe.read(&mut buffer)).await {
            Ok(count) if count > 0 => {
                output.push(buffer.get(..count).unwrap_or_default());
                // Who writes faster than this reads would keep everybody else, the timeout too, waiting.
                yield_now().await;
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return,
        }
    }
}
