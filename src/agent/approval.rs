//! What a tool call must pass before it runs, and the answers to what was asked about it.
//!
//! The rules decide ([`Policy`]); where they say "ask", the question goes to the lead's person by mail
//! or to the person at this agent's own terminal, and the [`RequestLedger`] says which answer counts.

use super::Running;
use super::event::{CallVerdict, Ending, Event};
use super::machine::Identity;
use super::progress::Progress;
use crate::bus::Outgoing;
use crate::protocol::permission::{self, PermissionSubject, Policy};
use crate::protocol::request::{
    PendingRequest, RequestAnswer, RequestKind, RequestLedger, RequestState, RequestVerdict,
};
use crate::store::{liveness, roster};
use crate::tools::{Call, signal};
use crate::wire::message::{Body, Correlation, Message, Scope};
use crate::wire::permission::{
    Decision, DecisionOutcome, PermissionMode, PlanApproval, Question, QuestionKind, RuleLists,
};
use crate::wire::tool::{Signal, ToolSpec};
use crate::wire::transcript::Entry;
use crate::wire::{AgentName, WallTime};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The lead's person, by mail; nobody while there is no lead.
    Lead,
    /// The person at this agent's own terminal.
    Person,
    /// Nobody: what would ask is denied. Says why.
    Nobody(String),
}

/// An agent's approval.
pub(crate) struct ApprovalGate {
    policy: Policy,
    ledger: RequestLedger,
    asks: Asks,
    timeout: Duration,
    plan_approval: PlanApproval,
    /// What was asked last; an agent asks one question at a time.
    asked: Option<Question>,
    /// What the call that was judged last is about. An answer is about this, wherever a link leads by
    /// the time it comes.
    judged: Option<PermissionSubject>,
}

impl ApprovalGate {
    /// A approval with nothing asked yet.
    pub(crate) fn new(
        policy: Policy,
        asks: Asks,
        timeout: Duration,
        plan_approval: PlanApproval,
    ) -> Self {
        let ledger = RequestLedger::default();
        Self { policy, ledger, asks, timeout, plan_approval, asked: None, judged: None }
    }

    /// When a question expires.
    pub(super) fn due(&self) -> Option<Instant> {
        self.ledger.due()
    }

    /// Who decides, and until when, of what is asked now.
    pub(super) fn terms(&self, now: WallTime) -> (String, WallTime) {
        let decider = if self.asks == Asks::Lead { "lead" } else { "user" };
        (decider.into(), now + self.timeout)
    }

    fn judge(
        &self,
        me: &AgentName,
        call: &Call,
        tool: &ToolSpec,
        subject: &PermissionSubject,
    ) -> CallVerdict {
        let about = match self.policy.judge(tool, subject) {
            permission::PermissionVerdict::Refuse(why) => return CallVerdict::Refuse(why),
            permission::PermissionVerdict::Run
                if plan_in(call).is_some() && self.policy.mode() == PermissionMode::Plan =>
            {
                QuestionKind::Plan
            }
            permission::PermissionVerdict::Run => return CallVerdict::Run,
            permission::PermissionVerdict::Ask => QuestionKind::Permission,
            permission::PermissionVerdict::AskToLeave => QuestionKind::Sandbox,
        };
        if let Asks::Nobody(why) = &self.asks {
            let rules = permission::rules_for(about, &call.name, subject);
            return CallVerdict::Refuse(format!(
                "denied: {why}; a rule such as {:?} under `allow` in the [permissions] of the \
                 settings would allow it. Do without it, or say in your report what you could not do",
                rules.first().map_or("", String::as_str)
            ));
        }
        let description = match (about, subject) {
            (QuestionKind::Plan, _) => plan_in(call).unwrap_or_default().to_owned(),
            (_, PermissionSubject::Command(line)) => line.clone(),
            (_, PermissionSubject::Path(path) | PermissionSubject::Outside(path)) => path.clone(),
            (_, PermissionSubject::Nothing) => call.input.to_string(),
        };
        CallVerdict::Ask(Box::new(Question {
            request_id: format!("{me}:{}", call.id),
            about,
            tool_use_id: call.id.clone(),
            tool: call.name.clone(),
            input: call.input.clone(),
            description,
        }))
    }
}

