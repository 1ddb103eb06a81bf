//! The event loop of a member: it receives an event, performs a step of the machine, and performs the actions.
//!
//! Each part owns its state; the event loop passes one part to another where they must work together.

mod foreign;
mod models;
mod resume;
mod subagents;
mod turn_end;

pub(crate) use resume::without_older_mail;

use super::approval::{ApprovalGate, Approvals};
use super::budget::{AgentBudget, BudgetMonitor};
use super::conversation::{Conversation, HostAction, Journal, ModelCaller, TurnAction, TurnEffect};
use super::event::{Action, Ending, Event, Events, MachineEvent, StopCause};
use super::foreign::host::ForeignHost;
use super::foreign::process::ForeignSetup;
use super::heartbeat::HeartbeatWriter;
use super::identity::{Identity, MemberContext};
use super::idle_check::{IdleCheck, IdleQuestion};
use super::machine::Machine;
use super::mail_ingest::MailIngest;
use super::mail_watcher;
use super::member_host::{MemberHost, Wake};
use super::model_chain::{AgentModels, MemberModels, ModelChain};
use super::progress::Progress;
use super::reminders::send_reminders;
use super::role::MemberRole;
use super::situation::situation;
use super::status::StatusReporter;
use super::subagent::{SubagentWatch, Subagents};
use super::task_claimer::{AbortOnDrop, TaskClaimer};
use super::unsealed_mail::UnsealedMail;
use super::urgent_mail::UrgentMailSearch;
use crate::acp;
use crate::bus::Bus;
use crate::llm::{ModelError, Redactor};
use crate::os::Clock;
use crate::os::failpoint::hit;
use crate::os::spawn::spawn_local;
use crate::protocol::budget::{BudgetLimit, BudgetVerdict};
use crate::store::Drained;
use crate::store::asynchronous::SharedMailbox;
use crate::tasks::Tasks;
use crate::tools::rules::denied_by;
use crate::tools::team_context::TeamContext;
use crate::tools::{Call, Registry};
use crate::wire::activity::Activity;
use crate::wire::chat::Thinking;
use crate::wire::limits::{AGENT_LEAD_LOSS_GRACE, LEAD_LOSS_EXIT, LEAD_LOSS_GRACE};
use crate::wire::permission::{QuestionKind, RuleLists};
use crate::wire::roster::Status;
use crate::wire::transcript::Entry;
use crate::work::save::Saver;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

// An agent that does not end by itself is gone in time as well.
const _: () = assert!(
    AGENT_LEAD_LOSS_GRACE.saturating_add(acp::END_WITHIN).as_millis() <= LEAD_LOSS_EXIT.as_millis()
);

pub(crate) struct Agent {
    pub(crate) me: Identity,
    pub(crate) mailbox: SharedMailbox,
    pub(crate) models: AgentModels,
    /// The time for which its own model rests after its first failure.
    pub(crate) fallback_pause: Duration,
    pub(crate) max_answer_tokens: u32,
    pub(crate) thinking: Thinking,
    pub(crate) system: String,
    pub(crate) tools: Rc<Registry>,
    /// Its subagents; `None` if it can have none.
    pub(crate) subagents: Option<Rc<Subagents>>,
    /// The foreign agent that does its work; `None` for a model.
    pub(crate) foreign: Option<Box<ForeignSetup>>,
    /// The clone in which it works; `None` for the workspace.
    pub(crate) work: Option<Arc<Saver>>,
    pub(crate) approval: ApprovalGate,
    /// The state that the event loop shares with the team tools.
    pub(crate) team_context: Rc<TeamContext>,
    pub(crate) bus: Arc<Bus>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) reporter: StatusReporter,
    pub(crate) budget: AgentBudget,
    pub(crate) heartbeat: HeartbeatWriter,
    pub(crate) role: String,
    pub(crate) start: MemberStart,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) secrets: Rc<Redactor>,
    pub(crate) show: Rc<dyn Fn(&Progress)>,
    /// The models that the person wants from the next model call on.
    pub(crate) next_models: Rc<Cell<Option<AgentModels>>>,
}

