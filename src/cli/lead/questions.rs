//! What waits for the person's decision: questions come in, one is shown, answers go out.
//!
//! Questions arrive in the lead's inbox. While the lead's model thinks or a tool runs nobody takes that
//! mail in, so the inbox is looked into as well; a question that comes twice is the same question.

use crate::agent::Events;
use crate::agent::event::Event;
use crate::protocol::permission::{PermissionSubject, Policy, rules_for};
use crate::protocol::request::RequestVerdict;
use crate::store::{Liveness, TeamDir, liveness, roster, transcript, unread};
use crate::supervise::supervisor::Supervisor;
use crate::tools::approval_queue::{ApprovalDecision, ApprovalQueue, Decider, QueuedRequest};
use crate::tools::find;
use crate::ui::question::{Asker, Said, ask, understand, whole};
use crate::ui::view::View;
use crate::wire::AgentName;
use crate::wire::message::{Body, Message, Scope};
use crate::wire::permission::{
    Decision, DecisionOutcome, PermissionMode, Question, QuestionKind, RuleLists,
};
use crate::wire::roster::{Roster, Status};
use crate::wire::tool::SubjectArgument;
use serde_json::json;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long no answer is taken after a question went away by itself and another stands in its place:
/// the finger may be on its way already.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// Who can answer in this run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Present {
    /// A person at the terminal.
    Person,
    /// Nobody; says why.
    Nobody(&'static str),
}

/// What the questions need to know of the lead.
pub(super) struct ApprovalContext {
    pub(super) team: TeamDir,
    pub(super) approval_queue: Rc<ApprovalQueue>,
    pub(super) supervisor: Rc<Supervisor>,
    pub(super) events: Events,
    pub(super) incarnation: String,
}

/// The questions of a running lead.
pub(super) struct Questions {
    office: ApprovalContext,
    present: Present,
    queue: VecDeque<QueuedRequest>,
    /// When the question in front changed without having been answered.
    slipped: Option<Instant>,
    /// What came of answers, for the person.
    told: UnboundedSender<String>,
    heard: UnboundedReceiver<String>,
}

impl Questions {
    /// No questions yet, but for those of members that were asking when this lead began.
    pub(super) fn new(office: ApprovalContext, present: Present) -> Self {
        let (told, heard) = unbounded_channel();
        let queue = VecDeque::new();
        let mut questions = Self { office, present, queue, slipped: None, told, heard };
        questions.find();
        questions
    }

    /// Members that outlived an earlier lead wait for an answer still.
    fn find(&mut self) {
        let Ok(roster) = roster::read(&self.office.team) else { return };
        for member in roster.members.iter().filter(|member| member.status == Status::Waiting) {
            let Ok(owner) = AgentName::member(&member.name) else { continue };
            let open = transcript::open_questions(&self.office.team, &owner).unwrap_or_default();
            for question in open.into_iter().filter(|open| open.decider == "lead") {
                let incarnation = member.incarnation.clone();
                let asked = QueuedRequest {
                    question: question.question,
                    owner: owner.clone(),
                    incarnation,
                };
                if waits(&self.office.team, &roster, &asked) {
                    self.open(asked);
                }
            }
        }
    }

    /// The lead's mode.
    pub(super) fn mode(&self) -> PermissionMode {
        self.office.approval_queue.mode()
    }

    /// The next thing to say to the person.
    pub(super) async fn next_word(&mut self) -> String {
        match self.heard.recv().await {
            Some(word) => word,
            None => std::future::pending().await,
        }
    }

    /// What is to be said before anything else is asked.
    pub(super) fn said(&mut self) -> Option<String> {
        self.heard.try_recv().ok()
    }

    /// The lead's own call waits.
    pub(super) fn on_own(&mut self, question: Question) {
        let (owner, incarnation) = (AgentName::lead(), self.office.incarnation.clone());
        self.open(QueuedRequest { question, owner, incarnation });
    }

    /// Mail for the lead: a question, or the person's answer from another shell.
    pub(super) fn on_mail(&mut self, message: &Message) {
        match self.office.approval_queue.hear(message) {
            Ok(Some(asked)) => self.take_up(asked),
            Ok(None) => self.relay(message),
            Err(why) => {
                let (from, kind) = (&message.from, message.body.kind());
                tracing::warn!(from, kind, %why, "a request was not acted on");
            }
        }
    }

    fn open(&mut self, asked: QueuedRequest) {
        match self.office.approval_queue.open(asked) {
            Ok(Some(asked)) => self.take_up(asked),
            Ok(None) => {}
            Err(why) => tracing::warn!(%why, "a request was not acted on"),
        }
    }

