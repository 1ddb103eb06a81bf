//! The transitions of a turn: each consumes the turn and returns what it waits for next, or its end.

use super::event::{Effect, HostAction, TurnAction};
use super::turn::{
    Extension, Turn, WINDING_DOWN, answer, is_message_to_lead, refusal, wants_shutdown,
};
use crate::agent::progress::Progress;
use crate::tools::{Call, ToolError, signal};
use crate::wire::activity::Activity;
use crate::wire::message::Outcome;
use crate::wire::permission::{Decision, DecisionOutcome, Question, QuestionKind};
use crate::wire::tool::Signal;
use crate::wire::transcript::Entry;

/// Plans of one turn that may be rejected before the turn ends.
const MAX_PLANS: u32 = 5;

/// What a turn waits for.
#[derive(Debug)]
pub(super) enum TurnPhase {
    /// Input is being taken in.
    TakingInput,
    /// Input is being taken in; then the turn ends, since the user interrupted it.
    Interrupted,
    /// The model is called, or the conversation is summarized.
    Thinking,
    /// The rules are asked about a call.
    Judging(Call),
    /// The user, or the lead, is asked about a call.
    Asking(Asking),
    /// A call runs.
    Acting(Call),
    /// The last call of the turn runs; the other calls are answered with this text.
    ActingLast(Call, &'static str),
}

/// A question about a call. Input is taken in meanwhile, since the answer may come with it.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) call: Call,
    pub(super) question: Box<Question>,
    /// Input is being taken in.
    pub(super) taking_input: bool,
    /// A decision that waits until the input is taken in: until then nothing else is recorded.
    pub(super) settled: Option<Box<Decision>>,
}

/// A turn after a transition.
#[derive(Debug)]
#[must_use]
#[expect(clippy::large_enum_variant, reason = "moved once in a step, never stored")]
pub(super) enum Next {
    /// It waits.
    Wait(Turn, TurnPhase),
    /// It ended.
    End(TurnEnd),
}

/// How a turn ended.
#[derive(Debug)]
pub(crate) struct TurnEnd {
    /// Whether it did what was asked.
    pub(crate) outcome: Outcome,
    /// Model calls it took.
    pub(crate) rounds: u32,
    /// The model's last text, or why the turn ended.
    pub(crate) text: String,
    /// The model has sent this text to the lead by itself.
    pub(crate) told_lead: bool,
    /// Why the agent cannot go on, if it cannot.
    pub(crate) fatal: Option<String>,
}

impl Turn {
    /// Calls the model, unless the turn has reached a limit.
    pub(super) fn think(mut self, todo: &mut Vec<TurnAction>) -> Next {
        todo.push(HostAction::Doing(Activity::Model).into());
        todo.push(HostAction::InputUsed.into());
        self.use_extension();
        if let Some(end) = self.winding_down.as_mut()
            && !end.use_call(todo)
        {
            return self.end(Outcome::Interrupted, todo);
        }
        if let Some(why) = self.limit() {
            todo.push(Effect::Show(Progress::Note(why.clone())).into());
            self.text = why;
            return self.end(Outcome::Interrupted, todo);
        }
        self.rounds += 1;
        (self.unseen, self.wants_idle) = (0, false);
        todo.push(Effect::CallModel.into());
        Next::Wait(self, TurnPhase::Thinking)
    }

    /// Goes on with the next call, or with the next model call when all calls are answered.
    pub(super) fn act(mut self, todo: &mut Vec<TurnAction>) -> Next {
        if self.input_waits && !self.calls.is_empty() {
            return self.take_input(todo);
        }
        match self.calls.pop_front() {
            Some(call) => {
                todo.push(HostAction::Judge(call.clone()).into());
                Next::Wait(self, TurnPhase::Judging(call))
            }
            None if self.wants_idle && self.unseen == 0 => self.end(Outcome::Done, todo),
            None => self.take_input(todo),
        }
    }

