//! Approvals at the lead: receives questions, shows the person one at a time, sends the answers.
//!
//! Questions arrive in the lead's inbox, which is not drained while the lead's model answers or a tool
//! runs. [`Approvals::refresh`] therefore reads undrained mail, too; a question that it finds again is queued once.

use super::runtime::LeadRuntime;
use crate::agent::event::ApprovalEvent;
use crate::app::requests::{decision_of, own_decision};
use crate::app::stop_members::is_alive;
use crate::protocol::permission::{PermissionSubject, Policy, rules_for};
use crate::protocol::request::RequestVerdict;
use crate::store::{TeamDir, roster, transcript, unread};
use crate::tools::approval_queue::{ApprovalDecision, Decider, QueuedRequest};
use crate::tools::find;
use crate::ui::question::{TypedAnswer, ask, understand, whole};
use crate::ui::view::View;
use crate::wire::message::{Body, Message, Scope};
use crate::wire::permission::{PermissionMode, Question, QuestionKind, RuleLists};
use crate::wire::roster::{Roster, Status};
use crate::wire::{AgentName, tool::SubjectArgument};
use serde_json::json;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The time for which answers are ignored after the question in front was withdrawn: they were meant for that one.
const IGNORE_AFTER_REPLACEMENT: Duration = Duration::from_secs(1);

pub(super) struct Approvals {
    runtime: LeadRuntime,
    /// The reason for which every question is denied, if no person can answer in this run.
    nobody: Option<&'static str>,
    queue: VecDeque<QueuedRequest>,
    /// The time at which the question in front was withdrawn without an answer.
    replaced_at: Option<Instant>,
    notices: UnboundedSender<String>,
    unread_notices: UnboundedReceiver<String>,
}

impl Approvals {
    /// Creates the approvals with the open questions of members that already wait for an answer.
    pub(super) fn new(runtime: LeadRuntime, nobody: Option<&'static str>) -> Self {
        let (notices, unread_notices) = unbounded_channel();
        let queue = VecDeque::new();
        let mut approvals =
            Self { runtime, nobody, queue, replaced_at: None, notices, unread_notices };
        approvals.find_open_questions();
        approvals
    }

    /// Queues the open questions of waiting members from their transcripts, such as questions to an earlier lead.
    fn find_open_questions(&mut self) {
        let Ok(roster) = roster::read(self.runtime.team()) else { return };
        for member in roster.members.iter().filter(|member| member.status == Status::Waiting) {
            let Ok(owner) = AgentName::member(&member.name) else { continue };
            let open = transcript::open_questions(self.runtime.team(), &owner).unwrap_or_default();
            for open in open.into_iter().filter(|open| open.decider == "lead") {
                let (owner, incarnation) = (owner.clone(), member.incarnation.clone());
                let asked = QueuedRequest { question: open.question, owner, incarnation };
                if is_waiting(self.runtime.team(), &roster, &asked) {
                    self.open(asked);
                }
            }
        }
    }

    pub(super) async fn next_notice(&mut self) -> String {
        match self.unread_notices.recv().await {
            Some(notice) => notice,
            None => std::future::pending().await,
        }
    }

    /// Returns a notice that is due before the next question is shown.
    pub(super) fn waiting_notice(&mut self) -> Option<String> {
        self.unread_notices.try_recv().ok()
    }

    pub(super) fn on_own(&mut self, question: Question) {
        let (owner, incarnation) = (AgentName::lead(), self.runtime.incarnation.clone());
        self.open(QueuedRequest { question, owner, incarnation });
    }

    /// Handles mail to the lead: a question, or the person's answer from outside the lead.
    pub(super) fn on_mail(&mut self, message: &Message) {
        match self.runtime.approval_queue.accept(message) {
            Ok(Some(asked)) => self.enqueue(asked),
            Ok(None) => self.relay_answer(message),
            Err(why) => {
                let (from, kind) = (&message.from, message.body.kind());
                tracing::warn!(from, kind, %why, "a request was not acted on");
            }
        }
    }

    fn open(&mut self, asked: QueuedRequest) {
        match self.runtime.approval_queue.open(asked) {
            Ok(Some(asked)) => self.enqueue(asked),
            Ok(None) => {}
            Err(why) => tracing::warn!(%why, "a request was not acted on"),
        }
    }

    fn enqueue(&mut self, asked: QueuedRequest) {
        if !self.runtime.approval_queue.is_for_person(&asked.question) {
            return;
        }
        let Some(why) = self.nobody else { return self.queue.push_back(asked) };
        self.decide(asked, ApprovalDecision::once(RequestVerdict::Reject, Some(why.into())));
    }

