//! The state machine of one turn: what happens -> what to do. Pure: no files, no model, no clock.
//!
//! ```text
//!   TakingInput ──────────> Thinking ───── reply with calls ────> Judging ──────> Acting
//!     ^  ^                     │  text: the turn ends               │  ^            │
//!     │  └─────────────────────┘                       the rules say │  │ next call  │
//!     │                                               "ask": Asking <┘  └────────────┤
//!     └───────────────────────────── all calls answered ─────────────────────────────┘
//! ```
//!
//! Input is taken in before every model call and, if some was announced, between two tool calls.
//!
//! *Invariant:* a step consumes the machine and returns its successor or the turn's end, so no step can
//! leave a turn without a phase. When a turn ends, every call of the model has an answer.

use super::compact::Compacted;
use super::event::{CallVerdict, Effect, HostAction, TurnAction, TurnEvent, WorkResult};
use super::turn::{
    CONTEXT_FULL, CUT_OFF, INTERRUPTED, Room, STOPPED, Turn, WINDING_DOWN, WindDown, answer,
    call_of,
};
use super::turn_transitions::{Asking, Next, TurnEnd, TurnPhase};
use crate::agent::progress::Progress;
use crate::llm::ModelError;
use crate::tools::{Call, ToolError};
use crate::wire::chat::{Reply, StopReason};
use crate::wire::message::Outcome;
use crate::wire::permission::Decision;
use crate::wire::transcript::Entry;
use std::collections::VecDeque;

/// A turn under way.
#[derive(Debug)]
pub(crate) struct TurnMachine {
    turn: Turn,
    phase: TurnPhase,
}

/// A turn after a step.
#[derive(Debug)]
#[must_use]
#[expect(clippy::large_enum_variant, reason = "moved once in a step, never stored")]
pub(crate) enum TurnStep {
    /// It goes on.
    Running(TurnMachine),
    /// It ended.
    Ended(TurnEnd),
}

impl TurnMachine {
    /// Creates a turn of at most `max_rounds` model calls that is taking in its first input. `calls` are
    /// the calls that a turn cut off by a crash has still to run.
    pub(crate) fn new(max_rounds: u32, calls: VecDeque<Call>) -> Self {
        Self { turn: Turn { max_rounds, calls, ..Turn::default() }, phase: TurnPhase::TakingInput }
    }

    /// Whether new prompts can be recorded now: the turn takes in input before its next step.
    pub(crate) fn takes_prompts(&self) -> bool {
        matches!(self.phase, TurnPhase::TakingInput)
    }

    /// Whether a question about a call is open.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.phase, TurnPhase::Asking(_))
    }

    /// Whether a tool call runs.
    pub(crate) fn is_acting(&self) -> bool {
        matches!(self.phase, TurnPhase::Acting(_) | TurnPhase::ActingLast(..))
    }

    /// Performs one step.
    pub(crate) fn step(self, event: TurnEvent, todo: &mut Vec<TurnAction>) -> TurnStep {
        let Self { turn, phase } = self;
        let next = match event {
            TurnEvent::InputWaits => on_input_waits(turn, phase, todo),
            TurnEvent::InputTaken { unseen } => on_input_taken(turn, phase, unseen, todo),
            TurnEvent::InputFailed(why) => on_input_failed(turn, phase, why, todo),
            TurnEvent::Work(WorkResult::Replied(Ok(reply))) => on_reply(turn, phase, reply, todo),
            TurnEvent::Work(WorkResult::Compacted(Ok(made))) => {
                on_compacted(turn, phase, made, todo)
            }
            TurnEvent::Work(WorkResult::Replied(Err(why)) | WorkResult::Compacted(Err(why))) => {
                on_model_error(turn, phase, &why, todo)
            }
            TurnEvent::Work(WorkResult::ToolEnded(result)) => {
                on_tool_ended(turn, phase, result, todo)
            }
            TurnEvent::Judged(verdict) => on_judged(turn, phase, verdict, todo),
            TurnEvent::Settled(decision) => on_settled(turn, phase, decision, todo),
            TurnEvent::Interrupt => on_interrupt(turn, phase, todo),
            TurnEvent::WindDown(note) => on_wind_down(turn, phase, note, todo),
            TurnEvent::EndAfterCall(others) => on_end_after_call(turn, phase, others, todo),
            TurnEvent::Stop { limit } => on_stop(turn, phase, limit, todo),
        };
        match next {
            Next::Wait(turn, phase) => TurnStep::Running(Self { turn, phase }),
            Next::End(end) => TurnStep::Ended(end),
        }
    }
}

