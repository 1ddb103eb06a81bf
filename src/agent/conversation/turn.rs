//! The state of a turn, and its transitions. Each transition returns the next phase of the turn, or its end. [`running`] has
//! those around calls that run.

mod running;

use super::compact::{Compacted, CompactionFailure};
use super::event::{CallVerdict, HostAction, TurnAction, TurnEffect};
use super::loop_detector::LoopDetector;
use super::memory::call_of;
use crate::agent::progress::{CallEnd, EndedCall, Progress};
use crate::llm::ModelError;
use crate::tools::{Call, ToolOutput, signal};
use crate::wire::activity::Activity;
use crate::wire::chat::{Reply, StopReason, Usage};
use crate::wire::message::Outcome;
use crate::wire::permission::{Decision, DecisionOutcome, PROGRAM, Question, QuestionKind};
use crate::wire::tool::Signal;
use crate::wire::transcript::Entry;
use std::collections::VecDeque;
use std::ops::ControlFlow;

pub(crate) const MAX_PLANS: u32 = 5;

/// The number of model calls that a turn gets after the model refuses to shut down.
const EXTENSION_CALLS: u32 = 5;

/// The number of model calls that a turn gets once it must end.
const LAST_CALLS: u32 = 2;

/// The phase of a turn after a transition, or its end.
pub(super) type Next = ControlFlow<TurnEnd, TurnPhase>;

#[derive(Debug)]
pub(super) enum TurnPhase {
    TakingInput,
    /// Input is being taken in; then the turn ends, since the user interrupted it.
    Interrupted,
    /// The model is called, or the conversation is summarized.
    Thinking,
    /// The rules are being applied to a call.
    Judging(Call),
    /// The user, or the lead, is being asked about a call.
    Asking(Asking),
    /// Calls run at the same time.
    Acting(Vec<Call>),
    /// The last calls of the turn run; the others are answered with this text.
    ActingLast(Vec<Call>, &'static str),
}

/// A question about a call. Input is taken in meanwhile, since the answer may come with it.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) call: Call,
    pub(super) question: Box<Question>,
    pub(super) taking_input: bool,
    /// A decision that waits until the input is taken in, because nothing else is recorded until then.
    pub(super) settled: Option<Box<Decision>>,
}

#[derive(Debug)]
pub(crate) struct TurnEnd {
    pub(crate) outcome: Outcome,
    /// The number of model calls in the turn.
    pub(crate) rounds: u32,
    /// The model's last text, or the reason for which the turn ended.
    pub(crate) text: String,
    /// Whether the last tool call sent a message to the lead, so that a report would only repeat it.
    pub(crate) told_lead: bool,
    /// The reason for which the agent cannot continue, if it cannot.
    pub(crate) fatal: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct TurnState {
    pub(super) todo: Vec<TurnAction>,
    /// The maximum number of model calls.
    max_rounds: u32,
    /// Whether input was announced while it could not be taken in.
    pub(super) input_waits: bool,
    /// The number of messages since the last model call. The model must see them before it is idle.
    pub(super) unseen: usize,
    /// Calls of the last reply that have not been run yet.
    calls: VecDeque<Call>,
    /// Calls that may run, and wait for the verdict on the next call, which might run at the same time.
    ready: Vec<Call>,
    /// A call that may not run, and is dealt with after those that run now.
    held: Option<(Call, CallVerdict)>,
    /// The number of model calls so far.
    rounds: u32,
    text: String,
    /// Whether the last tool call sent a message to the lead, so that a report would only repeat it.
    told_lead: bool,
    /// The id of the last call that a person has approved, and so seen what it changes.
    approved_call: Option<String>,
    wants_idle: bool,
    /// Whether the conversation was summarized since the model last answered.
    room: Room,
    /// The number of plans of this turn that were not approved.
    plans_rejected: u32,
    loop_detector: LoopDetector,
    winding_down: Option<WindDown>,
    /// The model calls that are left after the model refused to end the turn. The deadlines of the shutdown stand.
    extension: Option<u32>,
}

/// Whether a summary has made room. A request that is refused for its length leads to one summary, not two.
#[derive(Debug, PartialEq, Eq, Default)]
enum Room {
    #[default]
    AsItWas,
    Made,
}

#[derive(Debug)]
struct WindDown {
    calls_left: u32,
    /// The note that goes to the model with its next call; `None` once it is recorded.
    note: Option<String>,
}

impl WindDown {
    fn new(note: String) -> Self {
        Self { calls_left: LAST_CALLS, note: Some(note) }
    }
}

pub(super) struct BreakOff {
    not_run: &'static str,
    running: &'static str,
    question: &'static str,
}

/// The texts for a turn that the user interrupts.
pub(super) const INTERRUPT: BreakOff = BreakOff {
    not_run: "not run: the user interrupted this turn",
    running: "interrupted by the user; what it had already done remains",
    question: "the turn was interrupted",
};

/// The texts for an agent that is stopped.
pub(super) const STOP: BreakOff = BreakOff {
    not_run: "not run: the agent was stopped",
    running: "ended before it was done: the agent was stopped; its effect is unknown",
    question: "the agent was stopped",
};

/// The note of a turn that the user interrupts while the model writes.
pub(super) const INTERRUPT_NOTE: &str = "the user interrupted this turn";

/// The cause for which a turn is cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakCause {
    Interrupted,
    Stopped,
}

