//! What waits for a decision of the lead or of its person: permissions, plans, ways out of the workspace.
//!
//! *Invariant:* a permission is granted by the person or by a rule, never by the lead's model; what is
//! sent as an answer went through the ledger of [`crate::protocol::request`], which lets one through.

use super::ToolError;
use super::team::off_thread;
use crate::bus::Bus;
use crate::protocol::request::{
    IgnoredAnswer, PendingRequest, RequestAnswer, RequestKind, RequestLedger, RequestVerdict,
};
use crate::store::{StoreError, roster};
use crate::wire::AgentName;
use crate::wire::message::{Body, Correlation, Message, Scope};
use crate::wire::permission::{PermissionMode, PlanApproval, Question, QuestionKind};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A question and whose it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueuedRequest {
    /// What is asked.
    pub(crate) question: Question,
    /// Who waits.
    pub(crate) owner: AgentName,
    /// Its life.
    pub(crate) incarnation: String,
}

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decider {
    /// The lead's model.
    Model,
    /// The person, or the program by what the person has set.
    Person,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApprovalDecision {
    /// Yes or no.
    pub(crate) verdict: RequestVerdict,
    /// For how long.
    pub(crate) scope: Scope,
    /// Why, or what to change.
    pub(crate) reason: Option<String>,
    /// Arguments to use instead.
    pub(crate) updated_input: Option<Value>,
}

impl ApprovalDecision {
    /// Yes or no to this one call.
    pub(crate) fn once(verdict: RequestVerdict, reason: Option<String>) -> Self {
        Self { verdict, scope: Scope::Once, reason, updated_input: None }
    }
}

/// The lead's open questions.
pub(crate) struct ApprovalQueue {
    bus: Arc<Bus>,
    incarnation: String,
    plan_approval: PlanApproval,
    mode: Cell<PermissionMode>,
    ledger: RefCell<RequestLedger>,
    asked: RefCell<BTreeMap<String, QueuedRequest>>,
}

impl ApprovalQueue {
    /// An empty one, for this life of the lead.
    pub(crate) fn new(
        bus: Arc<Bus>,
        incarnation: String,
        plan_approval: PlanApproval,
        mode: PermissionMode,
    ) -> Self {
        let (ledger, asked) = (RefCell::default(), RefCell::default());
        Self { bus, incarnation, plan_approval, mode: Cell::new(mode), ledger, asked }
    }

    /// The lead goes on in another mode.
    pub(crate) fn set_mode(&self, mode: PermissionMode) {
        self.mode.set(mode);
    }

    /// The lead's mode.
    pub(crate) fn mode(&self) -> PermissionMode {
        self.mode.get()
    }

    /// The question in a message, if it is a new one; `None` for other mail and for one that is known.
    ///
    /// # Errors
    /// It may not be acted on.
    pub(crate) fn hear(&self, message: &Message) -> Result<Option<QueuedRequest>, IgnoredAnswer> {
        let (about, tool, input, description) =
            if let Body::PermissionRequest { tool, input, description } = &message.body {
                (QuestionKind::Permission, tool.clone(), input.clone(), description.clone())
            } else if let Body::PlanApprovalRequest { plan, .. } = &message.body {
                (QuestionKind::Plan, "submit_plan".into(), json!({ "plan": plan }), plan.clone())
            } else if let Body::SandboxPermissionRequest { host, path, tool, input } = &message.body
            {
                // Nothing here asks for a host; whoever does is shown and answered all the same.
                let what = path.as_ref().or(host.as_ref()).ok_or(IgnoredAnswer::Unknown)?;
                let tool = tool.clone().unwrap_or_else(|| "network".into());
                (QuestionKind::Sandbox, tool, input.clone().unwrap_or_default(), what.clone())
            } else {
                return Ok(None);
            };
        if message.incarnation.as_deref() != Some(self.incarnation.as_str()) {
            return Err(IgnoredAnswer::OtherLife);
        }
        let request_id = message.request_id.clone().ok_or(IgnoredAnswer::Unknown)?;
        let owner = AgentName::member(&message.from).map_err(|_| IgnoredAnswer::Foreign)?;
        let incarnation = self.life_of(&owner).ok_or(IgnoredAnswer::Foreign)?;
        let tool_use_id = String::new();
        let question = Question { request_id, about, tool_use_id, tool, input, description };
        self.open(QueuedRequest { question, owner, incarnation })
    }

    fn life_of(&self, owner: &AgentName) -> Option<String> {
        let roster = roster::read(self.bus.dir()).ok()?;
        roster.member(owner.as_str()).map(|member| member.incarnation.clone())
    }

    /// Takes a question in that did not come by mail: the lead's own, or one found in a transcript.
    pub(crate) fn open(
        &self,
        asked: QueuedRequest,
    ) -> Result<Option<QueuedRequest>, IgnoredAnswer> {
        let id = asked.question.request_id.clone();
        let known = self.asked.borrow().get(&id).is_some_and(|known| {
            (&known.owner, &known.incarnation) == (&asked.owner, &asked.incarnation)
        });
        if known {
            return Ok(None);
        }
        let (kind, decider) = match asked.question.about {
            QuestionKind::Permission => (RequestKind::Permission, "user"),
            QuestionKind::Sandbox => (RequestKind::Sandbox, "user"),
            QuestionKind::Plan if self.plan_approval == PlanApproval::Person => {
                (RequestKind::Plan, "user")
            }
            QuestionKind::Plan => (RequestKind::Plan, "lead"),
        };
        self.replace_former(&asked);
        self.ledger.borrow_mut().open(PendingRequest {
            id: id.clone(),
            kind,
            owner: asked.owner.to_string(),
            decider: decider.into(),
            incarnation: asked.incarnation.clone(),
            // Who waits counts the time.
            deadline: None,
        })?;
        self.asked.borrow_mut().insert(id, asked.clone());
        Ok(Some(asked))
    }

    /// An agent asks one question at a time: a new one ends the one before.
    fn replace_former(&self, asked: &QueuedRequest) {
        let former: Vec<String> = self
            .ledger
            .borrow()
            .pending()
            .filter(|request| request.owner == asked.owner.as_str())
            .map(|request| request.id.clone())
            .filter(|id| *id != asked.question.request_id)
            .collect();
        for id in former {
            self.ledger.borrow_mut().withdraw(&id);
        }
    }

    /// Whether the person is to be asked, rather than the lead's model.
    pub(crate) fn is_for_person(&self, question: &Question) -> bool {
        question.about != QuestionKind::Plan || self.plan_approval == PlanApproval::Person
    }

    /// An open question.
    pub(crate) fn find(&self, id: &str) -> Option<QueuedRequest> {
        self.ledger.borrow().pending_of(id)?;
        self.asked.borrow().get(id).cloned()
    }

    /// Takes back what its owner no longer waits for.
    pub(crate) fn withdraw(&self, waits: impl Fn(&QueuedRequest) -> bool) -> Vec<QueuedRequest> {
        let open: Vec<String> =
            self.ledger.borrow().pending().map(|request| request.id.clone()).collect();
        let gone = open.into_iter().filter_map(|id| {
            let asked = self.asked.borrow().get(&id).cloned()?;
            let gone = !waits(&asked) && self.ledger.borrow_mut().withdraw(&id);
            gone.then_some(asked)
        });
        gone.collect()
    }

    /// Decides, and tells whoever waits (the lead itself is told by the caller).
    ///
    /// # Errors
    /// There is no such question, somebody else decides it, or the answer could not be sent.
    pub(crate) async fn decide(
        &self,
        id: &str,
        judge: Decider,
        decision: ApprovalDecision,
    ) -> Result<QueuedRequest, ToolError> {
        let found = self.find(id);
        let asked = found.ok_or_else(|| ToolError::Reply(format!("no request {id:?} is open")))?;
        let kind = match asked.question.about {
            QuestionKind::Permission => RequestKind::Permission,
            QuestionKind::Plan => RequestKind::Plan,
            QuestionKind::Sandbox => RequestKind::Sandbox,
        };
        let decider = self.ledger.borrow().pending_of(id).map(|request| request.decider.clone());
        let from = match judge {
            Decider::Model => "lead".to_owned(),
            // Whatever the model may decide, the person may.
            Decider::Person => decider.unwrap_or_default(),
        };
        let incarnation = Some(asked.incarnation.as_str());
        let answer = RequestAnswer {
            id: Some(id),
            kind,
            from: &from,
            incarnation,
            verdict: decision.verdict,
        };
        let answered = self.ledger.borrow_mut().answer(&answer, Instant::now());
        answered.map_err(|why| ToolError::Reply(format!("{id} was not answered: {why}")))?;
        tracing::info!(request_id = id, owner = %asked.owner, ?judge, verdict = ?decision.verdict,
            tool = asked.question.tool, "a request was decided");
        if !asked.owner.is_lead() {
            self.tell(&asked, decision).await?;
        }
        Ok(asked)
    }

    async fn tell(
        &self,
        asked: &QueuedRequest,
        decision: ApprovalDecision,
    ) -> Result<(), ToolError> {
        let approve = decision.verdict == RequestVerdict::Approve;
        let ApprovalDecision { scope, reason, updated_input, .. } = decision;
        let body = match asked.question.about {
            QuestionKind::Permission => {
                Body::PermissionResponse { approve, scope, reason, updated_input }
            }
            QuestionKind::Sandbox => Body::SandboxPermissionResponse { approve, scope, reason },
            QuestionKind::Plan => {
                // Nobody becomes freer than the lead by the word of a model.
                let mode = approve.then(|| PermissionMode::AcceptEdits.min(self.mode.get()));
                let mode = mode.map(|mode| mode.word().to_owned());
                Body::PlanApprovalResponse { approve, feedback: reason, mode }
            }
        };
        let correlation = Correlation {
            request_id: asked.question.request_id.clone(),
            incarnation: asked.incarnation.clone(),
        };
        let (bus, to) = (Arc::clone(&self.bus), asked.owner.clone());
        off_thread(move || bus.control(&AgentName::lead(), &to, body, correlation)).await?;
        Ok(())
    }

    /// Tells every other member that waits for nothing of this: new rules, or another mode.
    pub(crate) async fn fan_out(&self, body: Body, to: impl Fn(&str, &str) -> bool) -> usize {
        let members: Result<_, StoreError> = roster::read(self.bus.dir());
        let Ok(roster) = members else { return 0 };
        let mut told = 0;
        for member in &roster.members {
            let Ok(name) = AgentName::member(&member.name) else { continue };
            if member.status.is_over() || !to(&member.name, &member.mode) {
                continue;
            }
            let (bus, body) = (Arc::clone(&self.bus), body.clone());
            let correlation = Correlation {
                request_id: crate::bus::new_id(&AgentName::lead()),
                incarnation: member.incarnation.clone(),
            };
            let send = move || bus.control(&AgentName::lead(), &name, body, correlation);
            match off_thread(send).await {
                Ok(_) => told += 1,
                Err(why) => tracing::warn!(%why, "a member could not be told"),
            }
        }
        told
    }
}
