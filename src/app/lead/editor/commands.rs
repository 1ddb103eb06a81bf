//! The commands that a prompt of the editor may be: a line that begins with `/`, or `@NAME TEXT` to a teammate.
//!
//! They are those of the session at a terminal, without what the editor itself does: sessions, questions, the shell.

use super::calls::fenced;
use crate::app::interrupt;
use crate::app::lead::model_switch::ModelSwitch;
use crate::app::lead::runtime::LeadRuntime;
use crate::app::lead::slash_command::{TypedLine, parse, render};
use crate::app::permissions::{self, RuleInForce, granted_in_force};
use crate::bus::Outgoing;
use crate::os::spawn::spawn_local;
use crate::store::{asynchronous::offload, roster};
use crate::ui::help::COMMANDS;
use crate::ui::view::View;
use crate::wire::AgentName;
use crate::wire::permission::PermissionMode;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// The commands that are offered.
const OFFERED: [&str; 12] = [
    "/team",
    "/tasks",
    "/inbox",
    "/log",
    "/cost",
    "/mode",
    "/model",
    "/permissions",
    "/compact",
    "/interrupt",
    "/stop",
    "/help",
];

/// Returns the offered commands: name without its slash, meaning, arguments.
pub(super) fn offered() -> Vec<(&'static str, &'static str, &'static str)> {
    let is_offered = |name: &str| OFFERED.contains(&name);
    COMMANDS
        .iter()
        .filter(|command| is_offered(command.name))
        .map(|command| (command.name.trim_start_matches('/'), command.about, command.usage))
        .collect()
}

/// The work of a prompt.
#[derive(Debug, PartialEq)]
pub(super) enum PromptWork {
    /// The text is for the lead's model.
    Model(String),
    /// The command was carried out, with this text for the person.
    Told(String),
    /// The mode is to be changed.
    Mode(PermissionMode),
}

/// The parts that commands need.
pub(super) struct Commands {
    pub(super) runtime: LeadRuntime,
    pub(super) models: ModelSwitch,
    pub(super) rules_of_settings: Vec<RuleInForce>,
    pub(super) view: View,
    /// The results of commands that go on in the background.
    pub(super) outcomes: UnboundedSender<String>,
}

impl Commands {
    /// Carries out what a person has typed. `budgets` are the lines about the budgets.
    pub(super) async fn run(&self, text: String, budgets: impl Fn() -> Vec<String>) -> PromptWork {
        if !text.trim_start().starts_with(['/', '@', '!']) {
            return PromptWork::Model(text);
        }
        PromptWork::Told(match parse(&text) {
            TypedLine::Prompt(_) | TypedLine::Blank => return PromptWork::Model(text),
            TypedLine::Mode(mode) => return PromptWork::Mode(mode),
            TypedLine::Show(what) => {
                let shown = render(&what, &self.runtime.tasks, &self.view, None);
                fenced(&[vec![shown], budgets_of(&what, budgets)].concat().join("\n"))
            }
            TypedLine::Direct { to, text } => self.send(to, text).await,
            TypedLine::Stop(name) => self.stop(name),
            TypedLine::StopJob(id) => self.runtime.stop_job(&id),
            TypedLine::Interrupt(name) => self.interrupt(&name),
            TypedLine::Model(name) => match self.models.use_model(&name, &self.runtime).await {
                Ok(model) => {
                    format!("model {model} from the next model call on; teammates keep theirs")
                }
                Err(why) => why.to_string(),
            },
            TypedLine::Permissions => self.permissions(),
            TypedLine::Revoke(number) => self.revoke(number).await,
            TypedLine::Compact => {
                self.runtime.send(crate::agent::event::Event::Compact);
                String::new()
            }
            TypedLine::Invalid(why) => why,
            TypedLine::Shell(_) => {
                "run commands in the editor's terminal, or ask the lead to".into()
            }
            TypedLine::Requests(_) | TypedLine::Answer { .. } => {
                "the editor asks the open questions; `team requests` in a terminal lists them"
                    .into()
            }
            TypedLine::Undo { .. } | TypedLine::Turns(_) => {
                "`team undo` in a terminal lists and takes back changes".into()
            }
            TypedLine::Diff(_) => {
                "`team diff` in a terminal shows the changes of the session".into()
            }
            TypedLine::Sessions | TypedLine::Next(_) | TypedLine::Quit => {
                "the editor begins, resumes and ends sessions".into()
            }
        })
    }

    async fn send(&self, to: String, text: String) -> String {
        let bus = Arc::clone(&self.runtime.bus);
        let send = move || match bus.send(&AgentName::user(), &to, Outgoing::text(text)) {
            Ok(_) => format!("sent to {to}"),
            Err(why) => format!("nothing was sent: {why}; {}", why.hint()),
        };
        offload(send).await
    }

    fn stop(&self, name: AgentName) -> String {
        let roster = roster::read(self.runtime.team());
        if !roster.is_ok_and(|roster| roster.member(name.as_str()).is_some()) {
            return format!("there is no teammate {name}; /team lists the members");
        }
        if self.runtime.supervisor.raise_urgency_of(&name) {
            return format!("no longer waiting for {name}");
        }
        let told = format!("stopping {name} … (/stop {name} again stops waiting)");
        let (supervisor, outcomes) = (Rc::clone(&self.runtime.supervisor), self.outcomes.clone());
        spawn_local(async move {
            if let Some(outcome) = supervisor.stop_named(name, "the user stops you").await {
                // A session that has ended reports the outcome no more.
                let _unread = outcomes.send(format!("{} {}", outcome.name, outcome.words()));
            }
        });
        told
    }

    fn interrupt(&self, given: &str) -> String {
        if given == AgentName::lead().as_str() {
            return "the lead's own turn: cancel the prompt".into();
        }
        match interrupt::interrupt_beside(&self.runtime.bus, given, &self.outcomes) {
            Ok(name) => format!("interrupting {name} …"),
            Err(why) => why.to_string(),
        }
    }

    fn permissions(&self) -> String {
        let granted = granted_in_force(&self.runtime.rules.now().rules);
        let rules: Vec<_> = self.rules_of_settings.iter().cloned().chain(granted).collect();
        let table = permissions::table(&rules, self.view.palette);
        fenced(&(table + "/permissions revoke N revokes the rule of an answer"))
    }

    async fn revoke(&self, number: u64) -> String {
        let gone = self.runtime.revoke(&[number]).await;
        let text: Vec<String> =
            gone.iter().map(|rule| format!("{} asks again", rule.rule)).collect();
        if text.is_empty() {
            return format!("no answer has made a rule {number}; /permissions lists them");
        }
        text.join("\n")
    }
}

/// Returns the lines about the budgets for the view of the costs, none for the others.
fn budgets_of(
    what: &crate::app::lead::slash_command::View,
    budgets: impl Fn() -> Vec<String>,
) -> Vec<String> {
    let is_cost = *what == crate::app::lead::slash_command::View::Cost;
    if is_cost { budgets() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_offered_command_is_one_of_the_terminal() {
        assert_eq!(offered().len(), OFFERED.len());
        assert!(
            offered().iter().all(|(name, about, _)| !name.starts_with('/') && !about.is_empty())
        );
    }
}
