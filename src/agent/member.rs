//! The loop of a member: it receives an event, lets the machine take a step, and performs its actions.
//!
//! Each part owns its state; the loop hands one part to another where they must work together.

use super::approval::{ApprovalGate, Approvals};
use super::budget::{AgentBudget, BudgetKeeper};
use super::conversation::{Conversation, Effect, Journal, ModelCaller, ToolRunner, time_limit_s};
use super::event::{Action, Ending, Event, Events, MachineEvent, StopCause};
use super::heartbeat::HeartbeatWriter;
use super::identity::Identity;
use super::idle_hook::IdleHookRunner;
use super::inbound::Inbound;
use super::machine::Machine;
use super::mail_intake::MailIntake;
use super::mail_watcher;
use super::member_host::{MemberHost, Wake};
use super::member_status::{Due, MemberStatus};
use super::progress::Progress;
use super::reports::Reports;
use super::resume::Start;
use super::role::MemberRole;
use super::situation::situation;
use super::status::StatusReporter;
use super::task_claimer::TaskClaimer;
use super::transcript::MailboxTranscript;
use crate::bus::Bus;
use crate::llm::{ModelError, Provider, Redactor};
use crate::os::Clock;
use crate::os::failpoint::hit;
use crate::protocol::budget::{BudgetLimit, BudgetVerdict};
use crate::store::{Drained, Mailbox, TeamDir};
use crate::tasks::Tasks;
use crate::tools::team::TeamContext;
use crate::tools::{Call, Registry};
use crate::wire::message::Outcome;
use crate::wire::permission::{Decision, RuleLists};
use crate::wire::transcript::Entry;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

/// How long a running tool call may go on after the lead's death (RELIABILITY 4).
const LAST_CALL_TIMEOUT: Duration = crate::wire::limits::LEAD_LOSS_GRACE;

/// Everything that a member of a team consists of.
pub(crate) struct Agent {
    /// Who it is, and its rules of work.
    pub(crate) me: Identity,
    /// Its mail, and its transcript.
    pub(crate) mailbox: Arc<Mutex<Mailbox>>,
    /// Its model.
    pub(crate) provider: Rc<dyn Provider>,
    /// Tokens that fit its model, if known.
    pub(crate) context_tokens: Option<u64>,
    /// Its system prompt.
    pub(crate) system: String,
    /// Its tools.
    pub(crate) tools: Rc<Registry>,
    /// What its tool calls must pass.
    pub(crate) approval: ApprovalGate,
    /// What its loop shares with its team tools.
    pub(crate) team_context: Rc<TeamContext>,
    /// Sends its mail.
    pub(crate) bus: Arc<Bus>,
    /// The team's task list.
    pub(crate) tasks: Arc<Tasks>,
    /// Its entry in the roster.
    pub(crate) reporter: StatusReporter,
    /// What it may spend.
    pub(crate) budget: AgentBudget,
    /// Its heartbeat.
    pub(crate) heartbeat: HeartbeatWriter,
    /// Its role.
    pub(crate) role: String,
    /// What its model is told about this start if it has a past; `None` after a plain spawn.
    pub(crate) start_reason: Option<String>,
    /// The clock.
    pub(crate) clock: Rc<dyn Clock>,
    /// What must never be written or shown.
    pub(crate) secrets: Rc<Redactor>,
    /// Shows its progress.
    pub(crate) show: Rc<dyn Fn(&Progress)>,
}

/// What is left of a member after its loop.
pub(crate) struct Finished {
    /// How it ended.
    pub(crate) ending: Ending,
    /// Why its last model call gave no reply.
    pub(crate) model_error: Option<ModelError>,
    /// Its roster entry, for the last status of the life.
    pub(crate) reporter: StatusReporter,
}