    /// Takes in input before the next step.
    pub(super) fn take_input(self, todo: &mut Vec<TurnAction>) -> Next {
        todo.push(HostAction::TakeInput.into());
        Next::Wait(Self { input_waits: false, ..self }, TurnPhase::TakingInput)
    }

    /// Runs a call. The intent is durable before the tool runs.
    pub(super) fn run(self, call: Call, todo: &mut Vec<TurnAction>) -> Next {
        let (tool_use_id, name) = (call.id.clone(), call.name.clone());
        let summary = call.input.to_string();
        todo.push(Effect::Record(Entry::ToolStart { tool_use_id, name: name.clone() }).into());
        todo.push(Effect::Sync.into());
        todo.push(HostAction::Doing(Activity::Tool(name.clone())).into());
        todo.push(Effect::Show(Progress::ToolStarted { name, summary }).into());
        todo.push(Effect::RunTool(call.clone()).into());
        Next::Wait(self, TurnPhase::Acting(call))
    }

    /// Asks about a call.
    pub(super) fn ask(
        mut self,
        call: Call,
        question: Box<Question>,
        todo: &mut Vec<TurnAction>,
    ) -> Next {
        todo.push(HostAction::Ask(question.clone()).into());
        // The input that waits may be what ends the wait.
        let taking_input = std::mem::take(&mut self.input_waits);
        if taking_input {
            todo.push(HostAction::TakeInput.into());
        }
        let asking = Asking { call, question, taking_input, settled: None };
        Next::Wait(self, TurnPhase::Asking(asking))
    }

    /// Goes on with a question whose input is taken in.
    pub(super) fn ask_on(mut self, mut asking: Asking, todo: &mut Vec<TurnAction>) -> Next {
        asking.taking_input = false;
        if let Some(decision) = asking.settled.take() {
            return self.decide(asking, *decision, todo);
        }
        if std::mem::take(&mut self.input_waits) {
            asking.taking_input = true;
            todo.push(HostAction::TakeInput.into());
        }
        Next::Wait(self, TurnPhase::Asking(asking))
    }

    /// Acts on a decision about a call.
    pub(super) fn decide(
        mut self,
        asking: Asking,
        decision: Decision,
        todo: &mut Vec<TurnAction>,
    ) -> Next {
        let Asking { mut call, question, .. } = asking;
        todo.push(Effect::Record(Entry::Decision(decision.clone())).into());
        let is_approved = decision.outcome == DecisionOutcome::Approved;
        match question.about {
            QuestionKind::Permission | QuestionKind::Sandbox if is_approved => {
                if let Some(input) = decision.updated_input {
                    let content = format!("the user changed this call of {} to {input}", call.name);
                    todo.push(Effect::Record(Entry::Note { content }).into());
                    call.input = input;
                }
                self.run(call, todo)
            }
            QuestionKind::Permission | QuestionKind::Sandbox => {
                answer(&call, denied(&decision), true, todo);
                self.told_lead = false;
                self.act(todo)
            }
            QuestionKind::Plan if is_approved => {
                let mode = decision.mode.unwrap_or_default();
                let notes = decision.reason.map(|notes| format!(" They say: {notes}"));
                let notes = notes.unwrap_or_default();
                let text =
                    format!("Approved. You go on in mode {mode}: carry the plan out.{notes}");
                answer(&call, text, false, todo);
                self.act(todo)
            }
            QuestionKind::Plan => self.reject_plan(&call, decision.reason, todo),
        }
    }

