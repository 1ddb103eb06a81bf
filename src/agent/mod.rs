//! One running agent; the lead is an agent too.
//!
//! Everything outside becomes an [`Event`] on one channel; the loop is `receive -> step -> perform`.
//! [`step`] decides and is pure; this file performs.
//!
//! *Invariant:* an agent's state in memory can be rebuilt from its transcript and inbox alone.

mod discretion;
pub(crate) mod event;
pub(crate) mod gate;
pub(crate) mod heart;
pub(crate) mod memory;
pub(crate) mod post;
pub(crate) mod presence;
pub(crate) mod progress;
pub(crate) mod prompt;
mod resume;
pub(crate) mod step;

use crate::bus::{Bus, Outgoing, new_id};
use crate::llm::{Delta, ModelError, Provider, Redactor, Veil};
use crate::os::Clock;
use crate::store::{Drained, Mailbox, Notice};
use crate::tools::team::Desk;
use crate::tools::{Call, Registry};
use crate::wire::AgentName;
use crate::wire::chat::Request;
use crate::wire::message::{Body, IdleReason, Message, Outcome};
use crate::wire::roster::Status;
use crate::wire::transcript::{Entry, Line, Report};
use event::{Action, Ending, Event, Judgement, Stop};
use gate::Gate;
use heart::Heart;
use memory::Memory;
use presence::Presence;
use progress::Progress;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use step::{Identity, Machine};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

/// How long a running tool may go on after the lead's death (RELIABILITY 4).
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a tool may take that is given no time limit, in seconds.
const USUAL_TIME_LIMIT: u64 = 120;

/// Longest answer of a model, in tokens.
const MAX_ANSWER_TOKENS: u32 = 16_384;

/// Everything an agent consists of.
pub(crate) struct Agent {
    /// Who it is.
    pub(crate) me: Identity,
    /// Its mail and transcript.
    pub(crate) mailbox: Arc<Mutex<Mailbox>>,
    /// Its model.
    pub(crate) provider: Rc<dyn Provider>,
    /// Its system prompt.
    pub(crate) system: String,
    /// Its tools.
    pub(crate) tools: Rc<Registry>,
    /// What its calls must pass.
    pub(crate) gate: Gate,
    /// What it shares with its team tools.
    pub(crate) desk: Rc<Desk>,
    /// How it writes to others.
    pub(crate) bus: Arc<Bus>,
    /// Its entry in the roster.
    pub(crate) presence: Presence,
    /// Its signs of life.
    pub(crate) heart: Heart,
    /// What it is for.
    pub(crate) role: String,
    /// What its model is told about this start if it has a past; nothing when it was simply spawned.
    pub(crate) occasion: Option<String>,
    /// Time.
    pub(crate) clock: Rc<dyn Clock>,
    /// What it must not repeat.
    pub(crate) secrets: Rc<Redactor>,
    /// Who watches.
    pub(crate) show: Rc<dyn Fn(&Progress)>,
}

/// What happens to an agent is sent here.
pub(crate) type Events = UnboundedSender<Event>;

/// What is left of an agent after its loop.
pub(crate) struct Finished {
    /// How it ended.
    pub(crate) ending: Ending,
    /// Why its last model call gave no reply.
    pub(crate) model_error: Option<ModelError>,
    /// Its entry in the roster, for the last word.
    pub(crate) presence: Presence,
}

/// Runs an agent until it ends. `ready` is called once, when it can take mail.
pub(crate) async fn run(
    agent: Agent,
    events: Events,
    inbound: UnboundedReceiver<Event>,
    ready: impl FnOnce(),
) -> Finished {
    let (memory, model_error) = (Rc::default(), Rc::default());
    let mut running =
        Running { agent, events, work: None, tool_limit: None, judged: None, memory, model_error };
    let ending = match running.resume().await {
        Ok(turn) => running.live(turn, inbound, ready).await,
        Err(why) => Ending::Broken(why),
    };
    running.cancel();
    if let Err(why) = running.agent.desk.answer_shutdown(true, None).await {
        tracing::warn!(%why, "the shutdown request could not be answered");
    }
    let model_error = running.model_error.take();
    Finished { ending, model_error, presence: running.agent.presence }
}

struct Running {
    agent: Agent,
    events: Events,
    /// The model call or tool call under way.
    work: Option<JoinHandle<()>>,
    /// How long the last tool may take by its own rules, in seconds.
    tool_limit: Option<u64>,
    /// What was found about the call that the machine wants to run.
    judged: Option<Judgement>,
    memory: Rc<RefCell<Memory>>,
    model_error: Rc<RefCell<Option<ModelError>>>,
}

