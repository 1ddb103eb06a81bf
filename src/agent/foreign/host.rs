//! The side of a member that faces its foreign agent: it keeps the agent's process, sends prompts and answers, and turns
//! what the agent sends into events of the turn.

use super::adapt::{CancelledCalls, is_program};
use super::event::{AskAnswer, AskNumber, ForeignAction, ForeignEvent};
use super::past::{Unseen, asked_again, past_of, text_of};
use super::place::{BETWEEN_GIVING, NextPlace, free_place, idle_end, wait_for_place};
pub(crate) use super::process::ForeignSetup;
use super::process::{FromAgent, RunningAgent, StartedAgent};
use super::restarts::Restarts;
use super::served::TeamTools;
use super::silence::Silence;
use super::usage::UsageMeter;
use crate::acp::connection::{CallError, Incoming, RequestId};
use crate::acp::session::{Capability, PermissionAnswer, PromptEnd, answer, answer_drain};
use crate::acp::update::{PermissionRequest, ToolStatus, ToolUpdate, Update};
use crate::agent::conversation::{Memory, Observer};
use crate::agent::event::{Event, Events};
use crate::os::failpoint::hit;
use crate::os::spawn::spawn_local;
use crate::store::agent_places::GivingAway;
use crate::wire::activity::Activity;
use crate::wire::money::Money;
use crate::wire::roster::Status;
use crate::wire::transcript::{Entry, ForeignSession};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The time that the agent has to end its prompt after it was cancelled.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

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
    next_place: NextPlace,
    /// The wait for the end of an idle agent.
    rest: Option<JoinHandle<()>>,
    silence: Silence,
    /// The text that is sent once the agent has a session.
    waiting_prompt: Option<String>,
    /// Whether the turn waits for the agent's next process.
    is_restart: bool,
    /// The prompt under way, or the limit of its cancellation.
    waits: Vec<JoinHandle<()>>,
    session: Option<ForeignSession>,
    asks: BTreeMap<AskNumber, (RequestId, PermissionRequest)>,
    last_ask: u64,
    restarts: Restarts,
    /// Whether the agent has the rules of the team.
    is_briefed: bool,
    tools: Option<TeamTools>,
    usage: UsageMeter,
    /// The effect of a cancellation on calls; `None` for an agent that ends them.
    cancelled_calls: Option<CancelledCalls>,
    /// The calls that have not ended, of an agent that does not end them when they are cancelled.
    open_calls: BTreeSet<String>,
    /// The effect of the cancellation of such a call, for which the process has to end.
    spent: Option<CancelledCalls>,
    /// The number of prompts so far.
    prompts: u64,
    /// Whether the agent answered the last prompt with an error.
    is_refused: bool,
}

impl ForeignHost {
    pub(crate) fn new(setup: ForeignSetup, events: Events) -> Self {
        let is_copilot = is_program(&setup.agent.program, "copilot");
        let usage = UsageMeter::new(is_copilot);
        let cancelled_calls = CancelledCalls::of(&setup.agent.program);
        Self {
            setup: Rc::new(setup),
            events,
            unseen: Rc::default(),
            running: None,
            process: 0,
            started: Rc::default(),
            start: None,
            next_place: NextPlace::default(),
            rest: None,
            silence: Silence::new(),
            waiting_prompt: None,
            is_restart: false,
            waits: Vec::new(),
            session: None,
            asks: BTreeMap::new(),
            last_ask: 0,
            restarts: Restarts::default(),
            is_briefed: false,
            tools: None,
            usage,
            cancelled_calls,
            open_calls: BTreeSet::new(),
            spent: None,
            prompts: 0,
            is_refused: false,
        }
    }

    /// Returns a function that notes each entry that the agent has not seen.
    pub(crate) fn observer(&self) -> Observer {
        let unseen = Rc::clone(&self.unseen);
        Box::new(move |entry| unseen.note(entry))
    }

    /// Tells the agent again what it was asked in the turn that was cut off.
    pub(crate) fn repeat(&self, asked: &str) {
        self.unseen.note(&Entry::User { content: asked_again(asked) });
    }

    /// Sets the session of an earlier process, which the next one continues.
    pub(crate) fn know_session(&mut self, session: Option<ForeignSession>) {
        self.session = session.filter(|session| session.agent == self.setup.agent.program.name);
    }

