//! The state of a session in an editor, and what it reports.

use super::calls::{AgentCall, fenced};
use super::client::Client;
use super::commands::{self, Commands};
use super::mail::mail_text;
use super::members::{MemberNews, Members};
use super::prompts::{HeldAnswers, OpenPrompts, PromptAnswer};
use super::questions::AskedQuestions;
use super::replay::replay;
use crate::acp::served::updates::{
    self, CallContent, CallReport, CallStatus, EntryStatus, Speaker, chunk,
};
use crate::agent::event::MachineEvent;
use crate::agent::progress::{CallEnd, EndedCall, Progress};
use crate::app::lead::approvals::{Answerer, Approvals};
use crate::app::lead::budget_watch::BudgetWatch;
use crate::app::lead::ending::EndReason;
use crate::app::lead::quiescence::is_at_rest;
use crate::app::lead::runtime::LeadRuntime;
use crate::app::lead::spawn_requests;
use crate::os::{Clock, SystemClock};
use crate::store::tail::Tail;
use crate::wire::message::{Message, Outcome};
use crate::wire::permission::PermissionMode;
use crate::wire::task::{Task, TaskStatus};
use crate::wire::transcript::Line;
use crate::wire::{AgentName, WallTime};
use serde_json::Value;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The bytes of a transcript that are told to the editor again: its end.
const REPLAYED_BYTES: u64 = 16 * 1024 * 1024;

/// The number of checks between two looks at the task list.
const CHECKS_PER_PLAN: u32 = 4;

/// The turn of the lead's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeadTurn {
    None,
    Running,
    /// Its prompts are answered, and the agent looks for mail before it is idle.
    Ended,
}

pub(super) struct EditorSession {
    pub(super) client: Rc<Client>,
    /// The id of the conversation.
    pub(super) id: String,
    pub(super) runtime: LeadRuntime,
    pub(super) approvals: Approvals,
    pub(super) budgets: BudgetWatch,
    pub(super) commands: Commands,
    pub(super) prompts: OpenPrompts,
    held: HeldAnswers,
    pub(super) questions: AskedQuestions,
    pub(super) turn: LeadTurn,
    /// Whether the team is being stopped, which interrupts the turn.
    pub(super) is_ending: bool,
    /// The mode of which the editor knows.
    pub(super) told_mode: PermissionMode,
    /// Whether the conversation has a title.
    pub(super) has_title: bool,
    members: Members,
    /// The calls of which the editor knows, by their ids there.
    known_calls: BTreeSet<String>,
    running: Vec<RunningCall>,
    messages: TextMessages,
    /// The reason for which the model call is late, as it was told.
    told_delay: Option<String>,
    told_plan: Vec<(String, EntryStatus)>,
    checks: u32,
}

/// The ids of the messages of text. The pieces of the model's text have one id, up to the next other report.
#[derive(Default)]
struct TextMessages {
    /// The number of the last message.
    last: u64,
    /// The kind of text of the model that continues it; `None` if it is complete.
    open: Option<Speaker>,
}

impl TextMessages {
    /// Returns the id of a message that is complete.
    fn single(&mut self) -> String {
        self.last += 1;
        self.open = None;
        format!("message-{}", self.last)
    }

    /// Returns the id of the model's text of this kind.
    fn continued(&mut self, speaker: Speaker) -> String {
        if self.open != Some(speaker) {
            self.last += 1;
            self.open = Some(speaker);
        }
        format!("message-{}", self.last)
    }

    /// Ends the model's text. Returns whether there was some.
    fn close(&mut self) -> bool {
        self.open.take() == Some(Speaker::Agent)
    }
}

/// The call of the lead that runs.
struct RunningCall {
    id: String,
    tool: String,
    input: Value,
    /// The last line of its output, if the editor has not got it.
    output: Option<String>,
}