/// The plan that a call submits.
fn plan_in(call: &Call) -> Option<&str> {
    let plan = call.input.get("plan").filter(|_| signal(call) == Signal::SubmitsPlan);
    plan.and_then(|plan| plan.as_str())
}

/// A message that may answer a question of ours: its kind and what it says.
fn answer_in(message: &Message) -> Option<(RequestKind, Decision)> {
    let decision = |approve: bool, reason: &Option<String>| Decision {
        request_id: message.request_id.clone().unwrap_or_default(),
        outcome: if approve { DecisionOutcome::Approved } else { DecisionOutcome::Rejected },
        by: message.from.clone(),
        scope: Scope::Once,
        reason: reason.clone(),
        updated_input: None,
        mode: None,
    };
    if let Body::PermissionResponse { approve, scope, reason, updated_input } = &message.body {
        let updated_input = updated_input.clone();
        let decision = Decision { scope: *scope, updated_input, ..decision(*approve, reason) };
        return Some((RequestKind::Permission, decision));
    }
    if let Body::SandboxPermissionResponse { approve, scope, reason } = &message.body {
        return Some((
            RequestKind::Sandbox,
            Decision { scope: *scope, ..decision(*approve, reason) },
        ));
    }
    if let Body::PlanApprovalResponse { approve, feedback, mode } = &message.body {
        let mode =
            mode.as_deref().and_then(PermissionMode::parse).unwrap_or(PermissionMode::AcceptEdits);
        let mode = approve.then_some(mode);
        return Some((RequestKind::Plan, Decision { mode, ..decision(*approve, feedback) }));
    }
    None
}

impl Running {
    /// Judges a call.
    pub(super) fn judge(&mut self, call: &Call) -> CallVerdict {
        match self.agent.tools.inspect(call) {
            Ok((tool, subject)) => {
                let me = &self.agent.me.name;
                let judgement = self.agent.approval.judge(me, call, tool, &subject);
                self.agent.approval.judged = Some(subject);
                judgement
            }
            Err(why) => CallVerdict::Refuse(why.to_string()),
        }
    }

    /// Writes a question down, then puts it to whoever decides.
    pub(super) async fn ask(&mut self, question: Question) -> Result<(), Ending> {
        let (decider, deadline) = self.agent.approval.terms(self.agent.clock.now());
        let asked = question.clone();
        self.record(Entry::Request { question: asked, decider, deadline }).await?;
        self.sync().await?;
        let approval = &mut self.agent.approval;
        let (kind, id) = (kind_of(&question), question.request_id.clone());
        let by_mail = approval.asks == Asks::Lead;
        approval.asked = Some(question.clone());
        let opened = approval.ledger.open(PendingRequest {
            id: id.clone(),
            kind,
            owner: self.agent.me.name.to_string(),
            decider: approval.terms(WallTime::default()).0,
            incarnation: self.agent.me.incarnation.clone(),
            deadline: Some(self.agent.clock.monotonic() + approval.timeout),
        });
        tracing::info!(request_id = id, tool = question.tool, ?opened, "asked");
        if !by_mail {
            (self.agent.show)(&Progress::Asked(Box::new(question)));
            return Ok(());
        }
        if let Err(why) = self.write_to_lead(question).await {
            self.agent.approval.ledger.withdraw(&id);
            let decision = Decision::by_program(&id, DecisionOutcome::Rejected, &why);
            let _gone = self.events.send(Event::Settled(decision));
        }
        Ok(())
    }

