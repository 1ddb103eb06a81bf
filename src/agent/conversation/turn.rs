//! The state of a turn between two steps, and the answers to calls that are not run.

use super::event::{Effect, HostAction, TurnAction};
use super::loop_detector::LoopDetector;
use crate::agent::progress::Progress;
use crate::tools::{Call, ToolError, signal};
use crate::wire::chat::Block;
use crate::wire::tool::Signal;
use crate::wire::transcript::Entry;
use std::collections::VecDeque;

/// The state of a turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Model calls that the turn may take.
    pub(super) max_rounds: u32,
    /// Input was announced while it could not be taken in.
    pub(super) input_waits: bool,
    /// Model calls so far.
    pub(super) rounds: u32,
    /// The model's last text.
    pub(super) text: String,
    /// The last tool call sent this text to the lead: a result would only repeat it.
    pub(super) told_lead: bool,
    /// The model called `idle`.
    pub(super) wants_idle: bool,
    /// Messages since the last model call: the model must see them before it is idle.
    pub(super) unseen: usize,
    /// Whether the conversation was summarized since the model last answered.
    pub(super) room: Room,
    /// Plans of this turn that were not approved.
    pub(super) plans_rejected: u32,
    /// Counts repeated calls.
    pub(super) loop_detector: LoopDetector,
    /// Calls of the last reply that have not been run yet.
    pub(super) calls: VecDeque<Call>,
    /// The turn must come to its end.
    pub(super) winding_down: Option<WindDown>,
    /// The model refused to end the turn: it goes on for a few calls.
    pub(super) extension: Option<Extension>,
}

/// Model calls that a refusal to shut down is worth.
const EXTENSION_CALLS: u32 = 5;

/// Model calls that a turn gets once it is told to end.
const LAST_CALLS: u32 = 2;

/// The rest of a turn whose model refused to end it. The shutdown's deadlines do not change.
#[derive(Debug)]
pub(super) struct Extension {
    calls_left: u32,
}

impl Extension {
    /// Creates a whole extension.
    pub(super) fn new() -> Self {
        Self { calls_left: EXTENSION_CALLS }
    }
}

/// A request that is refused for its length is worth one summary, not two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Room {
    #[default]
    AsItWas,
    Made,
}

/// The end of a turn that was told to end.
#[derive(Debug)]
pub(super) struct WindDown {
    calls_left: u32,
    /// What the model is told with its next call; `None` once it was told.
    note: Option<String>,
}

impl WindDown {
    /// Creates the end of a turn whose model is told this note.
    pub(super) fn new(note: String) -> Self {
        Self { calls_left: LAST_CALLS, note: Some(note) }
    }

    /// Uses one of the last model calls, with the note if it is due; false if none is left.
    pub(super) fn use_call(&mut self, todo: &mut Vec<TurnAction>) -> bool {
        let Some(calls_left) = self.calls_left.checked_sub(1) else { return false };
        self.calls_left = calls_left;
        if let Some(content) = self.note.take() {
            todo.push(Effect::Record(Entry::Note { content }).into());
        }
        true
    }
}

impl Turn {
    /// Uses one model call of the extension; when none is left, the turn winds down for good.
    pub(super) fn use_extension(&mut self) {
        let Some(extension) = self.extension.take() else { return };
        match extension.calls_left.checked_sub(1) {
            Some(calls_left) => self.extension = Some(Extension { calls_left }),
            None => self.winding_down = Some(WindDown::new(EXTENSION_OVER.to_owned())),
        }
    }

    /// Answers a call that was run. Returns why the agent cannot go on, if it cannot.
    pub(super) fn answer_run(
        &mut self,
        call: &Call,
        result: Result<String, ToolError>,
        todo: &mut Vec<TurnAction>,
    ) -> Option<String> {
        let (result, is_error) = match result {
            Ok(content) => (content, false),
            Err(ToolError::Reply(why)) => (why, true),
            Err(ToolError::Fatal(why)) => {
                answer(call, why.clone(), true, todo);
                return Some(why);
            }
        };
        let told = self.loop_detector.look(self.rounds, call, result, is_error);
        answer(call, told, is_error, todo);
        None
    }

    /// Why the model is not called again in this turn, if it is not.
    pub(super) fn limit(&self) -> Option<String> {
        let why = self.loop_detector.end().or_else(|| {
            let rounds = self.rounds;
            let is_end = rounds >= self.max_rounds;
            is_end.then(|| format!("after {rounds} model calls in one turn (max_rounds)."))
        })?;
        Some(self.stopped(&format!("Stopped {why}")))
    }

    /// The report of a turn that a limit ended.
    pub(super) fn stopped(&self, why: &str) -> String {
        let last = if self.text.is_empty() { "none" } else { &self.text };
        format!("{why} Last words: {last}")
    }

    /// Answers the calls that are not run.
    pub(super) fn refuse_calls(&mut self, why: &str, todo: &mut Vec<TurnAction>) {
        for call in self.calls.drain(..) {
            answer(&call, why.into(), true, todo);
        }
    }

    /// Refuses all calls but the answer to the shutdown request: a turn that winds down runs no other.
    pub(super) fn refuse_work(&mut self, todo: &mut Vec<TurnAction>) {
        let (answers, work): (VecDeque<Call>, VecDeque<Call>) =
            self.calls.drain(..).partition(|call| signal(call) == Signal::AnswersShutdown);
        self.calls = work;
        self.refuse_calls(WINDING_DOWN, todo);
        self.calls = answers;
    }
}

pub(super) const WINDING_DOWN: &str =
    "not run: you are being shut down; finish with a short report";
const EXTENSION_OVER: &str = "the time you asked for is over and the shutdown stands: answer with a \
    short report of where things stand";
pub(super) const STOPPED: &str = "not run: the agent was stopped";
pub(super) const INTERRUPTED: &str = "not run: the user interrupted this turn";
pub(super) const CUT_OFF: &str = "not run: the answer was cut off at the token limit before this call was \
    complete; make the call shorter, or split it";
pub(super) const CONTEXT_FULL: &str = "the conversation no longer fits the model's context window, not even summarized; start a new \
    one (a new lead without --resume begins with an empty conversation)";

/// The call in a block of a reply.
pub(super) fn call_of(block: &Block) -> Option<Call> {
    match block {
        Block::ToolUse { id, name, input } => {
            Some(Call { id: id.clone(), name: name.clone(), input: input.clone() })
        }
        Block::Text { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
    }
}

/// Shows and records the result of a call.
pub(super) fn answer(call: &Call, content: String, is_error: bool, todo: &mut Vec<TurnAction>) {
    let (name, tool_use_id) = (call.name.clone(), call.id.clone());
    let shown = Progress::ToolEnded { name, is_error, content: content.clone() };
    todo.push(Effect::Show(shown).into());
    todo.push(Effect::Record(Entry::ToolResult { tool_use_id, content, is_error }).into());
}

pub(super) fn is_message_to_lead(call: &Call) -> bool {
    signal(call) == Signal::SendsMessage
        && call.input.get("to").and_then(|to| to.as_str()) == Some("lead")
}

pub(super) fn wants_shutdown(call: &Call) -> bool {
    call.input.get("approve").and_then(serde_json::Value::as_bool) == Some(true)
}

/// The model's refusal to end its turn, with its reason.
pub(super) fn refusal(call: &Call) -> TurnAction {
    let reason = call.input.get("reason").and_then(serde_json::Value::as_str);
    HostAction::EndRefused(reason.unwrap_or("no reason was given").into()).into()
}