impl EditorSession {
    pub(super) fn new(
        client: Rc<Client>,
        id: String,
        runtime: LeadRuntime,
        budgets: BudgetWatch,
        commands: Commands,
        held: HeldAnswers,
    ) -> Self {
        Self {
            client,
            id,
            approvals: Approvals::new(runtime.clone(), Answerer::Person),
            told_mode: runtime.approval_queue.mode.get(),
            runtime,
            budgets,
            commands,
            prompts: OpenPrompts::default(),
            held,
            questions: AskedQuestions::default(),
            turn: LeadTurn::None,
            is_ending: false,
            has_title: false,
            members: Members::new(SystemClock.now()),
            known_calls: BTreeSet::new(),
            running: Vec::new(),
            messages: TextMessages::default(),
            told_delay: None,
            told_plan: Vec::new(),
            checks: 0,
        }
    }

    fn update(&self, update: &Value) {
        self.client.update(&self.id, update);
    }

    /// Tells the commands that a prompt may be.
    pub(super) fn tell_commands(&self) {
        self.update(&updates::commands(&commands::offered()));
    }

    /// Tells the conversation so far, or the end of a long one.
    pub(super) fn replay(&self) {
        let team = self.runtime.team();
        let mut tail = Tail::of_last(team.transcript(&AgentName::lead()), REPLAYED_BYTES);
        if tail.offset() > 0 {
            let text = "(The beginning of this long conversation is not shown.)\n\n";
            self.update(&chunk(Speaker::Agent, "past", text));
        }
        let lines = tail.read_new().unwrap_or_else(|why| {
            tracing::warn!(%why, "the conversation is not shown again");
            Vec::new()
        });
        let lines = lines.iter().filter_map(|line| Line::read(line));
        for told in replay(lines, team.workspace()) {
            self.update(&told);
        }
    }

    /// Tells the person something beside the text of the model, in Markdown.
    pub(super) fn tell(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let id = self.messages.single();
        self.update(&chunk(Speaker::Agent, &id, &format!("\n\n{}\n\n", text.trim())));
    }

    pub(super) fn tell_mail(&mut self, message: &Message) {
        self.tell(&mail_text(message).unwrap_or_default());
    }

    /// Tells a piece of what the model says or thinks.
    fn say(&mut self, speaker: Speaker, text: &str) {
        let id = self.messages.continued(speaker);
        self.update(&chunk(speaker, &id, text));
    }

    /// Reports a call; one of which the editor does not know yet as a new one.
    fn report(&mut self, mut report: CallReport) {
        self.messages.close();
        if report.status == Some(CallStatus::InProgress) && self.known_calls.contains(&report.id) {
            // The question about the call has told the rest, perhaps more of it.
            let CallReport { id, status, raw_input, .. } = report;
            report = CallReport { id, status, raw_input, ..CallReport::default() };
        }
        let is_new = self.known_calls.insert(report.id.clone());
        self.update(&report.update(is_new));
    }

    /// Answers prompts.
    pub(super) fn answer_all(&self, answers: Vec<PromptAnswer>) {
        for (id, answer) in answers {
            self.client.answer(&id, answer);
        }
    }

    /// Takes back what was prompted, and interrupts the turn, as a person at a terminal does with Esc.
    pub(super) fn cancel(&mut self) {
        let held = self.held.cancel();
        self.answer_all(held);
        if !self.prompts.is_empty() {
            self.prompts.cancel();
            self.runtime.send(MachineEvent::DropPrompts.into());
        } else if self.turn == LeadTurn::None {
            return;
        }
        self.runtime.send(MachineEvent::Interrupt.into());
    }