impl Running {
    async fn live(
        &mut self,
        turn: Option<VecDeque<Call>>,
        mut inbound: UnboundedReceiver<Event>,
        ready: impl FnOnce(),
    ) -> Ending {
        let watch = post::watch(Arc::clone(&self.agent.mailbox), self.events.clone());
        let _watch = AbortOnDrop(tokio::task::spawn_local(watch));
        let (mut machine, first) = Machine::start(self.agent.me.clone(), turn);
        if let Some(ending) = self.perform_all(first).await {
            return ending;
        }
        ready();
        loop {
            let event = tokio::select! {
                event = inbound.recv() => event.map(|event| vec![event]),
                () = until(self.agent.gate.due()) => Some(self.expired()),
                () = until(self.agent.presence.due()) => {
                    let written = self.agent.presence.write().await;
                    note_error(written);
                    continue;
                }
                () = until(self.agent.heart.due()) => {
                    self.beat();
                    continue;
                }
            };
            let Some(events) = event else {
                return Ending::Broken("the event channel closed".into());
            };
            self.agent.heart.stir();
            for event in events {
                if let Event::Drained(mail) = &event
                    && let Err(why) = self.notice_new_role(mail).await
                {
                    return Ending::Broken(why);
                }
                let event = discretion::discreet(event, &self.agent.secrets);
                for event in self.heed(event).await {
                    if let Some(ending) = self.advance(&mut machine, event).await {
                        return ending;
                    }
                }
            }
        }
    }

    /// One step, with the judgements it asks for: a call waits for nothing else.
    async fn advance(&mut self, machine: &mut Machine, event: Event) -> Option<Ending> {
        let mut next = Some(event);
        while let Some(event) = next {
            let todo = machine.step(event);
            if let Some(ending) = self.perform_all(todo).await {
                return Some(ending);
            }
            next = self.judged.take().map(Event::Judged);
        }
        None
    }

    async fn perform_all(&mut self, todo: Vec<Action>) -> Option<Ending> {
        for action in todo {
            match self.perform(action).await {
                Ok(None) => {}
                Ok(Some(ending)) => return Some(ending),
                Err(why) => return Some(Ending::Broken(why)),
            }
        }
        None
    }

    async fn perform(&mut self, action: Action) -> Result<Option<Ending>, String> {
        match action {
            Action::Drain => self.drain(),
            Action::MarkTaken => {
                let marked = self.mailbox().mark_taken();
                note_error(marked);
            }
            Action::Record(entry) => self.record(entry)?,
            Action::Sync => self.sync().await?,
            Action::CallModel => self.call_model(),
            Action::Judge(call) => self.judged = Some(self.judge(&call)),
            Action::Ask(question) => {
                let (decider, deadline) = self.agent.gate.terms(self.agent.clock.now());
                let asked = (*question).clone();
                self.record(Entry::Request { question: asked, decider, deadline })?;
                self.sync().await?;
                self.ask(*question).await;
            }
            Action::Withdraw(id) => self.withdraw(&id),
            Action::RunTool(call) => self.run_tool(call),
            Action::Cancel => self.cancel(),
            Action::StartPatience => {
                let events = self.events.clone();
                tokio::task::spawn_local(async move {
                    tokio::time::sleep(PATIENCE).await;
                    let _gone = events.send(Event::PatienceOver);
                });
            }
            Action::Publish(status, activity) => {
                let published = self.agent.presence.publish(status, activity).await;
                note_error(published);
            }
            Action::Count(usage) => self.agent.presence.count(usage),
            Action::EndTurn { outcome, rounds, report } => {
                self.end_turn(outcome, rounds, report).await?;
            }
            Action::TellLead(text) => self.tell_lead(text).await,
            Action::NotifyIdle(reason) => self.notify_idle(reason).await,
            Action::OpenShutdown(stop) => {
                if let Stop::Requested { request_id, by, .. } = stop {
                    self.agent.desk.open_shutdown(request_id, by);
                }
            }
            Action::Show(progress) => (self.agent.show)(&progress),
            Action::Log(text) => tracing::warn!("{text}"),
            Action::Exit(ending) => return Ok(Some(ending)),
        }
        Ok(None)
    }

