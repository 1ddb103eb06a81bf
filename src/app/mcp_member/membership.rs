//! A member whose model runs in another program: its parts, its calls, and the end of its membership.

use super::claude_inbox::ClaudeInbox;
use super::hook_server;
use super::mailbag::Mailbag;
use super::program::is_of_program;
use super::served_mail::{MailWatch, ServedMail};
use super::status_task::{self, ServedStatus, StatusSender};
use crate::agent::event::Event;
use crate::agent::mail_watcher;
use crate::agent::reminders::send_reminders;
use crate::agent::status::StatusReporter;
use crate::app::agent_process::{AgentProcess, release_leases};
use crate::app::event_loop::SignalStream;
use crate::app::own_mailbox::close_mailbox;
use crate::bus::Bus;
use crate::error::{Exit, Failure, OrFail};
use crate::os::SystemClock;
use crate::os::command::CommandSetup;
use crate::os::spawn::spawn_local;
use crate::settings::environment::Environment;
use crate::store::tail::Tail;
use crate::store::{LifeLock, Mailbox, StoreError, TeamDir, transcript};
use crate::tasks::Tasks;
use crate::tools::command::OutputStore;
use crate::tools::hooks::Hooks;
use crate::tools::team_context::TeamContext;
use crate::tools::{
    self, Call, FileAccess, Ops, Registry, ServedModel, TeamToolParts, ToolError, ToolParts,
};
use crate::wire::AgentName;
use crate::wire::chat::{Block, StopReason, Usage};
use crate::wire::hook::Hook;
use crate::wire::inbox_block::marked;
use crate::wire::message::Message;
use crate::wire::role::Role;
use crate::wire::roster::{ExitCause, Status, UsageCount};
use crate::wire::tool::{Effect, ToolSpec};
use crate::wire::transcript::Entry;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

/// The model of the recorded calls.
const RECORDED_MODEL: &str = "mcp";

/// The time that a client needs after it has listed the tools until its model has them.
const TOOLS_SETTLE: Duration = Duration::from_secs(1);

/// The parts of a member whose process holds the life lock and is on the roster.
pub(in crate::app) struct MemberParts<'a> {
    pub(in crate::app) process: AgentProcess,
    pub(in crate::app) bus: Arc<Bus>,
    pub(in crate::app) mailbox: Mailbox,
    pub(in crate::app) tasks: Arc<Tasks>,
    pub(in crate::app) hooks: Vec<Hook>,
    /// The circumstances of its hooks.
    pub(in crate::app) commands: CommandSetup,
    /// Its model on the roster.
    pub(in crate::app) model: String,
    pub(in crate::app) role: String,
    pub(in crate::app) limits: Role,
    /// The messages that its model may send in a minute.
    pub(in crate::app) max_sends: usize,
    /// The usage of its earlier processes.
    pub(in crate::app) usage: UsageCount,
    pub(in crate::app) environment: &'a Environment,
    /// The operations of a lead; a teammate has none.
    pub(in crate::app) ops: Option<Ops>,
    pub(in crate::app) mail_watch: Box<dyn MailWatch>,
}

pub(in crate::app) struct Membership {
    pub(in crate::app) mail: Rc<ServedMail>,
    pub(super) role: String,
    registry: Registry,
    status: StatusSender,
    /// `None` once the member has left; locked while it leaves.
    life: tokio::sync::Mutex<Option<LifeLock>>,
    /// The publisher of the status, and its stop.
    publisher: RefCell<Option<JoinHandle<StatusReporter>>>,
    stop_publishing: Rc<Notify>,
}