/// Returns the cause if an entry is one that a turn leaves when it is cut short.
pub(crate) fn break_cause(entry: &Entry) -> Option<BreakCause> {
    let text = if let Entry::ToolResult { content, .. } = entry {
        Some(content.as_str())
    } else if let Entry::Decision(decision) = entry {
        decision.reason.as_deref()
    } else {
        None
    };
    let is_of = |how: &BreakOff| {
        text.is_some_and(|text| [how.not_run, how.running, how.question].contains(&text))
    };
    let is_noted = matches!(entry, Entry::Note { content } if content == INTERRUPT_NOTE);
    if is_noted || is_of(&INTERRUPT) {
        return Some(BreakCause::Interrupted);
    }
    is_of(&STOP).then_some(BreakCause::Stopped)
}

const WINDING_DOWN: &str = "not run: you are being shut down; finish with a short report";
const EXTENSION_OVER: &str = "your extra time is over, and you are still being shut down: answer \
                              with a short report of where things stand";
const CUT_OFF: &str = "not run: the answer was cut off at the token limit before this call was \
    complete; make the call shorter, or split it";
const CONTEXT_FULL: &str = "the conversation no longer fits the model's context window, not even summarized; start a new \
    one (a new lead without --resume begins with an empty conversation)";

impl TurnState {
    pub(super) fn new(max_rounds: u32, calls: VecDeque<Call>) -> Self {
        Self { max_rounds, calls, ..Self::default() }
    }

    pub(super) fn push(&mut self, action: impl Into<TurnAction>) {
        self.todo.push(action.into());
    }

    fn record(&mut self, entry: Entry) {
        self.push(TurnEffect::Record(entry));
    }

    pub(super) fn note(&mut self, content: String) {
        self.record(Entry::Note { content });
    }

    /// Shows and records the result of a call that has not read or written a file.
    pub(super) fn answer(&mut self, call: &Call, content: impl Into<String>, is_error: bool) {
        let end = if is_error { CallEnd::Failed } else { CallEnd::Succeeded };
        self.answer_with(call, ToolOutput::from(content.into()), end);
    }

    /// Shows and records the result of a call.
    fn answer_with(&mut self, call: &Call, output: ToolOutput, end: CallEnd) {
        let (name, tool_use_id) = (call.name.clone(), call.id.clone());
        let ToolOutput { text: content, files, images, changes, .. } = output;
        let is_known = self.approved_call.as_ref() == Some(&call.id);
        let changes = if is_known { Vec::new() } else { changes };
        let id = tool_use_id.clone();
        let shown = EndedCall { id, name, end, content: content.clone(), changes };
        self.push(TurnEffect::Show(Progress::ToolEnded(shown)));
        let is_error = end != CallEnd::Succeeded;
        self.record(Entry::tool_result(tool_use_id, content, is_error, files).with_images(images));
    }

    fn refuse_calls(&mut self, why: &str) {
        self.refuse_ready(why);
        let held = self.held.take().map(|(call, _)| call);
        for call in held.into_iter().chain(std::mem::take(&mut self.calls)) {
            self.answer(&call, why, true);
        }
    }

    fn refuse_ready(&mut self, why: &str) {
        for call in std::mem::take(&mut self.ready) {
            self.answer(&call, why, true);
        }
    }

