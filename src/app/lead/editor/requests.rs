//! The messages of the editor in an open session.

use super::commands::PromptWork;
use super::opening::{self, Opening, OpeningKind, failed, modes};
use super::questions::EditorAnswer;
use super::session::{EditorSession, LeadTurn};
use crate::acp::served::incoming::{
    ClientMessage, ClientRequest, INVALID_PARAMS, INVALID_REQUEST, RpcError,
};
use crate::acp::served::params::{PromptText, no_such_session, prompt, session_id, text};
use crate::acp::served::updates;
use crate::agent::event::MachineEvent;
use crate::app::context::Context;
use crate::app::sessions::chosen;
use crate::store::roster;
use crate::tools::approval_decision::Decider;
use crate::wire::permission::PermissionMode;
use crate::wire::roster::Status;
use serde_json::{Value, json};

/// The longest title of a session, in characters.
const TITLE_CHARS: usize = 100;

/// The consequence of a message for the session.
#[derive(Debug, PartialEq)]
pub(super) enum AfterMessage {
    GoOn,
    /// The session ends, and the request with this id is answered then.
    Close(Value),
    /// The session ends, and this one follows.
    Next(Box<Opening>),
}

impl EditorSession {
    /// Handles a message of the editor.
    pub(super) async fn on_message(
        &mut self,
        base: &Context,
        message: ClientMessage,
    ) -> AfterMessage {
        match message {
            ClientMessage::Request(request) => return self.on_request(base, request).await,
            ClientMessage::Notification { method, params } => {
                self.on_notification(&method, &params);
            }
            ClientMessage::Answer { id, result } => self.on_answer(id, &result),
            ClientMessage::Invalid { id, error } => self.client.answer(&id, Err(error)),
            ClientMessage::ForeignAnswer => log_unknown_answer(),
        }
        AfterMessage::GoOn
    }

    async fn on_request(&mut self, base: &Context, request: ClientRequest) -> AfterMessage {
        if let Some(opening) = Opening::read(&request) {
            return self.on_opening(base, &request.id, opening);
        }
        let ClientRequest { id, method, params } = &request;
        let answer = match method.as_str() {
            "session/prompt" => match self.own(params).and_then(|()| prompt(params)) {
                Ok(prompt) => return self.on_prompt(id, prompt).await,
                Err(why) => Err(why),
            },
            "session/set_mode" => self.own(params).and_then(|()| self.set_mode(params)),
            "session/close" => match self.own(params) {
                Ok(()) => {
                    self.cancel();
                    return AfterMessage::Close(request.id);
                }
                Err(why) => Err(why),
            },
            _ => opening::answer(base, &request).await,
        };
        self.client.answer(&request.id, answer);
        AfterMessage::GoOn
    }

    /// Fails if a request is about another session.
    fn own(&self, params: &Value) -> Result<(), RpcError> {
        let id = session_id(params)?;
        if id == self.id { Ok(()) } else { Err(no_such_session(id, Some(&self.id))) }
    }

    async fn on_prompt(&mut self, id: &Value, prompt: PromptText) -> AfterMessage {
        if !self.has_title {
            self.has_title = true;
            let first = prompt.text.lines().find(|line| !line.trim().is_empty());
            let title: String =
                first.unwrap_or_default().trim().chars().take(TITLE_CHARS).collect();
            self.client.update(&self.id, &updates::title(&title));
        }
        // A question that was put off is asked again.
        self.approvals.ask_again();
        let work = if prompt.is_typed {
            self.commands.run(prompt.text, || self.budgets.lines()).await
        } else {
            PromptWork::Model(prompt.text)
        };
        match work {
            PromptWork::Model(text) => {
                self.prompts.add(id.clone());
                self.runtime.send(MachineEvent::Prompt(text).into());
                return AfterMessage::GoOn;
            }
            PromptWork::Told(text) => self.tell(&text),
            PromptWork::Mode(mode) => {
                self.approvals.set_mode(mode);
                self.tell(&format!("mode {mode}: {}", mode.meaning()));
            }
        }
        self.client.answer(id, Ok(json!({ "stopReason": "end_turn" })));
        AfterMessage::GoOn
    }

    fn set_mode(&mut self, params: &Value) -> Result<Value, RpcError> {
        let id = text(params, "modeId")?;
        let mode = PermissionMode::parse(id).ok_or_else(|| {
            let why = format!(
                "there is no mode {id:?}; the modes are: {}",
                PermissionMode::WORDS.join(", ")
            );
            RpcError::new(INVALID_PARAMS, why)
        })?;
        self.approvals.set_mode(mode);
        self.told_mode = mode;
        Ok(json!({}))
    }

