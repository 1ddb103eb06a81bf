//! Commands of the person at the lead's prompt (`!COMMAND`). The next prompt tells the model what they printed.

use super::runtime::LeadRuntime;
use crate::os::spawn::spawn_local;
use crate::tools::command::{OutputStore, run_for_person};
use crate::wire::AgentName;
use std::rc::Rc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// The command that runs, and what the last ones have printed since the last prompt.
pub(super) struct ShellCommands {
    running: Option<JoinHandle<()>>,
    /// Texts for the model, one for each command.
    reports: Vec<String>,
    events: UnboundedSender<ShellEvent>,
    unread: UnboundedReceiver<ShellEvent>,
}

pub(super) enum ShellEvent {
    /// The newest line of output.
    Line(String),
    /// The end of a command, with its output or the reason for which it could not run.
    Ended { command: String, output: String },
}

impl ShellCommands {
    pub(super) fn new() -> Self {
        let (events, unread) = unbounded_channel();
        Self { running: None, reports: Vec::new(), events, unread }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Starts a command in the workspace, with the user's rights. Returns `false` if another one runs.
    pub(super) fn start(&mut self, runtime: &LeadRuntime, command: String) -> bool {
        if self.is_running() {
            return false;
        }
        let setup = runtime.supervisor.setup_of_person();
        let (team, events) = (runtime.team().clone(), self.events.clone());
        let lines = events.clone();
        let output_store = OutputStore {
            dir: team.clone(),
            name: AgentName::user(),
            // The person has run this command: nothing of its output is hidden from the person.
            redact: Rc::new(|text| (text, String::new())),
            clone: None,
            // A session that has ended shows no lines any more.
            show_line: Some(Rc::new(move |line: &str| {
                lines.send(ShellEvent::Line(line.to_owned())).ok();
            })),
        };
        self.running = Some(spawn_local(async move {
            let run = run_for_person(&command, team.workspace(), &setup, &output_store).await;
            let output = run.unwrap_or_else(|why| format!("the command could not be run: {why}"));
            events.send(ShellEvent::Ended { command, output }).ok();
        }));
        true
    }

    /// Kills the running command, with all of its processes. Returns whether there was one.
    pub(super) fn kill(&mut self) -> bool {
        let running = self.running.take();
        running.iter().for_each(JoinHandle::abort);
        running.is_some()
    }

    pub(super) async fn next(&mut self) -> ShellEvent {
        match self.unread.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// Notes the end of a command for the next prompt.
    pub(super) fn ended(&mut self, command: &str, output: &str) {
        self.running = None;
        self.reports
            .push(format!("I ran `{command}`. It printed:\n```\n{}\n```", output.trim_end()));
    }

    /// Returns the prompt with the reports about the commands before it.
    pub(super) fn with_reports(&mut self, prompt: String) -> String {
        if self.reports.is_empty() {
            return prompt;
        }
        format!("{}\n\n{prompt}", std::mem::take(&mut self.reports).join("\n\n"))
    }
}
