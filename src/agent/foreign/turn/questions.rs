//! The questions of the agent about its calls.

use super::{Asked, Phase, State};
use crate::acp::update::ToolUpdate;
use crate::agent::conversation::{CallVerdict, HostAction, TurnEffect, denied};
use crate::agent::foreign::call::ForeignCall;
use crate::agent::foreign::event::{AskAnswer, AskNumber, ForeignAction};
use crate::wire::permission::{Decision, DecisionOutcome};
use crate::wire::transcript::Entry;

impl State {
    pub(super) fn asked(&mut self, phase: Phase, number: AskNumber, told: ToolUpdate) {
        let is_prompting = matches!(phase, Phase::Prompting);
        if !is_prompting {
            return self.act(ForeignAction::Answer(number, AskAnswer::Cancelled));
        }
        let id = self.calls.asked_about(told);
        self.announce(&id);
        let Some(call) = self.calls.get(&id).cloned() else { return };
        self.asked.insert(number, Asked { call: id, request: None });
        match self.ends_with_prompt {
            Some(why) => self.reject(number, why.into()),
            None => self.act(ForeignAction::Judge(number, Box::new(call))),
        }
    }

    pub(super) fn judged(&mut self, number: AskNumber, verdict: CallVerdict) {
        if !self.asked.contains_key(&number) {
            return;
        }
        match verdict {
            CallVerdict::Run => self.allow(number),
            CallVerdict::Refuse(why) => self.reject(number, why),
            CallVerdict::Deny { decision, why } => {
                self.record(Entry::Decision(*decision));
                self.reject(number, why);
            }
            CallVerdict::Ask(question) => {
                if let Some(asked) = self.asked.get_mut(&number) {
                    asked.request = Some(question.request_id.clone());
                }
                self.push(HostAction::Ask(question));
            }
        }
    }

    pub(super) fn settled(&mut self, decision: &Decision) {
        let id = decision.request_id.as_str();
        let found = self.asked.iter().find(|(_, asked)| asked.request.as_deref() == Some(id));
        let Some((&number, _)) = found else {
            let late = "a decision came after its question was withdrawn".into();
            return self.push(TurnEffect::Log(late));
        };
        self.record(Entry::Decision(decision.clone()));
        let is_approved = decision.outcome == DecisionOutcome::Approved;
        match &decision.updated_input {
            Some(input) if is_approved => {
                let why = format!("not run as it was; the user wants this instead: {input}");
                self.reject(number, why);
            }
            Some(_) | None if is_approved => self.allow(number),
            Some(_) | None => self.reject(number, denied(decision)),
        }
    }

    pub(super) fn allow(&mut self, number: AskNumber) {
        let Some(Asked { call, .. }) = self.asked.remove(&number) else { return };
        // The intent is durable before the tool runs.
        self.start(&call);
        self.push(TurnEffect::Sync);
        self.act(ForeignAction::Answer(number, AskAnswer::Allow));
    }

    pub(super) fn reject(&mut self, number: AskNumber, why: String) {
        let Some(Asked { call, .. }) = self.asked.remove(&number) else { return };
        let told = self.calls.get(&call).map(ForeignCall::description).unwrap_or_default();
        self.act(ForeignAction::Answer(number, AskAnswer::Reject));
        let subject: String = told.lines().next().unwrap_or_default().chars().take(200).collect();
        self.note(format!("{subject}: {why}"));
        self.finish(&call, why, true);
        self.refusals.is_last = true;
    }

    /// Withdraws all questions, and gives every call without a result one.
    pub(super) fn close_calls(&mut self, question: &str, running: &str) {
        for (number, Asked { request, .. }) in std::mem::take(&mut self.asked) {
            self.act(ForeignAction::Answer(number, AskAnswer::Cancelled));
            if let Some(id) = request {
                let withdrawn = Decision::by_program(&id, DecisionOutcome::Withdrawn, question);
                self.record(Entry::Decision(withdrawn));
                self.push(HostAction::Withdraw(id));
            }
        }
        for id in self.calls.open() {
            self.finish(&id, running.into(), true);
        }
    }
}