    /// Passes on an answer from outside the lead. A command such as `team approve` sends it as `user`.
    fn relay_answer(&mut self, message: &Message) {
        let bound = message.from == AgentName::user().as_str()
            && message.incarnation.as_deref() == Some(self.runtime.incarnation.as_str());
        let body = message.body.clone();
        let (approve, scope, reason, updated_input) =
            if let Body::PermissionResponse { approve, scope, reason, updated_input } = body {
                (approve, scope, reason, updated_input)
            } else if let Body::SandboxPermissionResponse { approve, scope, reason } = body {
                (approve, scope, reason, None)
            } else if let Body::PlanApprovalResponse { approve, feedback, .. } = body {
                (approve, Scope::Once, feedback, None)
            } else {
                return;
            };
        let verdict = RequestVerdict::of(approve);
        let decision = ApprovalDecision { verdict, scope, reason, updated_input };
        let id = message.request_id.as_deref().filter(|_| bound);
        let queue = Rc::clone(&self.runtime.approval_queue);
        if id.is_some_and(|id| queue.find(id).is_none()) {
            // The answer can arrive before the question.
            self.find_open_questions();
        }
        let asked = id.and_then(|id| queue.find(id));
        match asked {
            Some(asked) => self.decide(asked, decision),
            None => tracing::warn!(
                from = message.from,
                request_id = message.request_id,
                "an answer was not acted on: it is not the user's, or no question waits for it"
            ),
        }
    }

    /// Finds questions in undrained mail, and withdraws questions whose owner no longer waits.
    pub(super) fn refresh(&mut self) {
        let team = self.runtime.team().clone();
        let Ok(roster) = roster::read(&team) else { return };
        let mut statuses = roster.members.iter().map(|member| member.status);
        if statuses.any(|status| status == Status::Waiting) || is_lead_waiting(&roster) {
            let unread = unread::waiting(&team, &AgentName::lead()).unwrap_or_default();
            for message in unread.iter().filter_map(|waiting| waiting.message.as_ref()) {
                self.on_mail(message);
            }
        }
        let approval_queue = Rc::clone(&self.runtime.approval_queue);
        for gone in approval_queue.withdraw(|asked| is_waiting(&team, &roster, asked)) {
            tracing::info!(request_id = gone.question.request_id, "a request was withdrawn");
            if let Some(at) = self.queue.iter().position(|asked| *asked == gone) {
                self.queue.remove(at);
                self.notify(format!("({} no longer asks)", gone.owner));
                if at == 0 {
                    self.replaced_at = Some(Instant::now());
                }
            }
        }
        self.queue.retain(|asked| approval_queue.find(&asked.question.request_id).is_some());
    }

    pub(super) fn front(&self) -> Option<&QueuedRequest> {
        self.queue.front()
    }

    pub(super) fn render(&self, asked: &QueuedRequest, view: &View) -> String {
        let roster = roster::read(self.runtime.team());
        let color = |roster: &Roster| Some(roster.member(asked.owner.as_str())?.color.clone());
        let color = roster.ok().and_then(|roster| color(&roster)).unwrap_or_default();
        let more = self.queue.len().saturating_sub(1);
        ask(asked.owner.as_str(), &color, more, &asked.question, view)
    }

    /// Takes a line as the answer to the question in front. Returns `false` if there is none, or it is no answer.
    pub(super) fn answer_line(&mut self, line: &str) -> bool {
        let said = self.queue.front().and_then(|_| understand(line));
        said.map(|said| self.answer(said)).is_some()
    }

    pub(super) fn answer_key(&mut self, key: char) {
        self.answer(match key {
            'y' => TypedAnswer::Yes,
            'a' => TypedAnswer::Always,
            _ => TypedAnswer::No(None),
        });
    }

    fn answer(&mut self, said: TypedAnswer) {
        use TypedAnswer::{Always, Instead, No, Yes};
        if self.replaced_at.take().is_some_and(|at| at.elapsed() < IGNORE_AFTER_REPLACEMENT) {
            return self.notify("the question has just changed: look again, then answer".into());
        }
        let Some(asked) = self.queue.front() else {
            return self.notify("there is no question".into());
        };
        let said = match said {
            TypedAnswer::ShowWhole => return self.notify(whole(&asked.question)),
            TypedAnswer::InsteadOfWhat => {
                return self.notify("write e and the command that shall run instead".into());
            }
            // The person reads each plan, so this answer covers one plan only.
            Always if asked.question.about == QuestionKind::Plan => Yes,
            Always | Yes | No(_) | Instead(_) => said,
        };
        let Some(decision) = decision_of(&asked.question, said) else {
            return self.notify("only a command can be changed; say no and why".into());
        };
        if let Some(asked) = self.queue.pop_front() {
            self.decide(asked, decision);
        }
    }

