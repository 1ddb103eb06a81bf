//! The lead's queue of requests for a decision: permissions, plans, files outside the workspace.
//!
//! *Invariant:* a permission is granted by the person or by a rule, never by the lead's model. Every answer
//! passes the ledger of [`crate::protocol::request`], which accepts one per request.

use super::approval_decision::{ApprovalDecision, Decider};
use super::call::ToolError;
use crate::bus::Bus;
use crate::protocol::request::{
    IgnoredAnswer, PendingRequest, RequestAnswer, RequestLedger, RequestVerdict,
};
use crate::store::asynchronous::offload;
use crate::store::{roster, transcript};
use crate::wire::AgentName;
use crate::wire::message::{Body, Correlation, Message};
use crate::wire::permission::{PermissionMode, PlanApproval, Question, QuestionKind};
use crate::wire::subagent::SubagentId;
use crate::wire::tool::{ToolLookup, ToolSpec};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueuedRequest {
    pub(crate) question: Question,
    pub(crate) owner: AgentName,
    pub(crate) incarnation: String,
}

pub(crate) struct ApprovalQueue {
    bus: Arc<Bus>,
    incarnation: String,
    /// The name of the tool whose calls submit plans.
    plan_tool: &'static str,
    find: ToolLookup,
    plan_approval: PlanApproval,
    pub(crate) mode: Cell<PermissionMode>,
    ledger: RefCell<RequestLedger>,
    asked: RefCell<BTreeMap<String, QueuedRequest>>,
    /// The requests of plans that the lead's model has in its mail, which the queue may receive later.
    noted_plans: RefCell<BTreeSet<String>>,
}

impl ApprovalQueue {
    /// Creates an empty queue for this incarnation of the lead.
    pub(crate) fn new(
        bus: Arc<Bus>,
        incarnation: String,
        plan_tool: &'static str,
        find: ToolLookup,
        plan_approval: PlanApproval,
        mode: PermissionMode,
    ) -> Self {
        let (ledger, asked) = (RefCell::default(), RefCell::default());
        let (mode, noted_plans) = (Cell::new(mode), RefCell::default());
        Self { bus, incarnation, plan_tool, find, plan_approval, mode, ledger, asked, noted_plans }
    }

    /// Opens the request in a message. Returns `None` for other mail and for a known request; fails for an invalid
    /// one.
    pub(crate) fn accept(&self, message: &Message) -> Result<Option<QueuedRequest>, IgnoredAnswer> {
        match self.request_in(message)? {
            Some(request) => self.open(request),
            None => Ok(None),
        }
    }

    /// Notes the plan in a message, if the lead's model decides about it.
    pub(crate) fn note_plan(&self, message: &Message) {
        if let Ok(Some(asked)) = self.request_in(message)
            && !self.is_for_person(&asked)
        {
            self.noted_plans.borrow_mut().insert(asked.question.request_id);
        }
    }

    /// Whether a plan waits for a decision of the lead's model.
    pub(crate) fn has_plan_for_model(&self) -> bool {
        if self.mode.get() == PermissionMode::Plan {
            return false;
        }
        let is_open = |id: &String| {
            let known = self.find(id);
            let is_plan = known.as_ref().is_some_and(|asked| !self.is_for_person(asked));
            is_plan || (known.is_none() && !self.asked.borrow().contains_key(id))
        };
        let noted = self.noted_plans.borrow();
        noted.iter().any(is_open) || self.asked.borrow().keys().any(is_open)
    }