    /// Says what is done now; nothing when that is waiting for mail.
    fn beat(&mut self) {
        let doing = self.agent.presence.doing();
        // Whoever drains is busy.
        let has_mail = self.agent.mailbox.try_lock().map_or(true, |mailbox| mailbox.has_unread());
        if doing == Status::Idle.word() && !has_mail {
            return self.agent.heart.rest();
        }
        let limit = self.tool_limit.filter(|_| doing.starts_with("tool:"));
        self.agent.heart.beat(&doing, limit);
    }

    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.agent.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&mut self, entry: Entry) -> Result<(), String> {
        self.memory.borrow_mut().push(&entry);
        let line = Line { at: self.agent.clock.now(), entry };
        let appended = self.mailbox().transcript().append(&line);
        appended.map_err(|why| why.to_string())
    }

    async fn sync(&mut self) -> Result<(), String> {
        let mailbox = Arc::clone(&self.agent.mailbox);
        let fsync = self.agent.bus.fsync();
        let sync =
            move || mailbox.lock().unwrap_or_else(PoisonError::into_inner).transcript().sync(fsync);
        match tokio::task::spawn_blocking(sync).await {
            Ok(done) => done.map_err(|why| why.to_string()),
            Err(why) => Err(why.to_string()),
        }
    }

    /// Takes mail in beside the loop; what comes is in the memory before the machine hears of it.
    fn drain(&mut self) {
        let mailbox = Arc::clone(&self.agent.mailbox);
        let (events, memory) = (self.events.clone(), Rc::clone(&self.memory));
        let (bus, me) = (Arc::clone(&self.agent.bus), self.agent.me.name.clone());
        let desk = Rc::clone(&self.agent.desk);
        tokio::task::spawn_local(async move {
            let drained = tokio::task::spawn_blocking(move || {
                mailbox.lock().unwrap_or_else(PoisonError::into_inner).drain()
            });
            let event = match drained.await {
                Err(why) => Event::DrainFailed(why.to_string()),
                Ok(Err(why)) => Event::DrainFailed(why.to_string()),
                Ok(Ok(drained)) => {
                    tell_of_dead_letters(&bus, &me, &drained).await;
                    let mut memory = memory.borrow_mut();
                    let mut messages: Vec<Message> = Vec::with_capacity(drained.mail.len());
                    for mail in drained.mail {
                        let object = mail.object();
                        if !mail.message.body.is_for_program() {
                            desk.take_note(&object);
                        }
                        tracing::info!(
                            id = mail.message.id,
                            from = mail.message.from,
                            kind = mail.message.body.kind(),
                            "mail taken in"
                        );
                        messages.push(mail.message);
                        let (claim, offset, message) = (mail.generation, mail.offset, object);
                        memory.push(&Entry::Mail { claim, offset, message });
                    }
                    Event::Drained(messages)
                }
            };
            let _gone = events.send(event);
        });
    }

    fn call_model(&mut self) {
        let request = Request {
            system: self.agent.system.clone(),
            messages: self.memory.borrow().messages(),
            tools: self.agent.tools.specs(),
            max_tokens: MAX_ANSWER_TOKENS,
        };
        let (provider, events) = (Rc::clone(&self.agent.provider), self.events.clone());
        let (show, model_error) = (Rc::clone(&self.agent.show), Rc::clone(&self.model_error));
        let secrets = Rc::clone(&self.agent.secrets);
        self.work = Some(tokio::task::spawn_local(async move {
            let mut veil = Veil::new(&secrets);
            let show_text = |text: String| {
                if !text.is_empty() {
                    show(&Progress::Text(text));
                }
            };
            let mut sink = |delta| match delta {
                Delta::Text(text) => show_text(veil.push(&text)),
                Delta::Retry { wait, why } => {
                    tracing::warn!(why, ?wait, "the model call is tried again");
                    veil = Veil::new(&secrets);
                    show(&Progress::Retry { wait, why });
                }
            };
            let reply = provider.turn(&request, &mut sink).await;
            show_text(veil.lift());
            if let Err(why) = &reply {
                tracing::error!(%why, "the model call failed");
            }
            *model_error.borrow_mut() = reply.as_ref().err().cloned();
            let _gone = events.send(Event::Replied(reply));
        }));
    }

    fn run_tool(&mut self, call: Call) {
        self.tool_limit = Some(time_limit(&call));
        self.beat();
        let (tools, events) = (Rc::clone(&self.agent.tools), self.events.clone());
        self.work = Some(tokio::task::spawn_local(async move {
            tracing::info!(tool = call.name, id = call.id, "tool started");
            let result = tools.call(&call).await;
            tracing::info!(tool = call.name, id = call.id, ok = result.is_ok(), "tool ended");
            let _gone = events.send(Event::ToolEnded(result));
        }));
    }

    fn cancel(&mut self) {
        if let Some(work) = self.work.take() {
            work.abort();
        }
    }

    async fn end_turn(
        &mut self,
        outcome: Outcome,
        rounds: u32,
        report: Option<String>,
    ) -> Result<(), String> {
        let report = report.map(|text| Report {
            id: new_id(&self.agent.me.name),
            text: self.agent.bus.cut(&text),
        });
        self.record(Entry::TurnEnd { outcome, rounds, report: report.clone() })?;
        self.sync().await?;
        self.agent.presence.count_turn();
        tracing::info!(?outcome, rounds, "turn ended");
        if let Some(report) = report {
            self.send_report(outcome, report).await;
        }
        Ok(())
    }

    async fn send_report(&self, outcome: Outcome, report: Report) {
        let (bus, me) = (Arc::clone(&self.agent.bus), self.agent.me.name.clone());
        let body = Body::Result { outcome };
        let Report { id, text } = report;
        let outgoing = Outgoing { id: Some(id), ..Outgoing::of(body, text) };
        let send = move || bus.send(&me, "lead", outgoing);
        self.note_sent(tokio::task::spawn_blocking(send).await.map_err(|why| why.to_string()));
    }

    async fn tell_lead(&self, text: String) {
        let bus = Arc::clone(&self.agent.bus);
        let id = new_id(&AgentName::system());
        let tell = move || bus.notify_lead(Body::text(), text, id);
        self.note_sent(tokio::task::spawn_blocking(tell).await.map_err(|why| why.to_string()));
    }

    async fn notify_idle(&self, reason: IdleReason) {
        if self.agent.me.name.is_lead() {
            return;
        }
        let (bus, me) = (Arc::clone(&self.agent.bus), self.agent.me.name.clone());
        let body = Body::IdleNotification { reason };
        let send = move || bus.send(&me, "lead", Outgoing::of(body, ""));
        self.note_sent(tokio::task::spawn_blocking(send).await.map_err(|why| why.to_string()));
    }

    fn note_sent<T, E: std::fmt::Display>(&self, sent: Result<Result<T, E>, String>) {
        let why = match sent {
            Ok(Ok(_)) => return,
            Ok(Err(why)) => why.to_string(),
            Err(why) => why,
        };
        tracing::error!(why, "a report to the lead could not be sent");
        (self.agent.show)(&Progress::Note(format!("the report could not be sent: {why}")));
    }
}

