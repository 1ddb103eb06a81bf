//! The supervisor of a host: it carries out the orders of other hosts. It starts teammates for a lead on another host, starts
//! them again after a crash, stops them, and ends them if that lead is not heard for too long.
//!
//! The relay starts it for an order. It outlives the relay, whose connection may break at any time, and ends by itself when
//! it has no teammate and no order.

mod keys;
mod lead_watch;
mod orders;

use super::agent_process::{fresh_id, start_log_at};
use super::context::{Context, open_bus, open_tasks};
use super::event_loop::{SignalStream, block_on};
use super::fallbacks::{self, Fallbacks};
use super::mcp_servers;
use super::permission_rules::permissions;
use super::stop_members::stop_plan;
use super::supervisor_parts::{SupervisorParts, new_supervisor, team_hooks};
use super::walls::{self, LevelOrigin};
use crate::error::{Exit, Failure};
use crate::llm::{Redactor, Secret};
use crate::os::async_fd::ReadableFd;
use crate::os::spawn::spawn_local;
use crate::os::{process_tree, program};
use crate::protocol::ladder::Urgency;
use crate::settings::Flags;
use crate::settings::model::{self, ProviderCredentials};
use crate::store::TeamDir;
use crate::store::asynchronous::offload;
use crate::store::change_watcher::ChangeWatcher;
use crate::store::relay::{HostSupervisorLock, open_host_supervisor_log};
use crate::supervise::recover::{self, EarlierTeam};
use crate::supervise::supervisor::SupervisorRole;
use crate::wire::AgentName;
use crate::wire::log_words;
use crate::wire::roster::ExitCause;
use keys::ReceivedKeys;
use lead_watch::LeadWatch;
use orders::{HostSupervisor, Orders, has_own_lead};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The time without a teammate and without an order after which the process ends.
const IDLE_FOR: Duration = Duration::from_secs(5);

/// The period of its checks.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The name of the process in `ps`.
const PROCESS_NAME: &str = "team-supervise";

/// Serves a team folder until there is nothing to do. Another supervisor of the folder makes this one end at once.
pub(crate) fn run(context: &Context) -> Result<Exit, Failure> {
    context.refuse_inside_agent("supervise")?;
    program::name_this_process(PROCESS_NAME);
    let team = context.team()?;
    let Some(_lock) = HostSupervisorLock::take(&team)? else { return Ok(Exit::Ok) };
    block_on(serve(context, &team))?
}

async fn serve(context: &Context, team: &TeamDir) -> Result<Exit, Failure> {
    let mut signals = SignalStream::begin()?;
    let (host, lead_away) = start(context, team).await?;
    let orders = Orders::new(Rc::clone(&host));
    let watcher = ChangeWatcher::of_orders(team)
        .and_then(|watcher| Ok((ReadableFd::to_read(&watcher)?, watcher)));
    let watcher =
        watcher.inspect_err(|why| tracing::warn!(%why, "no file events: files are polled"));
    let mut lead = LeadWatch::new(lead_away);
    let mut busy = Instant::now();
    spawn_local(Rc::clone(&host.supervisor).keep_watch());
    spawn_local(keys::receive(team.clone(), Rc::clone(&host.keys)));
    tracing::info!(pid = std::process::id(), "the supervisor of this host serves");
    let why = loop {
        orders.begin_new().await;
        if orders.are_open() || host.supervisor.has_teammates() {
            busy = Instant::now();
        } else if busy.elapsed() > IDLE_FOR {
            break "there is nothing to do";
        }
        let lead_team = team.clone();
        if lead.is_gone(offload(move || lead_watch::sign_of_lead(&lead_team)).await)
            && host.supervisor.has_teammates()
        {
            break "the lead was not heard for too long";
        }
        let changed = async {
            match &watcher {
                Ok((ready, watcher)) => {
                    drop(ready.woken().await);
                    watcher.acknowledge().unwrap_or_default();
                }
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(CHECK_EVERY) => {}
            _ = signals.next() => break "it was told to",
        }
    };
    // The lead has not ordered it, so it is told.
    keys::close(team);
    let outcomes = host.supervisor.stop_all(why, ExitCause::LeadLost).await;
    let stuck = outcomes.iter().filter(|it| it.is_stuck()).map(|it| &it.name);
    tracing::info!(why, stuck = log_words::listed(stuck), "the supervisor of this host ends");
    Ok(Exit::Ok)
}

/// Builds the supervisor by the settings of this host, and ends what an earlier one has left. Returns it with the time after
/// which an unheard lead counts as gone.
async fn start(
    context: &Context,
    team: &TeamDir,
) -> Result<(Rc<HostSupervisor>, Duration), Failure> {
    let settings = context.settings_with(&Flags::default())?;
    let (run_id, incarnation) = (fresh_id(), fresh_id());
    let credentials = ProviderCredentials::of(&settings, &context.environment);
    let Fallbacks { models: fallbacks, credentials, .. } =
        fallbacks::resolve(&settings, credentials)?;
    let keys = credentials.secrets().into_iter().chain(context.environment.proxy_passwords());
    let secrets = Redactor::new(keys.flat_map(Secret::new));
    start_log_at(open_host_supervisor_log(team)?, PROCESS_NAME, &secrets);
    if let Err(why) = process_tree::become_subreaper() {
        tracing::warn!(%why, "orphans of commands cannot be adopted");
    }
    if let Err(why) = program::forbid_inspection() {
        tracing::warn!(%why, "other processes of this user can read this one's memory");
    }
    program::raise_descriptors();
    let (permissions, warnings) = permissions(context, &settings)?;
    for why in warnings.iter().chain(&settings.ignored) {
        tracing::warn!(why, "a setting of this host is not in force");
    }
    let origin = LevelOrigin::of(&settings);
    let sandbox = walls::attainable(settings.sandbox(), origin, team, &context.environment).await?;
    let walls = walls::raise(&sandbox, team, &run_id, &context.environment)?;
    let named = model::resolve(&settings, &context.environment)?.map(|it| it.value.to_string());
    let bus = open_bus(team.clone(), settings.rules());
    let tasks = open_tasks(&bus);
    let own_access = credentials.clone();
    let parts = SupervisorParts {
        rules: settings.rules(),
        permissions,
        sandbox,
        mcp_servers: mcp_servers::resolve(context, &settings),
        credentials,
        fallbacks,
        model: named.clone(),
        hooks: team_hooks(context, &settings, &run_id, team, walls),
        run_id,
        incarnation: &incarnation,
        role: SupervisorRole::Host,
        settings: &settings,
    };
    let supervisor = new_supervisor(context, &tasks, parts)?;
    if !has_own_lead(team) {
        let (reason, cause) = ("the supervisor of your host is gone", ExitCause::LeadLost);
        let plan = stop_plan(&bus, AgentName::lead(), reason, cause, Urgency::Now);
        recover::recover(&plan, EarlierTeam::default()).await?;
    }
    let lead_away = Duration::from_secs(settings.lead_away.value);
    Ok((
        Rc::new(HostSupervisor {
            bus,
            supervisor,
            own_model: named,
            keys: Rc::new(ReceivedKeys::new(settings, context.environment.clone(), own_access)),
            spawning: Mutex::new(()),
            preparing: Mutex::new(()),
        }),
        lead_away,
    ))
}
