//! Starting a lead: from its options to an agent with a supervisor, ready for a session.

use super::budget_watch::BudgetWatch;
use super::ending::AgentLoop;
use super::options::{LeadOptions, approver};
use super::request::RunLimits;
use super::runtime::LeadRuntime;
use super::startup::{LeadPlace, Startup};
use crate::agent::progress::Progress;
use crate::app::agent_process::{AgentProcess, fresh_id};
use crate::app::build_agent::{AgentParts, build_agent};
use crate::app::context::Context;
use crate::app::failpoints;
use crate::app::own_mailbox::{ensure_inbox, open_mailbox};
use crate::app::provider::{Conversation, open_provider};
use crate::app::signal_stream::SignalStream;
use crate::app::team_rules::open_bus;
use crate::bus::Bus;
use crate::error::{Failure, OrFail};
use crate::llm::Provider;
use crate::os::SystemClock;
use crate::os::program::TeammateProgram;
use crate::protocol::restart::RestartLimits;
use crate::settings::Rules;
use crate::settings::environment::Environment;
use crate::settings::model::ModelChoice;
use crate::store::asynchronous::offload;
use crate::store::{LifeLock, Mailbox, TeamDir, roster};
use crate::supervise::config::{RestartConfig, SupervisorConfig};
use crate::supervise::supervisor::Supervisor;
use crate::tasks::Tasks;
use crate::tools::approval_queue::ApprovalQueue;
use crate::tools::can_complete_tasks;
use crate::tools::command::CommandEnvironment;
use crate::tools::hooks::Hooks;
use crate::tools::team::{Ops, submit_plan};
use crate::wire::AgentName;
use crate::wire::budget::RunBudget;
use crate::wire::message::Message;
use crate::wire::restart::RestartPolicy;
use std::cell::RefCell;
use std::io::IsTerminal;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Milliseconds of the first pause before a restart, for tests; a release build ignores it.
const FIRST_PAUSE: &str = "TEAM_FIRST_PAUSE_MS";

/// A lead that has its place and its agent, before its session begins.
pub(super) struct LeadApp {
    pub(super) runtime: LeadRuntime,
    pub(super) agent: AgentLoop,
    pub(super) progress: UnboundedReceiver<Progress>,
    pub(super) signals: SignalStream,
    pub(super) budgets: BudgetWatch,
    pub(super) opening: Opening,
    /// Held until the end: dropping it gives the place to the next lead.
    pub(super) life: LifeLock,
}

/// What a session begins with.
pub(super) struct Opening {
    pub(super) prompt: Option<String>,
    pub(super) model: ModelChoice,
    pub(super) is_fallback_model: bool,
    pub(super) timeout: Option<Duration>,
    /// What was found of an earlier team.
    pub(super) found: Option<String>,
    /// The last text of a resumed conversation.
    pub(super) last_text: String,
    /// Mail that an earlier lead had claimed and not shown.
    pub(super) unshown_mail: Vec<Message>,
}

impl LeadApp {
    /// Takes the lead's place in the folder, then builds the parts of the lead and starts the teammates
    /// that come back.
    pub(super) async fn start(
        context: &Context,
        team: &TeamDir,
        options: LeadOptions,
    ) -> Result<Self, Failure> {
        let mut rules = options.settings.rules();
        let bus = Arc::new(open_bus(team.clone(), rules));
        let place = LeadPlace::take(&bus, &options).await?;
        let (mut process, startup) = place.enter(&bus, &options).await?;
        ensure_inbox(team, AgentName::user()).await?;
        let used_before = roster::read(team)?.used();
        let of_run = |tokens| RunBudget { tokens, before: used_before.tokens() };
        rules.run = options.limits.max_tokens.map(of_run);
        let tasks = open_tasks(&bus);
        let conversation = Conversation {
            agent: AgentName::lead(),
            incarnation: &process.incarnation,
            first_incarnation: startup.conversation.as_deref(),
        };
        let provider = open_provider(&options.model, &options.credentials, &conversation, team)?;
        let supervisor = new_supervisor(context, &options, rules, &process, &bus, &tasks)?;
        let approval_queue = Rc::new(ApprovalQueue::new(
            Arc::clone(&bus),
            process.incarnation.clone(),
            submit_plan::NAME,
            options.permissions.plan_approval,
            options.permissions.mode,
        ));
        let (events, inbound) = unbounded_channel();
        let runtime = LeadRuntime {
            bus,
            tasks,
            auto_claim: rules.auto_claim,
            supervisor,
            approval_queue,
            events: events.clone(),
            incarnation: process.incarnation.clone(),
        };
        let lead = NewLead { options: &options, rules, runtime: &runtime };
        let (mailbox, unshown_mail, life) = lead.open_mailbox(process.life).await?;
        process.life = life;
        let (parts, progress) = lead.agent_parts(&process, &startup, provider, mailbox);
        let agent = build_agent(parts, &context.environment)?;
        let budgets = BudgetWatch::new(
            team.clone(),
            options.limits,
            rules.budgets().team,
            used_before,
            agent.budget.warnings(),
        );
        tracing::info!(model = %options.model, "lead started");
        runtime.supervisor.resume(&startup.returning).await?;
        tokio::task::spawn_local(Rc::clone(&runtime.supervisor).keep_watch());
        let LeadOptions { prompt, model, is_fallback_model, limits, .. } = options;
        let RunLimits { timeout, .. } = limits;
        let Startup { found, last_text, .. } = startup;
        Ok(Self {
            runtime,
            agent: AgentLoop { agent, events, inbound },
            progress,
            signals: process.signals,
            budgets,
            opening: Opening {
                prompt,
                model,
                is_fallback_model,
                timeout,
                found,
                last_text,
                unshown_mail,
            },
            life: process.life,
        })
    }
}

