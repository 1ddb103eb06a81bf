//! The plan of the agent, which it submits with a tool of the team. Its prompt may end before the decision; then the turn
//! waits for that.

use super::{Next, Phase, State};
use crate::agent::conversation::{HostAction, MAX_PLANS};
use crate::agent::foreign::event::ForeignAction;
use crate::agent::foreign::plans::OpenPlan;
use crate::wire::activity::Activity;
use crate::wire::chat::{Block, StopReason, Usage};
use crate::wire::permission::{Decision, DecisionOutcome, Question};
use crate::wire::transcript::Entry;

impl State {
    /// Asks about a plan. An agent that is not at work any more, or submits a second one, is not asked for.
    pub(super) fn plan_submitted(&mut self, phase: Phase, question: Box<Question>) {
        let is_in_time = matches!(phase, Phase::Prompting) && self.ends_with_prompt.is_none();
        if !is_in_time || self.plans.is_open() {
            return self.push(HostAction::Withdraw(question.request_id));
        }
        self.finish_message(StopReason::ToolUse);
        let Question { request_id, tool_use_id: id, tool: name, input, .. } = &*question;
        let block = Block::ToolUse { id: id.clone(), name: name.clone(), input: input.clone() };
        let (blocks, stop_reason) = (vec![block], StopReason::ToolUse);
        let (usage, model) = (Usage::default(), self.model.clone());
        self.record(Entry::Assistant { blocks, stop_reason, usage, model });
        self.plans.open = Some(OpenPlan { request: request_id.clone(), call: id.clone() });
        self.has_worked = true;
        self.push(HostAction::Ask(question));
    }

    /// Passes the decision about the plan to the agent: in its prompt, or with the next one.
    pub(super) fn plan_settled(&mut self, phase: Phase, decision: &Decision) -> Next {
        let reason = decision.reason.as_deref();
        if decision.outcome == DecisionOutcome::Approved {
            let mode = decision.mode.unwrap_or_default();
            let notes = reason.map(|notes| format!(" They say: {notes}")).unwrap_or_default();
            let text =
                format!("Your plan is approved. Continue in mode {mode}: carry it out.{notes}");
            self.close_plan(decision.clone(), &text, false);
            self.note(text);
        } else {
            self.plans.rejected += 1;
            let why = reason.unwrap_or("no reason was given");
            let text = format!(
                "Your plan is not approved ({} of {MAX_PLANS}): {why}",
                self.plans.rejected
            );
            self.close_plan(decision.clone(), &text, true);
            if self.plans.rejected == MAX_PLANS {
                if matches!(phase, Phase::Prompting) {
                    self.act(ForeignAction::Cancel);
                }
                return self.fail(format!("No plan was approved. {text}"));
            }
            self.note(format!("{text}; change the plan and submit it again"));
        }
        match phase {
            Phase::AwaitingPlan => self.take_input_before_prompt(),
            Phase::Prompting => {
                self.push(HostAction::Doing(Activity::Model));
                self.act(ForeignAction::Steer);
                Next::Continue(phase)
            }
            phase @ (Phase::Taking
            | Phase::Interrupted
            | Phase::Cancelling(_)
            | Phase::Restarting) => Next::Continue(phase),
        }
    }

    pub(super) fn withdraw_plan(&mut self, why: &str) {
        let Some(OpenPlan { request, .. }) = &self.plans.open else { return };
        let id = request.clone();
        let withdrawn = Decision::by_program(&id, DecisionOutcome::Withdrawn, why);
        self.close_plan(withdrawn, &format!("withdrawn: {why}"), true);
        self.push(HostAction::Withdraw(id));
    }

    fn close_plan(&mut self, decision: Decision, answer: &str, is_error: bool) {
        self.record(Entry::Decision(decision));
        if let Some(OpenPlan { call: tool_use_id, .. }) = self.plans.open.take() {
            let content = answer.to_owned();
            self.record(Entry::tool_result(tool_use_id, content, is_error, Vec::new()));
        }
    }
}