/// The circumstances of a start, which matter if the member resumes a conversation.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemberStart {
    /// The reason, for the model; `None` after a plain spawn.
    pub(crate) reason: Option<String>,
    /// Whether it was started for a new prompt, so that a turn that an earlier process did not finish is over.
    pub(crate) has_new_prompt: bool,
}

/// The result of a member's event loop.
pub(crate) struct Finished {
    pub(crate) ending: Ending,
    pub(crate) model_error: Option<ModelError>,
    /// The writer of the roster entry, for the last status of the incarnation.
    pub(crate) reporter: StatusReporter,
}

/// Runs an agent as a member of its team until it ends. `ready` is called once, when the first drain has started.
pub(crate) async fn run(
    agent: Agent,
    events: Events,
    inbound: UnboundedReceiver<Event>,
    ready: impl FnOnce(),
) -> Finished {
    let (mut member, start) = Member::new(agent, events, inbound);
    let ending = match member.resume(start).await {
        Ok(turn) => match member.start_agent().await {
            Ok(()) => member.live(turn, ready).await,
            Err(ending) => ending,
        },
        Err(why) => member.host.ending(why),
    };
    member.end_agent().await;
    member.end_subagents().await;
    member.mark_at_end().await;
    member.conversation.cancel_all();
    // Work that is cancelled is dropped in the next round of the event loop, and its transcript ends then.
    tokio::task::yield_now().await;
    member.idle_check.cancel();
    member.conversation.tools.background().end_all().await;
    hit("leave.answering");
    if let Err(why) = member.context.team_context.answer_shutdown(true, None).await {
        tracing::warn!(%why, "the shutdown request could not be answered");
    }
    hit("leave.answered");
    let model_error = member.conversation.model_error;
    Finished { ending, model_error, reporter: member.host.reporter }
}

struct Member {
    context: Rc<MemberContext>,
    conversation: Conversation,
    host: MemberHost,
    ingest: MailIngest,
    unsealed_mail: UnsealedMail,
    urgent_mail: UrgentMailSearch,
    approvals: Approvals,
    subagents: SubagentWatch,
    budget: BudgetMonitor,
    idle_check: IdleCheck,
    /// The foreign agent that does the work.
    foreign: Option<Box<ForeignHost>>,
    task_claimer: TaskClaimer,
    role: MemberRole,
    work: Option<Arc<Saver>>,
    models: MemberModels,
    /// Whether the lead knows that the work cannot be saved.
    is_unsaved_told: bool,
}

impl Member {
    /// Assembles the parts. Returns the circumstances of the start as well.
    fn new(agent: Agent, events: Events, inbound: UnboundedReceiver<Event>) -> (Self, MemberStart) {
        let Agent { me, mailbox, bus, tasks, team_context, clock, show, reporter, tools, .. } =
            agent;
        let (work_ended, check_ended) = (events.clone(), events.clone());
        let context = MemberContext { me, mailbox, bus, tasks, team_context, events, clock, show };
        let context = Rc::new(context);
        let share = || Rc::clone(&context);
        let described = share();
        let model = ModelCaller {
            model: agent.models.own.clone(),
            system: agent.system,
            max_answer_tokens: agent.max_answer_tokens,
            thinking: agent.thinking,
            secrets: agent.secrets,
            situation: Box::new(move || situation(&described.tasks, &described.me.name)),
            show: report_delays(&context),
        };
        let journal = Journal::new(share(), Rc::clone(&context.clock));
        let approvals = Approvals::new(agent.approval, Rc::clone(&tools), share());
        let host = |setup: Box<_>| Box::new(ForeignHost::new(*setup, context.events.clone()));
        let foreign = agent.foreign.map(host);
        let conversation = Conversation::new(journal, model, tools, move |id, result| {
            let _ended = work_ended.send(Event::WorkEnded(id, result));
        });
        if let Some(subagents) = &agent.subagents {
            subagents.connect(context.events.clone(), &conversation.tools);
        }
        let (budget, before_turn) = (agent.budget, reporter.used());
        let member = Self {
            conversation,
            foreign,
            idle_check: IdleCheck::new(share(), check_ended),
            ingest: MailIngest { context: share(), is_mark_due: false },
            unsealed_mail: UnsealedMail { context: share(), told: BTreeSet::new() },
            urgent_mail: UrgentMailSearch::new(share()),
            approvals,
            subagents: SubagentWatch::new(agent.subagents),
            budget: BudgetMonitor { budget, context: share(), before_turn },
            task_claimer: TaskClaimer { context: share(), watch: None, last: Rc::default() },
            role: MemberRole { context: share(), name: agent.role },
            work: agent.work,
            models: MemberModels {
                chain: ModelChain::new(agent.models, agent.fallback_pause),
                next: agent.next_models,
                is_compacting: false,
            },
            is_unsaved_told: false,
            host: MemberHost {
                context: share(),
                inbound,
                put_off: VecDeque::new(),
                reporter,
                heartbeat: agent.heartbeat,
                tool_limit_s: None,
            },
            context,
        };
        (member, agent.start)
    }

