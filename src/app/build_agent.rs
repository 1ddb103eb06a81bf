//! Builds an agent, in the same way for the lead and for teammates.

use super::agent_process::AgentProcess;
use super::skills::skills_of;
use super::subagent_models::SubagentModels;
use super::{clones, mcp_servers};
use crate::agent::MemberStart;
use crate::agent::approval::{ApprovalGate, Asks};
use crate::agent::foreign::process::{AgentSetup, ForeignSetup};
use crate::agent::identity::Identity;
use crate::agent::model_chain::AgentModels;
use crate::agent::prompt::{Briefing, Profile, system_prompt};
use crate::agent::subagent::{SubagentBriefing, SubagentParts, Subagents};
use crate::agent::{
    Agent, budget::AgentBudget, heartbeat::HeartbeatWriter, progress::Progress,
    status::StatusReporter,
};
use crate::bus::Bus;
use crate::error::{Exit, Failure, OrFail};
use crate::llm::Redactor;
use crate::os::command::CommandSetup;
use crate::os::{Clock, SystemClock, wall::Walls};
use crate::protocol::permission::Policy;
use crate::settings::environment::{Environment, PassedNames};
use crate::settings::{PromptProfile, Rules, model::ModelChoice};
use crate::store::agent_places::AgentPlaces;
use crate::store::asynchronous::offload;
use crate::store::tool_pins::ToolPins;
use crate::store::{Mailbox, RoleFile, RoleMatch, TeamDir, instructions};
use crate::tasks::Tasks;
use crate::tools::command::{BackgroundCommands, OutputStore, command_setup, outbox::send_left};
use crate::tools::{
    self, CommandTurn, FileAccess, McpSetup, McpTools, NestedInstructions, NestedLimits, Ops,
    ReadLimits, Registry, SubagentOps, ToolParts, denied_files, guarded_files, hooks::Hooks,
    replay::Stage, team_context::TeamContext,
};
use crate::undo::apply::recover;
use crate::wire::agent_program::AgentProgram;
use crate::wire::hook::Hook;
use crate::wire::isolation::ClonePlace;
use crate::wire::{
    AgentName,
    front_matter::Problem,
    mcp::NamedMcpServer,
    money::Price,
    permission::{GrantedAllow, PermissionMode, Permissions, RuleLists},
    role::Role,
    roster::UsageCount,
};
use crate::work::save::Saver;
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The maximum number of roles that the lead's prompt lists, and of characters of each line.
const ROLES_LISTED: usize = 40;
const COMPACT_ROLES_LISTED: usize = 10;
const ROLE_CHARS: usize = 200;

/// The maximum size of the instructions of the workspace in a prompt, in bytes.
pub(super) const PROMPT_BYTES: usize = 32 * 1024;

pub(super) struct AgentParts<'a> {
    pub(super) process: &'a AgentProcess,
    pub(super) role: String,
    /// The file of the role, if it has one.
    pub(super) role_file: Option<String>,
    pub(super) start: MemberStart,
    pub(super) bus: Arc<Bus>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) mailbox: Mailbox,
    /// The models that do its work.
    pub(super) models: AgentModels,
    pub(super) rules: Rules,
    pub(super) hooks: Vec<Hook>,
    pub(super) mcp_servers: Vec<NamedMcpServer>,
    /// The names of further variables that its commands get.
    pub(super) pass_environment: PassedNames,
    pub(super) permissions: Permissions,
    /// The walls around its commands and hooks.
    pub(super) walls: Option<Arc<Walls>>,
    /// Whether its commands run without a question, since walls contain them.
    pub(super) frees_walled_commands: bool,
    /// The clone in which it works; `None` for the workspace.
    pub(super) work: Option<Arc<Saver>>,
    pub(super) asks: Asks,
    pub(super) model: &'a ModelChoice,
    pub(super) subagent_models: Rc<SubagentModels>,
    /// The program of the foreign agent that does its work.
    pub(super) agent: Option<AgentProgram>,
    pub(super) ops: Option<Ops>,
    pub(super) usage: UsageCount,
    pub(super) show: Rc<dyn Fn(&Progress)>,
    /// The record that it plays again.
    pub(super) stage: Option<Rc<dyn Stage>>,
}

