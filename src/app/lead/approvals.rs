//! Approvals at the lead: receives questions, shows the person one at a time, sends the answers.
//!
//! Questions arrive in the lead's inbox, which is not drained while the lead's model answers or a tool
//! runs. [`Approvals::refresh`] therefore reads undrained mail, too; a question that it finds again is queued once.

use super::runtime::LeadRuntime;
use crate::agent::event::ApprovalEvent;
use crate::app::requests::{decision_of, editable_text, own_decision, with_text};
use crate::app::stop_members::is_alive;
use crate::protocol::permission::{PermissionSubject, Policy, rules_for, would_allow};
use crate::protocol::request::RequestVerdict;
use crate::store::{TeamDir, roster, transcript, unread};
use crate::tools::approval_queue::{ApprovalDecision, Decider, QueuedRequest};
use crate::tools::find;
use crate::ui::console::EditableText;
use crate::ui::question::{TypedAnswer, ask, look_first, omitted_rows, understand, whole};
use crate::ui::view::View;
use crate::view::requests::visible;
use crate::wire::message::{Body, Message, Scope};
use crate::wire::permission::{PermissionMode, Question, QuestionKind, RuleLists};
use crate::wire::roster::{Member, Roster, Status};
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
    /// The last question that was shown.
    shown: Option<ShownQuestion>,
    /// The question in front as the person has changed it in an editor.
    edited: Option<Question>,
    notices: UnboundedSender<String>,
    unread_notices: UnboundedReceiver<String>,
}

/// A question on the screen. An approval counts only for a question that was shown in full.
struct ShownQuestion {
    id: String,
    /// The number of rows that were left out, until the person asked for them.
    omitted: usize,
}

