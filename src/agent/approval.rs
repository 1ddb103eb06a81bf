//! Approvals: the verdicts on tool calls, and the answers to the questions about them.
//!
//! The rules decide ([`Policy`]). If they say "ask", the question goes to the lead's user by mail, or to the user
//! at this member's own terminal. The [`RequestLedger`] decides which answer counts.

use super::conversation::{CallVerdict, Journal, RecordError};
use super::event::ApprovalEvent;
use super::foreign::call::{ForeignCall, JudgedAs};
use super::identity::{Identity, MemberContext};
use super::member_host::MemberHost;
use super::progress::Progress;
use super::status::StatusReporter;
use super::subagent::Asker;
use crate::bus::Outgoing;
use crate::os::spawn::spawn_blocking;
use crate::protocol::permission::{self, PermissionSubject, PermissionVerdict, Policy};
use crate::protocol::request::{
    IgnoredAnswer, PendingRequest, RequestAnswer, RequestKind, RequestLedger, RequestVerdict,
};
use crate::store::asynchronous::offload;
use crate::store::{liveness, roster};
use crate::tools::approval_decision::ApprovalDecision;
use crate::tools::{Call, Registry, files_in_words, find, find_similar, signal};
use crate::wire::AgentName;
use crate::wire::log_words;
use crate::wire::message::{Body, Correlation, Message, Scope};
use crate::wire::permission::{
    Decision, DecisionOutcome, PROGRAM, PermissionMode, PlanApproval, Question, QuestionKind,
    RuleLists,
};
use crate::wire::seal::Verification;
use crate::wire::tool::{Effect, Signal, ToolSpec};
use crate::wire::transcript::Entry;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The addressee of a member's questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The lead's user (for plans, perhaps its model), by mail. Questions are refused while there is no lead.
    Lead,
    /// The user at this member's own terminal.
    Person,
    /// No addressee: calls that need approval are denied, for this reason.
    NoOne(String),
}

/// The rules for a member's calls, and for the questions about them.
pub(crate) struct ApprovalGate {
    pub(crate) policy: Policy,
    pub(crate) asks: Asks,
    /// The time for which a question stays open.
    pub(crate) timeout: Duration,
    pub(crate) plan_approval: PlanApproval,
}

fn plan_in(call: &Call) -> Option<&str> {
    let plan = call.input.get("plan").filter(|_| signal(call) == Signal::SubmitsPlan);
    plan.and_then(|plan| plan.as_str())
}

/// Returns the refusal of a call that might change something in mode plan. It names only tools that the agent has.
fn needs_plan(tool: &str, plan_tool: Option<&str>) -> String {
    let instead = match plan_tool {
        Some(plan_tool) => format!(
            "look around without changing anything, then send your plan with {plan_tool} and \
             continue when it is approved"
        ),
        None => "say in your answer what you would change".to_owned(),
    };
    format!(
        "not run: in mode plan nothing may be changed, and {tool} might change something; {instead}"
    )
}

/// Describes a call for the decider: the plan, the command line, the path, or the arguments.
fn describe(about: QuestionKind, call: &Call, subject: &PermissionSubject) -> String {
    match (about, subject) {
        (QuestionKind::Plan, _) => plan_in(call).unwrap_or_default().to_owned(),
        (
            _,
            PermissionSubject::Command(line)
            | PermissionSubject::Unsandboxed(line)
            | PermissionSubject::Hosts { command: line, .. },
        ) => line.clone(),
        (_, PermissionSubject::Path(path) | PermissionSubject::Outside(path)) => path.clone(),
        (_, PermissionSubject::Files(files)) => files_in_words(files),
        (_, PermissionSubject::Page { url, .. }) => url.clone(),
        (_, PermissionSubject::ChangedTool(about)) => about.clone(),
        (_, PermissionSubject::Nothing) => call.input.to_string(),
    }
}