/// Returns the store of long output, which also shows the newest line of a running command.
fn output_store(
    team: &TeamDir,
    name: &AgentName,
    place: Option<&ClonePlace>,
    secrets: &Rc<Redactor>,
    show: &Rc<dyn Fn(&Progress)>,
) -> OutputStore {
    let (secrets, show) = (Rc::clone(secrets), Rc::clone(show));
    OutputStore {
        dir: team.clone(),
        name: name.clone(),
        redact: Rc::new(move |text: String| secrets.part(&text)),
        clone: place.map(|it| PathBuf::from(&it.path)),
        show_line: Some(Rc::new(move |line| show(&Progress::ToolOutput(line.to_owned())))),
    }
}

/// Builds the agent. Fails if the workspace cannot be opened, or a permission rule is invalid.
pub(super) fn build_agent(
    parts: AgentParts<'_>,
    environment: &Environment,
) -> Result<Agent, Failure> {
    let AgentParts { rules, bus, tasks, model, .. } = parts;
    let AgentProcess { name, incarnation, run_id, secrets, .. } = parts.process;
    let team = bus.dir().clone();
    let clock: Rc<dyn Clock> = Rc::new(SystemClock);
    let secrets = Rc::new(secrets.clone());
    let role = read_role(&team, name, &parts.role, parts.role_file.as_deref())?;
    let profile = profile(rules.prompt_profile, model);
    let variables = variables(&parts.pass_environment, &team, environment, parts.work.is_some());
    let place = parts.work.as_ref().map(|work| work.place.clone());
    let folder = place.as_ref().map_or_else(|| team.workspace(), |place| Path::new(&place.folder));
    let commands = command_setup(variables, run_id.clone(), parts.walls);
    let setup = commands.clone();
    let leases = place.is_none().then(|| team.clone());
    let hooks = hooks(parts.hooks, name, folder, commands.clone(), leases);
    let me = identity(name, incarnation, &role, &rules, parts.agent.as_ref());
    let mode = parts.permissions.mode;
    let servers = mcp_servers::of_agent(parts.mcp_servers, name, (&parts.role, &role));
    let permissions = mcp_servers::with_allowed(parts.permissions, &servers);
    let mut approval = approval_gate(permissions, parts.asks, &role, name)?;
    // A foreign agent runs its commands itself, without walls.
    approval.policy.free_walled_commands(parts.frees_walled_commands && parts.agent.is_none());
    let (files, limits) =
        open_files((&team, name), folder, place.as_ref(), &commands, &approval.policy)?;
    let room = (profile, instruction_bytes(profile));
    let skills = skills_of(folder, environment, &role, &limits, room);
    let rules_of_house = house_rules(&team, profile, &limits);
    let of_subagents = SubagentBriefing {
        workspace: folder.display().to_string(),
        house_rules: rules_of_house.clone(),
        skill_bytes: instruction_bytes(profile),
    };
    let has_subagents = profile == Profile::Full && parts.agent.is_none();
    let shared = (&bus, &clock, &secrets, &parts.show);
    let subagents =
        has_subagents.then(|| subagents(&me, shared, parts.subagent_models, of_subagents, &rules));
    let system = system_prompt(&Briefing {
        profile,
        skills: skills.list,
        roles: if name.is_lead() { role_list(&team, profile) } else { String::new() },
        name: name.clone(),
        instructions: format!("{}{}", role.instructions, skills.of_role).trim().to_owned(),
        house_rules: rules_of_house,
        role: parts.role.clone(),
        workspace: folder.display().to_string(),
        clone_of: place.as_ref().map(|place| (place.repository.clone(), place.branch.clone())),
    });
    let (run, my_bus) = (incarnation.clone(), Arc::clone(&bus));
    let team_context = TeamContext::new(name.clone(), run, my_bus, rules.max_sends, hooks);
    let team_context = Rc::new(team_context.with_stage(parts.stage));
    let output_store = output_store(&team, name, place.as_ref(), &secrets, &parts.show);
    let pins = ToolPins::below(environment.state_home());
    let for_servers = (&team, commands.clone(), folder, pins);
    let mcp = mcp_tools(servers, &me, for_servers, (rules.mcp_idle_after, profile), &parts.show);
    let tools = tools::registry(ToolParts {
        commands,
        mcp,
        role: RefCell::default(),
        background: BackgroundCommands::new(Rc::clone(&team_context), output_store.clone()),
        output_store,
        work: parts.work.clone(),
        files,
        instructions: NestedInstructions::new(nested_limits(profile), Some(limits.clone())),
        skills: skills.usable,
        team: Rc::clone(&team_context),
        tasks: Arc::clone(&tasks),
        ops: parts.ops,
        model: Cell::new(parts.models.own.facts.abilities()),
        served: None,
        subagents: subagents.clone().map(|it| -> Rc<dyn SubagentOps> { it }),
        command_turn: CommandTurn::default(),
    });
    let tools = limited(tools, (profile, rules.auto_claim), mode, role);
    let foreign = foreign_setup(parts.agent, setup, (&team, folder, &system), &tools, &rules);
    let heartbeat = heartbeat_writer(&team, &me, &clock, &rules);
    let reporter = status_reporter(&team, &me, &clock, (parts.usage, parts.models.own.facts.price));
    Ok(Agent {
        me,
        mailbox: Arc::new(Mutex::new(parts.mailbox)),
        models: parts.models,
        fallback_pause: Duration::from_secs(rules.fallback_pause),
        max_answer_tokens: rules.max_answer_tokens,
        thinking: rules.thinking(),
        system,
        tools,
        subagents,
        foreign,
        work: parts.work,
        approval,
        team_context,
        bus,
        tasks,
        budget: AgentBudget::of(rules.budgets(), rules.run, name),
        reporter,
        heartbeat,
        role: parts.role,
        start: parts.start,
        clock,
        secrets,
        show: parts.show,
        next_models: Rc::default(),
    })
}

