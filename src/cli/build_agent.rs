//! Putting an agent together, the same way for the lead and for teammates.

use super::context::{durability, store_failure};
use crate::agent::approval::{ApprovalGate, Asks};
use crate::agent::budget::AgentBudget;
use crate::agent::heartbeat::HeartbeatWriter;
use crate::agent::identity::{AutoClaim, Identity, IdleHook};
use crate::agent::progress::Progress;
use crate::agent::prompt::{Briefing, Profile, system_prompt};
use crate::agent::status::StatusReporter;
use crate::agent::{Agent, Finished};
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::llm::Provider;
use crate::llm::{Redactor, Secret};
use crate::os::{Clock, SystemClock, command, memory};
use crate::protocol::permission::Policy;
use crate::settings::environment::Environment;
use crate::settings::model::{Credentials, ModelChoice};
use crate::settings::{PromptProfile, Rules};
use crate::store::liveness::LifeLock;
use crate::store::{
    Drained, LifeRecord, MailPolicy, Mailbox, RoleFile, SettleResult, StoreError, TeamDir,
    Transcript, inbox,
};
use crate::tasks::Tasks;
use crate::tools::command::{CommandEnvironment, OutputStore};
use crate::tools::hooks::Hooks;
use crate::tools::team::{Ops, TeamContext};
use crate::tools::{self, ToolParts};
use crate::wire::AgentName;
use crate::wire::front_matter::Problem;
use crate::wire::hook::{Hook, HookEvent};
use crate::wire::money::Price;
use crate::wire::permission::Permissions;
use crate::wire::role::Role;
use crate::wire::roster::UsageCount;
use std::fs::File;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the claims of a closing mailbox are waited for in an orderly end; the writer barrier needs
/// about one second.
pub(super) const LETTING_GO: Duration = Duration::from_secs(2);

/// How long cancelled commands are waited for at the end.
const ENDING_COMMANDS: Duration = Duration::from_secs(3);

/// How long a thread that waited for a lock or the disk is kept for the next time: through a turn, no longer.
const KEPT_THREADS: Duration = Duration::from_millis(500);

/// Tokens that fit the models behind the Messages API; those of others show it when they refuse.
const ANTHROPIC_CONTEXT: u64 = 200_000;

/// What makes one agent different from another.
pub(super) struct Parts {
    pub(super) name: AgentName,
    pub(super) role: String,
    /// What the model is told about this start if it has a past.
    pub(super) start_reason: Option<String>,
    pub(super) incarnation: String,
    /// Carried by every command it runs, so that none can outlive it unseen.
    pub(super) run_id: String,
    pub(super) bus: Arc<Bus>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) mailbox: Mailbox,
    pub(super) provider: Rc<dyn Provider>,
    pub(super) rules: Rules,
    pub(super) hooks: Vec<Hook>,
    pub(super) permissions: Permissions,
    pub(super) asks: Asks,
    pub(super) model: ModelChoice,
    pub(super) ops: Option<Ops>,
    pub(super) usage: UsageCount,
    pub(super) price: Option<Price>,
    pub(super) secrets: Redactor,
    pub(super) show: Rc<dyn Fn(&Progress)>,
}

