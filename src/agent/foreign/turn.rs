//! The state machine of one turn of a foreign agent: it turns events into actions. Pure: no files, no process, no clock.
//!
//! ```text
//!            input taken            the prompt ends
//!   Taking ──────────────> Prompting ──────────────> the turn ends
//!     ^                     │     ^ │ interrupt, request to end
//!     │ a last report,      │     │ └──────> Cancelling ──> the turn ends, or Taking
//!     ├─ unseen reasons ────┘     └─ Restarting: the agent's process has ended
//!     └─ AwaitingPlan: the prompt has ended, and its plan is not decided
//! ```
//!
//! The agent runs its tools itself. It asks about them, about several at once if it likes; a tool that it asks about
//! runs only after the answer. Mail is taken in while the agent works, because the answers to questions come with it.
//! Nothing is recorded during a drain: what happens meanwhile is handled after it.
//!
//! *Invariant:* when a turn ends, every question of the agent is answered, and every recorded call has a result.

mod plan;
mod questions;
mod records;

use super::calls::Calls;
use super::event::{AskAnswer, AskNumber, ForeignAction, ForeignEvent, ForeignTurnEvent};
use super::messages::Messages;
use super::plans::Plans;
use crate::acp::session::PromptEnd;
use crate::agent::conversation::{HostAction, TurnEffect, TurnEnd, TurnEvent};
use crate::agent::event::Action;
use crate::wire::activity::Activity;
use crate::wire::chat::{StopReason, Usage};
use crate::wire::message::Outcome;
use crate::wire::transcript::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::time::Duration;

/// The longest silence of an agent with a call under way.
const MAX_CALL: Duration = Duration::from_secs(30 * 60);

/// The number of prompts by which the agent is told in one turn that calls were refused.
const MAX_REASONS: u32 = 3;

const INTERRUPTED: &str = "the turn was interrupted";
const HUNG: &str = "it gave no sign for too long";
const STOPPED: &str = "the agent was stopped";
const WINDING_DOWN: &str = "not run: you are being shut down; finish with a short report";

/// The note for an agent whose process was started again within a turn.
const RESTARTED: &str =
    "the process of your program ended unexpectedly and was started again; go on from here";

/// The answer to a call that was under way when the agent's process ended.
const STATE_UNKNOWN: &str =
    "state unknown: the agent's process ended while this was running; check what it did";

#[derive(Debug)]
pub(crate) struct ForeignTurn {
    turn: State,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Input is being taken in before a prompt.
    Taking,
    /// Input is being taken in; then the turn ends, since the user interrupted it.
    Interrupted,
    Prompting,
    Cancelling(AfterCancel),
    /// The process of the agent has ended and is started again.
    Restarting,
    /// The agent has ended its prompt after it submitted a plan, which waits for a decision.
    AwaitingPlan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterCancel {
    End,
    /// The agent is prompted once more for a last report.
    LastReport,
    /// The process of the agent, which seems to hang, is started again.
    Restart,
}

/// The drain of input. A drain can be under way in every phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    None,
    UnderWay,
    /// Input was announced while other input was being taken in.
    Again,
}

type Next = ControlFlow<TurnEnd, Phase>;

#[derive(Debug)]
struct State {
    todo: Vec<Action>,
    /// `acp/NAME` of the agent.
    model: String,
    drain: Drain,
    /// Events that wait for the end of a drain, oldest first.
    held: VecDeque<ForeignTurnEvent>,
    prompts: u32,
    /// The number of messages that the agent has not seen yet and must not miss.
    unseen: usize,
    calls: Calls,
    /// The questions that wait for a verdict or a decision, with the id of their call, and that of their request.
    asked: BTreeMap<AskNumber, Asked>,
    messages: Messages,
    /// The tokens of the prompt, for the next recorded text.
    usage: Usage,
    refusals: Refusals,
    plans: Plans,
    /// Whether the agent has done work since the last look, and not only talked.
    has_worked: bool,
    /// Set once the turn must end with this prompt: the answer to further questions.
    ends_with_prompt: Option<&'static str>,
    /// Whether the turn winds down: its next prompt is the last one.
    is_winding_down: bool,
}

