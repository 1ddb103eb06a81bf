//! One running agent; the lead is an agent too.
//!
//! Everything outside becomes an [`Event`] on one channel; the loop is `receive -> step -> perform`.
//! [`step`] decides and is pure; this file performs.
//!
//! *Invariant:* an agent's state in memory can be rebuilt from its transcript and inbox alone.

pub(crate) mod approval;
pub(crate) mod budget;
pub(crate) mod compact;
mod disk_full_retry;
pub(crate) mod event;
pub(crate) mod heartbeat;
pub(crate) mod machine;
pub(crate) mod mail_watcher;
pub(crate) mod memory;
pub(crate) mod progress;
pub(crate) mod prompt;
mod redaction;
mod resume;
pub(crate) mod status;
mod task_claimer;

use crate::bus::{Bus, Outgoing, new_id};
use crate::llm::{Delta, ModelError, Provider, Redactor, StreamRedactor};
use crate::os::failpoint::hit;
use crate::os::{Clock, memory as machine_memory};
use crate::store::{Drained, MailNotice, Mailbox};
use crate::tasks::Tasks;
use crate::tools::team::TeamContext;
use crate::tools::{Call, Registry};
use crate::wire::AgentName;
use crate::wire::chat::Request;
use crate::wire::hook::HookEvent;
use crate::wire::message::{Body, IdleReason, Message, Outcome};
use crate::wire::roster::{Status, UsageCount};
use crate::wire::transcript::{Entry, Line, Report};
use approval::ApprovalGate;
use budget::AgentBudget;
use compact::CompactionReason;
use event::{Action, CallVerdict, Ending, Event, StopCause};
use heartbeat::HeartbeatWriter;
use machine::{Identity, Machine};
use memory::Memory;
use progress::Progress;
use status::{Doing, StatusReporter};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use task_claimer::TaskClaimer;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

/// How long a running tool may go on after the lead's death (RELIABILITY 4).
const PATIENCE: Duration = crate::wire::limits::LEAD_LOSS_GRACE;

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
    /// Tokens that fit its model, where that is known.
    pub(crate) context_tokens: Option<u64>,
    /// Its system prompt.
    pub(crate) system: String,
    /// Its tools.
    pub(crate) tools: Rc<Registry>,
    /// What its calls must pass.
    pub(crate) approval: ApprovalGate,
    /// What it shares with its team tools.
    pub(crate) team_context: Rc<TeamContext>,
    /// How it writes to others.
    pub(crate) bus: Arc<Bus>,
    /// The team's task list.
    pub(crate) tasks: Arc<Tasks>,
    /// Its entry in the roster.
    pub(crate) reporter: StatusReporter,
    /// What it may use.
    pub(crate) budget: AgentBudget,
    /// Its signs of life.
    pub(crate) heartbeat: HeartbeatWriter,
    /// What it is for.
    pub(crate) role: String,
    /// What its model is told about this start if it has a past; nothing when it was simply spawned.
    pub(crate) start_reason: Option<String>,
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
    pub(crate) reporter: StatusReporter,
}

/// Runs an agent until it ends. `ready` is called once, when it can take mail.
pub(crate) async fn run(
    agent: Agent,
    events: Events,
    inbound: UnboundedReceiver<Event>,
    ready: impl FnOnce(),
) -> Finished {
    let (memory, model_error) = (Rc::default(), Rc::default());
    let task_claimer =
        TaskClaimer::new(Arc::clone(&agent.tasks), agent.me.name.clone(), events.clone());
    let (put_off, tool_limit, judged) = (VecDeque::new(), None, None);
    let mut running = Running {
        before_turn: agent.reporter.used(),
        is_mark_due: false,
        agent,
        events,
        inbound,
        put_off,
        work: None,
        tool_limit,
        judged,
        task_claimer,
        memory,
        model_error,
    };
    let ending = match running.resume().await {
        Ok(turn) => running.live(turn, ready).await,
        Err(ending) => ending,
    };
    running.cancel();
    hit("leave.answering");
    if let Err(why) = running.agent.team_context.answer_shutdown(true, None).await {
        tracing::warn!(%why, "the shutdown request could not be answered");
    }
    hit("leave.answered");
    let model_error = running.model_error.take();
    Finished { ending, model_error, reporter: running.agent.reporter }
}

