//! Hooks: commands of the user that run at an event of the team and may refuse it.
//!
//! A hook gets the event as JSON on its standard input and runs supervised, as every command does. Exit code 2
//! refuses the event, with standard error as the reason. Every other failure is only logged, so that a broken hook
//! does not stop a team.

use super::call::ToolError;
use super::command::output::CappedOutput;
use super::command::shell::{self, CommandResult};
use super::leased_paths::read_only_paths;
use crate::os::command::{self, CommandSetup};
use crate::os::pidfd::ExitKind;
use crate::os::{Clock, SystemClock};
use crate::store::TeamDir;
use crate::store::asynchronous::offload;
use crate::wire::AgentName;
use crate::wire::hook::{Hook, HookEvent};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The exit code by which a hook refuses an event.
const REFUSES: i32 = 2;

/// The maximum number of characters of a reason that are sent to the model.
const MAX_REASON_CHARS: usize = 4000;

#[derive(Debug)]
pub(crate) struct Hooks {
    pub(crate) list: Vec<Hook>,
    /// The agent whose events run them.
    pub(crate) me: AgentName,
    pub(crate) workspace: PathBuf,
    pub(crate) setup: CommandSetup,
    /// The team whose leases make paths read-only for hooks behind walls; `None` in a clone.
    pub(crate) leases: Option<TeamDir>,
}

impl Hooks {
    pub(crate) fn are_there_for(&self, event: HookEvent) -> bool {
        self.list.iter().any(|hook| hook.event == event)
    }

    /// Runs the hooks of an event, one after the other, until one refuses. The error is the reply to the model.
    pub(crate) async fn ask(&self, event: HookEvent, fields: Value) -> Result<(), ToolError> {
        let mut told = json!({
            "event": event.word(), "agent": self.me.as_str(),
            "workspace": self.workspace.to_string_lossy(), "at": SystemClock.now(),
        });
        if let (Value::Object(told), Value::Object(fields)) = (&mut told, fields) {
            told.extend(fields);
        }
        let told = told.to_string();
        for hook in self.list.iter().filter(|hook| hook.event == event) {
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

    /// Returns the setup of a hook that starts now.
    async fn setup_now(&self) -> CommandSetup {
        let mut setup = self.setup.clone();
        let has_mounts = setup.walls.as_ref().is_some_and(|walls| walls.has_namespaces());
        if let Some(dir) = self.leases.clone().filter(|_| has_mounts) {
            let (me, workspace) = (self.me.clone(), self.workspace.clone());
            setup.read_only = offload(move || read_only_paths(&dir, &me, &workspace)).await;
        }
        setup
    }

    /// Runs one hook; returns its reason if it refuses.
    async fn run(&self, hook: &Hook, told: &str) -> Option<String> {
        let limit = Duration::from_secs(hook.timeout);
        // Only standard error is read.
        let line = format!("exec >/dev/null\n{}", hook.command);
        let done = async {
            let (input, output) = (command::input(told)?, CappedOutput::default());
            let setup = self.setup_now().await;
            shell::run(&line, &self.workspace, &setup, Some(input), limit, output).await
        };
        let (event, command) = (hook.event.word(), hook.command.as_str());
        match done.await {
            Ok(CommandResult { end: ExitKind::Code(0), timed_out: false, .. }) => {
                tracing::info!(event, command, "a hook ran");
            }
            Ok(CommandResult {
                output, end: ExitKind::Code(REFUSES), timed_out: false, ..
            }) => {
                let reason: String = output.trim().chars().take(MAX_REASON_CHARS).collect();
                return Some(if reason.is_empty() { "no reason was given".into() } else { reason });
            }
            Ok(CommandResult { output, end, timed_out, .. }) => {
                tracing::warn!(event, command, %end, timed_out, output, "a hook failed");
            }
            Err(why) => tracing::warn!(event, command, %why, "a hook could not be run"),
        }
        None
    }
}
