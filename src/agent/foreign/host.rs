//! The side of a member that faces its foreign agent: it keeps the agent's process, sends prompts and answers, and turns
//! what the agent sends into events of the turn.

use super::event::{AskAnswer, AskNumber, ForeignAction, ForeignEvent};
use super::past::{Unseen, past_of};
pub(crate) use super::process::ForeignSetup;
use super::process::{FromAgent, RunningAgent, StartedAgent};
use crate::acp::connection::{CallError, Incoming, RequestId};
use crate::acp::session::{Capability, PermissionAnswer, PromptEnd, answer};
use crate::acp::update::{PermissionRequest, Update};
use crate::agent::conversation::{Memory, Observer};
use crate::agent::event::{Event, Events};
use crate::wire::chat::Usage;
use crate::wire::transcript::{Entry, ForeignSession};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The time that the agent has to end its prompt after it was cancelled.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// The pauses before the agent is started again. Once they are used up within [`RESTARTS_WITHIN`], the member fails.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
const RESTARTS_WITHIN: Duration = Duration::from_secs(300);

/// The most questions of the agent that may be open at once.
const MAX_ASKS: usize = 64;

pub(crate) struct ForeignHost {
    setup: Rc<ForeignSetup>,
    events: Events,
    unseen: Rc<Unseen>,
    running: Option<RunningAgent>,
    /// The number of processes so far. What an earlier one sent is dropped.
    process: u64,
    started: StartedAgent,
    /// The start of a process, or the pause before it.
    start: Option<JoinHandle<()>>,
    /// The text that is sent once the agent has a session.
    waiting_prompt: Option<String>,
    /// Whether the turn waits for the agent's next process.
    is_restart: bool,
    /// The prompt under way, or the limit of its cancellation.
    waits: Vec<JoinHandle<()>>,
    session: Option<ForeignSession>,
    asks: BTreeMap<AskNumber, (RequestId, PermissionRequest)>,
    last_ask: u64,
    restarts: VecDeque<Instant>,
    /// Whether the agent has the rules of the team.
    is_briefed: bool,
}

impl ForeignHost {
    pub(crate) fn new(setup: ForeignSetup, events: Events) -> Self {
        Self {
            setup: Rc::new(setup),
            events,
            unseen: Rc::default(),
            running: None,
            process: 0,
            started: Rc::default(),
            start: None,
            waiting_prompt: None,
            is_restart: false,
            waits: Vec::new(),
            session: None,
            asks: BTreeMap::new(),
            last_ask: 0,
            restarts: VecDeque::new(),
            is_briefed: false,
        }
    }

    /// Returns a function that notes each entry that the agent has not seen.
    pub(crate) fn observer(&self) -> Observer {
        let unseen = Rc::clone(&self.unseen);
        Box::new(move |entry| unseen.note(entry))
    }

    /// Tells the agent again what it was asked in the turn that was cut off.
    pub(crate) fn repeat(&self, asked: &str) {
        let head = "[team: what you were asked in this turn; you may have seen it]";
        self.unseen.note(&Entry::User { content: format!("{head}\n{asked}") });
    }

    /// Sets the session of an earlier process, which the next one continues.
    pub(crate) fn know_session(&mut self, session: Option<ForeignSession>) {
        self.session = session.filter(|session| session.agent == self.setup.program.name);
    }

    /// Starts the agent after a pause; its end is sent as [`FromAgent::Started`].
    pub(crate) fn start(&mut self, pause: Duration) {
        self.process += 1;
        let (process, events) = (self.process, self.events.clone());
        let known = self.session.as_ref().map(|session| session.session_id.clone());
        let (setup, started) = (Rc::clone(&self.setup), Rc::clone(&self.started));
        self.start = Some(tokio::task::spawn_local(async move {
            tokio::time::sleep(pause).await;
            let sink = events.clone();
            let send = move |incoming| {
                let _ended = sink.send(Event::Foreign(process, FromAgent::Incoming(incoming)));
            };
            let result = setup.start(known, send).await;
            *started.borrow_mut() = Some(result);
            let _ended = events.send(Event::Foreign(process, FromAgent::Started));
        }));
    }

