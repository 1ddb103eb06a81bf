//! The conversation of an interactive lead with its user: what each event shows and does.

use super::approvals::{Answerer, Approvals};
use super::budget_watch::BudgetWatch;
use super::ending::EndReason;
use super::options::LeadOptions;
use super::quiescence::is_at_rest;
use super::runtime::LeadRuntime;
use super::slash_command::{self, TypedLine, View as SlashView};
use super::{startup::Startup, team_changes::TeamChanges};
use crate::agent::{event::MachineEvent, progress::Progress};
use crate::bus::Outgoing;
use crate::os::{Clock, SystemClock, signals::SignalEvent};
use crate::protocol::ctrl_c::{CtrlC, CtrlCAction, LeadActivity};
use crate::protocol::ladder::Urgency;
use crate::settings::model::{ModelChoice, credential_variables};
use crate::store::roster;
use crate::supervise::stop::StopOutcome;
use crate::ui::console::{Console, Input};
use crate::ui::view::View;
use crate::wire::{AgentName, message::Message};
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;

/// Columns of a view when the terminal does not say how wide it is.
const DEFAULT_COLUMNS: usize = 120;

/// An interactive session.
pub(super) struct Session {
    pub(super) runtime: LeadRuntime,
    pub(super) console: Console,
    pub(super) approvals: Approvals,
    view: View,
    budgets: BudgetWatch,
    keys: CtrlC,
    is_busy: bool,
    /// Input has ended, but the user did not quit: the session ends when all work is done.
    ends_at_rest: bool,
    /// Request id of the question on the screen.
    shown_question: Option<String>,
    /// Receives how a member ended that the user stopped.
    outcomes: UnboundedSender<StopOutcome>,
    changes: TeamChanges,
}

impl Session {
    /// Makes a session that has shown nothing yet.
    pub(super) fn new(
        view: View,
        runtime: LeadRuntime,
        console: Console,
        budgets: BudgetWatch,
        outcomes: UnboundedSender<StopOutcome>,
    ) -> Self {
        let nobody = Answerer::Nobody("standard input is no terminal, so nobody can be asked");
        let answerer = if std::io::stdin().is_terminal() { Answerer::Person } else { nobody };
        Self {
            approvals: Approvals::new(runtime.clone(), answerer),
            runtime,
            console,
            view,
            budgets,
            keys: CtrlC::default(),
            is_busy: false,
            ends_at_rest: false,
            shown_question: None,
            outcomes,
            changes: TeamChanges::default(),
        }
    }

    /// Greets the user, shows old mail, and sends the first prompt.
    pub(super) fn open(
        &mut self,
        options: LeadOptions,
        startup: &Startup,
        unshown_mail: Vec<Message>,
    ) {
        let LeadOptions { request, model, is_fallback_model, .. } = options;
        let notice = model_notice(&model, is_fallback_model);
        let workspace = self.runtime.team().workspace().display();
        let mode = self.runtime.approval_queue.mode();
        let meaning = mode.meaning();
        let found = startup.found.as_ref().map(|found| format!("{found}\n")).unwrap_or_default();
        self.console.print(&format!(
            "{notice}model {model}  workspace {workspace}\n\
             mode {mode}: {meaning}\n\
             {found}Type what you want done; /help explains, /quit ends the team.\n"
        ));
        for message in unshown_mail {
            self.console.show(&Progress::Mail(Box::new(message)));
        }
        if let Some(prompt) = request.prompt {
            self.prompt(prompt);
        }
    }

    /// Says that the team is stopped.
    pub(super) fn say_goodbye(&self, reason: EndReason) {
        if let EndReason::Budget(limit) = reason {
            self.console.print(&format!("{limit} are used: the team is stopped"));
        }
        self.console.print(if self.runtime.supervisor.has_children() {
            "stopping the team (Ctrl-C: now) …"
        } else {
            "stopping …"
        });
    }

    /// Handles Ctrl-C while the team is being stopped.
    pub(super) fn hurry(&mut self) {
        let pressed = self.keys.pressed(LeadActivity::Stopping, SystemClock.monotonic());
        let is_last = pressed == CtrlCAction::StopAtOnce;
        self.runtime.supervisor.hurry(if is_last { Urgency::AtOnce } else { Urgency::Now });
    }

    fn prompt(&mut self, text: String) {
        // Ctrl-C means the turn from now on, before the agent reports that it began.
        self.is_busy = true;
        self.runtime.send(MachineEvent::Prompt(text).into());
    }

    /// Shows the question that is to be answered next, once.
    pub(super) fn show_question(&mut self) {
        let id = self.approvals.front().map(|asked| asked.question.request_id.clone());
        if self.shown_question == id {
            return;
        }
        // The result of the last answer stands above the next question.
        while let Some(notice) = self.approvals.waiting_notice() {
            self.console.print(&notice);
        }
        if let Some(asked) = self.approvals.front() {
            let view = View::new(self.view.palette, self.console.width());
            self.console.print(&self.approvals.render(asked, &view));
        }
        self.shown_question = id;
    }

    /// Handles progress of the lead's own agent.
    pub(super) fn on_progress(&mut self, progress: &Progress) -> Option<EndReason> {
        if let Progress::Asked(question) = progress {
            self.approvals.on_own((**question).clone());
            return None;
        }
        self.console.show(progress);
        if let Progress::Mail(message) = progress {
            self.approvals.on_mail(message);
        }
        self.is_busy |= matches!(progress, Progress::TurnStarted { .. });
        self.is_busy &= *progress != Progress::Idle;
        self.budgets.count(progress)
    }