/// What a view of the team does not show is no reason to stop working.
fn note_error<T, E: std::fmt::Display>(done: Result<T, E>) {
    if let Err(why) = done {
        tracing::error!(%why, "the team folder could not be written");
    }
}

/// Mail that was not delivered disappears from nobody's sight: it is logged, and the lead gets one
/// message for all of a drain.
async fn tell_of_dead_letters(bus: &Arc<Bus>, me: &AgentName, drained: &Drained) {
    let mut told: Option<(u32, &str, String)> = None;
    for notice in &drained.notices {
        match notice {
            Notice::Dead { reason, generation, offset } => {
                tracing::error!(reason, generation, offset, "a line became a dead letter");
                let first = (0, reason.as_str(), format!("system:dead:{me}:{generation}:{offset}"));
                told.get_or_insert(first).0 += 1;
            }
            Notice::Repeated { id, from } => {
                tracing::info!(id, from, "a message came again and was dropped");
            }
        }
    }
    let Some((count, reason, id)) = told else { return };
    let content = format!(
        "{count} line(s) in the inbox of {me} could not be delivered (the first: {reason}); they are \
         kept as dead letters of {me}"
    );
    let bus = Arc::clone(bus);
    let tell = move || bus.notify_lead(Body::text(), content, id);
    match tokio::task::spawn_blocking(tell).await {
        Ok(Ok(_)) => {}
        failed => tracing::error!(?failed, "the lead could not be told of dead letters"),
    }
}

/// Waits until a point in time; for ever without one.
async fn until(due: Option<std::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// How long a call may take by its own rules, in seconds.
fn time_limit(call: &Call) -> u64 {
    let given = call.input.get("timeout").and_then(serde_json::Value::as_u64);
    given.unwrap_or(USUAL_TIME_LIMIT)
}

/// Ends a task with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