#[derive(Debug)]
struct Asked {
    call: String,
    /// The request, once somebody is asked.
    request: Option<String>,
}

/// The refused calls of which the agent may not know why.
#[derive(Debug, Default)]
struct Refusals {
    /// Whether the agent has written nothing since the last one.
    is_last: bool,
    /// The number of prompts that told the agent about them.
    told: u32,
}

impl ForeignTurn {
    /// Creates a turn of the agent `model` that is taking in its first input. `calls` is the number of calls before it.
    pub(crate) fn new(model: String, calls: u64) -> Self {
        let turn = State {
            todo: Vec::new(),
            model,
            drain: Drain::UnderWay,
            held: VecDeque::new(),
            prompts: 0,
            unseen: 0,
            calls: Calls::after(calls),
            asked: BTreeMap::new(),
            messages: Messages::default(),
            usage: Usage::default(),
            refusals: Refusals::default(),
            plans: Plans::default(),
            has_worked: false,
            ends_with_prompt: None,
            is_winding_down: false,
        };
        Self { turn, phase: Phase::Taking }
    }

    /// Whether new prompts can be recorded now: the turn takes in input before its next prompt.
    pub(crate) fn takes_prompts(&self) -> bool {
        matches!(self.phase, Phase::Taking)
    }

    /// Whether a question about a call is open.
    pub(crate) fn is_asking(&self) -> bool {
        let mut asked = self.turn.asked.values();
        self.turn.plans.is_open() || asked.any(|asked| asked.request.is_some())
    }

    pub(crate) fn is_acting(&self) -> bool {
        matches!(self.phase, Phase::Prompting | Phase::Cancelling(_))
    }

    /// Whether the agent has done work since the last look.
    pub(crate) fn take_worked(&mut self) -> bool {
        std::mem::take(&mut self.turn.has_worked)
    }

    /// Whether mail was taken in that the agent has not seen.
    pub(crate) fn has_unseen(&self) -> bool {
        self.turn.unseen > 0
    }

    /// The number of calls up to now.
    pub(crate) fn calls(&self) -> u64 {
        self.turn.calls.count()
    }

    /// Performs one step. Returns the turn's end, if it has ended, and the actions to perform.
    pub(crate) fn step(&mut self, event: ForeignTurnEvent) -> (Option<TurnEnd>, Vec<Action>) {
        let mut event = Some(event);
        while let Some(now) = event.take() {
            let phase = std::mem::replace(&mut self.phase, Phase::Interrupted);
            match self.turn.transition(phase, now) {
                Next::Continue(phase) => self.phase = phase,
                Next::Break(end) => return (Some(end), std::mem::take(&mut self.turn.todo)),
            }
            if self.turn.drain == Drain::None {
                event = self.turn.held.pop_front();
            }
        }
        (None, std::mem::take(&mut self.turn.todo))
    }
}

impl State {
    fn push(&mut self, action: impl Into<Action>) {
        self.todo.push(action.into());
    }

    fn record(&mut self, entry: Entry) {
        self.push(TurnEffect::Record(entry));
    }

    fn note(&mut self, content: String) {
        self.record(Entry::Note { content });
    }

    fn act(&mut self, action: ForeignAction) {
        self.todo.push(Action::Foreign(action));
    }

