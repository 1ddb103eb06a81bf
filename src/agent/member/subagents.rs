//! The member's part in its subagents: it judges their calls, asks their questions, counts their model calls, and shows
//! what they do.

use super::{Ending, Member};
use crate::agent::conversation::CallVerdict;
use crate::agent::event::{MachineEvent, StopCause};
use crate::agent::interrupt;
use crate::agent::subagent::{AskedBySubagent, EndReason, SubagentRequest};
use crate::wire::activity::Activity;
use crate::wire::message::Message;
use crate::wire::permission::{Decision, DecisionOutcome, Question, QuestionKind};
use crate::wire::roster::Status;
use crate::wire::transcript::Entry;
use std::collections::VecDeque;
use tokio::sync::oneshot;

impl Member {
    /// Handles the next request of a subagent. Returns the resulting events for the machine.
    pub(super) async fn receive_from_subagents(
        &mut self,
    ) -> Result<VecDeque<MachineEvent>, Ending> {
        let request = self.subagents.all.as_ref().and_then(|all| all.next_request());
        match request {
            Some(request) => self.receive_from_subagent(request).await,
            None => Ok(VecDeque::new()),
        }
    }

    async fn receive_from_subagent(
        &mut self,
        request: SubagentRequest,
    ) -> Result<VecDeque<MachineEvent>, Ending> {
        match request {
            SubagentRequest::Begin { start, reply } => {
                self.record(Entry::Subagent(start)).await?;
                let synced = self.conversation.journal.sync().await;
                synced.map_err(|why| self.host.ending(why))?;
                answer(reply, ());
            }
            SubagentRequest::Judge { asker, call, reply } => {
                let verdict = self.approvals.judge_for_subagent(&asker, &call);
                if let CallVerdict::Deny { decision, .. } = &verdict {
                    self.record(Entry::Decision((**decision).clone())).await?;
                }
                answer(reply, verdict);
            }
            SubagentRequest::Ask { number, question, reply } => {
                self.ask_for_subagent(number, *question, reply).await?;
            }
            SubagentRequest::Count(usage, price) => {
                self.budget.count_call_at(usage, price, &mut self.host.reporter);
            }
            SubagentRequest::CountSwitch(number, why) => {
                self.host.reporter.count_switch();
                self.subagents.doing.insert(number, Activity::Retrying(why));
                self.publish_again().await;
            }
            SubagentRequest::CheckBudget(reply) => {
                let stop = self.check_budget().await?;
                if let Some(MachineEvent::Stop(StopCause::Budget(limit))) = &stop {
                    answer(reply, Some(*limit));
                } else {
                    answer(reply, None);
                }
                return Ok(stop.into_iter().collect());
            }
            SubagentRequest::Doing(number, activity) => {
                self.subagents.doing.insert(number, activity);
                self.publish_again().await;
            }
            SubagentRequest::Ended(number) => {
                self.subagents.doing.remove(&number);
                self.withdraw_questions(|asked| asked == number).await?;
                if let Some(all) = &self.subagents.all {
                    all.forget_ended();
                }
                self.publish_again().await;
            }
        }
        Ok(VecDeque::new())
    }

    async fn ask_for_subagent(
        &mut self,
        number: u64,
        question: Question,
        reply: oneshot::Sender<Decision>,
    ) -> Result<(), Ending> {
        let activity = match question.about {
            QuestionKind::Sandbox => Activity::Sandbox(question.tool.clone()),
            QuestionKind::Permission | QuestionKind::Plan => {
                Activity::Permission(question.tool.clone())
            }
        };
        let id = question.request_id.clone();
        let (journal, host) = (&mut self.conversation.journal, &mut self.host);
        let asked = self.approvals.ask(question, journal, host).await;
        match asked.map_err(|why| self.host.ending(why))? {
            Some(decision) => {
                self.record(Entry::Decision(decision.clone())).await?;
                answer(reply, decision);
            }
            None => {
                self.subagents.asking.insert(id, AskedBySubagent { number, activity, reply });
                self.publish_again().await;
            }
        }
        Ok(())
    }