    async fn live(&mut self, turn: Option<VecDeque<Call>>, ready: impl FnOnce()) -> Ending {
        let MemberContext { me, mailbox, events, .. } = &*self.context;
        let woken = Rc::new(Notify::new());
        let watch = mail_watcher::watch(Arc::clone(mailbox), events.clone(), Rc::clone(&woken));
        let _watch = AbortOnDrop(spawn_local(watch));
        let reminders = send_reminders(Arc::clone(&self.context.bus), me.name.clone(), woken);
        let _reminders = AbortOnDrop(spawn_local(reminders));
        let (mut machine, first) = Machine::start(me.clone(), turn);
        let mut events = VecDeque::new();
        if let Err(ending) = self.perform_all(first, &mut events).await {
            return ending;
        }
        if let Some(subagents) = &self.subagents.all {
            subagents.resume_background().await;
        }
        ready();
        loop {
            while let Some(event) = events.pop_front() {
                if let Err(ending) = self.perform_all(machine.step(event), &mut events).await {
                    return ending;
                }
            }
            events = match self.wait().await {
                Ok(events) => events,
                Err(ending) => return ending,
            };
        }
    }

    /// Waits for the next wake-up of the event loop. Returns the resulting events for the machine, in order.
    async fn wait(&mut self) -> Result<VecDeque<MachineEvent>, Ending> {
        match self.host.next(self.approvals.due()).await {
            Wake::StatusDue => {
                self.host.reporter.write().await;
                self.mark_if_due();
                Ok(VecDeque::new())
            }
            Wake::StatusWritten => {
                self.mark_if_due();
                Ok(VecDeque::new())
            }
            Wake::HeartbeatDue => {
                self.host.write_heartbeat();
                Ok(self.check_prompt().await)
            }
            Wake::Timeout => {
                self.host.heartbeat.note_event();
                let decisions = self.approvals.on_due().await;
                self.settled(decisions).await
            }
            Wake::Event(event) => {
                self.host.heartbeat.note_event();
                let closed = || Ending::Broken("the event channel closed".into());
                self.receive(event.ok_or_else(closed)?).await
            }
        }
    }