    /// Handles what came from the process of this number. Returns the event for the turn, and the session if it is a new one.
    pub(crate) fn receive(
        &mut self,
        process: u64,
        from: FromAgent,
        memory: &Memory,
    ) -> (Option<ForeignEvent>, Option<ForeignSession>) {
        if process != self.process {
            return (None, None);
        }
        match from {
            FromAgent::Started => self.on_started(memory),
            FromAgent::Incoming(Incoming::Update(params, _room)) => (self.update(&params), None),
            FromAgent::Incoming(Incoming::Permission(id, params, _room)) => {
                (self.permission(id, &params), None)
            }
            FromAgent::Incoming(Incoming::Closed(why)) => (self.lost(why), None),
            FromAgent::Prompted(ended) => (self.prompted(ended), None),
            FromAgent::CancelOverdue => (Some(ForeignEvent::CancelOverdue), None),
        }
    }

    /// Returns the reason for which the process has not started, once that is known.
    pub(crate) fn start_failure(&self) -> Option<String> {
        self.started.borrow().as_ref()?.as_ref().err().cloned()
    }

    fn on_started(&mut self, memory: &Memory) -> (Option<ForeignEvent>, Option<ForeignSession>) {
        self.start = None;
        let is_restart = std::mem::take(&mut self.is_restart);
        let started = self.started.borrow_mut().take();
        let running = match started {
            None => return (None, None),
            Some(Ok(running)) => running,
            Some(Err(why)) => {
                self.running = None;
                let has_prompt = self.waiting_prompt.take().is_some();
                let event = (is_restart || has_prompt).then_some(ForeignEvent::GaveUp(why));
                return (event, None);
            }
        };
        let RunningAgent { info, session, .. } = &running;
        let told = ForeignSession {
            agent: self.setup.program.name.clone(),
            session_id: session.id.clone(),
            version: info.version.clone(),
        };
        let is_new = (self.session.as_ref() != Some(&told)).then(|| told.clone());
        let mut before = Vec::new();
        if !session.has_history {
            self.is_briefed = false;
            before.extend(past_of(memory).filter(|_| self.session.is_some()));
        }
        if !self.is_briefed && !info.has(Capability::SystemPrompt) {
            before.insert(0, format!("[team: {}]", self.setup.instructions));
        }
        self.is_briefed = true;
        self.session = Some(told);
        self.running = Some(running);
        if !before.is_empty() {
            let waiting = self.waiting_prompt.take();
            before.extend(waiting.clone());
            let text = before.join("\n\n");
            match waiting {
                Some(_) => self.waiting_prompt = Some(text),
                None => self.unseen.note(&Entry::User { content: text }),
            }
        }
        if let Some(text) = self.waiting_prompt.take() {
            self.send_prompt(&text);
        }
        (is_restart.then_some(ForeignEvent::Restarted), is_new)
    }

    fn update(&self, params: &Value) -> Option<ForeignEvent> {
        let running = self.running.as_ref()?;
        Update::read(params, &running.session.id).map(ForeignEvent::Update)
    }

    fn permission(&mut self, id: RequestId, params: &Value) -> Option<ForeignEvent> {
        let running = self.running.as_ref()?;
        let request = PermissionRequest::read(params, &running.session.id);
        let Some(request) = request.filter(|_| self.asks.len() < MAX_ASKS) else {
            answer(&running.connection, &id, &PermissionAnswer::Cancelled);
            return None;
        };
        self.last_ask += 1;
        let number = AskNumber(self.last_ask);
        let call = Box::new(request.call.clone());
        self.asks.insert(number, (id, request));
        Some(ForeignEvent::Asked(number, call))
    }

    fn lost(&mut self, why: String) -> Option<ForeignEvent> {
        tracing::warn!(%why, "the agent is gone");
        self.asks.clear();
        self.abort_waits();
        // While it starts, the end of the start reports the failure.
        self.running.take()?;
        Some(ForeignEvent::Lost(why))
    }

    fn prompted(&mut self, ended: Result<PromptEnd, CallError>) -> Option<ForeignEvent> {
        self.abort_waits();
        match ended {
            Ok(end) => {
                let usage = usage_of(&end.answer);
                Some(ForeignEvent::Ended(end, usage))
            }
            Err(CallError::Answered(why)) => {
                Some(ForeignEvent::Refused(format!("the agent answered: {why}")))
            }
            // The end of the connection is reported by itself.
            Err(CallError::Closed(_) | CallError::Late { .. }) => None,
        }
    }