impl Approvals {
    /// Creates the approvals with the open questions of members that already wait for an answer.
    pub(super) fn new(runtime: LeadRuntime, nobody: Option<&'static str>) -> Self {
        let (notices, unread_notices) = unbounded_channel();
        let queue = VecDeque::new();
        let (replaced_at, shown, edited) = (None, None, None);
        let mut approvals =
            Self { runtime, nobody, queue, replaced_at, shown, edited, notices, unread_notices };
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
        let body = message.body.clone();
        let (approve, scope, reason, updated_input) =
            if let Body::PermissionResponse { approve, scope, reason, updated_input, .. } = body {
                (approve, scope, reason, updated_input)
            } else if let Body::SandboxPermissionResponse {
                approve,
                scope,
                reason,
                updated_input,
                ..
            } = body
            {
                (approve, scope, reason, updated_input)
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
            // The answer can arrive before the question, and before its owner's status says that it waits.
            self.find_open_questions(|member| !member.status.is_over());
        }
        let asked = id.and_then(|id| queue.find(id));
        match asked {
            Some(asked) => self.decide(asked, Decider::Person, decision),
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
            let keyring = self.runtime.bus.keyring();
            let verified = unread.into_iter().filter_map(|waiting| waiting.verified(keyring));
            for message in verified.collect::<Vec<_>>() {
                self.on_mail(&message);
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

    /// Returns the question in front if it is not on the screen as it is now.
    pub(super) fn next_to_show(&mut self) -> Option<QueuedRequest> {
        let Some(front) = self.queue.front() else {
            self.shown = None;
            return None;
        };
        let id = &front.question.request_id;
        if self.edited.as_ref().is_some_and(|edited| edited.request_id != *id) {
            self.edited = None;
        }
        if self.shown.as_ref().is_some_and(|shown| shown.id == *id) {
            return None;
        }
        let question = self.edited.as_ref().unwrap_or(&front.question).clone();
        Some(QueuedRequest { question, ..front.clone() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the text of the question on the screen that an editor can change.
    pub(super) fn editable_text(&self) -> Option<EditableText> {
        editable_text(self.current()?)
    }

    /// Returns the question in front, with the changes of the person.
    fn current(&self) -> Option<&Question> {
        let front = &self.queue.front()?.question;
        let edited = self.edited.as_ref().filter(|it| it.request_id == front.request_id);
        Some(edited.unwrap_or(front))
    }

    /// Renders a question for the screen.
    pub(super) fn render(&mut self, asked: &QueuedRequest, view: &View) -> String {
        let roster = roster::read(self.runtime.team());
        let color = |roster: &Roster| Some(roster.member(asked.owner.as_str())?.color.clone());
        let color = roster.ok().and_then(|roster| color(&roster)).unwrap_or_default();
        let more = self.queue.len().saturating_sub(1);
        let omitted = omitted_rows(&asked.question, view);
        self.shown = Some(ShownQuestion { id: asked.question.request_id.clone(), omitted });
        ask(asked.owner.as_str(), &color, more, &asked.question, view)
    }

    /// Takes the end of the person's editor. A changed question is asked again.
    pub(super) fn on_edited(&mut self, id: &str, text: Result<String, String>) {
        let text = match text {
            Ok(text) => text,
            Err(why) => return self.notify(why),
        };
        let changed = self.current().filter(|question| question.request_id == id);
        let Some(changed) = changed.and_then(|question| with_text(question, &text)) else {
            let text = visible(&text);
            return self.notify(format!("the question is no longer open; your text was:\n{text}"));
        };
        self.edited = Some(changed);
        self.shown = None;
        self.notify("changed; y lets the changed one run:".into());
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
        let Some(question) = self.current().cloned() else {
            return self.notify("there is no question".into());
        };
        let shown = self.shown.as_mut().filter(|shown| shown.id == question.request_id);
        let said = match said {
            TypedAnswer::ShowWhole => {
                if let Some(shown) = shown {
                    shown.omitted = 0;
                }
                return self.notify(whole(&question));
            }
            TypedAnswer::Edit => return self.notify(no_editor(&question).into()),
            Yes | Always => match shown {
                None => return self.notify("the next question came just now: look first".into()),
                Some(shown) if shown.omitted > 0 => {
                    let why = look_first(shown.omitted);
                    return self.notify(why);
                }
                // The person reads each plan, so this answer covers one plan only.
                Some(_) if question.about == QuestionKind::Plan => Yes,
                Some(_) => said,
            },
            No(_) | Instead(_) => said,
        };
        let Some(mut decision) = decision_of(&question, said) else {
            return self.notify("only a command can be typed anew; e alone edits a file".into());
        };
        if let Some(asked) = self.queue.pop_front() {
            let is_yes = decision.verdict == RequestVerdict::Approve;
            if is_yes && asked.question.input != question.input {
                decision.updated_input.get_or_insert(question.input);
            }
            self.edited = None;
            self.decide(asked, Decider::Person, decision);
        }
    }

    fn notify(&self, text: String) {
        // At the end of the session no notice is shown any more.
        let _unread = self.notices.send(text);
    }

    fn decide(&mut self, asked: QueuedRequest, decider: Decider, decision: ApprovalDecision) {
        let id = asked.question.request_id.clone();
        self.queue.retain(|waiting| waiting.question.request_id != id);
        let (runtime, notices) = (self.runtime.clone(), self.notices.clone());
        let is_yes = decision.verdict == RequestVerdict::Approve;
        let verdict = if is_yes { "yes" } else { "no" };
        self.notify(format!("{verdict} to {}: {}", asked.owner, asked.question.tool));
        tokio::task::spawn_local(async move {
            let queue = &runtime.approval_queue;
            if let Err(why) = queue.decide(&id, decider, decision.clone()).await {
                let _unread = notices.send(why.to_string());
                return;
            }
            let is_always = is_yes && decision.scope == Scope::Always;
            let changed = decision.updated_input.as_ref();
            let changed = changed.and_then(|input| input.get("command")?.as_str());
            let subject = changed.unwrap_or(&asked.question.description);
            let allow = always_rules(&asked.question, subject);
            if asked.owner.is_lead() {
                runtime.send(ApprovalEvent::Answered(own_decision(&id, decider, decision)).into());
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
        let (runtime, approval_queue) = (runtime.clone(), Rc::clone(&runtime.approval_queue));
        tokio::task::spawn_local(async move {
            runtime.record_mode(mode).await;
            let follows = |_: &str, its: &str| {
                its == before.word() || PermissionMode::parse(its).is_some_and(|its| its > mode)
            };
            let request = Body::ModeSetRequest { mode: mode.word().into() };
            approval_queue.fan_out(request, follows).await;
        });
    }
}

/// The reason for which the line `e` opens no editor.
fn no_editor(question: &Question) -> &'static str {
    if editable_text(question).is_some() {
        "this terminal cannot be handed to an editor; write e and the command, or n and why"
    } else {
        "this question has nothing to edit; say y, or n and why"
    }
}

/// Returns the rules that always allow the call of a question with this subject.
fn always_rules(question: &Question, subject: &str) -> Vec<String> {
    let what = subject.to_owned();
    let argument = find(&question.tool).map(|tool| tool.subject);
    let subject = match (question.about, argument) {
        (QuestionKind::Sandbox, Some(SubjectArgument::Command(_))) => match question.hosts() {
            hosts if hosts.is_empty() => PermissionSubject::Unsandboxed(what),
            hosts => PermissionSubject::Hosts { command: what, hosts },
        },
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
