//! The state of a session at a terminal, and the handlers of its events.

use super::approvals::{Answerer, Approvals};
use super::budget_watch::BudgetWatch;
use super::ending::EndReason;
use super::model_switch::ModelSwitch;
use super::options::LeadOptions;
use super::quiescence::{is_at_rest, reminders_until};
use super::runtime::LeadRuntime;
use super::shell_command::{ShellCommands, ShellEvent};
use super::slash_command::{TypedLine, View as SlashView, parse, render};
use super::spawn_requests;
use super::startup::Startup;
use super::team_view::TeamView;
use super::turn_changes::TurnChanges;
use crate::agent::event::{Event, MachineEvent};
use crate::agent::progress::Progress;
use crate::app::context::Context;
use crate::app::permissions::{RuleInForce, settings_in_force};
use crate::app::stop_members::still_alive;
use crate::os::{Clock, SystemClock, signals::SignalEvent};
use crate::protocol::ctrl_c::{CtrlC, CtrlCAction, LeadActivity};
use crate::protocol::ladder::Urgency;
use crate::settings::model::credential_variables;
use crate::settings::models::KnownModels;
use crate::ui::console::{Console, Input, QuestionPrompt};
use crate::ui::{sanitize::sanitize, view::View};
use crate::undo::plan::UndoPlan;
use crate::wire::price_list::PriceList;
use crate::wire::{AgentName, message::Message};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The time within which a second Ctrl-D confirms the first.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Session {
    pub(super) runtime: LeadRuntime,
    pub(super) console: Console,
    pub(super) approvals: Approvals,
    pub(super) view: View,
    budgets: BudgetWatch,
    keys: CtrlC,
    is_in_turn: bool,
    /// The number of prompts that are not in the conversation yet. The agent may report that it is idle meanwhile.
    waiting_prompts: usize,
    /// Whether input has ended without a quit, so that the session ends when all work is done.
    ends_at_rest: bool,
    /// The question that has the input.
    prompt: Option<QuestionPrompt>,
    /// The results of commands that run in the background, for the person.
    pub(super) outcomes: UnboundedSender<String>,
    /// The prices by which the tokens of other conversations are counted.
    pub(super) prices: PriceList,
    pub(super) models: ModelSwitch,
    /// The permission rules of the settings.
    pub(super) rules_of_settings: Vec<RuleInForce>,
    /// An undo that the person has seen and not confirmed.
    pub(super) planned_undo: Option<UndoPlan>,
    team_view: TeamView,
    pub(super) turn_changes: TurnChanges,
    pub(super) shell: ShellCommands,
    /// The last text about the end of the session.
    closing_text: String,
    /// The time at which Ctrl-D was pressed while agents were at work.
    asked_to_leave: Option<Instant>,
}

impl Session {
    /// Creates the session, and the receiver of the results of its background commands.
    pub(super) fn new(
        context: &Context,
        runtime: LeadRuntime,
        console: Console,
        budgets: BudgetWatch,
        options: &LeadOptions,
        conversation: Option<String>,
    ) -> (Self, UnboundedReceiver<String>) {
        let (outcomes, results) = unbounded_channel();
        let nobody = "standard input is not a terminal, so no question can be asked";
        let is_attended = std::io::stdin().is_terminal();
        let answerer = if is_attended { Answerer::Person } else { Answerer::NoOne(nobody) };
        let LeadOptions { settings, credentials, .. } = options;
        let session = Self {
            approvals: Approvals::new(runtime.clone(), answerer),
            runtime,
            console,
            view: context.view(),
            budgets,
            keys: CtrlC::default(),
            is_in_turn: false,
            waiting_prompts: 0,
            ends_at_rest: false,
            prompt: None,
            planned_undo: None,
            prices: KnownModels::of(settings, credentials).prices(),
            models: ModelSwitch::new(options, conversation),
            rules_of_settings: settings_in_force(context, settings),
            outcomes,
            team_view: TeamView::default(),
            turn_changes: TurnChanges::new(SystemClock.now()),
            shell: ShellCommands::new(),
            closing_text: String::new(),
            asked_to_leave: None,
        };
        (session, results)
    }