    async fn write_to_lead(&self, question: Question) -> Result<(), String> {
        let Identity { name, incarnation, .. } = self.agent.me.clone();
        let bus = Arc::clone(&self.agent.bus);
        let by_person = self.agent.approval.plan_approval == PlanApproval::Person;
        let send = move || {
            let lead = AgentName::lead();
            let alive = liveness::probe(bus.dir(), &lead).is_ok_and(|life| life.is_alive());
            let roster = roster::read(bus.dir()).map_err(|why| why.to_string())?;
            let lead_life = roster.lead.as_ref().filter(|_| alive).map(|lead| &lead.incarnation);
            let lead_life =
                lead_life.ok_or("there is no lead whose person could be asked")?.clone();
            let Question { request_id, about, tool, input, description, .. } = question;
            // Asked again in another life of either side, it is another message.
            let id = Some(format!("{request_id}:{incarnation}:{lead_life}"));
            let body = match about {
                QuestionKind::Permission => Body::PermissionRequest { tool, input, description },
                QuestionKind::Sandbox => Body::SandboxPermissionRequest {
                    host: None,
                    path: Some(description),
                    tool: Some(tool),
                    input: Some(input),
                },
                QuestionKind::Plan => {
                    let decider = by_person.then(|| AgentName::user().to_string());
                    Body::PlanApprovalRequest { plan: description, decider }
                }
            };
            let correlation = Some(Correlation { request_id, incarnation: lead_life });
            let outgoing = Outgoing { id, correlation, ..Outgoing::of(body, "") };
            bus.send(&name, lead.as_str(), outgoing).map_err(|why| why.to_string())
        };
        match tokio::task::spawn_blocking(send).await {
            Ok(sent) => sent.map(|_| ()),
            Err(why) => Err(why.to_string()),
        }
    }

    /// What the outside says about what was asked. Gives the events that follow, in order.
    pub(super) async fn filter(&mut self, event: Event) -> Vec<Event> {
        match event {
            Event::Drained(mail) => {
                let mut settled = Vec::new();
                for message in &mail {
                    settled.extend(self.filter_mail(message).await);
                }
                let mut events = vec![Event::Drained(mail)];
                events.extend(settled.into_iter().map(Event::Settled));
                events
            }
            Event::Answered(decision) => {
                let asked = self.agent.approval.ledger.pending_of(&decision.request_id);
                let kind = asked.map_or(RequestKind::Permission, |request| request.kind);
                let life = self.agent.me.incarnation.clone();
                let settled = self.settle(kind, decision, Some(&life)).await;
                settled.into_iter().map(Event::Settled).collect()
            }
            Event::SetMode(mode) => {
                self.set_mode(mode).await;
                Vec::new()
            }
            Event::AddRules(rules) => {
                self.add_rules(&rules);
                Vec::new()
            }
            other @ (Event::Mail
            | Event::DrainFailed(_)
            | Event::Prompt(_)
            | Event::Notice(_)
            | Event::Replied(_)
            | Event::Judged(_)
            | Event::Settled(_)
            | Event::DiskFull
            | Event::TeamGone(_)
            | Event::Compacted(_)
            | Event::TaskInSight
            | Event::TaskTaken
            | Event::IdleHookAnswered(_)
            | Event::ToolEnded(_)
            | Event::Interrupt
            | Event::Stop(_)
            | Event::PatienceOver) => vec![other],
        }
    }

    async fn filter_mail(&mut self, message: &Message) -> Option<Decision> {
        if let Some((kind, decision)) = answer_in(message) {
            return self.settle(kind, decision, message.incarnation.as_deref()).await;
        }
        let me = &self.agent.me;
        let bound = message.from == AgentName::lead().as_str()
            && !me.name.is_lead()
            && message.request_id.is_some()
            && message.incarnation.as_deref() == Some(me.incarnation.as_str());
        if let Body::ModeSetRequest { mode } = &message.body {
            match PermissionMode::parse(mode).filter(|_| bound) {
                Some(mode) => self.set_mode(mode).await,
                None => ignored(message),
            }
        } else if let Body::PermissionUpdate { rules } = &message.body {
            match serde_json::from_value(rules.clone()).ok().filter(|_| bound) {
                Some(rules) => self.add_rules(&rules),
                None => ignored(message),
            }
        }
        None
    }

