//! The supervisor of teammates as a lead, or the supervisor of a host, makes it from its settings.

use super::agent_process::fresh_id;
use super::clones;
use super::context::{Context, teammate_environment};
use crate::error::{Failure, OrFail};
use crate::os::wall::Walls;
use crate::os::{SystemClock, program::OwnProgram};
use crate::protocol::restart::RestartTracker;
use crate::settings::model::{ModelChoice, ProviderCredentials};
use crate::settings::{Rules, Settings, models::KnownModels};
use crate::store::TeamDir;
use crate::supervise::supervisor::{Supervisor, SupervisorConfig, SupervisorRole};
use crate::tasks::Tasks;
use crate::tools::command::command_setup;
use crate::tools::hooks::Hooks;
use crate::wire::AgentName;
use crate::wire::limits::RESTART_FIRST_PAUSE;
use crate::wire::mcp::NamedMcpServer;
use crate::wire::permission::Permissions;
use crate::wire::sandbox::Sandbox;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The variable with the first pause before a restart, in milliseconds. For tests; a release build ignores it.
const FIRST_PAUSE: &str = "TEAM_FIRST_PAUSE_MS";

/// The settings of a process that supervises, and what follows from them.
pub(super) struct SupervisorParts<'a> {
    pub(super) settings: &'a Settings,
    pub(super) rules: Rules,
    pub(super) permissions: Permissions,
    pub(super) sandbox: Sandbox,
    pub(super) mcp_servers: Vec<NamedMcpServer>,
    pub(super) credentials: ProviderCredentials,
    pub(super) fallbacks: Vec<ModelChoice>,
    /// The model of teammates for which none is named.
    pub(super) model: Option<String>,
    pub(super) hooks: Hooks,
    pub(super) run_id: String,
    pub(super) incarnation: &'a str,
    pub(super) role: SupervisorRole,
}

/// Makes the hooks that a process which supervises runs in the name of the lead.
pub(super) fn team_hooks(
    context: &Context,
    settings: &Settings,
    run_id: &str,
    team: &TeamDir,
    walls: Option<Arc<Walls>>,
) -> Hooks {
    let Settings { pass_environment, hooks, .. } = settings;
    let variables = context.environment.passed_on(&pass_environment.value);
    Hooks {
        list: hooks.value.clone(),
        me: AgentName::lead(),
        workspace: team.workspace().to_owned(),
        setup: command_setup(variables, run_id.to_owned(), walls),
        leases: Some(team.clone()),
    }
}

/// Makes the supervisor. Fails if this program, which teammates run too, cannot be opened.
pub(super) fn new_supervisor(
    context: &Context,
    tasks: &Arc<Tasks>,
    parts: SupervisorParts<'_>,
) -> Result<Rc<Supervisor>, Failure> {
    let SupervisorParts { settings, sandbox, credentials, .. } = parts;
    let environment = &context.environment;
    let further = &settings.pass_environment.value;
    let program = OwnProgram::open().or_fail("cannot open this program", "is /proc mounted?")?;
    let hung_after = Duration::from_secs(settings.hung_after.value);
    let first = environment.get(FIRST_PAUSE).and_then(|text| text.parse().ok());
    let first = first.filter(|_| cfg!(debug_assertions)).map(Duration::from_millis);
    let first_pause = first.unwrap_or(RESTART_FIRST_PAUSE);
    // The incarnation seeds the jitter of the pauses before restarts.
    let bytes = parts.incarnation.bytes().map(u64::from);
    let seed = bytes.fold(7, |seed, byte| byte + 31_u64.wrapping_mul(seed));
    Ok(Supervisor::new(SupervisorConfig {
        bus: Arc::clone(tasks.bus()),
        tasks: Arc::clone(tasks),
        clock: Rc::new(SystemClock),
        program,
        max_teammates: settings.max_teammates.value,
        rules: parts.rules,
        hooks: parts.hooks,
        mcp_servers: parts.mcp_servers,
        known: RefCell::new(KnownModels::of(settings, &credentials)),
        fallbacks: parts.fallbacks,
        agents: settings.agent_programs(environment),
        restarts: RefCell::new(RestartTracker::new(settings.restart.value, first_pause, seed)),
        hung_after: Some(hung_after).filter(|limit| !limit.is_zero()),
        model: RefCell::new(parts.model),
        model_aliases: settings.model_aliases(),
        permissions: RefCell::new(parts.permissions),
        clones: clones::config(settings, &sandbox, tasks.dir(), environment),
        sandbox,
        credentials: RefCell::new(credentials),
        environment: teammate_environment(environment, further),
        pass_environment: further.clone(),
        role: parts.role,
        run_id: parts.run_id,
        incarnation: Box::new(fresh_id),
    }))
}
