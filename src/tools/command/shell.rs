//! Runs one shell command with capped output and a time limit, for `bash` and for hooks.

use super::host_proxy::HostProxy;
use super::output::{CappedOutput, OutputSink};
use crate::os::async_fd::ReadableFd;
use crate::os::command::{self, CommandSetup, RunningCommand};
use crate::os::pidfd::ExitKind;
use crate::os::spawn::spawn_blocking;
use crate::os::wall::PROXY_ADDRESS;
use crate::wire::limits::OUTPUT_DRAIN;
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout, timeout_at};

pub(in crate::tools) struct CommandResult {
    /// Its standard output and error.
    pub(in crate::tools) output: String,
    /// The exit status of its shell.
    pub(in crate::tools) end: ExitKind,
    /// Whether it was killed at the time limit.
    pub(in crate::tools) timed_out: bool,
    /// The hosts that its proxy has refused.
    pub(in crate::tools) refused_hosts: Vec<String>,
}

/// A command that has been started, with the parts that serve it.
pub(in crate::tools) struct StartedCommand {
    running: RunningCommand,
    pipe: PipeReader,
    proxy: HostProxy,
}

/// The end of a command.
pub(in crate::tools) struct CommandEnd {
    /// The exit status of its shell.
    pub(in crate::tools) end: ExitKind,
    /// Whether it was ended before its own end.
    pub(in crate::tools) was_cut: bool,
    /// The hosts that its proxy has refused.
    pub(in crate::tools) refused_hosts: Vec<String>,
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
    let started = StartedCommand::start(command, folder, setup, input)?;
    let CommandEnd { end, was_cut: timed_out, refused_hosts } =
        started.run(sleep(limit), &mut output).await?;
    Ok(CommandResult { output: output.finish(), end, timed_out, refused_hosts })
}

impl StartedCommand {
    /// Starts a command. Dropping it kills the command.
    pub(in crate::tools) fn start(
        command: &str,
        folder: &Path,
        setup: &CommandSetup,
        input: Option<File>,
    ) -> io::Result<Self> {
        let hosts = setup.walls.as_ref().and_then(|walls| walls.proxied_hosts());
        let all_hosts = hosts.into_iter().flatten().chain(&setup.granted_hosts);
        let proxy = HostProxy::new(all_hosts.cloned().collect());
        let setup = &if hosts.is_some() { through_proxy(setup) } else { setup.clone() };
        let (running, pipe) = command::start(command.as_ref(), folder, setup, input)?;
        Ok(Self { running, pipe, proxy })
    }

    /// Lets the command run beside others, so that nobody who waits for the end of others waits for it.
    pub(in crate::tools) fn leave_running(&mut self) {
        self.running.leave_running();
    }

    /// Passes on the output of the command until it ends, or ends it when `until` is over.
    pub(in crate::tools) async fn run(
        self,
        until: impl Future<Output = ()>,
        output: &mut impl OutputSink,
    ) -> io::Result<CommandEnd> {
        let Self { mut running, pipe, proxy } = self;
        let door = running.take_proxy();
        let readable = ReadableFd::to_read(&pipe)?;
        let supervisor = ReadableFd::to_read(running.supervisor())?;
        let mut drained = false;
        let mut reading = pin!(read_all(pipe, readable, output));
        let mut until = pin!(until);
        let has_proxy = door.is_some();
        let mut serving = pin!(async {
            if let Some(door) = door {
                proxy.serve(door).await;
            }
        });
        let was_cut = loop {
            tokio::select! {
                () = &mut reading, if !drained => drained = true,
                () = &mut serving, if has_proxy => {}
                _ = supervisor.wait() => break false,
                () = &mut until => break true,
            }
        };
        let mut ending = spawn_blocking(|| running.end());
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
        let refused_hosts = proxy.refused();
        Ok(CommandEnd { end, was_cut, refused_hosts })
    }
}

/// Returns the setup of a command whose programs are to find the proxy around it.
pub(in crate::tools) fn through_proxy(setup: &CommandSetup) -> CommandSetup {
    let mut setup = setup.clone();
    setup.env.retain(|(name, _)| !is_about_proxy(name));
    setup.env.extend(proxy_variables());
    setup
}

/// Whether a variable says how programs reach a proxy.
fn is_about_proxy(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with("_proxy")
}

/// Returns the variables by which programs find the proxy around commands.
fn proxy_variables() -> Vec<(String, String)> {
    let (address, port) = (format!("http://{PROXY_ADDRESS}"), PROXY_ADDRESS.port());
    let (host, own) = (PROXY_ADDRESS.ip(), "localhost,127.0.0.1,::1");
    let java: Vec<String> = ["http", "https"]
        .map(|kind| format!("-D{kind}.proxyHost={host} -D{kind}.proxyPort={port}"))
        .into();
    [
        ("HTTP_PROXY", &*address),
        ("http_proxy", &address),
        ("HTTPS_PROXY", &address),
        ("https_proxy", &address),
        ("NO_PROXY", own),
        ("no_proxy", own),
        // Programs that look at none of these by themselves.
        ("NODE_USE_ENV_PROXY", "1"),
        ("JAVA_TOOL_OPTIONS", &java.join(" ")),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Reads until the pipe has no writer.
async fn read_all(mut pipe: PipeReader, readable: ReadableFd, output: &mut impl OutputSink) {
    let mut buffer = vec![0; 65_536];
    loop {
        let read = readable.read(|| pipe.read(&mut buffer));
        let read = match output.line_due() {
            None => read.await,
            Some(due) => match timeout_at(due.into(), read).await {
                Ok(read) => read,
                Err(_) => {
                    output.show_line();
                    continue;
                }
            },
        };
        match read {
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
