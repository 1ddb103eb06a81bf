//! A member whose model runs in another program: joining the team, its calls, and leaving.

use super::claude_inbox::ClaudeInbox;
use super::hook_server;
use super::mailbag::Mailbag;
use super::served_mail::ServedMail;
use super::status_task::{self, ServedStatus, StatusSender};
use crate::agent::event::Event;
use crate::agent::mail_watcher;
use crate::agent::status::StatusReporter;
use crate::app::agent_process::{AgentProcess, fresh_id, release_leases, reserve_disk_space};
use crate::app::context::{open_bus, open_tasks};
use crate::app::event_loop::SignalStream;
use crate::app::own_mailbox::{close_mailbox, open_mailbox};
use crate::app::teammate::roster_place::{HandEntry, RosterPlace};
use crate::app::walls::{self, LevelOrigin};
use crate::error::{Exit, Failure, OrFail};
use crate::os::SystemClock;
use crate::os::wall::Walls;
use crate::settings::Settings;
use crate::settings::environment::Environment;
use crate::store::tail::Tail;
use crate::store::{LifeLock, LifeRecord, RoleMatch, StoreError, TeamDir, roster, transcript};
use crate::tools::command::{OutputStore, command_setup};
use crate::tools::hooks::Hooks;
use crate::tools::team::TeamContext;
use crate::tools::{
    self, Call, FileAccess, Registry, ServedModel, TeamToolParts, ToolError, ToolParts,
    find_by_alias,
};
use crate::wire::AgentName;
use crate::wire::chat::{Block, StopReason, Usage};
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

/// The beginning of the model of such a member on the roster; the name of the program follows.
const MODEL: &str = "mcp/";

/// The longest name that a program may give itself on the roster, in characters.
const PROGRAM_CHARS: usize = 40;

/// The most names that are tried if that of the program is taken.
const NAMES: usize = 99;

/// The time that a client needs after it has listed the tools until its model has them.
const TOOLS_SETTLE: Duration = Duration::from_secs(1);

/// Names of members for programs whose own name is longer, by its beginning.
const SHORT_NAMES: [(&str, &str); 7] = [
    ("claude", "claude"),
    ("codex", "codex"),
    ("copilot", "copilot"),
    ("gemini", "gemini"),
    ("opencode", "opencode"),
    ("qwen", "qwen"),
    ("cursor", "cursor"),
];

/// The circumstances in which the member joins.
pub(super) struct Joining {
    pub(super) team: TeamDir,
    pub(super) environment: Environment,
    pub(super) settings: Settings,
    pub(super) cwd: String,
    /// The name that the person has chosen.
    pub(super) name: Option<AgentName>,
    pub(super) role: String,
}

pub(super) struct Membership {
    pub(super) mail: Rc<ServedMail>,
    pub(super) role: String,
    registry: Registry,
    status: StatusSender,
    /// `None` once the member has left; locked while it leaves.
    life: tokio::sync::Mutex<Option<LifeLock>>,
    /// The publisher of the status, and its stop.
    publisher: RefCell<Option<JoinHandle<StatusReporter>>>,
    stop_publishing: Rc<Notify>,
}

impl Joining {
    /// Joins the team for a client of this name. Fails if the name is in use, or the team cannot be used.
    pub(super) async fn join(
        &self,
        program: &str,
    ) -> Result<(Rc<Membership>, SignalStream), Failure> {
        let program = shown_program(program);
        let (role, role_file, limits) = self.role()?;
        let process = self.take_name(&program).await?;
        let (name, incarnation) = (process.name.clone(), process.incarnation.clone());
        reserve_disk_space(&self.team);
        let entry = HandEntry {
            role: role.clone(),
            role_file,
            incarnation,
            model: format!("{MODEL}{program}"),
            mode: String::new(),
            cwd: self.cwd.clone(),
            sandbox: None,
            team_name: self.settings.team_name.value.clone().map(String::from),
        };
        let place = RosterPlace::enter(&self.team, name, entry).await?;
        let usage = place.usage;
        let joined = self.open(process, &program, role, limits, usage).await;
        if joined.is_err() {
            place.give_back(&self.team).await;
        }
        joined
    }

    /// Returns the name of the role, its file and its limits. Fails for a role that is unclear.
    fn role(&self) -> Result<(String, Option<String>, Role), Failure> {
        match self.team.find_role(&self.role, find_by_alias) {
            RoleMatch::File(file) => {
                Ok((file.role.name.clone(), Some(file.path.display().to_string()), file.role))
            }
            RoleMatch::FreeText => Ok((self.role.clone(), None, Role::default())),
            RoleMatch::Unclear(why) => {
                Err(Failure::new(Exit::Usage, why.what(), why.why(), why.hint()))
            }
        }
    }