    /// Lets an answer through if it is the one that was asked for.
    async fn settle(
        &mut self,
        kind: RequestKind,
        mut decision: Decision,
        life: Option<&str>,
    ) -> Option<Decision> {
        let verdict = RequestVerdict::of(decision.outcome == DecisionOutcome::Approved);
        let (id, from) = (decision.request_id.as_str(), decision.by.as_str());
        let answer = RequestAnswer { id: Some(id), kind, from, incarnation: life, verdict };
        let now = self.agent.clock.monotonic();
        let state = match self.agent.approval.ledger.answer(&answer, now) {
            Ok(state) => state,
            Err(why) => {
                tracing::warn!(request_id = id, from, %why, "an answer was not acted on");
                return None;
            }
        };
        if state == RequestState::Approved
            && let Some(mode) = decision.mode
        {
            self.set_mode(mode).await;
        }
        if state == RequestState::Approved
            && let Some(why) = self.check_change(&decision)
        {
            decision.outcome = DecisionOutcome::Rejected;
            decision.reason = Some(why);
        }
        if decision.outcome == DecisionOutcome::Approved && decision.scope != Scope::Once {
            self.keep();
        }
        Some(decision)
    }

    /// The call that an approval lets run.
    fn approved_call(&self, decision: &Decision) -> Option<Call> {
        let Question { tool_use_id: id, tool: name, input, .. } =
            self.agent.approval.asked.clone()?;
        Some(Call { id, name, input: decision.updated_input.clone().unwrap_or(input) })
    }

    /// What the person changed a call to must pass the rules as well; why it does not.
    fn check_change(&mut self, decision: &Decision) -> Option<String> {
        decision.updated_input.as_ref()?;
        let call = self.approved_call(decision)?;
        match self.agent.tools.inspect(&call) {
            Err(why) => Some(why.to_string()),
            Ok((tool, subject)) => {
                let verdict = self.agent.approval.policy.judge(tool, &subject);
                self.agent.approval.judged = Some(subject);
                match verdict {
                    permission::PermissionVerdict::Refuse(why) => Some(why),
                    permission::PermissionVerdict::Run
                    | permission::PermissionVerdict::Ask
                    | permission::PermissionVerdict::AskToLeave => None,
                }
            }
        }
    }

    /// An answer that holds for longer than one call is a rule from now on.
    fn keep(&mut self) {
        let approval = &self.agent.approval;
        let (Some(asked), Some(subject)) = (&approval.asked, &approval.judged) else { return };
        let allow = permission::rules_for(asked.about, &asked.tool, subject);
        self.add_rules(&RuleLists { allow, ..RuleLists::default() });
    }

    pub(super) fn add_rules(&mut self, rules: &RuleLists) {
        match self.agent.approval.policy.add(rules) {
            Ok(()) => tracing::info!(?rules, "permission rules added"),
            Err(why) => tracing::warn!(%why, "permission rules were not added"),
        }
    }

    async fn set_mode(&mut self, mode: PermissionMode) {
        let before = self.agent.approval.policy.mode();
        self.agent.approval.policy.set_mode(mode);
        tracing::info!(%before, now = %mode, "permission mode set");
        let published = self.agent.reporter.set_mode(mode).await;
        super::note_error(published);
    }

    /// The questions whose time is over.
    pub(super) fn expired(&mut self) -> Vec<Event> {
        let now = self.agent.clock.monotonic();
        let seconds = self.agent.approval.timeout.as_secs();
        let late = self.agent.approval.ledger.tick(now).into_iter();
        let settled = late.map(|id| {
            let why = format!("nobody answered within {seconds} s");
            Event::Settled(Decision::by_program(&id, DecisionOutcome::Expired, &why))
        });
        settled.collect()
    }

    /// Nobody waits for the answer any more.
    pub(super) fn withdraw(&mut self, request_id: &str) {
        self.agent.approval.ledger.withdraw(request_id);
    }
}

fn kind_of(question: &Question) -> RequestKind {
    match question.about {
        QuestionKind::Permission => RequestKind::Permission,
        QuestionKind::Plan => RequestKind::Plan,
        QuestionKind::Sandbox => RequestKind::Sandbox,
    }
}

fn ignored(message: &Message) {
    let (from, kind) = (&message.from, message.body.kind());
    tracing::warn!(from, kind, "control mail that does not bind this life was not acted on");
}
