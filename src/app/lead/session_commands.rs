//! The commands of a session that change something: each runs in the background and prints its result.

use super::conversation::NextSession;
use super::ending::EndReason;
use super::session::Session;
use crate::app::permissions::{self, granted_in_force};
use crate::app::{interrupt, sessions, undo};
use crate::bus::Outgoing;
use crate::error::Failure;
use crate::os::spawn::spawn_local;
use crate::store::{asynchronous::offload, roster};
use crate::ui::console::{FoldedText, QuestionPrompt};
use crate::ui::question::{TypedAnswer, understand};
use crate::ui::{self, view::View};
use crate::undo::plan::UndoPlan;
use crate::undo::session_diff::AgentDiff;
use crate::wire::AgentName;
use std::rc::Rc;
use std::sync::Arc;

/// The id of the question that confirms an undo; no request of an agent has it.
const UNDO_QUESTION: &str = "undo";

impl Session {
    pub(super) async fn send(&self, to: String, text: String) {
        let bus = Arc::clone(&self.runtime.bus);
        let send = move || match bus.send(&AgentName::user(), &to, Outgoing::text(text)) {
            Ok(_) => format!("sent to {to}"),
            Err(why) => format!("nothing was sent: {why}; {}", why.hint()),
        };
        self.console.print(&offload(send).await);
    }

    /// Interrupts the turn of a teammate, which goes on running.
    pub(super) fn interrupt_member(&self, given: &str) {
        if given == "lead" {
            return self.console.print("the lead's own turn: Esc or Ctrl-C interrupts it");
        }
        let begun = interrupt::interrupt_beside(&self.runtime.bus, given, &self.outcomes);
        if let Err(why) = begun {
            self.console.print(&why.to_string());
        }
    }

    /// Stops a member in the background. A second `/stop` shortens the wait.
    pub(super) fn stop_member(&self, name: AgentName) {
        let roster = roster::read(self.runtime.team());
        if !roster.is_ok_and(|roster| roster.member(name.as_str()).is_some()) {
            let hint =
                if name.is_lead() { "/quit ends the lead" } else { "/team lists the members" };
            return self.console.print(&format!("there is no teammate {name}; {hint}"));
        }
        if self.runtime.supervisor.raise_urgency_of(&name) {
            return self.console.print(&format!("no longer waiting for {name}"));
        }
        self.console.print(&format!("stopping {name} … (/stop {name} again stops waiting)"));
        let (supervisor, outcomes) = (Rc::clone(&self.runtime.supervisor), self.outcomes.clone());
        spawn_local(async move {
            if let Some(outcome) = supervisor.stop_named(name, "the user stops you").await {
                // A session that ends meanwhile reports the outcome itself.
                let _unread = outcomes.send(format!("{} {}", outcome.name, outcome.words()));
            }
        });
    }

    /// Shows what an undo would do, and asks whether it is to be done.
    pub(super) async fn plan_undo(&mut self, name: &str, to_turn: Option<u64>) {
        let (team, given) = (self.runtime.team().clone(), name.to_owned());
        let make = move || {
            let agent = undo::agent(&team, &given)?;
            undo::plan(&team, &agent, to_turn)
        };
        let plan = match offload(make).await {
            Ok(plan) => plan,
            Err(why) => return self.console.print(&why.to_string()),
        };
        let view = View::new(self.view.palette, self.console.width());
        self.console.print(&ui::undo::plan(
            &plan,
            &undo::clone_folders(self.runtime.team()),
            &view,
        ));
        if plan.steps.is_empty() || !plan.refusals.is_empty() {
            let hint = format!("`team undo {name} --partial` takes back the others");
            let hint = if plan.steps.is_empty() { "nothing to take back" } else { &hint };
            return self.console.print(hint);
        }
        if !self.console.has_pane() {
            self.console.print("take this back? y or n");
        }
        self.planned_undo = Some(plan);
    }

    /// Lists the turns of an agent that can be taken back.
    pub(super) fn list_turns(&self, name: &str) {
        let team = self.runtime.team();
        let turns = undo::agent(team, name).and_then(|agent| undo::turns(team, &agent));
        let workspace = team.workspace();
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        self.console.print(&match turns {
            Ok(turns) => {
                ui::undo::turns(&turns, &workspace, &undo::clone_folders(team), &self.view)
            }
            Err(why) => why.to_string(),
        });
    }

    /// Returns the question that confirms an undo, if one is planned.
    pub(super) fn undo_prompt(&self) -> Option<QuestionPrompt> {
        let plan = self.planned_undo.as_ref()?;
        let count = plan.steps.len();
        let files = if count == 1 { "file" } else { "files" };
        Some(QuestionPrompt {
            id: UNDO_QUESTION.into(),
            name: "undo".into(),
            color: String::new(),
            what: format!("take back {count} {files} of {}", plan.agent),
            choices: vec![("y", "yes".into()), ("n", "no".into())],
            position: (1, 1),
        })
    }

    pub(super) fn is_about_undo(&self, question: &str) -> bool {
        question == UNDO_QUESTION && self.planned_undo.is_some()
    }