    pub(super) fn open(
        &mut self,
        options: LeadOptions,
        startup: &Startup,
        unshown_mail: Vec<Message>,
    ) {
        let LeadOptions { request, model, is_fallback_model, .. } = options;
        let mut notice = model.spec().notice.map(|it| format!("{it}\n")).unwrap_or_default();
        if is_fallback_model && !notice.is_empty() {
            let variables = credential_variables();
            let how = format!("set {variables}, or give --model PROVIDER/NAME");
            notice = format!("{notice}No model is configured: {how}.\n");
        }
        let workspace = self.runtime.team().workspace().display().to_string();
        let workspace = sanitize(&workspace);
        let mode = self.runtime.approval_queue.mode.get();
        let meaning = mode.meaning();
        let found = startup.found.as_ref().map(|found| format!("{found}\n")).unwrap_or_default();
        self.console.print(&format!(
            "{notice}model {model}  workspace {workspace}\n\
             mode {mode}: {meaning}\n\
             {found}Type what you want done; /help explains, /quit ends the team.\n"
        ));
        for message in unshown_mail {
            self.console.show(Progress::Mail(Box::new(message)));
        }
        if let Some(prompt) = request.prompt {
            self.prompt(prompt);
        }
    }

    pub(super) fn show_end(&mut self, reason: EndReason) {
        if let EndReason::Budget(limit) = reason {
            self.console.print(&format!("{limit} are used: the team is stopped"));
        }
        self.console.set_question(None);
        self.show_awaited();
    }

    /// Shows which agents the end waits for.
    pub(super) fn show_awaited(&mut self) {
        let team = self.runtime.team();
        let alive = still_alive(team, &self.runtime.supervisor.its_own());
        let text = match alive.as_str() {
            "" => "Stopping …".to_owned(),
            alive => format!("Stopping the team, waiting for {alive} … (Ctrl-C: now)"),
        };
        if text != self.closing_text {
            self.console.set_closing(&text);
            self.closing_text = text;
        }
    }

    /// Handles Ctrl-C while the team is being stopped.
    pub(super) fn raise_urgency(&mut self) {
        let pressed = self.keys.pressed(LeadActivity::Stopping, SystemClock.monotonic());
        let is_last = pressed == CtrlCAction::StopAtOnce;
        self.runtime.supervisor.raise_urgency(if is_last { Urgency::AtOnce } else { Urgency::Now });
    }

    fn is_busy(&self) -> bool {
        self.is_in_turn || self.waiting_prompts > 0
    }

    fn run_shell(&mut self, command: String) {
        let shown = command.clone();
        if self.shell.start(&self.runtime, command) {
            self.team_view.set_shell(Some(&shown));
            self.show_team();
        } else {
            self.console.notice("another command runs; Ctrl-C kills it");
        }
    }

    pub(super) fn on_shell(&mut self, event: ShellEvent) {
        match event {
            ShellEvent::Line(line) => self.console.show(Progress::ToolOutput(line)),
            ShellEvent::Ended { command, output } => {
                self.shell.ended(&command, &output);
                self.end_shell(&sanitize(&output));
                let note = "(the lead sees this with your next prompt)";
                self.console.print(&self.view.palette.dim(note));
            }
        }
    }

    fn end_shell(&mut self, text: &str) {
        self.team_view.set_shell(None);
        self.console.show(Progress::ToolOutput(String::new()));
        self.console.print(text);
        self.show_team();
    }

    fn prompt(&mut self, text: String) {
        let text = self.shell.with_reports(text);
        // From now on Ctrl-C interrupts the turn, even before the agent reports its start.
        self.waiting_prompts += 1;
        self.runtime.send(MachineEvent::Prompt(text).into());
    }

    /// Shows the question in front, once, and gives it the input.
    pub(super) fn show_question(&mut self) {
        let view = View::new(self.view.palette, self.console.width());
        let has_pane = self.console.has_pane();
        let text = self.approvals.next_to_show(&view, has_pane);
        if text.is_some() {
            // The result of the last answer is printed above the next question.
            while let Some(notice) = self.approvals.waiting_notice() {
                self.console.print(&notice);
            }
        }
        let prompt = self.undo_prompt().or_else(|| self.approvals.prompt());
        if prompt != self.prompt {
            self.console.offer_text(self.approvals.editable_text());
            self.prompt.clone_from(&prompt);
            self.console.set_question(prompt);
        }
        // A person who reads the question must find it at the input.
        if let Some(text) = text {
            self.console.print(&text);
        }
    }