/// Returns the decision in a message that answers a question, with the kind of the question.
pub(super) fn answer_in(message: &Message) -> Option<(RequestKind, Decision)> {
    let (about, decision, by) = ApprovalDecision::of_body(&message.body)?;
    let ApprovalDecision { verdict, scope, reason, updated_input, mode, .. } = decision;
    let is_approved = verdict == RequestVerdict::Approve;
    let is_plan = about == QuestionKind::Plan;
    let mode = (is_plan && is_approved).then(|| mode.unwrap_or(PermissionMode::AcceptEdits));
    let outcome = if is_approved { DecisionOutcome::Approved } else { DecisionOutcome::Rejected };
    let request_id = message.request_id.clone().unwrap_or_default();
    let by = by.filter(|by| by == PROGRAM).unwrap_or_else(|| message.from.clone());
    Some((about.into(), Decision { request_id, outcome, by, scope, reason, updated_input, mode }))
}

/// A call about which the member asks. An answer applies to this subject, even if a link leads elsewhere by then.
struct AskedCall {
    question: Question,
    subject: PermissionSubject,
    /// The subagent whose call it is.
    asker: Option<Rc<Asker>>,
}

/// The maker of a call.
enum CallOrigin<'a> {
    Own,
    /// A foreign agent, with its description of the call.
    Foreign(String),
    Subagent(&'a Rc<Asker>),
}

impl CallOrigin<'_> {
    /// Returns the tools, if they are not those of the agent itself.
    fn tools(&self) -> Option<&Rc<Registry>> {
        if let Self::Subagent(asker) = self { Some(&asker.tools) } else { None }
    }
}

pub(super) struct Approvals {
    gate: ApprovalGate,
    ledger: RequestLedger,
    /// The calls about which the member asks, by the id of the request.
    asked: BTreeMap<String, AskedCall>,
    /// The time at which the member checks again whether a person is attached to the lead; `None` without a question
    /// to the lead.
    check_at: Option<Instant>,
    tools: Rc<Registry>,
    context: Rc<MemberContext>,
}

impl Approvals {
    pub(super) fn new(gate: ApprovalGate, tools: Rc<Registry>, context: Rc<MemberContext>) -> Self {
        let (ledger, asked) = (RequestLedger::default(), BTreeMap::new());
        Self { gate, ledger, asked, check_at: None, tools, context }
    }

    pub(super) fn judge(&mut self, call: &Call) -> CallVerdict {
        let (tool, subject) = match self.tools.inspect(call) {
            Ok(found) => found,
            Err(why) => return CallVerdict::Refuse(why.to_string()),
        };
        let verdict = self.gate.policy.judge(tool, &subject);
        self.ask_or_refuse(call, verdict, &subject, &CallOrigin::Own)
    }

    /// Decides about a call of a subagent: by the rules of this agent and by those of the subagent's role, the stricter
    /// ones count.
    pub(super) fn judge_for_subagent(&mut self, asker: &Rc<Asker>, call: &Call) -> CallVerdict {
        let (tool, subject) = match asker.tools.inspect(call) {
            Ok(found) => found,
            Err(why) => return CallVerdict::Refuse(why.to_string()),
        };
        let verdicts = [&self.gate.policy, &asker.limits].map(|rules| rules.judge(tool, &subject));
        let [own, of_role] = verdicts;
        let verdict = if of_role.strictness() > own.strictness() { of_role } else { own };
        self.ask_or_refuse(call, verdict, &subject, &CallOrigin::Subagent(asker))
    }

    /// Decides about a call of a foreign agent, by the calls of our tools that do the same. A call that is not understood
    /// is always asked about, unless the mode decides.
    pub(super) fn judge_foreign(&mut self, foreign: &ForeignCall) -> CallVerdict {
        let (id, name, input) = (foreign.id.clone(), foreign.tool(), foreign.input());
        let call = Call { id, name, input };
        let nothing = PermissionSubject::Nothing;
        let policy = &self.gate.policy;
        let named = |name: &str| policy.judge_named(name, Effect::Changes, &nothing);
        let (verdict, subject) = match foreign.judged_as() {
            JudgedAs::Own(calls) => {
                let mut verdicts = Vec::new();
                for call in &calls {
                    match self.tools.inspect(call) {
                        Ok((tool, subject)) => {
                            verdicts.push((policy.judge(tool, &subject), subject.clone()));
                            let others = find_similar(tool).map(|it| policy.judge(it, &subject));
                            let refused =
                                others.filter(|it| matches!(it, PermissionVerdict::Refuse(_)));
                            verdicts.extend(refused.map(|it| (it, subject.clone())));
                        }
                        Err(why) => return CallVerdict::Refuse(why.to_string()),
                    }
                }
                let strictest =
                    verdicts.into_iter().max_by_key(|(verdict, _)| verdict.strictness());
                strictest.unwrap_or((PermissionVerdict::Ask, nothing))
            }
            _ if !self.tools.may_have_others() => {
                let why = "the role of this member has a list of tools, and this is none of them";
                return CallVerdict::Refuse(why.into());
            }
            JudgedAs::Named(name) => (named(&name), nothing),
            JudgedAs::Unknown => match named(&call.name) {
                PermissionVerdict::Run if policy.mode() != PermissionMode::Bypass => {
                    (PermissionVerdict::Ask, nothing)
                }
                verdict @ (PermissionVerdict::Run
                | PermissionVerdict::Ask
                | PermissionVerdict::AskToLeave
                | PermissionVerdict::NeedsPlan
                | PermissionVerdict::Refuse(_)) => (verdict, nothing),
            },
        };
        let origin = CallOrigin::Foreign(foreign.description());
        self.ask_or_refuse(&call, verdict, &subject, &origin)
    }