    /// Routes an event to the part that handles it. Returns the resulting events for the machine.
    async fn receive(&mut self, event: Event) -> Result<VecDeque<MachineEvent>, Ending> {
        let event = match event {
            Event::Machine(MachineEvent::Prompt(text)) => {
                let text = self.conversation.redact(&text);
                self.conversation.tools.recorder().note_input(&text);
                MachineEvent::Prompt(text)
            }
            Event::Machine(event) => {
                if let Some(note) = self.interrupt_subagents_on(&event) {
                    return Ok(VecDeque::from([note, event]));
                }
                // The drain of a busy member waits for the end of its model call or tool call.
                if matches!(event, MachineEvent::Mail) && self.is_busy() {
                    self.urgent_mail.search();
                }
                event
            }
            Event::Approval(event) => {
                let decision = self.approvals.on_event(event, &mut self.host.reporter).await;
                return self.settled(decision).await;
            }
            Event::Answered(answer) => {
                let mail = std::slice::from_ref(&*answer);
                let decisions = self.approvals.on_mail(mail, &mut self.host.reporter).await;
                return self.settled(decisions).await;
            }
            Event::Drained(drained) => return self.receive_mail(drained).await,
            Event::WorkEnded(id, result) => {
                let Some(result) = self.conversation.end_work(id, result) else {
                    return Ok(VecDeque::new());
                };
                return Ok(self.after_work(result).await?.into_iter().collect());
            }
            Event::Compact => {
                let text = if self.conversation.compact_next() {
                    "the conversation will be summarized before the next model call"
                } else {
                    "the conversation is too short to summarize"
                };
                (self.context.show)(&Progress::Note(text.into()));
                return Ok(VecDeque::new());
            }
            Event::Foreign(process, from) => return self.receive_from_agent(process, from).await,
            Event::FromTools(from) => return Ok(self.receive_from_tools(from)),
            Event::Subagent => return self.receive_from_subagents().await,
            Event::ModelRetry(why) => {
                self.publish_delay(why).await;
                return Ok(VecDeque::new());
            }
            Event::IdleCheckEnded(id, answer) => {
                if !self.idle_check.end(id) {
                    return Ok(VecDeque::new());
                }
                let redact = |told: String| self.conversation.redact(&told);
                MachineEvent::IdleChecked(answer.map_err(redact))
            }
        };
        Ok(VecDeque::from([event]))
    }

    /// Whether mail waits for the end of a call.
    fn is_busy(&self) -> bool {
        let is_working = self.host.reporter.shown().0 == Status::Working;
        !self.context.me.name.is_lead() && (is_working || !self.subagents.asking.is_empty())
    }

    /// Adds mail to the memory, then passes it to the role and the approvals. Returns the events for the machine.
    async fn receive_mail(&mut self, drained: Drained) -> Result<VecDeque<MachineEvent>, Ending> {
        self.urgent_mail.on_drained();
        let mail = self.ingest.remember(drained, &mut self.conversation.journal);
        self.unsealed_mail.note(&mail);
        if let Some(change) = self.role.update(&mail).await {
            // Calls that an earlier role denied stay denied: an incarnation never loses a rule.
            let deny = denied_by(&change.limits);
            self.approvals.add_rules(&RuleLists { deny, ..RuleLists::default() });
            self.conversation.tools.limit(change.limits);
            self.record(Entry::Note { content: change.note }).await?;
        }
        self.task_claimer.begin_assigned(&mail).await;
        self.conversation.tools.note_plans(&mail);
        if let Some(first) = mail.iter().find(|message| message.body.wakes()) {
            let about = format!("{}: {}", first.from, first.content);
            self.conversation.tools.recorder().note_input(&about);
        }
        let decisions = self.approvals.on_mail(&mail, &mut self.host.reporter).await;
        let mut events = self.settled(decisions).await?;
        let note = self.interrupt_subagents_by(&mail);
        events.push_front(MachineEvent::Drained(mail));
        events.extend(note);
        Ok(events)
    }

    /// Performs actions in order. An immediate answer to an action comes before all other events.
    async fn perform_all(
        &mut self,
        todo: Vec<Action>,
        events: &mut VecDeque<MachineEvent>,
    ) -> Result<(), Ending> {
        for action in todo {
            if let Some(answer) = self.perform(action).await? {
                events.push_front(answer);
            }
        }
        Ok(())
    }