    /// Handles input of the user.
    pub(super) fn on_input(&mut self, input: Input) -> Option<EndReason> {
        match input {
            Input::Interrupt => self.on_ctrl_c(),
            Input::EndOfInput => {
                self.ends_at_rest = true;
                std::io::stdin().is_terminal().then_some(EndReason::Done)
            }
            Input::Closed => Some(EndReason::Terminated),
            Input::Answer(key) => {
                self.approvals.answer_key(key);
                None
            }
            Input::Line(line) if self.approvals.answer_line(&line) => None,
            Input::Line(line) => self.on_line(&line),
        }
    }

    fn on_line(&mut self, line: &str) -> Option<EndReason> {
        match slash_command::parse(line) {
            TypedLine::Blank => {}
            TypedLine::Prompt(text) => self.prompt(text),
            TypedLine::Quit => return Some(EndReason::Done),
            TypedLine::Stop(name) => self.stop_member(name),
            TypedLine::Direct { to, text } => self.send(&to, text),
            TypedLine::Show(what) => self.show(&what),
            TypedLine::Mode(mode) => {
                self.approvals.set_mode(mode);
                self.console.print(&format!("mode {mode}: {}", mode.meaning()));
            }
            TypedLine::Invalid(why) => self.console.print(&why),
        }
        None
    }

    fn send(&self, to: &str, text: String) {
        let sent = self.runtime.bus.send(&AgentName::user(), to, Outgoing::text(text));
        self.console.print(&match sent {
            Ok(_) => format!("sent to {to}"),
            Err(why) => format!("nothing was sent: {why}; {}", why.hint()),
        });
    }

    fn show(&self, what: &SlashView) {
        let width = self.console.width().unwrap_or(DEFAULT_COLUMNS);
        let text = slash_command::render(what, &self.runtime.tasks, &self.view, width);
        self.console.print(&text);
        if *what == SlashView::Cost {
            self.console.print(&self.budgets.lines().join("\n"));
        }
    }

    /// Does what is done at intervals: shows changes, warns, and checks whether the session is over.
    pub(super) fn check(&mut self, deadline: Option<Instant>) -> Option<EndReason> {
        self.changes.show(self.runtime.team(), &mut self.console);
        if let Some(warning) = self.budgets.warning() {
            self.console.show(&Progress::Warning(warning.clone()));
            self.runtime.send(MachineEvent::Notice(warning).into());
        }
        self.approvals.refresh();
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Some(EndReason::Timeout);
        }
        let is_done = || self.ends_at_rest && !self.is_busy && is_at_rest(&self.runtime);
        self.budgets.spent().or_else(|| is_done().then_some(EndReason::Done))
    }

    /// Handles a signal.
    pub(super) fn on_signal(&mut self, signal: SignalEvent) -> Option<EndReason> {
        if signal == SignalEvent::Interrupt { self.on_ctrl_c() } else { Some(signal.into()) }
    }

    fn on_ctrl_c(&mut self) -> Option<EndReason> {
        let activity = if self.is_busy { LeadActivity::Turn } else { LeadActivity::Idle };
        match self.keys.pressed(activity, SystemClock.monotonic()) {
            CtrlCAction::InterruptTurn => {
                self.runtime.send(MachineEvent::Interrupt.into());
                self.console.print("interrupted; Ctrl-C again within 2 s stops the team");
            }
            CtrlCAction::SayHowToQuit => self.console.print("to quit: /quit, or Ctrl-D"),
            CtrlCAction::StopTeam | CtrlCAction::StopNow | CtrlCAction::StopAtOnce => {
                return Some(EndReason::Interrupted);
            }
        }
        None
    }

    /// Stops a member beside the session; a second `/stop` shortens the wait.
    fn stop_member(&self, name: AgentName) {
        let roster = roster::read(self.runtime.team());
        if !roster.is_ok_and(|roster| roster.member(name.as_str()).is_some()) {
            let hint =
                if name.is_lead() { "/quit ends the lead" } else { "/team shows who is there" };
            return self.console.print(&format!("there is no teammate {name}; {hint}"));
        }
        if self.runtime.supervisor.hurry_member(&name) {
            return self.console.print(&format!("{name} is not waited for any longer"));
        }
        self.console.print(&format!("stopping {name} … (/stop {name} again does not wait)"));
        let (supervisor, outcomes) = (Rc::clone(&self.runtime.supervisor), self.outcomes.clone());
        tokio::task::spawn_local(async move {
            if let Some(outcome) = supervisor.stop_named(name, "the user stops you").await {
                // A session that ends meanwhile reports the outcome itself.
                let _unread = outcomes.send(outcome);
            }
        });
    }
}

/// What the user must know about the model before the first prompt.
fn model_notice(model: &ModelChoice, is_fallback: bool) -> String {
    let Some(notice) = model.spec().notice else { return String::new() };
    if !is_fallback {
        return format!("{notice}\n");
    }
    let variables = credential_variables();
    format!("{notice}\nNo model is configured: set {variables}, or give --model PROVIDER/NAME.\n")
}
