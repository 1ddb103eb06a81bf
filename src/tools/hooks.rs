//! Commands of the user that run when something happens in the team, and may refuse it.
//!
//! A hook gets the event as JSON on its standard input and runs under a guard as any command does. Exit code
//! 2 refuses, with what it wrote to standard error as the reason; every other failure is only logged, so
//! that a broken hook does not stop a team.

use super::ToolError;
use super::environment::CommandEnvironment;
use super::output::Capped;
use super::shell::{self, Done};
use crate::os::command::{self, CommandSetup};
use crate::os::pidfd::ExitKind;
use crate::os::{Clock, SystemClock};
use crate::wire::AgentName;
use crate::wire::hook::{Hook, HookEvent};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The exit code that refuses.
const REFUSES: i32 = 2;

/// Characters of a reason that the model is told.
const LONGEST_REASON: usize = 4000;

/// The hooks of one process.
#[derive(Debug)]
pub(crate) struct Hooks {
    known: Vec<Hook>,
    me: AgentName,
    workspace: PathBuf,
    setting: CommandSetup,
}

impl Hooks {
    /// Hooks that run in this workspace for what this agent does.
    pub(crate) fn new(
        hooks: Vec<Hook>,
        me: AgentName,
        workspace: PathBuf,
        environment: CommandEnvironment,
    ) -> Self {
        Self { known: hooks, me, workspace, setting: environment.setting() }
    }

    /// All of them, for those who work by the same ones.
    pub(crate) fn list(&self) -> Vec<Hook> {
        self.known.clone()
    }

    /// Whether anything runs at this event.
    pub(crate) fn are_there_for(&self, event: HookEvent) -> bool {
        self.known.iter().any(|hook| hook.event == event)
    }

    /// Runs the hooks of an event, one after the other, until one refuses.
    ///
    /// # Errors
    /// One refused; the error is what the model is told.
    pub(crate) async fn ask(&self, event: HookEvent, fields: Value) -> Result<(), ToolError> {
        let mut told = json!({
            "event": event.word(), "agent": self.me.as_str(),
            "workspace": self.workspace,
            "at": SystemClock.now(),
        });
        if let (Value::Object(told), Value::Object(fields)) = (&mut told, fields) {
            told.extend(fields);
        }
        let told = told.to_string();
        for hook in self.known.iter().filter(|hook| hook.event == event) {
            if let Some(reason) = self.run(hook, &told).await {
                tracing::info!(event = event.word(), command = hook.command, "a hook refused");
                return Err(ToolError::Reply(format!(
                    "refused by a hook of the user ({}): {reason}",
                    event.word()
                )));
            }
        }
        Ok(())
    }

    /// Why one hook refuses, if it does.
    async fn run(&self, hook: &Hook, told: &str) -> Option<String> {
        let limit = Duration::from_secs(hook.timeout);
        // Only what it says of errors is of interest.
        let line = format!("exec >/dev/null\n{}", hook.command);
        let done = match command::input(told) {
            Ok(input) => {
                let output = Capped::default();
                shell::run(&line, &self.workspace, &self.setting, Some(input), limit, output).await
            }
            Err(why) => Err(why),
        };
        let (event, command) = (hook.event.word(), hook.command.as_str());
        match done {
            Ok(Done { end: ExitKind::Code(0), timed_out: false, .. }) => {
                tracing::info!(event, command, "a hook ran");
            }
            Ok(Done { output, end: ExitKind::Code(REFUSES), timed_out: false }) => {
                let reason: String = output.trim().chars().take(LONGEST_REASON).collect();
                return Some(if reason.is_empty() { "no reason was given".into() } else { reason });
            }
            Ok(Done { output, end, timed_out }) => {
                tracing::warn!(event, command, ?end, timed_out, output, "a hook failed");
            }
            Err(why) => tracing::warn!(event, command, %why, "a hook could not be run"),
        }
        None
    }
}