    /// Opens another session, or this one again. A session at work is not left: its teammates would be stopped.
    fn on_opening(
        &mut self,
        base: &Context,
        request: &Value,
        opening: Result<Opening, RpcError>,
    ) -> AfterMessage {
        let may_open = opening.and_then(|opening| {
            let is_own = opening.conversation() == Some(self.id.as_str());
            self.may_leave(base, &opening, is_own)?;
            Ok((opening, is_own))
        });
        match may_open {
            Err(why) => self.client.answer(request, Err(why)),
            Ok((opening, false)) => return AfterMessage::Next(Box::new(opening)),
            Ok((opening, true)) => {
                if matches!(opening.kind, OpeningKind::Load(_)) {
                    self.replay();
                }
                let mode = self.runtime.approval_queue.mode.get();
                self.client.answer(request, Ok(json!({ "modes": modes(mode) })));
                self.tell_commands();
            }
        }
        AfterMessage::GoOn
    }

    fn may_leave(&self, base: &Context, opening: &Opening, is_own: bool) -> Result<(), RpcError> {
        let refused = |why: String| Err(RpcError::new(INVALID_REQUEST, why));
        let context = base.in_folder(&opening.place.cwd).map_err(|why| failed(&why))?;
        let (here, there) = (self.runtime.team().root(), &context.team_path);
        let is_here = here.canonicalize().ok() == there.canonicalize().ok() || here == there;
        if !is_here {
            return refused(format!(
                "this process leads the team in {}: close its session {} first, or start another `team acp` for {}",
                here.display(),
                self.id,
                opening.place.cwd.display()
            ));
        }
        if is_own {
            return Ok(());
        }
        if let Some(id) = opening.conversation() {
            chosen(self.runtime.team(), id).map_err(|why| failed(&why))?;
        }
        let roster = roster::read(self.runtime.team()).map_err(|why| failed(&why.into()))?;
        let is_at_work = |status: Status| !status.is_over() && status != Status::Idle;
        let at_work = roster.members.iter().filter(|member| is_at_work(member.status));
        let mut at_work: Vec<&str> = at_work.map(|member| member.name.as_str()).collect();
        if self.turn == LeadTurn::Running || !self.prompts.is_empty() {
            at_work.insert(0, "lead");
        }
        if at_work.is_empty() {
            return Ok(());
        }
        refused(format!(
            "one team runs in a folder, and in session {} these are at work: {}; wait for them, cancel, or close that session",
            self.id,
            at_work.join(", ")
        ))
    }

    fn on_notification(&mut self, method: &str, params: &Value) {
        match method {
            "session/cancel" => match self.own(params) {
                Ok(()) => self.cancel(),
                Err(why) => tracing::warn!(%why, "a cancellation was ignored"),
            },
            "$/cancel_request" => {
                let id = params.get("requestId");
                if id.is_some_and(|id| self.prompts.contains(id)) {
                    self.cancel();
                }
            }
            _ => {}
        }
    }

    /// Takes the answer to a question.
    fn on_answer(&mut self, id: u64, result: &Result<Value, RpcError>) {
        match self.questions.answer(id, result) {
            EditorAnswer::Unknown => log_unknown_answer(),
            EditorAnswer::Undecided(request) => {
                let owner = self.approvals.queue.get(&request).map(|it| it.asked.owner.clone());
                self.approvals.queue.put_off(&request);
                if let Some(owner) = owner.filter(|owner| !owner.is_lead()) {
                    self.tell(&format!(
                        "**{owner}** still waits for an answer: the next prompt asks again, and so can `team approve` in a terminal."
                    ));
                }
            }
            EditorAnswer::Decided(request, decision) => {
                let Some(waiting) = self.approvals.queue.remove(&request) else {
                    return log_unknown_answer();
                };
                let makes_rule = decision.makes_rule().is_some();
                self.approvals.decide(waiting.asked, Decider::Person, *decision);
                // The person has just given this answer; only the rule is news.
                let told = self.approvals.waiting_notice();
                self.tell(&told.filter(|_| makes_rule).unwrap_or_default());
            }
        }
    }
}

fn log_unknown_answer() {
    tracing::warn!("an answer was ignored: no question waits for it");
}