impl Membership {
    /// Opens the mailbox and the tools of a member. Returns it with the signals to its process.
    pub(in crate::app) fn open(
        parts: MemberParts<'_>,
    ) -> Result<(Rc<Self>, SignalStream), Failure> {
        let MemberParts { bus, mailbox, tasks, model, role, .. } = parts;
        let AgentProcess { name, incarnation, life, signals, .. } = parts.process;
        let dir = bus.dir().clone();
        let (status, changes) = unbounded_channel();
        let status = StatusSender(status);
        let hooks = Hooks {
            list: parts.hooks,
            me: name.clone(),
            workspace: dir.workspace().to_owned(),
            setup: parts.commands.clone(),
            leases: Some(dir.clone()),
        };
        let (sends, me) = (parts.max_sends, name.clone());
        let team =
            TeamContext::new(me.clone(), incarnation.clone(), Arc::clone(&bus), sends, hooks);
        let team = Rc::new(team);
        let bag = RefCell::new(left_mail(&dir, &name)?);
        let watch = parts.mail_watch;
        let mail = Rc::new_cyclic(|this| ServedMail {
            bus: Arc::clone(&bus),
            me,
            incarnation: incarnation.clone(),
            team: Rc::clone(&team),
            mailbox: Arc::new(Mutex::new(mailbox)),
            status: status.clone(),
            watch,
            bag,
            arrived: Notify::new(),
            listed: Notify::new(),
            leaving: Notify::new(),
            leave_reason: RefCell::default(),
            has_left: Cell::new(false),
            draining: tokio::sync::Mutex::new(()),
            this: this.clone(),
        });
        let output_store = OutputStore {
            dir: dir.clone(),
            name: name.clone(),
            redact: Rc::new(|text: String| (text, String::new())),
            clone: None,
            show_line: None,
        };
        let files = FileAccess::open(&dir, &name, dir.workspace(), None)
            .or_fail("the workspace cannot be opened", "check the folder's permissions")?;
        let handout = Rc::clone(&mail) as Rc<dyn tools::MailHandout>;
        let commands = parts.commands;
        let team_parts = TeamToolParts { commands, output_store, files, team, tasks };
        let served = ServedModel { mail: handout, submits_plans: false };
        let tool_parts = ToolParts { ops: parts.ops, ..ToolParts::served(team_parts, served) };
        let registry = tools::registry(tool_parts);
        registry.limit(parts.limits);
        let clock = Rc::new(SystemClock);
        let (me, run, usage) = (name.clone(), incarnation.clone(), parts.usage);
        let reporter = StatusReporter::new(dir, me, run, clock, usage, None);
        tracing::info!(%name, model, "joined");
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        mail.record([Entry::Session { incarnation, pid, model, foreign: None }]);
        let stop_publishing = Rc::new(Notify::new());
        let stop = Rc::clone(&stop_publishing);
        let publishing =
            status_task::publish(changes, reporter, async move { stop.notified().await });
        let publisher = RefCell::new(Some(spawn_local(publishing)));
        let claude = ClaudeInbox::find(parts.environment);
        spawn_local(hook_server::serve(Rc::clone(&mail), claude.is_some()));
        spawn_local(watch_inbox(Rc::clone(&mail), claude));
        let life = tokio::sync::Mutex::new(Some(life));
        let member = Self { mail, role, registry, status, life, publisher, stop_publishing };
        Ok((Rc::new(member), signals))
    }

    pub(super) fn tools(&self) -> Vec<&'static ToolSpec> {
        self.mail.listed.notify_one();
        self.registry.served()
    }

    /// Runs a call. The sentence of a member that has left says why it does nothing.
    pub(super) async fn call(&self, call: &Call) -> Result<String, ToolError> {
        if let Some(why) = self.mail.leave_reason.borrow().clone() {
            return Err(ToolError::Reply(format!(
                "{why}: you are no member any more, and nothing was done. Tell the user, who can join you again by \
                 restarting this MCP server"
            )));
        }
        // A model that waits for mail does not work.
        if call.input.get("wait_seconds").is_none() {
            self.status.send(ServedStatus::Works(call.name.clone()));
        }
        let result = self.registry.call(call).await.map(|output| output.text);
        if let Err(ToolError::Fatal(why)) = &result {
            self.mail.leave(why.clone());
        }
        self.record(call, &result);
        result
    }

    /// Records a call that changes something, and its result, as those of other agents.
    fn record(&self, call: &Call, result: &Result<String, ToolError>) {
        let is_read = tools::find(&call.name).is_none_or(|spec| spec.effect == Effect::Reads);
        if is_read {
            return;
        }
        let Call { id, name, input } = call.clone();
        let (content, is_error) = match result {
            Ok(text) => (text.clone(), false),
            Err(why) => (why.to_string(), true),
        };
        let block = Block::ToolUse { id: id.clone(), name: name.clone(), input };
        let model = RECORDED_MODEL.to_owned();
        self.mail.record([
            Entry::Assistant {
                blocks: vec![block],
                stop_reason: StopReason::ToolUse,
                usage: Usage::default(),
                model,
            },
            Entry::ToolStart { tool_use_id: id.clone(), name },
            Entry::tool_result(id, content, is_error, Vec::new()),
        ]);
    }

    /// Waits until the member is asked to leave.
    pub(super) async fn asked_to_leave(&self) {
        self.mail.leaving.notified().await;
    }

    /// Leaves the team; if the member is leaving already, waits until it has left. If it was asked to leave, mail that
    /// arrived meanwhile is in the transcript, and the next answer has it.
    pub(in crate::app) async fn leave(&self, exit: Exit) {
        let mut held = self.life.lock().await;
        let Some(life) = held.take() else { return };
        if let Err(why) = self.mail.team.answer_shutdown(true, None).await {
            tracing::warn!(%why, "the shutdown request could not be answered");
        }
        let (team, name) = (self.mail.bus.dir().clone(), self.mail.me.clone());
        release_leases(&team, &name).await;
        if self.mail.leave_reason.borrow().is_some()
            && let Err(why) = self.mail.collect().await
        {
            tracing::warn!(%why, "mail is left for the next start");
        }
        self.mail.has_left.set(true);
        // Mail that was not handed out still counts as unread.
        if self.mail.bag.borrow().is_empty() {
            close_mailbox(Arc::clone(&self.mail.mailbox)).await;
        }
        self.stop_publishing.notify_one();
        let publisher = self.publisher.borrow_mut().take();
        if let Some(publisher) = publisher
            && let Ok(mut reporter) = publisher.await
            && let Err(why) =
                reporter.publish_end(Status::Shutdown, exit as i32, ExitCause::Stopped).await
        {
            tracing::error!(%why, "the exit could not be written to the roster");
        }
        tracing::info!(%name, "left the team");
        drop(life);
        self.mail.arrived.notify_waiters();
    }
}