    fn transition(&mut self, phase: Phase, event: ForeignTurnEvent) -> Next {
        use ForeignTurnEvent::{Agent, Turn};
        use TurnEvent as Event;
        match event {
            Turn(Event::InputWaits) if self.drain != Drain::None => {
                self.drain = Drain::Again;
                Next::Continue(phase)
            }
            Turn(Event::InputWaits) => {
                self.take_input();
                Next::Continue(phase)
            }
            Turn(Event::InputTaken { unseen }) => {
                self.unseen += unseen;
                self.input_taken(phase)
            }
            Turn(Event::InputFailed(why)) => match phase {
                Phase::Taking | Phase::Interrupted => self.fail(why),
                Phase::Prompting
                | Phase::Cancelling(_)
                | Phase::Restarting
                | Phase::AwaitingPlan => {
                    self.drain = Drain::None;
                    Next::Continue(phase)
                }
            },
            Turn(Event::WindDown(note)) => self.wind_down(phase, note),
            Turn(Event::Stop { limit }) => {
                if let Some(limit) = limit {
                    self.messages.report =
                        stopped(&format!("Stopped: {limit}."), &self.messages.report);
                }
                if matches!(phase, Phase::Prompting) {
                    self.act(ForeignAction::Cancel);
                }
                self.close_calls(STOPPED, "ended before it was done: the agent was stopped");
                self.end(Outcome::Interrupted)
            }
            held @ (Agent(_)
            | Turn(
                Event::Interrupt
                | Event::EndAfterCall(_)
                | Event::Settled(_)
                | Event::Work(_)
                | Event::Judged(_),
            )) if self.drain != Drain::None => {
                self.held.push_back(held);
                Next::Continue(phase)
            }
            Turn(Event::Interrupt) => self.interrupt(phase),
            Turn(Event::EndAfterCall(answer)) => {
                self.ends_with_prompt = Some(answer);
                Next::Continue(phase)
            }
            Turn(Event::Settled(decision)) if self.plans.is_about(&decision) => {
                self.plan_settled(phase, &decision)
            }
            Turn(Event::Settled(decision)) => {
                self.settled(&decision);
                Next::Continue(phase)
            }
            Agent(event) => self.on_agent(phase, event),
            Turn(Event::Work(_) | Event::Judged(_)) => {
                self.push(TurnEffect::Log(
                    "unexpected in a foreign turn: a step of our own".into(),
                ));
                Next::Continue(phase)
            }
        }
    }

    fn input_taken(&mut self, phase: Phase) -> Next {
        let is_again = std::mem::replace(&mut self.drain, Drain::None) == Drain::Again;
        // An interrupt that came with this input ends the turn before it begins.
        let is_interrupt = |event: &ForeignTurnEvent| {
            matches!(event, ForeignTurnEvent::Turn(TurnEvent::Interrupt))
        };
        let next = match phase {
            Phase::Taking if !self.held.iter().any(is_interrupt) => self.prompt(),
            // Mail of colleagues does not wait for the decision.
            Phase::AwaitingPlan if self.unseen > 0 => self.prompt(),
            Phase::Taking | Phase::Interrupted => {
                self.push(HostAction::InputUsed);
                return self.end(Outcome::Interrupted);
            }
            Phase::Prompting | Phase::Cancelling(_) | Phase::Restarting | Phase::AwaitingPlan => {
                self.push(HostAction::InputUsed);
                if self.unseen > 0 && matches!(phase, Phase::Prompting) {
                    self.act(ForeignAction::Steer);
                }
                phase
            }
        };
        if is_again {
            self.take_input();
        }
        Next::Continue(next)
    }

    fn take_input(&mut self) {
        self.push(HostAction::TakeInput);
        self.drain = Drain::UnderWay;
    }

    fn take_input_before_prompt(&mut self) -> Next {
        self.take_input();
        Next::Continue(Phase::Taking)
    }

    fn prompt(&mut self) -> Phase {
        self.push(HostAction::Doing(Activity::Model));
        self.push(HostAction::InputUsed);
        self.prompts += 1;
        self.unseen = 0;
        self.refusals.is_last = false;
        self.act(ForeignAction::Prompt);
        Phase::Prompting
    }

