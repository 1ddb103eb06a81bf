//! Between a call and its start: it is judged, and where the rules say so, somebody is asked. Mail is
//! taken in meanwhile, for the answer comes by mail.

use super::turn::{Turn, WINDING_DOWN, WindDown, answer, show_mail};
use super::{Machine, Phase};
use crate::agent::event::{Action, CallVerdict};
use crate::tools::Call;
use crate::wire::activity::Activity;
use crate::wire::message::{Message, Outcome};
use crate::wire::permission::{self, Decision, Question, QuestionKind};
use crate::wire::roster::Status;
use crate::wire::transcript::Entry;

/// Plans of one turn that may be rejected before the turn ends.
const MOST_PLANS: u32 = 5;

/// A call that may not run yet.
#[derive(Debug)]
pub(super) struct Wait {
    call: Call,
    /// What was asked; nothing while the call is judged.
    pub(super) question: Option<Box<Question>>,
    /// Mail is being taken in.
    pub(super) draining: bool,
    /// Came while mail was being taken in, and waits for that to end.
    settled: Option<Box<Decision>>,
}

impl Wait {
    /// A call that is being judged.
    pub(super) fn of(call: Call) -> Self {
        Self { call, question: None, draining: false, settled: None }
    }

    /// Whether mail can be taken in now.
    pub(super) fn may_drain(&self) -> bool {
        self.question.is_some() && !self.draining
    }

    /// Takes back what was asked and answers the call as not run.
    pub(super) fn give_up(self, reason: &str, why: &str, todo: &mut Vec<Action>) {
        if let Some(question) = self.question {
            let id = question.request_id;
            let outcome = permission::DecisionOutcome::Withdrawn;
            let decision = Decision::by_program(&id, outcome, reason);
            todo.push(Action::Record(Entry::Decision(decision)));
            todo.push(Action::Withdraw(id));
        }
        answer(&self.call, why.into(), true, todo);
    }
}

impl Machine {
    pub(super) fn on_judged(&mut self, judgement: CallVerdict, todo: &mut Vec<Action>) {
        let Some((mut turn, mut wait)) = self.end_waiting() else { return };
        if wait.question.is_some() {
            self.phase = Phase::Waiting(turn, wait);
            return;
        }
        match judgement {
            CallVerdict::Run => self.run_tool(turn, wait.call, todo),
            CallVerdict::Refuse(why) => {
                answer(&wait.call, why, true, todo);
                turn.told_lead = false;
                self.act(turn, todo);
            }
            CallVerdict::Ask(question) => {
                let activity = match question.about {
                    QuestionKind::Permission => Activity::Permission(question.tool.clone()),
                    QuestionKind::Plan => Activity::Plan,
                    QuestionKind::Sandbox => Activity::Sandbox(question.tool.clone()),
                };
                self.published_idle = false;
                todo.push(Action::Publish(Status::Waiting, Some(activity)));
                todo.push(Action::Ask(question.clone()));
                wait.question = Some(question);
                // Mail that came meanwhile may be what ends the wait.
                wait.draining = std::mem::take(&mut self.mail_again);
                if wait.draining {
                    todo.push(Action::Drain);
                }
                self.phase = Phase::Waiting(turn, wait);
            }
        }
    }

    pub(super) fn on_settled(&mut self, decision: Decision, todo: &mut Vec<Action>) {
        let Some((turn, mut wait)) = self.end_waiting() else { return };
        let asked = wait.question.as_ref().map(|question| question.request_id.as_str());
        if asked != Some(decision.request_id.as_str()) {
            self.phase = Phase::Waiting(turn, wait);
        } else if wait.draining {
            wait.settled = Some(Box::new(decision));
            self.phase = Phase::Waiting(turn, wait);
        } else {
            self.go_on(turn, wait, decision, todo);
        }
    }