    pub(super) fn on_progress(&mut self, progress: Progress) -> Option<EndReason> {
        if let Progress::Asked(question) = progress {
            self.approvals.on_own(*question);
            return None;
        }
        self.team_view.on_progress(&progress);
        if let Progress::Mail(message) = &progress {
            self.approvals.on_mail(message);
            spawn_requests::on_mail(&self.runtime, message);
        }
        if let Progress::PromptsTaken(taken) = progress {
            // They are taken by the turn that runs, or by one that starts with them.
            self.waiting_prompts = self.waiting_prompts.saturating_sub(taken);
            self.is_in_turn = true;
        } else if matches!(progress, Progress::TurnStarted { .. }) {
            self.is_in_turn = true;
        } else if progress == Progress::Idle {
            self.is_in_turn = false;
        }
        if let Progress::TurnEnded { .. } = progress {
            self.turn_changes.turn_ended(self.runtime.team(), &AgentName::lead());
        }
        let end = self.budgets.count(&progress);
        let changes_work = matches!(
            progress,
            Progress::TurnStarted { .. }
                | Progress::ToolStarted { .. }
                | Progress::ToolEnded(_)
                | Progress::TurnEnded { .. }
        );
        self.console.show(progress);
        if changes_work {
            self.show_team();
        }
        end
    }

    fn show_team(&mut self) {
        let questions = self.approvals.count();
        let ended = self.team_view.show(self.runtime.team(), questions, &self.console);
        for agent in ended {
            self.turn_changes.turn_ended(self.runtime.team(), &agent);
        }
    }

    pub(super) async fn on_input(&mut self, input: Input) -> Option<EndReason> {
        match input {
            Input::Interrupt => self.on_ctrl_c(),
            Input::EndOfInput => self.on_end_of_input(),
            Input::Closed => Some(EndReason::Terminated),
            Input::Answer { key, question: Some(id) } if self.is_about_undo(&id) => {
                self.answer_undo(&id, &key.to_string()).await;
                None
            }
            Input::Answer { key, question } => {
                self.approvals.answer_key(key, question.as_deref());
                None
            }
            Input::Reply { question, text } => {
                if !self.answer_undo(&question, &text).await {
                    self.approvals.reply(&question, &text);
                }
                None
            }
            Input::PutOff(question) => {
                if !self.answer_undo(&question, "n").await {
                    self.approvals.put_off(&question);
                }
                None
            }
            Input::Escape if self.is_busy() => {
                self.interrupt_turn();
                None
            }
            Input::Escape => None,
            Input::Edited { id, text } => {
                self.approvals.on_edited(&id, text);
                None
            }
            Input::Line(line) if self.takes_plain_answer(&line).await => None,
            Input::Line(line) => self.on_line(&line).await,
        }
    }

    /// Takes a line as the answer to what is asked, where no pane tells apart what it was typed for.
    async fn takes_plain_answer(&mut self, line: &str) -> bool {
        if self.console.has_pane() {
            return false;
        }
        let is_command = line.trim_start().starts_with(['/', '@']);
        if let Some(prompt) = self.undo_prompt().filter(|_| !is_command) {
            return self.answer_undo(&prompt.id, line).await;
        }
        self.approvals.answer_line(line)
    }

    /// Ends the session at Ctrl-D: at once if nobody works, else at the second.
    fn on_end_of_input(&mut self) -> Option<EndReason> {
        if !std::io::stdin().is_terminal() {
            self.ends_at_rest = true;
            return None;
        }
        let now = SystemClock.monotonic();
        let is_again = self.asked_to_leave.is_some_and(|at| now - at < CONFIRM_WITHIN);
        self.show_team();
        let at_work = self.team_view.at_work();
        if is_again || at_work.is_empty() || !self.console.has_pane() {
            return Some(EndReason::Done);
        }
        let verb = if at_work.len() == 1 { "is" } else { "are" };
        let who = at_work.join(", ");
        self.console.notice(&format!("{who} {verb} at work; Ctrl-D again stops the team"));
        self.asked_to_leave = Some(now);
        None
    }