/// Returns the mail that an earlier process has taken and not handed out.
fn left_mail(team: &TeamDir, name: &AgentName) -> Result<Mailbag, StoreError> {
    let mut bag = Mailbag::new();
    for (object, is_verified) in transcript::not_handed_out(team, name, is_of_program)? {
        let message = Message::read(&object);
        if let Ok(message) = message
            && !message.body.is_for_program()
        {
            bag.add(marked(&object, is_verified), message.body.wakes());
        }
    }
    Ok(bag)
}

/// Watches the inbox: wakes calls that wait for mail, acts on control mail, and writes mail to the session of Claude Code.
async fn watch_inbox(mail: Rc<ServedMail>, claude: Option<ClaudeInbox>) {
    let (events, mut inbound) = unbounded_channel();
    let woken = Rc::new(Notify::new());
    let watch = mail_watcher::watch(Arc::clone(&mail.mailbox), events, Rc::clone(&woken));
    let watching = spawn_local(watch);
    let reminders = send_reminders(Arc::clone(&mail.bus), mail.me.clone(), woken);
    let reminding = spawn_local(reminders);
    let mut search = Tail::new(mail.bus.dir().inbox(&mail.me));
    // A session without the tools could not answer.
    let mut has_tools = false;
    while !mail.has_left.get() {
        mail.arrived.notify_waiters();
        search = mail.search_control(search).await;
        let left = mail.leave_reason.borrow().clone();
        if let (Some(claude), Some(why)) = (&claude, &left) {
            let told =
                claude.write(&format!("{why}: you are no member of the team any more.")).await;
            tracing::info!(was_told = told.is_ok(), "the session of Claude Code was told");
        } else if let Some(claude) = claude.as_ref().filter(|_| has_tools) {
            push(&mail, claude).await;
        }
        if left.is_some() {
            break;
        }
        tokio::select! {
            is_open = next_event(&mut inbound) => if !is_open { break },
            () = mail.listed.notified(), if !has_tools => {
                has_tools = true;
                tokio::time::sleep(TOOLS_SETTLE).await;
            }
        }
    }
    watching.abort();
    reminding.abort();
}

/// Waits for an event, and takes those that came together with it.
async fn next_event(inbound: &mut UnboundedReceiver<Event>) -> bool {
    let is_open = inbound.recv().await.is_some();
    while inbound.try_recv().is_ok() {}
    is_open
}

/// Writes the unread mail to the session of Claude Code. Mail that the session does not accept waits for a call.
async fn push(mail: &ServedMail, claude: &ClaudeInbox) {
    const CALL: &str = "socket";
    if let Err(why) = mail.collect().await {
        tracing::warn!(%why, "mail waits for a call");
    }
    // The others come with the next result.
    if !mail.bag.borrow().wakes() {
        return;
    }
    while let Some(block) = mail.take_now(CALL).await {
        let text =
            format!("You have mail from your team. Answer with the tools of the team.\n{block}");
        let written = claude.write(&text).await;
        mail.answered(CALL, written.is_ok());
        if let Err(why) = written {
            tracing::warn!(%why, "the session of Claude Code takes no mail; calls have it");
            return;
        }
    }
}