fn on_input_waits(mut turn: Turn, phase: TurnPhase, todo: &mut Vec<TurnAction>) -> Next {
    match phase {
        TurnPhase::Asking(asking) if !asking.taking_input => {
            todo.push(HostAction::TakeInput.into());
            Next::Wait(turn, TurnPhase::Asking(Asking { taking_input: true, ..asking }))
        }
        phase @ (TurnPhase::TakingInput
        | TurnPhase::Interrupted
        | TurnPhase::Thinking
        | TurnPhase::Judging(_)
        | TurnPhase::Asking(_)
        | TurnPhase::Acting(_)
        | TurnPhase::ActingLast(..)) => {
            turn.input_waits = true;
            Next::Wait(turn, phase)
        }
    }
}

fn on_input_taken(
    mut turn: Turn,
    phase: TurnPhase,
    unseen: usize,
    todo: &mut Vec<TurnAction>,
) -> Next {
    match phase {
        TurnPhase::Interrupted => {
            turn.refuse_calls(INTERRUPTED, todo);
            turn.end(Outcome::Interrupted, todo)
        }
        TurnPhase::TakingInput => {
            turn.input_waits = false;
            turn.unseen += unseen;
            if turn.calls.is_empty() {
                return turn.think(todo);
            }
            todo.push(HostAction::InputUsed.into());
            turn.act(todo)
        }
        TurnPhase::Asking(asking) => {
            todo.push(HostAction::InputUsed.into());
            turn.unseen += unseen;
            turn.ask_on(asking, todo)
        }
        phase @ (TurnPhase::Thinking
        | TurnPhase::Judging(_)
        | TurnPhase::Acting(_)
        | TurnPhase::ActingLast(..)) => unexpected("input", turn, phase, todo),
    }
}

fn on_input_failed(turn: Turn, phase: TurnPhase, why: String, todo: &mut Vec<TurnAction>) -> Next {
    match phase {
        TurnPhase::TakingInput | TurnPhase::Interrupted => turn.fail(why, todo),
        TurnPhase::Asking(mut asking) => {
            asking.taking_input = false;
            match asking.settled.take() {
                Some(decision) => turn.decide(asking, *decision, todo),
                None => Next::Wait(turn, TurnPhase::Asking(asking)),
            }
        }
        phase @ (TurnPhase::Thinking
        | TurnPhase::Judging(_)
        | TurnPhase::Acting(_)
        | TurnPhase::ActingLast(..)) => unexpected("failed input", turn, phase, todo),
    }
}

fn on_reply(mut turn: Turn, phase: TurnPhase, reply: Reply, todo: &mut Vec<TurnAction>) -> Next {
    if !matches!(phase, TurnPhase::Thinking) {
        return unexpected("a reply", turn, phase, todo);
    }
    let room = std::mem::take(&mut turn.room);
    let text = reply.text();
    let Reply { blocks, stop_reason, usage, model } = reply;
    turn.calls = blocks.iter().filter_map(call_of).collect();
    todo.push(HostAction::Count(usage).into());
    let reason = stop_reason.clone();
    todo.push(Effect::Record(Entry::Assistant { blocks, stop_reason, usage, model }).into());
    if !text.is_empty() {
        turn.text = text;
    }
    if !turn.calls.is_empty() {
        if reason == StopReason::MaxTokens {
            turn.refuse_calls(CUT_OFF, todo);
        } else if turn.winding_down.is_some() {
            turn.refuse_work(todo);
        }
        return turn.act(todo);
    }
    match reason {
        StopReason::PauseTurn => turn.take_input(todo),
        StopReason::ContextWindowExceeded => make_room(Turn { room, ..turn }, todo),
        StopReason::MaxTokens => {
            turn.text.push_str("\n[the answer was cut off at the token limit]");
            turn.end(Outcome::Done, todo)
        }
        StopReason::Refusal if turn.text.is_empty() => {
            turn.fail("the model declined to answer".into(), todo)
        }
        StopReason::EndTurn
        | StopReason::StopSequence
        | StopReason::ToolUse
        | StopReason::Refusal
        | StopReason::Other(_) => turn.end(Outcome::Done, todo),
    }
}