/// The agent.
pub(super) fn assemble(parts: Parts, environment: &Environment) -> Result<Agent, Failure> {
    let team = parts.bus.dir().clone();
    let clock: Rc<dyn Clock> = Rc::new(SystemClock);
    let commands = CommandEnvironment::new(environment.passed_on(), parts.run_id);
    let hooks = {
        let workspace = team.workspace().to_owned();
        Hooks::new(parts.hooks, parts.name.clone(), workspace, commands.clone())
    };
    let keeps_from_rest = !parts.name.is_lead() && hooks.are_there_for(HookEvent::TeammateIdle);
    let team_context = {
        let (name, incarnation) = (parts.name.clone(), parts.incarnation.clone());
        let bus = Arc::clone(&parts.bus);
        Rc::new(TeamContext::new(name, incarnation, bus, parts.rules.max_sends, hooks))
    };
    let secrets = Rc::new(parts.secrets);
    let output_store = {
        let secrets = Rc::clone(&secrets);
        OutputStore::new(team.clone(), parts.name.clone(), move |text: String| secrets.part(&text))
    };
    let tool_parts = ToolParts::new(&team_context, &parts.tasks, parts.ops, commands, output_store)
        .map_err(|why| {
            let what = "the workspace cannot be opened";
            Failure::new(Exit::Failure, what, why.to_string(), "check the folder's permissions")
        })?;
    let mut tools = tools::registry(&tool_parts);
    let role = role_of(&team, &parts.role);
    let takes_tasks = parts.rules.auto_claim && !parts.name.is_lead();
    let profile = profile(parts.rules.prompt_profile, &parts.model);
    let house_rules = team.workspace_instructions(match profile {
        Profile::Full => 32 * 1024,
        Profile::Compact => 4 * 1024,
    });
    for problem in &house_rules.problems {
        tracing::warn!(problem, "the instructions of the workspace are not all told");
    }
    if profile == Profile::Compact {
        tools.use_compact_profile();
    }
    let context_tokens = parts.rules.context_tokens.or(match &parts.model {
        ModelChoice::Anthropic(_) => Some(ANTHROPIC_CONTEXT),
        ModelChoice::OpenAi(_)
        | ModelChoice::Local(_)
        | ModelChoice::Rehearsal
        | ModelChoice::Script(_) => None,
    });
    let briefing = Briefing {
        profile,
        name: parts.name.clone(),
        instructions: role.instructions.clone(),
        house_rules: house_rules.text,
        role: parts.role.clone(),
        workspace: team.workspace().display().to_string(),
    };
    let most = parts.rules.max_rounds;
    let me = Identity {
        name: parts.name.clone(),
        incarnation: parts.incarnation.clone(),
        max_rounds: role.max_turns.map_or(most, |turns| turns.min(most)),
        max_exchanges: parts.rules.max_exchanges,
        idle_hook: if keeps_from_rest { IdleHook::Asked } else { IdleHook::Free },
        auto_claim: if takes_tasks { AutoClaim::TakesTasks } else { AutoClaim::Asked },
    };
    let mut rules = parts.permissions.rules;
    rules.deny.extend(role.denied_calls().cloned());
    let policy = Policy::new(parts.permissions.mode, &rules).map_err(|why| {
        let what = "a permission rule is not understood";
        let hint = "correct it under [permissions], or in the file of the role";
        Failure::new(Exit::Usage, what, why.to_string(), hint)
    })?;
    tools.limit(role);
    let approval = {
        let timeout = Duration::from_secs(parts.permissions.timeout);
        ApprovalGate::new(policy, parts.asks, timeout, parts.permissions.plan_approval)
    };
    let heartbeat = HeartbeatWriter::new(
        &team,
        &parts.name,
        parts.incarnation.clone(),
        Rc::clone(&clock),
        parts.rules.heartbeat_interval(),
    );
    let budget = AgentBudget::of(parts.rules.budgets(), parts.rules.run, &parts.name);
    let (usage, price) = (parts.usage, parts.price);
    let reporter =
        StatusReporter::new(team, parts.name, parts.incarnation, Rc::clone(&clock), usage, price);
    Ok(Agent {
        me,
        mailbox: Arc::new(Mutex::new(parts.mailbox)),
        provider: parts.provider,
        context_tokens,
        system: system_prompt(&briefing),
        tools: Rc::new(tools),
        approval,
        team_context,
        bus: parts.bus,
        tasks: parts.tasks,
        reporter,
        budget,
        heartbeat,
        role: parts.role,
        start_reason: parts.start_reason,
        clock,
        secrets,
        show: parts.show,
    })
}

/// What a file says about a role; what is wrong with it is logged. A role may be free text.
fn role_of(team: &TeamDir, name: &str) -> Role {
    let Some(RoleFile { path, role, problems }) = team.role(name, tools::find_by_alias) else {
        return Role::default();
    };
    for Problem { line, what } in problems {
        tracing::warn!(file = %path.display(), line, what, "a role file has a problem");
    }
    role
}

fn profile(asked: PromptProfile, model: &ModelChoice) -> Profile {
    match (asked, model) {
        (PromptProfile::Compact, _) | (PromptProfile::Auto, ModelChoice::Local(_)) => {
            Profile::Compact
        }
        (PromptProfile::Full | PromptProfile::Auto, _) => Profile::Full,
    }
}

/// The mailbox of the holder of `life`, with its inbox.
pub(super) fn open_mailbox(
    team: &TeamDir,
    name: &AgentName,
    life: &LifeLock,
    rules: Rules,
) -> Result<Mailbox, Failure> {
    ensure_inbox(team, name)?;
    let policy =
        MailPolicy { fsync: durability(rules.fsync), max_content: rules.max_message_bytes };
    let open = || -> Result<Mailbox, StoreError> {
        let transcript = Transcript::open(team, name)?;
        Mailbox::open(team, life, transcript, policy, Arc::new(SystemClock))
    };
    open().map_err(store_failure)
}