    fn go_on(&mut self, mut turn: Turn, wait: Wait, decision: Decision, todo: &mut Vec<Action>) {
        let Some(question) = wait.question else { return };
        let mut call = wait.call;
        todo.push(Action::Record(Entry::Decision(decision.clone())));
        let approved = decision.outcome == permission::DecisionOutcome::Approved;
        match question.about {
            QuestionKind::Permission | QuestionKind::Sandbox if approved => {
                if let Some(input) = decision.updated_input {
                    let content = format!("the user changed this call of {} to {input}", call.name);
                    todo.push(Action::Record(Entry::Note { content }));
                    call.input = input;
                }
                self.run_tool(turn, call, todo);
            }
            QuestionKind::Permission | QuestionKind::Sandbox => {
                answer(&call, denied(&decision), true, todo);
                turn.told_lead = false;
                self.act(turn, todo);
            }
            QuestionKind::Plan if approved => {
                let mode = decision.mode.unwrap_or_default();
                let notes = decision.reason.map(|notes| format!(" They say: {notes}"));
                let notes = notes.unwrap_or_default();
                let text =
                    format!("Approved. You go on in mode {mode}: carry the plan out.{notes}");
                answer(&call, text, false, todo);
                self.act(turn, todo);
            }
            QuestionKind::Plan => {
                turn.plans_rejected += 1;
                let why = decision.reason.unwrap_or_else(|| "no reason was given".into());
                let (count, most) = (turn.plans_rejected, MOST_PLANS);
                let text = format!("Not approved ({count} of {most}): {why}");
                let advice = "; change the plan and submit it again";
                let advice = if count < most { advice } else { "" };
                answer(&call, format!("{text}{advice}"), true, todo);
                turn.told_lead = false;
                if count < most {
                    return self.act(turn, todo);
                }
                turn.refuse_calls("not run: the plan was rejected too often", todo);
                self.fail(turn, format!("No plan was approved. {text}"), todo);
            }
        }
    }

    /// Mail was taken in while somebody is asked.
    pub(super) fn on_drained_waiting(&mut self, mail: &[Message], todo: &mut Vec<Action>) {
        show_mail(mail, todo);
        todo.push(Action::MarkTaken);
        let stop = mail.iter().find_map(|message| self.shutdown_asked(message, todo));
        if let Phase::Waiting(turn, _) = &mut self.phase {
            turn.unseen += mail.iter().filter(|message| message.body.wakes()).count();
        }
        let settled = self.end_draining();
        if let Some(stop) = stop {
            let Some((mut turn, wait)) = self.end_waiting() else { return };
            todo.push(Action::OpenShutdown(stop.clone()));
            wait.give_up("the agent is being shut down", WINDING_DOWN, todo);
            turn.refuse_calls(WINDING_DOWN, todo);
            turn.winding_down = Some(WindDown::asked(stop));
            return self.think(turn, todo);
        }
        if let Some(decision) = settled {
            return self.on_settled(decision, todo);
        }
        if std::mem::take(&mut self.mail_again) {
            self.on_mail(todo);
        }
    }

    /// The turn that waits, and what for.
    fn end_waiting(&mut self) -> Option<(Turn, Wait)> {
        match self.take_phase() {
            Phase::Waiting(turn, wait) => Some((turn, wait)),
            other @ (Phase::Idle
            | Phase::Claiming
            | Phase::Resting
            | Phase::Taking(_)
            | Phase::Thinking(_)
            | Phase::Acting(..)
            | Phase::Leaving(..)
            | Phase::Over) => {
                self.phase = other;
                None
            }
        }
    }

    /// Mail is no longer being taken in for one who waits; gives the decision that came meanwhile.
    pub(super) fn end_draining(&mut self) -> Option<Decision> {
        let Phase::Waiting(_, wait) = &mut self.phase else { return None };
        wait.draining = false;
        wait.settled.take().map(|decision| *decision)
    }

    pub(super) fn interrupt_waiting(&mut self, turn: Turn, wait: Wait, todo: &mut Vec<Action>) {
        let draining = wait.draining;
        let mut turn = Turn { interrupted: true, ..turn };
        wait.give_up("the turn was interrupted", "not run: the user interrupted this turn", todo);
        if draining {
            self.phase = Phase::Taking(Some(turn));
        } else {
            turn.refuse_calls("not run: the user interrupted this turn", todo);
            self.finish(turn, Outcome::Interrupted, todo);
        }
    }
}

/// What the model is told when a call may not run.
fn denied(decision: &Decision) -> String {
    let reason = decision.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let by = if decision.by == "lead" { "the user" } else { &decision.by };
    let expired = decision.outcome == permission::DecisionOutcome::Expired;
    let who = if expired { "denied".into() } else { format!("denied by {by}") };
    format!("{who}{reason}; do without it, or say in your report what you could not do")
}