/// Runs an agent as a member of its team until it ends. `ready` is called once, when it can take mail.
pub(crate) async fn run(
    agent: Agent,
    events: Events,
    inbound: UnboundedReceiver<Event>,
    ready: impl FnOnce(),
) -> Finished {
    let (mut member, start_reason) = Member::new(agent, events, inbound);
    let ending = match member.resume(start_reason).await {
        Ok(turn) => member.live(turn, ready).await,
        Err(ending) => ending,
    };
    member.conversation.cancel_all();
    member.idle_hook.cancel();
    hit("leave.answering");
    if let Err(why) = member.team_context.answer_shutdown(true, None).await {
        tracing::warn!(%why, "the shutdown request could not be answered");
    }
    hit("leave.answered");
    let model_error = member.conversation.take_model_error();
    Finished { ending, model_error, reporter: member.host.into_status().into_reporter() }
}

struct Member {
    me: Identity,
    dir: TeamDir,
    conversation: Conversation,
    host: MemberHost,
    intake: MailIntake,
    approvals: Approvals,
    budget: BudgetKeeper,
    reports: Reports,
    idle_hook: IdleHookRunner,
    task_claimer: TaskClaimer,
    role: MemberRole,
    team_context: Rc<TeamContext>,
    mailbox: Arc<Mutex<Mailbox>>,
    events: Events,
}

impl Member {
    /// Puts the parts together. Returns the reason of the start as well.
    fn new(
        agent: Agent,
        events: Events,
        inbound: UnboundedReceiver<Event>,
    ) -> (Self, Option<String>) {
        let Agent { me, mailbox, bus, tasks, team_context, clock, show, .. } = agent;
        let (dir, name) = (bus.dir().clone(), me.name.clone());
        let conversation = {
            let writer = MailboxTranscript::new(Arc::clone(&mailbox), bus.fsync());
            let (tasks, name) = (Arc::clone(&tasks), name.clone());
            let model = ModelCaller {
                provider: agent.provider,
                system: agent.system,
                context_tokens: agent.context_tokens,
                secrets: agent.secrets,
                situation: Box::new(move || situation(&tasks, &name)),
                show: Rc::clone(&show),
            };
            let events = events.clone();
            Conversation::new(
                Journal::new(Rc::new(writer), Rc::clone(&clock)),
                model,
                ToolRunner::new(agent.tools),
                move |id, result| {
                    let _ended = events.send(Event::WorkEnded(id, result));
                },
            )
        };
        let status = MemberStatus::new(agent.reporter, agent.heartbeat, Arc::clone(&mailbox));
        let used = status.used();
        let intake = MailIntake::new(
            Arc::clone(&mailbox),
            Arc::clone(&bus),
            name.clone(),
            Rc::clone(&team_context),
            events.clone(),
            Rc::clone(&show),
        );
        let member = Self {
            conversation,
            host: MemberHost::new(Inbound::new(inbound), status, dir.clone(), show),
            intake,
            approvals: Approvals::new(agent.approval, me.clone(), Arc::clone(&bus), clock),
            budget: BudgetKeeper::new(agent.budget, dir.clone(), name.clone(), used),
            reports: Reports::new(bus, name.clone()),
            idle_hook: IdleHookRunner::new(Rc::clone(&team_context), events.clone()),
            task_claimer: TaskClaimer::new(tasks, name.clone(), events.clone()),
            role: MemberRole::new(dir.clone(), name, agent.role),
            team_context,
            mailbox,
            events,
            dir,
            me,
        };
        (member, agent.start_reason)
    }

    async fn resume(&mut self, reason: Option<String>) -> Result<Option<VecDeque<Call>>, Ending> {
        let Identity { name, incarnation, .. } = &self.me;
        let start = Start { dir: &self.dir, name, incarnation, reason };
        let resumed = start.resume(&mut self.conversation, &self.reports, &mut self.host).await;
        resumed.map_err(|why| self.host.ending(why))
    }

