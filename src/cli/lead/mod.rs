//! `team lead`: takes the lead's startup in a folder, runs the agent, and sees the team out at the end.

mod commands;
mod headless;
mod interactive;
mod questions;
mod startup;
mod user_mail;
mod watchdog;

use super::args::LeadArgs;
use super::build_agent::{
    LETTING_GO, Parts, assemble, block_on, broken, fresh_word, keep_reserve, last_mail, let_go,
    open_mailbox, redactor, start_log, take_name,
};
use super::context::{Context, flags, open_bus, permissions, store_failure};
use super::failpoints;
use super::local;
use super::out;
use super::provider::{Life, provider_for};
use super::signal_stream::SignalStream;
use crate::agent::approval::Asks;
use crate::agent::budget::Warnings;
use crate::agent::event::{Ending, Event, StopCause};
use crate::agent::progress::Progress;
use crate::agent::{self, Agent, Events};
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::llm::ModelError;
use crate::os::failpoint::hit;
use crate::os::program::{self, TeammateProgram};
use crate::os::{SystemClock, limits, process_tree};
use crate::protocol::budget::BudgetLimit;
use crate::protocol::restart::RestartLimits;
use crate::settings::Settings;
use crate::settings::model::{self, Credentials, ModelChoice, price_of};
use crate::store::liveness::LifeError;
use crate::store::{LifeRecord, Mailbox, TeamDir, roster};
use crate::supervise::config::{RestartConfig, SupervisorConfig};
use crate::supervise::stop::StopOutcome;
use crate::supervise::supervisor::Supervisor;
use crate::tasks::Tasks;
use crate::tools::approval_queue::ApprovalQueue;
use crate::tools::can_complete_tasks;
use crate::tools::command::CommandEnvironment;
use crate::tools::hooks::Hooks;
use crate::tools::team::Ops;
use crate::ui;
use crate::ui::headless_output::Format;
use crate::wire::AgentName;
use crate::wire::budget::{Budget, RunBudget};
use crate::wire::message::Message;
use crate::wire::permission::Permissions;
use crate::wire::roster::{ExitCause, Status, UsageCount};
use startup::Earlier;
use std::cell::RefCell;
use std::io::{IsTerminal, Read};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use watchdog::Source;

/// Milliseconds of the first pause before a restart, for tests; a release build does not look.
const FIRST_PAUSE: &str = "TEAM_FIRST_PAUSE_MS";

/// How every session with the rehearsal model begins.
pub(super) const REHEARSAL_BANNER: &str = "REHEARSAL MODEL: this is not a language model. It \
    understands short commands and turns them into real tool calls.";

/// What the lead was started with.
struct Start {
    prompt: Option<String>,
    output: Option<Format>,
    settings: Settings,
    permissions: Permissions,
    model: ModelChoice,
    credentials: Credentials,
    limits: RunLimits,
    /// Nothing was configured: the rehearsal model stands in, and says so.
    fallback: bool,
    /// Go on with the last team.
    resume: bool,
    /// End the lead that runs here first.
    takeover: bool,
}

/// What ends a run by force.
#[derive(Debug, Clone, Copy)]
struct RunLimits {
    timeout: Option<Duration>,
    max_turns: Option<u64>,
    max_tokens: Option<u64>,
}

pub(super) fn run(context: &Context, args: &LeadArgs) -> Result<Exit, Failure> {
    context.refuse_inside("lead")?;
    program::name_this_process("lead");
    let prompt = match args.prompt.as_deref() {
        Some("-") if args.print => Some(read_stdin()?),
        Some(text) => Some(text.to_owned()),
        None if args.print && !args.resume => {
            return Err(Failure::new(
                Exit::Usage,
                "-p needs a prompt",
                "nothing was given to do",
                "team lead -p \"Spawn alice (coder). Ask her to list the files.\", or - for stdin",
            ));
        }
        None => None,
    };
    let settings = context.settings(&flags(&args.model))?;
    let permissions = permissions(&settings)?;
    settings.ignored.iter().for_each(|ignored| out::complain(ignored));
    let mut named = model::resolve(&settings, &context.environment)?.map(|setting| setting.value);
    if named.is_none() && args.resume {
        named = last_model(context);
    }
    if named.is_none() && !args.print {
        named = local::offer(&settings)?;
    }
    let fallback = named.is_none();
    let model = choose_model(named, args.print)?;
    let credentials = Credentials::of(&settings, &context.environment);
    let (model, credentials) = local::find(model, credentials, &settings)?;
    let start = Start {
        prompt,
        output: args.print.then_some(args.output),
        settings,
        permissions,
        model,
        credentials,
        limits: RunLimits {
            timeout: args.timeout,
            max_turns: args.max_turns,
            max_tokens: args.max_tokens,
        },
        fallback,
        resume: args.resume,
        takeover: args.takeover,
    };
    let price = start.settings.prices().get(&start.model.to_string()).copied();
    price_of(&start.model, price, &start.settings.rules().budgets())?;
    let team = context.make_team()?;
    block_on(live(context, &team, start))?
}