/// Makes the inbox of a name that becomes known.
pub(super) fn ensure_inbox(team: &TeamDir, name: &AgentName) -> Result<(), Failure> {
    inbox::ensure(team, name).map_err(|why| {
        let what = format!("the inbox of {name} is not usable");
        let hint = "check the team folder's permissions and free space";
        Failure::new(Exit::Failure, what, why.to_string(), hint)
    })
}

/// Keeps room on the disk for the end of the team.
pub(super) fn keep_reserve(team: &TeamDir) {
    if let Err(why) = team.keep_reserve() {
        tracing::warn!(%why, "no room is kept for the end; the disk is nearly full");
    }
}

/// Takes a name for this process.
pub(super) fn take_name(
    team: &TeamDir,
    name: &AgentName,
    incarnation: &str,
    run_id: &str,
    started_by: &str,
) -> Result<LifeLock, Failure> {
    let record = LifeRecord {
        incarnation: incarnation.into(),
        run_id: run_id.into(),
        started_at: SystemClock.now(),
        started_by: started_by.into(),
        ..LifeRecord::of_this_process()
    };
    LifeLock::take(team, name, record).map_err(|why| super::lead::life_failure(&why))
}

/// After an agent's loop: takes in what still came. What cannot be taken in waits for the next start.
pub(super) fn last_mail(mailbox: &Mutex<Mailbox>) -> Drained {
    let drained = mailbox.lock().unwrap_or_else(PoisonError::into_inner).drain();
    drained.unwrap_or_else(|why| {
        tracing::warn!(%why, "mail is left for the next start");
        Drained::default()
    })
}

/// Closes a mailbox whose mail was acted on: removes its claims. Bounded, and harmless when it cannot
/// finish: what is left is recovered at the next start.
pub(super) async fn let_go(mailbox: Arc<Mutex<Mailbox>>, patience: Duration) {
    let settle = || -> Result<SettleResult, StoreError> {
        let mut mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.mark_taken()?;
        mailbox.settle()
    };
    let give_up = tokio::time::Instant::now() + patience;
    loop {
        match settle() {
            Ok(SettleResult::Again { after }) if tokio::time::Instant::now() < give_up => {
                tokio::time::sleep(after).await;
            }
            // A late line stays in its claim, which the next start takes in.
            Ok(SettleResult::Again { .. } | SettleResult::Grown | SettleResult::Done) => return,
            Err(why) => {
                tracing::warn!(%why, "claims are left for the next start");
                return;
            }
        }
    }
}

/// What an agent's loop left behind, for the caller's last words.
pub(super) fn broken(finished: &Finished) -> Option<&str> {
    match &finished.ending {
        crate::agent::event::Ending::Broken(why) => Some(why),
        crate::agent::event::Ending::Stopped(_) => None,
    }
}

/// What must not be repeated of these credentials.
pub(super) fn redactor(credentials: &Credentials) -> Redactor {
    Redactor::new(credentials.secrets().into_iter().flat_map(Secret::new))
}

/// Begins this process's structured log. Known secrets never reach it.
pub(super) fn start_log(
    team: &TeamDir,
    name: &AgentName,
    secrets: &Redactor,
) -> Result<(), Failure> {
    let file = team.open_log(name).map_err(store_failure)?;
    let writer = LogWriter { file: Arc::new(file), redactor: Arc::new(secrets.clone()) };
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    // A second log in one process would be a bug of ours; the first one stays.
    let _first_wins = tracing::subscriber::set_global_default(subscriber);
    let name = name.to_string();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!(name, %panic, "panicked");
    }));
    Ok(())
}

#[derive(Clone)]
struct LogWriter {
    file: Arc<File>,
    redactor: Arc<Redactor>,
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        (&*self.file).write_all(self.redactor.redact(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The single-threaded runtime an agent runs on.
pub(super) fn block_on<F: Future>(main: F) -> Result<F::Output, Failure> {
    memory::use_one_heap();
    // A local runtime: a local set's wakes would go through the kernel.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(KEPT_THREADS)
        .build_local(tokio::runtime::LocalOptions::default());
    let runtime = runtime.map_err(|why| {
        let hint = "close other programs, or raise the limit on open files";
        Failure::new(Exit::Failure, "the event loop cannot be started", why.to_string(), hint)
    })?;
    let mark = crate::os::event_loop::EventLoopMark::set();
    let output = runtime.block_on(main);
    drop(mark);
    // A command that was cancelled a moment ago is still being ended.
    if !command::settle(ENDING_COMMANDS) {
        tracing::warn!("a cancelled command has not ended yet");
    }
    // Threads still waiting for a lock or a terminal must not keep the process.
    runtime.shutdown_background();
    Ok(output)
}

/// A fresh random word: an incarnation or a run_id.
pub(super) fn fresh_word() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}