    /// Reads the request in a message. Returns `None` for other mail; fails for an invalid request.
    fn request_in(&self, message: &Message) -> Result<Option<QueuedRequest>, IgnoredAnswer> {
        let (about, tool, input, description, subagent) =
            if let Body::PermissionRequest { tool, input, description, subagent } = &message.body {
                let about = QuestionKind::Permission;
                (about, tool.clone(), input.clone(), description.clone(), subagent.clone())
            } else if let Body::PlanApprovalRequest { plan, .. } = &message.body {
                let tool = self.plan_tool.into();
                (QuestionKind::Plan, tool, json!({ "plan": plan }), plan.clone(), None)
            } else if let Body::SandboxPermissionRequest { host, path, tool, input, subagent } =
                &message.body
            {
                let tool = tool.clone().unwrap_or_else(|| "network".into());
                let input = input.clone().unwrap_or_default();
                let command = (self.find)(&tool).and_then(ToolSpec::command_argument);
                let command = command.and_then(|name| input.get(name)?.as_str());
                let what = path.as_deref().or(command).or(host.as_deref());
                let what = what.ok_or(IgnoredAnswer::Unknown)?.to_owned();
                (QuestionKind::Sandbox, tool, input, what, subagent.clone())
            } else {
                return Ok(None);
            };
        if !message.is_verified() {
            return Err(IgnoredAnswer::Unverified);
        }
        if message.incarnation.as_deref() != Some(self.incarnation.as_str()) {
            return Err(IgnoredAnswer::OtherIncarnation);
        }
        let request_id = message.request_id.clone().ok_or(IgnoredAnswer::Unknown)?;
        let owner = AgentName::member(&message.from).map_err(|_| IgnoredAnswer::Foreign)?;
        let roster = roster::read(self.bus.dir()).map_err(|_| IgnoredAnswer::Foreign)?;
        let member = roster.member(owner.as_str()).ok_or(IgnoredAnswer::Foreign)?;
        let incarnation = member.incarnation.clone();
        let tool_use_id = String::new();
        let subagent = subagent.filter(|id| {
            SubagentId::parse(id).is_some_and(|id| id.caller.as_str() == message.from)
        });
        let question =
            Question { request_id, about, tool_use_id, tool, input, description, subagent };
        Ok(Some(QueuedRequest { question, owner, incarnation }))
    }

    /// Opens a request of any origin; returns `None` if it is known. Fails if another agent has a request of this
    /// id.
    pub(crate) fn open(&self, item: QueuedRequest) -> Result<Option<QueuedRequest>, IgnoredAnswer> {
        let id = item.question.request_id.clone();
        let known = self.asked.borrow().get(&id).is_some_and(|known| {
            (&known.owner, &known.incarnation) == (&item.owner, &item.incarnation)
        });
        if known {
            return Ok(None);
        }
        // Several questions of an agent can be open at once. Those of an earlier incarnation, and those that it has
        // decided meanwhile, are withdrawn. Of an agent on another host, it is not known here which it has decided.
        let is_elsewhere = roster::read(self.bus.dir())
            .is_ok_and(|roster| roster.host_of(item.owner.as_str()).is_some());
        let is_kept = |other: &QueuedRequest| {
            other.question.request_id == id
                || other.incarnation == item.incarnation
                    && (is_elsewhere || self.is_undecided(other))
        };
        self.withdraw(|other| other.owner != item.owner || is_kept(other));
        let decider = if self.is_for_person(&item) { "user" } else { "lead" };
        self.ledger.borrow_mut().open(PendingRequest {
            id: id.clone(),
            kind: item.question.about.into(),
            owner: item.owner.to_string(),
            decider: decider.into(),
            incarnation: item.incarnation.clone(),
            // The agent that asks enforces the deadline.
            deadline: None,
        })?;
        self.asked.borrow_mut().insert(id, item.clone());
        Ok(Some(item))
    }

    /// Whether a request is undecided in the transcript of its owner.
    pub(crate) fn is_undecided(&self, asked: &QueuedRequest) -> bool {
        let open = transcript::open_questions(self.bus.dir(), &asked.owner).unwrap_or_default();
        open.iter().any(|open| open.question.request_id == asked.question.request_id)
    }

    /// Whether the owner of a request has another open one.
    pub(crate) fn has_another(&self, asked: &QueuedRequest) -> bool {
        let is_other = |other: &PendingRequest| {
            other.owner == asked.owner.as_str() && other.id != asked.question.request_id
        };
        self.ledger.borrow().pending().any(is_other)
    }