    /// Gives decisions on questions of subagents to these, and returns the others as events.
    pub(super) async fn settled(
        &mut self,
        decisions: impl IntoIterator<Item = Decision>,
    ) -> Result<VecDeque<MachineEvent>, Ending> {
        let mut own = VecDeque::new();
        for decision in decisions {
            let Some(asked) = self.subagents.asking.remove(&decision.request_id) else {
                own.push_back(MachineEvent::Settled(decision));
                continue;
            };
            self.record(Entry::Decision(decision.clone())).await?;
            answer(asked.reply, decision);
            self.publish_again().await;
        }
        Ok(own)
    }

    /// Withdraws the open questions of the subagents that `whose` selects by their numbers.
    pub(super) async fn withdraw_questions(
        &mut self,
        whose: impl Fn(u64) -> bool,
    ) -> Result<(), Ending> {
        let gone: Vec<String> = {
            let asking = self.subagents.asking.iter();
            asking.filter(|(_, it)| whose(it.number)).map(|(id, _)| id.clone()).collect()
        };
        for id in gone {
            self.subagents.asking.remove(&id);
            self.approvals.withdraw(&id);
            let why = "the subagent was ended";
            let decision = Decision::by_program(&id, DecisionOutcome::Withdrawn, why);
            self.record(Entry::Decision(decision)).await?;
        }
        Ok(())
    }

    /// Withdraws the questions of the subagents whose calls the turn cancels now.
    pub(super) async fn withdraw_cancelled(&mut self) -> Result<(), Ending> {
        let Some(all) = self.subagents.all.clone() else { return Ok(()) };
        self.withdraw_questions(|number| !all.is_background(number)).await
    }

    /// Ends the subagents, because the person has interrupted their caller. Returns a note for the model.
    fn interrupt_subagents(&mut self) -> Option<MachineEvent> {
        let all = self.subagents.all.as_ref()?;
        all.set_end_reason(EndReason::Interrupted);
        let ended = all.end_background(EndReason::Interrupted);
        let me = &self.context.me.name;
        let ids: Vec<String> = ended.iter().map(|number| format!("{me}:{number}")).collect();
        (!ids.is_empty()).then(|| {
            let ids = ids.join(", ");
            MachineEvent::Notice(format!(
                "the user has ended your subagents in the background: {ids}"
            ))
        })
    }

    /// Ends the subagents in the background if mail has a new interrupt request. Returns a note for the model.
    pub(super) fn interrupt_subagents_by(&mut self, mail: &[Message]) -> Option<MachineEvent> {
        let me = &self.context.me;
        let asked = mail.iter().filter_map(|it| interrupt::request_in(me, it)?.ok());
        let ids: Vec<String> = asked.map(|asked| asked.request_id).collect();
        let mut is_new = false;
        for id in ids {
            is_new |= self.subagents.interrupts.insert(id);
        }
        is_new.then(|| self.interrupt_subagents()).flatten()
    }

    /// Ends the subagents if this event is an interrupt: of the person, or a request that was found before its drain. Returns
    /// a note for the model.
    pub(super) fn interrupt_subagents_on(&mut self, event: &MachineEvent) -> Option<MachineEvent> {
        if matches!(event, MachineEvent::Interrupt) {
            return self.interrupt_subagents();
        }
        let MachineEvent::InterruptAsked(asked) = event else { return None };
        let is_new = self.subagents.interrupts.insert(asked.request_id.clone());
        is_new.then(|| self.interrupt_subagents()).flatten()
    }

    /// Ends all subagents with the member.
    pub(super) async fn end_subagents(&mut self) {
        let Some(all) = self.subagents.all.clone() else { return };
        all.end_background(EndReason::Stopped);
        if self.withdraw_questions(|_| true).await.is_err() {
            tracing::warn!("the questions of subagents were not withdrawn");
        }
    }

    /// Publishes the status anew after a change of what subagents do.
    async fn publish_again(&mut self) {
        let (status, activity) = self.subagents.own.clone();
        let is_of_tool = matches!(activity, Some(Activity::Tool(_)));
        if status == Status::Idle || status == Status::Working && is_of_tool {
            self.publish(status, activity).await;
        }
    }
}

fn answer<T>(reply: oneshot::Sender<T>, answer: T) {
    // A subagent that was dropped meanwhile waits for nothing.
    let _dropped = reply.send(answer);
}