/// The model of the team that goes on, when nothing names another one.
fn last_model(context: &Context) -> Option<ModelChoice> {
    let lead = roster::read(&context.team().ok()?).ok()?.lead.clone()?;
    ModelChoice::parse(&lead.model).ok()
}

fn read_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|why| {
        let hint = "pipe UTF-8 text into the command";
        Failure::new(Exit::Usage, "the prompt cannot be read", why.to_string(), hint)
    })?;
    if text.trim().is_empty() {
        let hint = "pipe a prompt into the command";
        return Err(Failure::new(Exit::Usage, "the prompt is empty", "stdin had no text", hint));
    }
    Ok(text)
}

/// The model in force.
pub(super) fn choose_model(
    named: Option<ModelChoice>,
    headless: bool,
) -> Result<ModelChoice, Failure> {
    match named {
        Some(model) => Ok(model),
        None if headless => Err(Failure::new(
            Exit::NoModel,
            "no model is configured",
            "there is no --model, TEAM_MODEL, `model` in settings, ANTHROPIC_API_KEY or OPENAI_API_KEY",
            "set one of the keys, or add --model rehearsal to try the program without a model",
        )),
        None => Ok(ModelChoice::Rehearsal),
    }
}

/// Somebody holds the name.
pub(super) fn life_failure(why: &LifeError) -> Failure {
    match why {
        LifeError::InUse { name, record } if name.is_lead() => Failure::new(
            Exit::InUse,
            "a lead is already running in this folder",
            describe(why, record.as_deref()),
            "talk to that one, take its startup with `team lead --takeover`, or work in another folder",
        ),
        LifeError::InUse { name, record } => Failure::new(
            Exit::InUse,
            format!("{name} is already running"),
            describe(why, record.as_deref()),
            format!("choose another name, or stop it with `team stop {name}`"),
        ),
        LifeError::File(_) => {
            let hint = "check the team folder's permissions and free space";
            Failure::new(Exit::Failure, "the life lock cannot be taken", why.to_string(), hint)
        }
    }
}

fn describe(why: &LifeError, record: Option<&LifeRecord>) -> String {
    match record {
        None => why.to_string(),
        Some(record) => {
            format!("pid {}, since {}", record.pid, ui::view::date(record.started_at))
        }
    }
}

/// A lead that has its startup and its parts, before it runs.
struct LeadRuntime {
    team: TeamDir,
    bus: Arc<Bus>,
    tasks: Arc<Tasks>,
    source: Source,
    supervisor: Rc<Supervisor>,
    approval_queue: Rc<ApprovalQueue>,
    agent: Agent,
    events: Events,
    inbound: mpsc::UnboundedReceiver<Event>,
    signals: SignalStream,
    /// What an earlier team left, for the user.
    found: Option<String>,
    /// What an earlier lead said last, when its conversation goes on.
    last_words: String,
    /// Mail that an earlier lead had claimed and not shown.
    before: Vec<Message>,
    limits: RunLimits,
    standing: Standing,
    model: ModelChoice,
    fallback: bool,
    prompt: Option<String>,
}

/// What the team may use, whatever the run.
struct Standing {
    budget: Budget,
    /// What everybody had used before this run.
    used_before: UsageCount,
    /// Those that the lead's agent gives, too.
    warnings: Warnings,
}

/// How a run ended, before the exit code is made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The user quit, or everybody was done.
    Done,
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM, SIGHUP, or the terminal is gone.
    Terminated,
    /// `--timeout`.
    Timeout,
    /// A budget is used up.
    Budget(BudgetLimit),
}