    fn take_up(&mut self, asked: QueuedRequest) {
        if !self.office.approval_queue.is_for_person(&asked.question) {
            return;
        }
        match &self.present {
            Present::Person => self.queue.push_back(asked),
            Present::Nobody(why) => {
                let no = ApprovalDecision::once(RequestVerdict::Reject, Some((*why).to_owned()));
                self.decide(asked, no);
            }
        }
    }

    /// `team approve` and `team deny` write to the lead in the person's name.
    fn relay(&mut self, message: &Message) {
        let bound = message.from == AgentName::user().as_str()
            && message.incarnation.as_deref() == Some(self.office.incarnation.as_str());
        let decision = if let Body::PermissionResponse { approve, scope, reason, updated_input } =
            &message.body
        {
            let (verdict, updated_input) = (RequestVerdict::of(*approve), updated_input.clone());
            ApprovalDecision { verdict, scope: *scope, reason: reason.clone(), updated_input }
        } else if let Body::SandboxPermissionResponse { approve, scope, reason } = &message.body {
            let yes_or_no = ApprovalDecision::once(RequestVerdict::of(*approve), reason.clone());
            ApprovalDecision { scope: *scope, ..yes_or_no }
        } else if let Body::PlanApprovalResponse { approve, feedback, .. } = &message.body {
            ApprovalDecision::once(RequestVerdict::of(*approve), feedback.clone())
        } else {
            return;
        };
        let id = message.request_id.as_deref().filter(|_| bound);
        let approval_queue = Rc::clone(&self.office.approval_queue);
        let asked = id.and_then(|id| {
            approval_queue.find(id).or_else(|| {
                // The answer may have overtaken the question.
                self.find();
                approval_queue.find(id)
            })
        });
        match asked {
            Some(asked) => self.decide(asked, decision),
            None => tracing::warn!(
                from = message.from,
                request_id = message.request_id,
                "an answer was not acted on: it is not the person's, or nobody waits for it"
            ),
        }
    }

    /// Looks for questions in mail that nobody has taken in, and at who still waits.
    pub(super) fn look(&mut self) {
        let Ok(roster) = roster::read(&self.office.team) else { return };
        let is_waiting = |status: Status| status == Status::Waiting;
        let anybody = roster.members.iter().any(|member| is_waiting(member.status))
            || roster.lead.as_ref().is_some_and(|lead| is_waiting(lead.status));
        if anybody {
            let unread = unread::waiting(&self.office.team, &AgentName::lead()).unwrap_or_default();
            for message in unread.iter().filter_map(|waiting| waiting.message.as_ref()) {
                self.on_mail(message);
            }
        }
        let team = self.office.team.clone();
        for gone in self.office.approval_queue.withdraw(|asked| waits(&team, &roster, asked)) {
            tracing::info!(request_id = gone.question.request_id, "a request was withdrawn");
            let at = self.queue.iter().position(|asked| *asked == gone);
            if let Some(at) = at {
                self.queue.remove(at);
                self.say(format!("({} no longer asks)", gone.owner));
                if at == 0 {
                    self.slipped = Some(Instant::now());
                }
            }
        }
        let approval_queue = Rc::clone(&self.office.approval_queue);
        self.queue.retain(|asked| approval_queue.find(&asked.question.request_id).is_some());
    }

    /// The question in front.
    pub(super) fn front(&self) -> Option<&QueuedRequest> {
        self.queue.front()
    }

    /// The rows of the question in front.
    pub(super) fn rows(&self, asked: &QueuedRequest, view: &View) -> String {
        let roster = roster::read(&self.office.team);
        let color = roster.ok().and_then(|roster| {
            roster.member(asked.owner.as_str()).map(|member| member.color.clone())
        });
        let (name, color) = (asked.owner.to_string(), color.unwrap_or_default());
        let more = self.queue.len().saturating_sub(1);
        ask(&Asker { name, color, more }, &asked.question, view)
    }

    /// Whether a typed line answered the question in front.
    pub(super) fn take_line(&mut self, line: &str) -> bool {
        let said = self.queue.front().and_then(|_| understand(line));
        said.is_some_and(|said| {
            self.answer(said);
            true
        })
    }

    /// A key was pressed that answers the question in front.
    pub(super) fn take_key(&mut self, key: char) {
        match key {
            'y' => self.answer(Said::Yes),
            'a' => self.answer(Said::Always),
            _ => self.answer(Said::No(None)),
        }
    }