    /// Refuses all calls but the answer to the shutdown request: a turn that winds down runs no other call.
    fn refuse_work(&mut self) {
        let is_answer = |call: &Call| signal(call) == Signal::AnswersShutdown;
        let (answers, work) = std::mem::take(&mut self.calls).into_iter().partition(is_answer);
        self.calls = work;
        self.refuse_calls(WINDING_DOWN);
        self.calls = answers;
    }

    pub(super) fn take_input(&mut self) -> Next {
        self.push(HostAction::TakeInput);
        self.input_waits = false;
        Next::Continue(TurnPhase::TakingInput)
    }

    /// Continues the turn after input was taken in.
    pub(super) fn use_input(&mut self, unseen: usize) -> Next {
        self.input_waits = false;
        self.unseen += unseen;
        if self.calls.is_empty() {
            return self.think();
        }
        self.push(HostAction::InputUsed);
        self.act()
    }

    /// Calls the model, unless the turn has reached a limit.
    fn think(&mut self) -> Next {
        self.push(HostAction::Doing(Activity::Model));
        self.push(HostAction::InputUsed);
        if let Some(calls_left) = self.extension {
            self.extension = calls_left.checked_sub(1);
            if self.extension.is_none() {
                self.winding_down = Some(WindDown::new(EXTENSION_OVER.to_owned()));
            }
        }
        if let Some(end) = &mut self.winding_down {
            let Some(calls_left) = end.calls_left.checked_sub(1) else {
                return self.end(Outcome::Interrupted);
            };
            end.calls_left = calls_left;
            if let Some(note) = end.note.take() {
                self.note(note);
            }
        }
        if let Some(why) = self.limit() {
            self.push(TurnEffect::Show(Progress::Note(why.clone())));
            self.text = why;
            return self.end(Outcome::Interrupted);
        }
        self.rounds += 1;
        (self.unseen, self.wants_idle) = (0, false);
        self.push(TurnEffect::CallModel);
        Next::Continue(TurnPhase::Thinking)
    }

    /// Returns the report of the turn if a limit forbids another model call.
    fn limit(&self) -> Option<String> {
        let why = self.loop_detector.end().or_else(|| {
            let rounds = self.rounds;
            let is_end = rounds >= self.max_rounds;
            is_end.then(|| format!("after {rounds} model calls in one turn (max_rounds)."))
        })?;
        Some(self.stopped(&format!("Stopped {why}")))
    }

    /// Returns the report of a turn that a limit ended.
    fn stopped(&self, why: &str) -> String {
        let last = if self.text.is_empty() { "none" } else { &self.text };
        format!("{why} Last text: {last}")
    }

    pub(super) fn replied(&mut self, reply: Reply) -> Next {
        let text = reply.text();
        let Reply { blocks, stop_reason, usage, model } = reply;
        self.calls = blocks.iter().filter_map(call_of).collect();
        self.push(HostAction::Count(usage));
        let reason = stop_reason.clone();
        self.record(Entry::Assistant { blocks, stop_reason, usage, model });
        if !text.is_empty() {
            self.text = text;
        }
        if reason == StopReason::ContextWindowExceeded && self.calls.is_empty() {
            return self.make_room();
        }
        // A reply shows that the conversation fits.
        self.room = Room::AsItWas;
        if !self.calls.is_empty() {
            if reason == StopReason::MaxTokens {
                self.refuse_calls(CUT_OFF);
            } else if self.winding_down.is_some() {
                self.refuse_work();
            }
            return self.act();
        }
        match reason {
            StopReason::PauseTurn => return self.take_input(),
            StopReason::MaxTokens => {
                self.text.push_str("\n[the answer was cut off at the token limit]");
            }
            StopReason::Refusal if self.text.is_empty() => {
                return self.fail("the model declined to answer".into());
            }
            StopReason::EndTurn
            | StopReason::StopSequence
            | StopReason::ToolUse
            | StopReason::ContextWindowExceeded
            | StopReason::Refusal
            | StopReason::Other(_) => {}
        }
        self.end(Outcome::Done)
    }

    /// Summarizes a conversation that was refused as too long. After one summary, the turn fails instead.
    pub(super) fn make_room(&mut self) -> Next {
        if std::mem::replace(&mut self.room, Room::Made) == Room::Made {
            return self.fail(CONTEXT_FULL.into());
        }
        self.push(TurnEffect::Compact);
        Next::Continue(TurnPhase::Thinking)
    }