    /// Takes the answer to the question about an undo; returns `false` if it is for another question.
    pub(super) async fn answer_undo(&mut self, question: &str, line: &str) -> bool {
        if question != UNDO_QUESTION {
            return false;
        }
        let Some(plan) = self.planned_undo.take() else { return true };
        match understand(line) {
            Some(TypedAnswer::Yes) => {
                let bus = Arc::clone(&self.runtime.bus);
                let done = offload(move || undone(&bus, &plan)).await;
                self.console.print(&done.unwrap_or_else(|why| why.to_string()));
            }
            Some(TypedAnswer::No(_)) => self.console.print("nothing was taken back"),
            Some(
                TypedAnswer::Always(_)
                | TypedAnswer::Instead(_)
                | TypedAnswer::Edit
                | TypedAnswer::ShowWhole,
            )
            | None => {
                self.planned_undo = Some(plan);
                self.console.print("y takes it back, n does not");
            }
        }
        true
    }

    /// Lists the conversations of the lead, with the way back to each.
    pub(super) fn list_sessions(&self) {
        self.console.print(&match sessions::list(self.runtime.team(), &self.prices) {
            Ok(list) if list.is_empty() => "There is no earlier session.".into(),
            Ok(list) => {
                sessions::table(&list, self.view.palette, self.console.width())
                    + "/resume ID resumes one of them"
            }
            Err(why) => why.to_string(),
        });
    }

    /// Ends this session and goes on with another conversation. Returns the reason for the end, if there is one to go on
    /// with.
    pub(super) fn go_on_with(&self, next: NextSession) -> Option<EndReason> {
        let next = match next {
            NextSession::New => NextSession::New,
            NextSession::Resume(id) => match sessions::chosen(self.runtime.team(), &id) {
                Ok(found) if found.is_current => {
                    self.console.print("this is the current session");
                    return None;
                }
                Ok(found) => NextSession::Resume(found.id),
                Err(why) => {
                    self.console.print(&why.to_string());
                    return None;
                }
            },
        };
        self.runtime.next_session.set(Some(next));
        Some(EndReason::Done)
    }

    /// Goes on with this conversation on another model.
    pub(super) async fn use_model(&self, given: &str) {
        let text = match self.models.use_model(given, &self.runtime).await {
            Ok(model) => {
                let notice = model.spec().notice.map(|it| format!("{it}\n")).unwrap_or_default();
                format!("{notice}model {model} from the next model call on; teammates keep theirs")
            }
            Err(why) => why.to_string(),
        };
        self.console.print(&text);
    }

    /// Shows the permission rules in force.
    pub(super) fn show_permissions(&self) {
        let granted = granted_in_force(&self.runtime.rules.now().rules);
        let rules: Vec<_> = self.rules_of_settings.iter().cloned().chain(granted).collect();
        let table = permissions::table(&rules, self.view.palette);
        self.console.print(&(table + "/permissions revoke N revokes the rule of an answer"));
    }

    /// Takes a rule back, so that its calls ask again.
    pub(super) async fn revoke(&self, number: u64) {
        let gone = self.runtime.revoke(&[number]).await;
        let text: Vec<String> =
            gone.iter().map(|rule| format!("{} asks again", rule.rule)).collect();
        self.console.print(&match text.join("\n") {
            none if none.is_empty() => {
                format!("no answer has made a rule {number}; /permissions lists them")
            }
            text => text,
        });
    }

    /// Shows what an agent has changed in the turn that it has ended.
    pub(super) fn show_changes(&self, mut diff: AgentDiff) {
        if diff.agent.is_lead() {
            // The changes of its file tools were shown when they were made.
            diff.files.retain(|file| file.is_by_command);
        }
        if diff.files.is_empty() {
            return;
        }
        let folders = undo::clone_folders(self.runtime.team());
        let row = format!("± {}: {}", diff.agent, ui::undo::in_one_line(&diff.files, &folders));
        let view = View::new(self.view.palette, self.console.width());
        self.console
            .print_folded(FoldedText { row, text: ui::undo::numbered(&[diff], &folders, &view) });
    }

    /// Shows what agents have changed since the session began.
    pub(super) async fn show_diff(&self, name: Option<String>) {
        let team = self.runtime.team().clone();
        let view = View::new(self.view.palette, self.console.width());
        let show = move || {
            let agents = name.map(|name| undo::agent(&team, &name)).transpose()?;
            let agents: Vec<AgentName> = agents.into_iter().collect();
            Ok::<_, Failure>(ui::undo::numbered(
                &undo::session_diff(&team, &agents)?,
                &undo::clone_folders(&team),
                &view,
            ))
        };
        self.console.print(&offload(show).await.unwrap_or_else(|why| why.to_string()));
    }
}

fn undone(bus: &crate::bus::Bus, plan: &UndoPlan) -> Result<String, Failure> {
    let (undone, told) = undo::apply(bus, plan, false)?;
    let count = undone.files.len();
    let files = if count == 1 { "file is" } else { "files are" };
    let agent = &plan.agent;
    Ok(format!(
        "{count} {files} as before; {told}; /undo {agent} {} brings the changes back",
        undone.turn
    ))
}