    /// Acts on a verdict.
    fn ask_or_refuse(
        &mut self,
        call: &Call,
        verdict: PermissionVerdict,
        subject: &PermissionSubject,
        origin: &CallOrigin<'_>,
    ) -> CallVerdict {
        let about = match verdict {
            PermissionVerdict::Refuse(why) => return self.deny(call, subject, origin, why),
            PermissionVerdict::NeedsPlan => {
                let tools = origin.tools().unwrap_or(&self.tools);
                return CallVerdict::Refuse(needs_plan(&call.name, tools.plan_tool()));
            }
            PermissionVerdict::Run
                if plan_in(call).is_some() && self.gate.policy.mode() == PermissionMode::Plan =>
            {
                QuestionKind::Plan
            }
            PermissionVerdict::Run => return CallVerdict::Run,
            PermissionVerdict::Ask => QuestionKind::Permission,
            PermissionVerdict::AskToLeave => QuestionKind::Sandbox,
        };
        if let Asks::NoOne(why) = &self.gate.asks {
            if about == QuestionKind::Plan {
                let why = format!(
                    "not approved: {why}, and in mode plan nothing may be changed; give the plan \
                     as your answer, and end your turn"
                );
                return self.deny(call, subject, origin, why);
            }
            let advice = permission::advice(about, &call.name, subject);
            let why = format!(
                "denied: {why}; {advice}. Do without it, or say in your report what you could not do"
            );
            return self.deny(call, subject, origin, why);
        }
        let (description, asker) = match origin {
            CallOrigin::Own => (None, None),
            CallOrigin::Foreign(description) => (Some(description.clone()), None),
            CallOrigin::Subagent(asker) => (None, Some(Rc::clone(asker))),
        };
        let description = description.unwrap_or_else(|| describe(about, call, subject));
        let Call { id, name: tool, input } = call.clone();
        let request_id = self.request_id(&id, origin);
        let subagent = asker.as_ref().map(|asker| asker.id.clone());
        let question =
            Question { request_id, about, tool_use_id: id, tool, input, description, subagent };
        let asked = AskedCall { question: question.clone(), subject: subject.clone(), asker };
        self.asked.insert(question.request_id.clone(), asked);
        CallVerdict::Ask(Box::new(question))
    }

    /// Denies a call. `why` is the answer to the model; its first part is recorded, with the call.
    fn deny(
        &self,
        call: &Call,
        subject: &PermissionSubject,
        origin: &CallOrigin<'_>,
        why: String,
    ) -> CallVerdict {
        let about = describe(QuestionKind::Permission, call, subject);
        let short = why.split(';').next().unwrap_or_default();
        let reason = format!("{}: {about} ({short})", call.name);
        let (id, outcome) = (self.request_id(&call.id, origin), DecisionOutcome::Rejected);
        CallVerdict::Deny { decision: Box::new(Decision::by_program(&id, outcome, &reason)), why }
    }

    /// Returns the id of the request, if there is one, about a tool call.
    fn request_id(&self, call_id: &str, origin: &CallOrigin<'_>) -> String {
        match origin {
            CallOrigin::Own | CallOrigin::Foreign(_) => {
                format!("{}:{call_id}", self.context.me.name)
            }
            CallOrigin::Subagent(asker) => format!("{}:{call_id}", asker.id),
        }
    }

