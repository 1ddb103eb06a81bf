//! The parts of every lead: the supervisor of its teammates, its approvals, its task list, its mailbox. An agent
//! ([`super::lead_app`]) or the model of another program ([`super::program`]) leads with them.

use super::options::LeadOptions;
use super::startup::{Place, RosterPlace, Startup, recover_team, take_place};
use super::{conversation::TakenUp, runtime::LeadRuntime, upkeep};
use crate::agent::event::Event;
use crate::app::agent_process::AgentProcess;
use crate::app::build_agent::check_lead_rules;
use crate::app::context::{Context, open_bus, open_tasks};
use crate::app::host_relay;
use crate::app::own_mailbox::{make_inbox, open_mailbox};
use crate::app::supervisor_parts::{SupervisorParts, new_supervisor, team_hooks};
use crate::app::walls::{self, LevelOrigin};
use crate::bus::Bus;
use crate::error::{Exit, Failure};
use crate::leases;
use crate::os::wall::Walls;
use crate::settings::granted::{GrantedFile, RulesOfLead};
use crate::settings::{Rules, last_lead::LastLead};
use crate::store::{Drained, Mailbox, StoreError, TeamDir};
use crate::store::{asynchronous::offload, roster, tail::Tail};
use crate::supervise::supervisor::SupervisorRole;
use crate::tasks::Tasks;
use crate::tools::{approval_queue::ApprovalQueue, find, team::PLAN_TOOL};
use crate::wire::log_words;
use crate::wire::permission::Permissions;
use crate::wire::roster::UsageCount;
use crate::wire::{AgentName, budget::RunBudget, message::Message};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A lead that holds its life lock and is on the roster, before its model is there.
pub(super) struct LeadCore {
    pub(super) runtime: LeadRuntime,
    pub(super) process: AgentProcess,
    pub(super) mailbox: Mailbox,
    /// The events that are sent to the lead by [`LeadRuntime::send`].
    pub(super) inbound: UnboundedReceiver<Event>,
    pub(super) options: LeadOptions,
    pub(super) startup: Startup,
    pub(super) rules: Rules,
    pub(super) walls: Option<Arc<Walls>>,
    /// Mail that an earlier lead had claimed, and that is not for this conversation.
    pub(super) claimed: Vec<Message>,
    /// The usage of the team before this run.
    pub(super) used_before: UsageCount,
}

impl LeadCore {
    /// Takes the lead's place in the folder and builds the parts. A start that fails leaves the roster as it was.
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
            Ok(core) => Ok((core, entry)),
            Err(why) => {
                entry.give_back(team).await;
                Err(why)
            }
        }
    }

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
        let walls = walls::raise(&options.sandbox, team, &process.run_id, &context.environment)?;
        let hooks = team_hooks(context, &options.settings, &process.run_id, team, walls.clone());
        let parts = SupervisorParts {
            settings: &options.settings,
            rules,
            permissions: options.permissions.clone(),
            sandbox: options.sandbox.clone(),
            mcp_servers: options.mcp_servers.clone(),
            credentials: options.credentials.clone(),
            fallbacks: options.fallbacks.clone(),
            model: options.model_of_teammates(),
            hooks,
            run_id: process.run_id.clone(),
            incarnation: &process.incarnation,
            role: SupervisorRole::Lead(host_relay::program(&context.environment)),
        };
        let supervisor = new_supervisor(context, &tasks, parts)?;
        let approval_queue = new_queue(&bus, &process, &options.permissions);
        let (events, inbound) = unbounded_channel();
        // Mail that an earlier lead had claimed: another conversation leaves it to the user, a resumed one drains it.
        let (mailbox, life) = open_mailbox(&bus, process.life, rules).await?;
        process.life = life;
        let (claimed, mailbox) = take_over_mail(mailbox, startup.taken_up.clone()).await?;
        upkeep::begin(bus.dir(), &options.settings);
        let runtime = LeadRuntime {
            bus,
            tasks,
            auto_claim: rules.auto_claim,
            supervisor,
            approval_queue,
            events,
            next_models: Rc::default(),
            subagent_models: None,
            background: None,
            incarnation: process.incarnation.clone(),
            last_lead: Arc::new(LastLead::of(&context.environment, team.root())),
            rules: Rc::new(granted),
            unread_mail: Rc::new(RefCell::new(Tail::new(team.inbox(&AgentName::lead())))),
            next_session: Rc::default(),
        };
        Ok(Self {
            runtime,
            process,
            mailbox,
            inbound,
            options,
            startup,
            rules,
            walls,
            claimed,
            used_before,
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