    /// Starts the server of the team tools. Without it the agent has none of them.
    pub(crate) async fn serve_tools(&mut self) {
        let (tools, unseen) = (Rc::clone(&self.setup.tools), Rc::clone(&self.unseen));
        let served =
            TeamTools::start(tools, unseen, self.events.clone(), &self.setup.agent.folder).await;
        match served {
            Ok(served) => self.tools = Some(served),
            Err(why) => tracing::error!(%why, "the agent has no tools of the team"),
        }
    }

    /// Whether a call is one of a tool of the team, by the name that agents give it.
    pub(crate) fn is_own_tool(&self, name: Option<&str>) -> bool {
        let (Some(tools), Some(name)) = (&self.tools, name) else { return false };
        tools.has(name)
    }

    /// Returns the event for the turn after the agent has got entries with the result of a call.
    pub(crate) fn handed_over(&self) -> Option<ForeignEvent> {
        self.unseen.is_empty().then_some(ForeignEvent::HandedOver)
    }

    /// Takes a place for the next start, if one is free. Without it the first prompt starts the agent.
    pub(crate) async fn find_place(&mut self) -> bool {
        match free_place(&self.setup.places).await {
            Ok(place) => self.next_place.found = place,
            Err(why) => tracing::warn!(%why, "the places of agents cannot be read"),
        }
        self.next_place.found.is_some()
    }

    /// Starts the agent after a pause, once it has a place; its end is sent as [`FromAgent::Started`].
    pub(crate) fn start(&mut self, pause: Duration) {
        self.process += 1;
        let (process, events) = (self.process, self.events.clone());
        let is_lost = self.spent.take() == Some(CancelledCalls::EndTheSession);
        let known = self.session.as_ref().filter(|_| !is_lost);
        let known = known.map(|session| session.session_id.clone());
        let tools = self.tools.as_ref().map(TeamTools::access);
        let (setup, started) = (Rc::clone(&self.setup), Rc::clone(&self.started));
        let place = self.next_place.found.take();
        self.start = Some(spawn_local(async move {
            tokio::time::sleep(pause).await;
            let sink = events.clone();
            let send = move |incoming| {
                let _ended = sink.send(Event::Foreign(process, FromAgent::Incoming(incoming)));
            };
            let on_wait = || drop(events.send(Event::Foreign(process, FromAgent::Queued)));
            let place = match place {
                Some(place) => Ok(place),
                None => wait_for_place(&setup.places, on_wait).await,
            };
            let result = match place {
                Ok(place) => setup.start(place, known, tools, send).await,
                Err(why) => Err(why.to_string()),
            };
            *started.borrow_mut() = Some(result);
            let _ended = events.send(Event::Foreign(process, FromAgent::Started));
        }));
    }

    /// Returns what the member does from now on, if this event changes it: it waits for a place, or has one.
    pub(crate) fn doing(&mut self, process: u64, from: &FromAgent) -> Option<(Status, Activity)> {
        if process != self.process {
            return None;
        }
        match from {
            FromAgent::Queued => {
                self.next_place.is_awaited = true;
                let most = self.setup.places.most();
                let why = format!("{most} of {most} agents of other vendors run");
                Some((Status::Waiting, Activity::Queued(why)))
            }
            FromAgent::Started => std::mem::take(&mut self.next_place.is_awaited)
                .then_some((Status::Working, Activity::Model)),
            FromAgent::Incoming(_)
            | FromAgent::Prompted(_)
            | FromAgent::CancelOverdue
            | FromAgent::Steered(..)
            | FromAgent::SleepDue(..) => None,
        }
    }