/// Opens the task list; tasks of dead owners become pending again.
fn open_tasks(bus: &Arc<Bus>) -> Arc<Tasks> {
    let tasks = Arc::new(Tasks::new(Arc::clone(bus), Arc::new(SystemClock), can_complete_tasks));
    let released = tasks.release_abandoned();
    tracing::info!(?released, "tasks of dead owners were released");
    tasks
}

/// Makes the supervisor of the team's processes.
fn new_supervisor(
    context: &Context,
    options: &LeadOptions,
    rules: Rules,
    process: &AgentProcess,
    bus: &Arc<Bus>,
    tasks: &Arc<Tasks>,
) -> Result<Rc<Supervisor>, Failure> {
    let settings = &options.settings;
    let program = TeammateProgram::find().or_fail(
        "the teammate program is missing",
        "install `team`, `lead` and `teammate` side by side",
    )?;
    let hung_after = Duration::from_secs(settings.hung_after.value);
    let commands = CommandEnvironment::new(context.environment.passed_on(), process.run_id.clone());
    let workspace = bus.dir().workspace().to_owned();
    Ok(Supervisor::new(SupervisorConfig {
        bus: Arc::clone(bus),
        tasks: Arc::clone(tasks),
        clock: Rc::new(SystemClock),
        program,
        max_teammates: settings.max_teammates.value,
        rules,
        hooks: Hooks::new(settings.hooks.value.clone(), AgentName::lead(), workspace, commands),
        prices: settings.prices(),
        restart: restart_config(&context.environment, settings.restart.value, &process.incarnation),
        hung_after: Some(hung_after).filter(|limit| !limit.is_zero()),
        model: options.model.to_string(),
        permissions: RefCell::new(options.permissions.clone()),
        credentials: options.credentials.clone(),
        environment: failpoints::teammate_environment(&context.environment),
        run_id: process.run_id.clone(),
        incarnation: Box::new(fresh_id),
    }))
}

/// Decides how teammates that crash are started again. The incarnation seeds the jitter of the pauses.
fn restart_config(
    environment: &Environment,
    policy: RestartPolicy,
    incarnation: &str,
) -> RestartConfig {
    let mut limits = RestartLimits::default();
    let first = environment.get(FIRST_PAUSE).and_then(|text| text.parse().ok());
    if let Some(first) = first.filter(|_| cfg!(debug_assertions)) {
        limits.first = Duration::from_millis(first);
    }
    let seed =
        incarnation.bytes().map(u64::from).fold(7, |seed, byte| byte + 31_u64.wrapping_mul(seed));
    RestartConfig { policy, limits, seed }
}

/// The parts from which the lead's agent is built.
struct NewLead<'a> {
    options: &'a LeadOptions,
    rules: Rules,
    runtime: &'a LeadRuntime,
}

impl NewLead<'_> {
    /// Opens the lead's mailbox. A new conversation gets the mail that an earlier lead had claimed and
    /// not shown as a list for the user; a resumed one drains it as usual.
    async fn open_mailbox(
        &self,
        life: LifeLock,
    ) -> Result<(Mailbox, Vec<Message>, LifeLock), Failure> {
        let (mut mailbox, life) = open_mailbox(self.runtime.team(), life, self.rules).await?;
        if self.options.resume {
            return Ok((mailbox, Vec::new(), life));
        }
        let (claimed, mailbox) = offload(move || (mailbox.start_anew(), mailbox)).await;
        let unshown = claimed?.mail.into_iter().map(|mail| *mail.message).collect();
        Ok((mailbox, unshown, life))
    }

    fn agent_parts(
        &self,
        process: &AgentProcess,
        startup: &Startup,
        provider: Rc<dyn Provider>,
        mailbox: Mailbox,
    ) -> (AgentParts, UnboundedReceiver<Progress>) {
        let Self { options, runtime, .. } = self;
        let (shown, progress) = unbounded_channel::<Progress>();
        let parts = AgentParts {
            name: AgentName::lead(),
            role: "lead".into(),
            start_reason: startup.start_reason.clone(),
            incarnation: process.incarnation.clone(),
            run_id: process.run_id.clone(),
            bus: Arc::clone(&runtime.bus),
            tasks: Arc::clone(&runtime.tasks),
            mailbox,
            provider,
            rules: self.rules,
            hooks: runtime.supervisor.hooks(),
            permissions: options.permissions.clone(),
            asks: approver(options.output.is_some(), std::io::stdin().is_terminal()),
            model: options.model.clone(),
            ops: Some(Ops {
                team: runtime.supervisor.ops(),
                approval_queue: Rc::clone(&runtime.approval_queue),
            }),
            usage: startup.usage,
            price: options.price,
            secrets: process.secrets.clone(),
            show: Rc::new(move |progress| {
                // The agent works on when its session has stopped watching.
                let _unwatched = shown.send(progress.clone());
            }),
        };
        (parts, progress)
    }
}