    /// Records a question, then asks it. Returns a decision if the question cannot be sent. Fails if it was not
    /// recorded; then it was not asked either.
    pub(super) async fn ask(
        &mut self,
        question: Question,
        journal: &mut Journal,
        host: &mut MemberHost,
    ) -> Result<Option<Decision>, RecordError> {
        let decider = if self.gate.asks == Asks::Lead { "lead" } else { "user" };
        let deadline = self.context.clock.now() + self.gate.timeout;
        let (asked, decider) = (question.clone(), decider.to_owned());
        let entry = Entry::Request { question: asked, decider: decider.clone(), deadline };
        journal.record(entry, host).await?;
        journal.sync().await?;
        let (id, now) = (question.request_id.clone(), self.context.clock.monotonic());
        let opened = self.ledger.open(PendingRequest {
            id: id.clone(),
            kind: question.about.into(),
            owner: self.context.me.name.to_string(),
            decider,
            incarnation: self.context.me.incarnation.clone(),
            // A person at this member's own terminal may take any time.
            deadline: (self.gate.asks == Asks::Lead).then(|| now + self.gate.timeout),
        });
        self.check_at = (self.gate.asks == Asks::Lead).then(|| now + self.check_interval());
        let opened = log_words::done(&opened);
        tracing::info!(request_id = id, tool = question.tool, opened, "asked");
        if self.gate.asks != Asks::Lead {
            (self.context.show)(&Progress::Asked(Box::new(question)));
            return Ok(None);
        }
        let Err(why) = self.send_to_lead(question).await else { return Ok(None) };
        self.withdraw(&id);
        Ok(Some(Decision::by_program(&id, DecisionOutcome::Rejected, &why)))
    }

    /// Withdraws a question: its answer no longer counts.
    pub(super) fn withdraw(&mut self, id: &str) {
        self.asked.remove(id);
        self.ledger.withdraw(id);
    }

