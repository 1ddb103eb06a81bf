//! Approvals at the lead: receives questions, shows the person one at a time, sends the answers.
//!
//! Questions arrive in the lead's inbox, which is not drained while the lead's model answers or a tool
//! runs. [`Approvals::refresh`] therefore reads undrained mail, too; a question that it finds again is queued once.

use super::late_statuses::{LastStatus, LateStatuses};
use super::question_queue::QuestionQueue;
use super::runtime::LeadRuntime;
use crate::agent::event::ApprovalEvent;
use crate::agent::replay::Player;
use crate::app::question_file::file_of;
use crate::app::requests::{
    always_rules, decided_call, editable_text, own_decision, rules_of_always,
};
use crate::app::stop_members::is_alive;
use crate::os::spawn::spawn_local;
use crate::protocol::permission::would_allow;
use crate::protocol::request::RequestVerdict;
use crate::store::{roster, transcript, unread};
use crate::tools::approval_decision::{ApprovalDecision, Decider};
use crate::tools::approval_queue::QueuedRequest;
use crate::ui::console::{EditableText, QuestionPrompt};
use crate::ui::question::{ALWAYS, ask_about, body, choices, omitted_of, subject_rows, summary};
use crate::ui::{sanitize::one_line, view::View};
use crate::wire::AgentName;
use crate::wire::message::{Body, Message};
use crate::wire::permission::{PermissionMode, Question, QuestionKind, RuleScope};
use crate::wire::roster::{Member, Roster, Status};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The number of columns of the rule that an answer would make.
const RULE_COLUMNS: usize = 60;