    fn notify(&self, text: String) {
        // At the end of the session no notice is shown any more.
        let _unread = self.notices.send(text);
    }

    fn decide(&mut self, asked: QueuedRequest, decision: ApprovalDecision) {
        let id = asked.question.request_id.clone();
        self.queue.retain(|waiting| waiting.question.request_id != id);
        let (runtime, notices) = (self.runtime.clone(), self.notices.clone());
        let is_yes = decision.verdict == RequestVerdict::Approve;
        let verdict = if is_yes { "yes" } else { "no" };
        self.notify(format!("{verdict} to {}: {}", asked.owner, asked.question.tool));
        tokio::task::spawn_local(async move {
            let queue = &runtime.approval_queue;
            if let Err(why) = queue.decide(&id, Decider::Person, decision.clone()).await {
                let _unread = notices.send(why.to_string());
                return;
            }
            let is_always = is_yes && decision.scope == Scope::Always;
            let allow = always_rules(&asked.question, &decision);
            if asked.owner.is_lead() {
                runtime.send(ApprovalEvent::Answered(own_decision(&id, decision)).into());
            }
            if is_always {
                let rules = RuleLists { allow, ..RuleLists::default() };
                // A question may name an unknown tool; a member that starts with a rule for it would fail.
                if let Err(why) = Policy::new(PermissionMode::Default, &rules) {
                    let _unread = notices.send(why.to_string());
                    return;
                }
                runtime.supervisor.add_rules(&rules);
                runtime.send(ApprovalEvent::AddRules(rules.clone()).into());
                queue.fan_out(Body::PermissionUpdate { rules: json!(rules) }, |_, _| true).await;
            }
        });
    }

    /// Switches the lead to another mode, and with it the members in its previous mode or in a looser mode than the
    /// new one.
    pub(super) fn set_mode(&self, mode: PermissionMode) {
        let runtime = &self.runtime;
        let before = runtime.approval_queue.mode.get();
        runtime.approval_queue.mode.set(mode);
        runtime.supervisor.set_mode(mode);
        runtime.send(ApprovalEvent::SetMode(mode).into());
        let approval_queue = Rc::clone(&runtime.approval_queue);
        tokio::task::spawn_local(async move {
            let follows = |_: &str, its: &str| {
                its == before.word() || PermissionMode::parse(its).is_some_and(|its| its > mode)
            };
            let request = Body::ModeSetRequest { mode: mode.word().into() };
            approval_queue.fan_out(request, follows).await;
        });
    }
}

fn always_rules(question: &Question, decision: &ApprovalDecision) -> Vec<String> {
    let changed = decision.updated_input.as_ref().and_then(|input| input.get("command")?.as_str());
    let what = changed.unwrap_or(&question.description).to_owned();
    let argument = find(&question.tool).map(|tool| tool.subject);
    let subject = match (question.about, argument) {
        (QuestionKind::Sandbox, _) => PermissionSubject::Outside(what),
        (_, Some(SubjectArgument::Command(_))) => PermissionSubject::Command(what),
        (_, Some(SubjectArgument::File(_))) => PermissionSubject::Path(what),
        (_, Some(SubjectArgument::None) | None) => PermissionSubject::Nothing,
    };
    rules_for(question.about, &question.tool, &subject)
}

/// Whether the owner of a question still waits for its answer. A status may be written late, if the roster is locked,
/// so the transcript decides about a member with another status.
fn is_waiting(team: &TeamDir, roster: &Roster, asked: &QueuedRequest) -> bool {
    let has_status = if asked.owner.is_lead() {
        is_lead_waiting(roster)
    } else {
        let member = roster.member(asked.owner.as_str());
        match member.filter(|member| member.incarnation == asked.incarnation) {
            Some(member) if is_alive(team, &asked.owner) => member.status == Status::Waiting,
            _ => return false,
        }
    };
    has_status || has_open(team, asked)
}

/// Whether a question is undecided in the transcript of its owner.
fn has_open(team: &TeamDir, asked: &QueuedRequest) -> bool {
    let open = transcript::open_questions(team, &asked.owner).unwrap_or_default();
    open.iter().any(|open| open.question.request_id == asked.question.request_id)
}

fn is_lead_waiting(roster: &Roster) -> bool {
    roster.lead.as_ref().is_some_and(|lead| lead.status == Status::Waiting)
}