    /// Returns the time since the last sign of an agent that has a prompt, once that is too long.
    pub(crate) fn silence(&mut self) -> Option<ForeignEvent> {
        let is_prompted = self.running.is_some() && !self.waits.is_empty();
        let limit = self.setup.hung_after.filter(|_| is_prompted);
        self.silence.check(limit).map(ForeignEvent::Silent)
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
        self.silence.note_sign();
        match from {
            FromAgent::Started => self.on_started(memory),
            FromAgent::Incoming(Incoming::Update(params, _room)) => (self.update(&params), None),
            FromAgent::Incoming(Incoming::Permission(id, params, _room)) => {
                (self.permission(id, &params), None)
            }
            FromAgent::Incoming(Incoming::Closed(why)) => (self.lost(why), None),
            FromAgent::Incoming(Incoming::Drain(id)) => (self.drain(&id), None),
            FromAgent::Steered(entries, answer) => (self.steered(entries, &answer), None),
            FromAgent::SleepDue(prompts, giving) => {
                self.sleep(prompts, giving);
                (None, None)
            }
            FromAgent::Queued => (None, None),
            FromAgent::Prompted(ended) => (self.prompted(ended), None),
            FromAgent::CancelOverdue => (Some(ForeignEvent::CancelOverdue), None),
        }
    }