async fn live(context: &Context, team: &TeamDir, start: Start) -> Result<Exit, Failure> {
    let me = AgentName::lead();
    let (incarnation, run_id) = (fresh_word(), fresh_word());
    let mut rules = start.settings.rules();
    let prices = start.settings.prices();
    let price = prices.get(&start.model.to_string()).copied();
    let bus = Arc::new(open_bus(team.clone(), rules));
    let earlier = Earlier::of(team).map_err(store_failure)?;
    if start.takeover {
        startup::take_over(&bus).await?;
    }
    let life = take_name(team, &me, &incarnation, &run_id, "hand")?;
    let signals = SignalStream::begin()?;
    let secrets = redactor(&start.credentials);
    start_log(team, &me, &secrets)?;
    adopt_orphans();
    limits::raise_descriptors();
    keep_secrets(&start.credentials);
    keep_reserve(team);
    let startup = startup::enter(&bus, &start, &incarnation, earlier).await?;
    super::build_agent::ensure_inbox(team, &AgentName::user())?;
    let used_before = roster::read(team).map_err(store_failure)?.used();
    let of_run = |tokens| RunBudget { tokens, before: used_before.tokens() };
    rules.run = start.limits.max_tokens.map(of_run);
    let tasks = Arc::new(Tasks::new(Arc::clone(&bus), Arc::new(SystemClock), can_complete_tasks));
    let released = tasks.release_abandoned();
    tracing::info!(?released, "looked for tasks of the dead");
    let conversation = startup.conversation.as_deref().unwrap_or(&incarnation);
    let own = Life { incarnation: &incarnation, conversation };
    let provider = provider_for(&start.model, &start.credentials, &me, own, team)?;
    let supervisor = Supervisor::new(SupervisorConfig {
        bus: Arc::clone(&bus),
        tasks: Arc::clone(&tasks),
        clock: Rc::new(SystemClock),
        program: TeammateProgram::find().map_err(|why| {
            let hint = "install `team`, `lead` and `teammate` side by side";
            Failure::new(Exit::Failure, "the teammate program is missing", why.to_string(), hint)
        })?,
        max_teammates: start.settings.max_teammates.value,
        rules,
        hooks: Hooks::new(
            start.settings.hooks.value.clone(),
            me.clone(),
            team.workspace().to_owned(),
            CommandEnvironment::new(context.environment.passed_on(), run_id.clone()),
        ),
        prices,
        restart: restart(context, &start.settings, &incarnation),
        hung_after: Some(Duration::from_secs(start.settings.hung_after.value))
            .filter(|limit| !limit.is_zero()),
        model: start.model.to_string(),
        permissions: RefCell::new(start.permissions.clone()),
        credentials: start.credentials.clone(),
        environment: failpoints::passed_on(&context.environment),
        run_id: run_id.clone(),
        incarnation: Box::new(fresh_word),
    });
    let approval_queue = Rc::new(ApprovalQueue::new(
        Arc::clone(&bus),
        incarnation.clone(),
        start.permissions.plan_approval,
        start.permissions.mode,
    ));
    let mut mailbox = open_mailbox(team, &me, &life, rules)?;
    // What an earlier lead had claimed belongs to the old conversation: it is put away with it, or it
    // goes on.
    let before = if start.resume {
        Vec::new()
    } else {
        let before = mailbox.start_anew().map_err(store_failure)?;
        before.mail.into_iter().map(|mail| *mail.message).collect()
    };
    let (events, inbound) = mpsc::unbounded_channel();
    let (shown, progress) = mpsc::unbounded_channel::<Progress>();
    let parts = Parts {
        name: me.clone(),
        role: "lead".into(),
        start_reason: startup.start_reason,
        incarnation,
        run_id,
        bus: Arc::clone(&bus),
        tasks: Arc::clone(&tasks),
        mailbox,
        provider,
        rules,
        hooks: supervisor.hooks(),
        permissions: start.permissions.clone(),
        asks: whom_to_ask(start.output),
        model: start.model.clone(),
        ops: Some(Ops { team: supervisor.ops(), approval_queue: Rc::clone(&approval_queue) }),
        usage: startup.usage,
        price,
        secrets,
        show: Rc::new(move |progress| {
            // Whoever watched has gone: the work goes on unseen.
            let _unseen = shown.send(progress.clone());
        }),
    };
    let agent = assemble(parts, &context.environment)?;
    let standing =
        Standing { budget: rules.budgets().team, used_before, warnings: agent.budget.warnings() };
    let source = if rules.auto_claim { Source::Tasks(Arc::clone(&tasks)) } else { Source::Mail };
    tracing::info!(model = %start.model, "lead started");
    supervisor.resume(&startup.returning).await.map_err(store_failure)?;
    tokio::task::spawn_local(Rc::clone(&supervisor).keep_watch());
    let runtime = LeadRuntime {
        team: team.clone(),
        bus,
        tasks,
        source,
        supervisor,
        approval_queue,
        agent,
        events,
        inbound,
        signals,
        found: startup.found,
        last_words: startup.last_words,
        before,
        limits: start.limits,
        standing,
        model: start.model,
        fallback: start.fallback,
        prompt: start.prompt,
    };
    let exit = match start.output {
        Some(output) => headless::run(context, runtime, progress, output).await,
        None => interactive::run(context, runtime, progress).await,
    };
    drop(life);
    exit
}

/// Who decides about the lead's own calls. Nobody is asked where nobody can answer.
fn whom_to_ask(output: Option<Format>) -> Asks {
    if output.is_some() {
        Asks::Nobody("in a headless run (-p) nobody can be asked".into())
    } else if std::io::stdin().is_terminal() {
        Asks::Person
    } else {
        Asks::Nobody("standard input is no terminal, so nobody can be asked".into())
    }
}

