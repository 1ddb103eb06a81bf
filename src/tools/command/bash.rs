//! The `bash` tool: runs one shell command in the workspace. No process of the command outlives it.

use super::environment::CommandEnvironment;
use super::output::CappedOutput;
use super::output_store::OutputStore;
use super::shell;
use crate::os::command::CommandSetup;
use crate::os::pidfd::ExitKind;
use crate::protocol::permission::PermissionSubject;
use crate::tools::call::{Call, Tool, ToolError, ToolFuture, arguments};
use crate::tools::registry::Registration;
use crate::wire::tool::{
    Audience, Parameter, ParameterType, Repetition, SubjectArgument, ToolSpec,
};
use serde::Deserialize;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const TOOL: Registration = Registration {
    spec: &ToolSpec {
        name: "bash",
        aliases: &["Bash"],
        description: "Runs a shell command in the workspace and returns what it prints (standard output \
                      and error together; the middle of more than 50,000 characters is cut, and the \
                      whole kept in a file that the result names). There is no terminal and no input. \
                      Everything the command starts, also in the background, is ended when it returns \
                      or after `timeout` seconds (default 120, at most 3600), or once it is more than \
                      512 processes.",
        parameters: &[
            Parameter::required("command", ParameterType::Text, "The command, as typed in bash."),
            Parameter::optional(
                "timeout",
                ParameterType::Count { most: Some(MAX_TIMEOUT_SECONDS) },
                "Seconds after which it is ended.",
            ),
        ],
        compact: Some(Audience::Both),
        subject: SubjectArgument::Command("command"),
        repetition: Repetition::Failures,
        ..ToolSpec::STRICT
    },
    build: |parts| {
        let (environment, output_store) = (parts.environment.clone(), parts.output_store.clone());
        Some(Box::new(Bash::new(parts.workspace.clone(), environment, output_store)))
    },
};

/// Seconds that a command may take by default.
const DEFAULT_TIMEOUT_SECONDS: u64 = 120;
/// The most seconds that a call may ask for.
const MAX_TIMEOUT_SECONDS: u64 = 3600;
/// The longest argument in bytes that Linux passes to a program, without its final NUL.
const MAX_COMMAND_BYTES: usize = 131_071;

/// Runs shell commands.
#[derive(Debug)]
pub(super) struct Bash {
    folder: PathBuf,
    setup: CommandSetup,
    output_store: OutputStore,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    timeout: Option<u64>,
}

impl Bash {
    /// A shell in this folder; long output goes to the output store.
    pub(super) fn new(
        folder: PathBuf,
        environment: CommandEnvironment,
        output_store: OutputStore,
    ) -> Self {
        Self { folder, setup: environment.setup(), output_store }
    }

    async fn run(&self, command: &str, limit: Duration) -> io::Result<String> {
        let output = CappedOutput::stored_in(&self.output_store);
        let done = shell::run(command, &self.folder, &self.setup, None, limit, output).await?;
        Ok(report(done.output, done.end, done.timed_out.then_some(limit)))
    }
}

/// The output and, below it, how the command ended unless it succeeded.
fn report(mut output: String, end: ExitKind, timed_out: Option<Duration>) -> String {
    let note = match (timed_out, end) {
        (Some(limit), _) => {
            let seconds = limit.as_secs();
            format!("[timed out after {seconds} s; everything it started was ended]")
        }
        (None, ExitKind::Code(0)) if output.is_empty() => "(no output)".to_owned(),
        (None, ExitKind::Code(0)) => return output,
        (None, ExitKind::Code(code)) => format!("[exit code {code}]"),
        (None, ExitKind::Signal(signal)) => format!("[ended by signal {signal}]"),
    };
    if !output.is_empty() && !output.ends_with('\n') {
        output.push('\n');
    }
    output + &note
}

impl Tool for Bash {
    fn subject(&self, call: &Call) -> Result<PermissionSubject, ToolError> {
        parse(call).map(|(command, _)| PermissionSubject::Command(command))
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let (command, limit) = parse(call)?;
            self.run(&command, Duration::from_secs(limit)).await.map_err(|why| {
                ToolError::Reply(format!(
                    "the command could not be run in {}: {why}; try again, or tell the lead if it \
                     keeps failing",
                    self.folder.display()
                ))
            })
        })
    }
}

/// The command of a call and its time limit in seconds.
fn parse(call: &Call) -> Result<(String, u64), ToolError> {
    let Arguments { command, timeout } = arguments(call)?;
    let limit = timeout.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    match problem(&command, limit) {
        Some(why) => Err(ToolError::Reply(why)),
        None => Ok((command, limit)),
    }
}

/// Why a call cannot run at all, and what to do instead.
fn problem(command: &str, limit: u64) -> Option<String> {
    if command.trim().is_empty() {
        return Some("the command is empty; give the command to run".into());
    }
    if command.contains('\0') {
        return Some("the command contains a NUL character; remove it".into());
    }
    if command.len() > MAX_COMMAND_BYTES {
        return Some(format!(
            "the command has {} bytes, {MAX_COMMAND_BYTES} are allowed; put it into a file with \
             write_file and run that",
            command.len()
        ));
    }
    if limit == 0 || limit > MAX_TIMEOUT_SECONDS {
        return Some(format!("timeout is in seconds, from 1 to {MAX_TIMEOUT_SECONDS}; correct it"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::limits::COMMAND_PROCESSES;

    #[test]
    fn the_description_states_the_limits() {
        let limits = [DEFAULT_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS, COMMAND_PROCESSES as u64];
        for limit in limits {
            assert!(TOOL.spec.description.contains(&format!(" {limit}")), "{limit}");
        }
    }
}
