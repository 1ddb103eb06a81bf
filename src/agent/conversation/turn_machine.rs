//! The state machine of one turn: it turns events into actions. Pure: no files, no model, no clock.
//!
//! ```text
//!   TakingInput ──────────> Thinking ───── reply with calls ────> Judging ──────> Acting
//!     ^  ^                     │  text: the turn ends               │  ^            │
//!     │  └─────────────────────┘                       the rules say │  │ next call  │
//!     │                                               "ask": Asking <┘  └────────────┤
//!     └───────────────────────────── all calls answered ─────────────────────────────┘
//! ```
//!
//! Input is taken in before every model call and, if some was announced, between two tool calls. Calls that only read run at
//! the same time: each of them is judged before the first one runs.
//!
//! *Invariant:* a step consumes the machine and returns its successor or the turn's end, so no step can
//! leave a turn without a phase. When a turn ends, every call of the model has an answer.

use super::event::{HostAction, TurnAction, TurnEffect, TurnEvent, WorkResult};
use super::turn::{Asking, INTERRUPT, INTERRUPT_NOTE, Next, STOP, TurnEnd, TurnPhase, TurnState};
use crate::tools::Call;
use std::collections::VecDeque;
use std::ops::ControlFlow;

#[derive(Debug)]
pub(crate) struct TurnMachine {
    turn: TurnState,
    phase: TurnPhase,
}

impl TurnMachine {
    /// Creates a turn of at most `max_rounds` model calls that is taking in its first input. `calls` are the calls
    /// that are still to run in a turn that a crash cut off.
    pub(crate) fn new(max_rounds: u32, calls: VecDeque<Call>) -> Self {
        Self { turn: TurnState::new(max_rounds, calls), phase: TurnPhase::TakingInput }
    }

    /// Whether new prompts can be recorded now: the turn takes in input before its next step.
    pub(crate) fn takes_prompts(&self) -> bool {
        matches!(self.phase, TurnPhase::TakingInput)
    }

    /// Whether a question about a call is open.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.phase, TurnPhase::Asking(_))
    }

    pub(crate) fn is_acting(&self) -> bool {
        matches!(self.phase, TurnPhase::Acting(_) | TurnPhase::ActingLast(..))
    }

    /// Performs one step. Returns the turn after it, or the turn's end, and the actions to perform.
    pub(crate) fn step(self, event: TurnEvent) -> (ControlFlow<TurnEnd, Self>, Vec<TurnAction>) {
        let Self { mut turn, phase } = self;
        let next = transition(&mut turn, phase, event);
        let todo = std::mem::take(&mut turn.todo);
        (next.map_continue(|phase| Self { turn, phase }), todo)
    }
}