    /// Records the summary, then makes the model call that the summary delayed.
    pub(super) fn compacted(&mut self, made: Compacted) -> Next {
        let note = "the conversation was long and is summarized now";
        self.push(HostAction::Count(made.usage));
        self.record(made.entry());
        self.push(TurnEffect::Sync);
        self.push(TurnEffect::Show(Progress::Note(note.into())));
        self.push(TurnEffect::CallModel);
        self.room = Room::Made;
        Next::Continue(TurnPhase::Thinking)
    }

    /// Goes on without a summary if the conversation still fits.
    pub(super) fn not_compacted(&mut self, failed: CompactionFailure) -> Next {
        let CompactionFailure { why, usage, can_go_on } = failed;
        if usage != Usage::default() {
            self.push(HostAction::Count(usage));
        }
        if !can_go_on {
            return self.call_failed(&why);
        }
        let note = "the model wrote no summary: the conversation goes on as it is for now";
        self.push(TurnEffect::Show(Progress::Note(note.into())));
        self.push(TurnEffect::CallModel);
        Next::Continue(TurnPhase::Thinking)
    }

    pub(super) fn call_failed(&mut self, why: &ModelError) -> Next {
        match why {
            ModelError::ContextFull(_) => self.make_room(),
            ModelError::Credentials(_)
            | ModelError::SpendCap(_)
            | ModelError::NoModel(_)
            | ModelError::Rejected(_)
            | ModelError::Unavailable(_)
            | ModelError::Script(_) => self.fail(why.report()),
        }
    }

    /// Continues with the next tool call. When all calls are answered, the next model call follows, or the turn
    /// ends because the model called `idle`.
    fn act(&mut self) -> Next {
        if self.input_waits && !self.calls.is_empty() {
            return self.take_input();
        }
        match self.calls.pop_front() {
            Some(call) => self.judge(call),
            None if self.wants_idle && self.unseen == 0 => self.end(Outcome::Done),
            None => self.take_input(),
        }
    }

    fn judge(&mut self, call: Call) -> Next {
        self.push(HostAction::Judge(call.clone()));
        Next::Continue(TurnPhase::Judging(call))
    }

    /// Answers a call that may not run, and continues.
    pub(super) fn refuse(&mut self, call: &Call, why: String) -> Next {
        self.answer(call, why, true);
        self.told_lead = false;
        self.act()
    }

    /// Runs a call, asks about it, or answers it with the reason for which it may not run.
    pub(super) fn judged(&mut self, call: Call, verdict: CallVerdict) -> Next {
        match verdict {
            CallVerdict::Run => self.gather(call),
            verdict if !self.ready.is_empty() => {
                self.held = Some((call, verdict));
                self.run_ready()
            }
            CallVerdict::Refuse(why) => self.refuse(&call, why),
            CallVerdict::Deny { decision, why } => {
                self.record(Entry::Decision(*decision));
                self.refuse(&call, why)
            }
            CallVerdict::Ask(question) => self.ask(call, question),
        }
    }

    pub(super) fn ask(&mut self, call: Call, question: Box<Question>) -> Next {
        self.push(HostAction::Ask(question.clone()));
        self.ask_on(Asking { call, question, taking_input: false, settled: None })
    }

    /// Continues a question while no input is being taken in. Requests waiting input, which may hold the answer.
    pub(super) fn ask_on(&mut self, mut asking: Asking) -> Next {
        if let Some(decision) = asking.settled.take() {
            return self.decide(asking, *decision);
        }
        asking.taking_input = std::mem::take(&mut self.input_waits);
        if asking.taking_input {
            self.push(HostAction::TakeInput);
        }
        Next::Continue(TurnPhase::Asking(asking))
    }