/// Returns the hooks of an agent that works in a folder. `leases` are checked after each, if it works in the workspace.
fn hooks(
    list: Vec<Hook>,
    name: &AgentName,
    folder: &Path,
    setup: CommandSetup,
    leases: Option<TeamDir>,
) -> Hooks {
    Hooks { list, me: name.clone(), workspace: folder.to_owned(), setup, leases }
}

/// Returns the tools of MCP servers, which run as the commands of the agent do.
fn mcp_tools(
    servers: Vec<NamedMcpServer>,
    me: &Identity,
    (team, commands, folder, pins): (&TeamDir, CommandSetup, &Path, ToolPins),
    (idle_after, profile): (u64, Profile),
    show: &Rc<dyn Fn(&Progress)>,
) -> Option<Rc<McpTools>> {
    McpTools::new(McpSetup {
        servers,
        me: me.name.clone(),
        team: team.clone(),
        commands,
        folder: folder.to_owned(),
        pins,
        idle_after: Duration::from_secs(idle_after),
        tell: warner(show),
        is_compact: profile == Profile::Compact,
    })
}

/// The parts that an agent and its subagents share.
type Shared<'a> = (&'a Arc<Bus>, &'a Rc<dyn Clock>, &'a Rc<Redactor>, &'a Rc<dyn Fn(&Progress)>);

/// Returns the subagents of an agent.
fn subagents(
    me: &Identity,
    (bus, clock, secrets, show): Shared<'_>,
    models: Rc<SubagentModels>,
    briefing: SubagentBriefing,
    rules: &Rules,
) -> Rc<Subagents> {
    Subagents::new(SubagentParts {
        caller: me.name.clone(),
        incarnation: me.incarnation.clone(),
        bus: Arc::clone(bus),
        clock: Rc::clone(clock),
        models,
        briefing,
        secrets: Rc::clone(secrets),
        show: Rc::clone(show),
        max_rounds: me.max_rounds,
        max_answer_tokens: rules.max_answer_tokens,
        thinking: rules.thinking(),
        fallback_pause: Duration::from_secs(rules.fallback_pause),
        most: rules.max_subagents,
    })
}

/// Returns the parts of a foreign agent that works in a folder with these instructions.
fn foreign_setup(
    program: Option<AgentProgram>,
    setup: CommandSetup,
    (team, folder, instructions): (&TeamDir, &Path, &str),
    tools: &Rc<Registry>,
    rules: &Rules,
) -> Option<Box<ForeignSetup>> {
    let program = program?;
    Some(Box::new(ForeignSetup {
        agent: AgentSetup {
            commands: CommandSetup { walls: None, env: program.env.clone(), ..setup },
            program,
            folder: folder.to_owned(),
            instructions: instructions.to_owned(),
        },
        tools: Rc::clone(tools),
        sleep_after: rules.agent_sleeps_after(),
        hung_after: rules.agent_hung_after(),
        places: AgentPlaces::new(team.clone(), rules.agents_max_awake),
    }))
}

