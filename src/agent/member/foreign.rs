//! A member and its foreign agent: the agent's start and end, what it sends, and what the turn asks of it.

use super::Member;
use crate::agent::conversation::CallVerdict;
use crate::agent::event::{Ending, Event, MachineEvent, StopCause};
use crate::agent::foreign::event::{ForeignAction, ForeignEvent};
use crate::agent::foreign::process::{FromAgent, FromTools, ToolVerdict};
use crate::protocol::budget::BudgetVerdict;
use crate::wire::permission::QuestionKind;
use crate::wire::transcript::Entry;
use std::collections::VecDeque;
use std::time::Duration;

/// The answer to a plan. Programs wait for the result of a tool for a minute, a person may take longer.
const PLAN_SUBMITTED: &str = "Your plan was sent to be approved. End your turn now; the decision comes with your next message.";

impl Member {
    /// Starts the foreign agent, if the member has one, and waits until it has a session. Other events wait meanwhile,
    /// except for a stop. The error says why there is no session.
    pub(super) async fn start_agent(&mut self) -> Result<(), Ending> {
        let Some(agent) = &mut self.foreign else { return Ok(()) };
        agent.serve_tools().await;
        if !agent.find_place().await {
            tracing::info!("the agent starts with its first prompt: others have all places");
            return Ok(());
        }
        agent.start(Duration::ZERO);
        loop {
            let Some(agent) = &self.foreign else { return Ok(()) };
            let gone = || Ending::Broken("the event channel closed".into());
            let (process, from) = match self.host.inbound.recv().await.ok_or_else(gone)? {
                Event::Machine(MachineEvent::Stop(cause)) => return Err(Ending::Stopped(cause)),
                Event::Foreign(process, from) => (process, from),
                other @ (Event::Machine(_)
                | Event::Approval(_)
                | Event::Drained(_)
                | Event::Answered(_)
                | Event::WorkEnded(..)
                | Event::Compact
                | Event::ModelRetry(_)
                | Event::FromTools(_)
                | Event::Subagent
                | Event::IdleCheckEnded(..)) => {
                    self.host.put_off.push_back(other);
                    continue;
                }
            };
            let is_start = matches!(from, FromAgent::Started);
            if is_start && let Some(why) = agent.start_failure() {
                return Err(Ending::Broken(why));
            }
            // Reports of the agent's history come before it has a session, and have no effect.
            self.receive_from_agent(process, from).await?;
            if is_start {
                return Ok(());
            }
        }
    }

    /// Ends the foreign agent, if the member has one.
    pub(super) async fn end_agent(&mut self) {
        if let Some(agent) = &mut self.foreign {
            agent.end().await;
        }
    }

    /// Handles what the agent has sent. Returns the events for the machine.
    pub(super) async fn receive_from_agent(
        &mut self,
        process: u64,
        from: FromAgent,
    ) -> Result<VecDeque<MachineEvent>, Ending> {
        let Some(agent) = &mut self.foreign else { return Ok(VecDeque::new()) };
        let doing = agent.doing(process, &from);
        let memory = self.conversation.journal.memory();
        let (event, session) = agent.receive(process, from, memory);
        if let Some(cost) = agent.take_cost() {
            self.host.reporter.count_cost(cost);
        }
        if let Some(foreign) = session {
            let session = Entry::Session {
                incarnation: self.context.me.incarnation.clone(),
                pid: i32::try_from(std::process::id()).unwrap_or_default(),
                model: self.conversation.model.model.provider.label(),
                foreign: Some(foreign),
            };
            self.record(session).await?;
        }
        if let Some((status, activity)) = doing {
            self.publish(status, Some(activity)).await;
        }
        Ok(event.map(MachineEvent::Foreign).into_iter().collect())
    }

    /// Checks the budget and the signs of the agent while it works, which may take any time. Returns the stop if the
    /// budget is used up, or the silence if that is too long.
    pub(super) async fn check_prompt(&mut self) -> VecDeque<MachineEvent> {
        let is_busy = self.is_busy();
        let Some(agent) = self.foreign.as_mut().filter(|_| is_busy) else {
            return VecDeque::new();
        };
        let silence = agent.silence().map(MachineEvent::Foreign).into_iter().collect();
        match self.budget.check(&self.host.reporter) {
            BudgetVerdict::Fine => silence,
            // Nothing is recorded here, since mail may be taken in.
            BudgetVerdict::Nearly(limit) => {
                let me = &self.context.me.name;
                let warning = format!("{me}: {}", self.budget.warning(&limit));
                self.host.tell_lead(warning).await;
                silence
            }
            BudgetVerdict::Spent(limit) => {
                tracing::warn!(%limit, "the budget is used up");
                [MachineEvent::Stop(StopCause::Budget(limit))].into()
            }
        }
    }

    /// Handles a call of a team tool by the agent, and the mail that went with its result.
    pub(super) fn receive_from_tools(&mut self, from: FromTools) -> VecDeque<MachineEvent> {
        match from {
            FromTools::Call(call, answer) => {
                let mut submitted = VecDeque::new();
                let verdict = match self.approvals.judge(&call) {
                    CallVerdict::Run => ToolVerdict::Run,
                    CallVerdict::Refuse(why) | CallVerdict::Deny { why, .. } => {
                        ToolVerdict::Refuse(why)
                    }
                    CallVerdict::Ask(question) if question.about == QuestionKind::Plan => {
                        let event = ForeignEvent::PlanSubmitted(question);
                        submitted.push_back(MachineEvent::Foreign(event));
                        ToolVerdict::Answer(PLAN_SUBMITTED.into())
                    }
                    CallVerdict::Ask(question) => {
                        self.approvals.withdraw(&question.request_id);
                        let why = "a rule of this team asks about this tool, which is not possible here; \
                                   do without it";
                        ToolVerdict::Refuse(why.into())
                    }
                };
                // A call that was cancelled waits for nothing.
                let _cancelled = answer.send(verdict);
                submitted
            }
            FromTools::HandedOver => {
                let event = self.foreign.as_ref().and_then(|agent| agent.handed_over());
                event.map(MachineEvent::Foreign).into_iter().collect()
            }
        }
    }

    /// Performs an action of a turn of the agent. Returns the immediate answer, if there is one.
    pub(super) async fn perform_foreign(
        &mut self,
        action: ForeignAction,
    ) -> Result<Option<MachineEvent>, Ending> {
        if let ForeignAction::Judge(number, call) = &action {
            let is_own = self
                .foreign
                .as_ref()
                .is_some_and(|agent| agent.is_own_tool(call.told.name.as_deref()));
            // A tool of the team is judged when it is called.
            let verdict =
                if is_own { CallVerdict::Run } else { self.approvals.judge_foreign(call) };
            return Ok(Some(MachineEvent::Foreign(ForeignEvent::Judged(*number, verdict))));
        }
        if action == ForeignAction::Prompt
            && let Some(stop) = self.check_budget().await?
        {
            return Ok(Some(stop));
        }
        let Some(agent) = &mut self.foreign else { return Ok(None) };
        Ok(agent.perform(&action).map(MachineEvent::Foreign))
    }
}