fn on_model_error(
    turn: Turn,
    phase: TurnPhase,
    why: &ModelError,
    todo: &mut Vec<TurnAction>,
) -> Next {
    if !matches!(phase, TurnPhase::Thinking) {
        return unexpected("a failed model call", turn, phase, todo);
    }
    match why {
        ModelError::ContextFull(_) => make_room(turn, todo),
        ModelError::Credentials(_)
        | ModelError::SpendCap(_)
        | ModelError::Rejected(_)
        | ModelError::Unavailable(_)
        | ModelError::Script(_) => turn.fail(why.to_string(), todo),
    }
}

/// Summarizes a conversation that was refused as too long, once.
fn make_room(mut turn: Turn, todo: &mut Vec<TurnAction>) -> Next {
    if turn.room == Room::Made {
        return turn.fail(CONTEXT_FULL.into(), todo);
    }
    todo.push(Effect::Compact.into());
    turn.room = Room::Made;
    Next::Wait(turn, TurnPhase::Thinking)
}

/// Asks the model what it was to be asked before the conversation was summarized.
fn on_compacted(
    mut turn: Turn,
    phase: TurnPhase,
    made: Compacted,
    todo: &mut Vec<TurnAction>,
) -> Next {
    if !matches!(phase, TurnPhase::Thinking) {
        return unexpected("a summary", turn, phase, todo);
    }
    let note = "the conversation was long and is summarized now";
    todo.push(HostAction::Count(made.usage).into());
    todo.push(Effect::Record(made.entry()).into());
    todo.push(Effect::Sync.into());
    todo.push(Effect::Show(Progress::Note(note.into())).into());
    todo.push(Effect::CallModel.into());
    turn.room = Room::Made;
    Next::Wait(turn, TurnPhase::Thinking)
}

fn on_judged(
    mut turn: Turn,
    phase: TurnPhase,
    verdict: CallVerdict,
    todo: &mut Vec<TurnAction>,
) -> Next {
    match (phase, verdict) {
        (TurnPhase::Judging(call), CallVerdict::Run) => turn.run(call, todo),
        (TurnPhase::Judging(call), CallVerdict::Refuse(why)) => {
            answer(&call, why, true, todo);
            turn.told_lead = false;
            turn.act(todo)
        }
        (TurnPhase::Judging(call), CallVerdict::Ask(question)) => turn.ask(call, question, todo),
        (
            phase @ (TurnPhase::TakingInput
            | TurnPhase::Interrupted
            | TurnPhase::Thinking
            | TurnPhase::Asking(_)
            | TurnPhase::Acting(_)
            | TurnPhase::ActingLast(..)),
            _,
        ) => unexpected("a verdict", turn, phase, todo),
    }
}

fn on_settled(
    turn: Turn,
    phase: TurnPhase,
    decision: Decision,
    todo: &mut Vec<TurnAction>,
) -> Next {
    match phase {
        TurnPhase::Asking(asking) if asking.question.request_id != decision.request_id => {
            withdrawn(turn, TurnPhase::Asking(asking), todo)
        }
        TurnPhase::Asking(asking) if asking.taking_input => {
            let settled = Some(Box::new(decision));
            Next::Wait(turn, TurnPhase::Asking(Asking { settled, ..asking }))
        }
        TurnPhase::Asking(asking) => turn.decide(asking, decision, todo),
        phase @ (TurnPhase::TakingInput
        | TurnPhase::Interrupted
        | TurnPhase::Thinking
        | TurnPhase::Judging(_)
        | TurnPhase::Acting(_)
        | TurnPhase::ActingLast(..)) => withdrawn(turn, phase, todo),
    }
}

fn on_tool_ended(
    turn: Turn,
    phase: TurnPhase,
    result: Result<String, ToolError>,
    todo: &mut Vec<TurnAction>,
) -> Next {
    match phase {
        TurnPhase::Acting(call) => turn.tool_ended(&call, result, todo),
        TurnPhase::ActingLast(call, others) => turn.last_tool_ended(&call, result, others, todo),
        phase @ (TurnPhase::TakingInput
        | TurnPhase::Interrupted
        | TurnPhase::Thinking
        | TurnPhase::Judging(_)
        | TurnPhase::Asking(_)) => unexpected("the end of a tool call", turn, phase, todo),
    }
}