struct Running {
    agent: Agent,
    events: Events,
    inbound: UnboundedReceiver<Event>,
    /// Events that came while a full disk was waited out.
    put_off: VecDeque<Event>,
    /// The model call or tool call under way.
    work: Option<JoinHandle<()>>,
    /// How long the last tool may take by its own rules, in seconds.
    tool_limit: Option<u64>,
    /// What was found about the call that the machine wants to run.
    judged: Option<CallVerdict>,
    task_claimer: TaskClaimer,
    /// What had been used when the last turn ended.
    before_turn: UsageCount,
    /// Mail was acted on that still looks unread.
    is_mark_due: bool,
    memory: Rc<RefCell<Memory>>,
    model_error: Rc<RefCell<Option<ModelError>>>,
}

impl Running {
    async fn live(&mut self, turn: Option<VecDeque<Call>>, ready: impl FnOnce()) -> Ending {
        let watch = mail_watcher::watch(Arc::clone(&self.agent.mailbox), self.events.clone());
        let _watch = AbortOnDrop(tokio::task::spawn_local(watch));
        let (mut machine, first) = Machine::start(self.agent.me.clone(), turn);
        if let Err(ending) = self.perform_all(first).await {
            return ending;
        }
        ready();
        loop {
            let event = tokio::select! {
                event = next(&mut self.put_off, &mut self.inbound) => event.map(|event| vec![event]),
                () = until(self.agent.approval.due()) => Some(self.expired()),
                () = until(self.agent.reporter.due()) => {
                    let written = self.agent.reporter.write().await;
                    note_error(written);
                    self.mark_what_is_due();
                    continue;
                }
                () = until(self.agent.heartbeat.due()) => {
                    self.beat();
                    continue;
                }
            };
            let Some(events) = event else {
                return Ending::Broken("the event channel closed".into());
            };
            self.agent.heartbeat.stir();
            for event in events {
                if let Event::Drained(mail) = &event
                    && let Err(ending) = self.notice_new_role(mail).await
                {
                    return ending;
                }
                let event = redaction::redact_event(event, &self.agent.secrets);
                for event in self.filter(event).await {
                    if let Err(ending) = self.advance(&mut machine, event).await {
                        return ending;
                    }
                }
            }
        }
    }

    /// One step, with the judgements it asks for: a call waits for nothing else.
    async fn advance(&mut self, machine: &mut Machine, event: Event) -> Result<(), Ending> {
        let mut next = Some(event);
        while let Some(event) = next {
            self.perform_all(machine.step(event)).await?;
            next = self.judged.take().map(Event::Judged);
        }
        Ok(())
    }

    async fn perform_all(&mut self, todo: Vec<Action>) -> Result<(), Ending> {
        for action in todo {
            self.perform(action).await?;
        }
        Ok(())
    }