    async fn live(&mut self, turn: Option<VecDeque<Call>>, ready: impl FnOnce()) -> Ending {
        let watch = mail_watcher::watch(Arc::clone(&self.mailbox), self.events.clone());
        let _watch = AbortOnDrop(tokio::task::spawn_local(watch));
        let (mut machine, first) = Machine::start(self.me.clone(), turn);
        let mut events = VecDeque::new();
        if let Err(ending) = self.perform_all(first, &mut events).await {
            return ending;
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

    /// Waits for what happens next. Returns it as events of the machine, in order.
    async fn wait(&mut self) -> Result<VecDeque<MachineEvent>, Ending> {
        let wake = self.host.next(self.approvals.due()).await;
        match wake {
            Wake::Status(Due::Status) => {
                self.host.status().write().await;
                self.mark_if_due();
                return Ok(VecDeque::new());
            }
            Wake::Status(Due::Heartbeat) => {
                self.host.status().beat();
                return Ok(VecDeque::new());
            }
            Wake::Timeout | Wake::Event(_) => self.host.status().on_event(),
        }
        match wake {
            Wake::Status(_) => Ok(VecDeque::new()),
            Wake::Timeout => Ok(settled(self.approvals.expire())),
            Wake::Event(Some(event)) => self.receive(event).await,
            Wake::Event(None) => Err(Ending::Broken("the event channel closed".into())),
        }
    }

    /// Routes an event to the part that it concerns. Returns what the machine hears of it.
    async fn receive(&mut self, event: Event) -> Result<VecDeque<MachineEvent>, Ending> {
        let event = match event {
            Event::Machine(MachineEvent::Prompt(text)) => {
                MachineEvent::Prompt(self.conversation.redact(&text))
            }
            Event::Machine(event) => event,
            Event::Approval(event) => {
                let (tools, status) = (self.conversation.tools(), self.host.status());
                let decision = self.approvals.on_event(event, tools, status).await;
                return Ok(settled(decision));
            }
            Event::Drained(drained) => return self.receive_mail(drained).await,
            Event::WorkEnded(id, result) => match self.conversation.end_work(id, result) {
                Some(result) => MachineEvent::Work(result),
                None => return Ok(VecDeque::new()),
            },
            Event::IdleHookEnded(id, answer) => {
                if !self.idle_hook.end(id) {
                    return Ok(VecDeque::new());
                }
                let redact = |told: String| self.conversation.redact(&told);
                MachineEvent::IdleHookAnswered(answer.map_err(redact))
            }
        };
        Ok(VecDeque::from([event]))
    }

    /// Takes mail into the memory, then tells the parts that it concerns.
    async fn receive_mail(&mut self, drained: Drained) -> Result<VecDeque<MachineEvent>, Ending> {
        let mail = self.intake.remember(drained, &mut self.conversation);
        if let Some(change) = self.role.update(&mail).await {
            // What an earlier role denied stays denied: a life never loses a rule.
            let deny = change.limits.denied_calls().cloned().collect();
            self.approvals.add_rules(&RuleLists { deny, ..RuleLists::default() });
            self.conversation.tools().limit(change.limits);
            self.record(Entry::Note { content: change.note }).await?;
        }
        let (tools, status) = (self.conversation.tools(), self.host.status());
        let decisions = self.approvals.on_mail(&mail, tools, status).await;
        let mut events = settled(decisions);
        events.push_front(MachineEvent::Drained(mail));
        Ok(events)
    }

    /// Performs actions in order. What answers one at once comes before all other events.
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

    /// Performs one action. Returns its answer if there is one at once.
    async fn perform(&mut self, action: Action) -> Result<Option<MachineEvent>, Ending> {
        match action {
            Action::Effect(effect) => return self.perform_effect(effect).await,
            Action::Judge(call) => {
                let verdict = self.approvals.judge(&call, self.conversation.tools());
                return Ok(Some(MachineEvent::Judged(verdict)));
            }
            Action::Ask(question) => {
                let (conversation, host) = (&mut self.conversation, &mut self.host);
                let asked = self.approvals.ask(*question, conversation, host).await;
                let decision = asked.map_err(|why| self.host.ending(why))?;
                return Ok(decision.map(MachineEvent::Settled));
            }
            Action::Withdraw(request_id) => self.approvals.withdraw(&request_id),
            Action::Count(usage) => self.budget.count_call(usage, self.host.status()),
            Action::PublishRefusal(why) => self.host.status().publish_refusal(why).await,
            Action::Drain => self.intake.drain(),
            Action::MarkTaken => self.intake.mark_taken(self.host.status().is_published()),
            Action::StartLastCallTimeout => {
                let events = self.events.clone();
                tokio::task::spawn_local(async move {
                    tokio::time::sleep(LAST_CALL_TIMEOUT).await;
                    let _ended = events.send(MachineEvent::LastCallTimeout.into());
                });
            }
            Action::Publish(status, activity) => {
                self.host.status().publish(status, activity).await;
                self.mark_if_due();
            }
            Action::EndTurn { outcome, rounds, report } => {
                self.end_turn(outcome, rounds, report).await?;
            }
            Action::TellLead(text) => self.reports.tell_lead(text, &mut self.host).await,
            Action::AskIdleHook(refused) => self.idle_hook.ask(self.role.name(), refused),
            Action::CancelIdleHook => self.idle_hook.cancel(),
            Action::FindTask => self.task_claimer.watch(),
            Action::TakeTask => self.task_claimer.take(),
            Action::NotifyIdle(reason) => self.reports.notify_idle(reason, &mut self.host).await,
            Action::OpenShutdown { request_id, by } => {
                self.team_context.open_shutdown(request_id, by);
                hit("leave.told");
            }
            Action::Exit(ending) => return Err(ending),
        }
        Ok(None)
    }

    /// Performs an effect of the conversation, with what a member adds to it: the budget before a model
    /// call, the heartbeat of a tool call.
    async fn perform_effect(&mut self, effect: Effect) -> Result<Option<MachineEvent>, Ending> {
        match &effect {
            Effect::CallModel => match self.budget.check(self.host.status()) {
                BudgetVerdict::Fine => {}
                BudgetVerdict::Nearly(limit) => self.warn(limit).await?,
                BudgetVerdict::Spent(limit) => {
                    tracing::warn!(%limit, "the budget is used up");
                    return Ok(Some(MachineEvent::Stop(StopCause::Budget(limit))));
                }
            },
            Effect::RunTool(call) => self.host.status().tool_starts(time_limit_s(call)),
            Effect::Record(_)
            | Effect::Sync
            | Effect::Compact
            | Effect::Cancel
            | Effect::Show(_)
            | Effect::Log(_) => {}
        }
        let performed = self.conversation.perform(effect, &mut self.host).await;
        performed.map(|()| None).map_err(|why| self.host.ending(why))
    }

    /// Warns the model, the viewer and the lead that little of a budget is left.
    async fn warn(&mut self, limit: BudgetLimit) -> Result<(), Ending> {
        tracing::warn!(%limit, "the budget is nearly used up");
        let content = self.budget.warning(&limit);
        self.host.show(&Progress::Warning(content.clone()));
        if !self.me.name.is_lead() {
            let told = format!("{}: {content}", self.me.name);
            self.reports.tell_lead(told, &mut self.host).await;
        }
        self.record(Entry::Note { content }).await
    }

    async fn end_turn(
        &mut self,
        outcome: Outcome,
        rounds: u32,
        report: Option<String>,
    ) -> Result<(), Ending> {
        let report = report.map(|text| self.reports.prepare(&text));
        self.record(Entry::TurnEnd { outcome, rounds, report: report.clone() }).await?;
        self.conversation.sync().await.map_err(|why| self.host.ending(why))?;
        hit("turn.ended");
        self.budget.count_turn(outcome, rounds, self.host.status());
        if let Some(report) = report {
            self.reports.send(outcome, report, &mut self.host).await;
            hit("turn.reported");
        }
        Ok(())
    }

    async fn record(&mut self, entry: Entry) -> Result<(), Ending> {
        let recorded = self.conversation.record(entry, &mut self.host).await;
        recorded.map_err(|why| self.host.ending(why))
    }

    fn mark_if_due(&mut self) {
        self.intake.mark_if_due(self.host.status().is_published());
    }
}

fn settled(decisions: impl IntoIterator<Item = Decision>) -> VecDeque<MachineEvent> {
    decisions.into_iter().map(MachineEvent::Settled).collect()
}

/// Aborts a task together with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
