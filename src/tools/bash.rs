//! The `bash` tool: one shell command in the workspace, of which nothing is left when it returns.

use super::environment::CommandEnvironment;
use super::output::Capped;
use super::output_store::OutputStore;
use super::{Call, Tool, ToolError, ToolFuture, arguments, shell};
use crate::os::command::CommandSetup;
use crate::os::pidfd::ExitKind;
use crate::os::process_limit;
use crate::protocol::permission::PermissionSubject;
use crate::wire::chat::ToolSpec;
use serde::Deserialize;
use serde_json::json;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Seconds a command may take unless the call says otherwise.
const USUAL_TIMEOUT: u64 = 120;
/// Seconds a call may ask for.
const LONGEST_TIMEOUT: u64 = 3600;
/// Longest argument that Linux hands to a program, its final NUL not counted.
const LONGEST_COMMAND: usize = 131_071;

/// Runs shell commands.
#[derive(Debug)]
pub(crate) struct Bash {
    folder: PathBuf,
    setting: CommandSetup,
    output_store: OutputStore,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    timeout: Option<u64>,
}

impl Bash {
    /// A shell in this folder; long output is kept.
    pub(crate) fn new(
        folder: PathBuf,
        environment: CommandEnvironment,
        output_store: OutputStore,
    ) -> Self {
        Self { folder, setting: environment.setting(), output_store }
    }

    async fn run(&self, command: &str, limit: Duration) -> io::Result<String> {
        let done = {
            let output = Capped::kept_by(&self.output_store);
            shell::run(command, &self.folder, &self.setting, None, limit, output).await?
        };
        Ok(report(done.output, done.end, done.timed_out.then_some(limit)))
    }
}

/// The output and, below it, how the command ended if not well.
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
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "bash".into(),
            description: format!(
                "Runs a shell command in the workspace and returns what it prints (standard output and \
                 error together; the middle of more than 50,000 characters is cut, and the whole kept \
                 in a file that the result names). There is no terminal and no input. Everything the command starts, also in the background, is \
                 ended when it returns or after `timeout` seconds (default {USUAL_TIMEOUT}, at most \
                 {LONGEST_TIMEOUT}), or once it is more than {} processes.",
                process_limit::LIMIT
            ),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "The command, as typed in bash."},
                    "timeout": {
                        "type": "integer", "minimum": 1, "maximum": LONGEST_TIMEOUT,
                        "description": "Seconds after which it is ended."
                    }
                },
                "required": ["command"],
                "additionalProperties": false
            }),
        }
    }

    fn subject(&self, call: &Call) -> Result<PermissionSubject, ToolError> {
        understand(call).map(|(command, _)| PermissionSubject::Command(command))
    }

    fn call<'a>(&'a self, call: &'a Call) -> ToolFuture<'a> {
        Box::pin(async move {
            let (command, limit) = understand(call)?;
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

/// The command of a call and the seconds it may take.
fn understand(call: &Call) -> Result<(String, u64), ToolError> {
    let Arguments { command, timeout } = arguments(call)?;
    let limit = timeout.unwrap_or(USUAL_TIMEOUT);
    match unfit(&command, limit) {
        Some(why) => Err(ToolError::Reply(why)),
        None => Ok((command, limit)),
    }
}

/// Why a call cannot be run at all, and what to do instead.
fn unfit(command: &str, limit: u64) -> Option<String> {
    if command.trim().is_empty() {
        return Some("the command is empty; give the command to run".into());
    }
    if command.contains('\0') {
        return Some("the command contains a NUL character; remove it".into());
    }
    if command.len() > LONGEST_COMMAND {
        return Some(format!(
            "the command has {} bytes, {LONGEST_COMMAND} are allowed; put it into a file with \
             write_file and run that",
            command.len()
        ));
    }
    if limit == 0 || limit > LONGEST_TIMEOUT {
        return Some(format!("timeout is in seconds, from 1 to {LONGEST_TIMEOUT}; correct it"));
    }
    None
}