    /// Performs one action. Returns the immediate answer, if there is one.
    async fn perform(&mut self, action: Action) -> Result<Option<MachineEvent>, Ending> {
        match action {
            Action::Turn(TurnAction::Effect(effect)) => return self.perform_effect(effect).await,
            Action::Turn(TurnAction::Host(action)) => return self.perform_for_turn(action).await,
            Action::Foreign(action) => return self.perform_foreign(action).await,
            Action::StartLastCallTimeout => {
                let events = self.context.events.clone();
                let limit = self.last_call_timeout();
                tracing::info!(seconds = limit.as_secs(), "the running call is the last one");
                spawn_local(async move {
                    tokio::time::sleep(limit).await;
                    let _ended = events.send(MachineEvent::LastCallTimeout.into());
                });
            }
            Action::Publish(status, activity) => self.publish(status, activity).await,
            Action::EndTurn { outcome, rounds, report, cut_off } => {
                let report = report.map(|text| self.host.prepare_report(&text));
                let end = Entry::TurnEnd { outcome, rounds, report: report.clone(), cut_off };
                self.record(end).await?;
                self.end_turn_for_undo(cut_off).await;
                self.end_turn(outcome, rounds, report).await?;
                if self.foreign.is_some() {
                    self.conversation.journal.forget_old();
                }
            }
            Action::TellLead(text) => self.host.tell_lead(text).await,
            Action::CheckIdle { reason, refused, may_refuse } => {
                let role = self.role.name.clone();
                self.idle_check.start(IdleQuestion { reason, role, refused, may_refuse });
            }
            Action::CancelIdleCheck => self.idle_check.cancel(),
            Action::FindTask => self.task_claimer.watch(),
            Action::TakeTask => self.task_claimer.take(),
            // A subagent whose result wakes the member still works for it.
            Action::NotifyIdle(_) if self.subagents.has_background() => {}
            Action::NotifyIdle(reason) => {
                self.host.notify_idle(reason).await;
                if let Some(agent) = &mut self.foreign {
                    agent.rest();
                }
            }
            Action::OpenShutdown { request_id, by } => {
                self.context.team_context.open_shutdown(request_id, by);
                hit("leave.told");
            }
            Action::Exit(ending) => return Err(ending),
        }
        Ok(None)
    }

    /// The time limit of the running call after the loss of the lead (RELIABILITY 4).
    fn last_call_timeout(&self) -> Duration {
        if self.foreign.is_some() { AGENT_LEAD_LOSS_GRACE } else { LEAD_LOSS_GRACE }
    }

    /// Performs an action that a turn requests from its host. Returns the immediate answer, if there is one.
    async fn perform_for_turn(
        &mut self,
        action: HostAction,
    ) -> Result<Option<MachineEvent>, Ending> {
        match action {
            HostAction::TakeInput => self.ingest.drain(),
            HostAction::InputUsed => self.ingest.mark_taken(self.host.reporter.is_published()),
            HostAction::Doing(activity) if self.foreign.is_some() => {
                self.host.reporter.publish_beside(Status::Working, Some(activity));
            }
            HostAction::Doing(activity) => self.publish(Status::Working, Some(activity)).await,
            HostAction::Judge(call) => {
                return Ok(Some(MachineEvent::Judged(self.approvals.judge(&call))));
            }
            HostAction::Ask(question) => {
                let activity = match question.about {
                    QuestionKind::Permission => Activity::Permission(question.tool.clone()),
                    QuestionKind::Plan => Activity::Plan,
                    QuestionKind::Sandbox => Activity::Sandbox(question.tool.clone()),
                };
                let (journal, host) = (&mut self.conversation.journal, &mut self.host);
                let asked = self.approvals.ask(*question, journal, host).await;
                let decision = asked.map_err(|why| self.host.ending(why))?;
                if decision.is_none() {
                    // The question is there for everybody who sees this status.
                    self.publish(Status::Waiting, Some(activity)).await;
                    if let Some(stage) = &self.context.team_context.stage {
                        Rc::clone(stage).asks();
                    }
                }
                return Ok(decision.map(MachineEvent::Settled));
            }
            HostAction::Withdraw(request_id) => self.approvals.withdraw(&request_id),
            HostAction::Count(usage) => self.budget.count_call(usage, &mut self.host.reporter),
            HostAction::EndRefused(why) => self.host.reporter.refuse_to_end(why).await,
        }
        Ok(None)
    }