    /// Reports the progress of the lead's agent. Returns the reason if the session is over.
    pub(super) fn on_progress(&mut self, progress: Progress) -> Option<EndReason> {
        let end = self.budgets.count(&progress);
        match progress {
            Progress::Mail(message) => {
                self.approvals.on_mail(&message);
                spawn_requests::on_mail(&self.runtime, &message);
                // The sender's calls come before its report.
                self.tell_members();
                self.tell_mail(&message);
            }
            Progress::Asked(question) => self.approvals.on_own(*question),
            Progress::TurnStarted { .. } => self.turn = LeadTurn::Running,
            Progress::PromptsTaken(count) => self.prompts.take(count),
            Progress::PromptsDropped => {
                let dropped = self.prompts.dropped();
                self.answer_all(dropped);
            }
            Progress::Text(text) => self.say(Speaker::Agent, &text),
            Progress::Thought(text) => self.say(Speaker::Thought, &text),
            Progress::Retry { why, .. } => {
                let is_cut = self.messages.close();
                let void = if is_cut { "; the text above is void" } else { "" };
                self.tell_delay(&format!("The model call failed and is tried again: {why}{void}"));
            }
            Progress::Silent { why, .. } => {
                self.tell_delay(&format!("The model has not begun to answer: {why}"));
            }
            Progress::Answers => self.told_delay = None,
            Progress::MemberRetry { name, why } => {
                self.tell(&format!("**{name}** {why}; trying again"));
            }
            Progress::ContextUsed { tokens, limit } => {
                if let Some(limit) = limit {
                    self.update(&updates::usage(tokens, limit));
                }
            }
            Progress::ToolStarted { id, name, input, .. } => self.start_call(id, name, input),
            Progress::ToolOutput(line) => {
                // Calls with output run alone.
                if let [running] = self.running.as_mut_slice() {
                    running.output = Some(line).filter(|line| !line.is_empty());
                }
            }
            Progress::ToolEnded(ended) => self.end_call(&ended),
            // The call is shown once it begins, and a subagent is a part of its call.
            Progress::CallDraft(_) | Progress::Subagent { .. } => {}
            // The reason for the end of the session answers the prompts of this turn.
            Progress::TurnEnded { outcome: Outcome::Interrupted, .. } if self.is_ending => {}
            Progress::TurnEnded { outcome, text } => {
                self.messages.close();
                self.told_delay = None;
                self.turn = LeadTurn::Ended;
                let ended = self.prompts.end_turn(outcome, &text);
                if ended.is_empty() && outcome == Outcome::Failed {
                    self.tell(&format!("The lead's turn failed: {text}"));
                }
                let now = self.held.hold(ended);
                self.answer_all(now);
            }
            Progress::Idle => self.turn = LeadTurn::None,
            Progress::Warning(text) | Progress::Note(text) => self.tell(&text),
        }
        end
    }

    fn tell_delay(&mut self, text: &str) {
        if self.told_delay.as_deref() != Some(text) {
            self.tell(text);
            self.told_delay = Some(text.to_owned());
        }
    }

    fn start_call(&mut self, id: String, tool: String, input: Value) {
        let report = self.call(&id, &tool, &input).report(CallStatus::InProgress);
        self.report(report);
        self.running.push(RunningCall { id, tool, input, output: None });
    }

    fn call<'a>(&'a self, id: &'a str, tool: &'a str, input: &'a Value) -> AgentCall<'a> {
        let folder = self.runtime.team().workspace();
        AgentCall { teammate: None, id, tool, input, folder }
    }

    fn end_call(&mut self, ended: &EndedCall) {
        let EndedCall { id, name, end, content, changes } = ended;
        let at = self.running.iter().position(|running| running.id == *id);
        let running = at.map(|at| self.running.remove(at));
        let (tool, input) =
            running.map_or_else(|| (name.clone(), Value::Null), |it| (it.tool, it.input));
        let is_error = *end != CallEnd::Succeeded;
        let call = self.call(id, &tool, &input);
        let report = if self.known_calls.contains(&call.report_id()) {
            call.end(is_error, content, changes)
        } else {
            call.whole_end(false, is_error, content)
        };
        self.report(report);
    }

    /// Runs the periodic checks: tells changes of the team, and returns the reason if the session is over.
    pub(super) fn check(&mut self) -> Option<EndReason> {
        self.tell_output();
        self.tell_members();
        self.tell_mode();
        if self.checks.is_multiple_of(CHECKS_PER_PLAN) {
            self.tell_plan();
        }
        self.checks = self.checks.wrapping_add(1);
        if let Some(warning) = self.budgets.warning() {
            self.tell(&warning);
            self.runtime.send(MachineEvent::Notice(warning).into());
        }
        self.approvals.refresh();
        self.answer_held();
        self.budgets.spent()
    }