    /// Takes the life lock of the chosen name, or of the first free one for this program. A name that another member has
    /// had is not free: its conversation is of another kind.
    async fn take_name(&self, program: &str) -> Result<AgentProcess, Failure> {
        let roster = roster::read(&self.team)?;
        let is_foreign = |name: &AgentName| {
            roster.member(name.as_str()).is_some_and(|member| !member.model.starts_with(MODEL))
        };
        let chosen = self.name.iter().cloned();
        let found = names_for(program).filter(|name| !is_foreign(name));
        let found = found.take(if self.name.is_some() { 0 } else { NAMES });
        let mut last = None;
        for name in chosen.chain(found) {
            match AgentProcess::start(&self.team, name, fresh_id(), "hand", Vec::new()).await {
                Ok(mut process) => {
                    let record = process.life.record().clone();
                    let record = LifeRecord { outlives_membership: true, ..record };
                    let hint = "check the team folder's permissions and free space";
                    process.life.update(record).or_fail("the life lock cannot be written", hint)?;
                    return Ok(process);
                }
                Err(why) if why.exit == Exit::InUse => last = Some(why),
                Err(why) => return Err(why),
            }
        }
        Err(last.unwrap_or_else(|| {
            let what = format!("no name for {program} is free");
            Failure::new(Exit::InUse, what, "other members have them", "choose one with --as NAME")
        }))
    }

    /// Opens the mailbox and the tools of a member that has joined.
    async fn open(
        &self,
        process: AgentProcess,
        program: &str,
        role: String,
        limits: Role,
        usage: UsageCount,
    ) -> Result<(Rc<Membership>, SignalStream), Failure> {
        let AgentProcess { name, incarnation, run_id, life, signals, .. } = process;
        let rules = self.settings.rules();
        let bus = open_bus(self.team.clone(), rules);
        let (mailbox, life) = open_mailbox(&bus, life, rules).await?;
        let (status, changes) = unbounded_channel();
        let status = StatusSender(status);
        let commands = {
            let variables = self.environment.passed_on(&self.settings.pass_environment.value);
            command_setup(variables, run_id.clone(), self.hook_walls(&run_id).await?)
        };
        let hooks = Hooks {
            list: self.settings.hooks.value.clone(),
            me: name.clone(),
            workspace: self.team.workspace().to_owned(),
            setup: commands.clone(),
            leases: Some(self.team.clone()),
        };
        let (sends, me) = (rules.max_sends, name.clone());
        let team =
            TeamContext::new(me.clone(), incarnation.clone(), Arc::clone(&bus), sends, hooks);
        let team = Rc::new(team);
        let bag = RefCell::new(self.left_mail(&name)?);
        let mail = Rc::new_cyclic(|this| ServedMail {
            bus: Arc::clone(&bus),
            me,
            incarnation: incarnation.clone(),
            team: Rc::clone(&team),
            mailbox: Arc::new(Mutex::new(mailbox)),
            status: status.clone(),
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
            dir: self.team.clone(),
            name: name.clone(),
            redact: Rc::new(|text: String| (text, String::new())),
            clone: None,
            show_line: None,
        };
        let files = FileAccess::open(&self.team, &name, self.team.workspace(), None)
            .or_fail("the workspace cannot be opened", "check the folder's permissions")?;
        let handout = Rc::clone(&mail) as Rc<dyn tools::MailHandout>;
        let tasks = open_tasks(&bus);
        let parts = TeamToolParts { commands, output_store, files, team, tasks };
        let served = ServedModel { mail: handout, submits_plans: false };
        let registry = tools::registry(ToolParts::served(parts, served));
        registry.limit(limits);
        let clock = Rc::new(SystemClock);
        let reporter = StatusReporter::new(
            self.team.clone(),
            name.clone(),
            incarnation.clone(),
            clock,
            usage,
            None,
        );
        let model = format!("{MODEL}{program}");
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        mail.record([Entry::Session { incarnation, pid, model, foreign: None }]);
        let stop_publishing = Rc::new(Notify::new());
        let stop = Rc::clone(&stop_publishing);
        let publishing =
            status_task::publish(changes, reporter, async move { stop.notified().await });
        let publisher = RefCell::new(Some(tokio::task::spawn_local(publishing)));
        let claude = ClaudeInbox::find(&self.environment);
        tokio::task::spawn_local(hook_server::serve(Rc::clone(&mail), claude.is_some()));
        tokio::task::spawn_local(watch(Rc::clone(&mail), claude));
        tracing::info!(%name, program, "joined");
        let life = tokio::sync::Mutex::new(Some(life));
        let member = Membership { mail, role, registry, status, life, publisher, stop_publishing };
        Ok((Rc::new(member), signals))
    }

    /// Returns the mail that an earlier process has taken and not handed out.
    fn left_mail(&self, name: &AgentName) -> Result<Mailbag, StoreError> {
        let mut bag = Mailbag::new();
        let is_served = |model: &str| model.starts_with(MODEL);
        for (object, is_verified) in transcript::not_handed_out(&self.team, name, is_served)? {
            let message = Message::read(&object);
            if message.is_ok_and(|message| !message.body.is_for_program()) {
                bag.add(marked(&object, is_verified));
            }
        }
        Ok(bag)
    }

    /// Raises the walls around hooks; `None` if there are no hooks or no walls.
    async fn hook_walls(&self, run_id: &str) -> Result<Option<Arc<Walls>>, Failure> {
        if self.settings.hooks.value.is_empty() {
            return Ok(None);
        }
        let (wanted, origin) = (self.settings.sandbox(), LevelOrigin::of(&self.settings));
        let sandbox = walls::attainable(wanted, origin, &self.team, &self.environment).await?;
        walls::raise(&sandbox, &self.team, run_id, &self.environment)
    }
}

impl Membership {
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
        let model = MODEL.trim_end_matches('/').to_owned();
        self.mail.record([
            Entry::Assistant {
                blocks: vec![block],
                stop_reason: StopReason::ToolUse,
                usage: Usage::default(),
                model,
            },
            Entry::ToolStart { tool_use_id: id.clone(), name },
            Entry::ToolResult { tool_use_id: id, content, is_error, file: None },
        ]);
    }