/// How teammates that crash are started again.
fn restart(context: &Context, settings: &Settings, incarnation: &str) -> RestartConfig {
    let mut limits = RestartLimits::default();
    // Tests of crash loops need not last half a minute.
    let first = context.environment.get(FIRST_PAUSE).and_then(|text| text.parse().ok());
    if let Some(first) = first.filter(|_| cfg!(debug_assertions)) {
        limits.first = Duration::from_millis(first);
    }
    let seed =
        incarnation.bytes().map(u64::from).fold(7, |seed, byte| byte + 31_u64.wrapping_mul(seed));
    RestartConfig { policy: settings.restart.value, limits, seed }
}

/// The end of the lead's agent loop, with what is needed to close up.
struct Ended {
    finished: agent::Finished,
    mailbox: Arc<Mutex<Mailbox>>,
}

impl Ended {
    /// Why the run is over when nobody but the agent ended it.
    fn reason(&self) -> Reason {
        match self.finished.ending {
            Ending::Stopped(StopCause::Budget(limit)) => Reason::Budget(limit),
            Ending::Stopped(_) | Ending::Broken(_) => Reason::Done,
        }
    }
}

/// Runs the agent's loop to its end.
async fn run_agent(agent: Agent, events: Events, inbound: mpsc::UnboundedReceiver<Event>) -> Ended {
    let mailbox = Arc::clone(&agent.mailbox);
    let finished = agent::run(agent, events, inbound, || {}).await;
    Ended { finished, mailbox }
}

/// Sees the team out, takes in its last mail, and says the last word in the roster.
async fn close(supervisor: &Supervisor, ended: Ended, reason: Reason) -> Closed {
    let cause = match reason {
        Reason::Budget(_) => ExitCause::Budget,
        Reason::Done | Reason::Interrupted | Reason::Terminated | Reason::Timeout => {
            ExitCause::TeamStopped
        }
    };
    hit("lead.closing");
    let departures = supervisor.stop_all("the team is being stopped", cause).await;
    hit("lead.alone");
    let last_mail = last_mail(&ended.mailbox).mail.into_iter().map(|mail| *mail.message).collect();
    let_go(ended.mailbox, LETTING_GO).await;
    let why = broken(&ended.finished).map(ToOwned::to_owned);
    let mut reporter = ended.finished.reporter;
    let status = if why.is_some() { Status::Failed } else { Status::Shutdown };
    if let Err(why) = reporter.publish_end(status, 0, cause).await {
        tracing::error!(%why, "the roster could not be told of the end");
    }
    let model_error = ended.finished.model_error;
    tracing::info!(?reason, "lead ends");
    Closed { why, model_error, departures, last_mail }
}

/// What is known when all is over.
struct Closed {
    /// The lead could not go on.
    why: Option<String>,
    /// The last model call failed.
    model_error: Option<ModelError>,
    /// How the teammates went.
    departures: Vec<StopOutcome>,
    /// What came while the team was being stopped.
    last_mail: Vec<Message>,
}

/// The exit code of a lead (SPEC 6).
fn exit_code(reason: Reason, closed: &Closed, last_turn_failed: bool) -> Exit {
    match reason {
        Reason::Interrupted => Exit::Interrupted,
        Reason::Terminated => Exit::Terminated,
        Reason::Timeout => Exit::Timeout,
        Reason::Budget(_) => Exit::Budget,
        Reason::Done if closed.why.is_some() => Exit::Failure,
        Reason::Done => match &closed.model_error {
            Some(ModelError::Credentials(_)) => Exit::NoModel,
            Some(ModelError::Unavailable(_) | ModelError::SpendCap(_)) => Exit::ModelUnavailable,
            Some(ModelError::ContextFull(_) | ModelError::Rejected(_) | ModelError::Script(_)) => {
                Exit::TurnFailed
            }
            None if last_turn_failed => Exit::TurnFailed,
            None => Exit::Ok,
        },
    }
}

/// What commands leave behind comes to this process, which ends it.
pub(super) fn adopt_orphans() {
    if let Err(why) = process_tree::become_subreaper() {
        tracing::warn!(%why, "orphans of commands cannot be adopted");
    }
}

/// A process that holds a key cannot be looked into by others of the same user.
pub(super) fn keep_secrets(credentials: &Credentials) {
    if !credentials.secrets().is_empty()
        && let Err(why) = program::forbid_inspection()
    {
        tracing::warn!(%why, "other processes of this user can read this one's memory");
    }
}

/// Asks the lead's own loop to end.
fn end_loop(events: &Events) {
    // The loop may have ended by itself already.
    let _ended = events.send(Event::Stop(StopCause::AtOnce));
}