/// The one who answers questions in this run.
pub(super) enum Answerer {
    Person,
    /// Nobody can: every question is denied, for this reason.
    NoOne(&'static str),
    /// The record that the team plays has the answers of the person. Other questions are denied, for this reason.
    Record(Rc<Player>, &'static str),
}

pub(super) struct Approvals {
    runtime: LeadRuntime,
    answerer: Answerer,
    pub(super) queue: QuestionQueue,
    /// The time at which the question in front was withdrawn without an answer.
    pub(super) replaced_at: Option<Instant>,
    late_statuses: RefCell<LateStatuses>,
    notices: UnboundedSender<String>,
    unread_notices: UnboundedReceiver<String>,
}

impl Approvals {
    /// Creates the approvals with the open questions of members that already wait for an answer.
    pub(super) fn new(runtime: LeadRuntime, answerer: Answerer) -> Self {
        let (notices, unread_notices) = unbounded_channel();
        let (queue, replaced_at) = (QuestionQueue::default(), None);
        let late_statuses = RefCell::default();
        let mut approvals =
            Self { runtime, answerer, queue, replaced_at, late_statuses, notices, unread_notices };
        approvals.find_open_questions(|member| member.status == Status::Waiting);
        approvals
    }

    /// Queues the open questions of the members that `of` selects from their transcripts, such as questions to an
    /// earlier lead.
    fn find_open_questions(&mut self, of: impl Fn(&Member) -> bool) {
        let Ok(roster) = roster::read(self.runtime.team()) else { return };
        for member in roster.members.iter().filter(|member| of(member)) {
            let Ok(owner) = AgentName::member(&member.name) else { continue };
            let open = transcript::open_questions(self.runtime.team(), &owner).unwrap_or_default();
            for open in open.into_iter().filter(|open| open.decider == "lead") {
                let (owner, incarnation) = (owner.clone(), member.incarnation.clone());
                let asked = QueuedRequest { question: open.question, owner, incarnation };
                if self.is_waiting(&roster, &asked) {
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
        self.runtime.revoke_by_mail(message);
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
        if !self.runtime.approval_queue.is_for_person(&asked) {
            return;
        }
        let why = match &self.answerer {
            Answerer::Person => return self.queue.push(asked),
            // The answer comes at its time.
            Answerer::Record(record, _) if record.has_answer(&asked.question.request_id) => return,
            Answerer::NoOne(why) | Answerer::Record(_, why) => *why,
        };
        let question = &asked.question;
        let why = match question.about {
            QuestionKind::Plan => why.to_owned(),
            QuestionKind::Permission | QuestionKind::Sandbox => {
                let rules = always_rules(question, &question.description);
                format!("{why}; {}", would_allow(&rules))
            }
        };
        let denied = ApprovalDecision::once(RequestVerdict::Reject, Some(why));
        self.decide(asked, Decider::Program, denied);
    }

    /// Passes on an answer from outside the lead. A command such as `team approve` sends it as `user`.
    fn relay_answer(&mut self, message: &Message) {
        let bound = message.is_verified()
            && message.from == AgentName::user().as_str()
            && message.incarnation.as_deref() == Some(self.runtime.incarnation.as_str());
        let Some((_, decision, _)) = ApprovalDecision::of_body(&message.body) else { return };
        let id = message.request_id.as_deref().filter(|_| bound);
        if !id.is_some_and(|id| self.decide_for_person(id, decision)) {
            tracing::warn!(
                from = message.from,
                request_id = message.request_id,
                "an answer was not acted on: it is not the user's, or no question waits for it"
            );
        }
    }

    /// Decides a question for the person. Returns whether it waited.
    pub(super) fn decide_for_person(&mut self, id: &str, decision: ApprovalDecision) -> bool {
        let queue = Rc::clone(&self.runtime.approval_queue);
        if queue.find(id).is_none() {
            // The answer can arrive before the question, and before its owner's status says that it waits.
            self.find_open_questions(|member| !member.status.is_over());
        }
        let Some(asked) = queue.find(id) else { return false };
        self.decide(asked, Decider::Person, decision);
        true
    }

    /// Whether the owner of a question still waits for its answer. A status may be written late, if the roster is locked,
    /// and is about all questions of a member, so the transcript decides where the status does not. The status of a member on
    /// another host comes later than its mail, and its transcript is there.
    fn is_waiting(&self, roster: &Roster, asked: &QueuedRequest) -> bool {
        let queue = &self.runtime.approval_queue;
        let has_status = if asked.owner.is_lead() {
            is_lead_waiting(roster)
        } else {
            let member = roster.member(asked.owner.as_str());
            match member.filter(|member| member.incarnation == asked.incarnation) {
                Some(member) if member.host.is_some() => {
                    let is_waiting = member.status == Status::Waiting;
                    let status = LastStatus { is_waiting, is_away: member.away_since.is_some() };
                    let (id, now) = (&asked.question.request_id, Instant::now());
                    return member.alive == Some(true)
                        && self.late_statuses.borrow_mut().still_waits(id, status, now);
                }
                Some(member) if is_alive(self.runtime.team(), &asked.owner) => {
                    member.status == Status::Waiting
                }
                _ => return false,
            }
        };
        has_status && !queue.has_another(asked) || queue.is_undecided(asked)
    }

    /// Finds questions in undrained mail, and withdraws questions whose owner no longer waits.
    pub(super) fn refresh(&mut self) {
        let team = self.runtime.team().clone();
        self.runtime.search_revocations();
        let Ok(roster) = roster::read(&team) else { return };
        let mut statuses = roster.members.iter().map(|member| member.status);
        if statuses.any(|status| status == Status::Waiting) || is_lead_waiting(&roster) {
            let unread = unread::waiting(&team, &AgentName::lead()).unwrap_or_default();
            let keyring = self.runtime.bus.keyring();
            let verified = unread.into_iter().filter_map(|waiting| waiting.verified(keyring));
            for message in verified.collect::<Vec<_>>() {
                self.on_mail(&message);
            }
        }
        let approval_queue = Rc::clone(&self.runtime.approval_queue);
        for gone in approval_queue.withdraw(|asked| self.is_waiting(&roster, asked)) {
            tracing::info!(request_id = gone.question.request_id, "a request was withdrawn");
            let id = &gone.question.request_id;
            let was_in_front = self.queue.front().is_some_and(|front| front.id() == id);
            if self.queue.remove(id).is_some() {
                self.notify(format!("({} no longer asks)", gone.owner));
                if was_in_front {
                    self.replaced_at = Some(Instant::now());
                }
            }
        }
        let ids: Vec<String> = self.queue.all().iter().map(|it| it.id().to_owned()).collect();
        for id in ids.into_iter().filter(|id| approval_queue.find(id).is_none()) {
            self.queue.remove(&id);
        }
        self.late_statuses.borrow_mut().keep(|id| approval_queue.find(id).is_some());
    }

    /// Renders the question in front, once, without its keys where a pane shows them; `None` if it was shown.
    pub(super) fn next_to_show(&mut self, view: &View, has_pane: bool) -> Option<String> {
        let front = self.queue.front().filter(|front| front.omitted.is_none())?;
        let id = front.id().to_owned();
        let (owner, question) = (front.asked.owner.clone(), front.question().clone());
        let (color, label) = (self.color_of(&owner), self.label_of(&owner, &question));
        let file = file_of(self.runtime.team(), &owner, &question);
        let file = file.as_ref();
        let rows = subject_rows(&question, file, view);
        if let Some(waiting) = self.queue.get(&id) {
            (waiting.omitted, waiting.whole) = (Some(omitted_of(&rows)), rows.join("\n"));
        }
        let more = self.queue.position(&id).1.saturating_sub(1);
        Some(if has_pane {
            body(&label, &color, &question, file, view).0
        } else {
            ask_about(&label, &color, more, &question, file, view)
        })
    }

    /// Returns the question in front for the pane.
    pub(super) fn prompt(&self) -> Option<QuestionPrompt> {
        let front = self.queue.front()?;
        let (question, owner) = (front.question(), &front.asked.owner);
        let mut choices = choices(question, front.omitted.unwrap_or_default());
        let rules = rules_of_always(question);
        if let Some((_, meaning)) = choices.iter_mut().find(|(key, _)| *key == ALWAYS) {
            *meaning = format!("{meaning}: rule {}", one_line(&rules.join(", "), RULE_COLUMNS));
        }
        choices.push(("Esc", "later".into()));
        Some(QuestionPrompt {
            id: front.id().to_owned(),
            name: self.label_of(owner, question),
            color: self.color_of(owner),
            what: summary(question),
            choices,
            position: self.queue.position(front.id()),
        })
    }

    /// Returns the name of the asker for people, with its host if that is another one: there it would act.
    pub(super) fn label_of(&self, owner: &AgentName, question: &Question) -> String {
        let name = question.asker(owner.as_str());
        let roster = roster::read(self.runtime.team());
        let host = roster.ok().and_then(|it| it.host_of(owner.as_str()).map(str::to_owned));
        host.map_or_else(|| name.to_owned(), |host| format!("{name} (on {host})"))
    }

    fn color_of(&self, owner: &AgentName) -> String {
        let roster = roster::read(self.runtime.team());
        let color = |roster: &Roster| Some(roster.member(owner.as_str())?.color.clone());
        roster.ok().and_then(|roster| color(&roster)).unwrap_or_default()
    }

    /// Returns the number of questions that wait.
    pub(super) fn count(&self) -> usize {
        self.queue.all().len()
    }

    /// Returns the text of the question in front that an editor can change.
    pub(super) fn editable_text(&self) -> Option<EditableText> {
        editable_text(self.queue.front()?.question())
    }

    pub(super) fn notify(&self, text: String) {
        // At the end of the session no notice is shown any more.
        let _unread = self.notices.send(text);
    }

    pub(super) fn decide(
        &mut self,
        asked: QueuedRequest,
        decider: Decider,
        decision: ApprovalDecision,
    ) {
        let id = asked.question.request_id.clone();
        self.queue.remove(&id);
        let (runtime, notices) = (self.runtime.clone(), self.notices.clone());
        // A replay makes no rule for other teams in its folder.
        let is_replay = matches!(self.answerer, Answerer::Record(..));
        let most = if is_replay { RuleScope::Team } else { RuleScope::Good };
        let is_yes = decision.verdict == RequestVerdict::Approve;
        let verdict = if is_yes { "yes" } else { "no" };
        let call = decided_call(&asked.question, decision.updated_input.as_ref());
        let mut text = format!("{verdict} to {}: {call}", asked.owner);
        if let Some(scope) = decision.makes_rule().filter(|_| !asked.question.is_plan()) {
            let scope = scope.meaning(asked.owner.as_str());
            text.push_str("\nfrom now on without a question: ");
            text.push_str(&scope);
            text.push_str("; /permissions revoke N revokes it");
        }
        self.notify(text);
        spawn_local(async move {
            let queue = &runtime.approval_queue;
            if let Err(why) = queue.decide(&id, decider, decision.clone()).await {
                let _unread = notices.send(why.to_string());
                return;
            }
            let changed = decision.updated_input.as_ref();
            let changed = changed.and_then(|input| input.get("command")?.as_str());
            let subject = changed.unwrap_or(&asked.question.description);
            let allow = always_rules(&asked.question, subject);
            if asked.owner.is_lead() {
                let mut own = own_decision(&id, decider, decision.clone());
                if is_yes && asked.question.about == QuestionKind::Plan {
                    let mode = queue.mode_after_plan(decider, decision.mode);
                    runtime.take_mode(mode).await;
                    own.mode = Some(mode);
                }
                runtime.send(ApprovalEvent::Answered(own).into());
            }
            let rule_scope = decision.makes_rule().filter(|_| !asked.question.is_plan());
            if let Some(scope) = rule_scope.map(|scope| scope.min(most))
                && let Err(why) = runtime.grant(&asked.owner, scope, &allow).await
            {
                let _unread = notices.send(why);
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
        let (runtime, approval_queue) = (runtime.clone(), Rc::clone(&runtime.approval_queue));
        spawn_local(async move {
            runtime.record_mode(mode).await;
            let follows = |_: &str, its: &str| {
                its == before.word() || PermissionMode::parse(its).is_some_and(|its| its > mode)
            };
            let request = Body::ModeSetRequest { mode: mode.word().into() };
            approval_queue.fan_out(request, follows).await;
        });
    }
}

fn is_lead_waiting(roster: &Roster) -> bool {
    roster.lead.as_ref().is_some_and(|lead| lead.status == Status::Waiting)
}