    /// Returns the cost that the agent has reported since the last call of this.
    pub(crate) fn take_cost(&mut self) -> Option<Money> {
        self.usage.take_cost()
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
                let waiting = self.waiting_prompt.take();
                let is_awaited = is_restart || waiting.is_some();
                let waiting = waiting.map(|content| Entry::User { content });
                self.unseen.put_back(waiting.into_iter().collect());
                return (is_awaited.then_some(ForeignEvent::Lost(why)), None);
            }
        };
        let RunningAgent { info, session, .. } = &running;
        let told = ForeignSession {
            agent: self.setup.agent.program.name.clone(),
            session_id: session.id.clone(),
            version: info.version.clone(),
        };
        let is_new = (self.session.as_ref() != Some(&told)).then(|| told.clone());
        let mut before = Vec::new();
        if !session.has_history {
            self.usage.begin_session();
            self.is_briefed = false;
            before.extend(past_of(memory).filter(|_| self.session.is_some()));
        } else if is_restart {
            // The session may lack the prompt that the process was killed with.
            before.extend(memory.asked_in_turn().map(|asked| asked_again(&asked)));
        }
        if !self.is_briefed && !info.has(Capability::SystemPrompt) {
            before.insert(0, format!("[team: {}]", self.setup.agent.instructions));
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

    fn update(&mut self, params: &Value) -> Option<ForeignEvent> {
        let running = self.running.as_ref()?;
        let update = Update::read(params, &running.session.id)?;
        let update = if is_program(&self.setup.agent.program, "copilot") {
            update.of_copilot()
        } else {
            update
        };
        if let Update::Text { usage: Some(usage), .. } = &update {
            self.usage.note_call(usage);
        }
        if let Update::Cost(cost) = &update {
            self.usage.note_cost(*cost);
        }
        if let Update::Tool(told) = &update {
            self.follow_call(told);
        }
        Some(ForeignEvent::Update(update))
    }

    fn permission(&mut self, id: RequestId, params: &Value) -> Option<ForeignEvent> {
        let running = self.running.as_ref()?;
        let request = PermissionRequest::read(params, &running.session.id);
        let Some(request) = request.filter(|_| self.asks.len() < MAX_ASKS) else {
            answer(&running.connection, &id, &PermissionAnswer::Cancelled);
            return None;
        };
        hit("acp.asked");
        self.last_ask += 1;
        let number = AskNumber(self.last_ask);
        let call = Box::new(request.call.clone());
        self.follow_call(&call);
        self.asks.insert(number, (id, request));
        Some(ForeignEvent::Asked(number, call))
    }

    fn follow_call(&mut self, told: &ToolUpdate) {
        if self.cancelled_calls.is_none() {
            return;
        }
        if matches!(told.progress, Some(ToolStatus::Completed | ToolStatus::Failed)) {
            self.open_calls.remove(&told.id);
        } else if self.open_calls.len() < MAX_ASKS {
            self.open_calls.insert(told.id.clone());
        }
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
        let was_refused = std::mem::replace(&mut self.is_refused, ended.is_err());
        match ended {
            Ok(end) => {
                let usage = self.usage.end_prompt(&end.answer);
                self.open_calls.clear();
                if self.spent.is_some() {
                    self.drop_process();
                }
                if self.spent == Some(CancelledCalls::EndTheSession) {
                    let why = "its session ended with a cancelled call";
                    return Some(ForeignEvent::Lost(why.into()));
                }
                Some(ForeignEvent::Ended(end, usage))
            }
            Err(CallError::Answered(why)) => {
                // The adapter of an agent that has died may go on, without a session, and so may a command of that agent.
                let resumes =
                    self.running.as_ref().is_some_and(|it| it.info.has(Capability::Resume));
                if resumes || was_refused || self.spent.is_some() {
                    self.drop_process();
                }
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
                let text = text_of(&self.unseen.take());
                let text = if text.is_empty() { "[team: go on]".into() } else { text };
                self.prompts += 1;
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
            ForeignAction::Steer => {
                self.steer();
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
        hit("acp.sent");
        self.silence.note_sign();
        let (process, events) = (self.process, self.events.clone());
        self.waits.push(spawn_local(async move {
            let ended = FromAgent::Prompted(prompt.await);
            let _ended = events.send(Event::Foreign(process, ended));
        }));
    }

    /// Gives the agent what it has not seen, if it takes that within a prompt. The adapter of Claude Code interrupts its model
    /// for that, so it gets the mail of colleagues with its next prompt.
    fn steer(&mut self) {
        let Some(running) = &self.running else { return };
        let is_welcome = !self.setup.agent.is_claude() || self.unseen.is_urgent();
        if !running.info.has(Capability::Steering) || !is_welcome || self.unseen.is_empty() {
            return;
        }
        let entries = self.unseen.take();
        let steered = running.session.steer(&running.connection, &text_of(&entries));
        let (process, events) = (self.process, self.events.clone());
        spawn_local(async move {
            let answer = steered.await;
            let _ended = events.send(Event::Foreign(process, FromAgent::Steered(entries, answer)));
        });
    }

    fn steered(
        &self,
        entries: Vec<Entry>,
        answer: &Result<bool, CallError>,
    ) -> Option<ForeignEvent> {
        if *answer == Ok(true) {
            return self.handed_over();
        }
        let why = answer.as_ref().err().map(ToString::to_string);
        tracing::info!(why, "the agent does not take mail now");
        self.unseen.put_back(entries);
        None
    }

    fn drain(&self, id: &RequestId) -> Option<ForeignEvent> {
        let running = self.running.as_ref()?;
        let entries = self.unseen.take();
        let text = (!entries.is_empty()).then(|| text_of(&entries));
        answer_drain(&running.connection, id, text.as_deref());
        self.handed_over()
    }

    /// Ends the process after the time of the settings, or when another member wants its place, unless there is another
    /// prompt. The next prompt starts it again.
    pub(crate) fn rest(&mut self) {
        let (setup, process, prompts) = (Rc::clone(&self.setup), self.process, self.prompts);
        let events = self.events.clone();
        let rest = spawn_local(async move {
            let giving = idle_end(&setup.places, setup.sleep_after).await;
            let _ended = events.send(Event::Foreign(process, FromAgent::SleepDue(prompts, giving)));
        });
        if let Some(before) = self.rest.replace(rest) {
            before.abort();
        }
    }

    fn sleep(&mut self, prompts: u64, giving: Option<GivingAway>) {
        if prompts != self.prompts || !self.waits.is_empty() {
            return;
        }
        if let Some(running) = self.running.take() {
            tracing::info!("the idle agent is ended until there is work");
            // Its last messages have no effect.
            self.process += 1;
            spawn_local(async move {
                running.end().await;
                if giving.is_some() {
                    tokio::time::sleep(BETWEEN_GIVING).await;
                }
            });
        }
    }

    fn cancel(&mut self) {
        if !self.open_calls.is_empty() {
            self.spent = self.cancelled_calls;
        }
        if let Some(running) = &self.running {
            running.session.cancel(&running.connection);
        }
        let (process, events) = (self.process, self.events.clone());
        self.waits.push(spawn_local(async move {
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
        hit("acp.recorded");
        answer(&running.connection, &id, &given);
        hit("acp.answered");
        self.silence.note_sign();
    }

    /// Starts the agent again, after a pause. Returns the reason if it has ended too often.
    fn restart(&mut self, why: &str) -> Option<String> {
        let pause = match self.restarts.next() {
            Ok(pause) => pause,
            Err(often) => {
                let name = &self.setup.agent.program.name;
                return Some(format!(
                    "acp/{name} ended {often} ({why}); look at its own log, and spawn it again"
                ));
            }
        };
        self.is_restart = true;
        self.start(pause);
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
        if let Some(running) = running {
            running.end().await;
        }
    }
}