    /// Waits until the member is asked to leave, then leaves.
    pub(super) async fn leave_when_asked(&self) {
        self.mail.leaving.notified().await;
        self.leave(Exit::Ok).await;
    }

    /// Leaves the team; if the member is leaving already, waits until it has left. If it was asked to leave, mail that
    /// arrived meanwhile is in the transcript, and the next answer has it.
    pub(super) async fn leave(&self, exit: Exit) {
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

/// Watches the inbox: wakes calls that wait for mail, acts on control mail, and writes mail to the session of Claude Code.
async fn watch(mail: Rc<ServedMail>, claude: Option<ClaudeInbox>) {
    let (events, mut inbound) = unbounded_channel();
    let watching = tokio::task::spawn_local(mail_watcher::watch(Arc::clone(&mail.mailbox), events));
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

/// Returns the name of a program for people: short, and without characters that are no part of a name.
fn shown_program(given: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = given
        .chars()
        .map(|c| if c == ' ' { '-' } else { c })
        .filter(fits)
        .take(PROGRAM_CHARS)
        .collect();
    if name.is_empty() { "client".into() } else { name }
}

/// Returns names of members for a program: its own, then with numbers.
fn names_for(program: &str) -> impl Iterator<Item = AgentName> {
    let lower = program.to_ascii_lowercase();
    let short = SHORT_NAMES.iter().find(|(begin, _)| lower.starts_with(begin));
    let base = short.map_or(lower.as_str(), |(_, name)| name);
    let base: String = base
        .chars()
        .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(*c))
        .take(28)
        .collect();
    let is_name = AgentName::member(&base).is_ok();
    let base = if is_name { base } else { "client".to_owned() };
    (1..).filter_map(move |number| {
        let name = if number == 1 { base.clone() } else { format!("{base}-{number}") };
        AgentName::member(&name).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_the_name_of_its_program_or_a_numbered_one() {
        for (program, names) in [
            ("claude-code", ["claude", "claude-2"]),
            ("Codex", ["codex", "codex-2"]),
            ("gemini-cli-mcp-client", ["gemini", "gemini-2"]),
            ("copilot-cli", ["copilot", "copilot-2"]),
            ("My Agent", ["my-agent", "my-agent-2"]),
            ("lead", ["client", "client-2"]),
            ("7up", ["client", "client-2"]),
            ("../../etc", ["etc", "etc-2"]),
            ("", ["client", "client-2"]),
        ] {
            let shown = shown_program(program);
            let found: Vec<String> =
                names_for(&shown).take(2).map(|name| name.to_string()).collect();
            assert_eq!(found, names, "{program}");
        }
        assert_eq!(names_for(&"x".repeat(90)).nth(98).unwrap().as_str().len(), 31);
    }
}