    async fn send_to_lead(&self, question: Question) -> Result<(), String> {
        let Identity { name, incarnation, .. } = self.context.me.clone();
        let bus = Arc::clone(&self.context.bus);
        let by_person = self.gate.plan_approval == PlanApproval::Person;
        let send = move || {
            let lead = AgentName::lead();
            let alive = liveness::probe(bus.dir(), &lead).is_ok_and(|liveness| liveness.is_alive());
            let roster = roster::read(bus.dir()).map_err(|why| why.to_string())?;
            let lead_life = roster.lead.as_ref().filter(|_| alive).map(|lead| &lead.incarnation);
            let lead_life = lead_life.ok_or("there is no lead whose user could be asked")?.clone();
            let hosts: Vec<String> = question.hosts().iter().map(ToString::to_string).collect();
            let Question { request_id, about, tool, input, description, subagent, .. } = question;
            // A question that is repeated in another incarnation of either side is another message.
            let id = Some(format!("{request_id}:{incarnation}:{lead_life}"));
            let command = find(&tool).and_then(ToolSpec::command_argument);
            let body = match about {
                QuestionKind::Permission => {
                    Body::PermissionRequest { tool, input, description, subagent }
                }
                QuestionKind::Sandbox => Body::SandboxPermissionRequest {
                    host: (!hosts.is_empty()).then(|| hosts.join(", ")),
                    path: command.is_none().then_some(description),
                    tool: Some(tool),
                    input: Some(input),
                    subagent,
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
        let sent = spawn_blocking(send).await;
        sent.map_err(|why| why.to_string())?.map(|_| ())
    }

    /// Handles an event that the user causes. Returns the decision if a question is decided.
    pub(super) async fn on_event(
        &mut self,
        event: ApprovalEvent,
        status: &mut StatusReporter,
    ) -> Option<Decision> {
        match event {
            ApprovalEvent::Answered(decision) => {
                let asked = self.ledger.pending_of(&decision.request_id);
                let kind = asked.map_or(RequestKind::Permission, |request| request.kind);
                let (user, incarnation) = (AgentName::user(), self.context.me.incarnation.clone());
                let from = (user.as_str(), Some(incarnation.as_str()));
                self.settle(kind, decision, from, status).await
            }
            ApprovalEvent::SetMode(mode) => {
                self.set_mode(mode, status).await;
                None
            }
            ApprovalEvent::AddRules(rules) => {
                self.add_rules(&rules);
                None
            }
            ApprovalEvent::RevokeRules(rules) => {
                self.revoke_rules(&rules);
                None
            }
        }
    }

    /// Handles the answers, modes and rules in mail. Returns the decisions, in order.
    pub(super) async fn on_mail(
        &mut self,
        mail: &[Message],
        status: &mut StatusReporter,
    ) -> Vec<Decision> {
        let mut settled = Vec::new();
        for message in mail {
            if message.body.needs_seal() && !message.is_verified() {
                continue;
            }
            if let Some((kind, decision)) = answer_in(message) {
                let from = (message.from.as_str(), message.incarnation.as_deref());
                settled.extend(self.settle(kind, decision, from, status).await);
            } else {
                self.on_control_mail(message, status).await;
            }
        }
        settled
    }

    async fn on_control_mail(&mut self, message: &Message, status: &mut StatusReporter) {
        let is_addressed = !self.context.me.name.is_lead()
            && message.from == AgentName::lead().as_str()
            && message.request_id.is_some()
            && message.incarnation.as_deref() == Some(self.context.me.incarnation.as_str());
        // The control key is shared with the lead alone.
        let is_bound = is_addressed && message.verification == Verification::Control;
        if let Body::ModeSetRequest { mode } = &message.body {
            match PermissionMode::parse(mode).filter(|_| is_bound) {
                Some(mode) => self.set_mode(mode, status).await,
                None => ignored(message),
            }
        } else if let Body::PermissionUpdate { rules, removed, .. } = &message.body {
            // A teammate that was started by hand has no control key; it may still be asked more often.
            let removed = removed.clone().filter(|_| is_addressed);
            if let Some(removed) = removed.and_then(|it| serde_json::from_value(it).ok()) {
                let RuleLists { allow, .. } = removed;
                return self.revoke_rules(&allow);
            }
            match serde_json::from_value(rules.clone()).ok().filter(|_| is_bound) {
                Some(rules) => self.add_rules(&rules),
                None => ignored(message),
            }
        }
    }

    /// Applies an answer if it belongs to an open question and `from`, a name and the incarnation that it addresses,
    /// may give it. Returns the decision.
    async fn settle(
        &mut self,
        kind: RequestKind,
        mut decision: Decision,
        (from, incarnation): (&str, Option<&str>),
        status: &mut StatusReporter,
    ) -> Option<Decision> {
        if self.is_late() {
            self.extend_if_attended().await;
        }
        let verdict = RequestVerdict::of(decision.outcome == DecisionOutcome::Approved);
        let id = decision.request_id.as_str();
        let answer = RequestAnswer { id: Some(id), kind, from, incarnation, verdict };
        let state = match self.ledger.answer(&answer, self.context.clock.monotonic()) {
            Ok(state) => state,
            // The person's answers to the questions of teammates pass through the lead, whose program relays them.
            Err(why @ (IgnoredAnswer::Unknown | IgnoredAnswer::Closed(_)))
                if self.context.me.name.is_lead() && from == AgentName::user().as_str() =>
            {
                tracing::debug!(request_id = id, %why, "not an answer to this agent");
                return None;
            }
            Err(why) => {
                tracing::warn!(request_id = id, from, %why, "an answer was not acted on");
                return None;
            }
        };
        let asked = self.asked.remove(&decision.request_id);
        if state == DecisionOutcome::Approved {
            if let Some(mode) = decision.mode {
                self.set_mode(mode, status).await;
            }
            let keeps = decision.scope != Scope::Once;
            match asked.map(|asked| self.check_change(asked, &decision)) {
                Some(Err(why)) => {
                    decision.outcome = DecisionOutcome::Rejected;
                    decision.reason = Some(why);
                }
                Some(Ok(asked)) if keeps => self.keep_as_rule(&asked),
                Some(Ok(_)) | None => {}
            }
        }
        Some(decision)
    }

    /// Checks a call that the user has changed against the rules, and returns it. Fails with the reason if they refuse it.
    fn check_change(&self, asked: AskedCall, decision: &Decision) -> Result<AskedCall, String> {
        let Some(input) = decision.updated_input.clone() else { return Ok(asked) };
        let Question { tool_use_id: id, tool: name, .. } = asked.question.clone();
        let call = Call { id, name, input };
        let tools = asked.asker.as_ref().map_or(&self.tools, |asker| &asker.tools);
        let (tool, subject) = tools.inspect(&call).map_err(|why| why.to_string())?;
        let of_role = asked.asker.as_ref().map(|asker| asker.limits.judge(tool, &subject));
        if let Some(PermissionVerdict::Refuse(why)) = of_role {
            return Err(why);
        }
        match self.gate.policy.judge(tool, &subject) {
            PermissionVerdict::Refuse(why) => Err(why),
            PermissionVerdict::NeedsPlan => Err(needs_plan(tool.name, tools.plan_tool())),
            PermissionVerdict::Run | PermissionVerdict::Ask | PermissionVerdict::AskToLeave => {
                Ok(AskedCall { subject, ..asked })
            }
        }
    }

    /// Adds a rule for an approval that holds for more than one call.
    fn keep_as_rule(&mut self, AskedCall { question, subject, .. }: &AskedCall) {
        let allow = permission::rules_for(question.about, &question.tool, subject);
        self.add_rules(&RuleLists { allow, ..RuleLists::default() });
    }

    /// Adds rules for the rest of this incarnation.
    pub(super) fn add_rules(&mut self, rules: &RuleLists) {
        match self.gate.policy.add(rules) {
            Ok(()) => tracing::info!(rules = %rules, "permission rules added"),
            Err(why) => tracing::warn!(%why, "permission rules were not added"),
        }
    }

    /// Removes rules of earlier answers: the calls ask again.
    fn revoke_rules(&mut self, rules: &[String]) {
        self.gate.policy.revoke(rules);
        tracing::info!(rules = rules.join(", "), "permission rules revoked");
    }

    async fn set_mode(&mut self, mode: PermissionMode, status: &mut StatusReporter) {
        let before = self.gate.policy.mode();
        self.gate.policy.set_mode(mode);
        self.tools.set_mode(mode);
        tracing::info!(%before, now = %mode, "permission mode set");
        status.set_mode(mode).await;
    }

    /// Returns the time at which a question expires, or at which the member checks for a person.
    pub(super) fn due(&self) -> Option<Instant> {
        let check_at = self.check_at.filter(|_| self.ledger.pending().next().is_some());
        self.ledger.due().into_iter().chain(check_at).min()
    }

    /// Returns the interval of the checks for a person: short enough that a deadline counts from about the time at which
    /// the person leaves.
    fn check_interval(&self) -> Duration {
        self.gate.timeout / 10
    }

    fn is_late(&self) -> bool {
        let now = self.context.clock.monotonic();
        self.ledger.due().is_some_and(|deadline| deadline <= now)
    }

    /// Gives the open questions the whole time again while a person is attached to the lead: nobody who is away from the
    /// terminal for a while is to find them denied.
    async fn extend_if_attended(&mut self) {
        let dir = self.context.bus.dir().clone();
        if self.gate.asks == Asks::Lead && offload(move || roster::is_attended(&dir)).await {
            self.ledger.extend(self.context.clock.monotonic() + self.gate.timeout);
        }
    }

    /// Expires the questions whose deadline has passed and that no attached person may answer. Returns their decisions.
    pub(super) async fn on_due(&mut self) -> Vec<Decision> {
        if self.ledger.pending().next().is_some() {
            self.extend_if_attended().await;
            self.check_at = Some(self.context.clock.monotonic() + self.check_interval());
        }
        self.expire()
    }

    fn expire(&mut self) -> Vec<Decision> {
        let why = format!("no answer within {} s", self.gate.timeout.as_secs());
        let late = self.ledger.tick(self.context.clock.monotonic());
        let expired = |id: String| {
            self.asked.remove(&id);
            Decision::by_program(&id, DecisionOutcome::Expired, &why)
        };
        late.into_iter().map(expired).collect()
    }
}

/// Logs control mail that is not acted on.
fn ignored(message: &Message) {
    let (from, kind) = (&message.from, message.body.kind());
    tracing::warn!(from, kind, "control mail that does not bind this incarnation was not acted on");
}