    /// Whether the person decides, not the lead's model. A lead in mode plan lets nobody change anything, and its own
    /// plan is not its own to approve.
    pub(crate) fn is_for_person(&self, asked: &QueuedRequest) -> bool {
        asked.question.about != QuestionKind::Plan
            || asked.owner.is_lead()
            || self.plan_approval == PlanApproval::Person
            || self.mode.get() == PermissionMode::Plan
    }

    /// Returns the mode in which an agent carries its approved plan out. The person may let files be changed in any mode
    /// of the lead; the lead's model gives no looser mode than its own.
    pub(crate) fn mode_after_plan(
        &self,
        decider: Decider,
        wanted: Option<PermissionMode>,
    ) -> PermissionMode {
        let most = match decider {
            Decider::Person => self.mode.get().max(PermissionMode::AcceptEdits),
            Decider::Model | Decider::Program => self.mode.get(),
        };
        wanted.unwrap_or(PermissionMode::AcceptEdits).min(most)
    }

    pub(crate) fn find(&self, id: &str) -> Option<QueuedRequest> {
        self.ledger.borrow().pending_of(id)?;
        self.asked.borrow().get(id).cloned()
    }

    /// Withdraws the requests for which `waits` is false, and returns them.
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

    /// Decides a request and sends the answer to the agent that asked; if that is the lead, the caller answers.
    /// Fails if no such request is open, another decider is responsible, or the answer could not be sent.
    pub(crate) async fn decide(
        &self,
        id: &str,
        decider: Decider,
        decision: ApprovalDecision,
    ) -> Result<QueuedRequest, ToolError> {
        let pending = self.ledger.borrow().pending_of(id).cloned();
        let (Some(asked), Some(pending)) = (self.find(id), pending) else {
            return Err(ToolError::Reply(format!("no request {id:?} is open")));
        };
        let from = match decider {
            Decider::Model => "lead",
            // The person may decide everything that the model may.
            Decider::Person | Decider::Program => &pending.decider,
        };
        let answer = RequestAnswer {
            id: Some(id),
            kind: asked.question.about.into(),
            from,
            incarnation: Some(&asked.incarnation),
            verdict: decision.verdict,
        };
        let answered = self.ledger.borrow_mut().answer(&answer, Instant::now());
        answered.map_err(|why| ToolError::Reply(format!("{id} was not answered: {why}")))?;
        tracing::info!(request_id = id, owner = %asked.owner, decider = decider.word(), verdict = decision.verdict.word(),
            tool = asked.question.tool, "a request was decided");
        if asked.owner.is_lead() {
            return Ok(asked);
        }
        let mode = (decision.verdict == RequestVerdict::Approve)
            .then(|| self.mode_after_plan(decider, decision.mode));
        let by = (decider == Decider::Program).then_some(decider);
        let body = ApprovalDecision { mode, ..decision }.into_body(asked.question.about, by);
        self.send(asked.owner.clone(), body, id.to_owned(), asked.incarnation.clone()).await?;
        Ok(asked)
    }

    async fn send(
        &self,
        to: AgentName,
        body: Body,
        request_id: String,
        incarnation: String,
    ) -> Result<(), ToolError> {
        let bus = Arc::clone(&self.bus);
        let correlation = Correlation { request_id, incarnation };
        offload(move || bus.control(&AgentName::lead(), &to, body, correlation)).await?;
        Ok(())
    }