    fn on_agent(&mut self, phase: Phase, event: ForeignEvent) -> Next {
        match event {
            ForeignEvent::Update(update) => {
                self.update(update);
                Next::Continue(phase)
            }
            ForeignEvent::Asked(number, told) => {
                self.asked(phase, number, *told);
                Next::Continue(phase)
            }
            ForeignEvent::PlanSubmitted(question) => {
                self.plan_submitted(phase, question);
                Next::Continue(phase)
            }
            ForeignEvent::Judged(number, verdict) => {
                self.judged(number, verdict);
                Next::Continue(phase)
            }
            ForeignEvent::Ended(end, usage) => self.ended(phase, &end, usage),
            ForeignEvent::Refused(why) => {
                self.close_calls("the prompt is over", "the prompt was over");
                match phase {
                    Phase::Cancelling(AfterCancel::End) => self.end(Outcome::Interrupted),
                    Phase::Cancelling(AfterCancel::LastReport) => self.take_input_before_prompt(),
                    Phase::Cancelling(AfterCancel::Restart) => self.start_again(),
                    Phase::Taking
                    | Phase::Interrupted
                    | Phase::Prompting
                    | Phase::Restarting
                    | Phase::AwaitingPlan => self.fail(why),
                }
            }
            ForeignEvent::Lost(why) => self.lost(phase, why),
            ForeignEvent::Restarted if matches!(phase, Phase::Restarting) => {
                self.note(RESTARTED.into());
                Next::Continue(self.prompt())
            }
            ForeignEvent::GaveUp(why) => {
                let end = self.fail(why.clone());
                end.map_break(|end| TurnEnd { fatal: Some(why), ..end })
            }
            ForeignEvent::CancelOverdue if matches!(phase, Phase::Cancelling(_)) => {
                self.act(ForeignAction::EndAgent);
                self.lost(phase, "it did not end its prompt in time after it was cancelled".into())
            }
            ForeignEvent::Silent(silence)
                if matches!(phase, Phase::Prompting) && self.is_hung(silence) =>
            {
                let seconds = silence.as_secs();
                self.push(TurnEffect::Log(format!("no sign of the agent for {seconds} s")));
                self.act(ForeignAction::Cancel);
                Next::Continue(Phase::Cancelling(AfterCancel::Restart))
            }
            ForeignEvent::HandedOver => {
                self.unseen = 0;
                Next::Continue(phase)
            }
            ForeignEvent::Restarted | ForeignEvent::CancelOverdue | ForeignEvent::Silent(_) => {
                Next::Continue(phase)
            }
        }
    }

    /// Whether an agent hangs that has given no sign for this time, which is too long for a model. A question waits for a
    /// person, and a call for its own end.
    fn is_hung(&self, silence: Duration) -> bool {
        self.asked.is_empty() && (self.calls.open().is_empty() || silence >= MAX_CALL)
    }

    /// Ends the process of an agent that was cancelled because it seemed to hang, and starts it again.
    fn start_again(&mut self) -> Next {
        if self.ends_with_prompt.is_some() || self.is_winding_down {
            return self.end(Outcome::Interrupted);
        }
        self.act(ForeignAction::EndAgent);
        self.act(ForeignAction::Restart(HUNG.into()));
        Next::Continue(Phase::Restarting)
    }

    fn ended(&mut self, phase: Phase, end: &PromptEnd, usage: Usage) -> Next {
        self.usage = usage;
        self.push(HostAction::Count(usage));
        self.finish_message(stop_reason(&end.stop_reason));
        self.close_calls("the prompt is over", "the agent did not say how it ended");
        match phase {
            Phase::Cancelling(AfterCancel::End) => return self.end(Outcome::Interrupted),
            Phase::Cancelling(AfterCancel::LastReport) => return self.take_input_before_prompt(),
            Phase::Cancelling(AfterCancel::Restart) => return self.start_again(),
            Phase::Prompting => {}
            phase @ (Phase::Taking
            | Phase::Interrupted
            | Phase::Restarting
            | Phase::AwaitingPlan) => {
                return Next::Continue(phase);
            }
        }
        if self.ends_with_prompt.is_some() || self.is_winding_down {
            return self.end(Outcome::Interrupted);
        }
        if self.plans.is_open() {
            return Next::Continue(Phase::AwaitingPlan);
        }
        // An agent that ends its prompt at a refusal has no reason for it, and the lead no report.
        if self.refusals.is_last && self.refusals.told < MAX_REASONS {
            self.refusals.told += 1;
            return self.take_input_before_prompt();
        }
        match end.stop_reason.as_str() {
            "refusal" if self.messages.report.is_empty() => {
                self.fail("the model declined to answer".into())
            }
            "max_tokens" => {
                self.messages.report.push_str("\n[the answer was cut off at the token limit]");
                self.end(Outcome::Done)
            }
            "cancelled" if self.messages.report.is_empty() => {
                self.messages.report = "The agent ended its turn without a report.".into();
                self.end(Outcome::Interrupted)
            }
            _ => self.end(Outcome::Done),
        }
    }

