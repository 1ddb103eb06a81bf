//! The start of a lead: from its options to an agent with a supervisor, ready for a session.

use super::ending::{EndedLoop, spawn_loop};
use super::options::LeadOptions;
use super::startup::{Place, RosterPlace, Startup, recover_team, take_place};
use super::{budget_watch::BudgetWatch, conversation::TakenUp, runtime::LeadRuntime};
use crate::agent::{MemberStart, progress::Progress};
use crate::app::agent_process::{AgentProcess, fresh_id};
use crate::app::build_agent::{AgentParts, build_agent, check_lead_rules, with_left_mail};
use crate::app::context::{Context, open_bus, open_tasks, teammate_environment};
use crate::app::own_mailbox::{make_inbox, open_mailbox};
use crate::app::walls::{self, LevelOrigin};
use crate::app::{clones, event_loop::SignalStream, model::open_provider};
use crate::bus::Bus;
use crate::error::{Exit, Failure, OrFail};
use crate::leases;
use crate::os::{Clock, SystemClock, program::TeammateProgram, wall::Walls};
use crate::protocol::restart::RestartTracker;
use crate::settings::granted::{GrantedFile, RulesOfLead};
use crate::settings::{Rules, Settings, last_lead::LastLead};
use crate::store::{Drained, LifeLock, Mailbox, StoreError, TeamDir};
use crate::store::{asynchronous::offload, roster, tail::Tail};
use crate::supervise::supervisor::{Supervisor, SupervisorConfig};
use crate::tasks::Tasks;
use crate::tools::{
    Ops, approval_queue::ApprovalQueue, command::command_setup, find, hooks::Hooks, team::PLAN_TOOL,
};
use crate::wire::log_words;
use crate::wire::permission::Permissions;
use crate::wire::{AgentName, WallTime};
use crate::wire::{budget::RunBudget, limits::RESTART_FIRST_PAUSE, message::Message};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// The variable with the first pause before a restart, in milliseconds. For tests; a release build ignores it.
const FIRST_PAUSE: &str = "TEAM_FIRST_PAUSE_MS";

/// A lead that holds its life lock and has its agent, before its session begins.
pub(super) struct LeadApp {
    pub(super) runtime: LeadRuntime,
    /// The loop of the lead's agent, which begins when the session waits for the first time.
    pub(super) agent: JoinHandle<EndedLoop>,
    pub(super) progress: UnboundedReceiver<Progress>,
    pub(super) signals: SignalStream,
    pub(super) budgets: BudgetWatch,
    pub(super) options: LeadOptions,
    pub(super) startup: Startup,
    /// Mail that an earlier lead had claimed and not shown.
    pub(super) unshown_mail: Vec<Message>,
    /// The life lock, held until the end: dropping it lets the next lead start.
    pub(super) life: LifeLock,
    /// The time at which `--timeout` passes, if there is one.
    pub(super) deadline: Option<Instant>,
}

impl LeadApp {
    /// Takes the lead's place in the folder, builds its parts, and starts the returning teammates. A start that fails
    /// leaves the roster as it was.
    pub(super) async fn start(
        context: &Context,
        team: &TeamDir,
        mut options: LeadOptions,
        deadline: Option<Instant>,
    ) -> Result<(Self, RosterPlace), Failure> {
        check_lead_rules(team, &options.permissions)?;
        let origin = LevelOrigin::of(&options.settings);
        options.sandbox =
            walls::attainable(options.sandbox, origin, team, &context.environment).await?;
        let bus = open_bus(team.clone(), options.settings.rules());
        let Place { process, entry, before, taken_up, usage } =
            before_timeout(deadline, take_place(&bus, &options)).await?;
        let recovery = recover_team(&bus, &options, before, taken_up, usage);
        let recovered = before_timeout(deadline, recovery).await;
        let built = match recovered {
            Ok(startup) => Self::build(context, bus, options, process, startup).await,
            Err(why) => Err(why),
        };
        match built {
            Ok(app) => Ok((Self { deadline, ..app }, entry)),
            Err(why) => {
                entry.give_back(team).await;
                Err(why)
            }
        }
    }