    pub(super) fn decide(&mut self, asking: Asking, decision: Decision) -> Next {
        let Asking { mut call, question, .. } = asking;
        self.record(Entry::Decision(decision.clone()));
        let is_approved = decision.outcome == DecisionOutcome::Approved;
        match question.about {
            QuestionKind::Permission | QuestionKind::Sandbox if is_approved => {
                if let Some(input) = decision.updated_input {
                    self.note(format!("the user changed this call of {} to {input}", call.name));
                    call.input = input;
                }
                self.approved_call = Some(call.id.clone());
                self.run(call)
            }
            QuestionKind::Permission | QuestionKind::Sandbox => {
                self.refuse(&call, denied(&decision))
            }
            QuestionKind::Plan if is_approved => {
                let mode = decision.mode.unwrap_or_default();
                let notes = decision.reason.map(|notes| format!(" They say: {notes}"));
                let notes = notes.unwrap_or_default();
                let text = format!("Approved. Continue in mode {mode}: carry out the plan.{notes}");
                self.answer(&call, text, false);
                self.act()
            }
            QuestionKind::Plan => self.reject_plan(&call, decision.reason),
        }
    }

    fn reject_plan(&mut self, call: &Call, reason: Option<String>) -> Next {
        self.plans_rejected += 1;
        let why = reason.unwrap_or_else(|| "no reason was given".into());
        let count = self.plans_rejected;
        let text = format!("Not approved ({count} of {MAX_PLANS}): {why}");
        if count < MAX_PLANS {
            return self.refuse(call, format!("{text}; change the plan and submit it again"));
        }
        self.answer(call, text.clone(), true);
        self.refuse_calls("not run: the plan was rejected too often");
        self.fail(format!("No plan was approved. {text}"))
    }

    /// Withdraws a question, and answers its call as not run.
    pub(super) fn give_up(&mut self, asking: Asking, how: &BreakOff) {
        let id = asking.question.request_id;
        let decision = Decision::by_program(&id, DecisionOutcome::Withdrawn, how.question);
        self.record(Entry::Decision(decision));
        self.push(HostAction::Withdraw(id));
        self.answer(&asking.call, how.not_run, true);
    }

    /// Begins the wind-down: `note` goes to the model with its next call. `asking` is the open question, if any.
    pub(super) fn wind_down(&mut self, note: String, asking: Option<Asking>) -> Next {
        if let Some(asking) = asking {
            let question = "the agent is being shut down";
            self.push(HostAction::InputUsed);
            self.give_up(asking, &BreakOff { not_run: WINDING_DOWN, question, ..STOP });
        }
        self.winding_down = Some(WindDown::new(note));
        self.refuse_calls(WINDING_DOWN);
        self.think()
    }

    pub(super) fn break_off(&mut self, phase: TurnPhase, how: &BreakOff) -> Next {
        match phase {
            TurnPhase::TakingInput | TurnPhase::Interrupted => {}
            TurnPhase::Thinking => self.push(TurnEffect::Cancel),
            TurnPhase::Judging(call) => {
                self.refuse_ready(how.not_run);
                self.answer(&call, how.not_run, true);
            }
            TurnPhase::Asking(asking) => self.give_up(asking, how),
            TurnPhase::Acting(calls) | TurnPhase::ActingLast(calls, _) => {
                self.push(TurnEffect::Cancel);
                for call in &calls {
                    let output = ToolOutput::from(how.running.to_owned());
                    self.answer_with(call, output, CallEnd::Interrupted);
                }
            }
        }
        self.refuse_calls(how.not_run);
        self.end(Outcome::Interrupted)
    }

    /// Sets the report of a turn that a limit of the member ends.
    pub(super) fn report_limit(&mut self, limit: &str) {
        self.text = self.stopped(&format!("Stopped: {limit}."));
        self.told_lead = false;
    }

    pub(super) fn fail(&mut self, why: String) -> Next {
        self.text = why;
        self.told_lead = false;
        self.end(Outcome::Failed)
    }

    pub(super) fn end(&mut self, outcome: Outcome) -> Next {
        self.refuse_calls("not run: the turn was over");
        let (rounds, text, told_lead) =
            (self.rounds, std::mem::take(&mut self.text), self.told_lead);
        Next::Break(TurnEnd { outcome, rounds, text, told_lead, fatal: None })
    }
}

/// Returns the result of a call that was not approved.
pub(crate) fn denied(decision: &Decision) -> String {
    let reason = decision.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let denied = match decision.by.as_str() {
        PROGRAM => "denied".to_owned(),
        // The lead passes on what the person answered there.
        "lead" | "user" => "denied by the user".to_owned(),
        other => format!("denied by {other}"),
    };
    format!("{denied}{reason}; do without it, or say in your report what you could not do")
}