    /// Sends new rules or a mode to each running teammate of this lead that `to` selects by name and mode. Returns the
    /// number of messages that were sent.
    pub(crate) async fn fan_out(&self, body: Body, to: impl Fn(&str, &str) -> bool) -> usize {
        let Ok(roster) = roster::read(self.bus.dir()) else { return 0 };
        let mut sent = 0;
        for member in &roster.members {
            let Ok(name) = AgentName::member(&member.name) else { continue };
            // A teammate that was started by hand takes modes and rules only at its own terminal. Without a rule it asks more.
            let only_removes = matches!(&body, Body::PermissionUpdate { removed: Some(_), .. });
            let is_ours = self.bus.keyring().has_control_key(&name, &member.incarnation);
            if member.status.is_over()
                || !(is_ours || only_removes)
                || !to(&member.name, &member.mode)
            {
                continue;
            }
            let request_id = crate::bus::new_id(&AgentName::lead());
            match self.send(name, body.clone(), request_id, member.incarnation.clone()).await {
                Ok(()) => sent += 1,
                Err(why) => tracing::warn!(%why, "a member could not be told"),
            }
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::MailLimits;
    use crate::store::{Fsync, SystemClock, Transcript, test_team};
    use crate::wire::WallTime;
    use crate::wire::permission::{Decision, DecisionOutcome};
    use crate::wire::transcript::{Entry, Line};

    #[test]
    fn an_agent_may_have_several_open_questions_and_decided_ones_are_withdrawn() {
        let (_folder, dir) = test_team();
        let bus = Arc::new(Bus::new(dir.clone(), MailLimits::default(), Arc::new(SystemClock)));
        let mode = PermissionMode::Default;
        let lead_decides = PlanApproval::Lead;
        let queue = ApprovalQueue::new(bus, "l".into(), "plan", |_| None, lead_decides, mode);
        let owner = AgentName::member("alice").unwrap();
        let mut transcript = Transcript::open(&dir, &owner).unwrap();
        let mut write = |entry: Entry| {
            transcript.append(&Line { at: WallTime::default(), entry }).unwrap();
        };
        let mut ask = |id: &str, incarnation: &str| {
            let question = Question {
                request_id: id.into(),
                about: QuestionKind::Permission,
                tool_use_id: format!("call-{id}"),
                tool: "bash".into(),
                input: json!({ "command": id }),
                description: id.into(),
                subagent: None,
            };
            let decider = "lead".into();
            let deadline = WallTime::default();
            write(Entry::Request { question: question.clone(), decider, deadline });
            let (owner, incarnation) = (owner.clone(), incarnation.to_owned());
            assert!(queue.open(QueuedRequest { question, owner, incarnation }).unwrap().is_some());
        };
        let open = || ["a", "b", "c", "d"].map(|id| queue.find(id).is_some());
        ask("a", "i");
        ask("b", "i");
        assert_eq!(open(), [true, true, false, false]);
        assert!(queue.has_another(&queue.find("a").unwrap()));
        let decided = Decision::by_program("a", DecisionOutcome::Expired, "late");
        let mut later = Transcript::open(&dir, &owner).unwrap();
        later.append(&Line { at: WallTime::default(), entry: Entry::Decision(decided) }).unwrap();
        ask("c", "i");
        assert_eq!(open(), [false, true, true, false]);
        ask("d", "of a later process");
        assert_eq!(open(), [false, false, false, true]);
        assert!(!queue.has_another(&queue.find("d").unwrap()));
    }
    #[test]
    fn questions_of_an_agent_on_another_host_stand_though_its_transcript_is_not_here() {
        let (_folder, dir) = test_team();
        roster::update(&dir, Fsync::Never, |roster| {
            let carol = roster.enter("carol", 1.0);
            (carol.host, carol.alive) = (Some("gpu1".into()), Some(true));
        })
        .unwrap();
        let bus = Arc::new(Bus::new(dir, MailLimits::default(), Arc::new(SystemClock)));
        let (mode, by_lead) = (PermissionMode::Default, PlanApproval::Lead);
        let queue = ApprovalQueue::new(bus, "l".into(), "plan", |_| None, by_lead, mode);
        let ask = |id: &str, incarnation: &str| {
            let question = Question {
                request_id: id.into(),
                about: QuestionKind::Permission,
                tool_use_id: String::new(),
                tool: "bash".into(),
                input: json!({ "command": id }),
                description: id.into(),
                subagent: None,
            };
            let (owner, incarnation) = (AgentName::member("carol").unwrap(), incarnation.into());
            assert!(queue.open(QueuedRequest { question, owner, incarnation }).unwrap().is_some());
        };
        let open = || ["a", "b", "c"].map(|id| queue.find(id).is_some());
        ask("a", "i");
        ask("b", "i");
        assert_eq!(open(), [true, true, false]);
        ask("c", "j");
        assert_eq!(open(), [false, false, true], "she was started again");
    }
}