fn on_interrupt(mut turn: Turn, phase: TurnPhase, todo: &mut Vec<TurnAction>) -> Next {
    match phase {
        TurnPhase::TakingInput | TurnPhase::Interrupted => {
            return Next::Wait(turn, TurnPhase::Interrupted);
        }
        TurnPhase::Thinking => {
            todo.push(Effect::Cancel.into());
            let content = "the user interrupted this turn".into();
            todo.push(Effect::Record(Entry::Note { content }).into());
        }
        TurnPhase::Judging(call) => answer(&call, INTERRUPTED.into(), true, todo),
        TurnPhase::Asking(asking) => {
            let is_taking_input = asking.taking_input;
            asking.give_up("the turn was interrupted", INTERRUPTED, todo);
            if is_taking_input {
                return Next::Wait(turn, TurnPhase::Interrupted);
            }
        }
        TurnPhase::Acting(call) => {
            todo.push(Effect::Cancel.into());
            let why = "interrupted by the user; what it had done until then stands";
            answer(&call, why.into(), true, todo);
        }
        // The turn ends after this call in any case.
        phase @ TurnPhase::ActingLast(..) => return Next::Wait(turn, phase),
    }
    turn.refuse_calls(INTERRUPTED, todo);
    turn.end(Outcome::Interrupted, todo)
}

fn on_wind_down(
    mut turn: Turn,
    phase: TurnPhase,
    note: String,
    todo: &mut Vec<TurnAction>,
) -> Next {
    match phase {
        TurnPhase::TakingInput => turn.input_waits = false,
        TurnPhase::Interrupted => {
            turn.refuse_calls(INTERRUPTED, todo);
            return turn.end(Outcome::Interrupted, todo);
        }
        TurnPhase::Asking(asking) => {
            todo.push(HostAction::InputUsed.into());
            asking.give_up("the agent is being shut down", WINDING_DOWN, todo);
        }
        phase @ (TurnPhase::Thinking
        | TurnPhase::Judging(_)
        | TurnPhase::Acting(_)
        | TurnPhase::ActingLast(..)) => return unexpected("a request to end", turn, phase, todo),
    }
    turn.winding_down = Some(WindDown::new(note));
    turn.refuse_calls(WINDING_DOWN, todo);
    turn.think(todo)
}

fn on_end_after_call(
    turn: Turn,
    phase: TurnPhase,
    others: &'static str,
    todo: &mut Vec<TurnAction>,
) -> Next {
    match phase {
        TurnPhase::Acting(call) | TurnPhase::ActingLast(call, _) => {
            Next::Wait(turn, TurnPhase::ActingLast(call, others))
        }
        phase @ (TurnPhase::TakingInput
        | TurnPhase::Interrupted
        | TurnPhase::Thinking
        | TurnPhase::Judging(_)
        | TurnPhase::Asking(_)) => unexpected("the end after a call", turn, phase, todo),
    }
}

fn on_stop(
    mut turn: Turn,
    phase: TurnPhase,
    limit: Option<String>,
    todo: &mut Vec<TurnAction>,
) -> Next {
    match phase {
        TurnPhase::TakingInput | TurnPhase::Interrupted => {}
        TurnPhase::Thinking => todo.push(Effect::Cancel.into()),
        TurnPhase::Judging(call) => answer(&call, STOPPED.into(), true, todo),
        TurnPhase::Asking(asking) => asking.give_up("the agent was stopped", STOPPED, todo),
        TurnPhase::Acting(call) | TurnPhase::ActingLast(call, _) => {
            todo.push(Effect::Cancel.into());
            let why = "ended before it was done: the agent was stopped; its effect is unknown";
            answer(&call, why.into(), true, todo);
        }
    }
    if let Some(limit) = limit {
        turn.text = turn.stopped(&format!("Stopped: {limit}."));
        turn.told_lead = false;
    }
    turn.refuse_calls(STOPPED, todo);
    turn.end(Outcome::Interrupted, todo)
}

/// Ignores a decision whose question was withdrawn: mail may bring an answer together with the order to end.
fn withdrawn(turn: Turn, phase: TurnPhase, todo: &mut Vec<TurnAction>) -> Next {
    todo.push(Effect::Log("a decision came after its question was withdrawn".into()).into());
    Next::Wait(turn, phase)
}

/// Ignores an event that no action asked for in this phase. That is a bug: it is logged.
fn unexpected(event: &str, turn: Turn, phase: TurnPhase, todo: &mut Vec<TurnAction>) -> Next {
    todo.push(Effect::Log(format!("unexpected in a turn: {event} while {}", phase.name())).into());
    Next::Wait(turn, phase)
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