    /// Builds the parts, and starts the returning teammates.
    async fn build(
        context: &Context,
        bus: Arc<Bus>,
        mut options: LeadOptions,
        mut process: AgentProcess,
        mut startup: Startup,
    ) -> Result<Self, Failure> {
        let mut rules = options.settings.rules();
        let team = &bus.dir().clone();
        let found = startup.found.take().into_iter().chain(options.mode_note.clone());
        startup.found = found.reduce(|found, note| format!("{found}\n{note}"));
        let dir = team.clone();
        offload(move || make_inbox(&dir, &AgentName::user())).await?;
        let used_before = roster::read(team)?.used();
        let of_run = |tokens| RunBudget { tokens, before: used_before.tokens() };
        rules.run = options.request.budget.tokens.map(of_run);
        let of_team = Arc::clone(&bus);
        let tasks = offload(move || take_over_tasks(&of_team)).await;
        let granted = granted_rules(context, team, &process, &startup);
        options.permissions.granted = granted.now().allows();
        let LeadOptions { model, credentials, permissions, .. } = &options;
        let (me, conversation) = (&process, startup.conversation.as_deref());
        let provider =
            open_provider(model, credentials, &me.name, &me.incarnation, conversation, team)?;
        let walls = walls::raise(&options.sandbox, team, &process.run_id, &context.environment)?;
        let hooks = lead_hooks(context, &options, &process, team, walls.clone());
        let supervisor = new_supervisor(context, &options, rules, &process, &tasks, hooks)?;
        let approval_queue = new_queue(&bus, &process, permissions);
        let (events, inbound) = unbounded_channel();
        // Mail that an earlier lead had claimed: another conversation leaves it to the user, a resumed one drains it.
        let (mailbox, life) = open_mailbox(&bus, process.life, rules).await?;
        process.life = life;
        let (claimed, mailbox) = take_over_mail(mailbox, startup.taken_up.clone()).await?;
        // A script that reads the progress of a run gets all mail.
        let began_at = options.request.front.output().is_none().then(|| SystemClock.now());
        let (shown, progress) = unbounded_channel();
        let parts = AgentParts {
            process: &process,
            role: "lead".into(),
            role_file: None,
            start: MemberStart { reason: startup.start_reason.clone(), has_new_prompt: false },
            bus: Arc::clone(&bus),
            tasks: Arc::clone(&tasks),
            mailbox,
            provider,
            rules,
            hooks: supervisor.hooks(),
            mcp_servers: options.mcp_servers.clone(),
            pass_environment: options.settings.pass_environment.value.clone(),
            permissions: permissions.clone(),
            walls,
            frees_walled_commands: options.sandbox.frees_commands(),
            work: None,
            asks: options.approver(),
            model,
            agent: None,
            ops: Some(Ops { team: supervisor.ops(), approval_queue: Rc::clone(&approval_queue) }),
            usage: startup.usage,
            price: options.price,
            show: show_progress(shown, began_at),
        };
        let agent = build_agent(parts, &context.environment)?;
        let budgets = (options.request.budget, rules.budgets().team);
        let budgets =
            BudgetWatch::new(team.clone(), budgets, agent.budget.warnings.clone(), used_before);
        tracing::info!(%model, "lead started");
        supervisor.resume(&startup.returning).await?;
        tokio::task::spawn_local(Rc::clone(&supervisor).keep_watch());
        let AgentProcess { incarnation, signals, life, .. } = process;
        let runtime = LeadRuntime {
            bus,
            tasks,
            auto_claim: rules.auto_claim,
            supervisor,
            approval_queue,
            events: events.clone(),
            next_model: Rc::clone(&agent.next_model),
            incarnation,
            last_lead: Arc::new(LastLead::of(&context.environment, team.root())),
            rules: Rc::new(granted),
            unread_mail: Rc::new(RefCell::new(Tail::new(team.inbox(&AgentName::lead())))),
            next_session: Rc::default(),
        };
        if let Err(why) = runtime.keep().await {
            tracing::warn!(why, "`team permissions` shows the rules of an earlier lead");
        }
        runtime.record_mode(permissions.mode).await;
        Ok(Self {
            agent: spawn_loop(with_left_mail(agent).await, events, inbound),
            runtime,
            progress,
            signals,
            budgets,
            options,
            startup,
            unshown_mail: claimed.into_iter().filter(|mail| !is_old_news(mail, began_at)).collect(),
            life,
            deadline: None,
        })
    }
}

/// Begins the conversation that the lead has taken up. Returns the mail that an earlier lead had claimed and that is not
/// for this conversation.
async fn take_over_mail(
    mut mailbox: Mailbox,
    taken_up: TakenUp,
) -> Result<(Vec<Message>, Mailbox), StoreError> {
    let begin = move || {
        let claimed = match &taken_up {
            TakenUp::Current => Ok(Drained::default()),
            TakenUp::New => mailbox.start_anew(),
            TakenUp::Archived(path) => mailbox.continue_archived(path),
        };
        claimed.map(|claimed| (claimed.mail, mailbox))
    };
    let (claimed, mailbox) = offload(begin).await?;
    Ok((claimed.into_iter().map(|mail| *mail.message).collect(), mailbox))
}

/// Returns the function that shows the progress of the lead's agent. For a person, old news are left out: those from
/// before `began_at`.
fn show_progress(
    shown: UnboundedSender<Progress>,
    began_at: Option<WallTime>,
) -> Rc<dyn Fn(&Progress)> {
    Rc::new(move |progress| {
        if !matches!(progress, Progress::Mail(mail) if is_old_news(mail, began_at)) {
            // The agent continues even if its session no longer reads its progress.
            let _unread = shown.send(progress.clone());
        }
    })
}