    /// Performs an effect of the conversation. Checks the budget before a model call, and writes a heartbeat
    /// before a tool call.
    async fn perform_effect(&mut self, effect: TurnEffect) -> Result<Option<MachineEvent>, Ending> {
        self.models.is_compacting = effect == TurnEffect::Compact;
        if effect == TurnEffect::CallModel {
            self.choose_model().await?;
            if let Some(stop) = self.check_budget().await? {
                return Ok(Some(stop));
            }
        } else if effect == TurnEffect::Cancel {
            self.withdraw_cancelled().await?;
        } else if let TurnEffect::RunTools(calls) = &effect {
            let limits = calls.iter().map(|call| self.conversation.tools.time_limit_s(call));
            self.host.tool_starts(limits.max().unwrap_or_default());
        }
        let performed = self.conversation.perform(effect, &mut self.host).await;
        performed.map(|()| None).map_err(|why| self.host.ending(why))
    }

    /// Checks the budget before a model call or a prompt. Returns the stop if it is used up.
    async fn check_budget(&mut self) -> Result<Option<MachineEvent>, Ending> {
        match self.budget.check(&self.host.reporter) {
            BudgetVerdict::Fine => {}
            BudgetVerdict::Nearly(limit) => self.warn(limit).await?,
            BudgetVerdict::Spent(limit) => {
                tracing::warn!(%limit, "the budget is used up");
                return Ok(Some(MachineEvent::Stop(StopCause::Budget(limit))));
            }
        }
        Ok(None)
    }

    /// Warns the model, the viewer and the lead that a budget is nearly used up.
    async fn warn(&mut self, limit: BudgetLimit) -> Result<(), Ending> {
        tracing::warn!(%limit, "the budget is nearly used up");
        let content = self.budget.warning(&limit);
        (self.context.show)(&Progress::Warning(content.clone()));
        let me = &self.context.me.name;
        if !me.is_lead() {
            self.host.tell_lead(format!("{me}: {content}")).await;
        }
        self.record(Entry::Note { content }).await
    }

    async fn record(&mut self, entry: Entry) -> Result<(), Ending> {
        let recorded = self.conversation.journal.record(entry, &mut self.host).await;
        recorded.map_err(|why| self.host.ending(why))
    }

    async fn publish(&mut self, status: Status, activity: Option<Activity>) {
        let (status, activity) = self.subagents.shown(status, activity);
        self.host.reporter.publish(status, activity).await;
        self.mark_if_due();
    }

    /// Sets the activity of a member that waits for its model. A call that was cancelled meanwhile changes nothing.
    async fn publish_delay(&mut self, why: Option<String>) {
        let (status, activity) = self.host.reporter.shown();
        let calls_model = matches!(activity, Some(Activity::Model | Activity::Retrying(_)));
        if status == Status::Working && calls_model {
            let activity = why.map_or(Activity::Model, Activity::Retrying);
            self.publish(Status::Working, Some(activity)).await;
        }
    }

    /// Marks mail whose mark waits for a write of the status that may just have ended.
    async fn mark_at_end(&mut self) {
        if self.ingest.is_mark_due {
            self.host.reporter.write().await;
            self.mark_if_due();
        }
    }

    /// Marks mail as acted on if the mark had to wait.
    fn mark_if_due(&mut self) {
        if self.ingest.is_mark_due {
            self.ingest.mark_taken(self.host.reporter.is_published());
        }
    }
}

/// Returns a handler that shows the progress of model calls, and reports a late or failed one to the member, so that
/// the roster shows it.
fn report_delays(context: &Rc<MemberContext>) -> Rc<dyn Fn(&Progress)> {
    let (show, events) = (Rc::clone(&context.show), context.events.clone());
    Rc::new(move |progress| {
        let mut why = None;
        if let Progress::Retry { why: told, .. } | Progress::Silent { why: told, .. } = progress {
            why = Some(told.clone());
        }
        if why.is_some() || *progress == Progress::Answers {
            // A member that has ended has no status to report.
            let _ended = events.send(Event::ModelRetry(why));
        }
        show(progress);
    })
}
