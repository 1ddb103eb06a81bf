//! Building an agent, in the same way for the lead and for teammates.

use crate::agent::Agent;
use crate::agent::approval::{ApprovalGate, Asks};
use crate::agent::budget::AgentBudget;
use crate::agent::heartbeat::HeartbeatWriter;
use crate::agent::identity::Identity;
use crate::agent::progress::Progress;
use crate::agent::prompt::{Briefing, Profile, system_prompt};
use crate::agent::status::StatusReporter;
use crate::bus::Bus;
use crate::error::{Exit, Failure, OrFail};
use crate::llm::{Provider, Redactor};
use crate::os::{Clock, SystemClock};
use crate::protocol::permission::Policy;
use crate::settings::environment::Environment;
use crate::settings::model::ModelChoice;
use crate::settings::{PromptProfile, Rules};
use crate::store::{Mailbox, RoleFile, TeamDir};
use crate::tasks::Tasks;
use crate::tools::command::{OutputStore, command_setup};
use crate::tools::hooks::Hooks;
use crate::tools::team::TeamContext;
use crate::tools::{self, FileAccess, Ops, ToolParts};
use crate::wire::AgentName;
use crate::wire::front_matter::Problem;
use crate::wire::hook::{Hook, HookEvent};
use crate::wire::money::Price;
use crate::wire::permission::Permissions;
use crate::wire::role::Role;
use crate::wire::roster::UsageCount;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The parts in which one agent differs from another.
pub(super) struct AgentParts {
    pub(super) name: AgentName,
    pub(super) role: String,
    /// Told to the model of an agent that has a past.
    pub(super) start_reason: Option<String>,
    pub(super) incarnation: String,
    /// In the environment of every command that the agent runs.
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

/// Builds the agent.
///
/// # Errors
/// The workspace cannot be opened, or a permission rule is not understood.
pub(super) fn build_agent(parts: AgentParts, environment: &Environment) -> Result<Agent, Failure> {
    let team = parts.bus.dir().clone();
    let clock: Rc<dyn Clock> = Rc::new(SystemClock);
    let secrets = Rc::new(parts.secrets);
    let role = read_role(&team, &parts.role);
    let profile = profile(parts.rules.prompt_profile, &parts.model);
    let commands = command_setup(environment.passed_on(), parts.run_id);
    let hooks = Hooks {
        list: parts.hooks,
        me: parts.name.clone(),
        workspace: team.workspace().to_owned(),
        setup: commands.clone(),
    };
    let me = identity(&parts.name, parts.incarnation.clone(), parts.rules, &role, &hooks);
    let approval = approval_gate(parts.permissions, parts.asks, &role)?;
    let system = system_prompt(&briefing(&team, &parts.name, &parts.role, &role, profile));
    let team_context = Rc::new(TeamContext::new(
        parts.name.clone(),
        parts.incarnation.clone(),
        Arc::clone(&parts.bus),
        parts.rules.max_sends,
        hooks,
    ));
    let output_store = {
        let secrets = Rc::clone(&secrets);
        let redact = Rc::new(move |text: String| secrets.part(&text));
        OutputStore { dir: team.clone(), name: parts.name.clone(), redact }
    };
    let files = FileAccess::open(team.workspace(), team.root())
        .or_fail("the workspace cannot be opened", "check the folder's permissions")?;
    let tool_parts = ToolParts {
        commands,
        output_store,
        files,
        team: Rc::clone(&team_context),
        tasks: Arc::clone(&parts.tasks),
        ops: parts.ops,
    };
    let mut tools = tools::registry(tool_parts);
    if profile == Profile::Compact {
        tools.use_compact_profile();
    }
    tools.limit(role);
    let heartbeat = HeartbeatWriter::new(
        &team,
        &parts.name,
        parts.incarnation.clone(),
        Rc::clone(&clock),
        parts.rules.heartbeat_interval(),
    );
    Ok(Agent {
        me,
        mailbox: Arc::new(Mutex::new(parts.mailbox)),
        provider: parts.provider,
        context_tokens: parts.rules.context_tokens.or(parts.model.spec().context_tokens),
        system,
        tools: Rc::new(tools),
        approval,
        team_context,
        bus: parts.bus,
        tasks: parts.tasks,
        budget: AgentBudget::of(parts.rules.budgets(), parts.rules.run, &parts.name),
        reporter: StatusReporter::new(
            team,
            parts.name,
            parts.incarnation,
            Rc::clone(&clock),
            parts.usage,
            parts.price,
        ),
        heartbeat,
        role: parts.role,
        start_reason: parts.start_reason,
        clock,
        secrets,
        show: parts.show,
    })
}

/// Reads the file of a role and logs its problems. A role without a file is free text.
fn read_role(team: &TeamDir, name: &str) -> Role {
    let Some(RoleFile { path, role, problems }) = team.role(name, tools::find_by_alias) else {
        return Role::default();
    };
    for Problem { line, what } in problems {
        tracing::warn!(file = %path.display(), line, what, "a role file has a problem");
    }
    role
}

fn profile(setting: PromptProfile, model: &ModelChoice) -> Profile {
    match setting {
        PromptProfile::Compact => Profile::Compact,
        PromptProfile::Auto if model.spec().has_small_models => Profile::Compact,
        PromptProfile::Full | PromptProfile::Auto => Profile::Full,
    }
}

fn identity(
    name: &AgentName,
    incarnation: String,
    rules: Rules,
    role: &Role,
    hooks: &Hooks,
) -> Identity {
    let is_teammate = !name.is_lead();
    Identity {
        name: name.clone(),
        incarnation,
        max_rounds: role.max_turns.map_or(rules.max_rounds, |turns| turns.min(rules.max_rounds)),
        max_exchanges: rules.max_exchanges,
        takes_tasks: is_teammate && rules.auto_claim,
        asks_idle_hook: is_teammate && hooks.are_there_for(HookEvent::TeammateIdle),
    }
}

/// A role can only refuse more than the permissions do.
fn approval_gate(
    permissions: Permissions,
    asks: Asks,
    role: &Role,
) -> Result<ApprovalGate, Failure> {
    let Permissions { mode, mut rules, timeout, plan_approval } = permissions;
    rules.deny.extend(role.denied_calls().cloned());
    let policy = Policy::new(mode, &rules).or_exit(
        Exit::Usage,
        "a permission rule is not understood",
        "correct it under [permissions], or in the file of the role",
    )?;
    Ok(ApprovalGate { policy, asks, timeout: Duration::from_secs(timeout), plan_approval })
}

fn briefing(
    team: &TeamDir,
    name: &AgentName,
    role_name: &str,
    role: &Role,
    profile: Profile,
) -> Briefing {
    let instructions = team.workspace_instructions(match profile {
        Profile::Full => 32 * 1024,
        Profile::Compact => 4 * 1024,
    });
    for problem in &instructions.problems {
        tracing::warn!(problem, "the instructions of the workspace are incomplete");
    }
    Briefing {
        profile,
        name: name.clone(),
        instructions: role.instructions.clone(),
        house_rules: instructions.text,
        role: role_name.to_owned(),
        workspace: team.workspace().display().to_string(),
    }
}