/// Opens the files of the folder in which an agent works, with the limits of what it may read of them.
fn open_files(
    (team, name): (&TeamDir, &AgentName),
    folder: &Path,
    place: Option<&ClonePlace>,
    commands: &CommandSetup,
    policy: &Policy,
) -> Result<(FileAccess, ReadLimits), Failure> {
    let (walls, denied) = (commands.walls.clone(), denied_files(policy));
    let limits = ReadLimits::new(folder, team.root(), walls.clone(), guarded_files(policy));
    let files = FileAccess::open(team, name, folder, place)
        .or_fail("the workspace cannot be opened", "check the folder's permissions")?
        .with_unreadable(walls, denied)
        .with_search_limits(limits.clone());
    Ok((files, limits))
}

fn heartbeat_writer(
    team: &TeamDir,
    me: &Identity,
    clock: &Rc<dyn Clock>,
    rules: &Rules,
) -> HeartbeatWriter {
    let (incarnation, interval) = (me.incarnation.clone(), rules.heartbeat_interval());
    HeartbeatWriter::new(team, &me.name, incarnation, Rc::clone(clock), interval)
}

fn status_reporter(
    team: &TeamDir,
    me: &Identity,
    clock: &Rc<dyn Clock>,
    (usage, price): (UsageCount, Option<Price>),
) -> StatusReporter {
    let (name, incarnation) = (me.name.clone(), me.incarnation.clone());
    StatusReporter::new(team.clone(), name, incarnation, Rc::clone(clock), usage, price)
}

/// Returns the function that shows a warning to the viewer of the agent.
fn warner(show: &Rc<dyn Fn(&Progress)>) -> Rc<dyn Fn(String)> {
    let show = Rc::clone(show);
    Rc::new(move |text| show(&Progress::Warning(text)))
}

/// Returns the tools of an agent in this profile, mode and role.
fn limited(
    mut tools: Registry,
    (profile, auto_claim): (Profile, bool),
    mode: PermissionMode,
    role: Role,
) -> Rc<Registry> {
    if profile == Profile::Compact {
        tools.use_compact_profile(auto_claim);
    }
    tools.set_mode(mode);
    tools.limit(role);
    Rc::new(tools)
}

fn identity(
    name: &AgentName,
    incarnation: &str,
    role: &Role,
    rules: &Rules,
    agent: Option<&AgentProgram>,
) -> Identity {
    let is_teammate = !name.is_lead();
    Identity {
        name: name.clone(),
        incarnation: incarnation.to_owned(),
        max_rounds: role.max_turns.map_or(rules.max_rounds, |turns| turns.min(rules.max_rounds)),
        max_exchanges: rules.max_exchanges,
        takes_tasks: is_teammate && rules.auto_claim,
        checks_idle: is_teammate,
        foreign: agent.map(|agent| format!("acp/{}", agent.name)),
    }
}

/// Completes what killed processes have left: an undo, and the mail of commands of this agent. The model is told of the
/// mail with the reason of the start.
pub(super) async fn with_left_mail(mut agent: Agent) -> Agent {
    let team = agent.bus.dir().clone();
    if let Err(why) = offload(move || recover(&team)).await {
        tracing::warn!(%why, "an interrupted undo was not completed");
    }
    let report = send_left(&agent.team_context).await;
    agent.start.reason = match (agent.start.reason, report) {
        (Some(reason), Some(report)) => Some(format!("{reason}\n{report}")),
        (reason, report) => reason.or(report),
    };
    agent
}

/// Returns the variables of the agent's commands.
fn variables(
    further: &PassedNames,
    team: &TeamDir,
    environment: &Environment,
    is_in_clone: bool,
) -> Vec<(String, String)> {
    if is_in_clone {
        return clones::variables(environment, further, team);
    }
    environment.passed_on(further)
}

fn profile(wanted: PromptProfile, model: &ModelChoice) -> Profile {
    match wanted {
        PromptProfile::Compact => Profile::Compact,
        PromptProfile::Auto if model.spec().has_small_models => Profile::Compact,
        PromptProfile::Full | PromptProfile::Auto => Profile::Full,
    }
}