    fn reject_plan(
        mut self,
        call: &Call,
        reason: Option<String>,
        todo: &mut Vec<TurnAction>,
    ) -> Next {
        self.plans_rejected += 1;
        let why = reason.unwrap_or_else(|| "no reason was given".into());
        let count = self.plans_rejected;
        let text = format!("Not approved ({count} of {MAX_PLANS}): {why}");
        let advice = "; change the plan and submit it again";
        let advice = if count < MAX_PLANS { advice } else { "" };
        answer(call, format!("{text}{advice}"), true, todo);
        self.told_lead = false;
        if count < MAX_PLANS {
            return self.act(todo);
        }
        self.refuse_calls("not run: the plan was rejected too often", todo);
        self.fail(format!("No plan was approved. {text}"), todo)
    }

    /// Answers a call that was run, and goes on if the agent can.
    pub(super) fn tool_ended(
        mut self,
        call: &Call,
        result: Result<String, ToolError>,
        todo: &mut Vec<TurnAction>,
    ) -> Next {
        let succeeded = result.is_ok();
        if let Some(fatal) = self.answer_run(call, result, todo) {
            return self.break_off(fatal, todo);
        }
        self.told_lead = succeeded && is_message_to_lead(call);
        self.wants_idle |= succeeded && signal(call) == Signal::EndsTurn;
        if succeeded && signal(call) == Signal::AnswersShutdown {
            if !wants_shutdown(call) {
                todo.push(refusal(call));
                self.extension = self.winding_down.take().map(|_| Extension::new());
            } else if self.winding_down.is_some() {
                self.refuse_calls(WINDING_DOWN, todo);
                return self.end(Outcome::Interrupted, todo);
            }
        }
        self.act(todo)
    }

    /// Answers the last call of the turn and ends the turn.
    pub(super) fn last_tool_ended(
        mut self,
        call: &Call,
        result: Result<String, ToolError>,
        others: &str,
        todo: &mut Vec<TurnAction>,
    ) -> Next {
        if let Some(fatal) = self.answer_run(call, result, todo) {
            return self.break_off(fatal, todo);
        }
        self.refuse_calls(others, todo);
        self.end(Outcome::Interrupted, todo)
    }

    /// Ends a turn whose agent cannot go on.
    fn break_off(mut self, why: String, todo: &mut Vec<TurnAction>) -> Next {
        self.refuse_calls("not run: the agent cannot go on", todo);
        self.text.clone_from(&why);
        self.told_lead = false;
        Next::End(TurnEnd { fatal: Some(why), ..self.close(Outcome::Failed, todo) })
    }

    /// Ends the turn with an error.
    pub(super) fn fail(mut self, why: String, todo: &mut Vec<TurnAction>) -> Next {
        self.text = why;
        self.told_lead = false;
        self.end(Outcome::Failed, todo)
    }

    /// Ends the turn.
    pub(super) fn end(self, outcome: Outcome, todo: &mut Vec<TurnAction>) -> Next {
        Next::End(self.close(outcome, todo))
    }

    fn close(mut self, outcome: Outcome, todo: &mut Vec<TurnAction>) -> TurnEnd {
        self.refuse_calls("not run: the turn was over", todo);
        let Self { rounds, text, told_lead, .. } = self;
        TurnEnd { outcome, rounds, text, told_lead, fatal: None }
    }
}

impl Asking {
    /// Takes the question back and answers its call as not run.
    pub(super) fn give_up(self, reason: &str, why: &str, todo: &mut Vec<TurnAction>) {
        let id = self.question.request_id;
        let decision = Decision::by_program(&id, DecisionOutcome::Withdrawn, reason);
        todo.push(Effect::Record(Entry::Decision(decision)).into());
        todo.push(HostAction::Withdraw(id).into());
        answer(&self.call, why.into(), true, todo);
    }
}

/// What the model is told about a call that was not approved.
fn denied(decision: &Decision) -> String {
    let reason = decision.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let by = if decision.by == "lead" { "the user" } else { &decision.by };
    let is_expired = decision.outcome == DecisionOutcome::Expired;
    let denied = if is_expired { "denied".into() } else { format!("denied by {by}") };
    format!("{denied}{reason}; do without it, or say in your report what you could not do")
}