    fn lost(&mut self, phase: Phase, why: String) -> Next {
        self.finish_message(StopReason::Other("lost".into()));
        self.close_calls("the agent's process ended", STATE_UNKNOWN);
        match phase {
            Phase::Cancelling(AfterCancel::End) => self.end(Outcome::Interrupted),
            Phase::Prompting
            | Phase::Cancelling(AfterCancel::LastReport | AfterCancel::Restart) => {
                if self.ends_with_prompt.is_some() || self.is_winding_down {
                    return self.end(Outcome::Interrupted);
                }
                self.act(ForeignAction::Restart(why));
                Next::Continue(Phase::Restarting)
            }
            Phase::Restarting => {
                self.act(ForeignAction::Restart(why));
                Next::Continue(phase)
            }
            Phase::Taking | Phase::Interrupted | Phase::AwaitingPlan => Next::Continue(phase),
        }
    }

    fn interrupt(&mut self, phase: Phase) -> Next {
        Next::Continue(match phase {
            Phase::Taking | Phase::Interrupted => Phase::Interrupted,
            Phase::Prompting => {
                self.note("the user interrupted this turn".into());
                self.close_calls(
                    INTERRUPTED,
                    "interrupted by the user; what it had already done remains",
                );
                self.act(ForeignAction::Cancel);
                Phase::Cancelling(AfterCancel::End)
            }
            Phase::Cancelling(_) => Phase::Cancelling(AfterCancel::End),
            Phase::Restarting | Phase::AwaitingPlan => return self.end(Outcome::Interrupted),
        })
    }

    /// Begins the wind-down, once input was taken in: the note goes to the agent, which may answer with a last report.
    fn wind_down(&mut self, phase: Phase, note: String) -> Next {
        self.drain = Drain::None;
        self.is_winding_down = true;
        match phase {
            Phase::Taking | Phase::AwaitingPlan => {
                self.withdraw_plan("the agent is being shut down");
                self.note(note);
                Next::Continue(self.prompt())
            }
            Phase::Interrupted => {
                self.push(HostAction::InputUsed);
                self.end(Outcome::Interrupted)
            }
            Phase::Prompting => {
                self.push(HostAction::InputUsed);
                self.close_calls("the agent is being shut down", WINDING_DOWN);
                self.note(note);
                self.act(ForeignAction::Cancel);
                Next::Continue(Phase::Cancelling(AfterCancel::LastReport))
            }
            phase @ Phase::Cancelling(_) => {
                self.push(HostAction::InputUsed);
                Next::Continue(phase)
            }
            Phase::Restarting => self.end(Outcome::Interrupted),
        }
    }

    fn fail(&mut self, why: String) -> Next {
        self.messages.report = why;
        self.end(Outcome::Failed)
    }

    fn end(&mut self, outcome: Outcome) -> Next {
        self.withdraw_plan("the turn is over");
        self.close_calls("the turn is over", "the turn was over");
        for held in std::mem::take(&mut self.held) {
            if let ForeignTurnEvent::Agent(ForeignEvent::Asked(number, _)) = held {
                self.act(ForeignAction::Answer(number, AskAnswer::Cancelled));
            }
        }
        self.finish_message(StopReason::EndTurn);
        let text = std::mem::take(&mut self.messages.report);
        let (rounds, told_lead, fatal) = (self.prompts, false, None);
        Next::Break(TurnEnd { outcome, rounds, text, told_lead, fatal })
    }
}

fn stopped(why: &str, last: &str) -> String {
    let last = if last.is_empty() { "none" } else { last };
    format!("{why} Last text: {last}")
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "end_turn" => StopReason::EndTurn,
        "max_tokens" => StopReason::MaxTokens,
        "refusal" => StopReason::Refusal,
        other => StopReason::Other(other.into()),
    }
}

#[cfg(test)]
mod tests;
