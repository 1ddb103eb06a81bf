//! A turn under way: what it remembers between two steps, and how calls that are not run are answered.

use super::loop_detector::LoopDetector;
use crate::agent::event::{Action, StopCause};
use crate::agent::progress::Progress;
use crate::tools::{Call, signal};
use crate::wire::chat::Block;
use crate::wire::message::Message;
use crate::wire::tool::Signal;
use crate::wire::transcript::Entry;
use std::collections::VecDeque;

/// A turn under way.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Model calls so far.
    pub(super) rounds: u32,
    /// The model's last text.
    pub(super) text: String,
    /// The last tool call was this message to the lead: saying it again as a result would be noise.
    pub(super) told_lead: bool,
    /// The model called `idle`.
    pub(super) wants_idle: bool,
    /// Messages since the model was asked last: it must see them before it rests.
    pub(super) unseen: usize,
    /// Whether the conversation was made shorter since the model last answered.
    pub(super) room: Room,
    /// The person interrupted it while mail was being taken in.
    pub(super) interrupted: bool,
    /// Plans of this turn that were not approved.
    pub(super) plans_rejected: u32,
    /// What comes again and again.
    pub(super) loop_detector: LoopDetector,
    /// Calls of the last reply that have not been run yet.
    pub(super) calls: VecDeque<Call>,
    /// A shutdown request waits for the turn to end.
    pub(super) winding_down: Option<WindDown>,
    /// It was refused: the turn goes on for a while.
    pub(super) extension: Option<Extension>,
}

/// Model calls that a refusal to shut down is worth.
const EXTENSION_CALLS: u32 = 5;

/// The rest of a turn whose model refused to shut down. The ladder's deadlines stand all the same.
#[derive(Debug)]
pub(super) struct Extension {
    stop: StopCause,
    calls_left: u32,
}

impl Extension {
    /// A refusal of this request.
    pub(super) fn of(stop: StopCause) -> Self {
        Self { stop, calls_left: EXTENSION_CALLS }
    }
}

/// A request that is refused for its length is worth one summary, not two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Room {
    #[default]
    AsItWas,
    Made,
}

#[derive(Debug)]
pub(super) struct WindDown {
    pub(super) stop: StopCause,
    /// Model calls it still gets to say its last words.
    calls_left: u32,
    /// What the model is told; nothing once it was.
    note: Option<String>,
}

impl WindDown {
    /// The first time the model is asked.
    pub(super) fn asked(stop: StopCause) -> Self {
        let note = Some(shutdown_note(&stop));
        Self { stop, calls_left: 2, note }
    }

    /// One model call less; `None` when it has had its last words.
    pub(super) fn count_call(&mut self, todo: &mut Vec<Action>) -> Option<u32> {
        self.calls_left = self.calls_left.checked_sub(1)?;
        if let Some(content) = self.note.take() {
            todo.push(Action::Record(Entry::Note { content }));
        }
        Some(self.calls_left)
    }
}

impl Turn {
    /// One model call of the extension is used; when none is left, the turn winds down for good.
    pub(super) fn use_extension(&mut self) {
        let Some(extension) = self.extension.take() else { return };
        match extension.calls_left.checked_sub(1) {
            Some(calls_left) => self.extension = Some(Extension { calls_left, ..extension }),
            None => {
                let note = Some(EXTENSION_OVER.to_owned());
                self.winding_down = Some(WindDown { stop: extension.stop, calls_left: 2, note });
            }
        }
    }

    /// A call has come to an end.
    pub(super) fn answer(
        &mut self,
        call: &Call,
        result: String,
        is_error: bool,
        todo: &mut Vec<Action>,
    ) {
        let told = self.loop_detector.look(self.rounds, call, result, is_error);
        answer(call, told, is_error, todo);
    }

    /// Why the model is not called again in this turn.
    pub(super) fn limit(&self, max_rounds: u32) -> Option<String> {
        let why = self.loop_detector.end().or_else(|| {
            let rounds = self.rounds;
            let is_end = rounds >= max_rounds;
            is_end.then(|| format!("after {rounds} model calls in one turn (max_rounds)."))
        })?;
        let last = if self.text.is_empty() { "none" } else { &self.text };
        Some(format!("Stopped {why} Last words: {last}"))
    }

    /// What the agent leaves for when the turn is over.
    pub(super) fn leaves_for(&self) -> Option<StopCause> {
        let winding_down = self.winding_down.as_ref().map(|end| &end.stop);
        winding_down.or(self.extension.as_ref().map(|extension| &extension.stop)).cloned()
    }

    /// Answers the calls that will not be run.
    pub(super) fn refuse_calls(&mut self, why: &str, todo: &mut Vec<Action>) {
        for call in self.calls.drain(..) {
            answer(&call, why.into(), true, todo);
        }
    }

    /// While winding down, the answer to the shutdown request is the only call that is run.
    pub(super) fn refuse_work(&mut self, todo: &mut Vec<Action>) {
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
pub(super) const CUT_OFF: &str = "not run: the answer was cut off at the token limit before this call was \
    complete; make the call shorter, or split it";
pub(super) const CONTEXT_FULL: &str = "the conversation no longer fits the model's context window, not even summarized; start a new \
    one (a new lead without --resume begins with an empty conversation)";

pub(super) fn show_mail(mail: &[Message], todo: &mut Vec<Action>) {
    let shown = mail.iter().map(|message| Progress::Mail(Box::new(message.clone())));
    todo.extend(shown.map(Action::Show));
}

pub(super) fn call_of(block: &Block) -> Option<Call> {
    match block {
        Block::ToolUse { id, name, input } => {
            Some(Call { id: id.clone(), name: name.clone(), input: input.clone() })
        }
        Block::Text { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
    }
}

pub(super) fn answer(call: &Call, content: String, is_error: bool, todo: &mut Vec<Action>) {
    let (name, tool_use_id) = (call.name.clone(), call.id.clone());
    todo.push(Action::Show(Progress::ToolEnded { name, is_error, content: content.clone() }));
    todo.push(Action::Record(Entry::ToolResult { tool_use_id, content, is_error }));
}

pub(super) fn is_message_to_lead(call: &Call) -> bool {
    signal(call) == Signal::SendsMessage
        && call.input.get("to").and_then(|to| to.as_str()) == Some("lead")
}

pub(super) fn wants_shutdown(call: &Call) -> bool {
    call.input.get("approve").and_then(serde_json::Value::as_bool) == Some(true)
}

/// What a refusal is told to whoever looks.
pub(super) fn refusal(call: &Call) -> Action {
    let reason = call.input.get("reason").and_then(serde_json::Value::as_str);
    Action::SayRefused(reason.unwrap_or("no reason was given").into())
}

fn shutdown_note(stop: &StopCause) -> String {
    match stop {
        StopCause::Requested { request_id, by, reason } => format!(
            "{by} asks you to shut down ({reason}). Finish now: answer with a short report of where \
             things stand. To refuse, call shutdown_response with request_id {request_id:?}, \
             approve false and a reason: you may finish the most necessary then, but the program \
             ends you at the deadline all the same."
        ),
        StopCause::LeadLost | StopCause::Budget(_) | StopCause::AtOnce => {
            "you are being stopped; finish now".into()
        }
    }
}