    fn answer(&mut self, said: Said) {
        if self.slipped.take().is_some_and(|at| at.elapsed() < SECOND_LOOK) {
            return self.say("the question has just changed: look again, then answer".into());
        }
        let Some(asked) = self.queue.front() else {
            return self.say("nobody asks anything".into());
        };
        let yes = ApprovalDecision::once(RequestVerdict::Approve, None);
        let decision = match said {
            Said::Yes => yes,
            Said::No(why) => ApprovalDecision::once(RequestVerdict::Reject, why),
            Said::Always if asked.question.about == QuestionKind::Plan => yes,
            Said::Always => ApprovalDecision { scope: Scope::Always, ..yes },
            Said::Instead(command) => match asked
                .question
                .with_command(find(&asked.question.tool), command)
            {
                None => return self.say("only a command can be changed; say no and why".into()),
                input => ApprovalDecision { updated_input: input, ..yes },
            },
            Said::ShowWhole => return self.say(whole(&asked.question)),
            Said::InsteadOfWhat => {
                return self.say("write e and the command that shall run instead".into());
            }
        };
        if let Some(asked) = self.queue.pop_front() {
            self.decide(asked, decision);
        }
    }

    fn say(&self, text: String) {
        // The session ends: nobody is left to read it.
        let _unread = self.told.send(text);
    }

    fn decide(&mut self, asked: QueuedRequest, decision: ApprovalDecision) {
        let id = asked.question.request_id.clone();
        self.queue.retain(|waiting| waiting.question.request_id != id);
        let (approval_queue, supervisor) =
            (Rc::clone(&self.office.approval_queue), Rc::clone(&self.office.supervisor));
        let (events, told) = (self.office.events.clone(), self.told.clone());
        let verdict = if decision.verdict == RequestVerdict::Approve { "yes" } else { "no" };
        self.say(format!("{verdict} to {}: {}", asked.owner, asked.question.tool));
        tokio::task::spawn_local(async move {
            if let Err(why) = approval_queue.decide(&id, Decider::Person, decision.clone()).await {
                let _unread = told.send(why.to_string());
                return;
            }
            if asked.owner.is_lead() {
                let _ended = events.send(Event::Answered(own(&id, &decision)));
            }
            if decision.verdict == RequestVerdict::Approve && decision.scope == Scope::Always {
                let rules =
                    RuleLists { allow: rules(&asked.question, &decision), ..RuleLists::default() };
                // What a question names may be no tool; no member could begin with such a rule.
                if let Err(why) = Policy::new(PermissionMode::Default, &rules) {
                    let _unread = told.send(why.to_string());
                    return;
                }
                supervisor.add_rules(&rules);
                let _ended = events.send(Event::AddRules(rules.clone()));
                approval_queue
                    .fan_out(Body::PermissionUpdate { rules: json!(rules) }, |_, _| true)
                    .await;
            }
        });
    }

    /// The whole team goes on in another mode: who had the lead's follows, and nobody stays looser.
    pub(super) fn set_mode(&self, mode: PermissionMode) {
        let office = &self.office;
        let before = office.approval_queue.mode();
        office.approval_queue.set_mode(mode);
        office.supervisor.set_mode(mode);
        let _ended = office.events.send(Event::SetMode(mode));
        let approval_queue = Rc::clone(&office.approval_queue);
        tokio::task::spawn_local(async move {
            let follows = |_: &str, its: &str| {
                its == before.word() || PermissionMode::parse(its).is_some_and(|its| its > mode)
            };
            approval_queue
                .fan_out(Body::ModeSetRequest { mode: mode.word().into() }, follows)
                .await;
        });
    }
}

/// The decision about the lead's own call.
fn own(id: &str, decision: &ApprovalDecision) -> Decision {
    let approved = decision.verdict == RequestVerdict::Approve;
    Decision {
        request_id: id.into(),
        outcome: if approved { DecisionOutcome::Approved } else { DecisionOutcome::Rejected },
        by: "user".into(),
        scope: decision.scope,
        reason: decision.reason.clone(),
        updated_input: decision.updated_input.clone(),
        mode: None,
    }
}

/// The rules that "always" makes of a question.
fn rules(question: &Question, decision: &ApprovalDecision) -> Vec<String> {
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

/// Whether somebody still waits for the answer.
fn waits(team: &TeamDir, roster: &Roster, asked: &QueuedRequest) -> bool {
    if asked.owner.is_lead() {
        return roster.lead.as_ref().is_some_and(|lead| lead.status == Status::Waiting);
    }
    let member = roster.member(asked.owner.as_str());
    member.is_some_and(|member| {
        member.status == Status::Waiting && member.incarnation == asked.incarnation
    }) && matches!(liveness::probe(team, &asked.owner), Ok(Liveness::Alive(_)))
}