    /// Answers the prompts that wait for the team to be at rest.
    fn answer_held(&mut self) {
        if !self.held.is_empty() {
            let is_open = self.turn != LeadTurn::None || !self.prompts.is_empty();
            // A session of an editor goes on, so no prompt waits for a reminder.
            let is_at_rest = !is_open && is_at_rest(&self.runtime, WallTime::default());
            let due = self.held.check(is_at_rest);
            self.answer_all(due);
        }
    }

    /// Answers all prompts at the end of the session, for this reason.
    pub(super) fn answer_last(&mut self, why: &str) {
        let mut last = self.held.take();
        last.extend(self.prompts.end(why));
        self.answer_all(last);
    }

    fn tell_output(&mut self) {
        let [running] = self.running.as_mut_slice() else { return };
        let Some(line) = running.output.take() else { return };
        let report = CallReport {
            id: running.id.clone(),
            content: Some(vec![CallContent::Text(fenced(&line))]),
            ..CallReport::default()
        };
        self.update(&report.update(false));
    }

    /// Tells the news of the teammates.
    pub(super) fn tell_members(&mut self) {
        let team = self.runtime.team().clone();
        for news in self.members.look(&team) {
            match news {
                MemberNews::Told { name, text } => self.tell(&format!("**{name}** {text}")),
                MemberNews::Said { name, text } => {
                    let id = self.messages.single();
                    let text = format!("\n\n**{name}:** {}\n\n", text.trim());
                    self.update(&chunk(Speaker::Thought, &id, &text));
                }
                MemberNews::Call(report) => self.report(*report),
            }
        }
    }

    fn tell_mode(&mut self) {
        let mode = self.runtime.approval_queue.mode.get();
        if mode != self.told_mode {
            self.told_mode = mode;
            self.update(&updates::mode(mode.word()));
        }
    }

    /// Tells the task list as a plan, if it has changed.
    fn tell_plan(&mut self) {
        let Ok(tasks) = self.runtime.tasks.snapshot() else { return };
        let entries: Vec<_> = tasks.board.values().filter_map(|task| entry(task)).collect();
        if entries != self.told_plan {
            self.update(&updates::plan(&entries));
            self.told_plan = entries;
        }
    }

    /// Asks the editor the questions that it was not asked yet, and takes back those that are over.
    pub(super) fn ask_questions(&mut self) {
        while let Some(notice) = self.approvals.waiting_notice() {
            self.tell(&notice);
        }
        let queue = &self.approvals.queue;
        let is_open = |id: &str| queue.to_ask().any(|waiting| waiting.id() == id);
        self.questions.take_back(&self.client, is_open);
        let team = self.runtime.team().clone();
        let new: Vec<_> = queue
            .to_ask()
            .filter(|waiting| !self.questions.contains(waiting.id()))
            .map(|waiting| waiting.asked.clone())
            .collect();
        if !new.is_empty() {
            self.tell_members();
        }
        for request in new {
            self.messages.close();
            let known = &mut self.known_calls;
            let is_new = |id: &str| known.insert(id.to_owned());
            self.questions.ask(&self.client, &self.id, &team, &request, is_new);
        }
    }
}

/// Returns the entry of a task in the plan; `None` for one that is not to be done any more.
fn entry(task: &Task) -> Option<(String, EntryStatus)> {
    let (status, end) = match task.status {
        TaskStatus::Pending => (EntryStatus::Pending, ""),
        TaskStatus::InProgress => (EntryStatus::InProgress, ""),
        TaskStatus::Completed => (EntryStatus::Completed, ""),
        TaskStatus::Failed => (EntryStatus::Completed, " (failed)"),
        TaskStatus::Cancelled => return None,
    };
    let owner = task.owner.as_deref().map(|owner| format!("{owner}: ")).unwrap_or_default();
    Some((format!("{owner}{}{end}", task.subject), status))
}