    async fn perform(&mut self, action: Action) -> Result<(), Ending> {
        match action {
            Action::Drain => {
                // What it brings is marked with what it was due for.
                self.is_mark_due = false;
                self.drain();
            }
            Action::MarkTaken => self.mark_taken(),
            Action::Record(entry) => self.record(entry).await?,
            Action::Sync => self.sync().await?,
            Action::CallModel => self.ask_model().await?,
            Action::MakeRoom => self.make_room(CompactionReason::Refused),
            Action::Judge(call) => self.judged = Some(self.judge(&call)),
            Action::Ask(question) => self.ask(*question).await?,
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
                let published = self.agent.reporter.publish(status, activity).await;
                note_error(published);
                self.mark_what_is_due();
            }
            Action::Count(usage) => self.count(usage),
            Action::EndTurn { outcome, rounds, report } => {
                self.end_turn(outcome, rounds, report).await?;
            }
            Action::TellLead(text) => self.tell_lead(text).await,
            Action::AskIdleHook(refused) => self.ask_idle_hook(refused),
            Action::FindTask => self.task_claimer.seek(),
            Action::TakeTask => self.task_claimer.take(),
            Action::NotifyIdle(reason) => self.notify_idle(reason).await,
            Action::OpenShutdown(stop) => {
                if let StopCause::Requested { request_id, by, .. } = stop {
                    self.agent.team_context.open_shutdown(request_id, by);
                    hit("leave.told");
                }
            }
            Action::SayRefused(why) => note_error(self.agent.reporter.refuse_to_end(why).await),
            Action::Show(progress) => (self.agent.show)(&progress),
            Action::Log(text) => tracing::warn!("{text}"),
            Action::Exit(ending) => return Err(ending),
        }
        Ok(())
    }

    /// Says what is done now; nothing when that is waiting for mail.
    fn beat(&mut self) {
        let doing = self.agent.reporter.doing();
        // Whoever drains is busy.
        let has_mail = self.agent.mailbox.try_lock().map_or(true, |mailbox| mailbox.has_unread());
        if doing == Doing::Status(Status::Idle) && !has_mail {
            return self.agent.heartbeat.rest();
        }
        let limit = self.tool_limit.filter(|_| matches!(doing, Doing::Tool(_)));
        self.agent.heartbeat.beat(&doing.to_string(), limit);
    }

    /// Says that mail is no longer unread; later, where the roster cannot be told yet that it is worked on.
    fn mark_taken(&mut self) {
        self.is_mark_due = !self.agent.reporter.is_told();
        if !self.is_mark_due {
            let marked = self.mailbox().mark_taken();
            note_error(marked);
        }
    }

    fn mark_what_is_due(&mut self) {
        if self.is_mark_due {
            self.mark_taken();
        }
    }

    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.agent.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn record(&mut self, entry: Entry) -> Result<(), Ending> {
        let (before, after) = failpoints(&entry);
        self.memory.borrow_mut().push(&entry);
        let line = Line { at: self.agent.clock.now(), entry };
        before();
        self.append_with_retry(|transcript| transcript.append(&line)).await?;
        after();
        Ok(())
    }

    async fn sync(&mut self) -> Result<(), Ending> {
        let (mailbox, fsync) = (&self.agent.mailbox, self.agent.bus.fsync());
        let synced = crate::store::asynchronous::sync_transcript(mailbox, fsync).await;
        synced.map_err(|why| Ending::Broken(why.to_string()))
    }

    /// Takes mail in beside the loop; what comes is in the memory before the machine hears of it.
    fn drain(&mut self) {
        let mailbox = Arc::clone(&self.agent.mailbox);
        let (events, memory) = (self.events.clone(), Rc::clone(&self.memory));
        let (bus, me) = (Arc::clone(&self.agent.bus), self.agent.me.name.clone());
        let (team_context, show) =
            (Rc::clone(&self.agent.team_context), Rc::clone(&self.agent.show));
        tokio::task::spawn_local(async move {
            let event = match disk_full_retry::drain(mailbox, show, &events).await {
                Err(event) => event,
                Ok(drained) => {
                    tell_of_dead_letters(&bus, &me, &drained).await;
                    let mut memory = memory.borrow_mut();
                    let mut messages: Vec<Message> = Vec::with_capacity(drained.mail.len());
                    for mail in drained.mail {
                        let object = mail.object();
                        if !mail.message.body.is_for_program() {
                            team_context.take_note(&object);
                        }
                        tracing::info!(
                            id = mail.message.id,
                            from = mail.message.from,
                            kind = mail.message.body.kind(),
                            "mail taken in"
                        );
                        messages.push(*mail.message);
                        let (claim, offset, message) = (mail.batch_id, mail.offset, object);
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
            tools: self.agent.tools.definitions(),
            max_tokens: MAX_ANSWER_TOKENS,
        };
        let (provider, events) = (Rc::clone(&self.agent.provider), self.events.clone());
        let (show, model_error) = (Rc::clone(&self.agent.show), Rc::clone(&self.model_error));
        let secrets = Rc::clone(&self.agent.secrets);
        self.work = Some(tokio::task::spawn_local(async move {
            let mut veil = StreamRedactor::new(&secrets);
            let show_text = |text: String| {
                if !text.is_empty() {
                    show(&Progress::Text(text));
                }
            };
            let mut sink = |delta| match delta {
                Delta::Text(text) => show_text(veil.push(&text)),
                Delta::Retry { wait, why } => {
                    tracing::warn!(why, ?wait, "the model call is tried again");
                    veil = StreamRedactor::new(&secrets);
                    show(&Progress::Retry { wait, why });
                }
            };
            let reply = provider.turn(&request, &mut sink).await;
            show_text(veil.finish());
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
            hit("tool.started");
            let result = tools.call(&call).await;
            hit("tool.ran");
            tracing::info!(tool = call.name, id = call.id, ok = result.is_ok(), "tool ended");
            let _gone = events.send(Event::ToolEnded(result));
        }));
    }

    /// Asks the hooks whether this agent may rest.
    fn ask_idle_hook(&mut self, refused: u32) {
        let (team_context, events) = (Rc::clone(&self.agent.team_context), self.events.clone());
        let fields = serde_json::json!({ "role": self.agent.role, "refused": refused });
        self.work = Some(tokio::task::spawn_local(async move {
            let asked = team_context.hooks().ask(HookEvent::TeammateIdle, fields).await;
            let _gone = events.send(Event::IdleHookAnswered(asked.map_err(|why| why.to_string())));
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
    ) -> Result<(), Ending> {
        let report = report.map(|text| Report {
            id: new_id(&self.agent.me.name),
            text: self.agent.bus.cut(&text),
        });
        self.record(Entry::TurnEnd { outcome, rounds, report: report.clone() }).await?;
        self.sync().await?;
        hit("turn.ended");
        self.agent.reporter.count_turn();
        self.share_count();
        let used = self.agent.reporter.used();
        let turn = used.since(&std::mem::replace(&mut self.before_turn, used));
        let (input, output) = (turn.input_tokens, turn.output_tokens);
        let (cached, cost) = (turn.cache_read_tokens, turn.cost.map(f64::from));
        tracing::info!(?outcome, rounds, input, output, cached, cost, "turn ended");
        if let Some(report) = report {
            self.send_report(outcome, report).await;
            hit("turn.reported");
        }
        Ok(())
    }

    async fn send_report(&mut self, outcome: Outcome, report: Report) {
        let body = Body::Result { outcome };
        let Report { id, text } = report;
        let outgoing = Outgoing { id: Some(id), ..Outgoing::of(body, text) };
        self.report(outgoing).await;
    }

    async fn report(&mut self, outgoing: Outgoing) {
        let me = self.agent.me.name.clone();
        self.send_with_retry(move |bus| bus.send(&me, "lead", outgoing.clone())).await;
    }

    async fn tell_lead(&mut self, text: String) {
        let id = new_id(&AgentName::system());
        self.send_with_retry(move |bus| bus.notify_lead(Body::text(), text.clone(), id.clone()))
            .await;
    }

    async fn notify_idle(&mut self, reason: IdleReason) {
        if self.agent.me.name.is_lead() {
            return;
        }
        self.report(Outgoing::of(Body::IdleNotification { reason }, "")).await;
        machine_memory::give_back();
        hit("turn.idle");
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
            MailNotice::Dead { reason, batch_id, offset } => {
                tracing::error!(reason, batch_id, offset, "a line became a dead letter");
                let first = (0, reason.as_str(), format!("system:dead:{me}:{batch_id}:{offset}"));
                told.get_or_insert(first).0 += 1;
            }
            MailNotice::Repeated { id, from } => {
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

/// The places where a process can be made to die before and after an entry is written.
fn failpoints(entry: &Entry) -> (fn(), fn()) {
    match entry {
        Entry::Assistant { .. } => (|| hit("turn.replied"), || hit("turn.recorded")),
        Entry::ToolStart { .. } => (|| hit("tool.asked"), || hit("tool.intended")),
        Entry::ToolResult { .. } => (|| {}, || hit("tool.answered")),
        Entry::TurnEnd { .. } => (|| hit("turn.ending"), || {}),
        Entry::Session { .. }
        | Entry::User { .. }
        | Entry::Mail { .. }
        | Entry::Request { .. }
        | Entry::Decision(_)
        | Entry::Note { .. }
        | Entry::Compacted { .. }
        | Entry::Unknown => (|| {}, || {}),
    }
}

/// What was put off comes first.
async fn next(
    put_off: &mut VecDeque<Event>,
    inbound: &mut UnboundedReceiver<Event>,
) -> Option<Event> {
    match put_off.pop_front() {
        Some(event) => Some(event),
        None => inbound.recv().await,
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