/// Whether a message says that a member of an earlier process of the team rests or has ended. The lead's model may still
/// get it, but the person has seen that team end.
fn is_old_news(mail: &Message, began_at: Option<WallTime>) -> bool {
    let is_old = |sent: WallTime| began_at.is_some_and(|began| sent < began);
    mail.body.is_farewell() && mail.timestamp.is_some_and(is_old)
}

/// Does a step of the start. Fails when `--timeout` passes meanwhile.
async fn before_timeout<T>(
    deadline: Option<Instant>,
    step: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(deadline) = deadline else { return step.await };
    tokio::time::timeout_at(deadline.into(), step).await.unwrap_or_else(|_| {
        let what = "--timeout passed before the lead could start";
        let why = "it waited for the last team, for a running lead, or for a lock";
        let hint = "look with `team ls` for what still runs, or raise --timeout";
        Err(Failure::new(Exit::Timeout, what, why, hint))
    })
}

/// Opens the task list, and releases the tasks and the leases of owners that are dead.
fn take_over_tasks(bus: &Arc<Bus>) -> Arc<Tasks> {
    let tasks = open_tasks(bus);
    if let Err(why) = leases::release_abandoned(bus.dir()) {
        tracing::warn!(%why, "leases of dead owners are removed by the next claim");
    }
    match tasks.release_abandoned() {
        Ok(released) => {
            let tasks = log_words::listed(released.iter().map(|task| task.id));
            tracing::info!(tasks, "tasks of dead owners were released");
        }
        Err(why) => tracing::warn!(%why, "tasks of dead owners were not released"),
    }
    tasks
}

fn granted_rules(
    context: &Context,
    team: &TeamDir,
    process: &AgentProcess,
    startup: &Startup,
) -> RulesOfLead {
    let conversation = startup.conversation.as_deref().unwrap_or(&process.incarnation);
    let file = GrantedFile::of(&context.environment, team.root());
    RulesOfLead::of(file, &process.incarnation, conversation)
}

fn new_queue(
    bus: &Arc<Bus>,
    process: &AgentProcess,
    permissions: &Permissions,
) -> Rc<ApprovalQueue> {
    Rc::new(ApprovalQueue::new(
        Arc::clone(bus),
        process.incarnation.clone(),
        PLAN_TOOL,
        find,
        permissions.plan_approval,
        permissions.mode,
    ))
}

fn lead_hooks(
    context: &Context,
    options: &LeadOptions,
    process: &AgentProcess,
    team: &TeamDir,
    walls: Option<Arc<Walls>>,
) -> Hooks {
    let Settings { pass_environment, hooks, .. } = &options.settings;
    let variables = context.environment.passed_on(&pass_environment.value);
    Hooks {
        list: hooks.value.clone(),
        me: AgentName::lead(),
        workspace: team.workspace().to_owned(),
        setup: command_setup(variables, process.run_id.clone(), walls),
        leases: Some(team.clone()),
    }
}

fn new_supervisor(
    context: &Context,
    options: &LeadOptions,
    rules: Rules,
    process: &AgentProcess,
    tasks: &Arc<Tasks>,
    hooks: Hooks,
) -> Result<Rc<Supervisor>, Failure> {
    let (settings, environment) = (&options.settings, &context.environment);
    let further = &settings.pass_environment.value;
    let hint = "install `team`, `lead` and `teammate` side by side";
    let program = TeammateProgram::find().or_fail("the teammate program is missing", hint)?;
    let hung_after = Duration::from_secs(settings.hung_after.value);
    let first = environment.get(FIRST_PAUSE).and_then(|text| text.parse().ok());
    let first = first.filter(|_| cfg!(debug_assertions)).map(Duration::from_millis);
    let first_pause = first.unwrap_or(RESTART_FIRST_PAUSE);
    // The incarnation seeds the jitter of the pauses before restarts.
    let bytes = process.incarnation.bytes().map(u64::from);
    let seed = bytes.fold(7, |seed, byte| byte + 31_u64.wrapping_mul(seed));
    Ok(Supervisor::new(SupervisorConfig {
        bus: Arc::clone(tasks.bus()),
        tasks: Arc::clone(tasks),
        clock: Rc::new(SystemClock),
        program,
        max_teammates: settings.max_teammates.value,
        rules,
        hooks,
        mcp_servers: options.mcp_servers.clone(),
        prices: settings.prices(),
        agents: settings.agent_programs(environment),
        restarts: RefCell::new(RestartTracker::new(settings.restart.value, first_pause, seed)),
        hung_after: Some(hung_after).filter(|limit| !limit.is_zero()),
        model: RefCell::new(options.model.to_string()),
        model_aliases: settings.model_aliases(),
        permissions: RefCell::new(options.permissions.clone()),
        sandbox: options.sandbox.clone(),
        credentials: RefCell::new(options.credentials.clone()),
        environment: teammate_environment(environment, further),
        pass_environment: further.clone(),
        run_id: process.run_id.clone(),
        clones: clones::config(settings, &options.sandbox, tasks.dir(), environment),
        incarnation: Box::new(fresh_id),
    }))
}