    async fn on_line(&mut self, line: &str) -> Option<EndReason> {
        match parse(line) {
            TypedLine::Blank => {
                self.approvals.ask_again();
            }
            TypedLine::Requests(None) => self.console.print(&self.approvals.list()),
            TypedLine::Requests(Some(number)) => {
                let text = self.approvals.show_all(number);
                self.console.print(&text);
            }
            TypedLine::Answer { number, said } => self.approvals.answer_number(number, said),
            TypedLine::Shell(command) => self.run_shell(command),
            TypedLine::Prompt(text) => self.prompt(text),
            TypedLine::Quit => return Some(EndReason::Done),
            TypedLine::Stop(name) => self.stop_member(name),
            TypedLine::StopJob(id) => self.console.print(&self.runtime.stop_job(&id)),
            TypedLine::Interrupt(name) => self.interrupt_member(&name),
            TypedLine::Undo { name, to_turn } => self.plan_undo(&name, to_turn).await,
            TypedLine::Turns(name) => self.list_turns(&name),
            TypedLine::Diff(name) => self.show_diff(name).await,
            TypedLine::Direct { to, text } => self.send(to, text).await,
            TypedLine::Show(what) => self.show(&what),
            TypedLine::Mode(mode) => {
                self.approvals.set_mode(mode);
                self.console.print(&format!("mode {mode}: {}", mode.meaning()));
            }
            TypedLine::Model(name) => self.use_model(&name).await,
            TypedLine::Sessions => self.list_sessions(),
            TypedLine::Next(next) => return self.go_on_with(next),
            TypedLine::Permissions => self.show_permissions(),
            TypedLine::Revoke(number) => self.revoke(number).await,
            TypedLine::Compact => self.runtime.send(Event::Compact),
            TypedLine::Invalid(why) => self.console.print(&why),
        }
        None
    }

    fn show(&self, what: &SlashView) {
        let width = self.console.width();
        self.console.print(&render(what, &self.runtime.tasks, &self.view, width));
        if *what == SlashView::Cost {
            self.console.print(&self.budgets.lines().join("\n"));
        }
    }

    /// Runs the periodic checks: shows changes and warnings, and returns the reason if the session is over.
    pub(super) fn check(&mut self, deadline: Option<Instant>) -> Option<EndReason> {
        self.show_team();
        if let Some(warning) = self.budgets.warning() {
            self.console.show(Progress::Warning(warning.clone()));
            self.runtime.send(MachineEvent::Notice(warning).into());
        }
        self.approvals.refresh();
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Some(EndReason::Timeout);
        }
        let is_at_rest = || is_at_rest(&self.runtime, reminders_until(deadline));
        let is_done = || self.ends_at_rest && !self.is_busy() && is_at_rest();
        self.budgets.spent().or_else(|| is_done().then_some(EndReason::Done))
    }

    pub(super) fn on_signal(&mut self, signal: SignalEvent) -> Option<EndReason> {
        if signal == SignalEvent::Interrupt { self.on_ctrl_c() } else { Some(signal.into()) }
    }

    fn on_ctrl_c(&mut self) -> Option<EndReason> {
        if self.shell.kill() {
            self.end_shell("killed");
            return None;
        }
        let activity = if self.is_busy() { LeadActivity::Turn } else { LeadActivity::Idle };
        match self.keys.pressed(activity, SystemClock.monotonic()) {
            CtrlCAction::InterruptTurn => self.interrupt_turn(),
            CtrlCAction::Warn => self.console.notice("Ctrl-C once more stops the team"),
            CtrlCAction::SayHowToQuit => self.console.notice("to quit: /quit, or Ctrl-D"),
            CtrlCAction::StopTeam | CtrlCAction::StopNow | CtrlCAction::StopAtOnce => {
                return Some(EndReason::Interrupted);
            }
        }
        None
    }

    fn interrupt_turn(&mut self) {
        self.runtime.send(MachineEvent::Interrupt.into());
    }
}
