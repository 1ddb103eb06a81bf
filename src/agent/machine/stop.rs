//! How work under way ends before it is done: interrupts, orders to stop, the death of the lead.

use super::turn::{STOPPED, Turn, answer};
use super::waiting::Wait;
use super::{Machine, Phase};
use crate::agent::event::{Action, Ending, StopCause};
use crate::protocol::budget::BudgetLimit;
use crate::tools::Call;
use crate::wire::message::{Body, Message, Outcome};
use crate::wire::roster::Status;
use crate::wire::transcript::Entry;

/// The report of a turn that a budget has ended.
fn stopped_by(limit: &BudgetLimit, text: &str) -> String {
    let last = if text.is_empty() { "none" } else { text };
    format!("Stopped: {limit} are used. Last words: {last}")
}

impl Machine {
    pub(super) fn leave(&mut self, stop: StopCause, todo: &mut Vec<Action>) {
        todo.push(Action::Publish(Status::Stopping, None));
        todo.push(Action::Exit(Ending::Stopped(stop)));
        self.phase = Phase::Over;
    }

    pub(super) fn on_interrupt(&mut self, todo: &mut Vec<Action>) {
        match self.take_phase() {
            Phase::Thinking(turn) => {
                todo.push(Action::Cancel);
                let content = "the user interrupted this turn".into();
                todo.push(Action::Record(Entry::Note { content }));
                self.finish(turn, Outcome::Interrupted, todo);
            }
            Phase::Acting(mut turn, call) => {
                todo.push(Action::Cancel);
                let why = "interrupted by the user; what it had done until then stands";
                answer(&call, why.into(), true, todo);
                turn.refuse_calls("not run: the user interrupted this turn", todo);
                self.finish(turn, Outcome::Interrupted, todo);
            }
            Phase::Waiting(turn, wait) => self.interrupt_waiting(turn, wait, todo),
            Phase::Taking(Some(turn)) => {
                self.phase = Phase::Taking(Some(Turn { interrupted: true, ..turn }));
            }
            other @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::Taking(None)
            | Phase::Leaving(..)
            | Phase::Over) => self.phase = other,
        }
    }

    pub(super) fn on_stop(&mut self, stop: StopCause, todo: &mut Vec<Action>) {
        match self.take_phase() {
            Phase::Over => {}
            Phase::Resting => {
                todo.push(Action::Cancel);
                self.leave(stop, todo);
            }
            Phase::Idle | Phase::Claiming | Phase::Taking(None) => self.leave(stop, todo),
            Phase::Taking(Some(mut turn)) => {
                turn.refuse_calls(STOPPED, todo);
                self.finish_leaving(turn, stop, todo);
            }
            Phase::Thinking(mut turn) => {
                todo.push(Action::Cancel);
                if let StopCause::Budget(limit) = &stop {
                    turn.text = stopped_by(limit, &turn.text);
                    turn.told_lead = false;
                }
                self.finish_leaving(turn, stop, todo);
            }
            // What was asked stays open in the transcript: a next life asks again.
            Phase::Waiting(_, Wait { question: Some(_), .. }) if stop == StopCause::LeadLost => {
                self.leave(stop, todo);
            }
            Phase::Waiting(mut turn, wait) => {
                wait.give_up("the agent was stopped", STOPPED, todo);
                turn.refuse_calls(STOPPED, todo);
                self.finish_leaving(turn, stop, todo);
            }
            Phase::Acting(turn, call) if stop == StopCause::LeadLost => {
                todo.push(Action::StartPatience);
                self.phase = Phase::Leaving(turn, call);
            }
            Phase::Acting(turn, call) | Phase::Leaving(turn, call) => {
                self.abandon(turn, &call, stop, todo);
            }
        }
    }

    pub(super) fn on_patience_over(&mut self, todo: &mut Vec<Action>) {
        match self.take_phase() {
            Phase::Leaving(turn, call) => self.abandon(turn, &call, StopCause::LeadLost, todo),
            other @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::Taking(_)
            | Phase::Thinking(_)
            | Phase::Waiting(..)
            | Phase::Acting(..)
            | Phase::Over) => self.phase = other,
        }
    }

    fn abandon(&mut self, mut turn: Turn, call: &Call, stop: StopCause, todo: &mut Vec<Action>) {
        todo.push(Action::Cancel);
        let why = "ended before it was done: the agent was stopped; its effect is unknown";
        answer(call, why.into(), true, todo);
        turn.refuse_calls(STOPPED, todo);
        self.finish_leaving(turn, stop, todo);
    }

    /// A shutdown request that binds this life of the agent; others are logged and shown only.
    pub(super) fn shutdown_asked(
        &self,
        message: &Message,
        todo: &mut Vec<Action>,
    ) -> Option<StopCause> {
        let Body::ShutdownRequest { reason, .. } = &message.body else { return None };
        let bound = message.incarnation.as_deref() == Some(self.me.incarnation.as_str())
            && matches!(message.from.as_str(), "lead" | "user")
            && !self.me.name.is_lead();
        match &message.request_id {
            Some(request_id) if bound => Some(StopCause::Requested {
                request_id: request_id.clone(),
                by: message.from.clone(),
                reason: reason.clone().unwrap_or_else(|| message.content.clone()),
            }),
            _ => {
                let from = &message.from;
                todo.push(Action::Log(format!(
                    "a shutdown_request from {from} that does not bind this life was not acted on"
                )));
                None
            }
        }
    }
}