/// Reads the file of a role and logs its problems. Fails if the lead's role cannot be read. The roles in the user's
/// home are for teammates: the lead has only a role of the folder, if there is one of its name.
fn read_role(
    team: &TeamDir,
    me: &AgentName,
    name: &str,
    known_file: Option<&str>,
) -> Result<Role, Failure> {
    let found = team.find_role(name, tools::find_by_alias).with_known_file(name, known_file);
    if let RoleMatch::File(file) = &found {
        let RoleFile { path, problems, .. } = &**file;
        for Problem { line, what } in problems {
            tracing::warn!(file = %path.display(), line, what, "a role file has a problem");
        }
    }
    Ok(match found {
        RoleMatch::File(file) if me.is_lead() && file.path.is_absolute() => Role::default(),
        // The role that restricts the lead may be in that folder.
        RoleMatch::Unclear(role) if me.is_lead() && role.is_unreadable() => {
            return Err(Failure::new(Exit::Usage, role.what(), role.why(), role.hint()));
        }
        RoleMatch::Unclear(_) if me.is_lead() => Role::default(),
        found @ (RoleMatch::File(_) | RoleMatch::FreeText | RoleMatch::Unclear(_)) => {
            found.limits()
        }
    })
}

/// Lists the roles for the lead's prompt: a compact prompt has only their names.
fn role_list(team: &TeamDir, profile: Profile) -> String {
    let mut files = team.role_files(tools::find_by_alias).files;
    files.retain(|file| file.hidden_by.is_none());
    let line = |RoleFile { role, .. }: &RoleFile| {
        let is_described = profile == Profile::Full && !role.description.is_empty();
        let purpose = if is_described { format!(": {}", role.description) } else { String::new() };
        // A line for each role: a description may have several.
        let words = format!("{}{purpose}", role.name);
        let words: Vec<&str> = words.split_whitespace().collect();
        let shown: String = words.join(" ").chars().take(ROLE_CHARS).collect();
        format!("- {shown}\n")
    };
    let most = match profile {
        Profile::Full => ROLES_LISTED,
        Profile::Compact => COMPACT_ROLES_LISTED,
    };
    let mut text: String = files.iter().take(most).map(line).collect();
    if let Some(more) = files.len().checked_sub(most).filter(|more| *more > 0) {
        let _infallible = writeln!(text, "- and {more} more");
    }
    text
}

/// Fails if the lead's role or permissions have a rule that is not understood, as [`build_agent`] does.
pub(super) fn check_lead_rules(team: &TeamDir, permissions: &Permissions) -> Result<(), Failure> {
    let (nobody, lead) = (Asks::NoOne(String::new()), AgentName::lead());
    let role = read_role(team, &lead, lead.as_str(), None)?;
    approval_gate(permissions.clone(), nobody, &role, &lead).map(drop)
}

/// Creates the gate of tool calls. A role can only refuse more than the permissions do.
fn approval_gate(
    permissions: Permissions,
    asks: Asks,
    role: &Role,
    name: &AgentName,
) -> Result<ApprovalGate, Failure> {
    let Permissions { mode, rules: mut lists, timeout, plan_approval, granted } = permissions;
    lists.deny.extend(tools::rules::denied_by(role));
    let mut policy = Policy::new(mode, &lists).or_exit(
        Exit::Usage,
        "a permission rule is invalid",
        "correct it under [permissions], or in the file of the role",
    )?;
    let is_own = |it: &GrantedAllow| it.agent.as_deref().is_none_or(|agent| agent == name.as_str());
    let allow = granted.into_iter().filter(is_own).map(|it| it.rule).collect();
    if let Err(why) = policy.add(&RuleLists { allow, ..RuleLists::default() }) {
        tracing::warn!(%why, "rules of earlier answers cannot be used");
    }
    Ok(ApprovalGate { policy, asks, timeout: Duration::from_secs(timeout), plan_approval })
}

/// Returns the maximum size of the instructions of the workspace, and of the skills of a role, in bytes.
fn instruction_bytes(profile: Profile) -> usize {
    match profile {
        Profile::Full => PROMPT_BYTES,
        Profile::Compact => 4 * 1024,
    }
}

/// Returns the maximum size of the instructions of folders below the workspace.
fn nested_limits(profile: Profile) -> NestedLimits {
    match profile {
        Profile::Full => NestedLimits { each: 8 * 1024, total: 32 * 1024 },
        Profile::Compact => NestedLimits { each: 2 * 1024, total: 4 * 1024 },
    }
}

/// Reads the instructions of the workspace, also for an agent in a clone.
fn house_rules(team: &TeamDir, profile: Profile, limits: &ReadLimits) -> String {
    let limits = limits.clone().of_workspace(team.workspace());
    let refuses = |path: &Path| limits.refuses(path);
    let most = instruction_bytes(profile);
    let instructions = instructions::of_workspace(team.workspace(), most, &refuses);
    for problem in &instructions.problems {
        tracing::warn!(problem, "the instructions of the workspace are incomplete");
    }
    instructions.text
}