    /// Performs an action of the turn, except for a judgement. Returns the immediate answer, if there is one.
    pub(crate) fn perform(&mut self, action: &ForeignAction) -> Option<ForeignEvent> {
        match action {
            ForeignAction::Prompt => {
                let text = self.unseen.take();
                let text = if text.is_empty() { "[team: go on]".into() } else { text };
                if self.running.is_some() {
                    self.send_prompt(&text);
                } else {
                    self.waiting_prompt = Some(text);
                    if self.start.is_none() {
                        self.start(Duration::ZERO);
                    }
                }
                None
            }
            ForeignAction::Cancel => {
                self.cancel();
                None
            }
            ForeignAction::EndAgent => {
                self.drop_process();
                None
            }
            ForeignAction::Answer(number, given) => {
                self.answer(*number, *given);
                None
            }
            ForeignAction::Restart(why) => self.restart(why).map(ForeignEvent::GaveUp),
            ForeignAction::Judge(..) => None,
        }
    }

    fn send_prompt(&mut self, text: &str) {
        let Some(running) = &self.running else { return };
        let prompt = running.session.prompt(&running.connection, text);
        let (process, events) = (self.process, self.events.clone());
        self.waits.push(tokio::task::spawn_local(async move {
            let ended = FromAgent::Prompted(prompt.await);
            let _ended = events.send(Event::Foreign(process, ended));
        }));
    }

    fn cancel(&mut self) {
        if let Some(running) = &self.running {
            running.session.cancel(&running.connection);
        }
        let (process, events) = (self.process, self.events.clone());
        self.waits.push(tokio::task::spawn_local(async move {
            tokio::time::sleep(CANCEL_WITHIN).await;
            let _ended = events.send(Event::Foreign(process, FromAgent::CancelOverdue));
        }));
    }

    fn answer(&mut self, number: AskNumber, given: AskAnswer) {
        let Some((id, request)) = self.asks.remove(&number) else { return };
        let Some(running) = &self.running else { return };
        let option = match given {
            AskAnswer::Allow => request.allow_once,
            AskAnswer::Reject => request.reject_once,
            AskAnswer::Cancelled => None,
        };
        if given != AskAnswer::Cancelled && option.is_none() {
            tracing::warn!(
                "the agent offers no answer for one call alone: its question is cancelled"
            );
        }
        let given = option.map_or(PermissionAnswer::Cancelled, PermissionAnswer::Option);
        answer(&running.connection, &id, &given);
    }

    /// Starts the agent again, after a pause. Returns the reason if it has ended too often.
    fn restart(&mut self, why: &str) -> Option<String> {
        let now = Instant::now();
        self.restarts.retain(|at| now.duration_since(*at) < RESTARTS_WITHIN);
        let Some(pause) = PAUSES.get(self.restarts.len()) else {
            let (name, times) = (&self.setup.program.name, PAUSES.len() + 1);
            let minutes = RESTARTS_WITHIN.as_secs() / 60;
            return Some(format!(
                "acp/{name} ended {times} times within {minutes} minutes ({why}); look at its own log, and spawn it again"
            ));
        };
        self.restarts.push_back(now);
        self.is_restart = true;
        self.start(*pause);
        None
    }

    fn abort_waits(&mut self) {
        for wait in self.waits.drain(..) {
            wait.abort();
        }
    }

    /// Ends the processes of the agent at once.
    fn drop_process(&mut self) {
        self.abort_waits();
        self.asks.clear();
        self.running = None;
        if let Some(start) = self.start.take() {
            start.abort();
        }
    }

    /// Ends the agent in an orderly way, as far as it lets itself be ended so.
    pub(crate) async fn end(&mut self) {
        let running = self.running.take();
        self.drop_process();
        if let Some(RunningAgent { connection, info, session }) = running {
            session.close(&connection, &info).await;
            connection.end().await;
        }
    }
}

/// Returns the tokens of a prompt.
fn usage_of(answer: &Value) -> Usage {
    let usage = answer.get("usage");
    let count = |key: &str| usage.and_then(|it| it.get(key)?.as_u64()).unwrap_or_default();
    Usage {
        input_tokens: count("inputTokens"),
        output_tokens: count("outputTokens"),
        cache_read_input_tokens: count("cachedReadTokens"),
        cache_creation_input_tokens: count("cachedWriteTokens"),
    }
}