/// Applies the table of phases and events: for each event the phases in which it has an effect, then all others.
fn transition(turn: &mut TurnState, phase: TurnPhase, event: TurnEvent) -> Next {
    use TurnEvent as Event;
    use TurnPhase as Phase;
    use WorkResult::{Compacted, Replied, ToolsEnded};
    match (phase, event) {
        (Phase::Asking(asking), Event::InputWaits) if !asking.taking_input => {
            turn.push(HostAction::TakeInput);
            Next::Continue(Phase::Asking(Asking { taking_input: true, ..asking }))
        }
        (phase, Event::InputWaits) => {
            turn.input_waits = true;
            Next::Continue(phase)
        }

        (Phase::TakingInput, Event::InputTaken { unseen }) => turn.use_input(unseen),
        (Phase::Asking(asking), Event::InputTaken { unseen }) => {
            turn.push(HostAction::InputUsed);
            turn.unseen += unseen;
            turn.ask_on(asking)
        }
        (phase @ Phase::Interrupted, Event::InputTaken { .. } | Event::WindDown(_)) => {
            turn.break_off(phase, &INTERRUPT)
        }
        (phase, Event::InputTaken { .. }) => unexpected(turn, phase, "input"),

        (Phase::TakingInput | Phase::Interrupted, Event::InputFailed(why)) => turn.fail(why),
        // Waiting input is not taken in at once, because that would fail again.
        (Phase::Asking(asking), Event::InputFailed(_)) => match asking.settled {
            Some(_) => turn.ask_on(asking),
            None => Next::Continue(Phase::Asking(Asking { taking_input: false, ..asking })),
        },
        (phase, Event::InputFailed(_)) => unexpected(turn, phase, "failed input"),

        (Phase::Thinking, Event::Work(Replied(Ok(reply)))) => turn.replied(reply),
        (Phase::Thinking, Event::Work(Compacted(Ok(made)))) => turn.compacted(made),
        (Phase::Thinking, Event::Work(Compacted(Err(failed)))) => turn.not_compacted(failed),
        (Phase::Thinking, Event::Work(Replied(Err(why)))) => turn.call_failed(&why),
        (phase, Event::Work(Replied(Ok(_)))) => unexpected(turn, phase, "a reply"),
        (phase, Event::Work(Compacted(Ok(_)))) => unexpected(turn, phase, "a summary"),
        (phase, Event::Work(Replied(Err(_)) | Compacted(Err(_)))) => {
            unexpected(turn, phase, "a failed model call")
        }

        (Phase::Acting(calls), Event::Work(ToolsEnded(results))) => {
            turn.tools_ended(calls, results, None)
        }
        (Phase::ActingLast(calls, others), Event::Work(ToolsEnded(results))) => {
            turn.tools_ended(calls, results, Some(others))
        }
        (phase, Event::Work(ToolsEnded(_))) => unexpected(turn, phase, "the end of a tool call"),

        (Phase::Judging(call), Event::Judged(verdict)) => turn.judged(call, verdict),
        (phase, Event::Judged(_)) => unexpected(turn, phase, "a verdict"),

        (Phase::Asking(asking), Event::Settled(decision))
            if asking.question.request_id == decision.request_id =>
        {
            if !asking.taking_input {
                return turn.decide(asking, decision);
            }
            let settled = Some(Box::new(decision));
            Next::Continue(Phase::Asking(Asking { settled, ..asking }))
        }
        // One drain may bring an answer together with a shutdown request, which withdraws the question.
        (phase, Event::Settled(_)) => {
            turn.push(TurnEffect::Log("a decision came after its question was withdrawn".into()));
            Next::Continue(phase)
        }

        (Phase::TakingInput | Phase::Interrupted, Event::Interrupt) => {
            Next::Continue(Phase::Interrupted)
        }
        (Phase::Thinking, Event::Interrupt) => {
            turn.push(TurnEffect::Cancel);
            turn.note(INTERRUPT_NOTE.into());
            turn.break_off(Phase::Interrupted, &INTERRUPT)
        }
        (Phase::Asking(asking), Event::Interrupt) if asking.taking_input => {
            turn.give_up(asking, &INTERRUPT);
            Next::Continue(Phase::Interrupted)
        }
        // The turn ends after this call in any case.
        (phase @ Phase::ActingLast(..), Event::Interrupt) => Next::Continue(phase),
        (phase, Event::Interrupt) => turn.break_off(phase, &INTERRUPT),

        (Phase::TakingInput, Event::WindDown(note)) => {
            turn.input_waits = false;
            turn.wind_down(note, None)
        }
        (Phase::Asking(asking), Event::WindDown(note)) => turn.wind_down(note, Some(asking)),
        (phase, Event::WindDown(_)) => unexpected(turn, phase, "a request to end"),

        (Phase::Acting(calls) | Phase::ActingLast(calls, _), Event::EndAfterCall(others)) => {
            Next::Continue(Phase::ActingLast(calls, others))
        }
        (phase, Event::EndAfterCall(_)) => unexpected(turn, phase, "the end after a call"),

        (phase, Event::Stop { limit }) => {
            if let Some(limit) = limit {
                turn.report_limit(&limit);
            }
            turn.break_off(phase, &STOP)
        }
    }
}

/// Ignores an event that no action requested in this phase, and logs it, because it is a bug.
fn unexpected(turn: &mut TurnState, phase: TurnPhase, event: &str) -> Next {
    turn.push(TurnEffect::Log(format!("unexpected in a turn: {event} while {}", phase.name())));
    Next::Continue(phase)
}

impl TurnPhase {
    fn name(&self) -> &'static str {
        match self {
            Self::TakingInput => "TakingInput",
            Self::Interrupted => "Interrupted",
            Self::Thinking => "Thinking",
            Self::Judging(_) => "Judging",
            Self::Asking(_) => "Asking",
            Self::Acting(_) => "Acting",
            Self::ActingLast(..) => "ActingLast",
        }
    }
}

#[cfg(test)]
mod tests;
